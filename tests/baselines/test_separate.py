"""A network for each agent: nobody learns from, or acts like, another of its group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpu_zoo
from gpu_zoo.baselines import ppo
from gpu_zoo.baselines.groups import split
from gpu_zoo.baselines.ppo import Policy, PPOConfig, evaluate, resume, train

TAG = "mpe/simple_tag_v3"
AGENTS = ["adversary_0", "adversary_1", "adversary_2", "agent_0"]


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 8, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (16,),
        "device": "cpu", "progress": False, "total_steps": 400, "separate": True,
        "learning_rate": 0.02,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_parts_are_views_of_the_group() -> None:
    env = gpu_zoo.make_vec(TAG, 5, array="torch")
    env.reset(seed=0)
    parts = split(env.group)
    assert list(parts) == AGENTS == list(env.agents)
    whole = env.group["adversary"]
    for i, agent in enumerate(AGENTS[:3]):
        assert parts[agent].agents == (agent,)
        parts[agent].actions.fill_(i + 1)
    assert whole.actions.tolist() == [[1, 2, 3]] * 5
    env.group["agent"].actions.fill_(0)
    env.step()
    for name in ("observations", "rewards", "active", "last_returns", "final_observations"):
        rows = [getattr(parts[agent], name) for agent in AGENTS[:3]]
        assert torch.equal(torch.cat(rows, 1), getattr(whole, name)), name


def test_each_agent_learns_from_its_own_samples() -> None:
    trainer = ppo.Trainer(TAG, small(), {})
    trainer.collect()
    assert list(trainer.learners) == AGENTS
    with torch.no_grad():
        batches = {name: learner.prepare() for name, learner in trainer.learners.items()}
    first = trainer.learners["adversary_0"]
    others = {n: x.network.state_dict() for n, x in trainer.learners.items() if x is not first}
    before = {n: {k: v.clone() for k, v in state.items()} for n, state in others.items()}
    old = first.network.actor[0].weight.clone()
    assert batches["adversary_0"].observations.shape == (80, 16)
    first.learn(batches["adversary_0"], trainer.config, trainer.generator)
    assert not torch.equal(old, first.network.actor[0].weight)
    for name, state in others.items():
        assert all(torch.equal(state[k], before[name][k]) for k in state)
    states = [torch.cat([p.flatten() for p in x.network.parameters()]) for x in
              trainer.learners.values()][:3]  # fmt: skip
    assert not torch.equal(states[1], states[2])  # not even at the start


def test_the_curve_is_by_agent_and_resume_is_exact(tmp_path: Path) -> None:
    path = str(tmp_path / "run.pt")
    whole = train(TAG, small())
    assert set(next(u.returns for u in whole.curve if u.returns)) == set(AGENTS)
    assert "adversary_1/entropy" in whole.curve[0].losses

    def stop(update: ppo.Update) -> None:
        if update.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(TAG, small(checkpoint=path, checkpoint_interval=1), on_update=stop)
    assert resume(path).curve == whole.curve


def test_each_acts_by_its_own_network(tmp_path: Path) -> None:
    """The policy loaded, on a batch and in an evaluation recounted by hand."""
    path = tmp_path / "run.pt"
    trained = train(TAG, small(checkpoint=str(path))).policy
    loaded = Policy.load(path)
    assert list(loaded.networks) == AGENTS
    batch = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    found = [loaded.act({a: batch}, deterministic=True)[a].tolist() for a in AGENTS[:3]]
    wanted = [trained.networks[a].best(torch.tensor(batch)).tolist() for a in AGENTS[:3]]
    assert found == wanted
    assert found[0] != found[1] != found[2]
    score = evaluate(loaded, episodes=1, deterministic=True, seed=3)
    env = gpu_zoo.make_vec(TAG, 1)
    observations, _ = env.reset(seed=3)
    total, over = dict.fromkeys(AGENTS, 0.0), False
    while not over:
        actions = loaded.act(observations, deterministic=True)
        observations, rewards, _, truncated, _ = env.step(actions)
        total = {agent: total[agent] + float(rewards[agent][0]) for agent in AGENTS}
        over = bool(truncated["agent_0"][0])
    assert {a: s.mean for a, s in score.agents.items()} == pytest.approx(total, abs=1e-5)


def test_a_group_acts_at_random() -> None:
    policy = train(TAG, small()).policy
    everybody: Any = dict.fromkeys(("adversary", "agent"), "random")
    random = evaluate(policy, episodes=20, opponents=everybody, seed=5)
    assert random == evaluate(None, TAG, 20, seed=5)
    half = evaluate(policy, episodes=20, opponents={"adversary": "random"}, seed=5)
    assert half not in (random, evaluate(policy, episodes=20, seed=5))
    with pytest.raises(ValueError, match="env_params: the policy was made for adversary_0, advers"):
        evaluate(policy, episodes=5, env_params={"num_good": 2})


def test_states_of_central_critics_are_in_the_agents_order() -> None:
    trainer = ppo.Trainer(TAG, small(central_critic=True), {})
    trainer.collect()
    assert trainer.states is not None
    assert torch.equal(trainer.states.states[-1], trainer.env.state())
    trainer.iterate()
