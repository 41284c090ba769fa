"""What was measured of an environment, for its page: speed, and what training reaches.

All numbers come out of the newest files in docs/benchmarks that have the environment: those of
``gpu-zoo bench`` and of ``docs/_scripts/returns.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from curve_svg import svg
from tables import table

from gpu_zoo.spec import EnvSpec

DOCS = Path(__file__).resolve().parents[1]
BENCHMARKS = DOCS / "benchmarks"
CURVES = DOCS / "assets" / "curves"
Entry = dict[str, Any]


def training(spec: EnvSpec) -> Iterator[str]:
    """The command, what it reaches, and the learning curve."""
    entry = returns_of(spec.id)
    yield f"## Training\n\n```console\ngpu-zoo train {spec.id}\n```\n"
    if entry is None:
        return
    seeds = len(entry["runs"])
    steps = f"{entry['runs'][0]['env_steps'] / 1e6:.3g} million environment steps"
    yield (
        f"{entry['algorithm'].upper()} with the configuration that comes along, {steps}, "
        f"{seeds} seed{'s' * (seeds > 1)}; see [returns](../returns.md).\n"
    )
    rows = []
    for group, found in entry["groups"].items():
        means = [interval(found.get(kind)) for kind in ("trained", "others_random")]
        rows.append((group, f"{entry['random'][group]:.2f}", *means))
    yield from table(("group", "random play", "trained", "trained, others at random"), rows)
    if any("curve" in run for run in entry["runs"]):
        what = f"Learning curve of {spec.name}: mean return of an episode by environment steps"
        yield f"![{what}](../assets/curves/{spec.name}.svg)\n"
        if seeds > 1:
            yield "Line: median of the seeds. Band: from the worst to the best.\n"


def interval(found: Entry | None) -> str:
    """A mean and the half-width of its interval; a dash where there is none."""
    if found is None:
        return "-"
    half = "" if found["half_width"] is None else f" ± {found['half_width']:.2f}"
    return f"{found['mean']:.2f}{half}"


def curve(spec: EnvSpec) -> str | None:
    """The learning curve's picture, if curves were kept."""
    entry = returns_of(spec.id)
    curves = [run["curve"] for run in entry["runs"] if "curve" in run] if entry else []
    return svg(curves) if curves else None


def speed(spec: EnvSpec) -> Iterator[str]:
    """Environment steps a second by batch size, ours and others'."""
    found = bench_of(spec.id)
    if found is None:
        return
    report, file = found
    rates: dict[str, dict[int, float]] = {}
    for row in report["rows"]:  # peers are measured again beside each of ours: the first counts
        rates.setdefault(row["who"], {}).setdefault(row["num_envs"], row["env_steps_per_s"])
    sizes = sorted({size for by_size in rates.values() for size in by_size})
    yield "## Speed\n"
    yield "Environment steps a second with random actions, by number of environments:\n"
    rows = [
        (who, *(count(by_size[size]) if size in by_size else "" for size in sizes))
        for who, by_size in rates.items()
    ]
    yield from table(("", *(f"{size:,}" for size in sizes)), rows)
    machine = report["machine"]
    yield (
        f"{machine['processor']}, {machine['cores']} cores. How, and with which versions: "
        f"[performance](../performance.md), `docs/benchmarks/{file}`.\n"
    )


def count(rate: float) -> str:
    """A rate with three digits: 387, 97.9 k, 2.77 M."""
    for unit, letter in ((1e6, " M"), (1e3, " k")):
        if rate >= unit:
            digits = 0 if rate >= 100 * unit else 1 if rate >= 10 * unit else 2
            return f"{rate / unit:.{digits}f}{letter}"
    return f"{rate:.0f}"


def rules(spec: EnvSpec) -> Iterator[str]:
    """The kernel file, folded away; it is taken from the repository when the site is built."""
    yield f'## Rules\n\n??? note "`kernels/{spec.kernel}`"\n'
    yield f'    ```cuda\n    --8<-- "kernels/{spec.kernel}"\n    ```\n'


def returns_of(env_id: str) -> Entry | None:
    """The environment's entry in the newest file of returns."""
    return next((entry for entry in all_returns() if entry["env_id"] == env_id), None)


@cache
def all_returns() -> list[Entry]:
    """The entries of the newest file of returns; every page asks for its own."""
    files = sorted(BENCHMARKS.glob("*-returns-*.json"))
    entries: list[Entry] = json.loads(files[-1].read_text())["entries"] if files else []
    return entries


def bench_of(env_id: str) -> tuple[Entry, str] | None:
    """The environment's report in the newest file of ``gpu-zoo bench``, and the file's name."""
    for path in sorted(BENCHMARKS.glob("*.json"), reverse=True):
        reports = json.loads(path.read_text())
        alone = [r for r in reports if r["env_id"] == env_id] if isinstance(reports, list) else []
        if len(alone) == 1:  # several are a sweep over a parameter
            return alone[0], path.name
    return None
