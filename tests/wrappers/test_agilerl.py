"""AgileRL trains on a batch: what it is told of ends, and whether it learns."""

from __future__ import annotations

from typing import Any

import hazard
import numpy as np
import pytest
from elsewhere import as_if_on_a_gpu

pytest.importorskip("agilerl")

import torch
from agilerl.algorithms import IPPO, MADDPG, MATD3
from agilerl.components.replay_buffer import ReplayBuffer
from agilerl.training.train_multi_agent_off_policy import train_multi_agent_off_policy
from agilerl.training.train_multi_agent_on_policy import train_multi_agent_on_policy

import gpu_zoo
from gpu_zoo.errors import InvalidAction, ResetNeeded
from gpu_zoo.wrappers.agilerl import AgileRLVecEnv


def hazards(num_envs: int = 2, spec: Any = hazard.HAZARD, **params: Any) -> AgileRLVecEnv:
    return AgileRLVecEnv(gpu_zoo.VectorEnv(spec, num_envs, **params))


def algorithm(kind: Any, env: AgileRLVecEnv, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return kind(
        [env.single_observation_space(agent) for agent in env.possible_agents],
        [env.single_action_space(agent) for agent in env.possible_agents],
        agent_ids=env.possible_agents,
        net_config={"encoder_config": {"hidden_size": [64]}, "head_config": {"hidden_size": [64]}},
        **kwargs,
    )


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_every_agent_ends_once_and_is_nan_once_it_has_left(params: dict[str, Any]) -> None:
    env, ends = hazards(**params), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    kept, _ = env.reset(seed=0)
    first = {agent: array.copy() for agent, array in kept.items()}
    for t in range(2 * length):
        now, episode = t % length + 1, t // length + 1
        actions = {}
        for agent, (step, _, _) in zip(env.agents, ends, strict=True):
            actions[agent] = np.full(2, 1.0 if now <= step else np.nan)
        results = env.step(actions)
        observations, rewards, terminated, truncated, _ = results
        for i, agent in enumerate(env.agents):
            step, by_rules, by_limit = ends[i]
            here = now <= step
            told = [array[agent].tolist() for array in (rewards, terminated, truncated)]
            expected = [100 * i + now, by_rules and now == step, by_limit and now == step]
            if here:
                assert told == [[value] * 2 for value in expected]
            else:
                assert all(np.isnan(array).all() for array in told)
            if now == length:
                assert observations[agent].tolist() == [[i, 0, episode + 1, 0]] * 2
            elif here:
                assert observations[agent].tolist() == [[i, now, episode, 1]] * 2
            else:
                assert np.isnan(observations[agent]).all()
    for agent in env.agents:
        np.testing.assert_array_equal(kept[agent], first[agent])  # AgileRL keeps them


def test_it_steps_as_the_batch_does_for_all_groups() -> None:
    batch = gpu_zoo.make_vec("mpe/simple_tag_v3", 3)
    env = AgileRLVecEnv(gpu_zoo.make_vec("mpe/simple_tag_v3", 3))
    observations, _ = env.reset(seed=4)
    expected, _ = batch.reset(seed=4)
    rng = np.random.default_rng(0)
    for _ in range(26):
        for agent in env.agents:
            np.testing.assert_array_equal(observations[agent], expected[agent])
        actions = {agent: rng.integers(5, size=3) for agent in env.agents}
        observations, rewards, *_ = env.step(actions)
        expected, earned, *_ = batch.step(actions)
        for agent in env.agents:
            np.testing.assert_array_equal(rewards[agent], earned[agent])
    assert env.observation_space("agent_0").shape == (3, 14)
    env.close()
    assert env.batch.closed


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(TypeError, match="batch=3: int, expected what make_vec made"):
        AgileRLVecEnv(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="autoreset_mode=DISABLED, expected SAME_STEP"):
        AgileRLVecEnv(gpu_zoo.make_vec("mpe/simple_v3", 2, autoreset_mode="disabled"))
    env = AgileRLVecEnv(gpu_zoo.make_vec("mpe/simple_v3", 2))
    with pytest.raises(ResetNeeded):
        env.step({"agent_0": np.zeros(2, int)})
    env.reset()
    with pytest.raises(InvalidAction, match=r"actions\['agent_0'\]\[1\]: 5"):
        env.step({"agent_0": np.array([0, 5])})
    with pytest.raises(InvalidAction, match="dtype float64, expected integers"):
        env.step({"agent_0": np.array([0, 0.5])})
    with pytest.raises(InvalidAction, match="unknown agent 'agent_1', expected agent_0"):
        env.step({"agent_1": np.array([0, 0])})


def test_actions_are_sent_to_the_batchs_device() -> None:
    env = hazards()
    env.reset()
    as_if_on_a_gpu(env.batch)
    with pytest.raises(InvalidAction, match="on another device"):
        env.batch.step({agent: np.ones(2, int) for agent in env.agents})
    for actions in (np.ones(2, int), torch.ones(2, 1, dtype=torch.int64)):
        observations, *_ = env.step(dict.fromkeys(env.agents, actions))
        assert observations["agent_2"][:, 3].tolist() == [1, 1]


def test_tensors_of_a_gradient_and_short_floats_and_no_other_thing() -> None:
    env = AgileRLVecEnv(gpu_zoo.make_vec("mpe/simple_v3", 2, continuous_actions=True))
    env.reset()
    actions = torch.full((2, 5), 0.5)
    for given in (actions.requires_grad_(), actions.bfloat16()):
        env.step({"agent_0": given})
        assert env.batch.group["agent"].actions.tolist() == [[[0.5] * 5]] * 2
    for wrong, said in (
        (np.zeros((2, 5), complex), "dtype complex128, expected numbers"),
        (torch.zeros(2, 5, device="meta"), "Tensor of float32 on meta, expected an array of num"),
    ):
        with pytest.raises(InvalidAction, match=rf"actions\['agent_0'\]: {said}"):
            env.step({"agent_0": wrong})


# With the real algorithms ------------------------------------------------------------------------


def mean_return(env: AgileRLVecEnv) -> float:
    return float(next(iter(env.batch.group.values())).last_returns.mean())


def test_masked_actions_are_never_taken() -> None:
    env = hazards(4, hazard.MASKED)
    agent = algorithm(MADDPG, env)  # IPPO of AgileRL 2.58 fails on masks of several environments
    observations, infos = env.reset(seed=0)
    assert infos["agent_1"]["action_mask"].tolist() == [[1, 1, 0]] * 4
    for _ in range(12):  # an action that is masked would be refused
        actions, _ = agent.get_action(obs=observations, infos=infos)
        observations, *_, infos = env.step(actions)


def test_ippo_learns_to_reach_a_landmark() -> None:
    env = AgileRLVecEnv(gpu_zoo.make_vec("mpe/simple_v3", 64))
    agent = algorithm(IPPO, env, learn_step=1600, batch_size=400, lr=3e-3, gamma=0.9, ent_coef=0.0)
    kwargs: dict[str, Any] = {"evo_steps": 1600, "eval_steps": 1, "verbose": False}
    train_multi_agent_on_policy(env, "simple", "IPPO", [agent], max_steps=1600, **kwargs)
    before = mean_return(env)
    env.closed = env.batch.engine.closed = False  # the training closes what it trained on
    train_multi_agent_on_policy(env, "simple", "IPPO", [agent], max_steps=22_000, **kwargs)
    assert mean_return(env) > before + 8  # about -30 at random


@pytest.mark.parametrize("kind", [MADDPG, MATD3])
def test_off_policy_trains_on_agents_that_leave(kind: Any) -> None:
    env = hazards(4)
    agent = algorithm(kind, env, learn_step=4, batch_size=32, vect_noise_dim=4)
    before = [p.detach().clone() for p in agent.actors.parameters()]
    memory = ReplayBuffer(1000)
    train_multi_agent_off_policy(
        env, "hazard", kind.__name__, [agent], memory,
        max_steps=200, evo_steps=200, eval_steps=5, verbose=False,
    )  # fmt: skip
    assert any((a != b).any() for a, b in zip(before, agent.actors.parameters(), strict=True))
    assert all(torch.isfinite(p).all() for p in agent.actors.parameters())
