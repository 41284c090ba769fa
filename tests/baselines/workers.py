"""What each of the processes does that test_distributed.py starts with torchrun."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from gpu_zoo.baselines import distributed, loop, ppo
from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines.ppo import PPOConfig

ENV = "warpdrive/tag_continuous_v0"
PARAMS: dict[str, Any] = {
    "num_taggers": 2, "num_runners": 3, "grid_length": 3.0, "episode_length": 12,
}  # fmt: skip


def config(**changes: Any) -> PPOConfig:
    return PPOConfig(
        **{
            "total_steps": 4 * 16 * 10, "num_envs": 16, "horizon": 10, "minibatches": 3,
            "epochs": 2, "hidden": (16,), "progress": False, "device": "cpu", "seed": 5,
            "normalize_observations": True, "scale_rewards": True, "gamma": 0.9, **changes,
        }
    )  # fmt: skip


def record(folder: Path) -> None:
    """Train, and write down what was learned from and what came of it."""
    seen: dict[str, list[Any]] = {"tagger": [], "runner": []}
    real, batches, number = (
        learning.Learner.gradient,
        learning.Learner.prepare,
        ppo.distributed.rank,
    )

    def prepare(learner: learning.Learner) -> learning.Batch:
        batch = batches(learner)
        kept = {name: x.clone() for name, x in vars(batch).items() if x is not None}
        seen[learner.group.agents[0].split("_")[0]].append((kept, []))
        return batch

    def gradient(
        learner: learning.Learner, batch: learning.Batch, rows: Any, config: PPOConfig
    ) -> Any:
        seen[learner.group.agents[0].split("_")[0]][-1][1].append(rows.clone())
        return real(learner, batch, rows, config)

    learning.Learner.prepare, learning.Learner.gradient = prepare, gradient  # type: ignore[method-assign]
    with distributed.joined():
        trainer = ppo.Trainer(ENV, config(), PARAMS)
        first = {name: g.observations.clone() for name, g in trainer.env.group.items()}
        curve = loop.run(trainer).curve
        content = {
            "first": first,
            "steps": [
                (name, [batch for batch, _ in own], [rows for _, rows in own])
                for name, own in seen.items()
            ],
            "networks": {n: x.network.state_dict() for n, x in trainer.learners.items()},
            "curve": [(u.episodes, u.returns, u.losses) for u in curve],
        }
        torch.save(content, folder / f"{number()}.pt")


def train(folder: Path, die_after: int) -> None:
    """Train, one of the processes dying after some iterations; 0 for none."""

    def end(update: ppo.Update) -> None:
        if update.index == die_after and os.environ["RANK"] == "1":
            os._exit(3)

    path = folder / "run.pt"
    settings = config(checkpoint=str(path), checkpoint_interval=1)
    go = ppo.resume(path, on_update=end) if path.exists() else None
    result = go or ppo.train(ENV, settings, PARAMS, on_update=end)
    if os.environ["RANK"] == "0":
        losses = [update.losses for update in result.curve]
        (folder / "curve.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    job, where = sys.argv[1], Path(sys.argv[2])
    if job == "record":
        record(where)
    else:
        train(where, int(sys.argv[3]))
