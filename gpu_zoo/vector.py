"""The batched environment: thousands of copies of one environment, stepped by one kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from gpu_zoo import actions as action_checks
from gpu_zoo.backends import ArrayKind, Operation, make_backend, resolve_device
from gpu_zoo.buffers import GROUP_BUFFERS, Buffer
from gpu_zoo.errors import ClosedEnvironmentError, ResetNeeded
from gpu_zoo.memory import Memory, as_int8, copied, to_numpy
from gpu_zoo.prelude import Features, Program
from gpu_zoo.seeds import seed_rows
from gpu_zoo.spec import EnvSpec, GroupLayout, Numerics, Value
from gpu_zoo.starts import Pool, check_each, is_array, pack_pool

AUTORESET_CODES = {  # as kernels/zoo/entry.cuh numbers them
    AutoresetMode.SAME_STEP: 0,
    AutoresetMode.NEXT_STEP: 1,
    AutoresetMode.DISABLED: 2,
}
# Observations, rewards, terminations, truncations and infos.
StepResult = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]
# What get_state returns besides the environment's own state fields.
STATE_BUFFERS = ("rng", "steps", "done", "last_lengths")
STATE_GROUP_BUFFERS = ("episode_returns", "last_returns")


@dataclass(frozen=True)
class GroupBuffers:
    """The whole arrays of one group of agents, for trainers that share parameters.

    All have shape ``(num_envs, agents, ...)``, are written in place by the kernel and stay valid
    for the environment's life. ``n`` is the observation's length.

    Attributes:
        agents: names, in the order of the second axis.
        observation_space: one agent's, unbatched.
        action_space: one agent's, unbatched.
        observations: float32 ``(num_envs, agents, n)``.
        final_observations: float32, the observations with which finished episodes ended; rows of
            environments whose episode did not just end are stale.
        rewards: float32 (float64 in reference numerics) ``(num_envs, agents)``.
        terminations: bool ``(num_envs, agents)``.
        truncations: bool ``(num_envs, agents)``.
        actions: int32 ``(num_envs, agents)``, or float32 ``(num_envs, agents, size)``; write here
            and call ``step()`` to step without a copy.
        active: bool ``(num_envs, agents)``: whether the agent is in the game. It is false from the
            step in which an agent terminated before its environment's episode was over, until the
            next episode; what such an agent does means nothing, and its rewards are 0.
        episode_returns: sum of rewards of the episode so far.
        last_returns: sum of rewards of the episode that ended last.
        action_masks: bool ``(num_envs, agents, n)``, true where the action may be taken now; n
            counts the values of each component, side by side. All true where an agent has left or
            waits for its next episode. None if the group's actions are not masked.
    """

    agents: tuple[str, ...]
    observation_space: spaces.Box
    action_space: spaces.Space[Any]
    observations: Any
    final_observations: Any
    rewards: Any
    terminations: Any
    truncations: Any
    actions: Any
    active: Any
    episode_returns: Any
    last_returns: Any
    action_masks: Any


class VectorEnv:
    """``num_envs`` copies of an environment. Made by :func:`gpu_zoo.make_vec`.

    Observations, rewards, terminations, truncations and infos are dicts by agent, as in
    PettingZoo's parallel API, each value an array with ``num_envs`` in front. The arrays are
    written in place: they change at the next ``step`` unless ``copy=True``.

    Attributes:
        spec: the environment's :class:`~gpu_zoo.spec.EnvSpec`.
        params: parameter values, defaults included.
        num_envs: number of environments.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``.
        numerics: ``"fast"`` or ``"reference"``.
        agents: names of all agents, in order.
        possible_agents: the same.
        groups: group name to the names of its agents; agents of a group have the same spaces.
        group: group name to :class:`GroupBuffers`.
        autoreset_mode: when a finished environment starts its next episode.
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
        each = {name: value for name, value in params.items() if self._varies(name, value)}
        rest = {name: value for name, value in params.items() if name not in each}
        self.params: Mapping[str, Any] = spec.resolve(rest)
        self.num_envs = int(num_envs)
        self.numerics: Numerics = numerics
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.device = resolve_device(device)
        self._pool: Pool | None = None
        self._pool_memory: Any = None
        self._each: Any = None  # the parameters of each environment, on the device
        self._own_starts = False
        self._shape = shape
        self._program = Program(spec, self.params, numerics, shape)
        self._backend = make_backend(self._program, self.num_envs, self.device, array, build)
        self._copy = copy
        self._validate = self.device == "cpu" if validate_actions is None else validate_actions
        self._is_reset = False
        self.closed = False
        self._watchers: list[Callable[[Operation], None]] = []
        self._allocate()
        self._name_things()
        if each:
            self._set_params(each)
        own = self._starts_for(self.params)
        if own is not None:
            self._use_pool(own)
            self._own_starts = True
        if reset_pool is not None:
            self.set_reset_pool(reset_pool)

    def _starts_for(self, params: Mapping[str, Any]) -> Pool | None:
        """The pool of starts that parameters ask for, if they do."""
        starts = None if self.spec.starts is None else self.spec.starts(_of_env(params, 0))
        if starts is None:
            return None
        for name in self.spec.starts_use:
            if isinstance(params[name], np.ndarray):
                raise ValueError(
                    f"{name}: one value an environment, expected one for all, as "
                    "the starts are drawn with it"
                )
        fields = self._program.fields
        in_precision = {name: np.asarray(rows, fields[name].dtype) for name, rows in starts.items()}
        return pack_pool(self._program, in_precision)

    def _varies(self, name: str, value: Any) -> bool:
        """Whether this is a parameter with a value for each environment."""
        param = self.spec.params.get(name)
        return param is not None and param.at == "launch" and is_array(value)

    # Construction ------------------------------------------------------------------------------

    def _allocate(self) -> None:
        self._memory = Memory(self._program, self._backend, self.num_envs)
        self._views = self._memory.views
        self._arrays = {name: self._backend.public(view) for name, view in self._views.items()}
        for group in self._program.groups:
            self._views[f"active/{group.name}"][...] = True
        self._load_tables()
        self._bind()

    def _load_tables(self) -> None:
        for name, table in self._program.tables.items():
            values = np.asarray(self.spec.tables[name].load(self.params), table.dtype)
            if values.shape != table.shape:
                raise ValueError(f"table {name}: shape {values.shape}, expected {table.shape}")
            self._views[f"table/{name}"][...] = self._backend.native(values)

    def _bind(self, *, frozen: bool = False) -> None:
        io = np.zeros((), self._program.io)
        self._bind_own(io)
        for name, _ in self._program.pointers:
            for g, group in enumerate(self._program.groups):
                io[name][g] = self._memory.address(f"{name}/{group.name}")
        for name in ("state", "steps", "last_lengths", "done", "reset_mask", "rng"):
            io[name] = self._memory.address(name)
        for name in self._program.tables:
            io["tables"][name] = self._memory.address(f"table/{name}")
        io["num_envs"] = self.num_envs
        io["autoreset"] = AUTORESET_CODES[self.autoreset_mode]
        io["frozen"] = frozen
        self._backend.bind(io)

    def _bind_own(self, io: np.ndarray[Any, Any]) -> None:
        """Parameters, and the states that episodes start in."""
        io["params"] = self._program.launch_params(_of_env(self.params, 0))
        if self._program.features.varied:
            each = self._to_device(self._program.launch_params(self.params, self.num_envs))
            if self._each is None:
                self._each = each
            self._each[...] = each  # in the same place: earlier kernels may still read there
            io["varied"] = self._backend.address(self._each)
        if self._pool is not None:
            io["pool"] = self._backend.address(self._pool_memory)
            io["pool_rows"] = len(self._pool.rows)
            io["pool_fields"] = self._pool.fields

    def _to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """The bytes of an array on the device."""
        return self._backend.native(np.frombuffer(array.tobytes(), np.uint8).copy())

    def _use(self, features: Features) -> None:
        """Have the kernel do more than it was compiled for, or less."""
        if features != self._program.features:
            params = _of_env(self.params, 0)
            program = Program(self.spec, params, self.numerics, self._shape, features)
            self._backend.wait()  # for kernels that are at work in memory which goes now
            self._backend.load(program)
            self._program = program

    def _name_things(self) -> None:
        groups = self._program.groups
        self.agents = self._program.agents
        self.possible_agents = self.agents
        self.groups: Mapping[str, tuple[str, ...]] = MappingProxyType(
            {group.name: group.agents for group in groups}
        )
        self.group: Mapping[str, GroupBuffers] = MappingProxyType(
            {group.name: self._group_buffers(group) for group in groups}
        )
        self.metadata: dict[str, Any] = {
            "name": self.spec.name,
            "render_modes": ["human", "rgb_array"] if self.spec.render else [],
            "render_fps": self.spec.render_fps,
            "autoreset_mode": self.autoreset_mode,
        }
        self._group_of = {agent: g for g in groups for agent in g.agents}
        self._writer = action_checks.ActionWriter(
            groups, self._backend, self._views, self.num_envs, self._validate
        )
        self._observations = self._by_agent("observations")
        self._rewards = self._by_agent("rewards")
        self._terminations = self._by_agent("terminations")
        self._truncations = self._by_agent("truncations")
        self._infos = self._make_infos()

    def _group_buffers(self, group: GroupLayout) -> GroupBuffers:
        arrays = {
            name: self._arrays.get(f"{name}/{group.name}")
            for name, _, _ in GROUP_BUFFERS
            if name != "infos"
        }
        return GroupBuffers(
            agents=group.agents,
            observation_space=group.observation_space(),
            action_space=group.actions.space(),
            **arrays,
        )

    def _by_agent(self, name: str) -> dict[str, Any]:
        """Each agent's slice of its group's array: ``(num_envs, ...)``, a view."""
        return {
            agent: self._arrays[f"{name}/{group.name}"][:, i]
            for group in self._program.groups
            if f"{name}/{group.name}" in self._arrays
            for i, agent in enumerate(group.agents)
        }

    def _make_infos(self) -> dict[str, Any]:
        done = self._arrays["done"]
        episode = {"r": self._by_agent("last_returns"), "l": self._arrays["last_lengths"]}
        infos: dict[str, Any] = {"episode": episode, "_episode": done}
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            infos["final_obs"] = self._by_agent("final_observations")
            infos["_final_obs"] = done
            infos["final_info"] = {"episode": episode}
            infos["_final_info"] = done
        benchmark = self._by_agent("infos")
        if benchmark:
            infos["benchmark_data"] = benchmark
        masks = self._by_agent("action_masks")
        if masks:
            infos["action_mask"] = {agent: as_int8(mask) for agent, mask in masks.items()}
        return infos

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
                    for g in self._program.groups
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
        self._require_open()
        mask = self._reset_mask(options)
        if seed is not None or not self._is_reset:  # the first reset seeds every environment
            rows = self._backend.native(seed_rows(seed, self.num_envs, self.numerics))
            selected = self._backend.native(mask)
            self._views["rng"][selected] = rows[selected]
        self._views["reset_mask"][...] = self._backend.native(mask)
        self._launch("reset")
        self._is_reset = True
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
        self._require_open()
        if not self._is_reset:
            raise ResetNeeded("step: call reset() first")
        if self._disabled and self._validate:
            self._require_unfinished()
        if actions is not None:
            self._writer.write(actions)
        elif self._validate:
            self._writer.check_buffers()
        self._launch("step")
        return self._results()

    def _launch(self, operation: Operation) -> None:
        """Run a kernel, and tell those who log what it did."""
        self._backend.launch(operation)
        for notice in self._watchers:
            notice(operation)

    @property
    def _disabled(self) -> bool:
        return self.autoreset_mode == AutoresetMode.DISABLED

    def _results(self) -> StepResult:
        # New dicts over the same arrays: who changes a dict does not change ours.
        fresh = copied if self._copy else _with_fresh_dicts
        return (
            fresh(self._observations),
            fresh(self._rewards),
            fresh(self._terminations),
            fresh(self._truncations),
            fresh(self._infos),
        )

    def state(self) -> Any:
        """The global state: all agents' observations, in order; float32 ``(num_envs, size)``."""
        self._require_reset("state")
        parts = [
            self._arrays[f"observations/{group.name}"].reshape(self.num_envs, -1)
            for group in self._program.groups
        ]
        if len(parts) == 1:
            return copied(parts[0]) if self._copy else parts[0]
        return _concatenate(parts)

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

        self._require_reset("render")
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise TypeError(f"index={index!r}: expected an int")
        return picture(self, index)

    def close(self) -> None:
        """Release the environment. Arrays handed out stay valid; closing twice does nothing."""
        self.closed = True

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
        self._require_open()
        launch = [n for n, p in self.spec.params.items() if p.at == "launch"]
        if name not in launch:
            raise KeyError(f"name={name!r}: expected one of {', '.join(launch)}")
        self._set_params({name: value})

    def _set_params(self, given: Mapping[str, Any]) -> None:
        """Change parameters together: all of them, or none if anything is refused."""
        changed: dict[str, Any] = {}
        for name, value in given.items():
            param = self.spec.params[name]
            each = is_array(value)
            changed[name] = (
                check_each(name, param, value, self.num_envs) if each else param.check(name, value)
            )
        params = {**self.params, **changed}
        self._check_together(params)
        renewed = self._own_starts and not changed.keys().isdisjoint(self.spec.starts_use)
        starts = self._starts_for(params) if renewed else None
        if any(isinstance(value, np.ndarray) for value in changed.values()):
            self._use(replace(self._program.features, varied=True))
        self.params = MappingProxyType(params)
        if starts is not None:
            self._use_pool(starts)
        else:
            self._bind()

    def _check_together(self, params: Mapping[str, Any]) -> None:
        """Whether parameters go together, in the environments with the ends of their ranges."""
        if self.spec.check is None:
            return
        arrays = [value for value in params.values() if isinstance(value, np.ndarray)]
        ends = {int(end) for values in arrays for end in (values.argmin(), values.argmax())}
        for env in sorted(ends) or [0]:
            self.spec.check(_of_env(params, env))

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
        self._require_open()
        self._use_pool(None if states is None else pack_pool(self._program, states))
        self._own_starts = False

    def _use_pool(self, pool: Pool | None) -> None:
        self._use(replace(self._program.features, pool=pool is not None))
        self._backend.wait()  # for kernels that read the old pool, which goes now
        self._pool = pool
        self._pool_memory = None if pool is None else self._to_device(pool.rows)
        self._bind()

    def get_state(self) -> dict[str, Any]:
        """The full state by name, as fresh arrays ``(num_envs, ...)``: the fields of the
        environment, step counters, random streams and running returns. What
        :meth:`set_state` takes.
        """
        self._require_reset("get_state")
        state = {
            name: self._backend.public(self._memory.read(field))
            for name, field in self._program.fields.items()
        }
        for name in self._state_buffers():
            state[name] = self._backend.public(copied(self._views[name]))
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`get_state` gave, or some of its entries, and observe anew.

        Raises:
            KeyError: an unknown name.
            ValueError: a wrong shape or dtype.
        """
        self._require_reset("set_state")
        if not isinstance(state, Mapping):
            raise TypeError(f"state: {type(state).__name__}, expected a dict by name")
        wanted = self._state_shapes()
        checked = {}
        for name, value in state.items():
            if name not in wanted:
                raise KeyError(f"state[{name!r}]: expected one of {', '.join(wanted)}")
            checked[name] = self._checked_state(name, value, wanted[name])
        for name, native in checked.items():
            if name in self._program.fields:
                self._memory.write(self._program.fields[name], native)
            else:
                self._views[name][...] = native
        self._launch("observe")

    @contextmanager
    def _scored(self, **changed: Value) -> Iterator[None]:
        """Within the block, rewards, flags and benchmark data are those of the state as it is.

        A step is taken in which nothing moves and no time passes. After the block all arrays and
        parameters are as they were.

        Args:
            **changed: parameters that have other values for this step; none that is compiled in.
        """
        kept, params = copied(self._memory.arena), self.params
        try:
            self.params = {**params, **changed}
            self._bind(frozen=True)
            self._views["done"][...] = False  # or an ended episode would not be looked at
            self._backend.launch("step")
            yield
        finally:
            self._memory.arena[...] = kept
            self.params = params
            self._bind()

    def _checked_state(self, name: str, value: Any, wanted: Buffer) -> Any:
        native = self._backend.native(value)
        shape = (self.num_envs, *wanted.shape)
        if tuple(native.shape) != shape:
            raise ValueError(f"state[{name!r}]: shape {tuple(native.shape)}, expected {shape}")
        if str(native.dtype).removeprefix("torch.") != wanted.dtype.name:
            raise ValueError(f"state[{name!r}]: dtype {native.dtype}, expected {wanted.dtype.name}")
        return native

    def _state_buffers(self) -> list[str]:
        groups = [g.name for g in self._program.groups]
        kinds = [*(["active"] if self.spec.leaving else []), *STATE_GROUP_BUFFERS]
        return [*STATE_BUFFERS, *(f"{kind}/{group}" for kind in kinds for group in groups)]

    def _state_shapes(self) -> dict[str, Buffer]:
        fields = {n: Buffer(f.dtype, f.shape) for n, f in self._program.fields.items()}
        return {**fields, **{name: self._program.buffers[name] for name in self._state_buffers()}}

    # Checks ------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{self.spec.id} was closed; make a new one")

    def _require_reset(self, what: str) -> None:
        self._require_open()
        if not self._is_reset:
            raise ResetNeeded(f"{what}: call reset() first")

    def _require_unfinished(self) -> None:
        if self._views["done"].any():
            finished = int(np.flatnonzero(to_numpy(self._views["done"]))[0])
            raise ResetNeeded(
                f"step: the episode of environment {finished} is over; "
                'call reset(options={"reset_mask": ...}) first'
            )

    def _reset_mask(self, options: Mapping[str, Any] | None) -> Any:
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"options={options!r}: expected a dict")
        for name in options or ():
            if name != "reset_mask":
                raise ValueError(f"options[{name!r}]: expected only 'reset_mask'")
        if not options:
            return np.ones(self.num_envs, np.bool_)
        if not self._is_reset:
            raise ResetNeeded("options['reset_mask']: reset all environments first")
        mask = self._backend.native(options["reset_mask"])
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


def _of_env(params: Mapping[str, Any], env: int) -> dict[str, Value]:
    """The parameters of one environment."""
    return {n: v[env].item() if isinstance(v, np.ndarray) else v for n, v in params.items()}


def _with_fresh_dicts(values: dict[str, Any]) -> dict[str, Any]:
    """The same arrays in a dict of their own, dicts within it included."""
    return {k: _with_fresh_dicts(v) if isinstance(v, dict) else v for k, v in values.items()}


def _concatenate(parts: list[Any]) -> Any:
    if hasattr(parts[0], "clone"):
        import torch

        return torch.cat(parts, dim=1)
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=1)
    import cupy

    return cupy.concatenate(parts, axis=1)
