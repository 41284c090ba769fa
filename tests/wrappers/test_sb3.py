"""Stable-Baselines3 trains on a batch: what it is told of ends, and whether it learns."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import hazard
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize, VecVideoRecorder

import gpu_zoo
from gpu_zoo.errors import InvalidAction
from gpu_zoo.wrappers.lanes import chance
from gpu_zoo.wrappers.sb3 import LivingRolloutBuffer, SB3VecEnv


def hazards(num_envs: int = 2, spec: Any = hazard.HAZARD, **params: Any) -> SB3VecEnv:
    return SB3VecEnv(gpu_zoo.VectorEnv(spec, num_envs, **params))


def spread(num_envs: int = 4, **kwargs: Any) -> SB3VecEnv:
    return SB3VecEnv(gpu_zoo.make_vec("mpe/simple_spread_v3", num_envs), **kwargs)


def play(env: Any, steps: int, action: int = 1) -> list[tuple[Any, ...]]:
    env.seed(0)
    env.reset()
    return [env.step(np.full(env.num_envs, action)) for _ in range(steps)]


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_every_lane_ends_once_and_with_its_own_last_step(params: dict[str, Any]) -> None:
    env, ends = hazards(**params), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    for t, (observations, rewards, dones, infos) in enumerate(play(env, 2 * length)):
        now, episode = t % length + 1, t // length + 1
        for lane in range(6):
            i = lane % 3
            step, terminated, truncated = ends[i]
            if now == step:
                assert dones[lane]
                info = infos[lane]
                assert info["terminal_observation"].tolist() == [i, now, episode, 1]
                assert info["TimeLimit.truncated"] is (truncated and not terminated)
                total = step * 100 * i + step * (step + 1) / 2
                assert info["episode"]["r"] == total and info["episode"]["l"] == step
            else:
                assert dones[lane] == (now == length)  # who has left is done with its environment
                assert "terminal_observation" not in infos[lane]
                assert "episode" not in infos[lane]
            assert rewards[lane] == (100 * i + now if now <= step else 0)
            if now == length:
                assert observations[lane].tolist() == [i, 0, episode + 1, 0]
            if now not in (step, length):
                assert infos[lane] == {}


class Kept(BaseCallback):
    """What the rollout buffer held before training, and rewards as they came."""

    def _on_training_start(self) -> None:
        self.raw: list[Any] = []
        self.kept: Any = None

    def _on_step(self) -> bool:
        self.raw.append(self.locals["rewards"].copy())
        return True

    def _on_rollout_end(self) -> None:
        self.kept = copy.copy(self.model.rollout_buffer)


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_values_are_bootstrapped_exactly_where_an_episode_was_cut(params: dict[str, Any]) -> None:
    env, ends = hazards(**params), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    model = PPO("MlpPolicy", env, n_steps=length, batch_size=length * 6, n_epochs=1, seed=0)
    before = copy.deepcopy(model.policy)
    kept = Kept()
    model.learn(length * 6, callback=kept)
    for lane in range(6):
        step, terminated, truncated = ends[lane % 3]
        added = kept.kept.rewards[:, lane] - np.array(kept.raw)[:, lane]
        expected = np.zeros(length)
        if truncated and not terminated:
            # All actions of the last step are known: the buffer has them.
            action = kept.kept.actions[step - 1, lane, 0]
            last = before.obs_to_tensor(np.array([lane % 3, step, 1, action], np.float32))[0]
            expected[step - 1] = model.gamma * before.predict_values(last).item()
            assert abs(expected[step - 1]) > 1e-3
        np.testing.assert_allclose(added, expected, atol=1e-5)


def test_steps_of_those_who_left_are_not_learned_from(tmp_path: Path) -> None:
    env = hazards()
    kwargs = {"acting": env.acting}
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=10,
        batch_size=7,
        rollout_buffer_class=LivingRolloutBuffer,
        rollout_buffer_kwargs=kwargs,
        seed=0,
    )
    model.learn(60)
    batches = [batch.observations.numpy() for batch in model.rollout_buffer.get(7)]
    seen = np.concatenate(batches)
    assert len(seen) == 2 * (5 + 8 + 10) and max(map(len, batches)) == 7
    assert (seen >= 0).all()
    assert len(np.unique(seen[:, :2], axis=0)) == 5 + 8 + 10
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="give rollout_buffer_kwargs="):
        PPO.load(tmp_path / "model", env=env).learn(60)
    again = PPO.load(tmp_path / "model", env=env, rollout_buffer_kwargs=kwargs)
    again.learn(60)
    assert len(np.concatenate([b.observations for b in again.rollout_buffer.get(60)])) == 46


def test_what_comes_back_is_stable_baselines_own_to_change() -> None:
    env = spread()
    env.seed(0)
    first = env.reset()
    kept = first.copy()
    observations, rewards, _, _ = env.step(np.ones(12, int))
    np.testing.assert_array_equal(first, kept)
    assert rewards.dtype == np.float32 and not np.shares_memory(
        rewards, env.batch.group["agent"].rewards
    )
    assert not np.shares_memory(observations, env.batch.group["agent"].observations)


def test_seeds_are_the_batchs_and_differ_from_copy_to_copy() -> None:
    env, batch = spread(), gpu_zoo.make_vec("mpe/simple_spread_v3", 4)
    env.seed(7)
    observations = env.reset()
    batch.reset(seed=7)
    np.testing.assert_array_equal(observations.reshape(4, 3, -1), batch.group["agent"].observations)
    assert len(np.unique(observations, axis=0)) == 12
    assert (env.reset() != observations).any(1).all()


def test_attributes_methods_and_options() -> None:
    env = spread()
    assert env.get_attr("N") == [3] * 12 and env.get_attr("N", 2) == [3]
    assert env.get_attr("render_mode", [0, 1]) == [None, None]
    assert not env.has_attr("action_masks") and not env.has_attr("wheels")
    env.set_attr("local_ratio", 0.25)
    assert env.get_attr("local_ratio") == [0.25] * 12
    env.env_method("set_param", "local_ratio", 1.0, indices=[3, 4, 5])
    assert env.get_attr("local_ratio") == [0.25] * 3 + [1.0] * 3 + [0.25] * 6
    with pytest.raises(KeyError, match="no parameter 'wheels'"):
        env.set_attr("wheels", 4, indices=0)
    with pytest.raises(AttributeError, match="'fly': expected 'action_masks'"):
        env.env_method("fly")
    env.set_options({"where": 1})
    with pytest.raises(ValueError, match=r"options=\{'where': 1\}: expected none"):
        env.reset()
    with pytest.raises(ValueError, match="render_mode='human': expected None or 'rgb_array'"):
        spread(render_mode="human")
    with pytest.raises(ValueError, match="shown=5: expected 1 to 4"):
        spread(shown=5)


@pytest.mark.parametrize(
    ("value", "error"), [(30.9, TypeError), ("30", TypeError), (True, TypeError), (0, ValueError)]
)
def test_a_parameter_of_some_lanes_is_checked_as_one_of_all(value: Any, error: Any) -> None:
    env = hazards()
    for indices in (None, [0]):
        with pytest.raises(error, match=f"max_cycles={value!r}: expected int of at least 1"):
            env.set_attr("max_cycles", value, indices)
    assert env.get_attr("max_cycles") == [10] * 6
    env.set_attr("max_cycles", 30, [0])
    assert env.get_attr("max_cycles") == [30] * 3 + [10] * 3
    with pytest.raises(KeyError, match="expected one of local_ratio"):
        spread().set_attr("N", "four", indices=0)


def test_a_bad_action_moves_nothing() -> None:
    env = spread()
    env.seed(0)
    before = env.reset()
    with pytest.raises(InvalidAction, match=r"actions: shape \(11,\), expected \(12,\)"):
        env.step(np.zeros(11, int))
    np.testing.assert_array_equal(env.batch.group["agent"].observations.reshape(12, -1), before)


def test_pictures_and_closing() -> None:
    env = spread(render_mode="rgb_array", shown=3)
    env.reset()
    pictures = env.get_images()
    np.testing.assert_array_equal(pictures[2], env.batch.render(2))
    tiled = env.render()
    height, width = pictures[0].shape[:2]
    assert tiled.shape == (2 * height, 2 * width, 3)
    np.testing.assert_array_equal(tiled[:height, :width], pictures[0])
    env.close()
    env.close()


def test_video(tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    env = VecVideoRecorder(
        spread(1, render_mode="rgb_array"),
        str(tmp_path),
        record_video_trigger=lambda step: step == 0,
        video_length=6,
    )
    play(env, 8)
    env.close()
    (video,) = tmp_path.glob("*.mp4")
    import imageio.v3

    assert len(imageio.v3.imread(video)) == 6


def test_monitor_and_normalisation() -> None:
    """VecMonitor counts what ours counts by itself; VecNormalize keeps last observations."""
    raw, monitored = play(spread(), 50), play(VecMonitor(spread()), 50)
    for (*_, ours), (*_, theirs) in zip(raw, monitored, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert ("episode" in a) == ("episode" in b)
            if "episode" in a:
                assert a["episode"]["l"] == b["episode"]["l"] == 25
                assert a["episode"]["r"] == pytest.approx(b["episode"]["r"], rel=1e-5)
    normal = VecNormalize(spread(), norm_reward=False)
    *_, infos = play(normal, 25)[-1]
    *_, bare = raw[24]
    last = np.array([info["terminal_observation"] for info in infos])
    expected = normal.normalize_obs(np.array([info["terminal_observation"] for info in bare]))
    np.testing.assert_allclose(last, expected, atol=1e-6)


def test_evaluation_counts_episodes_that_were_played() -> None:
    model = PPO("MlpPolicy", hazards(), n_steps=10, batch_size=60, seed=0)
    returns, lengths = evaluate_policy(model, hazards(), 6, return_episode_rewards=True)
    assert sorted(lengths) == [5, 5, 8, 8, 10, 10]
    assert sorted(returns) == sorted([15, 15, 836, 836, 2055, 2055])


# With the real algorithms --------------------------------------------------------------------


def mean_return(model: Any, env: SB3VecEnv) -> float:
    """Of actions drawn as in training."""
    env.seed(1)
    returns, _ = evaluate_policy(model, env, 100, deterministic=False, return_episode_rewards=True)
    return float(np.mean(returns))


def test_ppo_learns_to_cover_landmarks() -> None:
    env = spread(64)
    model = PPO(
        "MlpPolicy", env, n_steps=25, batch_size=1200, learning_rate=2e-3, gamma=0.95, seed=0
    )
    before = mean_return(model, spread(50))
    model.learn(120_000)
    assert mean_return(model, spread(50)) > before + 3  # about -24 at random


def test_dqn_replays_last_observations_and_cuts() -> None:
    model = DQN("MlpPolicy", hazards(4, **hazard.MIXED), learning_starts=1000, seed=0)
    model.learn(12 * 20)
    memory = model.replay_buffer
    times, after = memory.observations[:20, :, 1], memory.next_observations[:20, :, 1]
    np.testing.assert_array_equal(after, times + 1)  # no observation of the next episode
    dones, cut = memory.dones[:20] > 0, memory.timeouts[:20] > 0
    np.testing.assert_array_equal(dones, times == 4)
    np.testing.assert_array_equal(cut, dones & (np.arange(12) % 3 > 0))  # agent_0 terminated


def cartpole(num_envs: int) -> SB3VecEnv:
    return SB3VecEnv(gpu_zoo.make_vec("classic/cartpole_v1", num_envs))


def pendulum(num_envs: int) -> SB3VecEnv:
    return SB3VecEnv(gpu_zoo.make_vec("classic/pendulum_v1", num_envs))


def test_a2c_learns_to_balance() -> None:
    model = A2C("MlpPolicy", cartpole(32), learning_rate=5e-3, n_steps=16, gae_lambda=0.95, seed=0)
    assert mean_return(model, cartpole(50)) < 40  # about 22 at random
    model.learn(60_000)
    assert mean_return(model, cartpole(50)) > 200


@pytest.mark.parametrize("algorithm", [SAC, TD3])
def test_continuous_control_trains(algorithm: Any) -> None:
    """Its critic's parameters move, on transitions whose rewards are the environment's."""
    model = algorithm("MlpPolicy", pendulum(8), learning_starts=80, batch_size=32, seed=0)
    before = [parameter.clone() for parameter in model.critic.parameters()]
    model.learn(160)
    assert any((a != b).any() for a, b in zip(before, model.critic.parameters(), strict=True))
    memory = model.replay_buffer
    angle = np.arctan2(memory.observations[:20, :, 1], memory.observations[:20, :, 0])
    torque = 2 * memory.actions[:20, :, 0]
    speed = memory.observations[:20, :, 2]
    np.testing.assert_allclose(
        memory.rewards[:20], -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2), atol=1e-4
    )


def prey(num_envs: int, seed: int) -> SB3VecEnv:
    batch = gpu_zoo.make_vec("mpe/simple_tag_v3", num_envs)
    return SB3VecEnv(batch, "agent", {"adversary": chance(seed)})


def test_one_group_trains_against_chance() -> None:
    model = PPO(
        "MlpPolicy", prey(64, 0), n_steps=25, batch_size=400, learning_rate=3e-3, gamma=0.95, seed=0
    )
    before = mean_return(model, prey(50, 1))
    model.learn(40_000)
    assert mean_return(model, prey(50, 1)) > before + 5  # about -19 at random


# sb3-contrib -------------------------------------------------------------------------------------


def test_maskable_ppo_never_takes_what_is_masked() -> None:
    contrib = pytest.importorskip("sb3_contrib")
    env = hazards(4, hazard.MASKED)
    assert env.has_attr("action_masks")
    env.reset()
    np.testing.assert_array_equal(env.env_method("action_masks")[:3, 2], [True, False, True])
    assert [m.tolist() for m in env.env_method("action_masks", indices=[1])] == [
        [True, True, False]
    ]
    model = contrib.MaskablePPO("MlpPolicy", env, n_steps=20, batch_size=240, seed=0)
    model.learn(240)  # an action that is masked would be refused
    actions = model.rollout_buffer.actions.reshape(-1)
    assert (actions == 2).any()


def test_recurrent_ppo_starts_anew_with_every_episode() -> None:
    contrib = pytest.importorskip("sb3_contrib")
    env = hazards(2, **hazard.MIXED)
    model = contrib.RecurrentPPO("MlpLstmPolicy", env, n_steps=10, batch_size=60, seed=0)
    kept = Kept()
    model.learn(60, callback=kept)
    starts = kept.kept.episode_starts
    np.testing.assert_array_equal(starts, np.isin(np.arange(10), (0, 5))[:, None] * np.ones((1, 6)))


# In full -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [SAC, TD3])
def test_continuous_control_learns(algorithm: Any) -> None:
    from stable_baselines3.common.noise import NormalActionNoise

    more: dict[str, Any] = {}
    if algorithm is TD3:
        more["action_noise"] = NormalActionNoise(np.zeros(1), 0.3 * np.ones(1))
    model = algorithm(
        "MlpPolicy", pendulum(4), learning_rate=2e-3, gradient_steps=4, seed=0, **more
    )
    model.learn(16_000)
    assert mean_return(model, pendulum(50)) > -300  # at random: -1,200


@pytest.mark.slow
def test_dqn_learns_to_balance() -> None:
    model = DQN(
        "MlpPolicy", cartpole(16), learning_rate=1e-3, train_freq=4, gradient_steps=16,
        learning_starts=1000, target_update_interval=500, exploration_fraction=0.2, seed=0,
    )  # fmt: skip
    model.learn(60_000)
    assert mean_return(model, cartpole(50)) > 150


@pytest.mark.slow
def test_maskable_and_recurrent_ppo_learn() -> None:
    contrib = pytest.importorskip("sb3_contrib")
    model = contrib.RecurrentPPO("MlpLstmPolicy", cartpole(16), n_steps=64, batch_size=256, seed=0)
    before = mean_return(model, cartpole(50))
    model.learn(60_000)
    assert mean_return(model, cartpole(50)) > 3 * before
