"""Tables of energies: a user's own, and the one that comes with the package."""

from __future__ import annotations

import heapq
from pathlib import Path

import numpy as np
import pytest
from cases import CATALYST_TWO
from oracle.warpdrive_rules.catalyst_search import Rules

import gpu_zoo
from gpu_zoo.testing.reference import check_reference
from gpu_zoo.warpdrive import catalyst_search_v0 as catalyst

ID = "warpdrive/catalyst_search_v0"
PLACE = tuple[int, ...]


@pytest.mark.parametrize("params", [{}, CATALYST_TWO], ids=["one atom", "two atoms"])
def test_energies_of_ones_own(params: dict[str, object], tmp_path: Path) -> None:
    spec = gpu_zoo.spec(ID)
    path = str(tmp_path / "energies.npy")
    shape = catalyst.energy_shape(spec.resolve(params))
    np.save(path, np.random.default_rng(0).uniform(-3, 22, shape))
    check_reference(spec, {**params, "energy": path}, rules=_rules)


def _rules(**params: object) -> Rules:
    del params["render_mode"]
    return Rules(**params)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", catalyst.CONFIGS)
def test_warpdrives_configurations(name: str) -> None:
    envs = gpu_zoo.make_vec(ID, 2, **catalyst.CONFIGS[name])
    observations, _ = envs.reset(seed=0)
    atoms = 2 if name.startswith("two") else 1
    assert observations["agent_0"].shape == (2, 4 * atoms)
    assert (observations["agent_0"][:, 3 * atoms :] == 1).all()


def test_the_made_up_energies_make_a_search() -> None:
    """The straight way costs more than the cheapest, which is longer; nothing is free."""
    values = gpu_zoo.spec(ID).resolve({})
    energies = catalyst.load_energy(values)
    cost = np.minimum(energies / 20, 1)
    assert energies.min() > 0.999
    start, goal = (6, 0, 3), (0, 0, 0)
    straight = [(x, 0, 3) for x in range(5, -1, -1)] + [(0, 0, z) for z in (2, 1, 0)]
    cheapest, moves = _cheapest(cost, start, goal)
    assert moves > len(straight)
    assert cheapest < 0.9 * sum(cost[place] for place in straight)


def _cheapest(cost: np.ndarray, start: PLACE, goal: PLACE) -> tuple[float, int]:
    """Dijkstra's: the least cost of a way, and how many moves it has."""
    queue, seen = [(0.0, 0, start)], set()
    while queue:
        total, moves, place = heapq.heappop(queue)
        if place == goal:
            return total, moves
        if place in seen:
            continue
        seen.add(place)
        for axis in range(3):
            for way in (1, -1):
                to = list(place)
                to[axis] += way
                if axis == 2 and not 0 <= to[2] < cost.shape[2]:
                    continue
                to[axis] %= cost.shape[axis]
                heapq.heappush(queue, (total + cost[tuple(to)], moves + 1, tuple(to)))
    raise AssertionError("no way")
