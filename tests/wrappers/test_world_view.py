"""Scripts that reach inside: the same on mpe2's world and scenario as on the views of ours."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.episodes import Counts, original, same_array, same_number

import gpu_zoo
from gpu_zoo.errors import ResetNeeded
from gpu_zoo.wrappers.pettingzoo import drop_in

MPE = [env_id for env_id in gpu_zoo.list_ids() if env_id.startswith("mpe/")]
SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"
SPEAKERS = "mpe/simple_speaker_listener_v4"
# Nothing that a script would read: our generators are in the kernel; colours stand in the bodies.
NOT_OURS = {"np_random", "treasure_colors"}
SETTINGS = (
    "max_cycles",
    "steps",
    "local_ratio",
    "continuous_actions",
    "benchmark_data",
    "dynamic_rescaling",
)


def cases() -> Iterator[Any]:
    for env_id in MPE:
        for continuous in (False, True):
            kind = "continuous" if continuous else "discrete"
            params = {"continuous_actions": continuous, "benchmark_data": True}
            yield pytest.param(env_id, params, id=f"{env_id[4:]}-{kind}")
    yield pytest.param(SPREAD, {"N": 9, "benchmark_data": True}, id="a block an environment")


CASES = pytest.mark.parametrize(("env_id", "params"), list(cases()))


class Both:
    """Ours and mpe2's, given the same seed, actions and changes."""

    def __init__(self, env_id: str, **params: Any) -> None:
        self.spec = gpu_zoo.spec(env_id)
        module = importlib.import_module(f"gpu_zoo.mpe.{self.spec.name}")
        self.ours = module.parallel_env(**params)
        self.theirs = original(self.spec).parallel_env(**params)
        self.envs = self.ours.unwrapped, self.theirs.unwrapped
        self.worlds = self.envs[0].world, self.envs[1].world
        self.scenarios = self.envs[0].scenario, self.envs[1].scenario
        self.rng = np.random.default_rng(7)

    def reset(self, seed: int) -> None:
        self.ours.reset(seed=seed)
        self.theirs.reset(seed=seed)

    def step(self) -> None:
        """One step with random actions; observations must be the same bits."""
        actions = {a: self.action(self.theirs.action_space(a)) for a in self.theirs.agents}
        mine, their = self.ours.step(actions), self.theirs.step(actions)
        for agent, observation in their[0].items():
            same_array(mine[0][agent], observation, f"{agent} after a step")

    def action(self, space: Any) -> Any:
        if hasattr(space, "n"):
            return int(self.rng.integers(space.n))
        return self.rng.random(space.shape, np.float32)

    def shuffle(self) -> None:
        """Move some bodies of both by hand, in all ways there are."""
        for mine, their in zip(*(w.entities for w in self.worlds), strict=True):
            if not getattr(their, "alive", True):
                continue  # mpe2 keeps a treasure that is away out of the square
            place, shift = self.rng.uniform(-1, 1, 2), self.rng.normal(size=2) * 0.1
            how = self.rng.integers(3)
            for body in (mine, their):
                if how == 0:
                    body.state.p_pos = place.copy()
                elif how == 1:
                    body.state.p_pos += shift
                else:
                    body.state.p_pos[:] = place
            if their in self.worlds[1].agents:
                for body in (mine, their):
                    body.state.p_vel = shift.copy()
                if not their.silent:
                    said = self.rng.random(self.worlds[1].dim_c)
                    for body in (mine, their):
                        body.state.c = said.copy()


@pytest.fixture(scope="module")
def both() -> Callable[..., Both]:
    made: dict[str, Both] = {}

    def make(env_id: str, **params: Any) -> Both:
        key = f"{env_id} {sorted(params.items())}"
        if key not in made:
            made[key] = Both(env_id, **params)
        return made[key]

    return make


def same(mine: Any, their: Any, where: str) -> None:
    """Type and value; of bodies the name."""
    if hasattr(their, "state"):
        assert mine.name == their.name, where
    elif isinstance(their, list):
        assert type(mine) is list and len(mine) == len(their), where
        for a, b in zip(mine, their, strict=True):
            same(a, b, where)
    elif isinstance(their, np.ndarray):
        assert mine.dtype == their.dtype and mine.shape == their.shape, where
        np.testing.assert_array_equal(mine, their, err_msg=where)
    else:
        assert type(mine) is type(their) and mine == their, f"{where}: {mine!r} is not {their!r}"


# What can be read ----------------------------------------------------------------------------


@CASES
def test_everything_mpe2_has_is_there(
    env_id: str, params: dict[str, Any], both: Callable[..., Both]
) -> None:
    pair = both(env_id, **params)
    pair.reset(3)
    for _ in range(6):
        pair.step()
        mine, their = pair.worlds
        compared = compare_attributes(mine, their)
        assert compared >= {"agents", "landmarks", "dim_c", "damping", "contact_margin"}
        for name in ("entities", "policy_agents", "scripted_agents"):
            same(getattr(mine, name), getattr(their, name), name)
        for a, b in zip(mine.entities, their.entities, strict=True):
            compared = compare_attributes(a, b)
            assert compared >= {"name", "size", "movable", "collide", "color", "max_speed"}
            same(a.mass, b.mass, f"{b.name}.mass")
            same(a.state.p_pos, b.state.p_pos, f"{b.name}.state.p_pos")
            same(a.state.p_vel, b.state.p_vel, f"{b.name}.state.p_vel")
        for a, b in zip(mine.agents, their.agents, strict=True):
            # mpe2's is float32 if actions are; ours is the state's float64 in either case.
            same(a.state.c, b.state.c.astype(np.float64), f"{b.name}.state.c")
            same(a.action.u, b.action.u, f"{b.name}.action.u")
            same(a.action.c, b.action.c, f"{b.name}.action.c")


def compare_attributes(mine: Any, their: Any) -> set[str]:
    """Compare all that mpe2's object has; return the names."""
    names = {name.lstrip("_"): value for name, value in vars(their).items()}
    for name in names.keys() - NOT_OURS - {"state", "action"}:
        if names[name] is None and f"_{name}" in vars(their):  # nobody has given it a value
            assert not hasattr(mine, name), name
        else:
            same(getattr(mine, name), getattr(their, name), f"{mine.label}.{name}")
    return set(names)


@CASES
def test_settings(env_id: str, params: dict[str, Any], both: Callable[..., Both]) -> None:
    pair = both(env_id, **params)
    pair.reset(3)
    for _ in range(2):
        for name in SETTINGS:
            same(getattr(pair.envs[0], name), getattr(pair.envs[1], name), name)
        pair.step()


@pytest.mark.parametrize("face", ["env", "raw_env", "parallel_env"])
def test_the_world_is_one_object_that_stays(face: str) -> None:
    env = getattr(importlib.import_module("gpu_zoo.mpe.simple_tag_v3"), face)()
    world, scenario = env.unwrapped.world, env.unwrapped.scenario
    env.reset(seed=0)
    first = world.agents[1].state.p_pos.copy()
    env.reset(seed=1)
    assert (world.agents[1].state.p_pos != first).all()
    assert env.unwrapped.world is world and env.unwrapped.scenario is scenario
    assert [agent.adversary for agent in world.agents] == [True, True, True, False]
    assert not hasattr(world.landmarks[0], "adversary")


def test_slow_prey_of_the_curriculum() -> None:
    params = {"curriculum": True, "benchmark_data": True}
    pair = Both(TAG, **params)
    pair.reset(0)
    prey = [world.agents[-1] for world in pair.worlds]
    assert prey[1].max_speed == 0.65
    compare_attributes(*prey)
    pair.step()
    same(prey[0].action.u, prey[1].action.u, "action.u")
    pair.ours.set_curriculum_stage(1)
    pair.ours.reset(seed=0)
    assert (prey[0].max_speed, prey[0].accel) == (1.3 * 0.75, 3.0)


def test_the_action_of_an_agent() -> None:
    pair = Both(TAG)
    pair.reset(0)
    for move in range(5):
        for env in (pair.ours, pair.theirs):
            env.step(dict.fromkeys(env.agents, move))
        for mine, their in zip(*(world.agents for world in pair.worlds), strict=True):
            same(mine.action.u, their.action.u, f"move {move}")


# What can be written ---------------------------------------------------------------------------


@CASES
def test_bodies_moved_by_hand(
    env_id: str, params: dict[str, Any], both: Callable[..., Both]
) -> None:
    pair = both(env_id, **params)
    pair.reset(11)
    before = pair.ours.state()
    for _ in range(8):
        pair.shuffle()
        same_array(pair.ours.state(), pair.theirs.state(), "state() after the bodies moved")
        assert (pair.ours.state() != before).any()
        for mine, their in zip(*(world.agents for world in pair.worlds), strict=True):
            seen = pair.scenarios[1].observation(their, pair.worlds[1])
            same(
                pair.scenarios[0].observation(mine, pair.worlds[0]),
                seen.astype(np.float32).astype(np.float64),
                f"observation of {their.name}",
            )
        pair.step()
        pair.step()


@pytest.mark.parametrize("env_id", MPE)
def test_aec_observes_what_was_moved(env_id: str) -> None:
    spec = gpu_zoo.spec(env_id)
    envs = [importlib.import_module(f"{m}.{spec.name}").env() for m in ("gpu_zoo.mpe", "mpe2")]
    for env in envs:
        env.reset(seed=5)
    for turn in range(3 * len(envs[0].agents)):
        for env in envs:
            for i, body in enumerate(env.unwrapped.world.entities):
                body.state.p_pos[0] = 0.1 * i - 0.05 * turn
        agent = envs[1].agent_selection
        same_array(envs[0].observe(agent), envs[1].observe(agent), f"turn {turn}")
        same_array(envs[0].last()[0], envs[1].last()[0], f"turn {turn}")
        for env in envs:
            env.step(None if env.terminations[agent] or env.truncations[agent] else 0)


def test_views_are_live() -> None:
    env = gpu_zoo.make(TAG)
    env.reset(seed=0)
    agent = env.world.agents[0]
    position, velocity = agent.state.p_pos, agent.state.p_vel
    kept = position.copy()
    env.step(dict.fromkeys(env.agents, 2))
    env.step(dict.fromkeys(env.agents, 2))
    assert velocity[0] > 0 and position[0] > kept[0]
    given = np.array([0.5, -0.5])
    agent.state.p_pos = given
    given[:] = 7  # copied, so this moves nothing
    assert list(position) == [0.5, -0.5]


@pytest.mark.parametrize("numerics", ["reference", "fast"])
def test_numerics(numerics: str) -> None:
    env = gpu_zoo.make(SPREAD, numerics=numerics)
    env.reset(seed=0)
    state = env.world.agents[1].state
    assert state.p_pos.dtype == (np.float64 if numerics == "reference" else np.float32)
    state.p_pos = [0.25, -0.5]
    seen = env.scenario.observation(env.world.agents[1], env.world)
    assert list(seen[2:4]) == [0.25, -0.5]


# The scenario --------------------------------------------------------------------------------


@CASES
def test_the_rules_speak_of_the_world_as_it_is(
    env_id: str, params: dict[str, Any], both: Callable[..., Both]
) -> None:
    pair = both(env_id, **params)
    (mine, their), counts = pair.scenarios, Counts()
    for seed in range(3):
        pair.reset(seed)
        for _ in range(3):
            pair.step()
            pair.shuffle()
            before = pair.ours.game.vector.get_state(), pair.ours.state(), dict(pair.ours.params)
            for a, b in zip(*(world.agents for world in pair.worlds), strict=True):
                arguments = (a, pair.worlds[0]), (b, pair.worlds[1])
                reward = mine.reward(*arguments[0])
                assert type(reward) is float
                same_number(reward, float(their.reward(*arguments[1])), "reward", counts)
                same_data(
                    mine.benchmark_data(*arguments[0]), their.benchmark_data(*arguments[1]), counts
                )
            total = mine.global_reward(pair.worlds[0])
            same_number(total, float(their.global_reward(pair.worlds[1])), "global", counts)
            assert mine.is_terminal(pair.worlds[0]) is their.is_terminal(pair.worlds[1])
            for name, value in pair.ours.game.vector.get_state().items():
                np.testing.assert_array_equal(value, before[0][name], err_msg=name)
            np.testing.assert_array_equal(before[1], pair.ours.state())
            assert before[2] == dict(pair.ours.params)


def same_data(mine: Any, their: Any, counts: Counts) -> None:
    """Benchmark data: types, and values up to the last bits."""
    if isinstance(their, tuple) and not isinstance(mine, np.ndarray):
        assert type(mine) is tuple and len(mine) == len(their)
        for a, b in zip(mine, their, strict=True):
            same_data(a, b, counts)
    elif isinstance(their, np.ndarray):
        np.testing.assert_array_equal(mine, their)
    elif their in (None, {}):
        assert mine == their
    else:
        same_number(mine, their, "benchmark_data", counts)


@CASES
def test_who_is_who(env_id: str, params: dict[str, Any], both: Callable[..., Both]) -> None:
    pair = both(env_id, **params)
    pair.reset(0)
    touches = 0
    for name in ("good_agents", "adversaries"):
        if hasattr(pair.scenarios[1], name):
            found = [getattr(s, name)(w) for s, w in zip(pair.scenarios, pair.worlds, strict=True)]
            same(*found, name)
    for trial in range(6):
        pair.shuffle()
        for world in pair.worlds:
            first, second = world.entities[:2]
            gap = (first.size + second.size) * (0.99 if trial % 2 else 1.01)
            second.state.p_pos = first.state.p_pos + np.array([gap, 0.0])
        for i, a in enumerate(pair.worlds[0].entities):
            for j, b in enumerate(pair.worlds[0].entities):
                at = [pair.worlds[1].entities[k] for k in (i, j)]
                gap = np.sqrt(np.sum(np.square(at[0].state.p_pos - at[1].state.p_pos)))
                wanted = bool(gap < at[0].size + at[1].size)
                assert pair.scenarios[0].is_collision(a, b) is wanted
                if hasattr(pair.scenarios[1], "is_collision"):
                    assert pair.scenarios[1].is_collision(*at) is wanted
                touches += wanted and i != j
    assert touches >= 3


ENDING = [i for i in MPE if "terminate_on_success" in gpu_zoo.spec(i).params]


def succeed(env_id: str, world: Any) -> None:
    """Put the bodies where the episode ends."""
    landmarks = [landmark.state.p_pos.copy() for landmark in world.landmarks]
    count = len(world.agents)
    for i, agent in enumerate(world.agents):
        if "spread" in env_id:
            agent.state.p_pos = landmarks[i]
        elif "formation" in env_id:
            angle = 2 * np.pi * i / count
            agent.state.p_pos = landmarks[0] + 0.5 * np.array([np.cos(angle), np.sin(angle)])
        elif "line" in env_id:
            agent.state.p_pos = landmarks[0] + (landmarks[1] - landmarks[0]) * i / (count - 1)
        else:
            agent.state.p_pos = np.array([0.01 * i, 0.3])


@pytest.mark.parametrize("env_id", ENDING)
def test_success(env_id: str) -> None:
    pair = Both(env_id, terminate_on_success=True, max_cycles=2)
    pair.reset(0)
    pair.step()  # so the next step is the last one, which may not hide the success
    for world, scenario in zip(pair.worlds, pair.scenarios, strict=True):
        scenario.global_reward(world)  # mpe2 may keep what it found then
        assert scenario.is_terminal(world) is False
        succeed(env_id, world)
        scenario.global_reward(world)
        assert scenario.is_terminal(world) is True
    pair.step()
    assert pair.ours.agents == pair.theirs.agents == []
    for world in pair.worlds:
        succeed(env_id, world)
    for world, scenario in zip(pair.worlds, pair.scenarios, strict=True):
        scenario.global_reward(world)
        assert scenario.is_terminal(world) is True, "of an episode that is over"


# What cannot be done -------------------------------------------------------------------------

WRITES: dict[str, Callable[[Any], Any]] = {
    "size": lambda w: setattr(w.agents[0], "size", 1.0),
    "color": lambda w: setattr(w.landmarks[0], "color", np.zeros(3)),
    "name": lambda w: setattr(w.agents[0], "name", "bob"),
    "adversary": lambda w: setattr(w.agents[0], "adversary", False),
    "state": lambda w: setattr(w.agents[0], "state", None),
    "my_own": lambda w: setattr(w.agents[0], "my_own", 1),
    "c": lambda w: setattr(w.landmarks[0].state, "c", np.zeros(2)),
    "u": lambda w: setattr(w.agents[0].action, "u", np.zeros(2)),
    "damping": lambda w: setattr(w, "damping", 0.5),
    "agents": lambda w: setattr(w, "agents", []),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_cannot_be_written(name: str) -> None:
    env = gpu_zoo.make(TAG)
    env.reset(seed=0)
    with pytest.raises(AttributeError) as caught:
        WRITES[name](env.world)
    message = str(caught.value)
    assert f".{name} cannot be written" in message and "state.p_pos" in message
    assert "\n" not in message


@pytest.mark.parametrize("face", ["raw_env", "parallel_env"])
def test_settings_written(face: str) -> None:
    env = getattr(importlib.import_module("gpu_zoo.mpe.simple_spread_v3"), face)()
    for name in ("N", "dynamic_rescaling", "continuous_actions"):
        with pytest.raises(AttributeError, match=name):
            setattr(env, name, 3)
    with pytest.raises(TypeError, match="max_cycles='2'"):
        env.max_cycles = "2"
    env.max_cycles = 2
    env.my_own = 3
    for one in (env, copy.deepcopy(env)):
        assert (one.max_cycles, one.my_own) == (2, 3)
        one.reset(seed=0)
        for _ in range(2 if face == "parallel_env" else 6):
            one.step(dict.fromkeys(one.agents, 0) if face == "parallel_env" else 0)
        assert one.agents == [] or all(one.truncations.values())


def test_what_is_always_zero() -> None:
    env = gpu_zoo.make(SPEAKERS)
    env.reset(seed=0)
    speaker, listener = env.world.agents
    landmark = env.world.landmarks[0]
    # As scripts that set up a world of their own do.
    landmark.state.p_vel = np.zeros(2)
    listener.state.c = np.zeros(3)
    speaker.state.c = np.array([0.0, 1.0, 0.0])
    assert list(env.scenario.observation(listener, env.world)[-3:]) == [0.0, 1.0, 0.0]
    for write in (
        lambda: setattr(landmark.state, "p_vel", np.ones(2)),
        lambda: setattr(listener.state, "c", np.ones(3)),
    ):
        with pytest.raises(AttributeError, match="always 0"):
            write()
    # In place it would be lost without a word.
    for array in (landmark.state.p_vel, listener.state.c, landmark.color, listener.action.u):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    "value", [np.zeros(3), np.zeros((1, 2)), 0.0, ["a", "b"], np.zeros(2, complex)]
)
def test_positions_of_the_wrong_shape(value: Any) -> None:
    env = gpu_zoo.make(TAG)
    env.reset(seed=0)
    before = env.state()
    with pytest.raises(ValueError, match=r"adversary_1\.state\.p_pos: .*expected float \(2,\)"):
        env.world.agents[1].state.p_pos = value
    np.testing.assert_array_equal(env.state(), before)


def test_benchmark_data_must_be_asked_for() -> None:
    for env_id in MPE:
        env = gpu_zoo.make(env_id)
        env.reset(seed=0)
        arguments = env.world.agents[0], env.world
        if any(group.info for group in env.game.spec.groups):
            with pytest.raises(ValueError, match="benchmark_data=True"):
                env.scenario.benchmark_data(*arguments)
        else:
            assert env.scenario.benchmark_data(*arguments) == {}


def test_before_the_first_reset() -> None:
    env = gpu_zoo.make(TAG)
    agent = env.world.agents[0]
    assert (agent.name, agent.size, env.steps) == ("adversary_0", 0.075, 0)
    for look in (
        lambda: agent.state.p_pos,
        lambda: agent.color,
        lambda: env.scenario.observation(agent, env.world),
        lambda: env.scenario.reward(agent, env.world),
    ):
        with pytest.raises(ResetNeeded):
            look()


def test_unknown_names() -> None:
    env = gpu_zoo.make(SPREAD)
    env.reset(seed=0)
    for thing in (env, env.world, env.world.agents[0], env.world.landmarks[0]):
        with pytest.raises(AttributeError, match="nonsense"):
            _ = thing.nonsense
        assert not hasattr(thing, "adversary")


def test_environment_that_says_nothing_of_its_inside() -> None:
    spec = dataclasses.replace(gpu_zoo.spec(SPREAD), inside=None)
    env = drop_in(spec).raw_env()
    env.reset(seed=0)
    with pytest.raises(AttributeError, match="no attribute 'world'"):
        _ = env.world
    env.world = 3  # a name like any other


# Copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("face", ["raw_env", "parallel_env"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_have_worlds_of_their_own(face: str, copied: Callable[[Any], Any]) -> None:
    env = getattr(importlib.import_module("gpu_zoo.mpe.simple_spread_v3"), face)()
    env.reset(seed=0)
    env.world.agents[0].state.p_pos = [0.25, 0.5]
    other = copied(env)
    assert list(other.world.agents[0].state.p_pos) == [0.25, 0.5]
    np.testing.assert_array_equal(other.state(), env.state())
    other.world.agents[0].state.p_pos = [-1.0, -1.0]
    assert list(env.world.agents[0].state.p_pos) == [0.25, 0.5]
    assert (other.state() != env.state()).any()
    env.close()
    other.close()
    for part in (env.world, env.world.agents[0], env.scenario):
        with pytest.raises(TypeError, match="copy or pickle"):
            copied(part)


def test_views_are_imported_only_when_asked_for(tmp_path: Path) -> None:
    program = """
import sys, gpu_zoo
env = gpu_zoo.make("mpe/simple_spread_v3")
env.reset(seed=0)
env.step(dict.fromkeys(env.agents, 0))
assert "gpu_zoo.mpe.view" not in sys.modules
env.world
assert "gpu_zoo.mpe.view" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
