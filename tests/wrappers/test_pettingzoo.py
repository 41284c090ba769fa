"""The drop-ins in PettingZoo's own tests, conversions, registry, SuperSuit; copies and pickles."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import pettingzoo
import pytest
import supersuit
from gymnasium.utils.env_checker import data_equivalence
from oracle.episodes import compile_variants, original
from pettingzoo.env_registry import registration
from pettingzoo.utils.env_logger import EnvLogger
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

import gpu_zoo
from gpu_zoo import registry
from gpu_zoo.spec import EnvSpec

own: Any = importlib.import_module("pettingzoo.test")
conversions: Any = importlib.import_module("pettingzoo.utils.conversions")

MPE = [env_id for env_id in gpu_zoo.list_ids() if env_id.startswith("mpe/")]
# Parameters that ours have and the originals have not, all documented.
ADDITIONS = {"curriculum_stage", "numerics"}
FACES = ["parallel_env", "env", "raw_env"]


def module(env_id: str) -> Any:
    return importlib.import_module(f"gpu_zoo.{env_id.replace('/', '.')}")


def params_of(env_id: str, continuous: bool) -> dict[str, Any]:
    if not continuous:
        return {}
    if "continuous_actions" not in gpu_zoo.spec(env_id).params:
        pytest.skip("one action space")
    return {"continuous_actions": True}


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    """No Python warning and nothing for PettingZoo's own logger."""
    EnvLogger.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    assert EnvLogger.mqueue == []


PETTINGZOO_TESTS: dict[str, Callable[[Any], None]] = {
    "parallel_api_test": lambda m: own.parallel_api_test(m.parallel_env(), num_cycles=300),
    "api_test": lambda m: own.api_test(m.env(), num_cycles=300),
    "api_test, raw": lambda m: own.api_test(m.raw_env(), num_cycles=100),
    "seed_test": lambda m: own.seed_test(m.env, num_cycles=100),
    "parallel_seed_test": lambda m: own.parallel_seed_test(m.parallel_env, num_cycles=100),
    "state_test": lambda m: own.state_test(m.env(), m.parallel_env(), num_cycles=50),
    "max_cycles_test": own.max_cycles_test,
    "save_obs_test, AEC": lambda m: own.test_save_obs(m.env()),
    "save_obs_test, parallel": lambda m: own.test_save_obs(m.parallel_env()),
    "api_test, converted": lambda m: own.api_test(
        conversions.parallel_to_aec(m.parallel_env()), 100
    ),
    "parallel_api_test, converted": lambda m: own.parallel_api_test(
        conversions.aec_to_parallel(m.env()), 100
    ),
    "seed_test, converted": lambda m: own.seed_test(
        lambda: conversions.parallel_to_aec(m.parallel_env()), 50
    ),
}


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("name", PETTINGZOO_TESTS)
@pytest.mark.parametrize("env_id", MPE)
def test_pettingzoos_own(
    env_id: str, name: str, continuous: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    params = params_of(env_id, continuous)
    warned = warnings_of(PETTINGZOO_TESTS[name], module(env_id), params)
    printed = capfd.readouterr()
    if name.startswith("save_obs_test"):  # these observations are no pictures, which it prints
        assert printed.out.startswith("did not save the observations")
    else:
        lines = set(printed.out.splitlines())
        assert lines <= {"Starting API test", "Passed API test", "Passed Parallel API test"}
    assert printed.err == ""
    if warned:  # no more than the original is warned of, such as observations that are all 0
        theirs = original(gpu_zoo.spec(env_id))
        assert warned <= warnings_of(PETTINGZOO_TESTS[name], theirs, params)


def warnings_of(test: Callable[[Any], None], lib: Any, params: dict[str, Any]) -> set[str]:
    faces = {face: partial(getattr(lib, face), **params) for face in FACES}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        test(SimpleNamespace(**faces))
    return {str(warning.message) for warning in caught}


# Like the original --------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", MPE)
def test_signature_is_the_originals(env_id: str) -> None:
    ours = inspect.signature(module(env_id).raw_env).parameters
    theirs = inspect.signature(original(gpu_zoo.spec(env_id)).raw_env).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    assert set(list(ours)[len(theirs) :]) <= ADDITIONS
    for name, parameter in theirs.items():
        assert ours[name].default == parameter.default, name
        assert type(ours[name].default) is type(parameter.default), name
        assert ours[name].kind == parameter.kind, name


@pytest.mark.parametrize("env_id", MPE)
def test_positional_arguments(env_id: str) -> None:
    spec = gpu_zoo.spec(env_id)
    theirs = inspect.signature(original(spec).raw_env).parameters
    values = [p.default for p in theirs.values()]
    at = list(theirs).index("max_cycles")
    values[at] = 7
    ours = module(env_id).raw_env(*values)
    assert ours.params["max_cycles"] == 7
    assert [ours.params[name] for name in theirs] == values
    assert ours.possible_agents == original(spec).raw_env(*values).possible_agents


VARIANT_ROWS = [
    pytest.param(env_id, params, id=f"{env_id.split('/')[1]}-{number}")
    for env_id in MPE
    for number, params in enumerate(compile_variants(gpu_zoo.spec(env_id), 6))
]
WITH_CURRICULUM = [i for i in gpu_zoo.list_ids() if "curriculum" in gpu_zoo.spec(i).params]


@pytest.mark.parametrize(("env_id", "params"), VARIANT_ROWS)
def test_spaces_are_the_originals(env_id: str, params: dict[str, Any]) -> None:
    spec = gpu_zoo.spec(env_id)
    for face in ("parallel_env", "env"):
        ours = getattr(module(env_id), face)(**params)
        theirs = getattr(original(spec), face)(**params)
        assert ours.possible_agents == theirs.possible_agents
        assert ours.max_num_agents == theirs.max_num_agents
        same_space(ours.state_space, theirs.state_space)
        for agent in theirs.possible_agents:
            same_space(ours.observation_space(agent), theirs.observation_space(agent))
            same_space(ours.action_space(agent), theirs.action_space(agent))
            assert ours.observation_space(agent) is ours.observation_space(agent)
            assert ours.action_space(agent) is ours.action_space(agent)
        spaces = [ours.action_space(agent) for agent in ours.possible_agents]
        assert len({id(space) for space in spaces}) == len(spaces)  # each has its own seed


def same_space(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    assert ours == theirs
    assert repr(ours) == repr(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    for bound in ("low", "high"):
        if hasattr(theirs, bound):
            assert getattr(ours, bound).dtype == getattr(theirs, bound).dtype
            np.testing.assert_array_equal(getattr(ours, bound), getattr(theirs, bound))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("env_id", MPE)
def test_metadata(env_id: str, face: str) -> None:
    others = [getattr(module(other), face)() for other in MPE]
    env = getattr(module(env_id), face)()
    assert env.metadata["name"] == str(env.unwrapped) == env_id.split("/")[1]
    assert env.metadata["render_modes"] == ["human", "rgb_array"]
    assert env.metadata["is_parallelizable"] is True
    assert all(other.metadata is not env.metadata for other in others)
    if env_id in MPE:
        theirs = original(gpu_zoo.spec(env_id)).raw_env()
        assert env.metadata == {**theirs.metadata, "name": env.metadata["name"]}
    assert env.unwrapped.render_mode is None


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("env_id", MPE)
def test_values_are_pythons_own(env_id: str, face: str) -> None:
    env = getattr(module(env_id), face)(max_cycles=3)
    for kind, values in play(env, seed=0, steps=3):
        for value in values.values():
            if kind == "observations":
                assert type(value) is np.ndarray
                assert value.dtype == np.float32
            elif kind == "rewards":
                assert type(value) is float
            elif kind in ("terminations", "truncations"):
                assert type(value) is bool
            else:
                assert type(value) is dict


@pytest.mark.parametrize("env_id", MPE)
def test_observations_are_the_users_own(env_id: str) -> None:
    """PettingZoo users keep observations: no later step may change them."""
    env = module(env_id).parallel_env()
    first, _ = env.reset(seed=0)
    kept = copy.deepcopy(first)
    env.step(dict.fromkeys(env.agents, 1))
    assert data_equivalence(first, kept)
    state = env.state()
    before = state.copy()
    env.step(dict.fromkeys(env.agents, 1))
    np.testing.assert_array_equal(state, before)
    for observation in first.values():
        observation[...] = np.nan
    assert np.isfinite(env.state()).all()


# Episodes -----------------------------------------------------------------------------------


def actions_of(env: Any, rng: random.Random) -> dict[str, Any]:
    """Random actions that depend on ``rng`` alone."""
    actions: dict[str, Any] = {}
    for agent in env.possible_agents:
        space = env.action_space(agent)
        if hasattr(space, "n"):
            actions[agent] = rng.randrange(int(space.n))
        else:
            actions[agent] = np.array([rng.random() for _ in range(space.shape[0])], np.float32)
    return actions


def play(env: Any, seed: int | None, steps: int) -> list[tuple[str, dict[str, Any]]]:
    """Play from a reset and return all that was seen, in order."""
    reset = env.reset(seed=seed)
    seen = [] if reset is None else [("observations", reset[0]), ("infos", reset[1])]
    return seen + go_on(env, seed or 0, steps)


def go_on(env: Any, seed: int, steps: int) -> list[tuple[str, dict[str, Any]]]:
    """Play on, at most ``steps`` steps of the world, and return all that was seen, in order."""
    rng = random.Random(seed)
    seen: list[tuple[str, dict[str, Any]]] = []
    names = ("observations", "rewards", "terminations", "truncations", "infos")
    if isinstance(env, pettingzoo.ParallelEnv):
        for _ in range(steps):
            if env.agents:
                seen += zip(names, env.step(actions_of(env, rng)), strict=True)
        return seen
    for _ in range(steps * len(env.possible_agents)):
        if not env.agents:
            break
        agent = env.agent_selection
        actions = actions_of(env, rng)
        over = env.terminations[agent] or env.truncations[agent]
        env.step(None if over else actions[agent])
        if env.agents:
            last = env.last()
            seen += [(name, {agent: value}) for name, value in zip(names, last, strict=True)]
            # An agent that has not acted since the world moved has an integer 0 there, as in mpe2.
            seen[-4] = ("rewards", {agent: float(last[1])})
    return seen


@pytest.mark.parametrize("face", ["parallel_env", "env"])
@pytest.mark.parametrize("env_id", MPE)
def test_whole_episodes_follow_from_the_seed(env_id: str, face: str) -> None:
    """PettingZoo 1.27's parallel_seed_test looks at one step; this at three episodes."""
    make = getattr(module(env_id), face)
    one, two = make(), make()
    two.reset(seed=99)  # a used instance is as good as a new one, in the midst of an episode
    go_on(two, 99, 7)
    runs = [[play(env, seed, 30) for seed in (5, None, None, 5)] for env in (one, two)]
    assert data_equivalence(runs[0], runs[1])
    assert data_equivalence(runs[0][0], runs[0][3])
    assert not data_equivalence(runs[0][0], runs[0][1])
    assert not data_equivalence(runs[0][0], play(one, 6, 30))
    # Ten, since simple_crypto has only four beginnings.
    fresh = [play(make(), None, 5) for _ in range(10)]
    assert not all(data_equivalence(fresh[0], other) for other in fresh)


@pytest.mark.parametrize("env_id", MPE)
def test_slot_of_a_batch_is_the_single_environment(env_id: str) -> None:
    """Environment i of a batch with seed s plays what a drop-in with seed s + i plays."""
    batch = gpu_zoo.make_vec(env_id, 5, numerics="reference", max_cycles=6)
    singles = [module(env_id).parallel_env(max_cycles=6) for _ in range(5)]
    observations, _ = batch.reset(seed=40)
    there = [env.reset(seed=40 + i)[0] for i, env in enumerate(singles)]
    rng = random.Random(0)
    for step in range(20):
        for i in range(5):
            for agent in batch.agents:
                np.testing.assert_array_equal(observations[agent][i], there[i][agent])
        actions = [actions_of(env, rng) for env in singles]
        stacked = {a: np.stack([one[a] for one in actions]) for a in batch.agents}
        observations, rewards, terminations, truncations, infos = batch.step(stacked)
        for i, env in enumerate(singles):
            there[i], reward, termination, truncation, _ = env.step(actions[i])
            for agent in batch.agents:
                assert rewards[agent][i] == reward[agent], step
                assert terminations[agent][i] == termination[agent], step
                assert truncations[agent][i] == truncation[agent], step
            if not env.agents:
                for agent in batch.agents:
                    final = infos["final_obs"][agent][i]
                    np.testing.assert_array_equal(final, there[i][agent])
                there[i], _ = env.reset()


# Copies -------------------------------------------------------------------------------------

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
    "cloudpickle": lambda env: cloudpickle.loads(cloudpickle.dumps(env)),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("env_id", MPE)
def test_copy_goes_on_alike(env_id: str, face: str, continuous: bool, how: str) -> None:
    params = {**params_of(env_id, continuous), "max_cycles": 12}
    env = getattr(module(env_id), face)(**params)
    env.reset(seed=3)
    go_on(env, 0, 5)
    twin = COPIES[how](env)
    assert type(twin) is type(env)
    assert data_equivalence(twin.state(), env.state())
    parts = [[go_on(e, 1, 3), go_on(e, 2, 30), play(e, None, 20)] for e in (env, twin)]
    assert data_equivalence(parts[0], parts[1])
    assert env.agents == twin.agents


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("env_id", MPE)
def test_copy_between_two_agents_turns(env_id: str, how: str) -> None:
    """The first agent has acted and the world has not moved yet: its action must not get lost."""
    env = module(env_id).raw_env()
    env.reset(seed=3)
    env.step(1)
    twin = COPIES[how](env)
    for one in (env, twin):
        for _ in env.agents[1:] if one is env else twin.agents[1:]:
            one.step(2)
    assert data_equivalence(twin.state(), env.state())
    assert data_equivalence(go_on(env, 1, 3), go_on(twin, 1, 3))


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("env_id", MPE)
def test_copy_of_one_that_was_never_reset(env_id: str, how: str) -> None:
    twin = COPIES[how](module(env_id).parallel_env(max_cycles=4))
    assert data_equivalence(play(twin, 1, 6), play(module(env_id).parallel_env(max_cycles=4), 1, 6))


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("env_id", WITH_CURRICULUM)
def test_copy_keeps_the_curriculum_stage(env_id: str, how: str, on: bool) -> None:
    env = module(env_id).parallel_env(curriculum=on)
    env.reset(seed=0)
    env.set_curriculum_stage(1)
    twin = COPIES[how](env)
    assert twin.curriculum_stage == 1
    assert twin.params["curriculum_stage"] == env.params["curriculum_stage"] == 1
    runs = [play(e, None, 25) for e in (env, twin)]
    assert data_equivalence(runs[0], runs[1])


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("env_id", MPE)
def test_copies_are_apart(env_id: str, how: str) -> None:
    env = module(env_id).parallel_env()
    env.reset(seed=3)
    twin = COPIES[how](env)
    before = twin.state()
    go_on(env, 0, 5)
    env.metadata["render_fps"] = 1
    np.testing.assert_array_equal(twin.state(), before)
    assert twin.metadata["render_fps"] != 1
    assert twin.agents == twin.possible_agents


# Conversions, registry, SuperSuit -----------------------------------------------------------


@pytest.mark.parametrize("env_id", MPE)
def test_conversions_play_the_same(env_id: str) -> None:
    native = module(env_id).parallel_env(max_cycles=9)
    converted = conversions.aec_to_parallel(module(env_id).env(max_cycles=9))
    assert data_equivalence(
        [(k, dict(v)) for k, v in play(native, 4, 20)],
        [(k, dict(v)) for k, v in play(converted, 4, 20)],
    )
    there_and_back = conversions.aec_to_parallel(conversions.parallel_to_aec(native))
    assert there_and_back is native
    aec = conversions.parallel_to_aec(module(env_id).parallel_env(max_cycles=9))
    assert isinstance(aec, OrderEnforcingWrapper)
    assert len(play(aec, 4, 20)) == len(play(module(env_id).env(max_cycles=9), 4, 20))


@pytest.mark.parametrize("env_id", MPE)
@pytest.mark.parametrize("own_name", [True, False], ids=["own name", "gpu_zoo/"])
def test_pettingzoo_makes_it(env_id: str, own_name: bool) -> None:
    alias = env_id if own_name else f"gpu_zoo/{env_id.split('/')[1]}"
    for wanted in (alias, alias.replace("_v", "-v"), alias.rsplit("_v", 1)[0]):
        env: Any = pettingzoo.make("parallel", wanted)
        assert type(env) is type(module(env_id).parallel_env())
        assert data_equivalence(play(env, 1, 5), play(module(env_id).parallel_env(), 1, 5))
    short: Any = pettingzoo.make("parallel", alias, max_cycles=3)
    assert short.params["max_cycles"] == 3
    aec: Any = pettingzoo.make("aec", alias, max_cycles=3)
    raw: Any = aec.unwrapped
    assert isinstance(aec, OrderEnforcingWrapper)
    assert type(raw) is module(env_id).raw_env
    assert raw.params["max_cycles"] == 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num_cpus", [0, 2])
@pytest.mark.parametrize("env_id", MPE)
def test_supersuit_sees_the_original(env_id: str, num_cpus: int) -> None:
    """SuperSuit's vector environments over ours and over mpe2's give the same batches."""
    warnings.simplefilter("ignore")  # SuperSuit's own
    batches = [
        supersuit_batch(lib.parallel_env(max_cycles=8), num_cpus)
        for lib in (module(env_id), original(gpu_zoo.spec(env_id)))
    ]
    rng = np.random.default_rng(0)
    ours, theirs = (batch.reset(seed=5)[0] for batch in batches)
    for _ in range(20):
        np.testing.assert_array_equal(ours, theirs)
        actions = rng.integers(batches[0].action_space.n, size=len(ours))
        results = [batch.step(actions) for batch in batches]
        ours, theirs = results[0][0], results[1][0]
        np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-6)
        np.testing.assert_array_equal(results[0][2], results[1][2])
        np.testing.assert_array_equal(results[0][3], results[1][3])
    for batch in batches:
        batch.close()


def supersuit_batch(env: Any, num_cpus: int) -> Any:
    if len({repr(env.observation_space(agent)) for agent in env.possible_agents}) > 1:
        env = supersuit.pad_observations_v0(env)
    if len({repr(env.action_space(agent)) for agent in env.possible_agents}) > 1:
        env = supersuit.pad_action_space_v0(env)
    vectors = supersuit.pettingzoo_env_to_vec_env_v1(env)
    return supersuit.concat_vec_envs_v1(vectors, 3, num_cpus=num_cpus, base_class="gymnasium")


# Environments of one's own -------------------------------------------------------------------


def test_registered_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's environment has the same faces, and pettingzoo.make finds it."""
    spec = registered(tmp_path, monkeypatch)
    env: Any = pettingzoo.make("parallel", spec.id)
    assert data_equivalence(
        play(env, 1, 30), play(module("mpe/simple_spread_v3").parallel_env(), 1, 30)
    )
    aec: Any = pettingzoo.make("aec", spec.id)
    own.api_test(aec, num_cycles=20)
    for one in (gpu_zoo.make(spec.id), aec.unwrapped):
        one.reset(seed=2)
        twin = pickle.loads(pickle.dumps(one))
        assert data_equivalence(go_on(one, 0, 5), go_on(twin, 0, 5))


def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvSpec:
    monkeypatch.setattr(registry, "ENVIRONMENTS", dict(registry.ENVIRONMENTS))
    for table in (registration.aec_registry, registration.parallel_registry):
        for name in list(table):
            monkeypatch.setitem(table, name, table[name])
    spread = gpu_zoo.spec("mpe/simple_spread_v3")
    kernel = tmp_path / "simple_spread_v3.cu"
    kernel.write_text(spread.kernel_path.read_text())
    # The name that PettingZoo's tests know, so that they do not warn of infinite bounds.
    spec = dataclasses.replace(spread, id="mine/simple_spread_v3", kernel=str(kernel))
    gpu_zoo.register(spec)
    return spec
