"""From a spec and its parameters to the kernel's side of things: C text, buffers, memory layout.

Memory. The buffers of the batch (observations, rewards, ...) have ``num_envs`` in front. The state
is laid out in tiles of 32 environments in the lane shape, entry by entry with the 32 lanes side by
side, so that neighbouring GPU threads read neighbouring addresses and a CPU core finds a tile in
its first cache; in the block shape each environment's ``State`` is one plain struct.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.buffers import ENV_BUFFERS, GROUP_BUFFERS, OPTIONAL, Buffer
from gpu_zoo.ctext import LANE_THREADS, SpecText, c_sizes, flags
from gpu_zoo.spec import EnvSpec, Expr, Numerics, Value, evaluate
from gpu_zoo.team import Team, choose_team

MAX_LANE_AGENTS = 8  # with more, the unrolled loops take GPU compilers minutes


@dataclass(frozen=True)
class StateField:
    """Where a state field lies: ``offset`` bytes into the struct, then ``shape`` entries."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    at_reset: bool

    @property
    def size(self) -> int:
        """Entries an environment."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Features:
    """What a kernel is compiled to do beside the rules; most do none of it, and pay for none.

    Attributes:
        pool: episodes may begin in states out of a pool.
        varied: each environment has parameters of its own.
    """

    pool: bool = False
    varied: bool = False


PLAIN = Features()


class Program:
    """A spec with parameters: what to compile and which memory it works on.

    Attributes:
        spec: the environment.
        params: checked parameter values.
        numerics: ``"fast"`` or ``"reference"``.
        features: what else the kernel must do.
        lane: whether one thread simulates one environment (else a team of threads does).
        team: the threads that simulate one environment on a GPU.
        groups: the groups of agents.
        buffers: the batch's arrays by name; ``"rewards/agent"`` is the rewards of group ``agent``.
        tables: arrays that all environments share, by name; without ``num_envs`` in front.
        fields: the state's fields by name.
        state_bytes: bytes of state an environment.
        tile: environments side by side in a tile of state.
        io: NumPy dtype of the C struct ``Io``, which the kernel reads its pointers from.
    """

    def __init__(
        self,
        spec: EnvSpec,
        params: Mapping[str, Value],
        numerics: Numerics = "fast",
        shape: str | None = None,
        features: Features = PLAIN,
    ) -> None:
        self.spec = spec
        self.features = features
        self.params = params
        self.numerics: Numerics = numerics
        self.real = np.dtype("f8" if numerics == "reference" else "f4")
        self.groups = spec.layout(params)
        self.num_agents = sum(group.count for group in self.groups)
        shape = shape or spec.shape
        self.lane = self.num_agents <= MAX_LANE_AGENTS if shape == "auto" else shape == "lane"
        self.tile = 32 if self.lane else 1
        self.fields, self.state_bytes = self._lay_out_state()
        self.team = (
            Team(LANE_THREADS, 1, 1, 0)
            if self.lane
            else choose_team(self.num_agents, self._workspace_bytes(), shape == "spread")
        )
        self.buffers = dict(self._buffers())
        self.tables = {
            name: Buffer(self.dtype(table.dtype), self.sizes(table.shape))
            for name, table in spec.tables.items()
        }
        self.io = self._io()

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents, in order."""
        return tuple(agent for group in self.groups for agent in group.agents)

    def launch_params(self, params: Mapping[str, Any], *shape: int) -> npt.NDArray[np.void]:
        """The C struct ``Params`` for these values; ``shape`` (), or one an environment."""
        struct = np.zeros(shape, self.io["params"])
        for name in struct.dtype.names or ():
            struct[name] = params[name]
        return struct

    @property
    def masked(self) -> bool:
        """Whether some agents' actions are masked."""
        return any(group.mask_size for group in self.groups)

    @property
    def pointers(self) -> tuple[tuple[str, str], ...]:
        """Name and dtype of each group buffer of ``Io``; one more where actions are masked."""
        return tuple(
            (name, dtype)
            for name, dtype, _ in GROUP_BUFFERS
            if self.masked or name != "action_masks"
        )

    @property
    def who(self) -> str:
        """Who simulates an environment on a GPU, in words."""
        return "one thread" if self.lane else str(self.team)

    @property
    def pooled(self) -> dict[str, StateField]:
        """The fields that a pool of starts may hold: all but random number generators."""
        return {n: f for n, f in self.fields.items() if self.spec.state[n].dtype != "rng"}

    def text(self) -> str:
        """The generated ``spec.cuh``."""
        return str(SpecText(self))

    def flags(self) -> str:
        """Preprocessor lines that must come before the first include."""
        return flags(self)

    # Layout ------------------------------------------------------------------------------------

    def sizes(self, shape: tuple[Expr, ...]) -> tuple[int, ...]:
        """A field's shape, worked out."""
        scope = self.spec.scope(self.params)
        return tuple(evaluate(size, scope) for size in shape)

    def dtype(self, dtype: str) -> np.dtype[Any]:
        """NumPy's dtype for a spec's."""
        return (
            self.real
            if dtype == "real"
            else np.dtype({"i32": "i4", "u8": "u1", "u64": "u8", "rng": "i8"}.get(dtype, dtype))
        )

    @property
    def _rng_shape(self) -> tuple[int]:
        """Words of 64 bits in the kernel's ``Rng``."""
        return (5,) if self.numerics == "reference" else (2,)

    def _lay_out_state(self) -> tuple[dict[str, StateField], int]:
        # Widest entries first, so that every field is aligned without padding between them.
        widest_first = sorted(
            self.spec.state.items(), key=lambda item: -self.dtype(item[1].dtype).itemsize
        )
        fields: dict[str, StateField] = {}
        offset = 0
        for name, field in widest_first:
            dtype = self.dtype(field.dtype)
            shape = self._rng_shape if field.dtype == "rng" else self.sizes(field.shape)
            fields[name] = StateField(dtype, shape, offset, field.at_reset)
            offset += math.prod(c_sizes(fields[name].shape)) * dtype.itemsize
        align = max((f.dtype.itemsize for f in fields.values()), default=1)
        return fields, -(-offset // align) * align

    def _workspace_bytes(self) -> int:
        """At least what C gives the structs Scratch and Outcome, wherever they are padded."""
        total = 64 + self.num_agents * (self.real.itemsize + 2)
        for field in self.spec.scratch.values():
            total += math.prod(c_sizes(self.sizes(field.shape))) * self.dtype(field.dtype).itemsize
        return -(-(total + 8 * len(self.spec.scratch)) // 16) * 16

    def _buffers(self) -> Iterator[tuple[str, Buffer]]:
        for name, dtype, size_name in GROUP_BUFFERS:
            for group in self.groups:
                size = getattr(group, size_name) if size_name else 0
                if name in OPTIONAL and size == 0:
                    continue
                tail = (size,) if size else ()
                kind = group.actions.dtype if dtype == "action" else self.dtype(dtype)
                yield f"{name}/{group.name}", Buffer(kind, (group.count, *tail))
        for name, dtype in ENV_BUFFERS:
            yield name, Buffer(np.dtype(dtype), ())
        yield "rng", Buffer(self.dtype("rng"), self._rng_shape)

    def _io(self) -> np.dtype[Any]:
        params = [
            (name, self.real if param.type is float else np.dtype("i4"))
            for name, param in self.spec.params.items()
            if param.at == "launch"
        ]
        tables = [(name, "u8") for name in self.spec.tables]
        pointers = [(name, "u8", (len(self.groups),)) for name, _ in self.pointers]
        return np.dtype(
            [
                ("params", np.dtype(params, align=True)),
                ("varied", "u8"),
                ("state", "u8"),
                *pointers,
                *((name, "u8") for name, _ in ENV_BUFFERS),
                ("rng", "u8"),
                ("pool", "u8"),
                ("pool_fields", "u8"),
                ("workspaces", "u8"),
                ("arrivals", "u8"),
                *([("tables", np.dtype(tables))] if tables else []),
                ("num_envs", "i4"),
                ("autoreset", "i4"),
                ("frozen", "i4"),
                ("pool_rows", "i4"),
            ],
            align=True,
        )
