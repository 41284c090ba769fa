"""Simple adversary: good agents reach a goal without giving it away to an adversary.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_adversary_v3``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, Scene, World, particle_spec
from gpu_zoo.spec import Field, Group, Param, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in


def _paint(colors: npt.NDArray[np.float64], scene: Scene) -> None:
    colors[len(scene["pos"]) + int(scene["goal"])] = (0.15, 0.65, 0.15)


def _distances(row: Any) -> tuple[np.float64, ...]:
    return tuple(np.float64(value) for value in row)


LANDMARKS = Slice("2 * (num_landmark_neighbors or N)", "landmarks, relative (x, y) each")
OTHERS = Slice("2 * (num_agent_neighbors or N)", "other agents, relative (x, y) each")

SPEC = particle_spec(
    "simple_adversary_v3",
    summary="N good agents reach a goal without giving it away to an adversary.",
    world=World(
        agents=(
            Body("adversary", 1, color=(0.85, 0.35, 0.35), size=0.15),
            Body("agent", "N", color=(0.35, 0.35, 0.85), size=0.15),
        ),
        landmarks=(Body("landmark %d", "N", color=(0.15, 0.15, 0.15), size=0.08),),
        dim_c=2,
        paint=_paint,
    ),
    params={
        "N": Param(2, "number of good agents, and of landmarks", at="compile", low=1),
        **mpe.COMMON,
        **mpe.NEIGHBORS,
    },
    groups=(
        Group(
            "adversary",
            1,
            observation={"landmarks": LANDMARKS, "others": OTHERS},
            actions=mpe.ACTIONS,
            info={"benchmark_data": Slice(1, "squared distance to the goal")},
            info_value=mpe.as_float,
        ),
        Group(
            "agent",
            "N",
            observation={
                "goal": Slice(2, "the goal, relative (x, y)"),
                "landmarks": LANDMARKS,
                "others": OTHERS,
            },
            actions=mpe.ACTIONS,
            info={"benchmark_data": Slice("N + 1", "squared distances to landmarks, to the goal")},
            info_value=_distances,
        ),
    ),
    state={"goal": mpe.GOAL},
    scratch={"goal_distance": Field("real", ("N + 1",), "distance of each agent to the goal")},
    reward=(
        "the adversary: minus its distance to the goal; good agents: the adversary's distance to "
        "the goal minus that of the nearest good agent"
    ),
    notes=(
        "As in mpe2 nobody observes their own position or velocity, though documentation of older "
        "versions lists them (PettingZoo issue 1185).",
    ),
)

raw_env, env, parallel_env = drop_in(SPEC)
