"""Simple formation: N agents form a circle around a landmark.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_formation_v1``.
"""

from __future__ import annotations

from gpu_zoo.mpe import targets
from gpu_zoo.mpe.world import Body, World, particle_spec
from gpu_zoo.spec import Field
from gpu_zoo.wrappers.pettingzoo import drop_in

WORLD = World(
    agents=(Body("agent", "N", color=(0.35, 0.35, 0.85), size=0.05, collide=True),),
    landmarks=(Body("landmark_%d", 1, color=(0.25, 0.25, 0.25), size=0.03),),
    shares_reward=True,
)

SPEC = particle_spec(
    "simple_formation_v1",
    summary="N agents form a circle around a landmark.",
    world=WORLD,
    params=targets.PARAMS,
    groups=(targets.group(landmarks=1),),
    constants=targets.CONSTANTS,
    scratch={
        "angle": Field("real", ("N",), "angle of each agent as the landmark sees it"),
        "target": Field("real", ("N", 2), "targets' positions"),
        **targets.SCRATCH,
    },
    reward=(
        "N targets lie evenly on a circle of radius 0.5 around the landmark, the first in the "
        "direction of the agent with the smallest angle, counted from the x axis; the reward is "
        + targets.REWARD
    ),
    ends=targets.ENDS,
    notes=targets.NOTES,
)

raw_env, env, parallel_env = drop_in(SPEC)
