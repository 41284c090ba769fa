"""The same training with several seeds, each in a process and a run folder of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from gpu_zoo.backends.cpu import num_threads
from gpu_zoo.baselines import config_file, csv_log, run_folder
from gpu_zoo.baselines.csv_log import PROGRESS, STEP

if TYPE_CHECKING:
    from gpu_zoo.training import Order

OUTPUT = "output.txt"
POLL = 0.5  # seconds between two looks at what the processes have written
TRAIN = "import sys; from gpu_zoo.cli import main; sys.exit(main())"


@dataclass
class SeedRun:
    """One of them: its process, and what it has written so far."""

    seed: int
    folder: Path
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    task: TaskID

    def rows(self) -> list[dict[str, float]]:
        """The lines of its progress.csv."""
        path = self.folder / PROGRESS
        return csv_log.read(path) if path.is_file() else []

    def summary(self) -> str:
        """Steps, seconds and last returns; or what went wrong."""
        if self.process.returncode != 0:
            said = (self.folder / OUTPUT).read_text(errors="replace").strip().splitlines()
            last = said[-1] if said else "it said nothing"
            return (
                f"seed {self.seed}: failed with exit code {self.process.returncode}: {last} "
                f"(all of it: {self.folder / OUTPUT})"
            )
        rows = self.rows()
        returns = last_returns(rows) or "none yet"
        return (
            f"seed {self.seed}: {rows[-1][STEP]:,} steps in {rows[-1]['seconds']:.0f} s, "
            f"last mean return: {returns}"
        )


def seed_folder(folder: Path, seed: int) -> Path:
    """The run folder of one seed."""
    return folder / f"seed_{seed}"


def last_returns(rows: list[dict[str, float]]) -> str:
    """The last return of each group that has one, as text."""
    found = {
        name.removesuffix("/return"): value
        for row in rows
        for name, value in row.items()
        if name.endswith("/return")
    }
    return ", ".join(f"{group} {value:.2f}" for group, value in found.items())


def run_seeds(order: Order, folder: Path, seeds: int, jobs: int | None) -> int:
    """Train with ``seeds`` seeds, from the configuration's own on; at most ``jobs`` at a time.

    A seed that fails does not stop the others.

    Args:
        order: what to train.
        folder: gets the common configuration, and a run folder ``seed_<seed>`` for each.
        seeds: how many.
        jobs: processes at a time; by default one for each usable core.

    Returns:
        0 if every one of them succeeded, else 1.
    """
    cores = num_threads()
    jobs = min(seeds, jobs or cores)
    folder.mkdir(parents=True, exist_ok=True)
    config, common = order.config, folder / run_folder.CONFIG
    config_file.write(common, order.entry.id, order.algorithm, config, order.env_params)
    waiting = list(range(config.seed, config.seed + seeds))
    running: list[SeedRun] = []
    failed = 0
    print(f"{seeds} seeds, {jobs} at a time: tensorboard --logdir {folder}")
    with _progress(config.progress) as bar, _ended(running):
        tasks = {seed: bar.add_task(f"seed {seed}", total=None) for seed in waiting}
        while waiting or running:
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                running.append(_launch(order, common, seed, tasks[seed], cores // jobs))
            time.sleep(POLL)
            for run in list(running):
                _show(bar, run, config.total_steps)
                if run.process.poll() is not None:
                    running.remove(run)
                    run.output.close()
                    failed += run.process.returncode != 0
                    bar.console.print(run.summary(), markup=False, highlight=False, soft_wrap=True)
    if failed:
        print(f"{failed} of {seeds} seeds failed", file=sys.stderr)
    print(f"to compare: gpu-zoo compare {shlex.quote(str(folder))}")
    return 1 if failed else 0


def _launch(order: Order, common: Path, seed: int, task: TaskID, threads: int) -> SeedRun:
    """Start one in a process: the command that one could type."""
    folder = seed_folder(common.parent, seed)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", TRAIN, "train", order.env_id, "--config", str(common)]
    command += ["--seed", str(seed), "--run-dir", str(folder), "--no-progress"]
    command += [] if order.wandb is None else ["--wandb", order.wandb]
    # Processes share the cores; else each would start a thread for every core.
    env = {"GPU_ZOO_NUM_THREADS": str(max(1, threads)), **os.environ}
    output = (folder / OUTPUT).open("wb")
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env)
    return SeedRun(seed, folder, process, output, task)


@contextmanager
def _ended(running: list[SeedRun]) -> Iterator[None]:
    """However the block is left, no process outlives it."""
    try:
        yield
    finally:
        for run in running:
            run.process.terminate()
            run.process.wait()
            run.output.close()


def _progress(shown: bool) -> Progress:
    return Progress(
        TextColumn("{task.percentage:3.0f}%"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
        disable=not shown,
    )


def _show(bar: Progress, run: SeedRun, total: int) -> None:
    rows = run.rows()
    if rows:
        speed = rows[-1]["steps_per_second"]
        text = f"seed {run.seed}  return: {last_returns(rows)}  {speed:,.0f} steps/s"
        done = min(int(rows[-1][STEP]), total)
        bar.update(run.task, total=total, completed=done, description=text)
