"""Simple reference: two agents, each of which knows where the other one must go.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_reference_v3``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, Scene, World, particle_spec
from gpu_zoo.spec import Field, Group, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

DIM_C = 10


def _paint(colors: npt.NDArray[np.float64], scene: Scene) -> None:
    # Each agent has the colour of the landmark it must reach, which the other one knows.
    for agent, goal in enumerate(reversed(scene["goal"])):
        colors[agent] = colors[2 + int(goal)]


SPEC = particle_spec(
    "simple_reference_v3",
    summary="Two agents, each of which knows where the other one must go, tell each other.",
    world=World(
        agents=(Body("agent", 2, color=(0.25, 0.25, 0.25), silent=False),),
        landmarks=(
            Body("landmark %d", 1, color=(0.75, 0.25, 0.25)),
            Body("landmark %d", 1, color=(0.25, 0.75, 0.25)),
            Body("landmark %d", 1, color=(0.25, 0.25, 0.75)),
        ),
        dim_c=DIM_C,
        paint=_paint,
    ),
    params={"local_ratio": mpe.LOCAL_RATIO, **mpe.COMMON},
    groups=(
        Group(
            "agent",
            2,
            observation={
                "velocity": mpe.OWN_VELOCITY,
                "landmarks": Slice(6, "landmarks, relative (x, y) each"),
                "goal": Slice(3, "colour of the landmark that the other agent must reach"),
                "utterance": Slice(DIM_C, "what the other agent said in the last step"),
            },
            actions=mpe.actions(dim_c=DIM_C),
        ),
    ),
    state={"goal": Field("i32", (2,), "landmark that each agent knows the other must reach", True)},
    scratch={"miss": Field("real", (2,), "distance from each goal of the agent it is meant for")},
    reward=(
        "(1 - local_ratio) * (minus the mean distance of the agents from their landmarks) "
        "+ local_ratio * (minus the distance of the other agent from its landmark)"
    ),
    notes=(
        "mpe2's page gives smaller spaces than its code makes (MPE2 issue 72); the code counts.",
    ),
)

raw_env, env, parallel_env = drop_in(SPEC)
