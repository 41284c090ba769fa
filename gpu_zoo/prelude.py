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

from gpu_zoo.spec import EnvSpec, Expr, Field, Numerics, Value, evaluate

LANE_THREADS = 128  # a GPU's block has in the lane shape
MAX_LANE_AGENTS = 8  # with more, the unrolled loops take GPU compilers minutes
C_TYPE = {
    "f4": "float",
    "f8": "double",
    "i4": "int",
    "u1": "u8",
    "?": "u8",
    "b1": "u8",
    "u8": "u64",
}

# Buffers with one array a group, in the order of the C struct: name, dtype, entries an agent.
# "real" is the numerics' float; "action" is int32 or float32 by the group's action space.
GROUP_BUFFERS = (
    ("observations", "f4", "obs_size"),
    ("final_observations", "f4", "obs_size"),
    ("rewards", "real", None),
    ("terminations", "?", None),
    ("truncations", "?", None),
    ("actions", "action", "action_size"),
    ("episode_returns", "real", None),
    ("last_returns", "real", None),
    ("infos", "real", "info_size"),
)
# Buffers with one entry an environment.
ENV_BUFFERS = (("steps", "i4"), ("last_lengths", "i4"), ("done", "?"), ("reset_mask", "?"))


@dataclass(frozen=True)
class Buffer:
    """An array of the batch: ``(num_envs, *shape)``."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


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


class Program:
    """A spec with parameters: what to compile and which memory it works on.

    Attributes:
        spec: the environment.
        params: checked parameter values.
        numerics: ``"fast"`` or ``"reference"``.
        lane: whether one thread simulates one environment (else one block does).
        groups: the groups of agents.
        buffers: the batch's arrays by name; ``"rewards/agent"`` is the rewards of group ``agent``.
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
    ) -> None:
        self.spec = spec
        self.params = params
        self.numerics: Numerics = numerics
        self.real = np.dtype("f8" if numerics == "reference" else "f4")
        self.groups = spec.layout(params)
        self.num_agents = sum(group.count for group in self.groups)
        shape = shape or spec.shape
        self.lane = self.num_agents <= MAX_LANE_AGENTS if shape == "auto" else shape == "lane"
        self.tile = 32 if self.lane else 1
        self.fields, self.state_bytes = self._lay_out_state()
        self.buffers = dict(self._buffers())
        self.io = self._io()

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents, in order."""
        return tuple(agent for group in self.groups for agent in group.agents)

    def launch_params(self, params: Mapping[str, Value]) -> npt.NDArray[np.void]:
        """The C struct ``Params`` for these values; shape ()."""
        struct = np.zeros((), self.io["params"])
        for name in struct.dtype.names or ():
            struct[name] = params[name]
        return struct

    def text(self) -> str:
        """The generated ``spec.cuh``."""
        return "\n".join(
            [
                f"// Generated from the spec of {self.spec.id}.",
                "#pragma once",
                *self._constants(),
                *self._group_functions(),
                *self._traits(),
                *self._structs(),
                *self._state_access(),
                "",
            ]
        )

    def flags(self) -> str:
        """Preprocessor lines that must come before the first include."""
        return (
            f"#define ZOO_REFERENCE {int(self.numerics == 'reference')}\n"
            f"#define ZOO_LANE {int(self.lane)}\n"
            f"#define ZOO_INFO {int(any(g.info_size for g in self.groups))}\n"
        )

    # Layout ------------------------------------------------------------------------------------

    def _sizes(self, shape: tuple[Expr, ...]) -> tuple[int, ...]:
        scope = self.spec.scope(self.params)
        return tuple(evaluate(size, scope) for size in shape)

    def _dtype(self, dtype: str) -> np.dtype[Any]:
        return (
            self.real
            if dtype == "real"
            else np.dtype({"i32": "i4", "u8": "u1", "rng": "i8"}.get(dtype, dtype))
        )

    @property
    def _rng_shape(self) -> tuple[int]:
        """Words of 64 bits in the kernel's ``Rng``."""
        return (5,) if self.numerics == "reference" else (2,)

    def _lay_out_state(self) -> tuple[dict[str, StateField], int]:
        # Widest entries first, so that every field is aligned without padding between them.
        widest_first = sorted(
            self.spec.state.items(), key=lambda item: -self._dtype(item[1].dtype).itemsize
        )
        fields: dict[str, StateField] = {}
        offset = 0
        for name, field in widest_first:
            dtype = self._dtype(field.dtype)
            shape = self._rng_shape if field.dtype == "rng" else self._sizes(field.shape)
            fields[name] = StateField(dtype, shape, offset, field.at_reset)
            offset += math.prod(_c_sizes(fields[name].shape)) * dtype.itemsize
        align = max((f.dtype.itemsize for f in fields.values()), default=1)
        return fields, -(-offset // align) * align

    def _buffers(self) -> Iterator[tuple[str, Buffer]]:
        for name, dtype, size_name in GROUP_BUFFERS:
            for group in self.groups:
                size = getattr(group, size_name) if size_name else 0
                if name == "infos" and size == 0:
                    continue
                tail = (size,) if size else ()
                if dtype == "action":
                    kind = np.dtype("f4" if group.action_size else "i4")
                else:
                    kind = self._dtype(dtype)
                yield f"{name}/{group.name}", Buffer(kind, (group.count, *tail))
        for name, dtype in ENV_BUFFERS:
            yield name, Buffer(np.dtype(dtype), ())
        yield "rng", Buffer(self._dtype("rng"), self._rng_shape)

    def _io(self) -> np.dtype[Any]:
        params = [
            (name, self.real if param.type is float else np.dtype("i4"))
            for name, param in self.spec.params.items()
            if param.at == "launch"
        ]
        pointers = [(name, "u8", (len(self.groups),)) for name, _, _ in GROUP_BUFFERS]
        return np.dtype(
            [
                ("params", np.dtype(params, align=True)),
                ("state", "u8"),
                *pointers,
                *((name, "u8") for name, _ in ENV_BUFFERS),
                ("rng", "u8"),
                ("num_envs", "i4"),
                ("autoreset", "i4"),
                ("frozen", "i4"),
            ],
            align=True,
        )

    # C text ------------------------------------------------------------------------------------

    def _constants(self) -> Iterator[str]:
        scope = self.spec.scope(self.params)
        names = [n for n, p in self.spec.params.items() if p.at == "compile"]
        for name in [*names, *self.spec.constants]:
            value = scope[name]
            yield f"constexpr int {name} = {-1 if value is None else int(value)};"
        yield f"constexpr int N_AGENTS = {self.num_agents};"
        yield f"constexpr int N_GROUPS = {len(self.groups)};"
        yield f"constexpr int TILE = {self.tile};"
        yield f"constexpr int LANE_THREADS = {LANE_THREADS};"
        actions = sum(group.count * max(1, group.action_size) for group in self.groups)
        yield f"constexpr int N_ACTIONS = {actions};  // entries, of all agents together"
        yield f"constexpr bool TIMEOUT_WINS = {str(self.spec.timeout_wins).lower()};"
        yield f"constexpr int MAX_OBS_SIZE = {max(group.obs_size for group in self.groups)};"

    def _group_functions(self) -> Iterator[str]:
        chain = "".join(
            f"i < {group.start + group.count} ? {g} : " for g, group in enumerate(self.groups[:-1])
        )
        yield f"ZOO_FN int group_of(int i) {{ (void)i; return {chain}{len(self.groups) - 1}; }}"
        for function, attribute in (
            ("group_start", "start"),
            ("group_count", "count"),
            ("obs_size", "obs_size"),
            ("action_size", "action_size"),
            ("info_size", "info_size"),
        ):
            values = [getattr(group, attribute) for group in self.groups]
            chain = "".join(f"g == {g} ? {value} : " for g, value in enumerate(values[:-1]))
            yield f"ZOO_FN int {function}(int g) {{ (void)g; return {chain}{values[-1]}; }}"

    def _traits(self) -> Iterator[str]:
        scope = self.spec.scope(self.params)
        for name, runs in self.spec.traits.items():
            kind = "bool" if all(isinstance(value, bool) for _, value in runs) else "real"
            chain, end = "", 0
            for count, value in runs:
                end += evaluate(count, scope)
                literal = str(value).lower() if kind == "bool" else f"(real){float(value)!r}"
                chain += f"i < {end} ? {literal} : "
            yield f"ZOO_FN {kind} {name}(int i) {{ (void)i; return {chain}{kind}(); }}"

    def _structs(self) -> Iterator[str]:
        params = self.io["params"]
        yield "struct Params {"
        for name in params.names or ():
            yield f"    {C_TYPE[params[name].str[1:]]} {name};"
        yield "};"
        ints = [name for name in params.names or () if params[name].kind == "i"]
        # What depends on `zero` is not the same in every round of a loop: see zoo/tile.cuh.
        yield "ZOO_FN Params plus_zero(Params p, int zero) {"
        yield f"    {' '.join(f'p.{name} += zero;' for name in ints)}"
        yield "    (void)zero;"
        yield "    return p;"
        yield "}"
        yield from self._field_struct("State", {n: self.spec.state[n] for n in self.fields})
        yield from self._field_struct("Scratch", self.spec.scratch)
        yield "struct Io {"
        yield "    Params params;"
        yield "    char* state;"
        for name, dtype, _ in GROUP_BUFFERS:
            kind = "void" if dtype == "action" else C_TYPE[self._dtype(dtype).str[1:]]
            yield f"    {kind}* {name}[N_GROUPS];"
        for name, dtype in ENV_BUFFERS:
            yield f"    {C_TYPE[dtype]}* {name};"
        yield "    Rng* rng;"
        yield "    int num_envs;"
        yield "    int autoreset;"
        yield "    int frozen;"
        yield "};"

    def _field_struct(self, name: str, fields: Mapping[str, Field]) -> Iterator[str]:
        yield f"struct {name} {{"
        for field_name, field in fields.items():
            if field.dtype == "rng":
                yield f"    Rng {field_name};"
                continue
            index = "".join(f"[{size}]" for size in _c_sizes(self._sizes(field.shape)))
            yield f"    {C_TYPE[self._dtype(field.dtype).str[1:]]} {field_name}{index};"
        yield "};"

    def _state_access(self) -> Iterator[str]:
        if not self.lane:
            return
        yield "ZOO_FN char* state_tile(const Io& io, int env) {"
        yield f"    return io.state + (size_t)(env / TILE) * {self.tile * self.state_bytes};"
        yield "}"
        for function, argument in (
            ("load_state", "State& s"),
            ("store_state", "const State& s, bool fresh"),
        ):
            yield f"ZOO_FN void {function}(char* tile, int lane, {argument}) {{"
            for name, field in self.fields.items():
                if field.size:
                    load = function == "load_state"
                    is_rng = self.spec.state[name].dtype == "rng"
                    yield (self._move_rng if is_rng else self._move_field)(name, field, load)
            yield "}"

    def _move_field(self, name: str, field: StateField, load: bool) -> str:
        kind = C_TYPE[field.dtype.str[1:]]
        loops = "".join(
            f"ZOO_UNROLL for (int k{d} = 0; k{d} < {size}; ++k{d}) "
            for d, size in enumerate(field.shape)
        )
        index = "".join(f"[k{d}]" for d in range(len(field.shape)))
        flat = "0"
        for d, size in enumerate(field.shape):
            flat = f"k{d}" if d == 0 else f"({flat}) * {size} + k{d}"
        there = self._in_tile(kind, field, f"({flat})")
        here = f"s.{name}{index}"
        guard = "if (fresh) " if field.at_reset and not load else ""
        return f"    {guard}{loops}{here if load else there} = {there if load else here};"

    def _move_rng(self, name: str, field: StateField, load: bool) -> str:
        there = self._in_tile("u64", field, "k")
        move = f"rng_set_word(s.{name}, k, {there})" if load else f"{there} = rng_word(s.{name}, k)"
        return f"    ZOO_UNROLL for (int k = 0; k < {field.size}; ++k) {move};"

    def _in_tile(self, kind: str, field: StateField, index: str) -> str:
        """This lane's entry of a field."""
        return f"(({kind}*)(tile + {field.offset * self.tile}))[{index} * {self.tile} + lane]"


def _c_sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """C has no empty array: a field without entries takes the room of one."""
    return tuple(max(1, size) for size in shape)
