"""What a memory costs PPO: ``python cost_of_memory.py``.

Prints environment steps for each second that one processor core computes, so that what else the
machine does matters little, with and without a GRU, as a markdown table. Figures in
docs/training.md are from here.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from gpu_zoo.baselines import ppo

ENV_ID = "mpe/simple_spread_v3"
SMALLER: dict[str, Any] = {"num_envs": 128, "minibatches": 8}  # with the same minibatches


def speed(iterations: int, **options: Any) -> float:
    """Environment steps a second of one core; the first iteration compiles and is left out."""
    config = ppo.default_config(ENV_ID, device="cpu", progress=False, **SMALLER, **options)
    torch.set_num_threads(config.threads)
    trainer = ppo.Trainer(ENV_ID, config, {})
    trainer.iterate()
    begun = time.process_time()
    for _ in range(iterations):
        trainer.iterate()
    return iterations * config.num_envs * config.horizon / (time.process_time() - begun)


def main() -> None:
    """Measure both in turns and print the best of each."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=3)
    options = parser.parse_args()
    best = {False: 0.0, True: 0.0}
    for _ in range(options.rounds):
        for recurrent in best:
            best[recurrent] = max(best[recurrent], speed(options.iterations, recurrent=recurrent))
    print("| without memory | with | times |\n|---|---|---|")
    print(f"| {best[False]:,.0f} | {best[True]:,.0f} | {best[False] / best[True]:.1f} |")


if __name__ == "__main__":
    main()
