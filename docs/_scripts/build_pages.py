"""Write what derives from the registry: environment pages and their places in the site's
navigation, their gallery. And from docs/benchmarks what was measured: the table of returns,
learning curves, speeds.

python docs/_scripts/build_pages.py            write
python docs/_scripts/build_pages.py --check    exit 1 if a file is not up to date

On an environment's page only the text between the two markers is generated; prose after it stays.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import compat_table
import gallery_page
import measured
from measured import interval
from tables import table

import gpu_zoo
from gpu_zoo.prelude import Program
from gpu_zoo.registry import GYMNASIUM_NAMES
from gpu_zoo.spec import Actions, EnvSpec, Expr, Group, Param, Slice, Value, ranges

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "environments"
BENCHMARKS = ROOT / "docs" / "benchmarks"
RETURNS = ROOT / "docs" / "returns.md"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
NAV = ("      # generated: begin", "      # generated: end")
WHERE = {"compile": "compiled in", "launch": "`set_param`", "host": "Python only"}


def page(spec: EnvSpec) -> Iterator[str]:
    """The generated part of an environment's page."""
    params = spec.resolve({})
    layouts = {layout.name: layout for layout in spec.layout(params)}
    program = Program(spec, params)
    yield f"# {spec.name}\n"
    yield f"{spec.summary}\n"
    yield from gallery_page.picture(spec)
    yield from table(
        ("", ""),
        [
            ("id", f"`{spec.id}`"),
            ("agents", ", ".join(f"`{agent}`" for agent in program.agents)),
            ("actions", "; ".join(f"{who}{kinds(acts)}" for who, acts in action_spaces(spec))),
            ("observations", " and ".join(f"`({g.obs_size},)`" for g in layouts.values())),
            ("shape of parallelism", program.who),
            ("state", f"{program.state_bytes} bytes in fast numerics"),
            ("follows", spec.reference),
            ("rules", f"`kernels/{spec.kernel}`"),
        ],
    )
    yield from usage(spec)
    yield "## Parameters\n"
    yield from table(
        ("name", "default", "accepts", "meaning", "changed by"),
        [parameter(name, param) for name, param in spec.params.items()],
    )
    yield "## Observations\n"
    for name, size in named_sizes(spec):
        yield f"`{name}` is `{size}`.\n"
    for group, who in alike(spec):
        yield from observation(spec, group, who, params)
    yield "## Actions\n"
    for who, spaces in action_spaces(spec):
        for actions in spaces:
            yield f"{who}`{actions}`:\n"
            what = "component" if actions.components else "action"
            yield from table(
                ("index", what), [(str(i), f"`{n}`") for i, n in enumerate(actions.names)]
            )
    yield f"## Reward\n\n{spec.reward}.\n"
    ends = f"Termination {spec.ends}" if spec.ends else "Nothing terminates it"
    yield f"## Episode end\n\nTruncation after `{spec.time_limit}` steps. {ends}.\n"
    yield "## State\n\nWhat `get_state()` returns beside counters and random streams.\n"
    yield from table(
        ("field", "dtype", "shape", "meaning"),
        [
            (f"`{name}`", field.dtype, f"`({', '.join(map(str, field.shape))})`", field.doc)
            for name, field in spec.state.items()
        ],
    )
    yield from measured.training(spec)
    yield from measured.speed(spec)
    if spec.notes:
        yield "## Differences and oddities\n"
        yield from (f"- {note}" for note in spec.notes)
        yield ""
    yield "## History\n"
    yield from (f"- {line}" for line in spec.history)
    yield ""
    yield from measured.rules(spec)


def action_spaces(spec: EnvSpec) -> list[tuple[str, tuple[Actions, ...]]]:
    """Whose action spaces, and which: one entry if all groups have the same."""
    different = {group.actions for group in spec.groups}
    if len(different) == 1:
        return [("", spec.groups[0].actions)]
    return [(f"`{group.name}` ", group.actions) for group in spec.groups]


def kinds(actions: tuple[Actions, ...]) -> str:
    """The discrete and the continuous space in words."""
    return " or ".join(f"`{a}`" for a in actions)


def usage(spec: EnvSpec) -> Iterator[str]:
    """How it is made, the two ways."""
    yield "```python"
    if spec.id in GYMNASIUM_NAMES:
        name = GYMNASIUM_NAMES[spec.id]
        yield "import gymnasium"
        yield ""
        yield "import gpu_zoo"
        yield ""
        yield f'# instead of "{name}"'
        yield f'envs = gymnasium.make_vec("gpu_zoo/{name}", num_envs=4096)'
        yield "observations, infos = envs.reset(seed=0)"
        yield ""
        yield "# the same, by agent"
        yield f'envs = gpu_zoo.make_vec("{spec.id}", num_envs=4096)'
        yield "```\n"
        return
    drop_in = "  # stands in for the original's module" * (spec.family == "mpe")
    yield f"from gpu_zoo.{spec.family} import {spec.name}{drop_in}"
    yield ""
    yield f"env = {spec.name}.parallel_env()"
    yield ""
    yield "import gpu_zoo"
    yield ""
    yield f'envs = gpu_zoo.make_vec("{spec.id}", num_envs=4096)'
    yield "```\n"


def parameter(name: str, param: Param) -> tuple[str, ...]:
    """A row of the parameter table."""
    return (f"`{name}`", f"`{param.default!r}`", param.accepts, param.doc, WHERE[param.at])


def named_sizes(spec: EnvSpec) -> list[tuple[str, Expr]]:
    """The constants by which observations' lengths are given."""
    sizes = " ".join(str(part.size) for g in spec.groups for part in g.observation.values())
    return [item for item in spec.constants.items() if re.search(rf"\b{item[0]}\b", sizes)]


def alike(spec: EnvSpec) -> Iterator[tuple[Group, str]]:
    """The groups that observe different things, each with the names of all that see the same."""
    seen: list[Mapping[str, Slice]] = []
    for group in spec.groups:
        if group.observation not in seen:
            seen.append(group.observation)
            same = [g.name for g in spec.groups if g.observation == group.observation]
            yield group, ", ".join(f"`{name}`" for name in same)


def observation(
    spec: EnvSpec, group: Group, who: str, params: Mapping[str, Value]
) -> Iterator[str]:
    """The observation of one group: index ranges with default parameters, and formulas."""
    scope = spec.scope(params)
    parts = list(ranges(group.observation, scope))
    bounded = any(part.bounded for part in group.observation.values())
    rows = []
    for name, part, start, end in parts:
        limits = [f"{part.low:g} to {part.high:g}"] * bounded
        rows.append((f"`[{start}:{end}]`", f"`{part.size}`", name, *limits, part.doc))
    yield f"{who}, float32 `({parts[-1][-1]},)` with default parameters:\n"
    yield from table(("entries", "length", "name", *["range"] * bounded, "meaning"), rows)


def returns(benchmarks: Path = BENCHMARKS) -> Iterator[str]:
    """The table of returns, a row for each group of agents, and how it was measured."""
    files = sorted(benchmarks.glob("*-returns-*.json"))
    if not files:
        yield "No run of `docs/_scripts/returns.py` is recorded yet."
        return
    report = json.loads(files[-1].read_text())
    rows = []
    for entry in report["entries"]:
        runs = entry["runs"]
        seconds = min(run["seconds"] for run in runs)  # others had the machine beside some
        steps = f"{runs[0]['env_steps'] / 1e6:.3g} M"
        for group, found in entry["groups"].items():
            means = [interval(found.get(kind)) for kind in ("trained", "others_random")]
            who = (f"`{entry['env_id']}`", entry["algorithm"], group, str(len(runs)))
            played = f"{entry['random'][group]:.2f}"
            rows.append((*who, played, *means, steps, f"{seconds:.0f}"))
    header = ("environment", "algorithm", "group", "seeds", "random play", "trained",
              "trained, others at random", "steps", "seconds")  # fmt: skip
    yield from table(header, rows)
    machine = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    versions = ", ".join(f"{key} {value}" for key, value in report["versions"].items())
    yield f"Machine: {machine}; runs at a time: {report['jobs']}. {versions}."
    yield f"Episodes of each policy: {report['episodes']:,}. File: `{files[-1].name}`."


def between(old: str, new: str, begin: str = BEGIN, end: str = END) -> str:
    """``old`` with what stands between the markers replaced by ``new``."""
    if begin not in old:
        return f"{begin}\n{new}\n{end}\n"
    before, rest = old.split(begin, 1)
    return f"{before}{begin}\n{new}\n{end}{rest.split(end, 1)[1]}"


def wanted() -> dict[Path, str]:
    """Every generated file and its text."""
    files = {}
    for env_id in gpu_zoo.list_ids():
        spec = gpu_zoo.spec(env_id)
        path = PAGES / f"{spec.name}.md"
        old = path.read_text() if path.is_file() else ""
        files[path] = between(old, "\n".join(page(spec)).strip())
        drawn = measured.curve(spec)
        if drawn is not None:
            files[measured.CURVES / f"{spec.name}.svg"] = drawn
    site = ROOT / "mkdocs.yml"
    names = [gpu_zoo.spec(env_id).name for env_id in gpu_zoo.list_ids()]
    nav = "\n".join(f"      - {name}: environments/{name}.md" for name in names)
    files[site] = between(site.read_text(), nav, *NAV)
    index = PAGES / "index.md"
    files[index] = between(index.read_text(), "\n".join(gallery_page.gallery()).strip())
    files[RETURNS] = between(RETURNS.read_text(), "\n".join(returns()).strip())
    compatibility = ROOT / "docs" / "compatibility.md"
    new = "\n".join(compat_table.compatibility())
    old = compatibility.read_text()
    files[compatibility] = between(old, new, compat_table.BEGIN, compat_table.END)
    return files


def main() -> int:
    """Write the files, or with ``--check`` say which are out of date."""
    texts = wanted()
    stale = [p for p, text in texts.items() if not p.is_file() or p.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"out of date: {path.relative_to(ROOT)}; run docs/_scripts/build_pages.py")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
