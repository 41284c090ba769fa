"""Classic control against Gymnasium's own environments: same seed, same actions, same episode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from cases import ROWS, over_broken
from oracle.mutants import mutated

import gpu_zoo
from gpu_zoo import EnvSpec, VectorEnv
from gpu_zoo.registry import GYMNASIUM_NAMES

Array = npt.NDArray[Any]
Policy = Callable[[Any, Array, np.random.Generator], Any]

CLASSIC = sorted(GYMNASIUM_NAMES)
SEEDS = (0, 1, 7, 2**31, 2**40)
BITS = {np.dtype("f4"): np.uint32, np.dtype("f8"): np.uint64}


# Who acts. A policy gets the action space, the last observation and a generator. -----------------


def uniform(space: Any, observation: Array, rng: np.random.Generator) -> Any:
    if hasattr(space, "n"):
        return int(rng.integers(space.n))
    return rng.uniform(space.low, space.high).astype(np.float32)


def bold(space: Any, observation: Array, rng: np.random.Generator) -> Any:
    """At either end of the action space, or in the middle, whatever happens."""
    if hasattr(space, "n"):
        return int(rng.integers(space.n))
    return (rng.integers(-1, 2, space.shape) * space.high).astype(np.float32)


def along(space: Any, observation: Array, rng: np.random.Generator) -> Any:
    """With the movement, which swings everything up: the cars' goals and the acrobot's line."""
    speed = observation[{2: 1, 3: 2, 4: 3, 6: 4}[len(observation)]]
    if rng.random() < 0.05:
        return uniform(space, observation, rng)
    if hasattr(space, "n"):
        return int(space.n - 1 if (speed >= 0) ^ (len(observation) == 6) else 0)
    strength = rng.uniform(0.6, 1, space.shape) * space.high
    return (strength if speed >= 0 else -strength).astype(np.float32)


def balance(space: Any, observation: Array, rng: np.random.Generator) -> Any:
    """Keeps the pole up until the time limit."""
    if len(observation) != 4:
        return along(space, observation, rng)
    return int(observation @ np.array([0.05, 0.3, 1.0, 0.5], np.float32) > 0)


POLICIES: tuple[Policy, ...] = (uniform, bold, along, balance)


# Playing both ------------------------------------------------------------------------------------


class Pair:
    """One environment of ours in reference numerics and Gymnasium's, compared step by step."""

    def __init__(self, spec: EnvSpec, params: dict[str, Any], validate: bool = True) -> None:
        self.name = GYMNASIUM_NAMES[f"classic/{spec.name}"]
        theirs, limit = dict(params), params.get("max_cycles")
        theirs.pop("max_cycles", None)
        # Its checker warns of actions that we want to be wrong, and plays no part in the rules.
        self.theirs: Any = gymnasium.make(
            self.name, max_episode_steps=limit, disable_env_checker=True, **theirs
        )
        self.ours = VectorEnv(
            spec, 1, numerics="reference", autoreset_mode="disabled", validate_actions=validate,
            **params,
        )  # fmt: skip
        (self.agent,) = self.ours.agents
        self.steps = self.terminated = self.truncated = self.both = 0

    def episode(
        self, policy: Policy, seed: int | None, rng: np.random.Generator, scale: float = 1.0
    ) -> None:
        """One whole episode; without a seed the random streams go on."""
        mine, _ = self.ours.reset(seed=seed)
        observation, _ = self.theirs.reset(seed=seed)
        self.same("observation at reset", mine[self.agent][0], observation)
        over = False
        while not over:
            action = policy(self.theirs.action_space, observation, rng)
            if scale != 1:
                action = (action * scale).astype(np.float32)
            observation, reward, terminated, truncated, _ = self.theirs.step(action)
            kind = np.float32 if self.theirs.action_space.shape else np.int64
            mine, *verdict, _ = self.ours.step({self.agent: np.array([action], kind)})
            got, *flags = (part[self.agent][0] for part in verdict)
            self.steps += 1
            self.same("observation", mine[self.agent][0], observation)
            self.same("reward", np.float64(got), np.float64(reward))
            self.same("state", self.state(), np.array(self.theirs.unwrapped.state, np.float64))
            assert flags == [terminated, truncated], f"{self.name}: flags {flags} at {self.steps}"
            self.terminated += terminated
            self.truncated += truncated
            self.both += terminated and truncated
            over = terminated or truncated

    def state(self) -> Array:
        """The numbers that Gymnasium keeps too, in its order; their last bits are not observed."""
        state = self.ours.get_state()
        names = [name for name in self.ours.spec.state if name not in ("fresh", "cost")]
        return np.concatenate([state[name].reshape(-1) for name in names])

    def same(self, what: str, ours: Any, theirs: Any) -> None:
        """Raise unless the bits are the same."""
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert ours.dtype == theirs.dtype
        kind = BITS[ours.dtype]
        wrong = np.atleast_1d(ours).view(kind) != np.atleast_1d(theirs).view(kind)
        assert not wrong.any(), f"{self.name}, step {self.steps}: {what} {ours}, theirs {theirs}"


def check_starts(spec: EnvSpec, count: int = 4096) -> None:
    """The first observations of many seeds."""
    pair = Pair(spec, {})
    ours = VectorEnv(spec, count, numerics="reference")
    rows = ours.reset(seed=0)[0][pair.agent]
    for seed, row in enumerate(rows):
        pair.same(f"observation at reset with seed {seed}", row, pair.theirs.reset(seed=seed)[0])


def check(spec: EnvSpec, params: dict[str, Any], seeds: tuple[int, ...] = SEEDS) -> Pair:
    """Episodes of all policies, each seed's followed by one whose random stream goes on."""
    pair = Pair(spec, params)
    for number, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        pair.episode(POLICIES[number % len(POLICIES)], seed, rng)
        pair.episode(POLICIES[(number + 2) % len(POLICIES)], None, rng)
    return pair


PARAMS = [
    pytest.param(env_id, params, id=f"{GYMNASIUM_NAMES[env_id]}-{params or 'default'}")
    for env_id in CLASSIC
    for params in ({}, *ROWS[env_id].variants)
]


@pytest.mark.parametrize(("env_id", "params"), PARAMS)
def test_episodes_are_gymnasiums(env_id: str, params: dict[str, Any]) -> None:
    pair = check(gpu_zoo.spec(env_id), params)
    assert pair.steps > 50
    if not params:
        # Nothing ends a pendulum's episode but the time limit.
        assert pair.terminated > 0 or env_id == "classic/pendulum_v1"
        assert pair.truncated > 0


@pytest.mark.parametrize("env_id", CLASSIC)
def test_starts_are_gymnasiums(env_id: str) -> None:
    check_starts(gpu_zoo.spec(env_id))


@pytest.mark.slow
@pytest.mark.parametrize("env_id", CLASSIC)
def test_many_episodes_are_gymnasiums(env_id: str) -> None:
    check(gpu_zoo.spec(env_id), {}, tuple(range(100, 180)))


@pytest.mark.parametrize("env_id", ["classic/pendulum_v1", "classic/mountain_car_continuous_v0"])
def test_actions_outside_the_box_mean_the_same(env_id: str) -> None:
    pair = Pair(gpu_zoo.spec(env_id), {}, validate=False)
    for seed in range(3):
        pair.episode(uniform, seed, np.random.default_rng(seed), scale=1.7)


def test_an_episode_may_be_both_terminated_and_truncated() -> None:
    """The time limit comes with the step with which the pole falls."""
    free = Pair(gpu_zoo.spec("classic/cartpole_v1"), {})
    free.episode(uniform, 3, np.random.default_rng(3))
    pair = Pair(gpu_zoo.spec("classic/cartpole_v1"), {"max_cycles": free.steps})
    pair.episode(uniform, 3, np.random.default_rng(3))
    assert pair.both == 1


@pytest.mark.parametrize("env_id", CLASSIC)
def test_spaces_and_limits_are_gymnasiums(env_id: str) -> None:
    ours, theirs = gpu_zoo.make_gym_vec(env_id), gymnasium.make(GYMNASIUM_NAMES[env_id])
    assert ours.single_observation_space == theirs.observation_space
    assert ours.single_action_space == theirs.action_space
    assert theirs.spec is not None
    assert ours.batch.params["max_cycles"] == theirs.spec.max_episode_steps


@over_broken(CLASSIC)
def test_broken_rules_are_caught(env_id: str, old: str, new: str) -> None:
    spec = mutated(gpu_zoo.spec(env_id), old, new, world=False)
    with pytest.raises(AssertionError, match=GYMNASIUM_NAMES[env_id]):
        for params in ({}, *ROWS[env_id].variants):
            check(spec, params)
        check_starts(spec)


# Which bits NumPy gives --------------------------------------------------------------------------


def test_numpys_float64_sine_is_the_c_librarys() -> None:
    """What equality rests on, besides NumPy 2's rules for float32; see the environments' notes."""
    import math

    for x in np.random.default_rng(0).uniform(-90, 90, 20_000):
        assert (np.sin(x), np.cos(x)) == (math.sin(x), math.cos(x))
        assert x**2 == math.pow(x, 2)


# Fast numerics -----------------------------------------------------------------------------------

# Of an observation after one step from the same state, absolute. Velocities reach 28, where float32
# numbers are 2e-6 apart, and the acrobot's four evaluations multiply that.
FAST_ERROR = {"classic/acrobot_v1": 2e-3}


@pytest.mark.parametrize("env_id", CLASSIC)
def test_fast_numerics_stay_close(env_id: str) -> None:
    fast, reference = (
        gpu_zoo.make_vec(env_id, 512, numerics=numerics) for numerics in ("fast", "reference")
    )
    fast.reset(seed=0)
    reference.reset(seed=0)
    (agent,) = fast.agents
    space = fast.action_space(agent)
    space.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(60):
            state = reference.get_state()
            fast.set_state({n: state[n].astype(fast.get_state()[n].dtype) for n in fast.spec.state})
            actions = {agent: space.sample()}
            ours, theirs = fast.step(actions), reference.step(actions)
            going_on = ~(ours[4]["_episode"] | theirs[4]["_episode"])
            tolerance = FAST_ERROR.get(env_id, 2e-5)
            for part in (0, 1):
                error = np.abs(ours[part][agent] - theirs[part][agent])[going_on]
                assert error.max() < tolerance
            assert (ours[4]["_episode"] != theirs[4]["_episode"]).mean() < 0.01
