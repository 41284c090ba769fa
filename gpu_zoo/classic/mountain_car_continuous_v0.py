"""MountainCarContinuous: as MountainCar, with a throttle that costs."""

from __future__ import annotations

from gpu_zoo.classic.params import CAR, FRESH, GOAL_VELOCITY, POSITION, VELOCITY, classic_spec
from gpu_zoo.spec import Actions

SPEC = classic_spec(
    "mountain_car_continuous_v0",
    summary="A car too weak for the hill on its right swings up in a valley and saves energy.",
    max_cycles=999,
    render="draw_mountain_car_continuous",
    render_fps=30,
    params={"goal_velocity": GOAL_VELOCITY},
    observation={"position": POSITION, "velocity": VELOCITY},
    actions=Actions(("throttle",), box=(-1.0, 1.0)),
    state={**CAR, "fresh": FRESH},
    reward="100 for reaching the goal, minus 0.1 times the squared throttle in each step",
    ends="where the position is at least 0.45 and the velocity at least `goal_velocity`",
    notes=(
        "Equal to Gymnasium under NumPy 2. NumPy 1 computes with float32 numbers in float64.",
        "Gymnasium keeps the state as float32 after the first step of an episode and computes with "
        "it in float32; reference numerics do likewise.",
    ),
)
