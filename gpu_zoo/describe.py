"""What ``gpu-zoo list`` and ``gpu-zoo info`` print; all of it derives from the specs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from gpu_zoo.prelude import Program
from gpu_zoo.registry import list_ids, spec
from gpu_zoo.spec import EnvSpec, Expr, Group, GroupLayout, Numerics, Slice, Value, ranges

# Columns of words, which may be folded where the terminal is narrow.
FOLDED = ("meaning", "what happens", "accepts", "agents", "actions")
WHERE = {"compile": "compiled in", "launch": "set_param", "host": "Python only"}
MIN_WIDTH = 120  # of a pipe, where rich would fold lines at 80 columns


def console() -> Console:
    """A console that prints text as it is: brackets are index ranges here, not markup."""
    width = None if sys.stdout.isatty() else max(MIN_WIDTH, Console().width)
    return Console(width=width, markup=False, highlight=False)


def show_list() -> None:
    """Print a table of all environments with their default parameters."""
    table = _table("id", "agents", "actions", "observations", "follows", "what happens")
    for env_id in list_ids():
        entry = spec(env_id)
        groups = entry.layout(entry.resolve({}))
        table.add_row(
            entry.id,
            " + ".join(f"{g.count} {g.name}" for g in groups),
            _joined(str(g.actions) for g in groups),
            _joined(str(g.obs_size) for g in groups),
            entry.reference,
            entry.summary,
        )
    console().print(table)


def show_info(entry: EnvSpec, params: Mapping[str, Value], numerics: Numerics) -> None:
    """Print all that derives from a spec, with sizes for these parameters."""
    out = console()
    program = Program(entry, params, numerics)
    out.print(f"{entry.id}: {entry.summary}")
    if entry.reference:
        out.print(f"follows {entry.reference}")
    out.print(f"kernel {entry.kernel_path}; on a GPU {program.who} an environment\n")
    _print_table(out, "Parameters", _parameters(entry, params))
    named = {group.name: group for group in entry.groups}
    for layout in program.groups:
        _show_group(out, named[layout.name], layout, entry.scope(params))
    # Each line as it would be in a sentence; the spec's texts bring no full stop.
    out.print(f"Reward: {entry.reward or 'not described'}")
    limit = f"truncation after {entry.time_limit}={params[entry.time_limit]} steps"
    out.print(f"Episode end: {limit}; termination {entry.ends or 'never'}\n")
    title = f"State in {numerics} numerics: {program.state_bytes} bytes an environment"
    _print_table(out, title, _state(entry, program))
    for title, lines in (("Notes", entry.notes), ("History", entry.history)):
        if lines:
            out.print(title)
            for line in lines:
                out.print(f"  {line}")


def _parameters(entry: EnvSpec, params: Mapping[str, Value]) -> Table:
    table = _table("name", "value", "default", "accepts", "where", "meaning")
    for name, param in entry.params.items():
        where = WHERE[param.at]
        table.add_row(
            name, repr(params[name]), repr(param.default), param.accepts, where, param.doc
        )
    return table


def _show_group(
    out: Console, group: Group, layout: GroupLayout, scope: Mapping[str, Value]
) -> None:
    first, last = layout.agents[0], layout.agents[-1]
    names = first if first == last else f"{first} ... {last}"
    out.print(f"Group {group.name}: {layout.count} agents, {names}\n")
    title = f"Observation of {group.name}, float32 ({layout.obs_size},)"
    _print_table(out, title, _slices(group.observation, scope))
    table = _table("index", "component" if layout.actions.components else "action")
    for index, name in enumerate(layout.actions.names):
        table.add_row(str(index), name)
    masked = ", masked" if layout.mask_size else ""
    _print_table(out, f"Actions of {group.name}, {layout.actions}{masked}", table)
    if layout.info_size:
        title = f"Info of {group.name} ({layout.info_size},)"
        _print_table(out, title, _slices(group.info, scope))


def _slices(slices: Mapping[str, Slice], scope: Mapping[str, Value]) -> Table:
    bounded = any(part.bounded for part in slices.values())
    table = _table("entries", "name", "size", *["range"] * bounded, "meaning")
    for name, part, start, end in ranges(slices, scope):
        limits = [f"{part.low:g} to {part.high:g}"] * bounded
        size = _formula(part.size, end - start)
        table.add_row(f"[{start}:{end}]", name, size, *limits, part.doc)
    return table


def _state(entry: EnvSpec, program: Program) -> Table:
    table = _table("field", "dtype", "shape", "bytes", "meaning")
    for name, field in entry.state.items():
        laid_out = program.fields[name]
        table.add_row(
            name,
            laid_out.dtype.name,
            str(laid_out.shape),
            str(laid_out.size * laid_out.dtype.itemsize),
            field.doc + ("; written at reset only" if field.at_reset else ""),
        )
    return table


def _formula(size: Expr, value: int) -> str:
    return str(value) if str(size) == str(value) else f"{value} = {size}"


def _joined(values: Iterable[str]) -> str:
    """The distinct values, in order."""
    return " / ".join(dict.fromkeys(values))


def _print_table(out: Console, title: str, table: Table) -> None:
    out.print(title)
    out.print(table)
    out.print()


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column not in FOLDED)
    return table
