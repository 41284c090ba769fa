"""Acrobot: a motor between two links swings them up."""

from __future__ import annotations

import math

from gpu_zoo.classic.params import FRESH, classic_spec
from gpu_zoo.spec import Actions, Field, Slice

MAX_SPEED_1, MAX_SPEED_2 = 4 * math.pi, 9 * math.pi

SPEC = classic_spec(
    "acrobot_v1",
    summary="A motor between two links swings them up, the lower one's end above a line.",
    max_cycles=500,
    render="draw_acrobot",
    render_fps=15,
    observation={
        "link_1": Slice(2, "cosine and sine of the first link's angle from down", low=-1, high=1),
        "link_2": Slice(2, "likewise of the second link's from the first", low=-1, high=1),
        "speed_1": Slice(
            1, "the first angle's velocity, radians a second", low=-MAX_SPEED_1, high=MAX_SPEED_1
        ),
        "speed_2": Slice(1, "the second's", low=-MAX_SPEED_2, high=MAX_SPEED_2),
    },
    actions=Actions(("torque_minus_1", "no_torque", "torque_plus_1")),
    state={
        "theta": Field("real", (2,), "the first link's angle from down; the second's from it"),
        "speed": Field("real", (2,), "their velocities, radians a second"),
        "fresh": FRESH,
    },
    reward="-1 a step, and 0 for the one that reaches the line",
    ends="once the lower link's end is more than 1 above the upper one's joint",
    notes=(
        "The equations are those of Sutton and Barto's book, and the torque has no noise: the "
        "defaults of class attributes (`book_or_nips`, `torque_noise_max`) that can be changed in "
        "Gymnasium, as can the links and `dt`.",
        "An episode's first observation is NumPy's float32 sine and cosine, in reference numerics "
        "to the bit on processors for which NumPy fuses multiplication and addition (x86 since "
        "2013).",
        "On a GPU reference numerics square with x * x, which differs from the C library's "
        "pow(x, 2) in the last bit of one number in a thousand.",
    ),
)
