"""Policies with a memory: sequences against single steps, and a toy that takes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toys import STAY_OR_GO

import gpu_zoo
from gpu_zoo import play
from gpu_zoo.baselines import evaluation, ppo
from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines.ppo import Policy, PPOConfig, evaluate, resume, train
from gpu_zoo.baselines.recurrent import Recurrent
from gpu_zoo.registry import ENVIRONMENTS
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice

SPREAD, TAG, STEPS = "mpe/simple_spread_v3", "mpe/simple_tag_v3", 4
FOLDER = Path(__file__).parent
RECALL = EnvSpec(
    id="toy/recall_v0",
    kernel=str(FOLDER / "recall.cu"),
    summary="Remember a colour.",
    params={"max_cycles": Param(STEPS, "steps", low=1)},
    groups=(
        Group(
            "agent",
            2,
            {"colour": Slice(2, "one-hot at first, then zeros")},
            (Actions(("colour",), choices=(2,)),),
        ),
    ),
    state={"colour": Field("i32", (2,), "0 or 1")},
)


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 8, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (12, 16),
        "device": "cpu", "progress": False, "total_steps": 320, "recurrent": True,
        "learning_rate": 0.02, "gamma": 0.9,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Any:
    for toy in (RECALL, STAY_OR_GO):
        monkeypatch.setitem(ENVIRONMENTS, toy.id, toy)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def textbook_gru(tower: Recurrent, inputs: Any, memory: Any) -> tuple[Any, Any]:
    """One lane's step, as the formulas have it, in float64."""
    w = {n: p.detach().double() for n, p in tower.cell.named_parameters()}
    x, h = tower.body(inputs).detach().double(), memory.double()
    r_in, z_in, n_in = (w["weight_ih"] @ x + w["bias_ih"]).chunk(3)
    r_own, z_own, n_own = (w["weight_hh"] @ h + w["bias_hh"]).chunk(3)
    r, z = torch.sigmoid(r_in + r_own), torch.sigmoid(z_in + z_own)
    h = (1 - z) * torch.tanh(n_in + r * n_own) + z * h
    last = tower.last
    return last.weight.detach().double() @ h + last.bias.detach().double(), h


@pytest.mark.parametrize(
    ("env_id", "params", "central"),
    [
        (TAG, {"max_cycles": 4}, False),
        (TAG, {"max_cycles": 7}, True),
        (SPREAD, {"max_cycles": 4, "continuous_actions": True}, False),
        (SPREAD, {"max_cycles": 7, "continuous_actions": True}, True),
        (STAY_OR_GO.id, {}, False),
        (STAY_OR_GO.id, {}, True),
    ],
)
def test_a_rollout_is_played_step_by_step(env_id: str, params: Any, central: bool) -> None:
    """Log-probabilities, values and returns of the third rollout, lane by lane with a memory of
    the test's own, which is zero where an episode begins, and once the agent has left."""
    trainer = ppo.Trainer(env_id, small(central_critic=central), params)
    trainer.iterate()
    crossing = {n: x.rollout.done[-1].clone() for n, x in trainer.learners.items()}
    held = {n: x.memory.clone() for n, x in trainer.learners.items() if x.memory is not None}
    trainer.collect()
    for name, learner in trainer.learners.items():
        rollout, network = learner.rollout, learner.network
        with torch.no_grad():
            batch = learner.prepare()
            again, _, values = learning.review(network, batch)
        assert rollout.memory is not None
        assert 8 < int(rollout.done.sum()) < rollout.done.numel()
        assert bool((held[name][crossing[name]] == 0).all())
        assert bool((held[name][~crossing[name]] != 0).any())
        active = rollout.active
        assert bool(active.all()) is (env_id != STAY_OR_GO.id)
        old = rollout.log_probs.transpose(0, 1), rollout.values[:-1].transpose(0, 1)
        torch.testing.assert_close(again, old[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(values, old[1], atol=1e-5, rtol=1e-5)
        for env, agent in np.ndindex(4, rollout.rewards.shape[2]):
            actor, critic = held[name][env, agent]
            for t in range(10):
                if not active[t, env, agent]:
                    actor, critic = torch.zeros(16), torch.zeros(16)
                seen = rollout.observations[t, env, agent]
                shared = rollout.shared
                both = seen if shared is None else torch.cat([seen, shared.states[t, env]])
                logits, actor = textbook_gru(network.actor, seen, actor)
                value, critic = textbook_gru(network.critic, both, critic)
                log_prob, _ = network.head.log_prob_and_entropy(
                    logits, rollout.actions[t, env, agent]
                )
                found, wanted = float(again[env, t, agent]), float(log_prob.detach())
                assert found == pytest.approx(wanted, abs=1e-5)
                assert float(values[env, t, agent]) == pytest.approx(float(value), abs=1e-5)
                if rollout.done[t, env]:
                    final = rollout.final_observations[t, env, agent]
                    if shared is not None:
                        final = torch.cat([final, shared.final_states[t, env]])
                    follow, _ = textbook_gru(network.critic, final, critic)
                    if not rollout.terminated[t, env, agent]:
                        wanted = float(rollout.rewards[t, env, agent]) + 0.9 * float(follow)
                        found = float(batch.returns[env, t, agent])
                        assert found == pytest.approx(wanted, abs=1e-4)
                    actor, critic = torch.zeros(16), torch.zeros(16)


def test_minibatches_are_whole_environments() -> None:
    trainer = ppo.Trainer(TAG, small(central_critic=True), {"max_cycles": 4})
    trainer.iterate()
    trainer.collect()
    learner = trainer.learners["adversary"]
    with torch.no_grad():
        batch = learner.prepare()
        rows = torch.tensor([6, 1, 3])
        part = [x[rows] for x in learning.review(learner.network, batch)]
        for found, wanted in zip(learning.review(learner.network, batch[rows]), part, strict=True):
            torch.testing.assert_close(found, wanted)
    assert batch.observations.shape == (8, 10, 3, 16)


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


@pytest.mark.parametrize("separate", [False, True])
def test_acting_is_remembering(
    separate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two episodes one after the other, evaluated, and played by hand with the loaded policy."""
    monkeypatch.setattr(evaluation, "MAX_PARALLEL", 1)
    path = tmp_path / "run.pt"
    train(TAG, small(checkpoint=str(path), separate=separate))
    policy = Policy.load(path)
    score = evaluate(policy, episodes=2, deterministic=True, seed=3)
    env = gpu_zoo.make(TAG)
    observations, _ = env.reset(seed=3)
    first = policy.act(observations, deterministic=True)
    batch = {agent: o[None] for agent, o in observations.items()}
    vector = gpu_zoo.make_vec(TAG, 1)
    batch, _ = vector.reset(seed=3)
    total = dict.fromkeys(vector.agents, 0.0)
    for _ in range(2):
        policy.reset()
        over = False
        while not over:
            actions = policy.act(batch, deterministic=True)
            batch, rewards, _, truncated, _ = vector.step(actions)
            total = {agent: total[agent] + float(rewards[agent][0]) / 2 for agent in total}
            over = bool(truncated["agent_0"][0])
    assert {a: s.mean for a, s in score.agents.items()} == pytest.approx(total, abs=1e-5)
    policy.reset()
    assert policy.act(observations, deterministic=True) == first


def test_memory_is_by_agent_and_until_reset() -> None:
    policy = train(TAG, small()).policy
    network = policy.networks["adversary"]
    rows = np.random.default_rng(0).normal(size=(2, 6, 50, 16)).astype(np.float32)
    for _ in range(2):
        memory = {agent: torch.zeros(50, 16) for agent in ("adversary_0", "adversary_1")}
        for t in range(6):
            given = {"adversary_0": rows[0, t], "adversary_1": rows[1, t]}
            actions = policy.act(given, deterministic=True)
            for agent, observations in given.items():
                with torch.no_grad():
                    seen = torch.tensor(observations)
                    logits, memory[agent] = network.actor.step(seen, memory[agent])
                assert actions[agent].tolist() == logits.argmax(-1).tolist()
        policy.reset()
    policy.act({"adversary_0": rows[0, 0]})
    assert policy.act({"adversary_0": rows[0, 0, 0]})["adversary_0"] in range(5)  # another size


def test_episodes_to_look_at_begin_without_memories(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    train(TAG, small(checkpoint=str(path)))
    entry = gpu_zoo.spec(TAG)
    policy, _ = play.load_policy(entry, path, {}, 0, True)
    env = play.open_env(entry, "rgb_array", {}, False)
    first, second = ([*play.episode(env, policy, 5)] for _ in range(2))
    assert first == second


def recalled(recurrent: bool) -> float:
    config = small(
        recurrent=recurrent, num_envs=128, horizon=2 * STEPS, total_steps=100_000, epochs=4,
        minibatches=4, learning_rate=5e-3, hidden=(16,), entropy_coef=0.0, gamma=0.0,
    )  # fmt: skip
    policy = train(RECALL.id, config).policy
    return evaluate(policy, episodes=2000, deterministic=True).mean.mean


@pytest.mark.slow
def test_a_memory_solves_what_nothing_else_can() -> None:
    """Without one, the first step is right and the others are guesses."""
    assert recalled(recurrent=True) > STEPS - 0.1
    assert recalled(recurrent=False) == pytest.approx(1 + (STEPS - 1) / 2, abs=0.15)
