"""What users of other environments' bridges ran into, and that ours does not do it.

One test a complaint; docs/compatibility.md links each complaint and names its test. Those about a
trainer are in test_complaints_trainers.py. What is wrong in the library itself stays wrong there:
the tests are about our side of the bridge.
"""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import hazard
import numpy as np
import pettingzoo
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from pettingzoo.utils.env_logger import EnvLogger
from pettingzoo.utils.wrappers import MultiEpisodeParallelEnv

import gpu_zoo
from gpu_zoo.mpe import simple_spread_v3, simple_tag_v3
from gpu_zoo.wrappers.pettingzoo import ParallelFace

SPREAD = "mpe/simple_spread_v3"
PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """SuperSuit warns of itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def spreads(num_envs: int = 4, **kwargs: Any) -> gpu_zoo.VectorEnv:
    return gpu_zoo.make_vec(SPREAD, num_envs, max_cycles=3, numerics="reference", **kwargs)


def stay(env: Any) -> dict[str, Any]:
    return dict.fromkeys(env.agents, 0)


def rest(batch: gpu_zoo.VectorEnv, action: int = 0) -> dict[str, Any]:
    return {agent: np.full(batch.num_envs, action) for agent in batch.agents}


def test_the_page_names_these_tests() -> None:
    """Every complaint has a link and a test that is there, and every test a complaint."""
    text = PAGE.read_text().split("## What users of such bridges ran into")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ") and "](https" in line]
    named = [name for row in rows for name in re.findall(r"`(test_\w+)`", row)]
    sources = [Path(__file__), Path(__file__).with_name("test_complaints_trainers.py")]
    written = re.findall(r"^def (test_\w+)", "".join(map(Path.read_text, sources)), re.MULTILINE)
    assert len(rows) == len(named) >= 30
    assert sorted([*named, "test_the_page_names_these_tests"]) == sorted(written)


# Ends of episodes -------------------------------------------------------------------------------


def test_last_observations_are_kept() -> None:
    batch = spreads()
    singles = [simple_spread_v3.parallel_env(max_cycles=3) for _ in range(4)]
    batch.reset(seed=7)
    for i, env in enumerate(singles):
        env.reset(seed=7 + i)
    for _ in range(3):
        infos = batch.step(rest(batch))[4]
        last = [env.step(stay(env))[0] for env in singles]
    assert infos["_final_obs"].all()
    for agent in batch.agents:
        for i in range(4):
            np.testing.assert_array_equal(infos["final_obs"][agent][i], last[i][agent])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_no_mode_loses_the_last_observation(mode: AutoresetMode) -> None:
    batch = gpu_zoo.VectorEnv(hazard.HAZARD, 2, autoreset_mode=mode)
    batch.reset(seed=0)
    for _ in range(10):
        observations, *_, infos = batch.step(rest(batch))
    source = infos["final_obs"] if mode == AutoresetMode.SAME_STEP else observations
    assert source["agent_2"].tolist() == [[2, 10, 1, 0]] * 2


def test_the_mode_is_stated() -> None:
    for mode in AutoresetMode:
        batch: Any = gpu_zoo.make_vec("classic/cartpole_v1", 2, autoreset_mode=mode)
        view: Any = gpu_zoo.make_gym_vec("classic/cartpole_v1", 2, autoreset_mode=mode)
        assert batch.metadata["autoreset_mode"] == batch.autoreset_mode == mode
        assert view.metadata["autoreset_mode"] == mode


def test_time_limits_are_no_terminations() -> None:
    env = simple_spread_v3.parallel_env(max_cycles=2)
    env.reset(seed=0)
    env.step(stay(env))
    _, _, terminations, truncations, _ = env.step(stay(env))
    assert all(truncations.values()) and not any(terminations.values())
    batch = spreads()
    batch.reset(seed=0)
    for _ in range(3):
        _, _, ended, cut, _ = batch.step(rest(batch))
    assert all(flags.all() for flags in cut.values())
    assert not any(flags.any() for flags in ended.values())


def test_when_all_is_over_nobody_is_left() -> None:
    env = ParallelFace(hazard.HAZARD)
    env.reset(seed=0)
    left = []
    while env.agents:
        env.step(stay(env))
        left.append(len(env.agents))
    assert left == [3] * 4 + [2] * 3 + [1] * 2 + [0]
    batch = gpu_zoo.VectorEnv(hazard.HAZARD, 2)
    batch.reset(seed=0)
    over = [batch.step(rest(batch))[4]["_episode"].tolist() for _ in range(10)]
    assert over == [[False] * 2] * 9 + [[True] * 2]


def test_agents_may_leave_a_batch() -> None:
    batch = gpu_zoo.VectorEnv(hazard.HAZARD, 2)
    batch.reset(seed=0)
    here = []
    for _ in range(9):
        _, rewards, terminations, _, _ = batch.step(rest(batch))
        here.append(batch.group["agent"].active[0].tolist())
    assert here == [[True] * 3] * 4 + [[False, True, True]] * 3 + [[False, False, True]] * 2
    assert terminations["agent_0"].all() and not rewards["agent_0"].any()  # still, not by default


def test_black_death_goes_on_with_those_who_are_left() -> None:
    supersuit = pytest.importorskip("supersuit")
    env: Any = supersuit.black_death_v3(ParallelFace(hazard.HAZARD))
    env.reset(seed=0)
    for t in range(1, 10):
        observations, rewards, *_ = env.step(stay(env))
        assert list(observations) == env.possible_agents
        assert rewards["agent_0"] == (t if t <= 5 else 0)
        assert rewards["agent_2"] == 200 + t


def test_reset_of_some_leaves_the_others_alone() -> None:
    batch = gpu_zoo.VectorEnv(hazard.HAZARD, 4)
    batch.reset(seed=0)
    for _ in range(2):
        batch.step(rest(batch))
    observations, _ = batch.reset(options={"reset_mask": np.array([True, False, True, False])})
    assert observations["agent_2"][:, 1].tolist() == [0, 2, 0, 2]


def test_a_reset_forgets_the_return_so_far() -> None:
    batch = gpu_zoo.VectorEnv(hazard.HAZARD, 2)
    batch.reset(seed=0)
    for _ in range(4):
        batch.step(rest(batch))
    batch.reset()
    assert not batch.group["agent"].episode_returns.any()
    for _ in range(10):
        infos = batch.step(rest(batch))[4]
    assert infos["episode"]["l"].tolist() == [10, 10]
    assert infos["episode"]["r"]["agent_2"].tolist() == [200 * 10 + 55] * 2


def test_settings_outlive_an_automatic_reset() -> None:
    batch = gpu_zoo.make_vec(SPREAD, 3, max_cycles=2)
    batch.set_reset_pool({"landmark": np.full((1, 3, 2), 0.25, np.float32)})
    batch.set_param("local_ratio", 0.125)
    batch.reset(seed=0)
    for _ in range(5):
        batch.step(rest(batch))
        assert (batch.get_state()["landmark"] == 0.25).all()
    assert batch.params["local_ratio"] == 0.125


# Seeds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 0])
def test_copies_begin_differently(seed: int | None) -> None:
    batch = gpu_zoo.make_vec(SPREAD, 64)
    observations, _ = batch.reset(seed=seed)
    assert len(np.unique(observations["agent_0"], axis=0)) == 64


def test_neighbouring_seeds_need_not_overlap() -> None:
    batch = gpu_zoo.make_vec(SPREAD, 4)
    starts = {}
    for seed in (0, 1):
        children = np.random.SeedSequence(seed).generate_state(4)
        starts[seed] = batch.reset(seed=children.tolist())[0]["agent_0"].copy()
    assert len(np.unique(np.concatenate(list(starts.values())), axis=0)) == 8
    one = gpu_zoo.make_vec(SPREAD, 1)
    alone = one.reset(seed=int(np.random.SeedSequence(1).generate_state(4)[2]))[0]["agent_0"]
    np.testing.assert_array_equal(alone[0], starts[1][2])


def test_a_seed_repeats_the_whole_run() -> None:
    runs = []
    for _ in range(2):
        env = simple_tag_v3.parallel_env(continuous_actions=True)
        seen = [env.reset(seed=111)]
        for i, agent in enumerate(env.agents):
            env.action_space(agent).seed(i)
        while env.agents:
            seen.append(env.step({a: env.action_space(a).sample() for a in env.agents}))
        runs.append([*seen, env.reset()])
    assert data_equivalence(*runs)


def test_zero_is_a_seed() -> None:
    env = simple_spread_v3.parallel_env()
    first, second = (env.reset(seed=0)[0] for _ in range(2))
    assert data_equivalence(first, second)
    assert not data_equivalence(first, env.reset()[0])
    # PettingZoo's wrapper seeds the first episode with it and no other. As the stream goes on, the
    # run repeats itself all the same.
    runs = []
    for _ in range(2):
        several: Any = MultiEpisodeParallelEnv(simple_spread_v3.parallel_env(max_cycles=2), 3)
        seen = [several.reset(seed=0)]
        seen += [several.step(dict.fromkeys(several.possible_agents, 1)) for _ in range(6)]
        runs.append(seen)
    assert data_equivalence(*runs)


# Arrays -----------------------------------------------------------------------------------------


def test_observations_that_were_handed_out_stay() -> None:
    env = simple_spread_v3.parallel_env()
    views = [gpu_zoo.make_gym_vec("classic/cartpole_v1", 2), spreads(copy=True)]
    kept: list[tuple[Any, Any]] = []
    observations, _ = env.reset(seed=0)
    kept.append((observations, copy.deepcopy(observations)))
    for _ in range(2):
        observations = env.step(dict.fromkeys(env.agents, 1))[0]
        kept.append((observations, copy.deepcopy(observations)))
    for view in views:
        observations, _ = view.reset(seed=0)
        kept.append((observations, copy.deepcopy(observations)))
        one = isinstance(view, gymnasium.vector.VectorEnv)
        view.step(np.ones(2, int) if one else rest(view, 1))  # type: ignore[arg-type]
    for observations, before in kept:
        assert data_equivalence(observations, before)


def test_a_batch_without_copies_says_what_it_does() -> None:
    """The fast way is ours too, but it is asked for: the arrays are the kernel's memory."""
    batch = spreads()
    first, _ = batch.reset(seed=0)
    second = batch.step(rest(batch))[0]
    assert first["agent_0"] is second["agent_0"]
    assert np.shares_memory(first["agent_0"], batch.group["agent"].observations)


@pytest.mark.parametrize("env_id", [i for i in gpu_zoo.list_ids() if i.startswith("mpe/")])
def test_observations_are_of_their_space(env_id: str) -> None:
    env: Any = gpu_zoo.make(env_id)
    observations, _ = env.reset(seed=0)
    for agent, observation in observations.items():
        assert env.observation_space(agent).contains(observation)
        assert observation.dtype == env.observation_space(agent).dtype == np.float32
    batch: Any = gpu_zoo.make_vec(env_id, 3, numerics="reference")
    observations, _ = batch.reset(seed=0)
    assert all(batch.observation_space(a).contains(o) for a, o in observations.items())


def test_stacked_observations_are_of_their_space() -> None:
    supersuit = pytest.importorskip("supersuit")
    env: Any = supersuit.frame_stack_v1(supersuit.dtype_v0(simple_spread_v3.parallel_env(), "f4"))
    observations, _ = env.reset(seed=0)
    for _ in range(2):
        for agent, observation in observations.items():
            assert env.observation_space(agent).contains(observation)
            assert observation.shape == (18 * 4,)
        observations = env.step(stay(env))[0]


def test_float64_actions_are_inside_their_space() -> None:
    env = simple_spread_v3.env(continuous_actions=True)
    same = simple_spread_v3.env(continuous_actions=True)
    EnvLogger.flush()
    for one, dtype in ((env, np.float64), (same, np.float32)):
        one.reset(seed=0)
        for _ in one.agents[:]:
            one.step(np.array([0.0, 0.9876, 0.1, 0.3, 1.0], dtype))
    assert data_equivalence(env.unwrapped.state(), same.unwrapped.state())
    direct = simple_spread_v3.parallel_env(continuous_actions=True)
    direct.reset(seed=0)
    EnvLogger.flush()
    EnvLogger.suppress_output()
    direct.step(dict.fromkeys(direct.agents, np.array([0.0, 0.9876, 0.1, 0.3, 1.0])))
    EnvLogger.unsuppress_output()
    assert EnvLogger.mqueue == []  # nothing was clipped and nobody is told so
    EnvLogger.flush()


def test_pictures_that_were_handed_out_stay() -> None:
    pytest.importorskip("pygame")
    env = simple_spread_v3.parallel_env(render_mode="rgb_array")
    env.reset(seed=0)
    pictures, before = [], []
    for _ in range(3):
        pictures.append(env.render())
        before.append(pictures[-1].copy())
        env.step(dict.fromkeys(env.agents, 1))
    assert all(map(np.array_equal, pictures, before))
    assert not np.array_equal(pictures[0], pictures[2])


def test_infos_that_belong_to_no_agent_are_there() -> None:
    batch = spreads(benchmark_data=True)
    batch.reset(seed=0)
    for _ in range(3):
        infos = batch.step(rest(batch))[4]
    assert infos["episode"]["l"].tolist() == [3] * 4
    assert infos["_episode"].all()
    assert list(infos["benchmark_data"]) == list(batch.agents)


def test_methods_take_what_pettingzoos_take() -> None:
    for face in (simple_spread_v3.parallel_env(), simple_spread_v3.raw_env()):
        base = pettingzoo.ParallelEnv if isinstance(face, pettingzoo.ParallelEnv) else None
        for name in ("reset", "step", "render", "close"):
            theirs = inspect.signature(getattr(base or pettingzoo.AECEnv, name)).parameters
            ours = inspect.signature(getattr(type(face), name)).parameters
            assert list(ours) == list(theirs)
        face.reset(seed=1, options={})


# Copies and processes ---------------------------------------------------------------------------


def test_a_deep_copy_has_the_positions() -> None:
    env: Any = simple_spread_v3.env()
    env.reset(seed=1)
    for _ in range(6):
        env.step(1)
    twin = copy.deepcopy(env)
    here, there = (one.unwrapped.world for one in (env, twin))
    for mine, its in zip(here.entities, there.entities, strict=True):
        np.testing.assert_array_equal(mine.state.p_pos, its.state.p_pos)
        np.testing.assert_array_equal(mine.state.p_vel, its.state.p_vel)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_has_rewards_and_ends(how: Any) -> None:
    env: Any = simple_spread_v3.env(max_cycles=2)
    env.reset(seed=1)
    for _ in range(6):
        env.step(1)
    twin = how(env)
    assert all(env.truncations.values()) and any(env.rewards.values())
    for name in ("agents", "agent_selection", "rewards", "terminations", "truncations", "infos"):
        assert getattr(twin, name) == getattr(env, name)
    assert data_equivalence(twin.last(), env.last())


def test_a_copy_steps_at_once() -> None:
    env: Any = simple_spread_v3.env()
    env.reset(seed=1)
    twin = copy.deepcopy(env)
    for one in (env, twin):
        one.step(0)
        one.step(2)
        one.step(3)
    assert data_equivalence(twin.last(), env.last())


def test_vectorised_drop_ins_can_be_pickled() -> None:
    supersuit = pytest.importorskip("supersuit")
    batch = supersuit.concat_vec_envs_v1(
        supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env()), 2
    )
    batch.reset(seed=1)
    batch.step(np.ones(6, int))
    twin = pickle.loads(pickle.dumps(batch))
    results = [one.step(np.full(6, 2)) for one in (batch, twin)]
    assert data_equivalence(*results)


def test_another_process_can_make_one() -> None:
    """With the start method of Windows and macOS, what is made there comes back here."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        env = pool.apply(gpu_zoo.make, (SPREAD,))
    assert data_equivalence(env.reset(seed=1), simple_spread_v3.parallel_env().reset(seed=1))


def test_scripts_need_no_guard() -> None:
    """A batch is stepped by threads: no process imports the script a second time."""
    script = """
import multiprocessing, numpy as np, gpu_zoo
multiprocessing.set_start_method("spawn")
envs = gpu_zoo.make_vec("mpe/simple_spread_v3", 64)
envs.reset(seed=0)
envs.step({agent: np.zeros(64, int) for agent in envs.agents})
print(len(multiprocessing.active_children()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
