"""The nearest of few and of thousands, found in a grid, against looking at all pairs.

Through the observations of tag in the plane, which show the nearest in order. The brute force adds
and multiplies in float32 as the kernel does, so that it agrees on ties to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_zoo

Array = npt.NDArray[Any]
LENGTH = 10.0


def make(agents: int, observed: int, **settings: Any) -> gpu_zoo.VectorEnv:
    taggers = max(1, agents // 10)
    return gpu_zoo.make_vec(
        "warpdrive/tag_continuous_v0",
        3,
        num_taggers=taggers,
        num_runners=agents - taggers,
        use_full_observation=False,
        num_other_agents_observed=observed,
        grid_length=LENGTH,
        **settings,
    )


def scattered(agents: int, rng: np.random.Generator) -> Array:
    return rng.uniform(0, LENGTH, (agents, 2))


def on_a_lattice(agents: int, rng: np.random.Generator) -> Array:
    """Many are equally far, and some stand on cells' borders."""
    return rng.integers(0, 9, (agents, 2)) * (LENGTH / 8)


def in_a_corner(agents: int, rng: np.random.Generator) -> Array:
    """One cell holds all but a few, who are far from everybody."""
    places = LENGTH - np.abs(rng.normal(0, 1e-3, (agents, 2))).clip(0, LENGTH)
    places[::7] = rng.uniform(0, LENGTH, places[::7].shape)
    return places


def all_together(agents: int, rng: np.random.Generator) -> Array:
    return np.full((agents, 2), LENGTH / 3)


def nearest(places: Array, present: Array, observed: int) -> Array:
    """Who is nearest to each agent, in order; -1 where there are fewer. By all pairs."""
    ids = np.arange(len(places))
    found = np.full((len(places), observed), -1)
    for i in ids:
        offset = places - places[i]
        distance = offset[:, 0] * offset[:, 0] + offset[:, 1] * offset[:, 1]
        others = ids[(ids != i) & present]
        order = others[np.lexsort((others, distance[others]))][:observed]
        found[i, : len(order)] = order
    return found


def seen(env: gpu_zoo.VectorEnv, index: int, observed: int) -> tuple[Array, Array]:
    """The differences in x and y that each agent of an environment observes."""
    rows = np.concatenate([group.observations[index] for group in env.group.values()])
    return rows[:, :observed], rows[:, observed : 2 * observed]


@pytest.mark.parametrize("crowd", [scattered, on_a_lattice, in_a_corner, all_together])
@pytest.mark.parametrize(
    ("agents", "observed", "build", "shape"),
    [
        (2, 1, "plain", None),
        (33, 32, "plain", None),  # all that there are
        (110, 10, "plain", None),
        (110, 10, "reversed", None),  # which keeps them as a GPU does
        (110, 37, "reversed", "spread"),  # more than a thread keeps at a time
        pytest.param(1100, 10, "plain", None, marks=pytest.mark.slow),  # in several blocks
        pytest.param(5000, 10, "plain", None, marks=pytest.mark.slow),
    ],
)
def test_the_nearest_are_those_of_all_pairs(
    crowd: Any, agents: int, observed: int, build: str, shape: str | None
) -> None:
    rng = np.random.default_rng(agents)
    env = make(agents, observed, build=build, shape=shape)
    env.reset(seed=0)
    places = np.stack([crowd(agents, rng) for _ in range(3)]).astype(np.float32)
    present = np.ones((3, agents), np.uint8)
    present[1] = rng.random(agents) < 0.8  # some have left
    present[2] = np.arange(agents) < 2  # nearly all
    env.set_state({"x": places[..., 0].copy(), "y": places[..., 1].copy(), "seen": present})
    scale = np.float32(1) / np.float32(LENGTH * 2**0.5)
    for index in range(3):
        who = nearest(places[index], present[index] > 0, observed)
        here = np.where(who < 0, np.arange(agents)[:, None], who)
        for got, axis in zip(seen(env, index, observed), (0, 1), strict=True):
            scaled = places[index, :, axis] * scale
            want = scaled[here] - scaled[:, None]
            want[present[index] == 0] = 0  # who has left sees nothing
            np.testing.assert_array_equal(got, want)


def test_time_grows_with_the_agents_and_not_with_their_square() -> None:
    """Counted, not timed: how many candidates a search looks at hardly depends on the agents."""
    looked_at = {agents: _candidates(agents) for agents in (100, 1000, 4000)}
    assert looked_at[4000] < 1.5 * looked_at[100]


def _candidates(agents: int) -> float:
    """Agents in the 3 x 3 cells around an agent, on average, by the spec's own cell size."""
    spec = gpu_zoo.spec("warpdrive/tag_continuous_v0")
    params = {"num_taggers": agents // 10, "num_runners": agents - agents // 10}
    values = spec.resolve(
        {**params, "use_full_observation": False, "num_other_agents_observed": 10}
    )
    side = spec.scope(values)["GRID_SIDE"]
    assert isinstance(side, int)
    return 9 * agents / side**2
