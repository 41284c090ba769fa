"""What training reaches: returns of final policies and of random play, for docs/returns.md.

python docs/_scripts/returns.py                     train every environment with five seeds
python docs/_scripts/returns.py --only cartpole_v1  this environment alone, or several
python docs/_scripts/returns.py --runs FOLDER ...   take finished runs instead

Training is with the configuration that comes along, in run folders under --folder. Each run's final
policy then plays 1,000 episodes, drawing its actions as in training: all groups trained, and where
there are several, each of them with all others at random. Every result is in the file as soon as it
is known. What the file or a run folder has already is not done again, so the same command goes on
where it was stopped; a changed configuration is measured anew. docs/_scripts/build_pages.py makes
the page of the newest file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import gpu_zoo
from gpu_zoo.backends.cpu import num_threads
from gpu_zoo.baselines import config_file, curves, run_folder
from gpu_zoo.baselines.algorithms import ALGORITHMS, Config
from gpu_zoo.bench.report import write_json

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PACKAGES = ("gpu-zoo", "torch", "numpy")
POINTS = 40  # of a learning curve
OUTSIDE = ("seed", *config_file.PLACES)  # what runs of one entry may differ in

Entry = dict[str, Any]


# One run ---------------------------------------------------------------------------------------


def train(env_id: str, algorithm: str, config: Config, folder: Path) -> None:
    """Train in a folder, or go on where a run in it was stopped, or do nothing if it is done."""
    import importlib

    trainer: Any = importlib.import_module(f"gpu_zoo.baselines.{algorithm}")
    saved = folder / run_folder.CHECKPOINT
    if saved.is_file():
        trainer.resume(saved)
        return
    if folder.exists():  # stopped before its first checkpoint
        shutil.rmtree(folder)
    run_folder.train(folder, env_id, algorithm, config)


def measure(folder: Path, episodes: int) -> Entry:
    """What a finished run took, and mean returns of its policy by group."""
    from gpu_zoo.baselines.evaluation import evaluate
    from gpu_zoo.baselines.policies import load_policy

    run = curves.load(folder)
    policy = load_policy(folder / run_folder.CHECKPOINT)
    together = evaluate(policy, episodes=episodes).groups
    apart = {}
    for group in together if len(together) > 1 else ():
        others = {name: "random" for name in together if name != group}
        alone = evaluate(policy, episodes=episodes, opponents=others)
        apart[group] = alone.groups[group].mean
    return {
        "seed": run.seed,
        "env_steps": run.rows[-1]["env_steps"],
        "seconds": round(run.rows[-1]["seconds"], 1),
        "trained": {group: score.mean for group, score in together.items()},
        "others_random": apart,
        "curve": curve(run.rows, list(together)),
    }


def curve(rows: Sequence[Mapping[str, float]], groups: Sequence[str]) -> Entry:
    """Environment steps, and by group the mean return of the episodes that ended up to there since
    the point before; None where none ended.
    """
    parts = [list(part) for part in np.array_split(np.arange(len(rows)), min(POINTS, len(rows)))]
    found: Entry = {"env_steps": [int(rows[part[-1]]["env_steps"]) for part in parts]}
    for group in groups:
        values = [[rows[i].get(f"{group}/return", np.nan) for i in part] for part in parts]
        means = [[v for v in part if not np.isnan(v)] for part in values]
        found[group] = [round(float(np.mean(part)), 4) if part else None for part in means]
    return found


def work(env_id: str, algorithm: str, config: Config, folder: Path, episodes: int) -> Entry:
    """Train and measure, in a process of its own."""
    train(env_id, algorithm, config, folder)
    return measure(folder, episodes)


# The file --------------------------------------------------------------------------------------


def settings(config: Config) -> dict[str, Any]:
    """The hyper-parameters that all runs of an entry have in common, as JSON has them."""
    values = {name: value for name, value in asdict(config).items() if name not in OUTSIDE}
    common: dict[str, Any] = json.loads(json.dumps(values))
    return common


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """Mean over seeds, and half the width of its 95 % interval by Student's t; None for one."""
    half = None
    if len(values) > 1:
        error = float(np.std(values, ddof=1)) / len(values) ** 0.5
        half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return {"mean": float(np.mean(values)), "half_width": half}


def summed_up(entry: Entry) -> Entry:
    """An entry with means over its runs."""
    runs = sorted(entry["runs"], key=lambda run: run["seed"])
    groups = {
        group: {
            kind: summary([run[kind][group] for run in runs])
            for kind in ("trained", "others_random")
            if group in runs[0][kind]
        }
        for group in runs[0]["trained"]
    }
    return {**entry, "runs": runs, "groups": groups}


class Results:
    """The file, and what is in it.

    Raises:
        ValueError: a file of another machine, or of another number of episodes.
    """

    def __init__(self, path: Path, episodes: int, jobs: int) -> None:
        self.path = path
        self.report: dict[str, Any] = {
            "machine": machine(),
            "versions": {name: version(name) for name in PACKAGES},
            "episodes": episodes,
            "jobs": jobs,
            "entries": [],
        }
        if path.is_file():
            found = json.loads(path.read_text())
            for key in ("machine", "episodes"):
                if found[key] != self.report[key]:
                    raise ValueError(
                        f"{path}: has {key}={found[key]!r}: expected {self.report[key]!r}; "
                        "name another file with --json"
                    )
            self.report["entries"] = found["entries"]

    def has(self, env_id: str, algorithm: str, common: Mapping[str, Any], seed: int) -> bool:
        """Whether a run with this seed and these hyper-parameters is in it."""
        entry = self._find(env_id, algorithm)
        if entry is None or entry["config"] != common:
            return False
        return any(run["seed"] == seed for run in entry["runs"])

    def add(
        self,
        env_id: str,
        algorithm: str,
        common: Mapping[str, Any],
        env_params: Mapping[str, Any],
        run: Entry,
    ) -> None:
        """Add a run's results and write the file; other hyper-parameters begin an entry anew."""
        from gpu_zoo.baselines.evaluation import evaluate

        entry = self._find(env_id, algorithm)
        others = [e for e in self.report["entries"] if e is not entry]
        head = {"env_params": dict(env_params), "config": dict(common)}
        if entry is None or {name: entry[name] for name in head} != head:
            episodes = self.report["episodes"]
            played = evaluate(None, env_id, episodes, env_params=env_params, device="cpu")
            random = {group: score.mean for group, score in played.groups.items()}
            entry = {"env_id": env_id, "algorithm": algorithm, **head, "random": random, "runs": []}
        entry["runs"] = [r for r in entry["runs"] if r["seed"] != run["seed"]] + [run]
        order = gpu_zoo.list_ids()
        self.report["entries"] = sorted(
            [*others, summed_up(entry)], key=lambda e: (order.index(e["env_id"]), e["algorithm"])
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self.report)

    def _find(self, env_id: str, algorithm: str) -> Entry | None:
        key = (env_id, algorithm)
        entries: list[Entry] = self.report["entries"]
        return next((e for e in entries if (e["env_id"], e["algorithm"]) == key), None)


def machine() -> dict[str, Any]:
    """Where this is measured."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "processor": [*models, platform.processor()][0],
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


# All of them -----------------------------------------------------------------------------------


def trained(
    results: Results, folder: Path, env_ids: Sequence[str], algorithm: str, seeds: int, jobs: int
) -> int:
    """Train and measure what the file lacks; how many failed."""
    tasks = dict(wanted(results, folder, env_ids, algorithm, seeds))
    print(f"{len(tasks)} runs to do, {jobs} at a time, in {folder}", flush=True)
    os.environ.setdefault("GPU_ZOO_NUM_THREADS", str(max(1, num_threads() // jobs)))
    failed = 0
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        futures: dict[Future[Entry], tuple[str, Config]] = {
            pool.submit(work, env_id, algorithm, config, place, results.report["episodes"]): (
                env_id,
                config,
            )
            for place, (env_id, config) in tasks.items()
        }
        for future in as_completed(futures):
            env_id, config = futures[future]
            try:
                run = future.result()
            except Exception as error:
                failed += 1
                print(f"{env_id} seed {config.seed}: {type(error).__name__}: {error}", flush=True)
                continue
            results.add(env_id, algorithm, settings(config), {}, run)
            print(f"{env_id} seed {run['seed']}: {run['seconds']} s, {run['trained']}", flush=True)
    return failed


def wanted(
    results: Results, folder: Path, env_ids: Sequence[str], algorithm: str, seeds: int
) -> Iterator[tuple[Path, tuple[str, Config]]]:
    """Run folders that the file lacks, each with its environment and configuration.

    Environments take turns, so that a run that is stopped has some seeds of all.
    """
    for seed in range(seeds):
        for env_id in env_ids:
            tuned = config_file.tuned(ALGORITHMS[algorithm], algorithm, env_id)
            config = replace(tuned, device="cpu", seed=seed, progress=False)
            common = settings(config)
            if not results.has(env_id, algorithm, common, seed):
                digest = hashlib.sha256(json.dumps(common).encode()).hexdigest()[:8]
                name = f"{gpu_zoo.spec(env_id).name}-{algorithm}-{digest}"
                yield folder / name / f"seed_{seed}", (env_id, config)


def taken(results: Results, folders: Sequence[Path]) -> int:
    """Measure finished runs that the file lacks; 0, as one that fails ends it all."""
    runs = curves.find(folders)
    for env_id, pools in curves.pools(runs).items():
        algorithms = [pool.runs[0].algorithm for pool in pools]
        if len(algorithms) > len(set(algorithms)):
            labels = "; ".join(pool.label for pool in pools)
            raise ValueError(f"{env_id}: expected runs that differ only in seed, found {labels}")
    for run in runs:
        file = config_file.read(run.folder / run_folder.CONFIG)
        config = config_file.applied(file, ALGORITHMS[run.algorithm]())
        if run.rows[-1]["env_steps"] < config.total_steps:
            raise ValueError(f"{run.folder}: expected a finished run")
        if not results.has(run.env_id, run.algorithm, settings(config), run.seed):
            measured = measure(run.folder, results.report["episodes"])
            results.add(run.env_id, run.algorithm, settings(config), file.env_params, measured)
            print(f"{run.folder}: {measured['trained']}", flush=True)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Do what is asked for; 1 if a run failed."""
    parser = argparse.ArgumentParser(description="Returns of trained policies and of random play.")
    parser.add_argument("--only", nargs="+", metavar="ENV", help="these environments alone")
    parser.add_argument("--algorithm", choices=sorted(ALGORITHMS), default="ppo")
    parser.add_argument("--seeds", type=int, default=5, help="0 to this number")
    parser.add_argument("--jobs", type=int, default=num_threads(), help="runs at a time")
    parser.add_argument("--folder", type=Path, default=Path("runs/returns"), help="for run folders")
    parser.add_argument("--runs", nargs="+", type=Path, metavar="FOLDER", help="finished runs")
    parser.add_argument("--episodes", type=int, default=1000)
    today = BENCHMARKS / f"{date.today()}-returns-cpu.json"
    parser.add_argument("--json", type=Path, default=today, help="the file")
    given = parser.parse_args(argv)
    for name in ("seeds", "jobs", "episodes"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} {getattr(given, name)}: expected at least 1")
    try:
        env_ids = [gpu_zoo.spec(name).id for name in given.only or gpu_zoo.list_ids()]
        results = Results(given.json, given.episodes, given.jobs)
        if given.runs:
            failed = taken(results, given.runs)
        else:
            failed = trained(
                results, given.folder, env_ids, given.algorithm, given.seeds, given.jobs
            )
    except (KeyError, ValueError) as error:
        parser.error(str(error.args[0]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
