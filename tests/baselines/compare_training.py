"""Training end to end, side by side: ours, Stable-Baselines3, a CleanRL-style loop, JAX.

    pip install -e '.[train,sb3,bench,plot]'
    python -m venv jax-venv && jax-venv/bin/pip install jaxmarl     # brings jax, flax and optax
    python tests/baselines/compare_training.py --jax-python jax-venv/bin/python \\
        --json docs/benchmarks/DATE-training-cpu.json --plot docs/assets/training-cpu.svg --docs

Each contender has a process of its own. First they take turns (all of them, again and again) with
the environment alone and random actions; with acting, which is all of an iteration but its
gradient steps; and with training. Then each trains, the others waiting, to --steps environment
steps or for --budget seconds, whichever comes first. Task and hyper-parameters are those of
contenders/setting.py.

A contender that cannot run here, such as for want of JAX, is left out and the reason is noted.
``--read JSON`` measures nothing: it prints an earlier run and makes its plot and section. With
``--num-envs 32 --steps 1600 --turns 1 --seconds 0.1`` it takes some minutes to see that all work.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from contenders import report
from contenders.process import Entry, Failed, Process
from contenders.setting import Setting

from gpu_zoo.bench.report import PACKAGES, describe_machine, write_json

MODES = ("environment", "acting", "training")
ENTRIES = (
    Entry("gpu_zoo", "ours"),
    Entry("gpu_zoo, two threads", "ours", (("threads", 2),)),
    Entry("gpu_zoo, as shipped", "ours", (("shipped", True),)),
    Entry("Stable-Baselines3", "sb3"),
    Entry("CleanRL-style", "plain_torch"),
    Entry("JaxMARL-style", "jax_ippo"),
    Entry("products alone", "products", (("threads", 1),)),
    Entry("products alone, two threads", "products", (("threads", 2),)),
)
ALSO = ["stable_baselines3", "supersuit", "SuperSuit", "flax", "optax"]


def start(
    entries: Sequence[Entry], setting: Setting, jax_python: str
) -> tuple[list[Process], list[str]]:
    """The contenders that can be made, and what is to be said of the others."""
    processes, notes = [], []
    for entry in entries:
        python = jax_python if entry.module == "jax_ippo" else sys.executable
        try:
            processes.append(Process(entry, python, setting, [*PACKAGES, *ALSO]))
        except Failed as error:
            notes.append(f"left out: {error}")
    return processes, notes


def take_turns(processes: Sequence[Process], turns: int, seconds: float) -> list[dict[str, Any]]:
    """For each contender, by mode, environment steps a second of each turn."""
    rates: list[dict[str, Any]] = [{mode: [] for mode in p.said["modes"]} for p in processes]
    for _ in range(turns):
        for mode in MODES:
            for process, found in zip(processes, rates, strict=True):
                if mode in found:
                    time.sleep(0.05)  # another contender's threads may still be spinning
                    answer = process.ask({"turn": mode, "seconds": seconds})
                    found[mode].append(answer["env_steps"] / answer["seconds"])
    return rates


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All that is known of a run, for JSON."""
    load = os.getloadavg()[0]
    setting = Setting(num_envs=args.num_envs, total_steps=args.steps, seed=args.seed)
    entries = [entry for entry in ENTRIES if not args.only or entry.name in args.only]
    processes, notes = start(entries, setting, args.jax_python)
    try:
        rates = take_turns(processes, args.turns, args.seconds)
        rows = []
        for process, found in zip(processes, rates, strict=True):
            row = {"name": process.entry.name, **process.said, "env_steps_per_s": found}
            if process.said["learns"]:
                print(f"training: {process.entry.name}", flush=True)
                row["curve"], row["finished"] = process.learn(args.budget)
            rows.append(row)
    finally:
        for process in processes:
            process.close()
    return {
        "title": "mpe/simple_spread_v3: PPO end to end",
        "date": date.today().isoformat(),
        "machine": describe_machine(False, load),
        "setting": vars(setting),
        "turns": args.turns,
        "seconds a turn": args.seconds,
        "budget": args.budget,
        "notes": notes,
        "rows": rows,
    }


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, help="turns that each contender takes")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of a turn, about; at least one call"
    )
    parser.add_argument("--steps", type=int, default=3_000_000, help="environment steps of a run")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of a run, at most")
    parser.add_argument("--num-envs", type=int, default=512, help="a multiple of 16 and of 32 / 3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=[e.name for e in ENTRIES])
    parser.add_argument(
        "--jax-python", default=sys.executable, help="an interpreter that has jaxmarl"
    )
    parser.add_argument("--json", type=Path, help="write all that was measured here")
    parser.add_argument("--plot", type=Path, help="write returns against seconds here, .svg")
    parser.add_argument(
        "--docs", action="store_true", help="write the section in docs/performance.md"
    )
    parser.add_argument("--read", type=Path, help="a file that --json wrote, instead of measuring")
    args = parser.parse_args(argv)
    for name in ("turns", "seconds", "steps", "budget"):
        if not 0 < getattr(args, name) < math.inf:
            parser.error(f"--{name} {getattr(args, name)}: expected more than 0")
    if args.plot is not None and args.plot.suffix != ".svg":
        parser.error(f"--plot {args.plot}: expected a name that ends in .svg")
    if args.docs and args.plot is None:
        parser.error("--docs: expected --plot as well, whose picture the section shows")
    for path in (args.json, args.plot):
        if path is not None and not path.parent.is_dir():
            parser.error(f"{path}: expected a file in a folder that is there")
    if args.read is not None and not args.read.is_file():
        parser.error(f"--read {args.read}: no such file")
    try:
        Setting(num_envs=args.num_envs)
    except ValueError as error:
        parser.error(str(error).replace("num_envs=", "--num-envs ", 1))
    return args


def main() -> None:
    """Measure, print, write."""
    args = parse()
    try:
        found = measure(args) if args.read is None else json.loads(args.read.read_text())
    except Failed as error:
        sys.exit(str(error))
    report.show(found)
    if args.json is not None:
        write_json(args.json, found)
    if args.plot is not None:
        report.plot(found, args.plot)
    if args.docs:
        report.write_section(found, args.plot)


if __name__ == "__main__":
    main()
