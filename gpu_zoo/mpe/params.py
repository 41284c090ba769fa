"""Parameters, actions and observation parts that the particle environments share."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_zoo.spec import Actions, Param, Slice, Value

MOVES = ("no_action", "move_left", "move_right", "move_down", "move_up")
ACTIONS = (Actions(MOVES), Actions(MOVES, box=(0.0, 1.0)))

MAX_CYCLES = Param(25, "steps after which the episode is truncated", low=1)
CONTINUOUS = Param(False, "actions are Box(0, 1, (5,)) instead of Discrete(5)", at="compile")
RENDER_MODE = Param(
    None, "how render() shows the scene", at="host", choices=(None, "human", "rgb_array")
)
RESCALING = Param(True, "draw bodies at the scale of the camera", at="host")
BENCHMARK = Param(False, "report benchmark data in infos after each step", at="compile")
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
OWN_POSITION = Slice(2, "own position (x, y)")


def check_curriculum(values: Mapping[str, Value]) -> None:
    """Raise ValueError for a stage of a curriculum that is switched off."""
    if values["curriculum_stage"] and not values["curriculum"]:
        raise ValueError(
            f"curriculum_stage={values['curriculum_stage']}: expected 0 unless curriculum=True"
        )
