"""Normalised observations and scaled rewards, against NumPy on all that was seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_zoo.baselines import ppo
from gpu_zoo.baselines.gae import advantages
from gpu_zoo.baselines.ppo import Policy, PPOConfig, evaluate, resume, train
from gpu_zoo.baselines.rollout import next_values
from gpu_zoo.baselines.running import RewardScale, RunningMoments

SPREAD = "mpe/simple_spread_v3"


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 8, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (16,),
        "device": "cpu", "progress": False, "total_steps": 400,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_moments_are_those_of_all_active_rows() -> None:
    """Batches of unlike means, one of them empty, far from 0, where float32 has no digits left."""
    generator = torch.Generator().manual_seed(0)
    moments, seen = RunningMoments(3), []
    assert moments.variance().tolist() == [1, 1, 1]
    for size, share in ((5, 0.5), (400, 0.9), (7, 0.0), (90, 1.0)):
        rows = torch.randn(size, 2, 3, generator=generator) * torch.tensor([1.0, 0.1, 9.0])
        rows = rows + torch.tensor([1e4, 0.0, -30.0]) + size / 50
        active = torch.rand(size, 2, generator=generator) < share
        moments.merge(torch.where(active.unsqueeze(-1), rows, 1e8), active)
        seen.append(rows[active].double().numpy())
    every = np.concatenate(seen)
    np.testing.assert_allclose(moments.count, len(every))
    np.testing.assert_allclose(moments.mean, every.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance(), every.var(0), rtol=1e-9)
    wanted = ((every - every.mean(0)) / every.std(0)).clip(-10, 10)
    found = moments.standardise(torch.tensor(every, dtype=torch.float32))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_outliers_are_cut_and_constants_are_zero() -> None:
    moments = RunningMoments(2)
    moments.merge(torch.tensor([[-1.0, 0.1], [1.0, 0.1]]), torch.tensor([True, True]))
    rows = torch.tensor([[3.0, 0.1], [1e6, 0.1], [-1e6, 0.1]])
    assert moments.standardise(rows).tolist() == [[3, 0], [10, 0], [-10, 0]]


def test_observations_are_measured_after_each_iteration() -> None:
    trainer = ppo.Trainer(SPREAD, small(normalize_observations=True), {})
    learner = trainer.learners["agent"]
    moments = learner.network.moments
    assert moments is not None
    seen: list[Any] = []
    for _ in range(3):
        trainer.collect()
        before = {name: value.clone() for name, value in moments.state_dict().items()}
        with torch.no_grad():
            batch = learner.prepare()
            observations = learner.rollout.observations
            again, _ = learner.network.log_prob_and_entropy(batch.observations, batch.actions)
        torch.testing.assert_close(again, batch.log_probs, atol=1e-5, rtol=1e-5)
        learner.learn(batch, trainer.config, trainer.generator)
        assert all(torch.equal(value, before[n]) for n, value in moments.state_dict().items())
        learner.measure_observations()
        seen.append(observations[:-1].reshape(-1, observations.shape[-1]).double().numpy().copy())
    every = np.concatenate(seen)
    np.testing.assert_allclose(moments.mean, every.mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moments.variance(), every.var(0), rtol=1e-9)


def by_hand(network: Any, observations: Any) -> torch.Tensor:
    moments = network.moments
    mean = moments.mean.numpy()
    std = np.sqrt(moments.squares.numpy() / float(moments.count) + 1e-8)
    return torch.tensor(((observations - mean) / std).clip(-10, 10), dtype=torch.float32)


def test_all_that_asks_the_network_sees_normalised_observations(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    config = small(normalize_observations=True, learning_rate=0.02, checkpoint=str(path))
    trained = train(SPREAD, config).policy
    loaded = Policy.load(path)
    network = loaded.networks["agent"]
    assert evaluate(loaded, episodes=20) == evaluate(trained, episodes=20)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(200, 18)).astype(np.float32)
    actions = loaded.act({"agent_1": observations}, deterministic=True)["agent_1"]
    with torch.no_grad():
        wanted = network.actor(by_hand(network, observations)).argmax(-1)
        plain = network.actor(torch.tensor(observations)).argmax(-1)
        value = network.value(torch.tensor(observations))
        critic = network.critic(by_hand(network, observations)).squeeze(-1)
    assert actions.tolist() == wanted.tolist() != plain.tolist()
    torch.testing.assert_close(value, critic, atol=1e-4, rtol=1e-4)


def test_the_final_observation_is_normalised() -> None:
    config = small(normalize_observations=True, stagger=False, horizon=4, gamma=0.9)
    trainer = ppo.Trainer(SPREAD, config, {"max_cycles": 4})
    trainer.iterate()
    trainer.collect()
    learner = trainer.learners["agent"]
    with torch.no_grad():
        returns = learner.prepare().returns.reshape(4, 8, 3)[-1]
        final = by_hand(learner.network, learner.rollout.final_observations[-1].numpy())
        wanted = learner.rollout.rewards[-1] + 0.9 * learner.network.critic(final).squeeze(-1)
    assert bool(learner.rollout.truncated[-1].all())
    torch.testing.assert_close(returns, wanted, atol=1e-4, rtol=1e-4)


def test_rewards_are_scaled_as_vec_normalize_does() -> None:
    """Lane by lane, number by number; two rollouts, over the ends of episodes."""
    rng = np.random.default_rng(0)
    scale = RewardScale((4, 3), 0.9)
    running, seen = np.zeros((4, 3)), []
    for _ in range(2):
        rewards = rng.normal(2, 3, size=(9, 4, 3)).astype(np.float32)
        ended, active = rng.random((9, 4, 3)) < 0.2, rng.random((9, 4, 3)) < 0.8
        for t, lane in ((t, lane) for t in range(9) for lane in np.ndindex(4, 3)):
            running[lane] = 0.9 * running[lane] + rewards[t][lane]
            if active[t][lane]:
                seen.append(running[lane])
            if ended[t][lane]:
                running[lane] = 0
        scale.merge(*(torch.tensor(a) for a in (rewards, ended, active)))
        wanted = rewards / np.sqrt(np.var(seen) + 1e-8)
        np.testing.assert_allclose(scale.scale(torch.tensor(rewards)), wanted, rtol=1e-5)


def test_advantages_are_those_of_scaled_rewards() -> None:
    trainer = ppo.Trainer(SPREAD, small(scale_rewards=True, gamma=0.9), {"max_cycles": 4})
    learner, running, seen = trainer.learners["agent"], np.zeros((8, 3)), []
    for _ in range(2):
        trainer.collect()
        rollout = learner.rollout
        for t in range(10):
            running = 0.9 * running + rollout.rewards[t].double().numpy()
            seen.append(running.copy())
            running[rollout.done[t].numpy()] = 0
    scaled = rollout.rewards / float(np.std(seen))
    with torch.no_grad():
        batch = learner.prepare()
        advantage = advantages(
            scaled, rollout.values[:-1], next_values(rollout, learner.network),
            rollout.terminated, rollout.truncated, 0.9, 0.95,
        )  # fmt: skip
    wanted = (advantage + rollout.values[:-1]).flatten()
    torch.testing.assert_close(batch.returns, wanted, atol=1e-5, rtol=1e-5)
    assert 0.5 < float(scaled.std()) / float(rollout.rewards.std()) * float(np.std(seen)) < 2


def test_returns_are_reported_unscaled() -> None:
    """In the first iteration, which the same untrained network plays in both runs."""
    config, params = small(total_steps=80, horizon=10), {"max_cycles": 5}
    plain = train(SPREAD, config, params).curve[0]
    scaled = train(SPREAD, replace(config, scale_rewards=True), params).curve[0]
    assert scaled.returns == plain.returns != {}
    assert scaled.losses != plain.losses


@pytest.mark.parametrize("option", ["normalize_observations", "scale_rewards"])
def test_resume_is_exact(option: str, tmp_path: Path) -> None:
    path = str(tmp_path / "run.pt")
    whole = train(SPREAD, small(**{option: True}))

    def stop(update: ppo.Update) -> None:
        if update.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        config = small(**{option: True, "checkpoint": path, "checkpoint_interval": 1})
        train(SPREAD, config, on_update=stop)
    resumed = resume(path)
    assert resumed.curve == whole.curve
    assert whole.curve != train(SPREAD, small()).curve
    state = whole.policy.networks["agent"].state_dict()
    assert all(
        torch.equal(v, state[n]) for n, v in resumed.policy.networks["agent"].state_dict().items()
    )
