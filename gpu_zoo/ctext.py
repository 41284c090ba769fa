"""The C side of a spec: constants, structs and access to the state, as text.

What a kernel finds in ``spec.cuh`` is written here, from the same :class:`~gpu_zoo.prelude.Program`
whose NumPy layouts the buffers have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gpu_zoo.buffers import ENV_BUFFERS
from gpu_zoo.spec import Field, evaluate

if TYPE_CHECKING:
    from gpu_zoo.prelude import Program, StateField

LANE_THREADS = 128  # a GPU's block has in the lane shape
C_TYPE = {
    "f4": "float",
    "f8": "double",
    "i4": "int",
    "u1": "u8",
    "?": "u8",
    "b1": "u8",
    "u8": "u64",
}


def flags(program: Program) -> str:
    """Preprocessor lines that must come before the first include."""
    team = program.team
    values = {
        "REFERENCE": program.numerics == "reference",
        "LANE": program.lane,
        "INFO": any(group.info_size for group in program.groups),
        "LEAVING": program.spec.leaving,
        "MASKED": program.masked,
        "POOL": program.features.pool,
        "VARIED": program.features.varied,
        "TEAM_THREADS": team.threads,
        "BLOCK_TEAMS": team.per_block,
        "TEAM_BLOCKS": team.blocks,
        "WORKSPACE_IN_MEMORY": team.in_memory,
    }
    return "".join(f"#define ZOO_{name} {int(value)}\n" for name, value in values.items())


class SpecText:
    """Writes ``spec.cuh`` for a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.spec, self.params = program.spec, program.params
        self.groups, self.fields = program.groups, program.fields

    def __str__(self) -> str:
        return "\n".join(
            [
                f"// Generated from the spec of {self.spec.id}.",
                "#pragma once",
                *self._constants(),
                *self._group_functions(),
                *self._traits(),
                *self._structs(),
                *self._state_access(),
                *self._pool_access(),
                "",
            ]
        )

    def _constants(self) -> Iterator[str]:
        scope = self.spec.scope(self.params)
        names = [n for n, p in self.spec.params.items() if p.at == "compile"]
        for name in [*names, *self.spec.constants]:
            value = scope[name]
            yield f"constexpr int {name} = {-1 if value is None else int(value)};"
        yield f"constexpr int N_AGENTS = {self.program.num_agents};"
        yield f"constexpr int N_GROUPS = {len(self.groups)};"
        yield f"constexpr int TILE = {self.program.tile};"
        yield f"constexpr int LANE_THREADS = {LANE_THREADS};"
        actions = sum(group.count * max(1, group.action_size) for group in self.groups)
        yield f"constexpr int N_ACTIONS = {actions};  // entries, of all agents together"
        yield f"constexpr int WORKSPACE_BYTES = {self.program.team.workspace};"
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
            ("mask_size", "mask_size"),
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
        params = self.program.io["params"]
        yield "struct Params {"
        for name in params.names or ():
            yield f"    {C_TYPE[params[name].str[1:]]} {name};"
        yield "};"
        limit = self.spec.time_limit
        given = f"p.{limit}" if limit in (params.names or ()) else str(self.params[limit])
        yield f"ZOO_FN int time_limit(const Params& p) {{ (void)p; return {given}; }}"
        ints = [name for name in params.names or () if params[name].kind == "i"]
        # What depends on `zero` is not the same in every round of a loop: see zoo/tile.cuh.
        yield "ZOO_FN Params plus_zero(Params p, int zero) {"
        yield f"    {' '.join(f'p.{name} += zero;' for name in ints)}"
        yield "    (void)zero;"
        yield "    return p;"
        yield "}"
        yield from self._field_struct("State", {n: self.spec.state[n] for n in self.fields})
        yield from self._field_struct("Scratch", self.spec.scratch)
        yield from self._io_struct()

    def _io_struct(self) -> Iterator[str]:
        """Must lie in memory as :attr:`Program.io` says."""
        tables = self.program.tables
        if tables:
            yield "struct Tables {"
            for name, table in tables.items():
                yield f"    const {C_TYPE[table.dtype.str[1:]]}* {name};"
            yield "};"
        yield "struct Io {"
        yield "    Params params;"
        yield "    const Params* varied;  // one an environment, if parameters vary"
        yield "    char* state;"
        for name, dtype in self.program.pointers:
            kind = "void" if dtype == "action" else C_TYPE[self.program.dtype(dtype).str[1:]]
            yield f"    {kind}* {name}[N_GROUPS];"
        for name, dtype in ENV_BUFFERS:
            yield f"    {C_TYPE[dtype]}* {name};"
        yield "    Rng* rng;"
        yield "    const State* pool;"
        yield "    u64 pool_fields;"
        yield "    void* workspaces;"
        yield "    unsigned* arrivals;"
        if tables:
            yield "    Tables tables;"
        yield "    int num_envs;"
        yield "    int autoreset;"
        yield "    int frozen;"
        yield "    int pool_rows;"
        yield "};"

    def _field_struct(self, name: str, fields: Mapping[str, Field]) -> Iterator[str]:
        yield f"struct {name} {{"
        for field_name, field in fields.items():
            if field.dtype == "rng":
                yield f"    Rng {field_name};"
                continue
            index = "".join(f"[{size}]" for size in c_sizes(self.program.sizes(field.shape)))
            yield f"    {C_TYPE[self.program.dtype(field.dtype).str[1:]]} {field_name}{index};"
        yield "};"

    def _state_access(self) -> Iterator[str]:
        if not self.program.lane:
            return
        yield "ZOO_FN char* state_tile(const Io& io, int env) {"
        tile_bytes = self.program.tile * self.program.state_bytes
        yield f"    return io.state + (size_t)(env / TILE) * {tile_bytes};"
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
        tile = self.program.tile
        return f"(({kind}*)(tile + {field.offset * tile}))[{index} * {tile} + lane]"

    def _pool_access(self) -> Iterator[str]:
        if not self.program.features.pool:
            return
        yield "// Takes over the fields whose bit is set."
        yield "ZOO_FN void copy_start(State& s, const State& from, u64 which) {"
        for bit, (name, field) in enumerate(self.program.pooled.items()):
            first = name + "[0]" * len(field.shape)
            yield f"    if (which >> {bit} & 1)"
            yield f"        for_each(k, {field.size}) (&s.{first})[k] = (&from.{first})[k];"
        yield "}"


def c_sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """C has no empty array: a field without entries takes the room of one."""
    return tuple(max(1, size) for size in shape)
