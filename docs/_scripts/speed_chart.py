"""Draw docs/assets/speed.svg: steps a second of simple_spread, ours and other packages'.

python docs/_scripts/speed_chart.py            write
python docs/_scripts/speed_chart.py --check    exit 1 if the file is not up to date

Read is the newest docs/benchmarks/*-mpe-cpu.json; ``gpu-zoo bench --family mpe --peers`` wrote it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"
TARGET = ROOT / "docs" / "assets" / "speed.svg"
ENV = "mpe/simple_spread_v3"
NAMES = {"gpu_zoo drop-in": "gpu_zoo by PettingZoo's API", "mpe2": "mpe2, the original"}
LOW, HIGH = 2, 8  # the axis, in powers of ten
WIDTH, LEFT, RIGHT = 440, 8, 62
ROW, BAR, TOP = 38, 12, 26
OURS, THEIRS = "#5c6bc0", "#8d99ae"
# Only where the file stands alone; within a page the text has the page's colour.
STYLE = (
    "<style>svg:root{color:#1f2328}"
    "@media(prefers-color-scheme:dark){svg:root{color:#e6edf3}}</style>"
)


class Bar(NamedTuple):
    """Who, and steps a second."""

    who: str
    rate: float


def measured(benchmarks: Path = BENCHMARKS) -> dict[int, list[Bar]]:
    """By number of environments, 1 and 4,096, the fastest first."""
    newest = max(benchmarks.glob("*-mpe-cpu.json"))
    report = next(entry for entry in json.loads(newest.read_text()) if entry["env_id"] == ENV)
    found: dict[int, list[Bar]] = {}
    for num_envs in (1, 4096):
        rows = [row for row in report["rows"] if at(row, num_envs)]
        bars = [Bar(row["who"], row["env_steps_per_s"]) for row in rows]
        found[num_envs] = sorted(bars, key=lambda bar: -bar.rate)
    return found


def at(row: dict[str, Any], num_envs: int) -> bool:
    """Whether a row belongs to a number of environments: peers were timed beside ours."""
    beside = row["beside"]
    return row["num_envs"] == num_envs and beside in ("", f"gpu_zoo at {num_envs}")


def short(number: float) -> str:
    """Three digits and a unit: 32.8 M."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def across(rate: float) -> float:
    """Where on the logarithmic axis a rate lies, in pixels."""
    share = (math.log10(rate) - LOW) / (HIGH - LOW)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def drawn(bars: dict[int, list[Bar]]) -> Iterator[str]:
    """The lines of the file."""
    height = TOP + sum(24 + ROW * len(rows) for rows in bars.values()) + 30
    said = "; ".join(
        f"{num_envs:,} environment{'s' * (num_envs > 1)}: "
        + ", ".join(f"{bar.who} {short(bar.rate)}" for bar in rows)
        for num_envs, rows in bars.items()
    )
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="560" '
        f'style="max-width:100%;height:auto" role="img" font-family="sans-serif" font-size="13" '
        f'aria-label="Environment steps a second of simple_spread on two processor cores. {said}.">'
    )
    yield STYLE
    yield '<g fill="currentColor">'
    title = "environment steps a second, logarithmic"
    yield f'<text x="{LEFT}" y="15" font-weight="bold">{title}</text>'
    y = TOP
    for num_envs, rows in bars.items():
        y += 24
        plural = "s" * (num_envs > 1)
        yield f'<text x="{LEFT}" y="{y - 6}" opacity="0.75">{num_envs:,} environment{plural}</text>'
        for bar in rows:
            yield from row(bar, y)
            y += ROW
    yield from axis(y)
    yield "</g>"
    yield "</svg>"


def row(bar: Bar, y: float) -> Iterator[str]:
    """A name, and below it the bar with its number."""
    end = across(bar.rate)
    colour = OURS if bar.who.startswith("gpu_zoo") else THEIRS
    yield f'<text x="{LEFT}" y="{y + 11}">{NAMES.get(bar.who, bar.who)}</text>'
    yield (
        f'<rect x="{LEFT}" y="{y + 16}" width="{end - LEFT:.1f}" height="{BAR}" '
        f'fill="{colour}" rx="2"/>'
    )
    yield f'<text x="{end + 6:.1f}" y="{y + 27}">{short(bar.rate)}</text>'


def axis(y: float) -> Iterator[str]:
    """Powers of ten under the bars."""
    yield f'<path d="M{LEFT} {y}H{across(10**HIGH):.1f}" stroke="currentColor" opacity="0.4"/>'
    for power in range(LOW, HIGH + 1):
        x = across(10**power)
        anchor = "start" if power == LOW else "middle"
        yield f'<path d="M{x:.1f} {y}v4" stroke="currentColor" opacity="0.4"/>'
        yield (
            f'<text x="{x:.1f}" y="{y + 18}" text-anchor="{anchor}" opacity="0.75">'
            f"{short(10**power)}</text>"
        )


def main() -> int:
    """Write the file, or with ``--check`` say whether it is out of date."""
    text = "\n".join(drawn(measured())) + "\n"
    if TARGET.is_file() and TARGET.read_text() == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"out of date: {TARGET.relative_to(ROOT)}; run docs/_scripts/speed_chart.py")
        return 1
    TARGET.write_text(text)
    print(f"wrote {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
