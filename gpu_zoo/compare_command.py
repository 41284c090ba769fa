"""The subcommand ``gpu-zoo compare``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_zoo.arguments import File, Flag, Runs, UserError, user_errors

if TYPE_CHECKING:
    from gpu_zoo.baselines.curves import Pool

HEADER = ("environment", "runs", "seeds", "group", "steps", "seconds", "steps/s", "last return")


def compare(runs: Runs, *, out: File = Path("curves.png"), evaluations: Flag = False) -> int:
    """Draw learning curves and print a table; runs that differ only in seed are one curve.

    Curves are medians over seeds, with a band from the lower to the upper quartile; in the table
    these stand for the mean return over the last tenth of the steps.

    Args:
        runs: run folders, or folders that have some within.
        out: the picture, .png, .svg or .pdf; None for the table alone.
        evaluations: go by the returns of evaluations during the runs (eval_interval), not by those
            of training itself.
    """
    if not runs:
        raise UserError("compare: expected run folders, or folders that have some within")
    from gpu_zoo.baselines import curves, plot
    from gpu_zoo.describe import console

    if importlib.util.find_spec("yaml") is None:
        raise UserError("compare needs PyYAML: pip install 'gpu-zoo[train]'")
    if out is not None:
        if out.suffix.lower() not in plot.SUFFIXES:
            raise UserError(f"--out {out}: expected a name that ends in .png, .svg or .pdf")
        if importlib.util.find_spec("matplotlib") is None:
            raise UserError("--out needs matplotlib: pip install 'gpu-zoo[plot]', or --out None")
    with user_errors():
        measure = curves.EVALUATED if evaluations else curves.IN_TRAINING
        pools = curves.pools(curves.find(runs, measure))
    from rich.table import Table

    table = Table(*HEADER)
    for row in rows(pools):
        table.add_row(*row)
    console().print(table)
    for line in uneven(pools):
        console().print(line, soft_wrap=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        plot.draw(out, pools)
        print(f"wrote {out}")
    return 0


def rows(pools: Mapping[str, Sequence[Pool]]) -> Iterator[tuple[str, ...]]:
    """The table: a row for each group of agents of each pool."""
    import numpy as np

    from gpu_zoo.baselines.csv_log import STEP

    for env_id, alike in pools.items():
        for pool in alike:
            seeds = str(len(pool.runs))
            ends = [run.rows[-1] for run in pool.runs if run.rows]
            if not ends:
                yield (env_id, pool.label, seeds, "-", "0", "-", "-", "-")
                continue
            steps, seconds = (float(np.median([e[k] for e in ends])) for k in (STEP, "seconds"))
            speed = float(np.median([end["steps_per_second"] for end in ends]))
            numbers = (f"{steps:,.0f}", f"{seconds:,.0f}", f"{speed:,.0f}")
            groups = dict.fromkeys(group for run in pool.runs for group in run.groups)
            if not groups:
                yield (env_id, pool.label, seeds, "-", *numbers, "none yet")
            for group in groups:
                finals = [run.final(group) for run in pool.runs]
                low, median, high = np.nanpercentile(finals, [25, 50, 75])
                last = f"{median:.2f} [{low:.2f}, {high:.2f}]"
                yield (env_id, pool.label, seeds, group, *numbers, last)


def uneven(pools: Mapping[str, Sequence[Pool]]) -> Iterator[str]:
    """A line for each run that has gone less far than others with which it makes one curve."""
    from gpu_zoo.baselines.csv_log import STEP

    for alike in pools.values():
        for pool in alike:
            steps = [int(run.rows[-1][STEP]) if run.rows else 0 for run in pool.runs]
            for run, own in zip(pool.runs, steps, strict=True):
                if own < max(steps):
                    yield f"{run.folder}: at step {own:,} of {max(steps):,}; the curve ends there"
