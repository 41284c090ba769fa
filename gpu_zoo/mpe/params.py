"""Parameters, actions and observation parts that the particle environments share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu_zoo.render import RENDER_MODE
from gpu_zoo.spec import Actions, Field, Param, Slice, Value

REFERENCE = "mpe2 1.1.1"
MOVES = ("no_action", "move_left", "move_right", "move_down", "move_up")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # the words' names in mpe2's pictures

MAX_CYCLES = Param(25, "steps after which the episode is truncated", low=1)
CONTINUOUS = Param(False, "continuous actions (a Box) instead of discrete ones", at="compile")
RESCALING = Param(True, "draw bodies at the scale of the camera", at="host")
BENCHMARK = Param(False, "report benchmark data in infos after each step", at="compile")
LOCAL_RATIO = Param(
    0.5, "weight of an agent's own reward; 1 - local_ratio for the shared", low=0, high=1
)
CURRICULUM = Param(False, "train through stages of rising difficulty")
ON_SUCCESS = Param(False, "terminate the episode on success")
AGENT_NEIGHBORS = Param(
    None,
    "observe this many nearest other agents, nearest first, instead of all",
    at="compile",
    kind=int,
    low=1,
    optional=True,
)
LANDMARK_NEIGHBORS = Param(
    None,
    "observe this many nearest landmarks, nearest first, instead of all",
    at="compile",
    kind=int,
    low=1,
    optional=True,
)

OWN_VELOCITY = Slice(2, "own velocity (x, y), units a second")
GOAL = Field("i32", (), "number of the goal landmark", at_reset=True)
OWN_POSITION = Slice(2, "own position (x, y)")

# The parameters with which every particle environment's list ends, or nearly.
COMMON = {
    "max_cycles": MAX_CYCLES,
    "continuous_actions": CONTINUOUS,
    "render_mode": RENDER_MODE,
    "dynamic_rescaling": RESCALING,
    "benchmark_data": BENCHMARK,
}
NEIGHBORS = {
    "num_agent_neighbors": AGENT_NEIGHBORS,
    "num_landmark_neighbors": LANDMARK_NEIGHBORS,
}

CURRICULUM_NOTES = (
    "The curriculum works as mpe2 documents it. In mpe2 1.1.1 itself the stage never leaves 0: "
    "a property of the scenario's base class drops what is assigned to it. So episodes differ "
    "from mpe2's once the stage is moved.",
    "`curriculum_stage` is a parameter of our own; mpe2 only has the methods.",
)


def actions(movable: bool = True, dim_c: int = 0) -> tuple[Actions, Actions]:
    """The discrete and the continuous action space of an agent that moves, speaks, or both.

    A discrete action is ``move + 5 * word``; a continuous one has the moves' strengths, then the
    words' loudnesses.
    """
    moves = MOVES if movable else ()
    words = tuple(f"say_{word}" for word in ALPHABET[:dim_c])
    both = tuple(f"{move}+{word}" for word in words for move in moves) or moves or words
    return Actions(both), Actions(moves + words, box=(0.0, 1.0))


ACTIONS = actions()


def as_int(row: Any) -> int:
    """The one number of an info row, counted in whole numbers."""
    return int(row[0])


def as_float(row: Any) -> np.float64:
    """The one number of an info row."""
    value: np.float64 = np.float64(row[0])
    return value


def check_curriculum(values: Mapping[str, Value]) -> None:
    """Raise ValueError for a stage of a curriculum that is switched off."""
    if values["curriculum_stage"] and not values["curriculum"]:
        raise ValueError(
            f"curriculum_stage={values['curriculum_stage']}: expected 0 unless curriculum=True"
        )
