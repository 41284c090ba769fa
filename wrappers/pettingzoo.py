"""PettingZoo's faces of an environment: drop-ins for the original's module.

``drop_in(SPEC)`` gives ``raw_env`` (an AEC environment class), ``env`` (the same behind
PettingZoo's usual wrappers) and ``parallel_env``, with the original's parameters, agent names,
spaces, order of events and, in reference numerics, its very numbers. One environment of the batch
serves them, so the rules exist once.
"""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import wrappers
from pettingzoo.utils.env_logger import EnvLogger

from gpu_zoo.actions import forbidden
from gpu_zoo.errors import InvalidAction, InvalidSeed, ResetNeeded
from gpu_zoo.memory import as_int8
from gpu_zoo.seeds import generator_of, words_of
from gpu_zoo.spec import EnvSpec, GroupLayout, Numerics, Param, Value
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.incoming import on_host


class DropIn(NamedTuple):
    """What a module such as ``mpe2.simple_spread_v3`` has."""

    raw_env: type[AECFace]
    env: Callable[..., AECEnv[str, Any, Any]]
    parallel_env: Callable[..., ParallelFace]


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
        for group in self.vector._program.groups:
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
        self.vector._require_reset(field)
        self._open |= writable
        layout = self.vector._program.fields[field]
        view: npt.NDArray[Any] = self.vector._memory.tiles(layout)[0, :, 0].reshape(layout.shape)
        view.flags.writeable = writable
        return view

    def refresh(self) -> None:
        """Observe anew if somebody may have written into the state."""
        if self._open:
            self.vector._backend.launch("observe")

    def judge(self, **changed: Value) -> Verdict:
        """What the rules say of the state as it is; nothing moves and no time passes.

        Args:
            **changed: parameters that have other values for this once; none that is compiled in.
        """
        with self.vector._scored(**changed):
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
        self.vector._backend.launch("step")

    @property
    def random(self) -> np.random.Generator:
        """The environment's random stream, until the next step or reset; see ``Face.np_random``."""
        self.vector._require_reset("np_random")
        if self._random is None:
            self._random = generator_of(self.vector._views["rng"][0], self.vector.numerics)
        return self._random

    def take_back_random(self) -> None:
        """Let the kernel go on where somebody who drew from its stream has left it."""
        if self._random is not None and self.vector.numerics == "reference":
            self.vector._views["rng"][0] = words_of(self._random)
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
        return convert(self.vector._infos["benchmark_data"][agent][0])


class Face:
    """What the AEC and the parallel face share: the game, its spaces, curriculum and pictures."""

    _spec: EnvSpec

    def _set_up(self, spec: EnvSpec, numerics: Numerics, params: Mapping[str, Any]) -> None:
        self._spec = spec
        self._given = {"numerics": numerics, **params}
        self.game = Game(spec, params, numerics)
        self.render_mode: Any = self.params.get("render_mode")
        # A dict of the instance's own: the original shares one between all classes.
        self.metadata: dict[str, Any] = {
            "name": spec.name,
            "render_modes": ["human", "rgb_array"] if spec.render else [],
            "is_parallelizable": True,
            "render_fps": spec.render_fps,
        }
        self.possible_agents = self.game.agents[:]
        self.agents: list[str] = []
        self.state_space = self.game.state_space
        self._picture: Any = None

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters' values, defaults included."""
        return self.game.params

    def observation_space(self, agent: str) -> spaces.Box:
        """The agent's observation space; always the same object."""
        return self.game.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The agent's action space; always the same object."""
        return self.game.action_spaces[agent]

    def state(self) -> npt.NDArray[np.float32]:
        """All observations in the agents' order, float32."""
        self._require_reset("state")
        self.game.refresh()
        return self.game.state()

    @property
    def np_random(self) -> np.random.Generator:
        """The environment's own random stream, for wrappers that draw from it.

        As in the original, the environment goes on behind what was drawn. Ask anew after each step
        and reset. In fast numerics it is a stream of its own, seeded by the environment's.

        Raises:
            ResetNeeded: no reset yet.
        """
        return self.game.random

    def __getattr__(self, name: str) -> Any:
        # Only for names that we have not. A copy in the making has no game yet.
        game = self.__dict__.get("game")
        if game is None or name.startswith("_") or name not in game.inside:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return game.inside[name]()

    def _of_those_here(self, by_agent: dict[str, Any]) -> dict[str, Any]:
        """The entries of the agents that were in the game until now."""
        if len(self.agents) == len(by_agent):
            return by_agent
        return {agent: by_agent[agent] for agent in self.agents}

    def _require_reset(self, what: str) -> None:
        if not self.game.vector._is_reset:
            raise ResetNeeded(f"{what}: call reset() first")

    # The curriculum, where the environment has one.

    @property
    def curriculum_stage(self) -> int:
        """The current stage; it matters only with ``curriculum=True``."""
        return int(self.game.vector.params["curriculum_stage"])

    def advance_curriculum(self) -> None:
        """Go to the next stage, if there is one."""
        self.set_curriculum_stage(self.curriculum_stage + 1)

    def set_curriculum_stage(self, stage: int) -> None:
        """Go to a stage; the nearest one there is."""
        if isinstance(stage, bool) or not isinstance(stage, (int, np.integer)):
            raise TypeError(f"stage={stage!r}: expected an int")
        last = self._spec.params["curriculum_stage"].high
        self.game.vector.set_param("curriculum_stage", max(0, min(stage, int(last or 0))))

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The scene as uint8 ``(height, width, 3)``, or None after showing it in a window.

        Raises:
            ResetNeeded: no reset yet.
            MissingDependency: pygame is not installed.
        """
        if self.render_mode is None:
            gymnasium.logger.warn(
                "You are calling render method without specifying any render mode."
            )
            return None
        self._require_reset("render")
        if self._picture is None:
            from gpu_zoo.render.screen import Screen

            self._picture = Screen(self._spec, self.render_mode, self.metadata["render_fps"])
        picture: npt.NDArray[np.uint8] | None = self._picture.show(
            self.game.scene(), self.game.start, self.params
        )
        return picture

    def close(self) -> None:
        """Close the window, if there is one; closing twice does nothing."""
        if self._picture is not None:
            self._picture.close()
            self._picture = None

    # Copies and pickles carry the whole state, so that an episode can go on in the copy.

    def __getstate__(self) -> dict[str, Any]:
        own = {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("game", "_picture", "_spec")
        }
        vector = self.game.vector
        self.game.take_back_random()
        return {
            "id": self._spec.id,
            "own": own,
            "params": dict(vector.params),
            "state": vector.get_state() if vector._is_reset else None,
            # An AEC environment may be between two agents' turns.
            "actions": {name: group.actions.copy() for name, group in vector.group.items()},
            "start": getattr(self.game, "start", None),
            "pool": vector._pool,
            "own_starts": vector._own_starts,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # The classes of registered environments are in no module.
        return _unpickled, (self._spec.id, isinstance(self, ParallelFace)), self.__getstate__()

    def __setstate__(self, pickled: Mapping[str, Any]) -> None:
        from gpu_zoo.registry import spec

        given = dict(pickled["own"]["_given"])
        self._set_up(spec(pickled["id"]), given.pop("numerics"), given)
        self.__dict__.update(pickled["own"])
        vector = self.game.vector
        vector._own_starts = pickled["own_starts"]
        changed = {n: v for n, v in pickled["params"].items() if v != vector.params[n]}
        if changed:
            vector._set_params(changed)
        if pickled["pool"] is not None or vector._pool is not None:
            vector._use_pool(pickled["pool"])
        if pickled["state"] is not None:
            vector.reset(seed=0)
            vector.set_state(pickled["state"])
            self.game.start = pickled["start"]
        for name, actions in pickled["actions"].items():
            vector.group[name].actions[...] = actions


class ParallelFace(Face, ParallelEnv[str, Any, Any]):
    """One environment with PettingZoo's parallel API: all agents act at once."""

    def __init__(self, spec: EnvSpec, numerics: Numerics = "reference", **params: Any) -> None:
        self._set_up(spec, numerics, params)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode. ``options`` are accepted and mean nothing, as in the original."""
        self.game.reset(seed)
        self.agents = self.possible_agents[:]
        return self._observations(), self.game.masks()

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[
        dict[str, Any],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """All agents act; returns observations, rewards, terminations, truncations and infos.

        Raises:
            ResetNeeded: no reset yet.
            InvalidAction: an agent without a valid action, or one that its mask forbids; nothing
                moved.
        """
        self._require_reset("step")
        if not self.agents:
            return {}, {}, {}, {}, {}
        if not isinstance(actions, Mapping):
            raise InvalidAction(f"actions: {type(actions).__name__}, expected a dict by agent")
        for agent in self.agents:
            if agent not in actions:
                raise InvalidAction(f"actions: nothing for {agent}")
            self.game.set_action(agent, actions[agent])
        if len(actions) != len(self.agents):
            unknown = [repr(name) for name in actions if name not in self.agents]
            raise InvalidAction(f"actions: unknown agent {', '.join(unknown)}")
        self.game.step()
        terminations = self._of_those_here(self.game.terminations())
        truncations = self._of_those_here(self.game.truncations())
        results = (
            self._observations(),
            self._of_those_here(self.game.rewards()),
            terminations,
            truncations,
            self._of_those_here(self.game.infos()),
        )
        self.agents = [a for a in self.agents if not (terminations[a] or truncations[a])]
        if self.render_mode == "human":
            self.render()
        return results

    def _observations(self) -> dict[str, Any]:
        return {agent: self.game.observe(agent) for agent in self.agents}


class AECFace(Face, AECEnv[str, Any, Any]):
    """One environment with PettingZoo's AEC API: agents act in turn, the world after the last."""

    def __init__(self, *args: Any, numerics: Numerics = "reference", **params: Any) -> None:
        names = list(self._spec.params)
        twice = [name for name in names[: len(args)] if name in params]
        if twice:
            raise TypeError(f"{self._spec.id}: {twice[0]} is given twice")
        if len(args) > len(names):
            raise TypeError(f"{self._spec.id} takes {len(names)} parameters, got {len(args)}")
        self._set_up(self._spec, numerics, {**dict(zip(names, args, strict=False)), **params})
        # Unlike a parallel one, the original AEC environment lists its agents before reset().
        self.agents = self.possible_agents[:]

    def observe(self, agent: str) -> Any:
        """The agent's observation now, float32."""
        self._require_reset("observe")
        self.game.refresh()
        return self.game.observe(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode. ``options`` are accepted and mean nothing, as in the original."""
        self.game.reset(seed)
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = self.game.masks()
        self.agent_selection = self.agents[0]
        self.steps = 0

    def step(self, action: Any) -> None:
        """The selected agent acts; after the last one of a round the world moves.

        Raises:
            ResetNeeded: no reset yet.
            InvalidAction: the action is not in the agent's action space, or its mask forbids it.
        """
        self._require_reset("step")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self.game.set_action(agent, action)
        turn = self.agents.index(agent)
        self.agent_selection = self.agents[(turn + 1) % len(self.agents)]
        if turn == len(self.agents) - 1:
            self.game.step()
            self.steps += 1
            self.rewards = self._of_those_here(self.game.rewards())
            self.terminations = self._of_those_here(self.game.terminations())
            self.truncations = self._of_those_here(self.game.truncations())
            self.infos = self._of_those_here(self.game.infos())
            self._select_first()
        else:
            self._clear_rewards()
        self._cumulative_rewards[agent] = 0
        self._accumulate_rewards()
        if self.render_mode == "human":
            self.render()

    def _select_first(self) -> None:
        """The next round's first agent; before it, those that leave take their last step."""
        staying = [a for a in self.agents if not (self.terminations[a] or self.truncations[a])]
        if staying and len(staying) < len(self.agents):
            self.agent_selection = staying[0]
            self._deads_step_first()


def _unpickled(env_id: str, parallel: bool) -> Face:
    from gpu_zoo.registry import spec

    face = _faces(spec(env_id))[parallel]
    return face.__new__(face)


@cache
def _faces(spec: EnvSpec) -> tuple[type[AECFace], type[ParallelFace]]:
    """The classes of one environment, which has its parameters as attributes."""
    module = f"gpu_zoo.{spec.family}.{spec.name}"
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=param.default)
        for name, param in spec.params.items()
    ]
    # What a face has already it treats in its own way.
    taken = {"render_mode", *dir(Face)}
    settings = {name: _setting(name, p) for name, p in spec.params.items() if name not in taken}
    own = {**settings, "_spec": spec, "__module__": module}
    doc = f"{spec.summary} AEC API, without wrappers; see :class:`AECFace`."
    signature = inspect.Signature(parameters)
    raw_env = type("raw_env", (AECFace,), {**own, "__doc__": doc, "__signature__": signature})
    parallel = type("ParallelFace", (ParallelFace,), {**own, "__doc__": ParallelFace.__doc__})
    return raw_env, parallel


def _setting(name: str, param: Param) -> property:
    """A parameter as the attribute that the original has; to write if the kernel reads it anew."""

    def read(face: Face) -> Any:
        return face.game.vector.params[name]

    def write(face: Face, value: Any) -> None:
        # One value: the batch would take a list of one, too.
        face.game.vector.set_param(name, param.check(name, value))

    return property(read, write if param.at == "launch" else None, doc=param.doc)


@cache
def drop_in(spec: EnvSpec) -> DropIn:
    """The three names that the original's module has, for one environment."""
    raw_env, parallel = _faces(spec)

    def env(**params: Any) -> AECEnv[str, Any, Any]:
        bare = raw_env(**params)
        clip = wrappers.ClipOutOfBoundsWrapper
        check = wrappers.AssertOutOfBoundsWrapper
        continuous = bare.params.get("continuous_actions", False)
        return wrappers.OrderEnforcingWrapper((clip if continuous else check)(bare))

    env.__doc__ = f"{spec.summary} AEC API, behind PettingZoo's usual wrappers."
    return DropIn(raw_env, env, partial(parallel, spec))
