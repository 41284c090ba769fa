"""Policies against others: who plays which group, counted by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gpu_zoo
from gpu_zoo.baselines import ddpg, evaluation
from gpu_zoo.baselines.ppo import Policy, PPOConfig, evaluate, train

TAG, PLANE = "mpe/simple_tag_v3", "warpdrive/tag_continuous_v0"
BOX = {"continuous_actions": True}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """Threads that wait for each other on a busy machine are slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(seed: int, params: dict[str, Any] | None = None, **changes: Any) -> Policy:
    config = PPOConfig(
        total_steps=640, num_envs=16, horizon=10, hidden=(16,), learning_rate=0.02, device="cpu",
        progress=False, seed=seed, **changes,
    )  # fmt: skip
    return train(TAG, config, params).policy


@pytest.fixture(scope="module")
def policies() -> dict[str, Policy]:
    config = ddpg.DDPGConfig(
        total_steps=64, num_envs=8, horizon=4, hidden=(8,), device="cpu", progress=False,
        capacity=500, batch_size=8,
    )  # fmt: skip
    return {
        "shared": trained(0, BOX),
        "other": trained(1, BOX),
        "separate": trained(2, BOX, separate=True),
        "recurrent": trained(3, BOX, recurrent=True),
        "ddpg": ddpg.train(TAG, config, BOX).policy,
    }


def by_hand(players: dict[str, Policy], episodes: int, seed: int) -> dict[str, float]:
    """Mean returns where each agent is played by the policy of its group, one game after another,
    each with its own environment and all policies reset before it."""
    totals: dict[str, float] = {}
    for episode in range(episodes):
        env = gpu_zoo.make_vec(TAG, 1, **BOX)
        observations, _ = env.reset(seed=seed + episode)
        for policy in players.values():
            policy.reset()
        over = False
        while not over:
            actions: dict[str, Any] = {}
            for group, policy in players.items():
                own = {agent: observations[agent] for agent in env.groups[group]}
                actions |= policy.act(own, deterministic=True)
            observations, rewards, _, truncated, _ = env.step(actions)
            for agent, reward in rewards.items():
                totals[agent] = totals.get(agent, 0.0) + float(reward[0]) / episodes
            over = bool(truncated["agent_0"][0])
    return totals


@pytest.mark.parametrize("other", ["other", "separate", "recurrent", "ddpg"])
def test_each_group_is_played_by_its_own_policy(policies: dict[str, Policy], other: str) -> None:
    main, opponent = policies["shared"], policies[other]
    settings: dict[str, Any] = {"episodes": 6, "deterministic": True, "seed": 40}
    for group in ("adversary", "agent"):
        found = evaluate(main, opponents={group: opponent}, **settings)
        players = {"adversary": main, "agent": main, group: opponent}
        wanted = by_hand(players, 6, 40)
        assert {a: s.mean for a, s in found.agents.items()} == pytest.approx(wanted, abs=1e-4)
        assert found != evaluate(main, **settings)
    both = evaluate(main, opponents=dict.fromkeys(("adversary", "agent"), opponent), **settings)
    assert both == evaluate(opponent, **settings)


def test_groups_that_act_at_random(policies: dict[str, Policy]) -> None:
    policy = policies["shared"]
    settings: dict[str, Any] = {"episodes": 50, "seed": 5}
    plain, random = evaluate(policy, **settings), evaluate(None, TAG, env_params=BOX, **settings)

    def against(**opponents: Any) -> evaluation.Evaluation:
        return evaluate(policy, opponents=opponents, **settings)

    assert against(agent="random") not in (plain, random)
    assert against(agent="random", adversary="random") == random
    assert against() == plain


def test_chance_with_one_opponent_is_that_policy_against_chance(
    policies: dict[str, Policy],
) -> None:
    policy = policies["shared"]
    settings: dict[str, Any] = {"episodes": 50, "seed": 5}
    found = evaluate(None, TAG, env_params=BOX, opponents={"agent": policy}, **settings)
    assert found == evaluate(policy, opponents={"adversary": "random"}, **settings)


def test_agents_that_leave_have_opponents() -> None:
    config = PPOConfig(
        total_steps=640, num_envs=16, horizon=20, hidden=(16,), device="cpu", progress=False
    )
    policy = train(PLANE, config, {"num_runners": 10, "num_taggers": 2}).policy
    settings: dict[str, Any] = {"episodes": 20, "seed": 5}
    found = evaluate(policy, opponents={"runner": policy}, **settings)
    assert found == evaluate(policy, **settings)
    assert found != evaluate(policy, opponents={"runner": "random"}, **settings)


@pytest.mark.parametrize(
    ("opponents", "says"),
    [
        ({"runner": "random"}, "opponents: 'runner' is no group, expected adversary or agent"),
        ("agent", "opponents='agent': expected a dict by group"),
        ({"agent": "rnd"}, "opponents['agent']='rnd': expected a policy or 'random'"),
        ({"agent": None}, "opponents['agent']=None: expected a policy or 'random'"),
    ],
    ids=str,
)
def test_a_mistake_is_named(policies: dict[str, Policy], opponents: Any, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        evaluate(policies["shared"], opponents=opponents, episodes=5)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_policy_made_for_others_is_refused(policies: dict[str, Policy]) -> None:
    discrete, more = trained(0), trained(0, {**BOX, "num_good": 2})
    config = PPOConfig(total_steps=160, num_envs=16, horizon=10, device="cpu", progress=False)
    others = train("mpe/simple_speaker_listener_v4", config).policy
    for opponent, says in (
        (discrete, "made for agent with 14 numbers and Discrete(5), expected agent with 14 numb"),
        (more, "agent with 18 numbers and Box(0, 1, (5,), float32), expected agent with 14 numb"),
        (others, "made for mpe/simple_speaker_listener_v4, expected a policy with a group agent"),
    ):
        with pytest.raises(ValueError) as caught:
            evaluate(policies["shared"], opponents={"agent": opponent}, episodes=5)
        assert str(caught.value).startswith("opponents['agent']: the policy was made for ")
        assert says in str(caught.value) and "\n" not in str(caught.value)


def test_what_opponents_are_is_left_alone(policies: dict[str, Policy]) -> None:
    """They keep their gradients and their memories."""
    opponent = policies["recurrent"]
    rows = np.ones((4, 16), np.float32)
    opponent.reset()
    first = opponent.act({"adversary_0": rows}, deterministic=True)["adversary_0"]
    evaluate(policies["shared"], opponents={"adversary": opponent}, episodes=3)
    opponent.reset()
    again = opponent.act({"adversary_0": rows}, deterministic=True)["adversary_0"]
    assert np.array_equal(first, again)
    assert all(p.requires_grad for p in opponent.networks["adversary"].parameters())
