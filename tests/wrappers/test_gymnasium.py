"""A batch as a gymnasium.vector.VectorEnv: beside SyncVectorEnv, alone and in its wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import hazard
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

import gpu_zoo
from gpu_zoo import registry
from gpu_zoo.errors import ClosedEnvironmentError, InvalidAction, InvalidSeed, ResetNeeded
from gpu_zoo.registry import GYMNASIUM_NAMES
from gpu_zoo.wrappers.gymnasium import LaneView, VectorView
from gpu_zoo.wrappers.lanes import chance

CLASSIC = sorted(GYMNASIUM_NAMES)
MODES = list(AutoresetMode)
NUM_ENVS, LIMIT, STEPS = 5, 30, 80

over_modes = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


class OwnOptions(gymnasium.vector.VectorWrapper):  # type: ignore[type-arg] # not generic in 1.2
    """SyncVectorEnv takes the mask out of the caller's options, so that a wrapper outside does not
    find it. Here it has options of its own.
    """

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed, options=None if options is None else dict(options))


def theirs(env_id: str, mode: AutoresetMode) -> Any:
    made = gymnasium.make_vec(
        GYMNASIUM_NAMES[env_id],
        num_envs=NUM_ENVS,
        vectorization_mode="sync",
        max_episode_steps=LIMIT,
        vector_kwargs={"autoreset_mode": mode},
    )
    return OwnOptions(made)


def ours(env_id: str, mode: AutoresetMode, **settings: Any) -> Any:
    return gymnasium.make_vec(
        f"gpu_zoo/{GYMNASIUM_NAMES[env_id]}",
        num_envs=NUM_ENVS,
        numerics="reference",
        autoreset_mode=mode,
        max_episode_steps=LIMIT,
        **settings,
    )


def require_same(got: Any, want: Any, where: str) -> None:
    """The same dicts, types, dtypes, shapes and values; not times, which are nobody's to repeat."""
    assert type(got) is type(want), where
    if isinstance(want, (dict, tuple, list)):
        keys = want if isinstance(want, dict) else range(len(want))
        assert list(got) == list(want) if isinstance(want, dict) else len(got) == len(want), where
        for key in keys:
            if key != "t":
                require_same(got[key], want[key], f"{where}[{key!r}]")
    elif isinstance(want, np.ndarray) and want.dtype == object:
        require_same(list(got), list(want), where)
    elif hasattr(want, "dtype"):
        assert got.dtype == want.dtype, where
        np.testing.assert_array_equal(got, want, err_msg=where)
    else:
        assert got == want, where


def play_both(one: Any, two: Any, steps: int = STEPS) -> int:
    """Same seeds and actions; in DISABLED mode finished episodes are followed by new ones."""
    one.action_space.seed(0)
    require_same(one.reset(seed=4), two.reset(seed=4), "reset")
    ended = 0
    for step in range(steps):
        actions = one.action_space.sample()
        results = one.step(actions)
        require_same(results, two.step(actions), f"step {step}")
        done = np.array(results[2]) | np.array(results[3])
        ended += int(done.sum())
        if one.metadata["autoreset_mode"] == AutoresetMode.DISABLED and done.any():
            # A new seed every now and then; else the streams go on.
            seed = 100 + step if step % 2 else None
            resets = (env.reset(seed=seed, options={"reset_mask": done}) for env in (one, two))
            require_same(next(resets), next(resets), f"reset after step {step}")
    return ended


@over_modes
@pytest.mark.parametrize("env_id", CLASSIC)
def test_it_is_a_sync_vector_env(env_id: str, mode: AutoresetMode) -> None:
    one, two = ours(env_id, mode), theirs(env_id, mode)
    assert isinstance(one, gymnasium.vector.VectorEnv)
    assert one.metadata["autoreset_mode"] is mode
    for name in ("num_envs", "render_mode", "closed"):
        assert getattr(one, name) == getattr(two, name), name
    for name in ("single_observation_space", "single_action_space", "observation_space"):
        assert getattr(one, name) == getattr(two, name), name
    assert one.action_space == two.action_space
    assert one.unwrapped is one
    assert play_both(one, two) >= NUM_ENVS


WRAPPERS: dict[str, tuple[Callable[[Any], Any], tuple[AutoresetMode, ...]]] = {
    "RecordEpisodeStatistics": (wrappers.RecordEpisodeStatistics, tuple(MODES)),
    "NormalizeObservation": (wrappers.NormalizeObservation, (AutoresetMode.NEXT_STEP,)),
    "NormalizeReward": (wrappers.NormalizeReward, tuple(MODES)),
    "ClipReward": (lambda env: wrappers.ClipReward(env, -0.5, 0.5), tuple(MODES)),
    "RescaleObservation": (
        lambda env: wrappers.TransformObservation(env, lambda seen: seen * 2),
        (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED),
    ),
    "DictInfoToList": (
        lambda env: wrappers.DictInfoToList(wrappers.RecordEpisodeStatistics(env)),
        (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED),
    ),
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, id=f"{name}-{mode.name}")
        for name, (_, modes) in WRAPPERS.items()
        for mode in modes
    ],
)
@pytest.mark.parametrize("env_id", ["classic/cartpole_v1", "classic/pendulum_v1"])
def test_gymnasiums_wrappers_give_the_same(env_id: str, name: str, mode: AutoresetMode) -> None:
    wrap, _ = WRAPPERS[name]
    one, two = wrap(ours(env_id, mode)), wrap(theirs(env_id, mode))
    assert play_both(one, two) >= NUM_ENVS


# In SAME_STEP mode this wrapper fails on any environment: final_obs is an array of objects.
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_numpy_to_torch(mode: AutoresetMode) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat", reason="the wrapper needs gymnasium[array-api]")
    envs = [ours("classic/cartpole_v1", mode), theirs("classic/cartpole_v1", mode)]
    one, two = (wrappers.NumpyToTorch(env, "cpu") for env in envs)
    require_same(one.reset(seed=1)[0].numpy(), two.reset(seed=1)[0].numpy(), "reset")
    envs[0].action_space.seed(0)
    for _ in range(7 if mode == AutoresetMode.DISABLED else STEPS):
        actions = torch.from_numpy(envs[0].action_space.sample())
        for got, want in zip(one.step(actions)[:4], two.step(actions)[:4], strict=True):
            assert isinstance(got, torch.Tensor)
            require_same(got.numpy(), want.numpy(), "step")


def test_torch_arrays() -> None:
    """The batch may hold torch's arrays itself."""
    torch = pytest.importorskip("torch")
    env = ours("classic/cartpole_v1", AutoresetMode.SAME_STEP, array="torch", copy=False)
    twin = ours("classic/cartpole_v1", AutoresetMode.SAME_STEP)
    env.reset(seed=2)
    twin.reset(seed=2)
    for step in range(STEPS):
        actions = twin.action_space.sample()
        observations, rewards, *flags, infos = env.step(torch.from_numpy(actions))
        want = twin.step(actions)
        for got, expected in zip((observations, rewards, *flags), want[:4], strict=True):
            require_same(got.numpy(), expected, f"step {step}")
        if want[4]:
            ended = want[4]["_final_obs"]
            last = np.stack(list(want[4]["final_obs"][ended]))
            require_same(infos["final_obs"][infos["_final_obs"]].numpy(), last, f"step {step}")


# Memory and types --------------------------------------------------------------------------------


@pytest.mark.parametrize("numerics", ["fast", "reference"])
@pytest.mark.parametrize("copy", [False, True])
def test_copies(copy: bool, numerics: str) -> None:
    """With copy=False observations are the kernel's memory; what else is returned is never."""
    env = gpu_zoo.make_gym_vec(
        "classic/pendulum_v1", 4, copy=copy, numerics=numerics, autoreset_mode="same_step",
        max_cycles=2,
    )  # fmt: skip
    buffer = env.batch.group["agent"].observations
    first, _ = env.reset(seed=0)
    before = first.copy()
    results = [env.step(env.action_space.sample()) for _ in range(3)]
    assert np.shares_memory(first, buffer) is not copy
    assert np.array_equal(first, before) is copy
    arena = env.batch.engine.memory.arena
    for _, rewards, *flags, infos in results:
        assert rewards.dtype == np.float64
        for array in (rewards, *flags, infos.get("_final_obs", rewards)):
            assert not np.shares_memory(array, arena)
        for row in infos.get("final_obs", ()):
            assert not np.shares_memory(row, arena)


def test_actions() -> None:
    env = gpu_zoo.make_gym_vec("classic/pendulum_v1", 2)
    with pytest.raises(ResetNeeded):
        env.step(np.zeros((2, 1), np.float32))
    env.reset(seed=0)
    env.step(np.full((2, 1), 0.3))  # float64 is rounded, as a list of Python's floats is
    assert (env.batch.group["agent"].actions == np.float32(0.3)).all()
    env.step([[1], [-1]])
    for wrong in (np.zeros(2, np.float32), np.full((2, 1), 2.5), np.full((2, 1), np.nan), "no"):
        with pytest.raises(InvalidAction):
            env.step(wrong)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="simple_spread_v3 has 3 agents, expected one"):
        gpu_zoo.make_gym_vec("mpe/simple_spread_v3")
    with pytest.raises(TypeError, match="sutton_barto_reward"):
        gpu_zoo.make_gym_vec("cartpole_v1", sutton_barto=True)
    env = gpu_zoo.make_gym_vec("cartpole_v1", 3)
    with pytest.raises(InvalidSeed):
        env.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="low"):
        env.reset(seed=1, options={"low": -0.1})
    env.close()
    env.close()
    assert env.closed
    with pytest.raises(ClosedEnvironmentError):
        env.reset()


def test_one_agent_of_any_family() -> None:
    """A particle environment with one agent, which Gymnasium knows nothing of."""
    env = wrappers.RecordEpisodeStatistics(gpu_zoo.make_gym_vec("mpe/simple_v3", 3))
    env.reset(seed=0)
    for _ in range(60):
        *_, infos = env.step(env.action_space.sample())
    assert env.episode_count == 6
    assert infos == {}


# Registration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", CLASSIC)
def test_gymnasium_makes_it(env_id: str) -> None:
    name = f"gpu_zoo/{GYMNASIUM_NAMES[env_id]}"
    env = gymnasium.make_vec(name, num_envs=2)
    assert isinstance(env, VectorView)
    assert env.spec is not None
    assert env.spec.id == name
    assert env.batch.spec.id == env_id
    assert GYMNASIUM_NAMES[env_id] in gymnasium.registry  # Gymnasium's own is as it was


def test_a_name_that_is_taken_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = gymnasium.spec("gpu_zoo/CartPole-v1")
    registry._tell_gymnasium("classic/pendulum_v1", "CartPole-v1")
    assert gymnasium.spec("gpu_zoo/CartPole-v1") is entry


def test_a_parameter_goes_before_gymnasiums_limit() -> None:
    name = "gpu_zoo/CartPole-v1"
    assert gymnasium.make_vec(name, max_episode_steps=7).batch.params["max_cycles"] == 7
    both = gymnasium.make_vec(name, max_episode_steps=7, max_cycles=9)
    assert both.batch.params["max_cycles"] == 9


# Agents as environments --------------------------------------------------------------------------


def test_gymnasium_makes_lanes() -> None:
    env = gymnasium.make_vec("gpu_zoo/simple_spread-v3", num_envs=4, max_episode_steps=7, N=2)
    assert isinstance(env, LaneView)
    assert env.num_envs == 8 and env.observation_space.shape == (8, 12)
    assert env.batch.params["max_cycles"] == 7
    with pytest.raises(ValueError, match="group=None: mpe/simple_tag_v3 has several"):
        gymnasium.make_vec("gpu_zoo/simple_tag-v3", num_envs=4)
    prey = gymnasium.make_vec(
        "gpu_zoo/simple_tag-v3", num_envs=4, group="agent", others={"adversary": chance(0)}
    )
    assert prey.num_envs == 4


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_every_lane_ends_by_itself(params: dict[str, Any]) -> None:
    env, ends = LaneView(gpu_zoo.VectorEnv(hazard.HAZARD, 2, **params)), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    observations, _ = env.reset(seed=0)
    assert observations in env.observation_space
    for t in [*range(1, length + 1)] * 2:
        observations, rewards, terminations, truncations, infos = env.step(np.ones(6, int))
        for lane in range(6):
            i = lane % 3
            step, terminated, truncated = ends[i]
            waits = t > step
            assert infos["acted"][lane] == (not waits)
            assert terminations[lane] == (t == step and terminated) or (waits and t == length)
            assert truncations[lane] == (t == step and truncated)
            assert infos["_final_obs"][lane] == (t == step)
            if t == step:
                assert infos["final_obs"][lane, :2].tolist() == [i, t]
                assert infos["episode"]["l"][lane] == t
            assert rewards[lane] == (0 if waits else 100 * i + t)
        if t == length:
            assert (observations[:, 1] == 0).all()


def test_lanes_in_gymnasiums_own_wrappers() -> None:
    """Statistics kept by Gymnasium are those that the lanes report."""
    env = gpu_zoo.make_gym_lanes("mpe/simple_spread_v3", 2)
    counted = wrappers.RecordEpisodeStatistics(env, stats_key="counted")
    counted.reset(seed=0)
    # Before 1.4 the wrapper leaves out the first reward of an episode that began within a step.
    episodes = 2 if gymnasium.__version__ >= "1.4" else 1
    for _ in range(25 * episodes):
        *_, infos = counted.step(env.action_space.sample())
        if "counted" in infos:
            np.testing.assert_allclose(infos["counted"]["r"], infos["episode"]["r"], rtol=1e-5)
            np.testing.assert_array_equal(infos["counted"]["l"], infos["episode"]["l"])
    assert counted.episode_count == 6 * episodes


def test_lanes_masks_copies_and_closing() -> None:
    env = LaneView(gpu_zoo.VectorEnv(hazard.MASKED, 2, array="torch"))
    observations, infos = env.reset(seed=0)
    before = observations.clone()
    assert infos["action_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]] * 2
    env.step(infos["action_mask"].argmax(-1))
    assert (observations == before).all()
    env.close()
    env.close()
    with pytest.raises(ClosedEnvironmentError):
        env.reset()
