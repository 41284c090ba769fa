"""One environment out of a batch of one, with plain Python values: what PettingZoo's faces show."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from pettingzoo.utils.env_logger import EnvLogger

from gpu_zoo.actions import forbidden
from gpu_zoo.errors import InvalidAction, InvalidSeed
from gpu_zoo.memory import as_int8
from gpu_zoo.seeds import generator_of, words_of
from gpu_zoo.spec import EnvSpec, GroupLayout, Numerics, Value
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.incoming import on_host


class Verdict(NamedTuple):
    """What the rules say of a state, by agent."""

    rewards: dict[str, float]
    terminations: dict[str, bool]
    infos: dict[str, dict[str, Any]]


class Game:
    """One environment out of a batch of one, with plain Python values by agent.

    Observations are fresh arrays, since PettingZoo users keep them.
    """

    def __init__(self, spec: EnvSpec, params: Mapping[str, Any], numerics: Numerics) -> None:
        self.spec = spec
        spec.resolve(params)  # one value each: the batch would take a list of one, too
        # Checked here and not again: an action is looked at once, as a Python value.
        self.vector = VectorEnv(
            spec,
            1,
            autoreset_mode=AutoresetMode.DISABLED,
            numerics=numerics,
            validate_actions=False,
            **params,
        )
        self.agents = list(self.vector.agents)
        self.observation_spaces: dict[str, spaces.Box] = {}
        self.action_spaces: dict[str, spaces.Space[Any]] = {}
        self._rows: dict[str, npt.NDArray[np.float32]] = {}
        self._layouts: dict[str, GroupLayout] = {}
        self._actions: dict[str, tuple[Any, int]] = {}
        self._masks: dict[str, tuple[npt.NDArray[np.int8], ...]] = {}
        for group in self.vector.engine.program.groups:
            arrays = self.vector.group[group.name]
            for i, agent in enumerate(group.agents):
                # One space an agent: each can be seeded on its own.
                self.observation_spaces[agent] = group.observation_space()
                self.action_spaces[agent] = group.actions.space()
                self._rows[agent] = arrays.observations[0, i]
                self._layouts[agent] = group
                self._actions[agent] = (arrays.actions[0], i)
                if group.mask_size:
                    ends = np.cumsum(group.actions.counts)[:-1]
                    mask = as_int8(arrays.action_masks[0, i])
                    self._masks[agent] = tuple(np.split(mask, ends))
        self.state_space = self.vector.state_space
        self._by_group = {
            name: [getattr(group, name)[0] for group in self.vector.group.values()]
            for name in ("rewards", "terminations", "truncations")
        }
        self._rounded = False
        self._open = False
        self._random: np.random.Generator | None = None

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters' values now: the curriculum's stage may move."""
        return self.vector.params

    def reset(self, seed: int | None) -> None:
        """Begin an episode; with a seed, the one the original begins with that seed."""
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer))):
            raise InvalidSeed(f"seed={seed!r}: expected an int")
        self.take_back_random()
        self.vector.reset(seed=seed)
        if self.params.get("render_mode") is not None:
            self.start = self.scene()

    def scene(self) -> dict[str, npt.NDArray[Any]]:
        """The state's fields of the one environment, for drawing."""
        return {name: value[0] for name, value in self.vector.get_state().items()}

    def observe(self, agent: str) -> Any:
        """The agent's observation, a copy; float32."""
        return self._rows[agent].copy()

    def state(self) -> npt.NDArray[np.float32]:
        """All observations in the agents' order, float32."""
        return np.concatenate([self._rows[agent] for agent in self.agents], axis=None)

    @cached_property
    def inside(self) -> Mapping[str, Callable[[], Any]]:
        """Functions that get, by name, what code reads inside the original's environment."""
        if self.spec.inside is None:
            return {}
        module, _, name = self.spec.inside.partition(":")
        found: Mapping[str, Callable[[], Any]] = getattr(importlib.import_module(module), name)(
            self
        )
        return found

    def memory(self, field: str, *, writable: bool = False) -> npt.NDArray[Any]:
        """A field of the state where the kernel keeps it: a view that changes with every step.

        Who asked for a writable one may move things behind our back, so from then on
        :meth:`refresh` does something.

        Raises:
            ResetNeeded: no reset yet.
        """
        self.vector.engine.require_reset(field)
        self._open |= writable
        layout = self.vector.engine.program.fields[field]
        tiles = self.vector.engine.memory.tiles(layout)
        view: npt.NDArray[Any] = tiles[0, :, 0].reshape(layout.shape)
        view.flags.writeable = writable
        return view

    def refresh(self) -> None:
        """Observe anew if somebody may have written into the state."""
        if self._open:
            self.vector.engine.backend.launch("observe")

    def judge(self, **changed: Value) -> Verdict:
        """What the rules say of the state as it is; nothing moves and no time passes.

        Args:
            **changed: parameters that have other values for this once; none that is compiled in.
        """
        with self.vector.engine.scored(**changed):
            return Verdict(self.rewards(), self.terminations(), self.infos())

    def given_action(self, agent: str) -> Any:
        """The action that the agent was given last: an int32, or float32 of the space's shape."""
        row, i = self._actions[agent]
        return row[i].copy()

    def set_action(self, agent: str, action: Any) -> None:
        """Check an action and put it where the kernel reads it."""
        actions = self._layouts[agent].actions
        if actions.box is not None:
            self._set_box(agent, action)
        elif actions.choices is not None:
            self._set_multi(agent, action, actions.choices)
        else:
            self._set_discrete(agent, action)

    def _set_discrete(self, agent: str, action: Any) -> None:
        n = len(self._layouts[agent].actions.names)
        try:
            value = operator.index(action)
        except (TypeError, RuntimeError):  # torch's, of a tensor without data
            raise InvalidAction(
                f"actions[{agent!r}]: {action!r} is no integer, expected 0 <= action < {n}"
            ) from None
        if not 0 <= value < n:
            raise InvalidAction(f"actions[{agent!r}]: {value}, expected 0 <= action < {n}")
        self._require_allowed(agent, value, (value,))
        row, i = self._actions[agent]
        row[i] = value

    def _set_multi(self, agent: str, action: Any, choices: tuple[Any, ...]) -> None:
        integers = f"{len(choices)} integers, 0 <= action < {list(choices)}"
        wanted = f"expected {integers}"
        values = on_host(f"actions[{agent!r}]", action, integers)
        if values.shape != (len(choices),) or values.dtype.kind not in "iu":
            raise InvalidAction(f"actions[{agent!r}]: {action!r}, {wanted}")
        if (values < 0).any() or (values >= choices).any():
            raise InvalidAction(f"actions[{agent!r}]: {values.tolist()}, {wanted}")
        self._require_allowed(agent, values, values)
        row, i = self._actions[agent]
        row[i] = values

    def _require_allowed(self, agent: str, action: Any, parts: Iterable[int]) -> None:
        """Refuse an action of which the mask forbids a component."""
        for k, (part, mask) in enumerate(zip(parts, self._masks.get(agent, ()), strict=False)):
            if not mask[part]:
                raise InvalidAction(f"actions[{agent!r}]: {forbidden(action, k, mask)}")

    def _set_box(self, agent: str, action: Any) -> None:
        space = self.action_spaces[agent]
        assert isinstance(space, spaces.Box)
        values = on_host(f"actions[{agent!r}]", action, f"float32 {space.shape}")
        if values.shape != space.shape or values.dtype.kind not in "fiu":
            raise InvalidAction(
                f"actions[{agent!r}]: {values.dtype} {values.shape}, expected float32 {space.shape}"
            )
        if np.isnan(values).any():
            raise InvalidAction(f"actions[{agent!r}]: NaN in {values}")
        if (values < space.low).any() or (values > space.high).any():
            # What PettingZoo's ClipOutOfBoundsWrapper does around the original.
            EnvLogger.warn_action_out_of_bound(
                action=values, action_space=space, backup_policy="clipping to space"
            )
            values = np.clip(values, space.low, space.high)
        if values.dtype != np.float32 and not self._rounded:
            self._rounded = True
            gymnasium.logger.warn(
                f"actions[{agent!r}] are {values.dtype}; rounded to the space's float32"
            )
        row, i = self._actions[agent]
        row[i] = values

    def step(self) -> None:
        """Step on the actions that were set; they were checked, so the kernel can run at once."""
        self.take_back_random()
        self.vector.engine.backend.launch("step")

    @property
    def random(self) -> np.random.Generator:
        """The environment's random stream, until the next step or reset; see ``Face.np_random``."""
        self.vector.engine.require_reset("np_random")
        if self._random is None:
            self._random = generator_of(self.vector.engine.views["rng"][0], self.vector.numerics)
        return self._random

    def take_back_random(self) -> None:
        """Let the kernel go on where somebody who drew from its stream has left it."""
        if self._random is not None and self.vector.numerics == "reference":
            self.vector.engine.views["rng"][0] = words_of(self._random)
        self._random = None

    def rewards(self) -> dict[str, float]:
        """The last step's rewards."""
        return self._by_agent("rewards")

    def terminations(self) -> dict[str, bool]:
        """Who ended by the rules in the last step."""
        return self._by_agent("terminations")

    def truncations(self) -> dict[str, bool]:
        """Who was cut off by the time limit in the last step."""
        return self._by_agent("truncations")

    def _by_agent(self, name: str) -> dict[str, Any]:
        rows = [value for row in self._by_group[name] for value in row.tolist()]
        return dict(zip(self.agents, rows, strict=True))

    def infos(self) -> dict[str, dict[str, Any]]:
        """The last step's infos, in the original's own terms, and action masks."""
        infos = self.masks()
        if self.params.get("benchmark_data"):
            for agent, info in infos.items():
                info["benchmark_data"] = self.benchmark_data(agent)
        return infos

    def masks(self) -> dict[str, dict[str, Any]]:
        """Infos with nothing but the ``action_mask`` of each agent that has one."""
        masks = {agent: self.action_mask(agent) for agent in self.agents}
        return {agent: {} if m is None else {"action_mask": m} for agent, m in masks.items()}

    def action_mask(self, agent: str) -> Any:
        """Which actions the agent may take now, as its ``action_space.sample`` takes it.

        It is int8 ``(n,)``, or for each component of a multi-discrete action one such array in a
        tuple; 1 where the action is allowed. None if the agent's actions are not masked.
        """
        if agent not in self._masks:
            return None
        fresh = tuple(part.copy() for part in self._masks[agent])
        return fresh if self._layouts[agent].action_size else fresh[0]

    def benchmark_data(self, agent: str) -> Any:
        """The agent's benchmark data of the last step; {} where the original reports nothing."""
        layout = self._layouts[agent]
        if layout.info_size == 0:
            return {}
        convert = layout.info_value or np.copy
        return convert(self.vector.engine.by_agent("infos")[agent][0])
