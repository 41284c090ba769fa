"""Tag on a grid: taggers chase one runner from cell to cell.

``env``, ``raw_env`` and ``parallel_env`` have PettingZoo's interfaces; WarpDrive's own class is
``TagGridWorld``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from gpu_zoo.render import RENDER_MODE
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice, Value
from gpu_zoo.warpdrive import params as warpdrive
from gpu_zoo.wrappers.pettingzoo import drop_in

LOCATIONS = ("starting_location_x", "starting_location_y")
OBSERVATION = {
    "x": Slice("N_LISTED", "in full: x of all agents, over grid_length", low=0, high=1),
    "y": Slice("N_LISTED", "in full: y likewise", low=0, high=1),
    "own_place": Slice("N_PAIRED", "else: own x and y, over grid_length", low=0, high=1),
    "other_place": Slice(
        "N_PAIRED", "else: those of the runner; for the runner, of the nearest tagger",
        low=0, high=1,
    ),
    "type": Slice(
        "max(1, N_LISTED)", "1 for the runner, 0 for a tagger: all agents, or oneself",
        low=0, high=1,
    ),
    "is_self": Slice("N_LISTED", "in full: 1 for oneself", low=0, high=1),
    "time": Slice(1, "steps of the episode, over episode_length", low=0, high=1),
}  # fmt: skip
ACTIONS = Actions(("no_action", "right", "left", "up", "down"))


def _check(values: Mapping[str, Value]) -> None:
    agents = cast(int, values["num_taggers"]) + 1
    length = cast(int, values["grid_length"])
    given = {name: values[name] for name in LOCATIONS if values[name] is not None}
    if len(given) == 1:
        raise ValueError(f"{', '.join(LOCATIONS)}: expected both or neither")
    for name, places in given.items():
        places = cast("tuple[float, ...]", places)
        if len(places) != agents:
            raise ValueError(
                f"{name}: {len(places)} numbers, expected {agents}, one an agent, the runner last"
            )
        for place in places:
            if place not in range(length + 1):
                raise ValueError(
                    f"{name}: {place:g}, expected whole numbers from 0 to grid_length={length}"
                )


def _starts(values: Mapping[str, Value]) -> dict[str, Any] | None:
    """The one start of all episodes, if it is given."""
    if values["starting_location_x"] is None:
        return None
    places = (cast("tuple[float, ...]", values[name]) for name in LOCATIONS)
    return {field: np.array([row], np.int32) for field, row in zip("xy", places, strict=True)}


SPEC = EnvSpec(
    id="warpdrive/tag_gridworld_v0",
    kernel="warpdrive/tag_gridworld_v0.cu",
    summary="Taggers chase one runner from cell to cell of a grid.",
    params={
        "num_taggers": Param(10, "number of taggers", at="compile", low=1),
        "grid_length": Param(
            10, "the greatest coordinate: both run from 0 to it", low=2, high=30_000
        ),
        "episode_length": warpdrive.EPISODE_LENGTH,
        "starting_location_x": Param(
            None, "where every episode starts: x, one an agent, the runner last",
            at="host", kind=tuple, optional=True,
        ),
        "starting_location_y": Param(None, "y likewise", at="host", kind=tuple, optional=True),
        "fixed_start": Param(
            False, "start as WarpDrive does: taggers in the middle, the runner in the corner"
        ),
        "wall_hit_penalty": Param(0.1, "what running into the wall costs", low=0),
        "tag_reward_for_tagger": Param(10.0, "reward of all taggers for the tag", low=0),
        "tag_penalty_for_runner": Param(2.0, "what the tag costs the runner", low=0),
        "step_cost_for_tagger": Param(
            0.01, "what a step without a tag costs a tagger, and gives the runner", low=0
        ),
        "use_full_observation": Param(
            True, "observe all agents instead of oneself and one other", at="compile"
        ),
        "render_mode": RENDER_MODE,
    },
    groups=(
        Group("tagger", "num_taggers", OBSERVATION, (ACTIONS,)),
        Group("runner", 1, OBSERVATION, (ACTIONS,)),
    ),
    constants={
        "N_LISTED": "num_taggers + 1 if use_full_observation else 0",
        "N_PAIRED": "0 if use_full_observation else 2",
    },
    state={
        "x": Field("i32", ("num_taggers + 1",), "cell, from 0 to grid_length"),
        "y": Field("i32", ("num_taggers + 1",), "cell, from 0 to grid_length"),
        "at_wall": Field("u8", ("num_taggers + 1",), "ran into the wall in this step"),
    },
    scratch={
        "nearest": Field("u64", (), "the runner's nearest tagger: squared distance, number"),
        "tagged": Field("i32", (), "whether a tagger is in the runner's cell"),
    },
    starts=_starts,
    check=_check,
    reward=(
        "taggers: `tag_reward_for_tagger` each if any of them is in the runner's cell after the "
        "step, else less `step_cost_for_tagger`; runner: less `tag_penalty_for_runner`, else "
        "`step_cost_for_tagger`; all: less `wall_hit_penalty` for running into the wall"
    ),
    ends="for all when the runner is tagged",
    time_limit="episode_length",
    timeout_wins=False,
    render="gpu_zoo.render.warpdrive:draw_gridworld",
    reference=warpdrive.REFERENCE,
    notes=(
        "Every episode starts in a new random state, as in WarpDrive's variant with a pool: the "
        "taggers anywhere but at the wall, the runner in the corner (0, 0). With `fixed_start`, or "
        "the starting locations, all start alike, as in WarpDrive.",
        "WarpDrive's `seed` changes nothing in its rules, and is no parameter here.",
        "Only who is in the runner's cell after the step tags it: to change places does not count.",
        "Observations are taken after moving. Of several nearest taggers the runner observes the "
        "first.",
        "A runner that is tagged at the time limit is terminated and truncated; in WarpDrive both "
        "are `done`.",
    ),
    history=(f"v0: first version here; follows {warpdrive.REFERENCE}",),
)  # fmt: skip

raw_env, env, parallel_env = drop_in(SPEC)
