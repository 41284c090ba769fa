"""Other people's wrappers around the drop-ins and around mpe2's: equal spaces and equal numbers.

SuperSuit's wrappers and vector environments, and the wrappers and conversions that come with
PettingZoo. Each is put on both, unchanged, and both play the same actions from the same seed.
"""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo.utils import wrappers

conversions: Any = importlib.import_module("pettingzoo.utils.conversions")
supersuit: Any = pytest.importorskip("supersuit")
pytest.importorskip("mpe2")

# Adversaries and the agent differ in what they observe, which padding has to deal with.
TAG, SPREAD, SPEAKER = "simple_tag_v3", "simple_spread_v3", "simple_speaker_listener_v4"
STEPS = 6
Change = Callable[[Any], Any]
ss = supersuit


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """SuperSuit warns of itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def both(name: str, face: str, **params: Any) -> list[Any]:
    """Our environment and the original, in reference numerics."""
    modules = [importlib.import_module(f"{package}.{name}") for package in ("gpu_zoo.mpe", "mpe2")]
    return [getattr(module, face)(max_cycles=STEPS, **params) for module in modules]


def draw(env: Any, agent: str, rng: np.random.Generator) -> Any:
    space = env.action_space(agent)
    if hasattr(space, "n"):
        return int(rng.integers(space.n))
    low, high = np.maximum(space.low, -2.0), np.minimum(space.high, 2.0)
    return rng.uniform(low, high).astype(space.dtype)


def play_parallel(env: Any, seed: int | None = 3) -> list[Any]:
    """All that an episode and the beginning of the next one return.

    Copied at once: SuperSuit's frame_stack writes the next observation into the last one.
    """
    rng = np.random.default_rng(0)
    seen = [copy.deepcopy(env.reset(seed=seed))]
    while env.agents and len(seen) < 50:
        results = env.step({agent: draw(env, agent, rng) for agent in env.agents})
        seen.append(copy.deepcopy(results))
    return [*seen, env.agents[:], copy.deepcopy(env.reset())]


def play_aec(env: Any, seed: int = 3) -> list[Any]:
    """All that ``last`` returns in an episode, with whose turn it is."""
    rng = np.random.default_rng(0)
    env.reset(seed=seed)
    seen = []
    for agent in env.agent_iter(50 * len(env.possible_agents)):
        observation, reward, termination, truncation, info = copy.deepcopy(env.last())
        seen.append((agent, observation, float(reward), termination, truncation, info))
        env.step(None if termination or truncation else draw(env, agent, rng))
    return seen


def as_list(seen: Any) -> Any:
    """Tuples as lists, and floats rounded to the last bits that rewards may differ in."""
    if isinstance(seen, dict):
        return {key: as_list(value) for key, value in seen.items()}
    if isinstance(seen, (list, tuple)):
        return [as_list(value) for value in seen]
    return float(np.float32(seen)) if isinstance(seen, float) else seen


def assert_equal(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs) > STEPS // 2  # or nothing was played
    assert data_equivalence(as_list(ours), as_list(theirs))


def assert_same_spaces(ours: Any, theirs: Any) -> None:
    assert ours.possible_agents == theirs.possible_agents
    for agent in theirs.possible_agents:
        assert ours.observation_space(agent) == theirs.observation_space(agent)
        assert ours.action_space(agent) == theirs.action_space(agent)


# SuperSuit's wrappers ---------------------------------------------------------------------------

# Name to how it is put on, the environment, and that environment's parameters.
WRAPPERS: dict[str, tuple[Change, str, dict[str, Any]]] = {
    "frame_stack_v1": (lambda e: ss.frame_stack_v1(e, 3), SPREAD, {}),
    "frame_stack_v2": (lambda e: ss.frame_stack_v2(e, 3), SPREAD, {}),
    "frame_skip_v0": (lambda e: ss.frame_skip_v0(e, 2), SPREAD, {}),
    "sticky_actions_v0": (lambda e: ss.sticky_actions_v0(e, 0.5), SPREAD, {}),
    "delay_observations_v0": (lambda e: ss.delay_observations_v0(e, 2), SPREAD, {}),
    "max_observation_v0": (lambda e: ss.max_observation_v0(e, 2), SPREAD, {}),
    "dtype_v0": (lambda e: ss.dtype_v0(e, np.float64), SPREAD, {}),
    "flatten_v0": (ss.flatten_v0, SPREAD, {}),
    "reshape_v0": (lambda e: ss.reshape_v0(e, (3, 6)), SPREAD, {}),
    "clip_reward_v0": (lambda e: ss.clip_reward_v0(e, -1, 1), SPREAD, {}),
    "agent_indicator_v0": (lambda e: ss.agent_indicator_v0(e), SPREAD, {}),
    "black_death_v3": (ss.black_death_v3, SPREAD, {}),
    "pad_observations_v0": (ss.pad_observations_v0, TAG, {}),
    "pad_action_space_v0": (ss.pad_action_space_v0, SPEAKER, {}),
    "agent_indicator_v0 by type": (
        lambda e: ss.agent_indicator_v0(ss.pad_observations_v0(e), type_only=True),
        TAG,
        {},
    ),
    "clip_actions_v0": (ss.clip_actions_v0, SPREAD, {"continuous_actions": True}),
    "scale_actions_v0": (
        lambda e: ss.scale_actions_v0(e, 0.5),
        SPREAD,
        {"continuous_actions": True},
    ),
    "nan_zeros_v0": (ss.nan_zeros_v0, SPREAD, {"continuous_actions": True}),
    "observation_lambda_v0": (
        lambda e: ss.observation_lambda_v0(e, lambda o, space: o[:4] * 2),
        SPREAD,
        {},
    ),
    "action_lambda_v1": (
        lambda e: ss.action_lambda_v1(e, lambda a, space: (a + 1) % 5, lambda space: space),
        SPREAD,
        {},
    ),
    "reward_lambda_v0": (lambda e: ss.reward_lambda_v0(e, lambda r: r / 10), SPREAD, {}),
    # Bounds are needed: as users do, the observations are brought between some first.
    "normalize_obs_v0": (
        lambda e: ss.normalize_obs_v0(
            ss.observation_lambda_v0(
                e,
                lambda o, space: np.clip(o, -2, 2).astype(np.float32),
                lambda space: type(space)(-2, 2, space.shape, np.float32),
            )
        ),
        SPREAD,
        {},
    ),
    "several": (
        lambda e: ss.frame_stack_v1(
            ss.agent_indicator_v0(ss.pad_action_space_v0(ss.pad_observations_v0(e))), 2
        ),
        SPEAKER,
        {},
    ),
}


@pytest.mark.parametrize("face", ["parallel_env", "env"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_supersuits(name: str, face: str) -> None:
    change, env_name, params = WRAPPERS[name]
    ours, theirs = (change(env) for env in both(env_name, face, **params))
    assert_same_spaces(ours, theirs)
    play = play_parallel if face == "parallel_env" else play_aec
    assert_equal(play(ours), play(theirs))


def test_frames_skipped_at_random() -> None:
    """SuperSuit draws how many from the environment's stream; of parallel environments alone."""
    ours, theirs = (ss.frame_skip_v0(env, (1, 3)) for env in both(SPREAD, "parallel_env"))
    for seed in (3, None):
        assert_equal(play_parallel(ours, seed), play_parallel(theirs, seed))


def test_wrappers_do_something() -> None:
    """The comparison above would hold for wrappers that did nothing on either."""
    ours = both(SPREAD, "parallel_env")[0]
    stacked = ss.frame_stack_v1(both(SPREAD, "parallel_env")[0], 3)
    first, rest = play_parallel(ours), play_parallel(stacked)
    for bare, three in zip(first[:-2], rest[:-2], strict=True):
        for agent, observation in bare[0].items():
            assert three[0][agent].shape == (54,)
            np.testing.assert_array_equal(three[0][agent][-18:], observation)


def test_who_draws_from_the_environments_stream_moves_it() -> None:
    """As SuperSuit's frame_skip does: the next episode begins behind what was drawn."""
    seen: list[list[Any]] = []
    for env in both(SPREAD, "parallel_env"):
        kept: list[Any] = [env.reset(seed=3)[0]]
        kept.append(env.unwrapped.np_random.integers(10, size=3))  # leaves half a word over
        env.step(dict.fromkeys(env.agents, 1))
        kept.append(env.unwrapped.np_random.integers(10, size=2))
        twin = copy.deepcopy(env) if hasattr(env, "game") else env
        kept += [env.reset()[0], env.unwrapped.np_random.random()]
        kept += [env.reset()[0]]
        if twin is not env:  # a copy has what was drawn behind it too
            assert data_equivalence(twin.reset()[0], kept[3])
        seen.append(kept)
    assert data_equivalence(*seen)


# SuperSuit's vector environments ----------------------------------------------------------------


@pytest.mark.parametrize("base_class", ["gymnasium", "stable_baselines3"])
def test_supersuits_vector_environments(base_class: str) -> None:
    """In test_pettingzoo.py for all environments; here also as Stable-Baselines3 sees it."""
    if base_class == "stable_baselines3":
        pytest.importorskip("stable_baselines3")
    batches = [
        ss.concat_vec_envs_v1(ss.pettingzoo_env_to_vec_env_v1(env), 2, base_class=base_class)
        for env in both(SPREAD, "parallel_env")
    ]
    for batch in batches:  # its seed() raises in Stable-Baselines3's form
        (batch.venv if base_class == "stable_baselines3" else batch).reset(seed=5)
    starts = [batch.reset() for batch in batches]
    assert data_equivalence(*starts)
    rng = np.random.default_rng(0)
    for step in range(1, 2 * STEPS + 1):
        actions = rng.integers(5, size=6)
        ours, theirs = (batch.step(actions) for batch in batches)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
        assert data_equivalence([ours[0], *ours[2:]], [theirs[0], *theirs[2:]])
        over = ours[2] if base_class == "stable_baselines3" else ours[3]
        assert np.all(over) == np.any(over) == (step % STEPS == 0)


# PettingZoo's own wrappers and conversions ------------------------------------------------------

AEC: dict[str, Change] = {
    "BaseWrapper": wrappers.BaseWrapper,
    "OrderEnforcingWrapper": wrappers.OrderEnforcingWrapper,
    "AssertOutOfBoundsWrapper": wrappers.AssertOutOfBoundsWrapper,
    "MultiEpisodeEnv": lambda env: wrappers.MultiEpisodeEnv(env, num_episodes=2),
    "parallel and back": lambda env: conversions.parallel_to_aec(conversions.aec_to_parallel(env)),
}


@pytest.mark.parametrize("name", AEC)
def test_pettingzoos_for_agents_in_turn(name: str) -> None:
    ours, theirs = (AEC[name](env) for env in both(TAG, "raw_env"))
    assert_same_spaces(ours, theirs)
    assert_equal(play_aec(ours), play_aec(theirs))


@pytest.mark.filterwarnings("ignore")
def test_pettingzoos_clip_out_of_bounds() -> None:
    ours, theirs = (
        wrappers.ClipOutOfBoundsWrapper(env)
        for env in both(SPREAD, "raw_env", continuous_actions=True)
    )
    for env in (ours, theirs):
        env.reset(seed=1)
        for _ in env.agents[:]:
            env.step(np.array([0, 3, -3, 0.5, 0], np.float32))
    for agent in theirs.agents:
        np.testing.assert_array_equal(ours.observe(agent), theirs.observe(agent))


PARALLEL: dict[str, Change] = {
    "BaseParallelWrapper": wrappers.BaseParallelWrapper,
    "MultiEpisodeParallelEnv": lambda env: wrappers.MultiEpisodeParallelEnv(env, num_episodes=2),
}


@pytest.mark.parametrize("name", PARALLEL)
def test_pettingzoos_for_all_at_once(name: str) -> None:
    ours, theirs = (PARALLEL[name](env) for env in both(TAG, "parallel_env"))
    assert_same_spaces(ours, theirs)
    assert_equal(play_parallel(ours), play_parallel(theirs))


@pytest.mark.parametrize("name", [SPREAD, TAG, SPEAKER])
def test_conversions(name: str) -> None:
    parallel = [conversions.aec_to_parallel(env) for env in both(name, "env")]
    assert_equal(*map(play_parallel, parallel))
    in_turn = [conversions.parallel_to_aec(env) for env in both(name, "parallel_env")]
    ours, theirs = map(play_aec, in_turn)
    # mpe2's is converted back into what it is. Ours is parallel, and of those PettingZoo lets the
    # agents that are over take their last, empty steps in the order of their names.
    agents = in_turn[0].possible_agents
    assert [turn[0] for turn in ours[-len(agents) :]] == sorted(agents)
    assert_equal(sorted_last(ours, len(agents)), sorted_last(theirs, len(agents)))


def sorted_last(seen: list[Any], count: int) -> list[Any]:
    """The last turns by agent's name."""
    return seen[:-count] + sorted(seen[-count:], key=lambda turn: str(turn[0]))
