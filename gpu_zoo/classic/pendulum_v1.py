"""Pendulum: a torque too weak to lift a pendulum swings it up and holds it there."""

from __future__ import annotations

from gpu_zoo.classic.params import classic_spec
from gpu_zoo.spec import Actions, Field, Param, Slice

SPEC = classic_spec(
    "pendulum_v1",
    summary="A torque too weak to lift a pendulum swings it up and holds it there.",
    max_cycles=200,
    render="draw_pendulum",
    render_fps=30,
    params={"g": Param(10.0, "the acceleration of gravity")},
    observation={
        "x": Slice(1, "cosine of the angle from upright", low=-1, high=1),
        "y": Slice(1, "its sine", low=-1, high=1),
        "theta_dot": Slice(1, "angular velocity, radians a second", low=-8, high=8),
    },
    actions=Actions(("torque",), box=(-2.0, 2.0)),
    state={
        "theta": Field("real", (), "angle from upright, radians; full turns are counted"),
        "theta_dot": Field("real", (), "angular velocity, radians a second"),
        "cost": Field("real", (), "minus the last reward"),
    },
    reward="minus the sum of the squared angle, 0.1 times the squared angular velocity (both as "
    "they were before the step) and 0.001 times the squared torque",
    notes=(
        "Equal to Gymnasium under NumPy 2. NumPy 1 computes with float32 actions in float64.",
        "On a GPU reference numerics square with x * x, which differs from the C library's "
        "pow(x, 2) in the last bit of one number in a thousand.",
    ),
)
