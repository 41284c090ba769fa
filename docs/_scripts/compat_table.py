"""The table of docs/compatibility.md, of the newest file that tests/compat/run.py has written."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tables import table

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "compat"))
from combinations import COMBINATIONS, Combination  # noqa: E402 # it lies with the tests

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def compatibility() -> Iterator[str]:
    """A row for each combination that was tested, and one for each speed."""
    files = sorted((ROOT / "docs" / "benchmarks").glob("*-compatibility-*.json"))
    found = json.loads(files[-1].read_text()) if files else {}
    tested = {name: c for name, c in COMBINATIONS.items() if name in found}
    rows = [
        (c.library, versions(c, found[name]), tests(found[name]["tests"]), c.works)
        for name, c in tested.items()
    ]
    yield from table(("library", "versions", "tests", "what works"), rows)
    yield "Environment steps a second of training `simple_spread` (three agents), one torch thread:"
    yield ""
    rows = [
        (f"{c.library}{how}", *speeds(**found[name][rates]))
        for name, c in tested.items()
        for rates, how in (("rates", ""), ("collecting", ", collecting alone"))
        if rates in found[name]
    ]
    yield from table(("library", "on mpe2, in its usual way", "on gpu_zoo", "ratio"), rows)
    if files:
        file = f"docs/benchmarks/{files[-1].name}"
        yield f"Median of rounds, in turns [least, most]. File: `{file}`."


def versions(combination: Combination, result: dict[str, Any]) -> str:
    """What pip had installed of the packages that the combination names."""
    names = [package.partition("==")[0].partition("[")[0] for package in combination.packages]
    hidden = {"mpe2", "supersuit", "moviepy"} if len(names) > 3 else set()
    shown = [name for name in names if name not in hidden]
    return ", ".join(f"{name} {result['versions'].get(name, '?')}" for name in shown)


def tests(counts: dict[str, Any]) -> str:
    """How many passed; what else there was."""
    kinds = [k for k in ("passed", "failed", "error", "skipped") if counts.get(k)]
    return ", ".join(f"{counts[kind]} {kind}" for kind in kinds)


def speeds(usual: list[float], ours: list[float]) -> tuple[str, str, str]:
    """On mpe2 and on ours, and how many times that is."""
    return spread(usual), spread(ours), f"{median(ours) / median(usual):.1f}"


def spread(rates: list[float]) -> str:
    """The median, and the least and most."""
    low, middle, high = min(rates), median(rates), max(rates)
    return f"{middle:,.0f} [{low:,.0f}, {high:,.0f}]"
