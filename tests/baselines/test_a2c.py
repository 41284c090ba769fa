"""The bundled A2C: its gradient by hand, exact resume, and that it learns."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_zoo.baselines import a2c, checkpoint, loop, ppo
from gpu_zoo.baselines.a2c import A2CConfig, Policy, evaluate, resume, train
from gpu_zoo.baselines.checkpoint import CheckpointError

SPREAD, TAG, CARTPOLE = "mpe/simple_spread_v3", "mpe/simple_tag_v3", "classic/cartpole_v1"


def small(**changes: Any) -> A2CConfig:
    settings: dict[str, Any] = {
        "total_steps": 800, "num_envs": 16, "horizon": 10, "hidden": (16,), "device": "cpu",
        "progress": False,
    }  # fmt: skip
    return A2CConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def returns_by_hand(rollout: Any, network: Any, gamma: float) -> Any:
    """n-step returns, step by step in float64: whatever follows the end of an episode is unknown
    to it, and at a time limit the value of its last observation stands for what would follow."""
    with torch.no_grad():
        values, finals = (
            network.value(x).double().numpy()
            for x in (rollout.observations, rollout.final_observations)
        )
    horizon, num_envs, agents = rollout.rewards.shape
    result = np.zeros((horizon, num_envs, agents))
    for env, agent in np.ndindex(num_envs, agents):
        follows = values[horizon, env, agent]
        for t in reversed(range(horizon)):
            if rollout.done[t, env]:
                follows = finals[t, env, agent]
            if rollout.terminated[t, env, agent]:
                follows = 0.0
            follows = float(rollout.rewards[t, env, agent]) + gamma * follows
            result[t, env, agent] = follows
    return result


def test_its_gradient_is_the_policy_gradient_by_hand() -> None:
    """A linear softmax policy and a linear value, differentiated on paper:

    d(-A log p_a)/dz = A (p - onehot_a),  dH/dz_j = -p_j (log p_j + H),  d(V - R)^2/dV = 2 (V - R).
    """
    config = small(
        hidden=(), horizon=7, num_envs=5, gamma=0.9, entropy_coef=0.05, value_coef=0.7,
        max_grad_norm=1e9, stagger=False,
    )  # fmt: skip
    trainer = a2c.Trainer(SPREAD, config, {"max_cycles": 4})
    learner = trainer.learners["agent"]
    network, rollout = learner.network, learner.rollout
    with torch.no_grad():
        network.actor[-1].weight.mul_(30)  # far from uniform
    trainer.collect()
    assert bool(rollout.done.any()) and not bool(rollout.done[-1].any())
    with torch.no_grad():
        batch = learner.prepare()
    returns = returns_by_hand(rollout, network, 0.9).reshape(-1)

    x = rollout.observations[:-1].reshape(-1, rollout.observations.shape[-1]).double().numpy()
    chosen = rollout.actions.reshape(-1).numpy()
    weight, bias = (p.detach().double().numpy() for p in network.actor[-1].parameters())
    v_weight, v_bias = (p.detach().double().numpy() for p in network.critic[-1].parameters())
    n = len(x)
    values = (x @ v_weight.T + v_bias)[:, 0]
    logits = x @ weight.T + bias
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    entropy = -(p * np.log(p)).sum(1, keepdims=True)
    dz = (returns - values)[:, None] * (p - np.eye(p.shape[1])[chosen])
    dz += 0.05 * p * (np.log(p) + entropy)
    dv = 0.7 * 2 * (values - returns)

    learner.learn(batch, replace(learner.config, learning_rate=1e-3), trainer.generator)
    wanted = [dz.T @ x / n, dz.sum(0) / n, dv[None] @ x / n, dv.sum(keepdims=True) / n]
    parameters = [*network.actor.parameters(), *network.critic.parameters()]
    for parameter, gradient in zip(parameters, wanted, strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(parameter.grad, gradient, atol=2e-4, rtol=2e-4)
        assert np.abs(gradient).max() > 1e-2


def test_one_step_a_rollout_of_the_optimizer_named() -> None:
    for name, kind in (("rmsprop", torch.optim.RMSprop), ("adam", torch.optim.Adam)):
        trainer = a2c.Trainer(SPREAD, small(optimizer=name), {})
        optimizer = trainer.learners["agent"].optimizer
        assert isinstance(optimizer, kind)
        curve = loop.run(trainer).curve
        assert int(optimizer.state_dict()["state"][0]["step"]) == len(curve) == 5
        assert curve[-1].losses["agent/clip_fraction"] == 0
        assert curve[-1].losses["agent/approx_kl"] == pytest.approx(0, abs=1e-6)


def test_gradients_are_clipped() -> None:
    trainer = a2c.Trainer(SPREAD, small(max_grad_norm=1e-3), {})
    loop.run(trainer)
    gradients = [p.grad.flatten() for p in trainer.learners["agent"].network.parameters()]
    assert float(torch.cat(gradients).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_what_those_who_left_see_teaches_nothing() -> None:
    """The same weights, to the bit, if their observations are not numbers."""
    params = {"num_taggers": 4, "grid_length": 3.0, "tagging_distance": 0.2, "episode_length": 12}
    weights = []
    for spoil in (False, True):
        trainer = a2c.Trainer("warpdrive/tag_continuous_v0", small(), params)
        group, step = trainer.env.group["runner"], trainer.env.step
        left = 0

        def spy(group: Any = group, step: Any = step, spoil: bool = spoil) -> Any:
            nonlocal left
            result = step()
            if spoil:
                group.observations[~group.active] = torch.nan
                left += int((~group.active).sum())
            return result

        trainer.env.step = spy  # type: ignore[method-assign, assignment]
        network = loop.run(trainer).policy.networks["runner"]
        weights.append(torch.cat([p.detach().flatten() for p in network.parameters()]))
        assert (left > 100) is spoil
    assert bool(weights[0].isfinite().all()) and torch.equal(*weights)


class Stop(Exception):
    """A run cut short."""


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_resume_is_exact(optimizer: str, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    config = small(total_steps=1120, optimizer=optimizer)
    whole = train(TAG, config)
    assert any(update.returns for update in whole.curve)

    def stop(update: a2c.Update) -> None:
        if update.index == 5:
            raise Stop

    saving = dataclasses.replace(config, checkpoint=str(path), checkpoint_interval=3)
    with pytest.raises(Stop):
        train(TAG, saving, on_update=stop)
    assert len(checkpoint.load(path)["curve"]) == 3
    resumed = resume(path)
    assert resumed.curve == whole.curve
    loaded = Policy.load(path)
    for group, network in whole.policy.networks.items():
        theirs = network.state_dict()
        for ours in (resumed.policy.networks[group], loaded.networks[group]):
            assert all(torch.equal(value, theirs[key]) for key, value in ours.state_dict().items())


def test_a_checkpoint_of_ppo_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ppo.pt"
    config = dataclasses.replace(small(total_steps=160).as_ppo(), checkpoint=str(path))
    ppo.train(SPREAD, config)
    with pytest.raises(CheckpointError, match="another algorithm than A2C"):
        resume(path)


def test_ppo_refuses_a_checkpoint_of_a2c(tmp_path: Path) -> None:
    path = tmp_path / "a2c.pt"
    train(SPREAD, small(total_steps=160, optimizer="adam", checkpoint=str(path)))
    with pytest.raises(CheckpointError, match="another algorithm than PPO"):
        ppo.resume(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"total_steps": 0}, {"num_envs": 2.5}, {"horizon": "8"}, {"learning_rate": math.nan},
        {"optimizer": "sgd"}, {"gamma": 1.01}, {"gae_lambda": -0.1}, {"entropy_coef": -1},
        {"max_grad_norm": 0}, {"hidden": (64, 0)}, {"seed": -1}, {"anneal": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_a_bad_value_is_named(changes: dict[str, Any]) -> None:
    ((name, value),) = changes.items()
    with pytest.raises(ValueError) as caught:
        small(**changes)
    message = str(caught.value)
    assert message.startswith(f"{name}={value!r}: expected ")
    assert "\n" not in message


@pytest.mark.slow
def test_it_learns_to_balance() -> None:
    """Random play balances for 22 steps, of 500."""
    config = A2CConfig(device="cpu", progress=False, total_steps=1_000_000, num_envs=64)
    policy = train(CARTPOLE, config).policy
    assert evaluate(policy, episodes=500, deterministic=True).mean.mean > 450
