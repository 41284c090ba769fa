"""What makes a batch run: its kernel, the memory that the kernel works in, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from gpu_zoo.backends import ArrayKind, Operation, make_backend
from gpu_zoo.errors import ClosedEnvironmentError, ResetNeeded
from gpu_zoo.memory import Memory, copied, to_numpy
from gpu_zoo.prelude import Features, Program
from gpu_zoo.results import by_agent
from gpu_zoo.spec import EnvSpec, Numerics, Value
from gpu_zoo.starts import Pool, check_each, is_array, pack_pool

AUTORESET_CODES = {  # as kernels/zoo/entry.cuh numbers them
    AutoresetMode.SAME_STEP: 0,
    AutoresetMode.NEXT_STEP: 1,
    AutoresetMode.DISABLED: 2,
}


class Engine:
    """The inside of a :class:`~gpu_zoo.vector.VectorEnv`, for faces, logs and tests.

    Not for users: names here may change with any version.

    Attributes:
        spec: the environment's spec.
        params: parameter values, defaults included; an array where each environment has its own.
        num_envs: number of environments.
        numerics: ``"fast"`` or ``"reference"``.
        program: what the kernel was compiled from, and how its arrays are laid out.
        backend: compiles, allocates and launches.
        memory: one allocation for all arrays.
        views: native arrays by name, such as ``"rewards/agent"`` or ``"done"``.
        arrays: the same memory as the kind of array that users see.
        pool: the states that episodes start in, if there is a pool.
        own_starts: whether the pool is what the parameters ask for.
        watchers: called after each kernel of :meth:`run`, with what it did.
        is_reset: whether all environments have been reset once.
        closed: whether the batch was closed.
        refuses_finished: whether nothing is stepped while an environment's episode is over.
    """

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        params: Mapping[str, Any],
        *,
        device: str,
        array: ArrayKind | None,
        autoreset_mode: AutoresetMode,
        numerics: Numerics,
        shape: str | None,
        build: str,
    ) -> None:
        self.spec, self.num_envs, self.numerics = spec, num_envs, numerics
        each = {name: value for name, value in params.items() if _varies(spec, name, value)}
        rest = {name: value for name, value in params.items() if name not in each}
        self.params: Mapping[str, Any] = spec.resolve(rest)
        self.pool: Pool | None = None
        self.own_starts = False
        self.watchers: list[Callable[[Operation], None]] = []
        self.is_reset = self.closed = self.refuses_finished = False
        self._autoreset, self._shape = AUTORESET_CODES[autoreset_mode], shape
        self._pool_memory: Any = None
        self._each: Any = None  # the parameters of each environment, on the device
        self.program = Program(spec, self.params, numerics, shape)
        self.backend = make_backend(self.program, num_envs, device, array, build)
        self.memory = Memory(self.program, self.backend, num_envs)
        self.views = self.memory.views
        self.arrays = {name: self.backend.public(view) for name, view in self.views.items()}
        for group in self.program.groups:
            self.views[f"active/{group.name}"][...] = True
        self._load_tables()
        self._bind()
        if each:
            self.set_params(each)
        own = self._starts_for(self.params)
        if own is not None:
            self.use_pool(own, own_starts=True)

    def run(self, operation: Operation) -> None:
        """Run a kernel, and tell those who watch what it did."""
        self.backend.launch(operation)
        for notice in self.watchers:
            notice(operation)

    def by_agent(self, name: str) -> dict[str, Any]:
        """Each agent's slice of its group's array of this name: ``(num_envs, ...)``, a view."""
        return by_agent(name, self.program.groups, self.arrays)

    def require_open(self) -> None:
        """Raise :class:`ClosedEnvironmentError` if the batch was closed."""
        if self.closed:
            raise ClosedEnvironmentError(f"{self.spec.id} was closed; make a new one")

    def require_reset(self, what: str) -> None:
        """Raise :class:`ResetNeeded` if nothing was reset yet; ``what`` needs it."""
        self.require_open()
        if not self.is_reset:
            raise ResetNeeded(f"{what}: call reset() first")

    def require_unfinished(self) -> None:
        """Raise :class:`ResetNeeded` if an environment's episode is over."""
        if self.views["done"].any():
            finished = int(np.flatnonzero(to_numpy(self.views["done"]))[0])
            raise ResetNeeded(
                f"step: the episode of environment {finished} is over; "
                'call reset(options={"reset_mask": ...}) first'
            )

    # What the kernel is told -------------------------------------------------------------------

    def _load_tables(self) -> None:
        for name, table in self.program.tables.items():
            values = np.asarray(self.spec.tables[name].load(self.params), table.dtype)
            if values.shape != table.shape:
                raise ValueError(f"table {name}: shape {values.shape}, expected {table.shape}")
            self.views[f"table/{name}"][...] = self.backend.native(values)

    def _bind(self, *, frozen: bool = False) -> None:
        io = np.zeros((), self.program.io)
        self._bind_own(io)
        for name, _ in self.program.pointers:
            for g, group in enumerate(self.program.groups):
                io[name][g] = self.memory.address(f"{name}/{group.name}")
        for name in ("state", "steps", "last_lengths", "done", "reset_mask", "rng"):
            io[name] = self.memory.address(name)
        for name in self.program.tables:
            io["tables"][name] = self.memory.address(f"table/{name}")
        io["num_envs"] = self.num_envs
        io["autoreset"] = self._autoreset
        io["frozen"] = frozen
        self.backend.bind(io)

    def _bind_own(self, io: np.ndarray[Any, Any]) -> None:
        """Parameters, and the states that episodes start in."""
        io["params"] = self.program.launch_params(_of_env(self.params, 0))
        if self.program.features.varied:
            each = self._to_device(self.program.launch_params(self.params, self.num_envs))
            if self._each is None:
                self._each = each
            self._each[...] = each  # in the same place: earlier kernels may still read there
            io["varied"] = self.backend.address(self._each)
        if self.pool is not None:
            io["pool"] = self.backend.address(self._pool_memory)
            io["pool_rows"] = len(self.pool.rows)
            io["pool_fields"] = self.pool.fields

    def _to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """The bytes of an array on the device."""
        return self.backend.native(np.frombuffer(array.tobytes(), np.uint8).copy())

    def _use(self, features: Features) -> None:
        """Have the kernel do more than it was compiled for, or less."""
        if features != self.program.features:
            params = _of_env(self.params, 0)
            program = Program(self.spec, params, self.numerics, self._shape, features)
            self.backend.wait()  # for kernels that are at work in memory which goes now
            self.backend.load(program)
            self.program = program

    # Parameters and starts ---------------------------------------------------------------------

    def set_params(self, given: Mapping[str, Any], *, check_together: bool = True) -> None:
        """Change parameters together: all of them, or none if anything is refused.

        Without ``check_together`` each of them is checked, but not what the spec says of several.
        """
        changed: dict[str, Any] = {}
        for name, value in given.items():
            param = self.spec.params[name]
            each = is_array(value)
            changed[name] = (
                check_each(name, param, value, self.num_envs) if each else param.check(name, value)
            )
        params = {**self.params, **changed}
        if check_together:
            self._check_together(params)
        renewed = self.own_starts and not changed.keys().isdisjoint(self.spec.starts_use)
        starts = self._starts_for(params) if renewed else None
        if any(isinstance(value, np.ndarray) for value in changed.values()):
            self._use(replace(self.program.features, varied=True))
        self.params = MappingProxyType(params)
        if starts is not None:
            self.use_pool(starts, own_starts=True)
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
        fields = self.program.fields
        in_precision = {name: np.asarray(rows, fields[name].dtype) for name, rows in starts.items()}
        return pack_pool(self.program, in_precision)

    def use_pool(self, pool: Pool | None, *, own_starts: bool) -> None:
        """Start episodes in states of a pool, or no longer, from the next reset on."""
        self._use(replace(self.program.features, pool=pool is not None))
        self.backend.wait()  # for kernels that read the old pool, which goes now
        self.pool, self.own_starts = pool, own_starts
        self._pool_memory = None if pool is None else self._to_device(pool.rows)
        self._bind()

    @contextmanager
    def scored(self, **changed: Value) -> Iterator[None]:
        """Within the block, rewards, flags and benchmark data are those of the state as it is.

        A step is taken in which nothing moves and no time passes. After the block all arrays and
        parameters are as they were.

        Args:
            **changed: parameters that have other values for this step; none that is compiled in.
        """
        kept, params = copied(self.memory.arena), self.params
        try:
            self.params = {**params, **changed}
            self._bind(frozen=True)
            self.views["done"][...] = False  # or an ended episode would not be looked at
            self.backend.launch("step")
            yield
        finally:
            self.memory.arena[...] = kept
            self.params = params
            self._bind()


def _of_env(params: Mapping[str, Any], env: int) -> dict[str, Value]:
    """The parameters of one environment."""
    return {n: v[env].item() if isinstance(v, np.ndarray) else v for n, v in params.items()}


def _varies(spec: EnvSpec, name: str, value: Any) -> bool:
    """Whether this is a parameter with a value for each environment."""
    param = spec.params.get(name)
    return param is not None and param.at == "launch" and is_array(value)
