"""rl_games trains on a batch: what it is told of ends, what it bootstraps, whether it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hazard
import pytest
import torch

pytest.importorskip("rl_games")

from rl_games.torch_runner import Runner

import gpu_zoo
from gpu_zoo.errors import InvalidAction, ResetNeeded
from gpu_zoo.wrappers.lanes import chance
from gpu_zoo.wrappers.rl_games import (
    LivingContinuousAgent,
    LivingDiscreteAgent,
    RLGamesVecEnv,
    register,
)


def batch_of(env_id: str, num_envs: int, **kwargs: Any) -> gpu_zoo.VectorEnv:
    return gpu_zoo.make_vec(env_id, num_envs, array="torch", **kwargs)


def hazards(num_envs: int = 2, spec: Any = hazard.HAZARD, **params: Any) -> gpu_zoo.VectorEnv:
    return gpu_zoo.VectorEnv(spec, num_envs, array="torch", **params)


def perceptron(kind: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "actor_critic",
        "separate": False,
        "space": {kind: {}}
        if kind != "continuous"
        else {
            kind: {
                "mu_activation": "None",
                "sigma_activation": "None",
                "mu_init": {"name": "default"},
                "sigma_init": {"name": "const_initializer", "val": 0},
                "fixed_sigma": True,
            }
        },
        "mlp": {"units": [64, 64], "activation": "tanh", "initializer": {"name": "default"}},
        **more,
    }


def agent_of(
    folder: Path,
    env: RLGamesVecEnv | None,
    kind: str = "discrete",
    builder: Any = None,
    central: int = 0,
    **changed: Any,
) -> Any:
    """An agent of rl_games over ``env``, not trained yet."""
    if env is not None:
        register("mine", lambda num_actors, **config: env)
        changed = {"env_name": "mine", "num_actors": env.batch.num_envs, **changed}
    algo = "a2c_continuous" if kind == "continuous" else "a2c_discrete"
    model = {
        "discrete": "discrete_a2c",
        "multi_discrete": "multi_discrete_a2c",
        "continuous": "continuous_a2c_logstd",
    }[kind]
    config = {
        "name": "test", "device": "cpu", "device_name": "cpu", "train_dir": str(folder),
        "horizon_length": 10, "mini_epochs": 2, "gamma": 0.95, "tau": 0.95,
        "learning_rate": 3e-3, "lr_schedule": None, "e_clip": 0.2, "clip_value": True,
        "critic_coef": 1, "entropy_coef": 0.0, "grad_norm": 1.0, "truncate_grads": True,
        "normalize_advantage": True, "normalize_input": False, "normalize_value": False,
        "value_bootstrap": True, "ppo": True, "reward_shaper": {"scale_value": 1.0},
        "max_epochs": 1, "save_best_after": 10_000, "score_to_win": 1e9, "bounds_loss_coef": 0.0,
        "torch_compile": False, "print_stats": False, "seq_length": 1, **changed,
    }  # fmt: skip
    if central:
        config["central_value_config"] = {
            "minibatch_size": central, "mini_epochs": 2, "learning_rate": 3e-3,
            "clip_value": True, "normalize_input": False,
            "network": perceptron(kind, central_value=True),
        }  # fmt: skip
    runner = Runner()
    if builder is not None:
        runner.algo_factory.register_builder(algo, builder)
    runner.load(
        {
            "params": {
                "seed": 1,
                "torch_threads": 1,
                "algo": {"name": algo},
                "model": {"name": model},
                "network": perceptron(kind),
                "config": config,
            }
        }
    )
    return runner.algo_factory.create(algo, base_name="run", params=runner.params)


# What it is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_every_lane_ends_once_and_is_told_when_it_was_cut_off(params: dict[str, Any]) -> None:
    env, ends = RLGamesVecEnv(hazards(**params)), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    env.reset()
    for t in range(2 * length):
        now, episode = t % length + 1, t // length + 1
        observations, rewards, dones, infos = env.step(torch.ones(6, dtype=torch.int64))
        for lane in range(6):
            i = lane % 3
            step, terminated, truncated = ends[i]
            assert dones[lane] == (now in (step, length))
            assert infos["time_outs"][lane] == (truncated and not terminated and now == step)
            assert rewards[lane] == (100 * i + now if now <= step else 0)
            assert env.acting[lane] == (now <= step)
            if now == length:
                assert observations[lane].tolist() == [i, 0, episode + 1, 0]
            elif now <= step:
                assert observations[lane].tolist() == [i, now, episode, 1]


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
@pytest.mark.parametrize("copy", [True, False])
def test_values_are_bootstrapped_exactly_where_an_episode_was_cut(
    params: dict[str, Any], copy: bool, tmp_path: Path
) -> None:
    env, ends = RLGamesVecEnv(hazards(**params), copy=copy), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    agent = agent_of(tmp_path, env, horizon_length=length, minibatch_size=6 * length)
    agent.train()
    stored = agent.experience_buffer.tensor_dict
    for lane in range(6):
        step, terminated, truncated = ends[lane % 3]
        assert stored["obses"][:step, lane, 1].tolist() == [*range(step)]
        raw = [100.0 * (lane % 3) + t if t <= step else 0.0 for t in range(1, length + 1)]
        added = stored["rewards"][:, lane, 0] - torch.tensor(raw)
        expected = torch.zeros(length)
        if truncated and not terminated:
            expected[step - 1] = 0.95 * stored["values"][step - 1, lane, 0]
            assert abs(expected[step - 1]) > 1e-3
        torch.testing.assert_close(added, expected, atol=1e-4, rtol=1e-4)


def test_steps_of_those_who_left_are_not_learned_from(tmp_path: Path) -> None:
    agent = agent_of(
        tmp_path, RLGamesVecEnv(hazards()), builder=LivingDiscreteAgent, minibatch_size=60
    )
    seen: list[Any] = []
    prepare = agent.prepare_dataset
    agent.prepare_dataset = lambda steps: seen.append(steps) or prepare(steps)
    agent.train()
    (steps,) = seen
    assert len(steps["obses"]) == 60 and (steps["obses"] >= 0).all()
    assert len(steps["obses"][:, :2].unique(dim=0)) == 5 + 8 + 10
    # Whatever a step's row is made of belongs together.
    buffer = agent.experience_buffer.tensor_dict
    for row in range(60):
        i, t = (int(x) for x in steps["obses"][row, :2])
        same = [
            lane
            for lane in (i, i + 3)
            if torch.equal(buffer["values"][t, lane], steps["values"][row])
        ]
        assert any(buffer["actions"][t, lane] == steps["actions"][row] for lane in same)


def test_what_can_not_be_left_out_is_refused(tmp_path: Path) -> None:
    env = RLGamesVecEnv(hazards(), states=True)
    agent = agent_of(tmp_path, env, builder=LivingDiscreteAgent, minibatch_size=60, central=20)
    with pytest.raises(ValueError, match="central_value_config"):
        agent.train()


def test_without_a_copy_it_is_the_batchs_own_memory() -> None:
    batch = batch_of("mpe/simple_spread_v3", 4)
    group = batch.group["agent"]
    env = RLGamesVecEnv(batch, states=True, copy=False)
    observed = env.reset()
    assert (
        observed["obs"].data_ptr() == observed["states"].data_ptr() == group.observations.data_ptr()
    )
    assert observed["obs"].shape == (12, 18) and observed["states"].shape == (4, 54)
    observed, rewards, _, _ = env.step(torch.zeros(12, dtype=torch.int64))
    assert rewards.data_ptr() == group.rewards.data_ptr()
    fresh, *_ = RLGamesVecEnv(batch).step(torch.zeros(12, dtype=torch.int64))
    assert fresh.data_ptr() != group.observations.data_ptr()


def test_the_seed_is_that_of_the_first_reset_alone() -> None:
    batch = batch_of("mpe/simple_v3", 3)
    env = RLGamesVecEnv(batch_of("mpe/simple_v3", 3), seed=7)
    first = env.reset()
    assert torch.equal(first, batch.reset(seed=7)[0]["agent_0"])
    assert (env.reset() != first).any(1).all()


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(
        TypeError, match=r"arrays are ndarray, expected make_vec\(..., array='torch'"
    ):
        RLGamesVecEnv(gpu_zoo.make_vec("mpe/simple_v3", 2))
    env = RLGamesVecEnv(batch_of("mpe/simple_v3", 2))
    with pytest.raises(ResetNeeded):
        env.step(torch.zeros(2, dtype=torch.int64))
    env.reset()
    with pytest.raises(InvalidAction, match=r"actions: shape \(3,\), expected \(2,\)"):
        env.step(torch.zeros(3, dtype=torch.int64))
    assert not env.has_action_masks()
    with pytest.raises(AttributeError, match="are not masked"):
        env.get_action_masks()
    env.close()


# With the real algorithms ------------------------------------------------------------------------


def mean_return(agent: Any) -> float:
    return float(next(iter(agent.vec_env.batch.group.values())).last_returns.mean())


def test_masked_actions_are_never_taken(tmp_path: Path) -> None:
    env = RLGamesVecEnv(hazards(4, hazard.MASKED))
    assert env.has_action_masks()
    agent = agent_of(tmp_path, env, use_action_masks=True, minibatch_size=120, max_epochs=3)
    agent.train()  # an action that is masked would be refused
    taken = agent.experience_buffer.tensor_dict["actions"]
    masks = agent.experience_buffer.tensor_dict["action_masks"]
    assert (taken == 2).any() and masks.gather(2, taken.long().unsqueeze(-1)).all()


def test_a_policy_with_a_central_value_learns_to_cover_landmarks(tmp_path: Path) -> None:
    """Made by its name, as a configuration file does."""
    agent = agent_of(
        tmp_path, None, central=800, env_name="gpu_zoo", num_actors=128, horizon_length=25,
        env_config={"env_id": "mpe/simple_spread_v3", "states": True, "copy": False},
        minibatch_size=2400, mini_epochs=4, max_epochs=1, normalize_value=True,
    )  # fmt: skip
    agent.train()
    before = mean_return(agent)
    agent.max_epochs = 18
    agent.train()
    assert mean_return(agent) > before + 2  # about -24 at random


def test_continuous_and_several_components_and_other_groups(tmp_path: Path) -> None:
    pendulum = RLGamesVecEnv(batch_of("classic/pendulum_v1", 8))
    tag = RLGamesVecEnv(batch_of("mpe/simple_tag_v3", 4), "adversary", {"agent": chance(0)})
    first, *others = gpu_zoo.spec("warpdrive/tag_continuous_v0").groups
    chances = {group.name: chance(0) for group in others}
    runners = RLGamesVecEnv(batch_of("warpdrive/tag_continuous_v0", 2), first.name, chances)
    for env, kind, builder in (
        (pendulum, "continuous", LivingContinuousAgent),
        (tag, "discrete", None),
        (runners, "multi_discrete", LivingDiscreteAgent),
    ):
        rows = 10 * env.batch.num_envs * env.get_number_of_agents()
        agent = agent_of(tmp_path, env, kind, builder, minibatch_size=rows)
        before = [p.detach().clone() for p in agent.model.parameters()]
        agent.train()
        assert any((a != b).any() for a, b in zip(before, agent.model.parameters(), strict=True))


@pytest.mark.slow
def test_continuous_control_learns(tmp_path: Path) -> None:
    env = RLGamesVecEnv(batch_of("classic/pendulum_v1", 256))
    agent = agent_of(
        tmp_path, env, "continuous", horizon_length=32, minibatch_size=2048, mini_epochs=8,
        max_epochs=7, normalize_value=True, normalize_input=True, gamma=0.95,
        reward_shaper={"scale_value": 0.1},
    )  # fmt: skip
    agent.train()
    before = mean_return(agent)
    agent.max_epochs = 200
    agent.train()
    assert mean_return(agent) > before + 500  # about -1,200 at random
