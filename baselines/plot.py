"""Pictures of learning curves, with matplotlib: ``pip install 'gpu-zoo[plot]'``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_zoo.baselines.csv_log import STEP
from gpu_zoo.baselines.curves import Pool, band
from gpu_zoo.errors import MissingDependency

SUFFIXES = (".png", ".svg", ".pdf")
AXES = {STEP: "environment steps", "seconds": "seconds"}


def draw(path: str | Path, pools: Mapping[str, Sequence[Pool]]) -> None:
    """Draw returns over environment steps and over seconds, a row for each group of agents.

    A line is the median over seeds, the band around it reaches from the lower to the upper
    quartile.

    Args:
        path: the file, ``.png``, ``.svg`` or ``.pdf``.
        pools: by environment, as :func:`~gpu_zoo.baselines.curves.pools` gives them.

    Raises:
        MissingDependency: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependency(
            "drawing curves needs matplotlib: pip install 'gpu-zoo[plot]'"
        ) from None
    rows = [
        (env_id, group)
        for env_id, alike in pools.items()
        for group in dict.fromkeys(g for pool in alike for run in pool.runs for g in run.groups)
    ]
    figure = Figure(figsize=(11, 3.2 * max(1, len(rows))), layout="constrained")
    axes = figure.subplots(max(1, len(rows)), len(AXES), squeeze=False)
    for (env_id, group), panels in zip(rows, axes, strict=False):
        for (axis, meaning), panel in zip(AXES.items(), panels, strict=True):
            _panel(panel, pools[env_id], group, axis)
            panel.set_title(f"{env_id}: {group}", fontsize="medium")
            panel.set_xlabel(meaning)
            panel.set_ylabel("mean return")
            panel.grid(alpha=0.3)
        panels[0].legend(fontsize="small")
    figure.savefig(path, dpi=150)


def _panel(panel: Any, alike: Sequence[Pool], group: str, axis: str) -> None:
    for number, pool in enumerate(alike):
        curves = [run.curve(group, axis) for run in pool.runs]
        curves = [curve for curve in curves if len(curve[0])]
        if not curves:
            continue
        found = band(curves)
        seeds = f"{len(curves)} seed{'s' * (len(curves) != 1)}"
        color = f"C{number}"
        panel.plot(found.x, found.median, color=color, label=f"{pool.label} ({seeds})")
        panel.fill_between(found.x, found.low, found.high, color=color, alpha=0.2, linewidth=0)
