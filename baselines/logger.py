"""Progress of a training run: one line in the terminal, a table of values, and TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gpu_zoo.baselines.csv_log import PROGRESS, STEP, CsvLog


class Logger:
    """Shows and records scalars by environment step; a context manager.

    Args:
        total_steps: environment steps of the whole run.
        start: environment steps already made, after a resume.
        progress: show a line with returns, environment steps a second and time left.
        log_dir: folder for TensorBoard's event files and the same numbers in ``progress.csv``, or
            None. After a resume, what either has after ``start`` is dropped.
    """

    def __init__(
        self, total_steps: int, start: int, progress: bool, log_dir: str | Path | None
    ) -> None:
        self._started = time.perf_counter()
        self._start = start
        self._bar = Progress(
            TextColumn("{task.percentage:3.0f}%"),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            disable=not progress,
        )
        self._task = self._bar.add_task("", total=total_steps, completed=start)
        self._writer = None
        self._csv: CsvLog | None = None
        if log_dir is not None:
            from torch.utils.tensorboard import SummaryWriter

            # Points after the checkpoint belong to the run that was cut short.
            self._writer = SummaryWriter(str(log_dir), purge_step=start + 1 if start else None)
            self._csv = CsvLog(Path(log_dir) / PROGRESS, start)

    def log(
        self,
        step: int,
        seconds: float,
        returns: Mapping[str, float],
        numbers: Mapping[str, float],
    ) -> None:
        """Show mean ``returns`` by group, record all ``numbers``, at environment step ``step``.

        ``seconds`` are the run's so far; its speed is measured since it was started or resumed.
        """
        speed = (step - self._start) / (time.perf_counter() - self._started)
        shown = "  ".join(f"{group} {value:.2f}" for group, value in returns.items())
        self._bar.update(
            self._task, completed=step, description=f"return: {shown}  {speed:,.0f} steps/s"
        )
        if self._writer is None or self._csv is None:
            return
        everything = {"seconds": seconds, "steps_per_second": speed, **numbers}
        for name, value in everything.items():
            self._writer.add_scalar(name, value, step)
        self._csv.append({STEP: step, **everything})

    def __enter__(self) -> Logger:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if self._writer is not None:
            self._writer.close()
        if self._csv is not None:
            self._csv.close()
