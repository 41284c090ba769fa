"""MountainCar: a car too weak for the hill on its right swings up in a valley."""

from __future__ import annotations

from gpu_zoo.classic.params import CAR, GOAL_VELOCITY, POSITION, VELOCITY, classic_spec
from gpu_zoo.spec import Actions

SPEC = classic_spec(
    "mountain_car_v0",
    summary="A car too weak for the hill on its right swings up in a valley.",
    max_cycles=200,
    render="draw_mountain_car",
    render_fps=30,
    params={"goal_velocity": GOAL_VELOCITY},
    observation={"position": POSITION, "velocity": VELOCITY},
    actions=Actions(("accelerate_left", "no_acceleration", "accelerate_right")),
    state=CAR,
    reward="-1 a step",
    ends="where the position is at least 0.5 and the velocity at least `goal_velocity`",
)
