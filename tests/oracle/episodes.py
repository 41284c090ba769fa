"""Playing the same episodes on a drop-in and on mpe2's original, and comparing all they say."""

from __future__ import annotations

import importlib
import inspect
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.spec import EnvSpec, Param

MOVES = 5  # none, left, right, down, up
# Rewards may differ by this many units in the last place of max(1, |reward|): NumPy's own SIMD
# exp is 1 ulp off the C library's in 4.6 % of its arguments, and it enters simple_tag's rewards.
REWARD_ULP = 4.0
LOOK_AT_STATE = 4  # steps between comparisons of state() and of the bodies


def original(spec: EnvSpec) -> ModuleType:
    """mpe2's module of the same name."""
    return importlib.import_module(f"mpe2.{spec.name}")


def shared_params(spec: EnvSpec) -> dict[str, Param]:
    """The parameters that mpe2's constructor has too."""
    theirs = inspect.signature(original(spec).raw_env.__init__).parameters
    return {name: param for name, param in spec.params.items() if name in theirs}


@dataclass
class Episode:
    """How one episode goes: who acts how, and where the curriculum moves."""

    policy: str
    actions_seed: int
    seed: int | None = None  # None: the stream goes on
    stages: Mapping[int, int | None] = field(default_factory=dict)  # step -> stage, None: next one


@dataclass
class Counts:
    """What was compared."""

    seen: Counter[str] = field(default_factory=Counter)
    worst_ulp: float = 0.0
    worst_relative: float = 0.0


# Policies ------------------------------------------------------------------------------------


class Driver:
    """Chooses actions by looking at the bodies of mpe2's own world.

    ``uniform``: any action. ``constant``: one action for the whole episode. ``chase``: towards the
    nearest other agent, which makes many contacts. ``cover``: agent i towards landmark i.
    ``visit``: towards random bodies. ``leave``: away from the centre, out of the square.
    Besides, ``outside`` goes beyond the bounds of continuous actions.
    """

    POLICIES = ("uniform", "constant", "chase", "cover", "visit", "leave")

    def __init__(self, episode: Episode, raw: Any) -> None:
        self._policy = episode.policy
        self._rng = np.random.default_rng(episode.actions_seed)
        self._world = raw.world
        self._spaces = {agent: raw.action_space(agent) for agent in raw.possible_agents}
        count = len(self._world.entities)
        self._targets = [int(t) for t in self._rng.integers(0, count, len(self._spaces))]
        self._fixed = self._uniform() if self._policy == "constant" else None

    def act(self) -> dict[str, Any]:
        """One action an agent."""
        if self._fixed is not None:
            return self._fixed
        if self._policy == "uniform":
            return self._uniform()
        if self._policy == "outside":
            return {name: 2 * action - 0.5 for name, action in self._uniform().items()}
        return {name: self._towards(i, self._spaces[name]) for i, name in enumerate(self._spaces)}

    def _uniform(self) -> dict[str, Any]:
        return {name: self._any(space) for name, space in self._spaces.items()}

    def _any(self, space: Any) -> Any:
        if hasattr(space, "n"):
            return int(self._rng.integers(space.n))
        return self._rng.random(space.shape, np.float32)

    def _towards(self, i: int, space: Any) -> Any:
        action = self._any(space)
        me = self._world.agents[i]
        if not me.movable:
            return action
        push = self._push(i, me)
        if hasattr(space, "n"):
            return action - action % MOVES + _nearest_move(push)
        action[1:MOVES] = 0
        action[1 if push[0] < 0 else 2] = min(1.0, abs(push[0]))
        action[3 if push[1] < 0 else 4] = min(1.0, abs(push[1]))
        return action

    def _push(self, i: int, me: Any) -> npt.NDArray[np.float64]:
        """Where to accelerate: towards the target, braking on the way."""
        entities = self._world.entities
        if self._policy == "leave":
            return np.asarray(me.state.p_pos * 3.0)
        if self._policy == "chase":
            gaps = [
                np.inf if other is me else abs(other.state.p_pos - me.state.p_pos).sum()
                for other in self._world.agents
            ]
            target = self._world.agents[int(np.argmin(gaps))]
        elif self._policy == "cover" and self._world.landmarks:
            target = self._world.landmarks[i % len(self._world.landmarks)]
        else:
            if self._rng.random() < 0.1:
                self._targets[i] = int(self._rng.integers(len(entities)))
            target = entities[self._targets[i]]
        ahead = me.state.p_pos + 0.2 * me.state.p_vel
        return np.asarray(4.0 * (target.state.p_pos - ahead))


def _nearest_move(push: npt.NDArray[np.float64]) -> int:
    axis = int(abs(push[1]) > abs(push[0]))
    if abs(push[axis]) < 0.2:
        return 0
    return 1 + 2 * axis + int(push[axis] > 0)


# Comparing -----------------------------------------------------------------------------------


def same_array(ours: Any, theirs: Any, where: str) -> None:
    """Shape, dtype and every bit."""
    assert type(ours) is type(theirs), where
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, where
    if ours.tobytes() != theirs.tobytes():
        np.testing.assert_array_equal(ours, theirs, err_msg=where)
        raise AssertionError(f"{where}: signs of zeros differ")


def same_number(ours: Any, theirs: Any, where: str, counts: Counts) -> None:
    """Type, and value up to REWARD_ULP; integers exactly."""
    assert type(ours) is type(theirs), f"{where}: {type(ours)} is not {type(theirs)}"
    if ours == theirs:
        return
    error = abs(ours - theirs)
    ulp = float(error / np.spacing(max(1.0, abs(theirs))))
    counts.worst_ulp = max(counts.worst_ulp, ulp)
    counts.worst_relative = max(counts.worst_relative, float(error / max(1.0, abs(theirs))))
    assert isinstance(theirs, float), f"{where}: {ours} is not {theirs}"
    assert ulp <= REWARD_ULP, f"{where}: {ours!r} is {ulp:g} ulp from {theirs!r}"


def same_value(ours: Any, theirs: Any, where: str, counts: Counts) -> None:
    """A number, None, an empty dict, or an array up to its dtype."""
    if isinstance(theirs, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, err_msg=where)
    elif theirs is None or isinstance(theirs, dict):
        assert ours == theirs, where
    else:
        same_number(ours, theirs, where, counts)


def same_bodies(ours: Any, raw: Any, where: str) -> None:
    """Positions and velocities in float64: far sharper than float32 observations."""
    scene, world = ours.unwrapped.game.scene(), raw.world
    for name, bodies, attribute in (
        ("pos", world.agents, "p_pos"),
        ("vel", world.agents, "p_vel"),
        ("landmark", world.landmarks, "p_pos"),
    ):
        if name in scene:
            there = np.array([getattr(body.state, attribute) for body in bodies])
            same_array(scene[name], there.reshape(-1, 2), f"{where} {name}")


def same_rewards(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str, counts: Counts
) -> None:
    """The same agents in the same order, the same numbers."""
    assert list(ours) == list(theirs), where
    for agent, reward in theirs.items():
        same_number(ours[agent], reward, f"{where} {agent}", counts)


def same_flags(ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str) -> None:
    """The same agents in the same order, the same Python bools."""
    assert list(ours.items()) == list(theirs.items()), where
    assert all(type(flag) is bool for flag in ours.values()), where


def same_infos(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str, counts: Counts
) -> None:
    """The same agents, keys, types and values."""
    assert list(ours) == list(theirs), where
    for agent, info in theirs.items():
        assert list(ours[agent]) == list(info), f"{where} {agent}"
        for key, value in info.items():
            mine, at = ours[agent][key], f"{where} {agent} {key}"
            assert type(mine) is type(value), f"{at}: {type(mine)} is not {type(value)}"
            if not isinstance(value, tuple):
                mine, value = (mine,), (value,)
            assert len(mine) == len(value), at
            for a, b in zip(mine, value, strict=True):
                same_value(a, b, at, counts)


def same_observations(ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str) -> None:
    """The same agents in the same order, the same bits."""
    assert list(ours) == list(theirs), where
    for agent, observation in theirs.items():
        same_array(ours[agent], observation, f"{where} {agent}")


def compare_parallel(
    ours: Any, theirs: Any, episodes: list[Episode], counts: Counts, limit: int = 10_000
) -> None:
    """Play ``episodes`` through both parallel environments.

    Raises:
        AssertionError: the first difference.
    """
    raw = theirs.unwrapped
    for number, episode in enumerate(episodes):
        results = [env.reset(seed=episode.seed) for env in (ours, theirs)]
        where = f"episode {number} ({episode.policy}), reset:"
        same_observations(results[0][0], results[1][0], where)
        same_infos(results[0][1], results[1][1], where, counts)
        driver = Driver(episode, raw)
        step = 0
        while theirs.agents and step < limit:
            assert ours.agents == theirs.agents, where
            if step % LOOK_AT_STATE == 0:
                same_array(ours.state(), theirs.state(), f"{where} state()")
                same_bodies(ours, raw, where)
            _move_curriculum(ours, theirs, episode, step)
            actions = driver.act()
            step += 1
            where = f"episode {number} ({episode.policy}), step {step}:"
            mine, their = ours.step(actions), theirs.step(actions)
            same_observations(mine[0], their[0], f"{where} observation")
            same_rewards(mine[1], their[1], f"{where} reward", counts)
            same_flags(mine[2], their[2], f"{where} termination")
            same_flags(mine[3], their[3], f"{where} truncation")
            same_infos(mine[4], their[4], f"{where} info", counts)
            count_events(raw, their[2], their[3], counts)
        assert ours.agents == theirs.agents == [], where
        same_array(ours.state(), theirs.state(), f"{where} last state()")
        same_bodies(ours, raw, where)
        mine, their = ours.step({}), theirs.step({})
        assert mine == tuple(dict(part) for part in their), "a step without agents"
        counts.seen["episodes, parallel"] += 1


def compare_aec(ours: Any, theirs: Any, episodes: list[Episode], counts: Counts) -> None:
    """Play ``episodes`` through both AEC environments, looking at everything at every sub-step.

    Raises:
        AssertionError: the first difference.
    """
    raw = theirs.unwrapped
    for number, episode in enumerate(episodes):
        for env in (ours, theirs):
            env.reset(seed=episode.seed)
        where = f"episode {number} ({episode.policy}), reset:"
        driver = Driver(episode, raw)
        step = -1
        actions: dict[str, Any] = {}
        assert ours.last(observe=False)[0] is None, where
        while raw.agents:
            _same_turn(ours, theirs, where, counts)
            agent = raw.agent_selection
            over = raw.terminations[agent] or raw.truncations[agent]
            if agent == raw.possible_agents[0] and not over:
                step += 1
                if step % LOOK_AT_STATE == 0:
                    same_array(ours.state(), raw.state(), f"{where} state()")
                    same_bodies(ours, raw, where)
                _move_curriculum(ours, theirs, episode, step)
                actions = driver.act()
            for env in (ours, theirs):
                env.step(None if over else actions[agent])
            where = f"episode {number} ({episode.policy}), step {step}, after {agent}:"
            counts.seen["sub-steps"] += 1
            if not over and agent == raw.possible_agents[-1]:
                count_events(raw, raw.terminations, raw.truncations, counts)
        assert ours.agents == theirs.agents == [], where
        counts.seen["episodes, AEC"] += 1


def _same_turn(ours: Any, theirs: Any, where: str, counts: Counts) -> None:
    raw = theirs.unwrapped  # the wrappers forward what they have not; that is slow
    assert ours.agents == raw.agents, where
    assert ours.num_agents == raw.num_agents, where
    assert ours.agent_selection == raw.agent_selection, where
    same_rewards(ours.rewards, raw.rewards, f"{where} rewards", counts)
    mine, their = ours.unwrapped._cumulative_rewards, raw._cumulative_rewards
    same_rewards(mine, their, f"{where} cumulative rewards", counts)
    same_flags(ours.terminations, raw.terminations, f"{where} terminations")
    same_flags(ours.truncations, raw.truncations, f"{where} truncations")
    same_infos(ours.infos, raw.infos, f"{where} infos", counts)
    last, last_there = ours.last(), theirs.last()
    same_array(last[0], last_there[0], f"{where} last() observation")
    same_number(last[1], last_there[1], f"{where} last() reward", counts)
    assert last[2:4] == last_there[2:4], where


def _move_curriculum(ours: Any, theirs: Any, episode: Episode, step: int) -> None:
    if step not in episode.stages:
        return
    stage = episode.stages[step]
    for env in (ours.unwrapped, theirs.unwrapped):
        if stage is None:
            env.advance_curriculum()
        else:
            env.set_curriculum_stage(stage)
    assert ours.unwrapped.curriculum_stage == theirs.unwrapped.curriculum_stage


def count_events(
    raw: Any, terminations: Mapping[str, bool], truncations: Mapping[str, bool], counts: Counts
) -> None:
    """Count a world step and what happened in it, so that a test can say what it covered."""
    seen = counts.seen
    seen["steps"] += 1
    seen["terminated"] += any(terminations.values())
    seen["truncated"] += any(truncations.values())
    solid = [e for e in raw.world.entities if e.collide]
    if solid:
        at = np.array([e.state.p_pos for e in solid])
        size = np.array([e.size for e in solid])
        gaps = np.hypot(*(at[:, None] - at).T) - (size[:, None] + size)
        seen["steps with contacts"] += bool((gaps < 0).sum() > len(solid))
    seen["steps out of the square"] += any(
        max(a.state.p_pos.max(), -a.state.p_pos.min()) > 1 for a in raw.world.agents
    )


# Parameters ----------------------------------------------------------------------------------


def compile_variants(spec: EnvSpec, count: int) -> list[dict[str, Any]]:
    """Values of the compile-time parameters: the defaults, corners, then random ones.

    The same for everybody: each costs a compilation the first time.
    """
    params = {n: p for n, p in shared_params(spec).items() if p.at == "compile"}
    found: list[dict[str, Any]] = []
    for candidate in _candidates(params, random.Random(spec.id)):
        changed = {n: v for n, v in candidate.items() if v != params[n].default}
        if changed not in found and accepted(spec, changed):
            found.append(changed)
        if len(found) == count:
            break
    return found


def accepted(spec: EnvSpec, params: Mapping[str, Any]) -> bool:
    """Whether the values go together."""
    try:
        spec.resolve(params)
    except ValueError:
        return False
    return True


def _candidates(params: Mapping[str, Param], rng: random.Random) -> Iterator[dict[str, Any]]:
    sizes = [n for n, p in params.items() if p.type is int and not p.optional]
    limits = [n for n, p in params.items() if p.optional]
    switches = [n for n, p in params.items() if p.type is bool]
    yield {}
    yield {**dict.fromkeys(switches, True), **dict.fromkeys(limits, 1)}
    yield {**dict.fromkeys(switches, True), **dict.fromkeys(limits, 12)}
    for name in sizes:
        yield {name: least(params[name]), **{s: rng.random() < 0.5 for s in switches}}
    if sizes:
        yield {sizes[0]: least(params[sizes[0]]) + 7}
    for _ in range(100):
        drawn = {n: draw_value(p, rng.randint, rng.random() < 0.5) for n, p in params.items()}
        if sum(drawn[n] != p.default for n, p in params.items()) > len(params) / 2:
            yield drawn


def least(param: Param) -> int:
    """The smallest accepted number."""
    return int(param.low if param.low is not None else 0)


def draw_value(param: Param, integer: Callable[[int, int], int], coin: bool) -> Any:
    """A small value of a compile-time parameter."""
    if param.type is bool or (param.optional and coin):
        return coin if param.type is bool else None
    high = least(param) + (6 if param.optional else 4)
    return integer(least(param), min(high, int(param.high or high)))
