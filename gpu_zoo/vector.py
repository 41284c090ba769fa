"""The batched environment: thousands of copies of one environment, stepped by one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from gpu_zoo import snapshot
from gpu_zoo.actions import ActionWriter
from gpu_zoo.backends import ArrayKind, resolve_device
from gpu_zoo.engine import Engine
from gpu_zoo.errors import ResetNeeded
from gpu_zoo.memory import copied
from gpu_zoo.results import (
    GroupBuffers,
    StepResult,
    concatenate,
    group_buffers,
    make_infos,
    with_fresh_dicts,
)
from gpu_zoo.seeds import seed_rows
from gpu_zoo.spec import EnvSpec, GroupLayout, Numerics
from gpu_zoo.starts import pack_pool

__all__ = ["GroupBuffers", "StepResult", "VectorEnv"]


class VectorEnv:
    """``num_envs`` copies of an environment. Made by :func:`gpu_zoo.make_vec`.

    Observations, rewards, terminations, truncations and infos are dicts by agent, as in
    PettingZoo's parallel API, each value an array with ``num_envs`` in front. The arrays are
    written in place: they change at the next ``step`` unless ``copy=True``.

    Attributes:
        spec: the environment's :class:`~gpu_zoo.spec.EnvSpec`.
        num_envs: number of environments.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``.
        numerics: ``"fast"`` or ``"reference"``.
        agents: names of all agents, in order.
        possible_agents: the same.
        groups: group name to the names of its agents; agents of a group have the same spaces.
        group: group name to :class:`GroupBuffers`.
        autoreset_mode: when a finished environment starts its next episode.
        validate_actions: whether the values of actions are checked.
        engine: what it consists of, for gpu_zoo's own faces; it may change with any version.
        metadata: ``name``, ``render_modes``, ``render_fps`` and ``autoreset_mode``.
    """

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int = 1,
        *,
        device: str = "cpu",
        array: ArrayKind | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        numerics: Numerics = "fast",
        copy: bool = False,
        validate_actions: bool | None = None,
        reset_pool: Mapping[str, Any] | None = None,
        shape: str | None = None,
        build: str = "plain",
        **params: Any,
    ) -> None:
        if not isinstance(num_envs, (int, np.integer)) or isinstance(num_envs, bool):
            raise TypeError(f"num_envs={num_envs!r}: expected an int")
        if not 1 <= num_envs <= 2**30:  # loops over environments go a stride further, in an int
            raise ValueError(f"num_envs={num_envs}: expected at least 1, at most 2**30")
        if not isinstance(spec, EnvSpec):
            raise TypeError(f"spec={spec!r}: {type(spec).__name__}, expected an EnvSpec")
        if shape not in (None, "lane", "block", "spread"):
            raise ValueError(f"shape={shape!r}: expected None, 'lane', 'block' or 'spread'")
        if numerics not in ("fast", "reference"):
            raise ValueError(f"numerics={numerics!r}: expected 'fast' or 'reference'")
        for name, flag in (("copy", copy), ("validate_actions", validate_actions)):
            if not isinstance(flag, bool) and (flag is not None or name == "copy"):
                wanted = "True or False" + ", or None" * (name != "copy")
                raise TypeError(f"{name}={flag!r}: expected {wanted}")
        self.spec = spec
        self.num_envs = int(num_envs)
        self.numerics: Numerics = numerics
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.device = resolve_device(device)
        on_cpu = self.device == "cpu"
        self.validate_actions = on_cpu if validate_actions is None else validate_actions
        self._copy = copy
        self.engine = Engine(
            spec, self.num_envs, params, device=self.device, array=array,
            autoreset_mode=self.autoreset_mode, numerics=numerics, shape=shape, build=build,
        )  # fmt: skip
        disabled = self.autoreset_mode == AutoresetMode.DISABLED
        self.engine.refuses_finished = disabled and self.validate_actions
        self._name_things()
        if reset_pool is not None:
            self.set_reset_pool(reset_pool)

    def _name_things(self) -> None:
        engine = self.engine
        groups, arrays = engine.program.groups, engine.arrays
        self.agents = engine.program.agents
        self.possible_agents = self.agents
        self.groups: Mapping[str, tuple[str, ...]] = MappingProxyType(
            {group.name: group.agents for group in groups}
        )
        self.group: Mapping[str, GroupBuffers] = MappingProxyType(
            {group.name: group_buffers(group, arrays) for group in groups}
        )
        self.metadata: dict[str, Any] = {
            "name": self.spec.name,
            "render_modes": ["human", "rgb_array"] if self.spec.render else [],
            "render_fps": self.spec.render_fps,
            "autoreset_mode": self.autoreset_mode,
        }
        self._group_of = {agent: group for group in groups for agent in group.agents}
        self._writer = ActionWriter(
            groups, engine.backend, engine.views, self.num_envs, self.validate_actions
        )
        self._observations, self._rewards, self._terminations, self._truncations = map(
            engine.by_agent, ("observations", "rewards", "terminations", "truncations")
        )
        self._infos = make_infos(groups, arrays, self.autoreset_mode)

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameter values, defaults included; an array where each environment has its own."""
        return self.engine.params

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.engine.closed

    # Spaces ------------------------------------------------------------------------------------

    def single_observation_space(self, agent: str) -> spaces.Box:
        """The observation space of ``agent`` in one environment."""
        return self.group[self._layout(agent).name].observation_space

    def single_action_space(self, agent: str) -> spaces.Space[Any]:
        """The action space of ``agent`` in one environment."""
        return self.group[self._layout(agent).name].action_space

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The observation space of ``agent`` in all environments, ``num_envs`` in front."""
        return batch_space(self.single_observation_space(agent), self.num_envs)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The action space of ``agent`` in all environments, ``num_envs`` in front."""
        return batch_space(self.single_action_space(agent), self.num_envs)

    @property
    def state_space(self) -> spaces.Box:
        """The space of one environment's row of :meth:`state`."""
        low, high = (
            np.concatenate(
                [
                    np.tile(np.array(getattr(g, side), np.float32), g.count)
                    for g in self.engine.program.groups
                ]
            )
            for side in ("obs_low", "obs_high")
        )
        return spaces.Box(low, high, dtype=np.float32)

    def _layout(self, agent: str) -> GroupLayout:
        if agent not in self._group_of:
            raise KeyError(f"agent={agent!r}: expected one of {', '.join(self.agents)}")
        return self._group_of[agent]

    # Episodes ----------------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start a new episode in every environment, or in those of ``options["reset_mask"]``.

        Args:
            seed: environment i is seeded with ``seed + i``, or with ``seed[i]``. With None the
                random streams go on (from the operating system's entropy the first time).
            options: ``{"reset_mask": bool array (num_envs,)}`` resets only where true.

        Returns:
            Observations by agent, float32 ``(num_envs, n)``, and infos, which are empty but for
            action masks, see :meth:`step`.

        Raises:
            InvalidSeed: a seed out of 0 ... 2**63 - 1, or not one for each environment.
            ValueError: a mask of the wrong shape or dtype, or without a true entry; an unknown
                option.
            ResetNeeded: a mask was given before the first whole reset.
        """
        self.engine.require_open()
        mask = self._reset_mask(options)
        if seed is not None or not self.engine.is_reset:  # the first reset seeds every environment
            rows = self.engine.backend.native(seed_rows(seed, self.num_envs, self.numerics))
            selected = self.engine.backend.native(mask)
            self.engine.views["rng"][selected] = rows[selected]
        self.engine.views["reset_mask"][...] = self.engine.backend.native(mask)
        self.engine.run("reset")
        self.engine.is_reset = True
        observations, _, _, _, infos = self._results()
        return observations, {n: v for n, v in infos.items() if n == "action_mask"}

    def step(self, actions: Mapping[str, Any] | None = None) -> StepResult:
        """Advance every environment by one step.

        Args:
            actions: agent to array: integers ``(num_envs,)`` for a discrete action space, float32
                ``(num_envs, size)`` for a box. None steps on what stands in
                ``env.group[...].actions``.

        Returns:
            Observations, rewards, terminations and truncations by agent, and infos:
            ``infos["episode"]["r"][agent]`` and ``["l"]`` are return and length of the episodes
            that just ended, where ``infos["_episode"]`` is true; in SAME_STEP mode
            ``infos["final_obs"][agent]`` holds their last observations. Where actions are masked,
            ``infos["action_mask"][agent]``, int8 ``(num_envs, n)``, is 1 for those that the agent
            may take next, and 0 for all others; see :class:`GroupBuffers`.

        Raises:
            ResetNeeded: no reset yet, or a finished environment in DISABLED mode.
            InvalidAction: an action of the wrong shape, dtype, device or value, or one that the
                mask forbids; nothing moved.
        """
        self.engine.require_reset("step")
        if self.engine.refuses_finished:
            self.engine.require_unfinished()
        if actions is not None:
            self._writer.write(actions)
        elif self.validate_actions:
            self._writer.check_buffers()
        self.engine.run("step")
        return self._results()

    def _results(self) -> StepResult:
        # New dicts over the same arrays: who changes a dict does not change ours.
        fresh = copied if self._copy else with_fresh_dicts
        return (
            fresh(self._observations),
            fresh(self._rewards),
            fresh(self._terminations),
            fresh(self._truncations),
            fresh(self._infos),
        )

    def state(self) -> Any:
        """The global state: all agents' observations, in order; float32 ``(num_envs, size)``."""
        self.engine.require_reset("state")
        parts = [
            self.engine.arrays[f"observations/{group.name}"].reshape(self.num_envs, -1)
            for group in self.engine.program.groups
        ]
        if len(parts) == 1:
            return copied(parts[0]) if self._copy else parts[0]
        return concatenate(parts)

    def render(self, index: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A picture of one environment: uint8 ``(height, width, 3)``.

        Raises:
            IndexError: there is no such environment.
            TypeError: the index is no int.
            ResetNeeded: no reset yet.
            NotImplementedError: the environment has no picture.
            MissingDependency: pygame is not installed.
        """
        from gpu_zoo.render.screen import picture

        self.engine.require_reset("render")
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise TypeError(f"index={index!r}: expected an int")
        return picture(self, index)

    def close(self) -> None:
        """Release the environment. Arrays handed out stay valid; closing twice does nothing."""
        self.engine.closed = True

    # Settings and state ------------------------------------------------------------------------

    def set_param(self, name: str, value: Any) -> None:
        """Change a parameter that changes no array's shape, such as a reward weight.

        Args:
            name: the parameter.
            value: its value, or an array ``(num_envs,)`` with one for each environment. The first
                array of an environment's life has a kernel compiled that reads them; after that,
                and for single values always, a change takes microseconds.

        Raises:
            KeyError: no such parameter, or one that is fixed when the kernel is compiled.
            TypeError: a wrong type.
            ValueError: out of range, in conflict with another parameter, or not one value for each
                environment. Whatever is raised, nothing has changed.
        """
        self.engine.require_open()
        launch = [n for n, p in self.spec.params.items() if p.at == "launch"]
        if name not in launch:
            raise KeyError(f"name={name!r}: expected one of {', '.join(launch)}")
        self.engine.set_params({name: value})

    def set_reset_pool(self, states: Mapping[str, Any] | None) -> None:
        """From the next reset on, begin every episode in a state drawn from a pool.

        Args:
            states: field of the state to array ``(rows, *shape)``, of the dtype that
                :meth:`get_state` gives it. Each episode takes one row of all of them, drawn by its
                environment's own generator; fields that are not given are drawn as ever. The first
                pool has a kernel compiled that reads it. None goes back to drawing all of them.

        Raises:
            KeyError: no such field.
            TypeError: not a dict.
            ValueError: a wrong shape or dtype, or no row at all.
        """
        self.engine.require_open()
        pool = None if states is None else pack_pool(self.engine.program, states)
        self.engine.use_pool(pool, own_starts=False)

    def get_state(self) -> dict[str, Any]:
        """The full state by name, as fresh arrays ``(num_envs, ...)``: the fields of the
        environment, step counters, random streams and running returns. What
        :meth:`set_state` takes.
        """
        self.engine.require_reset("get_state")
        return snapshot.take(self.engine)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`get_state` gave, or some of its entries, and observe anew.

        Raises:
            KeyError: an unknown name.
            ValueError: a wrong shape or dtype.
        """
        self.engine.require_reset("set_state")
        snapshot.put(self.engine, state)
        self.engine.run("observe")

    # Checks ------------------------------------------------------------------------------------

    def _reset_mask(self, options: Mapping[str, Any] | None) -> Any:
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"options={options!r}: expected a dict")
        for name in options or ():
            if name != "reset_mask":
                raise ValueError(f"options[{name!r}]: expected only 'reset_mask'")
        if not options:
            return np.ones(self.num_envs, np.bool_)
        if not self.engine.is_reset:
            raise ResetNeeded("options['reset_mask']: reset all environments first")
        mask = self.engine.backend.native(options["reset_mask"])
        if tuple(mask.shape) != (self.num_envs,) or not str(mask.dtype).endswith("bool"):
            raise ValueError(
                f"options['reset_mask']: {mask.dtype} {tuple(mask.shape)}, "
                f"expected bool ({self.num_envs},)"
            )
        if not mask.any():
            raise ValueError("options['reset_mask']: no entry is true")
        return mask

    def __repr__(self) -> str:
        shown = {
            name: "one each" if isinstance(value, np.ndarray) else value
            for name, value in self.params.items()
        }
        changed = {n: v for n, v in shown.items() if v != self.spec.params[n].default}
        extra = "".join(f", {name}={value!r}" for name, value in changed.items())
        agents = " + ".join(f"{len(names)} {group}" for group, names in self.groups.items())
        return (
            f"<VectorEnv {self.spec.id} num_envs={self.num_envs} device={self.device} "
            f"numerics={self.numerics} autoreset={self.autoreset_mode.value} ({agents}){extra}>"
        )


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    for known in AutoresetMode:
        if mode in (known.value, known.name, known.name.lower()):
            return known
    names = ", ".join(repr(known.name.lower()) for known in AutoresetMode)
    raise ValueError(f"autoreset_mode={mode!r}: expected {names} or a gymnasium AutoresetMode")
