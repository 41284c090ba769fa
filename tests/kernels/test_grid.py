"""The nearest of few and of thousands, found in a grid, against looking at all pairs.

Through the observations of tag in the plane, which show the nearest in order. The brute force adds
and multiplies in float32 as the kernel does, so that it agrees on ties to the last bit.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_zoo
from gpu_zoo.compile import KERNELS, build_host

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


def test_who_is_outside_or_nowhere_harms_nobody() -> None:
    """A user may put agents anywhere; the others are found as ever, and so are those outside."""
    rng = np.random.default_rng(1)
    for build in ("plain", "reversed"):
        env = make(60, 5, build=build)
        env.reset(seed=0)
        places = rng.uniform(0, LENGTH, (3, 60, 2)).astype(np.float32)
        places[0, :9] = rng.uniform(-LENGTH, 2 * LENGTH, (9, 2))
        places[1, :4] = [[-1e8, 1], [3e12, 2], [1, -1e30], [5, 1e30]]
        places[2, :3] = [[np.nan, 1], [np.inf, 1], [1, -np.inf]]
        state = {"x": places[..., 0].copy(), "y": places[..., 1].copy()}
        env.set_state(state)
        scale = np.float32(1) / np.float32(LENGTH * 2**0.5)
        for index in (0, 1):
            who = nearest(places[index], np.ones(60, np.bool_), 5)
            scaled = places[index, :, 0] * scale
            got = seen(env, index, 5)[0]
            np.testing.assert_array_equal(got, scaled[who] - scaled[:, None])
        for group in env.group.values():
            group.actions[...] = 0
        env.step()


def test_a_cells_border_that_rounding_moves() -> None:
    """Of two at the same distance the first is nearer, though rounding puts it one cell further."""
    agents, side, cell = 330, np.float32(18), np.float32(14)
    lengths = np.random.default_rng(0).uniform(1, 40, 20_000).astype(np.float32)
    inside = np.nextafter(cell * (lengths / side), lengths, dtype=np.float32)
    moved = (inside * (side / lengths)).astype(int) < cell
    x = (cell + np.float32(1.25)) * (lengths / side)
    exact = (x + (x - inside)) - x == x - inside
    env = make(agents, 1)
    assert env.spec.scope(env.params)["GRID_SIDE"] == side
    found = np.flatnonzero(moved & exact)[:5]
    assert len(found)
    for k in found:
        env.set_param("grid_length", float(lengths[k]))
        env.reset(seed=0)
        places = np.full((3, agents, 2), lengths[k], np.float32)  # the others, in the far corner
        for agent, place in enumerate((inside[k], x[k], x[k] + (x[k] - inside[k]))):
            places[:, agent] = (place, 0)
        env.set_state({"x": places[..., 0].copy(), "y": places[..., 1].copy()})
        assert seen(env, 0, 1)[0][1, 0] < 0  # the one to the left


COUNT = """
#include "kernel"
extern "C" long looked_at(const float* x, const float* y, int n) {
    static int cells[SIDE * SIDE + 1], sums[GRID_CHUNKS], order[5000];
    static float near_x[5000], near_y[5000];
    const Grid grid{cells, sums, order, near_x, near_y, 10.0f};
    build_grid<SIDE>(grid, n, [](int) { return true; }, [&](int i) { return x[i]; },
                     [&](int i) { return y[i]; });
    looked = 0;
    for (int i = 0; i < n; ++i) nearest<SIDE, 10>(grid, i, x[i], y[i], nearer_than_all());
    return looked;
}
"""


@pytest.mark.parametrize("rolled", [False, True])
def test_a_search_looks_at_as_many_however_many_there_are(rolled: bool) -> None:
    """So time grows with the agents and not with their square."""
    looked = {agents: _looked_at(agents, rolled) for agents in (100, 1000, 4000)}
    assert looked[100] > 10  # a search finds ten
    assert looked[4000] < 1.5 * looked[100]


def _looked_at(agents: int, rolled: bool) -> float:
    """Distances worked out for a search, on average, in a grid with the spec's own cells."""
    spec = gpu_zoo.spec("warpdrive/tag_continuous_v0")
    params = {"num_taggers": agents // 10, "num_runners": agents - agents // 10}
    values = spec.resolve(
        {**params, "use_full_observation": False, "num_other_agents_observed": 10}
    )
    side = spec.scope(values)["GRID_SIDE"]
    head = "ZOO_FN Near near(real dx, real dy, int agent) {"
    text = (KERNELS / "zoo" / "grid.cuh").read_text()
    assert text.count(head) == 2  # of either numerics
    text = text.replace(head, f"static long looked;\n{head} looked += 1;")
    flags = "#define ZOO_LANE 0\n#define ZOO_REFERENCE 0\n#define ZOO_TEAM_BLOCKS 1\n"
    flags += "#define ZOO_BLOCK_TEAMS 1\n" + "#define ZOO_ROLLED\n" * rolled
    source = flags + f"constexpr int SIDE = {side};\n" + COUNT.replace('#include "kernel"', text)
    library = ctypes.CDLL(str(build_host(source, "count")))
    places = np.random.default_rng(0).uniform(0, LENGTH, (2, agents)).astype(np.float32)
    library.looked_at.restype = ctypes.c_long
    total = library.looked_at(
        ctypes.c_void_p(places[0].ctypes.data), ctypes.c_void_p(places[1].ctypes.data), agents
    )
    return int(total) / agents
