"""rsl_rl trains on a batch: what it is told of ends, what it bootstraps, whether it learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hazard
import pytest
import torch

pytest.importorskip("rsl_rl")

from rsl_rl.runners import OnPolicyRunner

import gpu_zoo
from gpu_zoo.errors import InvalidAction
from gpu_zoo.spec import Actions
from gpu_zoo.wrappers.lanes import chance
from gpu_zoo.wrappers.rsl_rl import LivingPPO, RslRlVecEnv

# The kernel reads actions as integers; what it makes of these is of no account here.
BOX = replace(
    hazard.HAZARD,
    id="test/hazard_box_v0",
    groups=(replace(hazard.HAZARD.groups[0], actions=(Actions(("push",), box=(0.0, 2.0)),)),),
)


def batch_of(env_id: str, num_envs: int, **kwargs: Any) -> gpu_zoo.VectorEnv:
    return gpu_zoo.make_vec(env_id, num_envs, array="torch", **kwargs)


def hazards(num_envs: int = 2, **params: Any) -> RslRlVecEnv:
    batch = gpu_zoo.VectorEnv(BOX, num_envs, array="torch", **params)
    return RslRlVecEnv(batch, clip_actions=True, seed=0)


def runner_of(env: RslRlVecEnv, steps: int, critic: str = "policy", **changed: Any) -> Any:
    network = {"class_name": "MLPModel", "hidden_dims": [64, 64], "activation": "tanh"}
    gaussian = {"class_name": "GaussianDistribution", "init_std": 0.5}
    config = {
        "num_steps_per_env": steps,
        "save_interval": 1000,
        "obs_groups": {"actor": ["policy"], "critic": [critic]},
        "actor": {**network, "distribution_cfg": gaussian},
        "critic": network,
        "algorithm": {
            "class_name": "PPO", "learning_rate": 3e-3, "schedule": "fixed", "gamma": 0.95,
            "entropy_coef": 0.0, "num_learning_epochs": 4, "num_mini_batches": 4, **changed,
        },
    }  # fmt: skip
    torch.manual_seed(0)
    return OnPolicyRunner(env, config)


# What it is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_every_lane_ends_once_and_is_told_when_it_was_cut_off(params: dict[str, Any]) -> None:
    env, ends = hazards(**params), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    for t in range(2 * length):
        now, episode = t % length + 1, t // length + 1
        assert env.episode_length_buf.tolist() == [now - 1] * 6
        observations, rewards, dones, extras = env.step(torch.ones(6, 1))
        assert observations.batch_size == (6,)
        for lane in range(6):
            i = lane % 3
            step, terminated, truncated = ends[i]
            assert dones[lane] == (now in (step, length))
            assert extras["time_outs"][lane] == (truncated and not terminated and now == step)
            assert rewards[lane] == (100 * i + now if now <= step else 0)
            assert env.acting[lane] == (now <= step)
            seen = observations["policy"][lane, :3].tolist()
            if now == length:
                assert seen == [i, 0, episode + 1]
            elif now <= step:
                assert seen == [i, now, episode]


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_values_are_bootstrapped_exactly_where_an_episode_was_cut(params: dict[str, Any]) -> None:
    env, ends = hazards(**params), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    runner = runner_of(env, length)
    runner.learn(1)
    stored = runner.alg.storage
    for lane in range(6):
        step, terminated, truncated = ends[lane % 3]
        assert stored.observations["policy"][:step, lane, 1].tolist() == [*range(step)]
        raw = [100.0 * (lane % 3) + t if t <= step else 0.0 for t in range(1, length + 1)]
        added = stored.rewards[:, lane, 0] - torch.tensor(raw)
        expected = torch.zeros(length)
        if truncated and not terminated:
            expected[step - 1] = 0.95 * stored.values[step - 1, lane, 0]
            assert abs(expected[step - 1]) > 1e-3
        torch.testing.assert_close(added, expected, atol=1e-4, rtol=1e-4)


def test_steps_of_those_who_left_are_not_learned_from() -> None:
    runner = runner_of(hazards(), 10, class_name=LivingPPO)
    storage, given, generate = runner.alg.storage, [], runner.alg.storage.mini_batch_generator
    storage.mini_batch_generator = lambda *sizes: (given.append(b) or b for b in generate(*sizes))
    runner.learn(1)
    assert len(given) == 4 * 4
    seen = torch.cat([batch.observations["policy"] for batch in given[:4]])
    assert len(seen) == 2 * (5 + 8 + 10) and (seen >= 0).all()
    assert len(seen[:, :2].unique(dim=0)) == 5 + 8 + 10
    advantages = torch.cat([batch.advantages for batch in given[:4]])
    assert advantages.mean().abs() < 1e-5 and advantages.std() == pytest.approx(1, abs=1e-4)
    # Whatever a step's row is made of belongs together.
    for batch in given[:4]:
        again = runner.alg.critic(storage.observations.flatten(0, 1))
        assert len(again) == 60 and len(batch.actions) == len(batch.observations["policy"])
        for k, observed in enumerate(batch.observations["policy"]):
            same = (storage.observations["policy"] == observed).all(-1)
            assert batch.values[k] in storage.values[same]
            assert batch.old_actions_log_prob[k] in storage.actions_log_prob[same]
            assert batch.returns[k] in storage.returns[same]
    with pytest.raises(ValueError, match="has a memory"):
        storage.recurrent_mini_batch_generator(1)


def test_clocks_can_be_set_apart() -> None:
    env = RslRlVecEnv(
        batch_of("mpe/simple_spread_v3", 2, continuous_actions=True), clip_actions=True, seed=0
    )
    assert env.max_episode_length == 25 and env.num_actions == 5 and env.num_envs == 6
    env.episode_length_buf = torch.tensor([20, 20, 20, 3, 3, 3])
    over = []
    for t in range(1, 26):
        *_, dones, extras = env.step(torch.zeros(6, 5))
        assert torch.equal(dones, extras["time_outs"])
        over += [(t, lane) for lane in dones.nonzero().flatten().tolist()]
    assert over == [(5, 0), (5, 1), (5, 2), (22, 3), (22, 4), (22, 5)]


def test_rewards_are_the_batchs_own_memory_and_observations_are_not() -> None:
    batch = batch_of("mpe/simple_spread_v3", 2, continuous_actions=True)
    env = RslRlVecEnv(batch, clip_actions=True, states=True, seed=4)
    first = env.get_observations()
    assert torch.equal(first["state"][4], batch.state()[1]) and first["state"].shape == (6, 54)
    kept = first.clone()
    _, rewards, _, _ = env.step(torch.ones(6, 5))
    assert rewards.data_ptr() == batch.group["agent"].rewards.data_ptr()
    assert (first == kept).all()  # rsl_rl stores it only now
    env.close()


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match=r"actions are Discrete\(5\), expected a Box"):
        RslRlVecEnv(batch_of("mpe/simple_v3", 2), clip_actions=True)
    with pytest.raises(
        TypeError, match=r"arrays are ndarray, expected make_vec\(..., array='torch'"
    ):
        RslRlVecEnv(gpu_zoo.make_vec("classic/pendulum_v1", 2), clip_actions=True)
    env = RslRlVecEnv(batch_of("classic/pendulum_v1", 2), clip_actions=False)
    with pytest.raises(InvalidAction, match="actions"):
        env.step(torch.tensor([[0.0], [2.5]]))
    with pytest.raises(InvalidAction, match=r"actions: shape \(2,\), expected \(2, 1\)"):
        env.step(torch.zeros(2))


def test_actions_outside_are_moved_to_the_bounds() -> None:
    clipped, exact = (
        RslRlVecEnv(batch_of("classic/pendulum_v1", 2), clip_actions=c, seed=1)
        for c in (True, False)
    )
    a, *_ = clipped.step(torch.tensor([[-7.0], [2.5]]))
    b, *_ = exact.step(torch.tensor([[-2.0], [2.0]]))
    assert torch.equal(a["policy"], b["policy"])


# With the real algorithm -------------------------------------------------------------------------


def mean_return(env: RslRlVecEnv) -> float:
    return float(next(iter(env.batch.group.values())).last_returns.mean())


def test_ppo_learns_to_cover_landmarks() -> None:
    batch = batch_of("mpe/simple_spread_v3", 128, continuous_actions=True)
    env = RslRlVecEnv(batch, clip_actions=True, states=True, seed=0)
    runner = runner_of(env, 25, "state")
    runner.learn(1)
    before = mean_return(env)
    runner.learn(20)
    assert mean_return(env) > before + 1.5  # about -24 at random


def test_one_group_trains_against_chance_from_random_clocks() -> None:
    batch = batch_of("mpe/simple_tag_v3", 8, continuous_actions=True)
    env = RslRlVecEnv(batch, "adversary", {"agent": chance(0)}, clip_actions=True, seed=0)
    runner = runner_of(env, 25, class_name=LivingPPO)
    before = [p.detach().clone() for p in runner.alg.actor.parameters()]
    runner.learn(1, init_at_random_ep_len=True)
    assert any((a != b).any() for a, b in zip(before, runner.alg.actor.parameters(), strict=True))


@pytest.mark.slow
def test_continuous_control_learns() -> None:
    env = RslRlVecEnv(batch_of("classic/pendulum_v1", 256), clip_actions=True, seed=0)
    runner = runner_of(env, 32, num_learning_epochs=8, learning_rate=1e-3)
    runner.learn(7)
    before = mean_return(env)
    runner.learn(200)
    assert mean_return(env) > before + 400  # about -1,200 at random
