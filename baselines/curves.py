"""Learning curves of finished and unfinished runs, those that differ only in seed as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.baselines import config_file, csv_log
from gpu_zoo.baselines.csv_log import PROGRESS, STEP
from gpu_zoo.baselines.run_folder import CONFIG

Array = npt.NDArray[np.float64]
IN_TRAINING, EVALUATED = "return", "eval_return"


@dataclass(frozen=True)
class Run:
    """What a run folder says.

    Attributes:
        folder: where it is.
        env_id: its environment.
        algorithm: its algorithm.
        seed: its seed.
        settings: all else that its configuration says, environment parameters included.
        rows: the lines of its progress.csv.
        measure: which returns are meant below, ``IN_TRAINING`` or ``EVALUATED``.
    """

    folder: Path
    env_id: str
    algorithm: str
    seed: int
    settings: dict[str, Any]
    rows: list[dict[str, float]]
    measure: str = IN_TRAINING

    @property
    def groups(self) -> list[str]:
        """The groups of agents, or agents, that have returns."""
        suffix = f"/{self.measure}"
        names = dict.fromkeys(name for row in self.rows for name in row if name.endswith(suffix))
        return [name.removesuffix(suffix) for name in names]

    def curve(self, group: str, axis: str) -> tuple[Array, Array]:
        """Values on an axis, ``"env_steps"`` or ``"seconds"``, and the group's returns there."""
        name = f"{group}/{self.measure}"
        pairs = [(row[axis], row[name]) for row in self.rows if name in row]
        x, y = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return x, y

    def final(self, group: str) -> float:
        """The group's mean return over the last tenth of the steps so far; NaN without any."""
        x, y = self.curve(group, STEP)
        late = x > 0.9 * self.rows[-1][STEP] if self.rows else x > 0
        return float(y[late].mean()) if late.any() else float(y[-1]) if len(y) else float("nan")


@dataclass(frozen=True)
class Pool:
    """Runs that differ only in their seed, and what tells them from others of the environment."""

    label: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Band:
    """Median of several curves, and the quartiles around it, ``(points,)`` each."""

    x: Array
    low: Array
    median: Array
    high: Array


def load(folder: str | Path, measure: str = IN_TRAINING) -> Run:
    """Read a run folder.

    Raises:
        ValueError: it is none; the message is one line.
    """
    folder = Path(folder)
    for name in (CONFIG, PROGRESS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder}: expected a run folder, but there is no {name}")
    file = config_file.read(folder / CONFIG)
    settings = {**file.hyper_parameters, "version": file.version}
    settings = {name: value for name, value in settings.items() if name not in config_file.MEASURED}
    settings |= {f"env_params.{name}": value for name, value in file.env_params.items()}
    seed = settings.pop("seed", None)
    if file.env_id is None or file.algorithm is None or not isinstance(seed, int):
        raise ValueError(f"{file.path}: expected env_id, algorithm and seed, as in a run's file")
    rows = csv_log.read(folder / PROGRESS)
    return Run(folder, file.env_id, file.algorithm, seed, settings, rows, measure)


def find(paths: Iterable[str | Path], measure: str = IN_TRAINING) -> list[Run]:
    """The runs in folders, which are run folders or have some within, in order of their names.

    Raises:
        ValueError: a folder without a run, or a run folder that cannot be read.
    """
    folders: dict[Path, None] = {}
    for path in map(Path, paths):
        within = sorted(file.parent for file in path.rglob(PROGRESS))
        if not within:
            raise ValueError(f"{path}: expected a run folder, or a folder that has some within")
        folders.update(dict.fromkeys(within))
    return [load(folder, measure) for folder in folders]


def pools(runs: Sequence[Run]) -> dict[str, list[Pool]]:
    """Runs by environment, and there those together that differ only in their seed.

    Raises:
        ValueError: two runs that do not even differ in their seed.
    """
    sets: list[list[Run]] = []
    for run in runs:
        for alike in sets:
            if _key(alike[0]) == _key(run):
                twice = next((other for other in alike if other.seed == run.seed), None)
                if twice is not None:
                    raise ValueError(
                        f"{run.folder}: expected another seed than that of {twice.folder}, from "
                        "which it does not differ"
                    )
                alike.append(run)
                break
        else:
            sets.append([run])
    result: dict[str, list[Pool]] = {}
    for alike in sets:
        first = alike[0]
        rivals = [s[0] for s in sets if (s[0].env_id, s[0].algorithm) == _key(first)[:2]]
        label = " ".join([first.algorithm, *_differences(first, rivals)])
        result.setdefault(first.env_id, []).append(Pool(label, tuple(alike)))
    return result


def _key(run: Run) -> tuple[str, str, dict[str, Any]]:
    return run.env_id, run.algorithm, run.settings


def _differences(run: Run, rivals: Sequence[Run]) -> list[str]:
    """Its settings that others have otherwise, as text."""
    names = dict.fromkeys(name for rival in rivals for name in rival.settings)
    missing = object()
    return [
        f"{name}={run.settings.get(name, 'default')}"
        for name in names
        if any(r.settings.get(name, missing) != run.settings.get(name, missing) for r in rivals)
    ]


def band(curves: Sequence[tuple[Array, Array]]) -> Band:
    """Median and quartiles of curves where all of them are.

    Between its points a curve is a straight line. The band has a point wherever one of them has,
    from where the last of them begins to where the first one ends.

    Args:
        curves: at least one; ``(points,)`` values on the axis, rising, and as many of the curve.
    """
    begin = max(x[0] for x, _ in curves)
    end = min(x[-1] for x, _ in curves)
    points = np.unique(np.concatenate([x for x, _ in curves]))
    points = points[(points >= begin) & (points <= end)]
    values = np.stack([np.interp(points, x, y) for x, y in curves])
    low, median, high = np.percentile(values, [25, 50, 75], axis=0)
    return Band(points, low, median, high)
