"""PQL against PPO: the return of each by the time it took, on one machine and in the same minutes.

    python tests/baselines/compare_pql.py                         # writes JSON and picture to runs/
    python tests/baselines/compare_pql.py --seeds 10 --json out.json --plot out.svg

All train in turns of 0.1 processor seconds each, so that a machine busy with something else as well
is so for all of them. Only training is timed, by the clock on the wall and in processor seconds,
those of all threads; between turns the policy plays 100 episodes without noise, the same for all.

On the CPU PPO computes a gradient in one call of compiled code, which nothing else has: "layer by
layer" is PPO without that, by the same operations as PQL. PQL in one thread learns from the same
number of steps in a fixed order. Networks are equally large. Hyper-parameters were chosen for each
algorithm by the time in which it gets to -135, out of a dozen settings or two with another seed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from gpu_zoo.baselines import loop, pql
from gpu_zoo.baselines.evaluation import Policy, evaluate
from gpu_zoo.baselines.ppo import PPOConfig
from gpu_zoo.baselines.ppo import Trainer as PPOTrainer
from gpu_zoo.baselines.pql import PQLConfig

ENV_ID = "classic/pendulum_v1"
SLICE = 0.1  # processor seconds of training between two evaluations
EPISODES = 100
WITHIN = 5.0  # of PPO's mean final return: policies as good differ by as much from seed to seed
SHARED: dict[str, Any] = {"hidden": (64, 64), "device": "cpu", "progress": False}

PPO = PPOConfig(
    total_steps=80_000, num_envs=128, horizon=16, epochs=10, minibatches=4, gamma=0.95,
    learning_rate=3e-3, entropy_coef=0.0, scale_rewards=True, **SHARED,
)  # fmt: skip
PQL = pql.default_config(ENV_ID, **SHARED)
CONTENDERS: dict[str, Any] = {
    "PPO": PPO,
    "PPO, layer by layer": PPO,
    "PQL": PQL,
    "PQL in one thread": replace(PQL, concurrent=False),
}


@dataclass
class Run:
    """One run in the making.

    Attributes:
        who: a name in ``CONTENDERS``.
        seed: its seed.
        seconds: of training so far.
        processor: processor seconds of training so far.
        points: seconds, processor seconds, environment steps and mean return, after each turn.
    """

    who: str
    seed: int
    seconds: float = 0.0
    processor: float = 0.0
    points: list[tuple[float, float, int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = replace(CONTENDERS[self.who], seed=self.seed)
        self._iterate, self._policy = make(self.config, "layer" not in self.who)
        self.updates, self.done = loop.iterations(self.config), 0

    def turn(self) -> None:
        """Train for a while, and play."""
        begun, busy = time.perf_counter(), time.process_time()
        while self.done < self.updates and time.process_time() - busy < SLICE:
            self._iterate()
            self.done += 1
        self.seconds += time.perf_counter() - begun
        self.processor += time.process_time() - busy
        played = evaluate(self._policy(), episodes=EPISODES, device="cpu", deterministic=True)
        steps = self.done * self.config.num_envs * self.config.horizon
        self.points.append((self.seconds, self.processor, steps, played.mean.mean))


def make(
    config: PPOConfig | PQLConfig, fused: bool
) -> tuple[Callable[[], object], Callable[[], Policy]]:
    """What makes an iteration of training, and what gives the policy so far."""
    if isinstance(config, PPOConfig):
        trainer: PPOTrainer | pql.Trainer = PPOTrainer(ENV_ID, config, {})
        for learner in trainer.learners.values():
            learner.fused = learner.fused if fused else None
    else:
        trainer = pql.Trainer(ENV_ID, config, {})

    def iterate() -> None:
        count, returns, losses = trainer.iterate()
        index = len(trainer.curve) + 1  # PPO's learning rate falls with the length of the curve
        trainer.curve.append(loop.Update(index, 0, count, returns, losses, 0.0))

    return iterate, trainer.policy


def race(seed: int) -> list[Run]:
    """All contenders with one seed, in turns."""
    runs = [Run(who, seed) for who in CONTENDERS]
    while any(run.done < run.updates for run in runs):
        for run in runs:
            if run.done < run.updates:
                run.turn()
    return runs


def reached(run: Run, target: float, column: int) -> float | None:
    """When a run first played at least as well as ``target``: seconds, or processor seconds."""
    return next((point[column] for point in run.points if point[3] >= target), None)


def summary(runs: list[Run], target: float) -> dict[str, dict[str, Any]]:
    """By contender: the final return, and the times to the target, one a seed."""
    return {
        who: {
            "final": statistics.mean(run.points[-1][3] for run in runs if run.who == who),
            "seconds": [reached(run, target, 0) for run in runs if run.who == who],
            "processor_seconds": [reached(run, target, 1) for run in runs if run.who == who],
        }
        for who in CONTENDERS
    }


def report(found: dict[str, dict[str, Any]], target: float) -> None:
    """Print medians; a run that never gets there counts as infinitely long."""
    print(f"median time to a return of {target:.1f} over seeds, seconds [least, most]")
    for who, row in found.items():
        columns = []
        for name in ("seconds", "processor_seconds"):
            times = sorted(float("inf") if t is None else t for t in row[name])
            columns.append(f"{statistics.median(times):6.1f} [{times[0]:.1f}, {times[-1]:.1f}]")
        print(
            f"{who:20s} wall {columns[0]:22s} processor {columns[1]:22s} final {row['final']:.1f}"
        )


def plot(runs: list[Run], target: float, path: Path) -> None:
    """Every run as a line, by seconds on the wall and by processor seconds."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "gpu_zoo"  # the same file for the same numbers
    from matplotlib import pyplot as plt

    colors = dict(zip(CONTENDERS, ("#c44e52", "#e5a3a5", "#4c72b0", "#8fb3dd"), strict=True))
    figure, both = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for column, (axes, label) in enumerate(zip(both, ("wall", "processor"), strict=True)):
        for run in runs:
            x, y = [p[column] for p in run.points], [p[3] for p in run.points]
            axes.plot(x, y, color=colors[run.who], alpha=0.7, linewidth=1)
        axes.axhline(target, color="grey", linewidth=0.8, linestyle="--")
        axes.set_xlabel(f"{label} seconds of training")
        for who, color in colors.items():
            axes.plot([], [], color=color, label=who)
    both[0].set_ylabel(f"return in {ENV_ID}")
    both[1].legend(loc="lower right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def processor_name() -> str:
    """As the system has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    """Train, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("runs/compare_pql.json"))
    parser.add_argument("--plot", type=Path, default=Path("runs/compare_pql.svg"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    for who in CONTENDERS:
        Run(who, 1000).turn()  # compiles, and warms up
    runs = []
    for seed in range(1, args.seeds + 1):
        runs += race(seed)
        for run in runs[-len(CONTENDERS) :]:
            print(f"seed {seed}: {run.who} {run.points[-1][3]:.1f}", flush=True)
    target = statistics.mean(run.points[-1][3] for run in runs if run.who == "PPO") - WITHIN
    found = summary(runs, target)
    report(found, target)
    content = {
        "env_id": ENV_ID,
        "date": date.today().isoformat(),
        "machine": {
            "processor": processor_name(), "processors": os.cpu_count(), "load_at_start": load,
            "torch": torch.__version__,
        },
        "configs": {"PPO": asdict(PPO), "PQL": asdict(PQL)},
        "target": target,
        "summary": found,
        "points": ["seconds", "processor_seconds", "env_steps", "return"],
        "runs": [{"who": r.who, "seed": r.seed, "points": r.points} for r in runs],
    }  # fmt: skip
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(content, indent=1) + "\n")
    plot(runs, target, args.plot)


if __name__ == "__main__":
    main()
