"""Simple line: N agents line up between two landmarks.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_line_v1``.
"""

from __future__ import annotations

from gpu_zoo.mpe import targets
from gpu_zoo.mpe.world import Body, World, particle_spec
from gpu_zoo.spec import Field
from gpu_zoo.wrappers.pettingzoo import drop_in

WORLD = World(
    agents=(Body("agent", "N", color=(0.35, 0.35, 0.85), size=0.03, collide=True),),
    landmarks=(Body("landmark_%d", 2, color=(0.25, 0.25, 0.25), size=0.02),),
    shares_reward=True,
)

SPEC = particle_spec(
    "simple_line_v1",
    summary="N agents line up between two landmarks.",
    world=WORLD,
    params=targets.PARAMS,
    groups=(targets.group(landmarks=2),),
    constants=targets.CONSTANTS,
    state={"target": Field("real", ("N", 2), "targets' positions, set at reset", at_reset=True)},
    scratch=targets.SCRATCH,
    reward=(
        "N targets lie evenly on the line from one landmark to the other, the first and the last "
        "on the landmarks; the reward is " + targets.REWARD
    ),
    ends=targets.ENDS,
    notes=targets.NOTES,
)

raw_env, env, parallel_env = drop_in(SPEC)
