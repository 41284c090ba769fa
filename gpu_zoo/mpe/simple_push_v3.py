"""Simple push: an adversary keeps an agent away from its goal, which it does not know.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_push_v3``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, Scene, World, particle_spec
from gpu_zoo.spec import Group, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in


def _paint(colors: npt.NDArray[np.float64], scene: Scene) -> None:
    colors[1, int(scene["goal"]) + 1] += 0.5


LANDMARKS = Slice(4, "landmarks, relative (x, y) each")
OTHER = Slice(2, "the other agent, relative (x, y)")

SPEC = particle_spec(
    "simple_push_v3",
    summary="An adversary keeps an agent away from its goal, which it does not know.",
    world=World(
        agents=(
            Body("adversary", 1, color=(0.75, 0.25, 0.25), collide=True),
            Body("agent", 1, color=(0.25, 0.25, 0.25), collide=True),
        ),
        landmarks=(
            Body("landmark %d", 1, color=(0.1, 0.9, 0.1)),
            Body("landmark %d", 1, color=(0.1, 0.1, 0.9)),
        ),
        dim_c=2,
        paint=_paint,
    ),
    params=mpe.COMMON,
    groups=(
        Group(
            "adversary",
            1,
            observation={
                "velocity": mpe.OWN_VELOCITY,
                "landmarks": LANDMARKS,
                "other": OTHER,
            },
            actions=mpe.ACTIONS,
        ),
        Group(
            "agent",
            1,
            observation={
                "velocity": mpe.OWN_VELOCITY,
                "goal": Slice(2, "the goal, relative (x, y)"),
                "color": Slice(3, "own colour, which tells the goal"),
                "landmarks": LANDMARKS,
                "colors": Slice(6, "the landmarks' colours, red green blue each"),
                "other": OTHER,
            },
            actions=mpe.ACTIONS,
        ),
    ),
    state={"goal": mpe.GOAL},
    reward=(
        "the agent: minus its distance to the goal; the adversary: the agent's distance to the "
        "goal minus its own"
    ),
)

raw_env, env, parallel_env = drop_in(SPEC)
