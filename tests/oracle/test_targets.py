"""simple_formation and simple_line: scores of places worked out by hand, and where targets lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from oracle.episodes import original

import gpu_zoo
from gpu_zoo import VectorEnv

Array = npt.NDArray[np.float64]
Targets = Callable[[Array, int], Array]

RADIUS, LENGTH, CLOSE = 0.5, 1.25, 0.05
SIZES = (1, 2, 4, 7, 9)  # 7 and 9: matched along paths, 9 in the block shape


def circle(landmarks: Array, n: int) -> Array:
    """The targets while the smallest angle of an agent is 20 degrees."""
    angle = np.radians(20) + 2 * np.pi * np.arange(n) / n
    return np.asarray(landmarks[0] + RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1))


def line(landmarks: Array, n: int) -> Array:
    """The targets: the ends are the landmarks; a single agent goes to the first."""
    return np.asarray(np.linspace(landmarks[0], landmarks[1], n) if n > 1 else landmarks[:1])


over_environments = pytest.mark.parametrize(
    ("env_id", "targets"),
    [
        pytest.param("mpe/simple_formation_v1", circle, id="formation"),
        pytest.param("mpe/simple_line_v1", line, id="line"),
    ],
)


class Trio:
    """An environment in both numerics and in mpe2, with the same landmarks."""

    def __init__(self, env_id: str, n: int, terminate_on_success: bool = False) -> None:
        params = {"N": n, "terminate_on_success": terminate_on_success}
        spec = gpu_zoo.spec(env_id)
        self._theirs = original(spec).parallel_env(**params)
        self._theirs.reset(seed=8)
        self._agents = self._theirs.possible_agents
        self._world = self._theirs.unwrapped.world
        self.landmarks = np.array([body.state.p_pos for body in self._world.landmarks])
        modes: Any = ("fast", "reference")
        self._ours = [VectorEnv(spec, 1, numerics=mode, **params) for mode in modes]

    def score(self, places: Array) -> list[tuple[float, bool]]:
        """Put the agents there for a step: rewards and terminations, of each the first and last."""
        said: list[Any] = []
        for env in self._ours:
            env.reset(seed=0)
            state = env.get_state()
            at = {"pos": places, "vel": np.zeros_like(places), "landmark": self.landmarks}
            if "target" in state:
                at["target"] = line(self.landmarks, len(places))
            env.set_state({name: at[name][None].astype(state[name].dtype) for name in at})
            said.append(env.step({agent: np.zeros(1, int) for agent in self._agents}))
        self._theirs.reset(seed=8)
        for body, place in zip(self._world.agents, places, strict=True):
            body.state.p_pos = place.copy()
        said.append(self._theirs.step(dict.fromkeys(self._agents, 0)))
        return [
            (float(np.squeeze(rewards[agent])), bool(np.squeeze(ended[agent])))
            for _, rewards, ended, *_ in said
            for agent in (self._agents[0], self._agents[-1])
        ]


@over_environments
@pytest.mark.parametrize("n", SIZES)
def test_all_but_one_at_their_targets(env_id: str, targets: Targets, n: int) -> None:
    """In any order; the one is a little farther out."""
    ending, going_on = Trio(env_id, n, terminate_on_success=True), Trio(env_id, n)
    there = targets(ending.landmarks, n)
    outwards = there[-1] - ending.landmarks[0]
    length = np.linalg.norm(outwards)
    outwards = outwards / length if length else np.array([1.0, 0.0])
    order = np.random.default_rng(n).permutation(n)
    for gap in (0.0, 0.8 * CLOSE, 1.2 * CLOSE, 0.1, 3.0):
        places = there + gap * outwards * (np.arange(n) == n - 1)[:, None]
        for reward, ended in ending.score(places[order]):
            assert reward == pytest.approx(-min(gap, 2) / n, abs=1e-6)
            assert ended == (gap < CLOSE)
        assert not any(ended for _, ended in going_on.score(places[order]))


def test_the_summed_distance_counts_and_not_who_is_nearest() -> None:
    """On the line from 0 to 1, agents at 0.6 and 1.5: matched to 0 and 1 the sum is 0.6 + 0.5."""
    trio = Trio("mpe/simple_line_v1", 2)
    first, second = trio.landmarks
    places = first + np.array([[0.6], [1.5]]) * (second - first)
    for reward, _ in trio.score(places):
        assert reward == pytest.approx(-LENGTH * (0.6 + 0.5) / 2, abs=1e-6)


def test_the_circle_starts_at_the_smallest_angle() -> None:
    """Agents at 300, 10 and 150 degrees; targets at 250, 10 and 130."""
    trio = Trio("mpe/simple_formation_v1", 3)
    angles = np.radians([300, 10, 150])
    places = trio.landmarks[0] + RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gaps = 2 * RADIUS * np.sin(np.radians([50 / 2, 0, 20 / 2]))
    for reward, _ in trio.score(places):
        assert reward == pytest.approx(-gaps.sum() / 3, abs=1e-6)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("numerics", ["fast", "reference"])
def test_targets_on_the_line(numerics: Any, n: int) -> None:
    env = VectorEnv(gpu_zoo.spec("mpe/simple_line_v1"), 1000, N=n, numerics=numerics)
    env.reset(seed=5)
    state = env.get_state()
    for landmarks, found in zip(state["landmark"], state["target"], strict=True):
        np.testing.assert_allclose(found, line(landmarks, n), rtol=0, atol=1e-6)


@pytest.mark.parametrize("numerics", ["fast", "reference"])
def test_the_line_has_its_length_and_lies_in_the_square(numerics: Any) -> None:
    env = VectorEnv(gpu_zoo.spec("mpe/simple_line_v1"), 20_000, numerics=numerics)
    env.reset(seed=4)
    first, second = np.moveaxis(env.get_state()["landmark"], 1, 0)
    assert np.allclose(np.linalg.norm(second - first, axis=-1), LENGTH, rtol=0, atol=1e-6)
    assert np.all(np.abs(second) < 1)
    angle = np.arctan2(*(second - first).T[::-1])
    assert np.all(np.histogram(angle, 24, (-np.pi, np.pi))[0] > 20)  # in every direction
