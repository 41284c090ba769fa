"""Simple speaker listener: a speaker that cannot move tells a listener where to go.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of
``mpe2.simple_speaker_listener_v4``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, Scene, World, particle_spec
from gpu_zoo.spec import Group, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

DIM_C = 3
LISTENER = 1
REWARD = {"benchmark_data": Slice(1, "the reward")}


def _paint(colors: npt.NDArray[np.float64], scene: Scene) -> None:
    colors[LISTENER] = colors[2 + int(scene["goal"])] + 0.45


SPEC = particle_spec(
    "simple_speaker_listener_v4",
    summary="A speaker that cannot move tells a listener which landmark to go to.",
    world=World(
        agents=(
            Body("speaker", 1, color=(0.25, 0.25, 0.25), size=0.075, movable=False, silent=False),
            Body("listener", 1, color=(0.25, 0.25, 0.25), size=0.075),
        ),
        landmarks=(
            Body("landmark %d", 1, color=(0.65, 0.15, 0.15), size=0.04),
            Body("landmark %d", 1, color=(0.15, 0.65, 0.15), size=0.04),
            Body("landmark %d", 1, color=(0.15, 0.15, 0.65), size=0.04),
        ),
        dim_c=DIM_C,
        paint=_paint,
    ),
    params=mpe.COMMON,
    groups=(
        Group(
            "speaker",
            1,
            observation={"goal": Slice(3, "colour of the landmark the listener must reach")},
            actions=mpe.actions(movable=False, dim_c=DIM_C),
            info=REWARD,
            info_value=mpe.as_float,
        ),
        Group(
            "listener",
            1,
            observation={
                "velocity": mpe.OWN_VELOCITY,
                "landmarks": Slice(6, "landmarks, relative (x, y) each"),
                "utterance": Slice(DIM_C, "what the speaker said in the last step"),
            },
            actions=mpe.ACTIONS,
            info=REWARD,
            info_value=mpe.as_float,
        ),
    ),
    state={"goal": mpe.GOAL},
    reward="both: minus the squared distance of the listener to the goal",
)

raw_env, env, parallel_env = drop_in(SPEC)
