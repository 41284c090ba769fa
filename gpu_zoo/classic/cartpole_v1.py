"""CartPole: pushed left and right, a cart keeps the pole on it upright."""

from __future__ import annotations

import math

from gpu_zoo.classic.params import classic_spec
from gpu_zoo.spec import Actions, Field, Param, Slice

MAX_X, MAX_THETA = 2.4, math.radians(12)

SPEC = classic_spec(
    "cartpole_v1",
    summary="Pushed left and right, a cart keeps the pole on it upright.",
    max_cycles=500,
    render="draw_cartpole",
    render_fps=50,
    params={"sutton_barto_reward": Param(False, "-1 for the fall and 0 else, instead of 1 a step")},
    observation={
        "x": Slice(1, "the cart's position", low=-2 * MAX_X, high=2 * MAX_X),
        "x_dot": Slice(1, "its velocity"),
        "theta": Slice(
            1, "the pole's angle from upright, radians", low=-2 * MAX_THETA, high=2 * MAX_THETA
        ),
        "theta_dot": Slice(1, "its angular velocity"),
    },
    actions=Actions(("push_left", "push_right")),
    state={
        "x": Field("real", (), "the cart's position"),
        "x_dot": Field("real", (), "its velocity, units a second"),
        "theta": Field("real", (), "the pole's angle from upright, radians"),
        "theta_dot": Field("real", (), "its angular velocity, radians a second"),
    },
    reward="1 a step, the last one included; with `sutton_barto_reward` -1 for the step with "
    "which the pole falls or the cart leaves, and 0 for the others",
    ends="once the pole leans by more than 12 degrees or the cart is more than 2.4 from the middle",
)
