"""Simple: one agent goes to a landmark.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_v3``.
"""

from __future__ import annotations

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, World, particle_spec
from gpu_zoo.spec import Group, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

SPEC = particle_spec(
    "simple_v3",
    summary="One agent goes to a landmark.",
    world=World(
        agents=(Body("agent", 1, color=(0.25, 0.25, 0.25)),),
        landmarks=(Body("landmark %d", 1, color=(0.75, 0.25, 0.25)),),
    ),
    params=mpe.COMMON,
    groups=(
        Group(
            "agent",
            1,
            observation={
                "velocity": mpe.OWN_VELOCITY,
                "landmark": Slice(2, "the landmark, relative (x, y)"),
            },
            actions=mpe.ACTIONS,
        ),
    ),
    reward="minus the squared distance to the landmark",
)

raw_env, env, parallel_env = drop_in(SPEC)
