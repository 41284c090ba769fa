"""The plain rules of WarpDrive's environments, on cases worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from oracle.warpdrive_rules import catalyst_search, tag_continuous, tag_gridworld

STAY = (0, 0)  # in tag_continuous: neither accelerate nor turn
EAST, NORTH, WEST, SOUTH = 0.0, math.pi / 2, math.pi, 3 * math.pi / 2


def tag(
    places: list[tuple[float, float]], facing: float = EAST, **params: Any
) -> tag_continuous.Rules:
    """A game on a square of side 8 with a margin of 1 and one acceleration, 1/4."""
    defaults = {
        "num_runners": len(places) - params.get("num_taggers", 1),
        "grid_length": 8.0,
        "tagging_distance": 0.125,
        "min_acceleration": 0.25,
        "num_acceleration_levels": 1,
    }
    rules = tag_continuous.Rules(**(defaults | params))
    x, y = np.array(places).T
    rules.reset({"x": x, "y": y, "direction": np.full(len(places), facing)})
    return rules


def stay(rules: tag_continuous.Rules, **actions: Any) -> Any:
    """A step in which all agents but those named do nothing."""
    return rules.step(dict.fromkeys(rules.names, STAY) | actions)


# tag_continuous ----------------------------------------------------------------------------------


def test_action_tables() -> None:
    assert tag_continuous.table(-1, 1, 0) == [0]
    assert tag_continuous.table(-1, 1, 1) == [0, -1]
    assert tag_continuous.table(-1, 1, 3) == [0, -1, 0, 1]


def test_one_tagger_tags_two_runners_at_once_and_ends_the_game() -> None:
    rules = tag(
        [(4, 4), (4, 4.5), (3.5, 4)],
        tag_reward_for_tagger=3,
        tag_penalty_for_runner=-2,
        step_penalty_for_tagger=-0.5,
        step_reward_for_runner=0.25,
    )
    observations, got, ended = stay(rules)
    assert got == {"tagger_0": -0.5 + 3 + 3, "runner_0": 0.25 - 2, "runner_1": 0.25 - 2}
    assert ended == {"tagger_0": True, "runner_0": True, "runner_1": True}
    assert observations["tagger_0"][-3:-1].tolist() == [1, 1]  # observed before the tagging


def test_the_first_of_two_equally_near_taggers_tags() -> None:
    # Both stand 0.5 from the runner.
    _, got, _ = stay(tag([(4, 4), (3, 4), (3.5, 4)], num_taggers=2))
    assert got == {"tagger_0": 1, "tagger_1": 0, "runner_0": -1}


@pytest.mark.parametrize(("distance", "tagged"), [(1.0, False), (1 - 2**-50, True)])
def test_the_margin_itself_is_too_far(distance: float, tagged: bool) -> None:
    _, got, _ = stay(tag([(0, 4), (distance, 4)]))
    assert got["runner_0"] == -tagged


def test_acceleration_stays_on_until_full_speed() -> None:
    # 1/4 each step: speed 1/4, 1/2, 3/4, 1, where the acceleration ends.
    rules = tag([(0, 0), (1, 8)], max_speed=1.0)
    seen = []
    for action in [(1, 0), STAY, STAY, STAY, STAY]:
        stay(rules, tagger_0=action)
        seen.append((rules.x[0], rules.speed[0], rules.acceleration[0]))
    assert seen == [
        (0.25, 0.25, 0.25), (0.75, 0.5, 0.25), (1.5, 0.75, 0.25), (2.5, 1, 0), (3.5, 1, 0)
    ]  # fmt: skip


def test_braking_at_rest_does_nothing() -> None:
    rules = tag([(4, 4), (1, 8)], min_acceleration=-0.25)
    stay(rules, tagger_0=(1, 0))
    assert (rules.x[0], rules.speed[0], rules.acceleration[0]) == (4, 0, 0)


def test_skill_scales_the_top_speed() -> None:
    # Both would come to 1/4, which is above their limits, and so lose the acceleration.
    rules = tag([(0, 0), (0, 4)], skill_level_tagger=0.15, skill_level_runner=0.05)
    stay(rules, tagger_0=(1, 0), runner_0=(1, 0))
    assert (rules.x, rules.speed, rules.acceleration) == ([0.15, 0.05], [0.15, 0.05], [0, 0])


@pytest.mark.parametrize(
    ("facing", "turn", "after"),
    [(EAST, -math.pi / 2, SOUTH), (SOUTH, math.pi / 2, EAST), (EAST, math.pi / 2, NORTH)],
)
def test_directions_stay_within_a_turn(facing: float, turn: float, after: float) -> None:
    rules = tag([(4, 4), (1, 8)], facing=facing, min_turn=turn, num_turn_levels=1)
    stay(rules, tagger_0=(1, 1))
    assert rules.direction[0] == pytest.approx(after)
    assert rules.x[0] == pytest.approx(4 + 0.25 * (after == EAST))
    assert rules.y[0] == pytest.approx(4 + 0.25 * ((after == NORTH) - (after == SOUTH)))


@pytest.mark.parametrize(
    ("place", "facing", "after"),
    [
        ((7.5, 4), EAST, (8, 4)),
        ((4, 7.5), NORTH, (4, 8)),
        ((0.5, 4), WEST, (0, 4)),
        ((4, 0.5), SOUTH, (4, 0)),
    ],
)
def test_walls_stop_and_cost_but_do_not_slow_down(place: Any, facing: float, after: Any) -> None:
    # 1/2 from the wall: by 1/4; by 1/2, past it; on at 3/4.
    rules = tag([place, (1, 8)], facing=facing, edge_hit_penalty=-0.5)
    seen = []
    for action in [(1, 0), STAY, STAY]:
        _, got, _ = stay(rules, tagger_0=action)
        seen.append((rules.speed[0], got["tagger_0"]))
    assert seen == [(0.25, 0), (0.5, -0.5), (0.75, -0.5)]
    assert (rules.x[0], rules.y[0]) == pytest.approx(after)


def test_reaching_the_wall_exactly_is_no_hit() -> None:
    rules = tag([(7.75, 4), (1, 8)], edge_hit_penalty=-0.5)
    _, got, _ = stay(rules, tagger_0=(1, 0))
    assert (rules.x[0], got["tagger_0"]) == (8, 0)


def test_only_runners_still_in_the_game_get_the_reward_at_its_end() -> None:
    rules = tag([(4, 4), (4, 4.5), (0, 0)], episode_length=1, end_of_game_reward_for_runner=5)
    _, got, ended = stay(rules)
    assert got == {"tagger_0": 1, "runner_0": -1, "runner_1": 5}
    assert ended == {"tagger_0": False, "runner_0": True, "runner_1": False}


def test_runners_that_stay_are_tagged_again_and_never_end() -> None:
    rules = tag([(4, 4), (4, 4.5)], episode_length=2, runner_exits_game_after_tagged=False)
    for end_reward in (0, 1):
        _, got, ended = stay(rules)
        assert got == {"tagger_0": 1, "runner_0": -1 + end_reward}
        assert ended == {"tagger_0": False, "runner_0": False}


def test_full_observation_and_the_slots_of_a_tagged_runner() -> None:
    # runner_0 moves from (4, 4.5) to (4, 4.75) and is tagged there; runner_1 looks from (0, 0).
    rules = tag([(4, 4), (4, 4.5), (0, 0)], facing=NORTH, episode_length=4)
    before, _, _ = stay(rules, runner_0=(1, 0))
    after, got, _ = stay(rules)
    assert set(after) == set(got) == {"tagger_0", "runner_1"}
    diagonal = 8 * math.sqrt(2)
    others = {  # of tagger_0 and runner_0, as runner_1 sees them
        "dx": [4 / diagonal, 4 / diagonal],
        "dy": [4 / diagonal, 4.75 / diagonal],
        "dspeed": [0, 0.25],
        "dacceleration": [0, 0.25],
        "ddirection": [0, 0],
        "type": [1, 0],
        "alive": [1, 1],
    }
    assert before["runner_1"] == pytest.approx([*np.concatenate([*others.values()]), 1 / 4])
    # It stays, at rest, facing 0, which is a quarter turn back from north.
    others |= {"dspeed": [0, 0], "dacceleration": [0, 0], "ddirection": [0, -1 / 4]}
    others |= {"alive": [1, 0]}
    assert after["runner_1"] == pytest.approx([*np.concatenate([*others.values()]), 2 / 4])


def test_nearest_neighbours_in_order_of_distance_then_of_number() -> None:
    # From the tagger: runner_0 at 2, runner_1 at 1, runner_2 at 1.
    places = [(4.0, 4.0), (4.0, 6.0), (5.0, 4.0), (3.0, 4.0)]
    rules = tag(places, use_full_observation=False, num_other_agents_observed=4)
    seen = stay(rules)[0]["tagger_0"].reshape(-1)
    diagonal = 8 * math.sqrt(2)
    assert len(seen) == 7 * 4 + 1
    assert seen[:8] == pytest.approx(np.array([1, -1, 0, 0, 0, 0, 2, 0]) / diagonal)
    assert seen[20:-1].tolist() == [0, 0, 0, 0, 1, 1, 1, 0]  # types; alive, and a slot left over


def test_tagged_runners_are_nobodys_neighbours() -> None:
    # The margin is 2: runner_1 is out after the first step, runner_0 is not.
    places = [(4.0, 4.0), (4.0, 6.0), (5.0, 4.0)]
    rules = tag(
        places, tagging_distance=0.25, use_full_observation=False, num_other_agents_observed=1
    )
    first, second = stay(rules)[0]["tagger_0"], stay(rules)[0]["tagger_0"]
    diagonal = 8 * math.sqrt(2)
    assert first[:2] == pytest.approx([1 / diagonal, 0])
    assert second[:2] == pytest.approx([0, 2 / diagonal])


# tag_gridworld -----------------------------------------------------------------------------------


def grid(places: list[tuple[int, int]], **params: Any) -> tuple[tag_gridworld.Rules, Any]:
    """A game on 0 to 4 with 8 steps, and its first observations."""
    defaults = {"num_taggers": len(places) - 1, "grid_length": 4, "episode_length": 8}
    rules = tag_gridworld.Rules(**(defaults | params))
    x, y = np.array(places).T
    return rules, rules.reset({"x": x, "y": y})


@pytest.mark.parametrize(
    ("places", "actions", "got"),
    [
        # Into the runner's cell: both taggers get it. The runner stays.
        ([(1, 1), (4, 4), (2, 1)], (1, 0, 0), (10, 10, -2)),
        ([(4, 4), (1, 1), (2, 1)], (0, 1, 0), (10, 10, -2)),
        # Through each other: no tag, a step's cost.
        ([(1, 1), (4, 4), (2, 1)], (1, 0, 2), (-0.01, -0.01, 0.01)),
        # 4 is inside, 5 and -1 are not.
        ([(3, 0), (4, 4), (0, 2)], (1, 3, 2), (-0.01, -0.01 - 0.1, 0.01 - 0.1)),
        # Against the wall, and tagged there.
        ([(0, 1), (4, 4), (0, 0)], (4, 0, 2), (10, 10, -2 - 0.1)),
    ],
)
def test_grid_rewards(places: Any, actions: Any, got: Any) -> None:
    rules, _ = grid(places)
    names = ["tagger_0", "tagger_1", "runner_0"]
    _, rewards, ended = rules.step(dict(zip(names, actions, strict=True)))
    assert rewards == dict(zip(names, got, strict=True))
    assert ended == dict.fromkeys(names, got[0] > 0)


def test_grid_full_observation() -> None:
    # x, y, type and self of both, and the time.
    rules, first = grid([(2, 3), (0, 1)])
    assert first["tagger_0"].tolist() == [0.5, 0, 0.75, 0.25, 0, 1, 1, 0, 0]
    then, _, _ = rules.step({"tagger_0": 4, "runner_0": 1})
    assert then["runner_0"].tolist() == [0.5, 0.25, 0.5, 0.25, 0, 1, 0, 1, 1 / 8]


def test_grid_partial_observation() -> None:
    # tagger_1 and tagger_2 are equally near the runner, until tagger_1 moves away.
    rules, first = grid([(4, 4), (2, 1), (1, 2), (1, 1)], use_full_observation=False)
    assert first["runner_0"].tolist() == [0.25, 0.25, 0.5, 0.25, 1, 0]
    assert first["tagger_0"].tolist() == [1, 1, 0.25, 0.25, 0, 0]
    then, _, _ = rules.step(dict.fromkeys(rules.names, 0) | {"tagger_1": 1})
    assert then["runner_0"].tolist() == [0.25, 0.25, 0.25, 0.5, 1, 1 / 8]


# catalyst_search ---------------------------------------------------------------------------------


def search(start: list[int], goal: list[int], energies: Any = None) -> catalyst_search.Rules:
    """A grid of 4 x 3 x 5 cells of energy 0 but where said otherwise, with heights 1 to 3."""
    num_atoms = len(start) // 3
    en_array = np.zeros((4, 3, 3) * num_atoms)
    for cell, energy in (energies or {}).items():
        en_array[cell] = energy
    rules = catalyst_search.Rules(
        en_array=en_array, nx=4, ny=3, nz=5, z_slab_lower=1, z_slab_upper=4, num_atoms=num_atoms,
        initial_state=start, final_state=goal, ienergy=-5.0, max_denergy=20.0,
    )  # fmt: skip
    rules.reset({"position": np.array(start)})
    return rules


def walk(rules: catalyst_search.Rules, *actions: Any) -> list[tuple[list[int], float, bool]]:
    """Position, reward and end after each action."""
    seen = []
    for action in actions:
        _, got, ended = rules.step({"agent_0": action})
        seen.append((rules.position, got["agent_0"], ended["agent_0"]))
    return seen


@pytest.mark.parametrize(
    ("energy", "reward"),
    [(0, -0.25), (3, -0.4), (40, -1), (-10, 0)],  # (-5 - energy) / 20 from -1 to 0
)
def test_energy_is_the_cost_of_a_move(energy: float, reward: float) -> None:
    rules = search([0, 0, 1], [3, 2, 1], {(1, 0, 0): energy})
    assert walk(rules, 0) == [([1, 0, 1], reward, False)]


def test_all_six_moves_and_the_wrap_around() -> None:
    rules = search([3, 0, 2], [1, 1, 2])
    seen = [position for position, _, _ in walk(rules, 0, 1, 2, 3, 3, 2, 4, 5)]
    assert seen == [
        [0, 0, 2], [3, 0, 2], [3, 1, 2], [3, 0, 2], [3, 2, 2], [3, 0, 2], [3, 0, 3], [3, 0, 2]
    ]  # fmt: skip


def test_the_goal_pays_and_ends() -> None:
    assert walk(search([0, 0, 1], [1, 0, 1]), 0) == [([1, 0, 1], -0.25 + 10, True)]


def test_an_atom_at_its_goals_height_may_leave_the_slab_at_full_cost() -> None:
    # Down to 0, sideways, down and round to 4, and down again into the slab.
    seen = walk(search([0, 0, 1], [3, 2, 1]), 5, 0, 5, 5)
    assert seen == [
        ([0, 0, 0], -1, False), ([1, 0, 0], -1, False), ([1, 0, 4], -1, False),
        ([1, 0, 3], -0.25, False),
    ]  # fmt: skip


def test_else_a_move_out_of_the_slab_does_not_happen() -> None:
    assert walk(search([0, 0, 1], [3, 2, 2]), 5) == [([0, 0, 1], -1, False)]
    assert walk(search([0, 0, 3], [3, 2, 2]), 4) == [([0, 0, 3], -1, False)]
    # Two atoms never leave it, though both begin at their goals' heights.
    two = search([0, 0, 1, 2, 2, 3], [1, 0, 1, 3, 2, 3])
    assert walk(two, (0, 5), (1, 4)) == [([0, 0, 1, 2, 2, 3], -1, False)] * 2


def test_distances_are_straight_lines_in_units_of_the_first() -> None:
    # The goal is 1 cell away; after going round, 2 cells: |3 - 1|.
    rules = search([0, 0, 1], [1, 0, 1])
    assert rules.step({"agent_0": 1})[0]["agent_0"].tolist() == [0.75, 0, 0.2, 2]


def test_two_atoms_may_meet_and_both_must_arrive() -> None:
    # The energy of both in one cell is 11: (-5 - 11) / 20.
    rules = search([0, 0, 1, 1, 0, 1], [1, 0, 1, 1, 0, 2], {(1, 0, 0, 1, 0, 0): 11})
    seen = walk(rules, (0, 0), (1, 4))
    assert seen == [([1, 0, 1, 1, 0, 1], -0.8, False), ([1, 0, 1, 1, 0, 2], -0.25 + 10, True)]
    first = rules.reset({"position": np.array([0, 0, 1, 1, 0, 1])})["agent_0"]
    assert first.tolist() == [0, 0, 0.2, 0.25, 0, 0.2, 1, 1]


def test_an_energy_table_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(4, 3, 2\), not \(4, 3, 3\)"):
        catalyst_search.Rules(
            en_array=np.zeros((4, 3, 2)), nx=4, ny=3, nz=5, z_slab_lower=1, z_slab_upper=4,
            initial_state=[0, 0, 1], final_state=[1, 0, 1],
        )  # fmt: skip
