"""Tag in the plane: taggers chase runners over a square, and all steer like small cars.

``env``, ``raw_env`` and ``parallel_env`` have PettingZoo's interfaces; WarpDrive's own class is
``TagContinuous``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from gpu_zoo.render import RENDER_MODE
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice, Value
from gpu_zoo.warpdrive import params as warpdrive
from gpu_zoo.wrappers.pettingzoo import drop_in

PLACES = "one an agent, taggers first"
OBSERVATION = {
    "x": Slice("N_OBSERVED", "x of the others less own x, over the square's diagonal"),
    "y": Slice("N_OBSERVED", "y likewise"),
    "speed": Slice("N_OBSERVED", "their speed less own speed, over max_speed"),
    "acceleration": Slice("N_OBSERVED", "acceleration likewise"),
    "direction": Slice("N_OBSERVED", "their direction less own, in turns", low=-1, high=1),
    "type": Slice("N_OBSERVED", "1 for a tagger, 0 for a runner", low=0, high=1),
    "in_game": Slice("N_OBSERVED", "1 for an agent that is in the game", low=0, high=1),
    "time": Slice(1, "steps of the episode, over episode_length", low=0, high=1),
}
ACTIONS = Actions(
    ("acceleration", "turn"), choices=("num_acceleration_levels + 1", "num_turn_levels + 1")
)


def _check(values: Mapping[str, Value]) -> None:
    agents = cast(int, values["num_taggers"]) + cast(int, values["num_runners"])
    observed = cast(int, values["num_other_agents_observed"])
    if not values["use_full_observation"] and observed > agents:
        raise ValueError(
            f"num_other_agents_observed={observed}: expected at most {agents}, the agents"
        )
    for name in ("starting_location_x", "starting_location_y", "starting_directions"):
        given = cast("tuple[float, ...] | None", values[name])
        if given is None:
            continue
        if len(given) != agents:
            raise ValueError(f"{name}: {len(given)} numbers, expected {agents}, {PLACES}")
        most = 2 * math.pi if "direction" in name else cast(float, values["grid_length"])
        for number in given:
            if not 0 <= number <= most:
                raise ValueError(f"{name}: {number:g}, expected numbers from 0 to {most:g}")
    if (values["starting_location_x"] is None) != (values["starting_location_y"] is None):
        raise ValueError("starting_location_x, starting_location_y: expected both or neither")


def _starts(values: Mapping[str, Value]) -> dict[str, Any] | None:
    """The one start of all episodes: what is given, and with a seed the rest as WarpDrive draws it.

    WarpDrive draws which of its agents are taggers first; here they keep their order and come
    before the runners.
    """
    start = {} if values["seed"] is None else _drawn(values)
    for field, name in (
        ("x", "starting_location_x"),
        ("y", "starting_location_y"),
        ("direction", "starting_directions"),
    ):
        if values[name] is not None:
            start[field] = np.array(values[name], np.float32)
    return {field: row[None] for field, row in start.items()} or None


def _drawn(values: Mapping[str, Value]) -> dict[str, Any]:
    taggers = cast(int, values["num_taggers"])
    agents = taggers + cast(int, values["num_runners"])
    random = np.random.RandomState(cast(int, values["seed"]))
    chosen = random.choice(np.arange(agents), taggers, replace=False)
    drawn = {}
    if values["starting_location_x"] is None:
        length = np.float32(cast(float, values["grid_length"]))
        drawn = {"x": length * random.rand(agents), "y": length * random.rand(agents)}
    if values["starting_directions"] is None:
        quarters = [0, np.pi / 2, np.pi, np.pi * 3 / 2]
        drawn["direction"] = random.choice(quarters, agents, replace=True)
    order = np.concatenate([np.sort(chosen), np.setdiff1d(np.arange(agents), chosen)])
    return {field: row[order].astype(np.float32) for field, row in drawn.items()}


SPEC = EnvSpec(
    id="warpdrive/tag_continuous_v0",
    kernel="warpdrive/tag_continuous_v0.cu",
    summary="Taggers chase runners over a square, and all steer like small cars.",
    params={
        "num_taggers": Param(1, "number of taggers", at="compile", low=1),
        "num_runners": Param(10, "number of runners", at="compile", low=1),
        "grid_length": Param(10.0, "side of the square", low=1e-6),
        "episode_length": warpdrive.EPISODE_LENGTH,
        "starting_location_x": Param(
            None, f"where every episode starts: x, {PLACES}", at="host", kind=tuple, optional=True
        ),
        "starting_location_y": Param(None, "y likewise", at="host", kind=tuple, optional=True),
        "starting_directions": Param(
            None, "directions likewise, radians", at="host", kind=tuple, optional=True
        ),
        "seed": warpdrive.SEED,
        "max_speed": Param(1.0, "the greatest speed, units a step", low=0),
        "skill_level_runner": Param(1.0, "multiplies a runner's greatest speed", low=0),
        "skill_level_tagger": Param(1.0, "multiplies a tagger's", low=0),
        "max_acceleration": Param(1.0, "the most that an action adds to the acceleration"),
        "min_acceleration": Param(-1.0, "the least"),
        "max_turn": Param(math.pi / 2, "the most that an action adds to the direction, radians"),
        "min_turn": Param(-math.pi / 2, "the least"),
        "num_acceleration_levels": Param(
            10, "values of acceleration to choose from, beside none", at="compile", low=0
        ),
        "num_turn_levels": Param(10, "values of turn likewise", at="compile", low=0),
        "edge_hit_penalty": Param(0.0, "reward for running into the wall", high=0),
        "use_full_observation": Param(
            True, "observe all other agents instead of the nearest", at="compile"
        ),
        "num_other_agents_observed": Param(
            2, "how many of the nearest", at="compile", low=1
        ),
        "tagging_distance": Param(
            0.01, "how near a tagger tags, as a fraction of grid_length", low=0, high=1
        ),
        "tag_reward_for_tagger": Param(1.0, "reward for each tag", low=0),
        "step_penalty_for_tagger": Param(0.0, "reward of a tagger for each step", high=0),
        "tag_penalty_for_runner": Param(-1.0, "reward for being tagged", high=0),
        "step_reward_for_runner": Param(0.0, "reward of a runner for each step", low=0),
        "end_of_game_reward_for_runner": Param(
            1.0, "reward for still being in the game at the end", low=0
        ),
        "runner_exits_game_after_tagged": Param(True, "whether a tagged runner leaves the game"),
        "render_mode": RENDER_MODE,
    },
    groups=(
        Group("tagger", "num_taggers", OBSERVATION, (ACTIONS,)),
        Group("runner", "num_runners", OBSERVATION, (ACTIONS,)),
    ),
    constants={
        "N_OBSERVED": "num_taggers + num_runners - 1 if use_full_observation"
        " else num_other_agents_observed",
        # A third as many agents in a cell as are to be found: then nine cells mostly have them.
        "GRID_SIDE": "max(1, ((num_taggers + num_runners) / max(1,"
        " 0 if use_full_observation else 0.3 * num_other_agents_observed)) ** 0.5)",
    },
    state={
        "x": Field("real", ("num_taggers + num_runners",), "position"),
        "y": Field("real", ("num_taggers + num_runners",), "position"),
        "direction": Field("real", ("num_taggers + num_runners",), "radians, from 0 to 2 pi"),
        "speed": Field("real", ("num_taggers + num_runners",), "units a step"),
        "acceleration": Field("real", ("num_taggers + num_runners",), "speed a step"),
        "seen": Field("u8", ("num_taggers + num_runners",), "in the game when last observed"),
        "at_wall": Field("u8", ("num_taggers + num_runners",), "ran into the wall in this step"),
    },
    scratch={
        "cells": Field("i32", ("GRID_SIDE * GRID_SIDE + 1",), "where each cell's agents begin"),
        "sums": Field("i32", (32,), "agents in each chunk of cells"),
        "order": Field("i32", ("num_taggers + num_runners",), "agents, cell by cell"),
        "near_x": Field("real", ("num_taggers + num_runners",), "positions in that order"),
        "near_y": Field("real", ("num_taggers + num_runners",), "positions in that order"),
        "tagged_by": Field("i32", ("num_runners",), "who tags each runner, or -1"),
        "tags": Field("i32", ("num_taggers",), "how many each tagger tags"),
        "left": Field("i32", (), "runners that stay in the game"),
    },
    shape="block",
    starts=_starts,
    starts_use=("grid_length",),
    check=_check,
    reward=(
        "taggers: `tag_reward_for_tagger` for each runner that they tag, being the nearest tagger; "
        "runners: `tag_penalty_for_runner` when tagged, and `end_of_game_reward_for_runner` if "
        "they are in the game at the time limit; all: a reward for each step and one for running "
        "into the wall"
    ),
    ends="for a runner when it is tagged, unless `runner_exits_game_after_tagged` is false; for "
    "all when no runner is left",
    time_limit="episode_length",
    timeout_wins=False,
    leaving=True,
    render="gpu_zoo.render.warpdrive:draw",
    reference=warpdrive.REFERENCE,
    notes=(
        "Agents are numbered taggers first. In WarpDrive a random subset of the numbers are "
        "taggers, so that which of two equally distant agents counts as nearer may differ, and so "
        "does the order of a full observation.",
        "Every episode starts in a new random state. With `seed`, or the starting locations and "
        "directions, all start alike, as in WarpDrive.",
        "The rules are those of WarpDrive's Python class. In its CUDA and Numba kernels rewards "
        "for tags and the count of runners can be lost when two tags fall in one step, and a "
        "runner tagged in the last step earns `end_of_game_reward_for_runner` all the same.",
        "A runner that leaves is terminated, and agents are in PettingZoo's dicts only while they "
        "are in the game. At the time limit agents are truncated; in WarpDrive both are `done`.",
        "The acceleration is kept from step to step, and an action adds to it.",
        "Observations are taken after moving and before tagging, as in WarpDrive: a runner that is "
        "tagged in a step still sees in it, and is seen.",
    ),
    history=(f"v0: first version here; follows {warpdrive.REFERENCE}",),
)  # fmt: skip

raw_env, env, parallel_env = drop_in(SPEC)
