"""Critics that see the global state: what they are shown, and what they make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpu_zoo
from gpu_zoo.baselines import loop, ppo
from gpu_zoo.baselines.ppo import Policy, PPOConfig, evaluate, resume, train
from gpu_zoo.registry import ENVIRONMENTS
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice

TAG = "mpe/simple_tag_v3"
ACTIONS = (Actions(("nothing",), choices=(2,)),)
COIN = EnvSpec(
    id="toy/coin_v0",
    kernel=str(Path(__file__).parent / "coin.cu"),
    summary="Be paid what a coin shows.",
    params={"max_cycles": Param(3, "steps", low=1)},
    groups=(
        Group("teller", 1, {"coin": Slice(1, "1 or -1")}, ACTIONS),
        Group("blind", 2, {"nothing": Slice(2, "0 and 1")}, ACTIONS),
    ),
    state={"coin": Field("i32", (), "1 or -1")},
)


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 8, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (16,),
        "device": "cpu", "progress": False, "total_steps": 320, "central_critic": True,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(ENVIRONMENTS, COIN.id, COIN)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def watched(trainer: ppo.Trainer) -> list[torch.Tensor]:
    """The environment's own state before each step to come."""
    step, seen = trainer.env.step, list[torch.Tensor]()

    def spy() -> Any:
        seen.append(trainer.env.state().clone())
        return step()

    trainer.env.step = spy  # type: ignore[method-assign, assignment]
    return seen


def test_states_are_the_environment_s_once_for_each_environment() -> None:
    trainer = ppo.Trainer(TAG, small(), {"max_cycles": 4})
    seen = watched(trainer)
    trainer.collect()
    assert trainer.states is not None
    size = 3 * 16 + 14
    assert trainer.states.states.shape == (11, 8, size)
    assert torch.equal(trainer.states.states, torch.stack([*seen, trainer.env.state()]))
    rollouts = {name: learner.rollout for name, learner in trainer.learners.items()}
    done = rollouts["agent"].done
    assert 8 <= int(done.sum()) < done.numel()
    final = [rollouts[name].final_observations[done].flatten(1) for name in ("adversary", "agent")]
    assert torch.equal(trainer.states.final_states[done], torch.cat(final, 1))
    for rollout in rollouts.values():
        assert rollout.shared is trainer.states


def test_values_are_the_critic_s_of_own_observation_and_state() -> None:
    """Values of all samples and of what truncated episodes ended with, lane by lane."""
    trainer = ppo.Trainer(TAG, small(gamma=0.9), {"max_cycles": 4})
    seen = watched(trainer)
    trainer.collect()
    for learner in trainer.learners.values():
        with torch.no_grad():
            batch, rollout, critic = learner.prepare(), learner.rollout, learner.network.critic
        values, returns = (x.reshape(10, 8, -1) for x in (batch.values, batch.advantages))
        assert returns.shape == rollout.rewards.shape
        parts = [x.rollout.final_observations for x in trainer.learners.values()]
        for t, env, agent in np.ndindex(*rollout.rewards.shape):
            own = rollout.observations[t, env, agent]
            with torch.no_grad():
                wanted = critic(torch.cat([own, seen[t][env]]))[0]
            assert float(values[t, env, agent]) == pytest.approx(float(wanted), abs=1e-5)
            if rollout.truncated[t, env, agent]:
                state = torch.cat([part[t, env].flatten() for part in parts])
                with torch.no_grad():
                    own = rollout.final_observations[t, env, agent]
                    following = critic(torch.cat([own, state]))[0]
                wanted = rollout.rewards[t, env, agent] + 0.9 * following
                found = batch.returns.reshape(values.shape)[t, env, agent]
                assert float(found) == pytest.approx(float(wanted), abs=1e-4)


def test_rows_of_a_batch_keep_their_state() -> None:
    trainer = ppo.Trainer(TAG, small(), {})
    trainer.collect()
    learner = trainer.learners["adversary"]
    with torch.no_grad():
        batch = learner.prepare()[torch.randperm(80)[:30]]
        values = learner.network.value(batch.observations, batch.states)
        log_probs, _ = learner.network.log_prob_and_entropy(batch.observations, batch.actions)
    assert batch.observations.shape == (30, 3, 16)
    torch.testing.assert_close(values, batch.values, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(log_probs, batch.log_probs, atol=1e-5, rtol=1e-5)


def test_groups_are_normalised_in_the_state_as_for_themselves() -> None:
    trainer = ppo.Trainer(TAG, small(normalize_observations=True), {})
    trainer.iterate()
    trainer.collect()
    assert trainer.states is not None
    parts = []
    for learner in trainer.learners.values():
        moments = learner.network.moments
        assert moments is not None
        std = (moments.squares / moments.count + 1e-8).sqrt()
        parts.append(((learner.rollout.observations - moments.mean) / std).clip(-10, 10).flatten(2))
    wanted = torch.cat(parts, 2).float()
    torch.testing.assert_close(trainer.states.states, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("central", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_only_the_global_state_tells_the_value(central: bool) -> None:
    """Time limits are no ends: the coin is worth itself over 1 - gamma, and a guess nothing."""
    config = small(
        central_critic=central, num_envs=64, horizon=8, total_steps=40_000, gamma=0.5, epochs=4,
        learning_rate=3e-3,
    )  # fmt: skip
    trainer = ppo.Trainer(COIN.id, config, {})
    loop.run(trainer)
    states = torch.tensor([[1.0, 0, 1, 0, 1], [-1.0, 0, 1, 0, 1]])
    blind = torch.tensor([[0.0, 1.0]]).expand(2, 2, 2)
    with torch.no_grad():
        value = trainer.learners["blind"].network.value(blind, states if central else None)
    wanted = torch.tensor([[2.0, 2.0], [-2.0, -2.0]]) * central
    torch.testing.assert_close(value, wanted, atol=0.4, rtol=0)


def test_a_policy_acts_without_the_state(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    trained = train(TAG, small(checkpoint=str(path))).policy
    loaded = Policy.load(path)
    assert evaluate(loaded, episodes=10) == evaluate(trained, episodes=10)
    env = gpu_zoo.make(TAG)
    observations, _ = env.reset(seed=0)
    assert set(loaded.act(observations)) == set(env.agents)


def test_resume_is_exact(tmp_path: Path) -> None:
    path = str(tmp_path / "run.pt")
    whole = train(TAG, small(total_steps=480))

    def stop(update: ppo.Update) -> None:
        if update.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        config = small(total_steps=480, checkpoint=path, checkpoint_interval=1)
        train(TAG, config, on_update=stop)
    assert resume(path).curve == whole.curve
