"""What users ran into between multi-agent environments and trainers: one test a complaint.

See test_complaints.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hazard
import numpy as np
import pytest

import gpu_zoo
from gpu_zoo.wrappers.pettingzoo import ParallelFace

SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"

# Stable-Baselines3 ------------------------------------------------------------------------------


@pytest.fixture
def sb3() -> Any:
    pytest.importorskip("stable_baselines3")
    return pytest.importorskip("gpu_zoo.wrappers.sb3")


def steps(env: Any, count: int) -> list[Any]:
    env.seed(0)
    env.reset()
    return [env.step(np.zeros(env.num_envs, int)) for _ in range(count)]


def test_every_end_has_its_terminal_observation(sb3: Any) -> None:
    env = sb3.SB3VecEnv(gpu_zoo.VectorEnv(hazard.HAZARD, 2))
    for t, (_, _, dones, infos) in enumerate(steps(env, 10), 1):
        for lane, info in enumerate(infos):
            if dones[lane] and "left" not in info:
                assert info["terminal_observation"].tolist() == [lane % 3, t, 1, 0]
            else:
                assert "terminal_observation" not in info


def test_terminated_at_the_limit_is_not_bootstrapped(sb3: Any) -> None:
    env = sb3.SB3VecEnv(gpu_zoo.VectorEnv(hazard.HAZARD, 1, **hazard.MIXED))
    _, _, dones, infos = steps(env, 5)[-1]
    assert dones.all()
    # agent_0 terminated in the step in which the time ran out, the others did not.
    assert [info["TimeLimit.truncated"] for info in infos] == [False, True, True]


def test_dqn_trains_on_several_agents(sb3: Any) -> None:
    from stable_baselines3 import DQN

    env = sb3.SB3VecEnv(gpu_zoo.make_vec(SPREAD, 2))
    model = DQN("MlpPolicy", env, learning_starts=12, buffer_size=120, batch_size=12, device="cpu")
    model.learn(48)
    assert model.num_timesteps == 48
    actions, _ = model.predict(env.reset())
    assert actions.shape == (6,)


def test_masks_are_of_the_whole_vector_environment(sb3: Any) -> None:
    env = sb3.SB3VecEnv(gpu_zoo.VectorEnv(hazard.MASKED, 2))
    env.seed(0)
    env.reset()
    assert env.has_attr("action_masks")
    masks = np.stack(env.env_method("action_masks"))  # as MaskablePPO asks for them
    # Action 2 is allowed where time and the agent's number together are even.
    assert masks.tolist() == [[True, True, i % 2 == 0] for i in (0, 1, 2)] * 2


def test_infos_cost_nothing_while_nothing_ends(sb3: Any) -> None:
    env = sb3.SB3VecEnv(gpu_zoo.make_vec(SPREAD, 50, max_cycles=4))
    filled = [sum(map(bool, infos)) for *_, infos in steps(env, 8)]
    assert filled == [0, 0, 0, 150, 0, 0, 0, 150]


def test_options_are_not_ignored_in_silence(sb3: Any) -> None:
    env = sb3.SB3VecEnv(gpu_zoo.make_vec(SPREAD, 2))
    env.set_options({"start": "left"})
    with pytest.raises(ValueError, match="options"):
        env.reset()


def test_render_takes_a_mode(sb3: Any) -> None:
    pytest.importorskip("pygame")
    env = sb3.SB3VecEnv(gpu_zoo.make_vec(SPREAD, 2), render_mode="rgb_array")
    env.reset()
    picture = env.render(mode="rgb_array")
    assert picture.dtype == np.uint8 and picture.shape[-1] == 3
    np.testing.assert_array_equal(picture, env.render())


def test_wrappers_see_the_render_mode(sb3: Any, tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    pytest.importorskip("moviepy")
    from stable_baselines3.common.vec_env import VecMonitor, VecVideoRecorder

    env = VecMonitor(sb3.SB3VecEnv(gpu_zoo.make_vec(SPREAD, 2), render_mode="rgb_array"))
    assert env.render_mode == "rgb_array"
    assert VecVideoRecorder(env, str(tmp_path), lambda step: False).render_mode == "rgb_array"


# RLlib ------------------------------------------------------------------------------------------


@pytest.fixture
def rllib() -> Any:
    pytest.importorskip("ray.rllib")
    return pytest.importorskip("gpu_zoo.wrappers.rllib")


def play_rllib(env: Any) -> list[Any]:
    env.reset(seed=0)
    seen = []
    while env.agents:
        seen.append(env.step(dict.fromkeys(env.agents, 0)))
    return seen


def test_several_environments_in_one_runner(rllib: Any) -> None:
    batch = gpu_zoo.make_vec(SPREAD, 5, autoreset_mode="next_step")
    env = rllib.RLlibVectorEnv(batch)
    observations, _ = env.reset(seed=3)
    assert env.num_envs == len(env.envs) == len(observations) == 5
    assert len({row["agent_0"].tobytes() for row in observations}) == 5
    results = env.step([dict.fromkeys(batch.agents, 0)] * 5)
    assert [len(part) for part in results] == [5] * 5


def test_agents_may_differ_in_their_spaces(rllib: Any) -> None:
    env = rllib.RLlibEnv(gpu_zoo.make(TAG))
    shapes = {agent: env.get_observation_space(agent).shape for agent in env.possible_agents}
    assert shapes == {**{f"adversary_{i}": (16,) for i in range(3)}, "agent_0": (14,)}


def test_agents_end_one_by_one(rllib: Any) -> None:
    seen = play_rllib(rllib.RLlibEnv(ParallelFace(hazard.HAZARD)))
    over = [flags[2]["__all__"] or flags[3]["__all__"] for flags in seen]
    assert over == [False] * 9 + [True]
    assert [flags[2].get("agent_0") for flags in seen] == [False] * 4 + [True] + [None] * 5


def test_who_is_done_gets_nothing_any_more(rllib: Any) -> None:
    for t, (observations, rewards, *_) in enumerate(
        play_rllib(rllib.RLlibEnv(ParallelFace(hazard.HAZARD))), 1
    ):
        expected = ["agent_0"] * (t <= 5) + ["agent_1"] * (t <= 8) + ["agent_2"]
        assert list(observations) == list(rewards) == expected


def test_the_end_has_everybodys_last_observation(rllib: Any) -> None:
    observations, rewards, *_ = play_rllib(
        rllib.RLlibEnv(ParallelFace(hazard.HAZARD, **hazard.MIXED))
    )[-1]
    assert {agent: row.tolist() for agent, row in observations.items()} == {
        f"agent_{i}": [i, 5, 1, 0] for i in range(3)
    }
    assert rewards == {"agent_0": 5, "agent_1": 105, "agent_2": 205}


def test_agent_ids_are_the_environments(rllib: Any) -> None:
    env = rllib.RLlibEnv(gpu_zoo.make(TAG))
    observations, _ = env.reset(seed=0)
    names = ["adversary_0", "adversary_1", "adversary_2", "agent_0"]
    assert list(observations) == env.agents == env.possible_agents == names
    assert list(env.observation_spaces) == list(env.action_spaces) == names


# TorchRL ----------------------------------------------------------------------------------------


@pytest.fixture
def torchrl_env(own_registry: None) -> Any:
    pytest.importorskip("torchrl")
    adapter = pytest.importorskip("gpu_zoo.wrappers.torchrl")
    for spec in (hazard.HAZARD, hazard.MASKED):
        if spec.id not in gpu_zoo.list_ids():
            gpu_zoo.register(spec)
    return adapter.TorchRLEnv


def test_the_end_reaches_the_root(torchrl_env: Any) -> None:
    env = torchrl_env(SPREAD, 2, max_cycles=4, seed=0)
    rollout = env.rollout(20)
    assert rollout.shape == (2, 4)  # it ended, and was not played on
    assert rollout["next", "done"][:, :, 0].tolist() == [[False] * 3 + [True]] * 2


def test_one_agents_end_is_not_everybodys(torchrl_env: Any) -> None:
    rollout = torchrl_env(hazard.HAZARD.id, 2, seed=0).rollout(20)
    assert rollout.shape == (2, 10)
    ended = rollout["next", "agent", "done"][0, :, :, 0]
    assert ended.int().argmax(0).tolist() == [4, 7, 9]


def test_masks_go_on_when_agents_have_left(torchrl_env: Any) -> None:
    rollout = torchrl_env(hazard.MASKED.id, 2, seed=0).rollout(20)
    assert rollout.shape == (2, 10)  # random actions were drawn from what the masks allow
    alive = rollout["next", "agent", "mask"][0]
    assert alive.sum(0).tolist() == [4, 7, 9]
    masks = rollout["agent", "action_mask"][0]
    for t in range(10):
        for i in range(3):
            if rollout["agent", "mask"][0, t, i]:
                assert masks[t, i].tolist() == [True, True, (t + i) % 2 == 0]


def test_a_partial_reset_is_partial(torchrl_env: Any) -> None:
    import torch

    env = torchrl_env(hazard.HAZARD.id, 3, seed=0)
    state = env.reset()
    for _ in range(2):
        _, state = env.step_and_maybe_reset(env.rand_action(state))
    state["_reset"] = torch.tensor([[True], [False], [True]])
    state = env.reset(state)
    assert state["agent", "observation"][:, 2, 1].tolist() == [0, 2, 0]


def test_nothing_is_done_after_a_reset(torchrl_env: Any) -> None:
    env = torchrl_env(hazard.HAZARD.id, 2, seed=0)
    rollout = env.rollout(25, break_when_any_done=False)
    assert rollout.shape == (2, 25)
    assert not rollout["done"].any()  # of the states that are acted in
    assert rollout["agent", "observation"][0, :, 2, 1].tolist() == [
        *range(10),
        *range(10),
        *range(5),
    ]
