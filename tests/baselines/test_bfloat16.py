"""Products in bfloat16: close to float32, not the same, and enough to learn with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines import ppo
from gpu_zoo.baselines.ppo import PPOConfig

SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"


def config(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "total_steps": 320, "num_envs": 8, "horizon": 10, "hidden": (64, 64), "minibatches": 2,
        "progress": False, "device": "cpu", "bfloat16": True, **changes,
    }  # fmt: skip
    return PPOConfig(**settings)


def gradients(bfloat16: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the loss, for the same samples, and the log-probabilities that it sees."""
    trainer = ppo.Trainer(SPREAD, config(bfloat16=False), {})
    trainer.collect()
    learner = trainer.learners["agent"]
    with torch.no_grad():
        batch = learner.prepare()
    learner.fused = None
    for tower in (learner.network.actor, learner.network.critic):
        tower.in_bfloat16 = bfloat16
    log_probs, _, _ = learning.review(learner.network, batch)
    learner.gradient(batch, torch.arange(len(batch.returns)), trainer.config)
    assert learner.parameters.grad is not None
    return learner.parameters.grad, log_probs.detach()


def test_it_is_float32_but_for_rounding() -> None:
    exact, rounded = gradients(False), gradients(True)
    assert exact[0].dtype == rounded[0].dtype == rounded[1].dtype == torch.float32
    assert not torch.equal(exact[0], rounded[0])
    assert float(torch.cosine_similarity(exact[0], rounded[0], dim=0)) > 0.99
    difference = (exact[1] - rounded[1]).abs()
    assert 0 < float(difference.max()) < 0.02  # bfloat16 has 8 bits


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [SPREAD, TAG])
def test_resume_is_exact_and_the_policy_loads(env_id: str, tmp_path: Path) -> None:
    path = str(tmp_path / "run.pt")
    whole = ppo.train(env_id, config())

    def stop(update: ppo.Update) -> None:
        if update.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ppo.train(env_id, config(checkpoint=path, checkpoint_interval=1), on_update=stop)
    assert ppo.resume(path).curve == whole.curve
    loaded = ppo.Policy.load(path)
    assert all(network.actor.in_bfloat16 for network in loaded.networks.values())
    assert ppo.evaluate(loaded, episodes=20) == ppo.evaluate(whole.policy, episodes=20)


def test_not_with_a_memory() -> None:
    with pytest.raises(ValueError, match=r"^bfloat16=True: expected False, as recurrent is set$"):
        config(recurrent=True)


@pytest.mark.slow
def test_it_learns() -> None:
    """To hold the pole for 400 steps out of 500; at random it falls after some 22."""
    result = ppo.train("classic/cartpole_v1", ppo.default_config("classic/cartpole_v1", **{
        "bfloat16": True, "progress": False, "device": "cpu", "total_steps": 300_000,
    }))  # fmt: skip
    assert ppo.evaluate(result.policy, episodes=100).groups["agent"].mean > 400
