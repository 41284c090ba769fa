"""Adam and LAMB on CartPole with one very large minibatch: ``python compare_optimizers.py``.

Prints a markdown table of mean returns of 1,000 episodes after training, 500 being the most, for
several learning rates at a minibatch of 256 environment steps; at that of the run, 131,072, they
are 22.6 times as large, by the square root rule. Figures in docs/training.md are from here.
"""

from __future__ import annotations

import argparse

from gpu_zoo.baselines.ppo import PPOConfig, evaluate, train

CARTPOLE = "classic/cartpole_v1"


def trained(optimizer: str, rate: float, seed: int) -> float:
    """The mean return after training."""
    config = PPOConfig(
        total_steps=40 * 4096 * 32, num_envs=4096, horizon=32, epochs=4, minibatches=1,
        optimizer=optimizer, learning_rate=rate, learning_rate_batch=256, warmup=0.05,  # type: ignore[arg-type]
        entropy_coef=0.0, seed=seed, device="cpu", progress=False,
    )  # fmt: skip
    return evaluate(train(CARTPOLE, config).policy, episodes=1000).mean.mean


def main() -> None:
    """Train them all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-4, 1e-3])
    options = parser.parse_args()
    print("| learning rate | Adam | LAMB |\n|---|---|---|", flush=True)
    for rate in options.rates:
        cells = []
        for optimizer in ("adam", "lamb"):
            returns = [trained(optimizer, rate, seed) for seed in range(options.seeds)]
            cells.append(", ".join(f"{value:.0f}" for value in returns))
        print(f"| {rate:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
