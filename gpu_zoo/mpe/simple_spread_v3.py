"""Simple spread: N agents cover N landmarks without bumping into each other.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_spread_v3``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, World, particle_spec
from gpu_zoo.spec import Field, Group, Param, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

WORLD = World(
    agents=(Body("agent", "N", color=(0.35, 0.35, 0.85), size=0.15, collide=True),),
    landmarks=(Body("landmark %d", "N", color=(0.25, 0.25, 0.25)),),
    dim_c=2,
)


def _benchmark(row: Any) -> tuple[np.float64, int, np.float64, int]:
    return np.float64(row[0]), int(row[1]), np.float64(row[2]), int(row[3])


SPEC = particle_spec(
    "simple_spread_v3",
    summary="N agents cover N landmarks without bumping into each other.",
    world=WORLD,
    params={
        "N": Param(3, "number of agents, and of landmarks", at="compile", low=1),
        "local_ratio": mpe.LOCAL_RATIO,
        **mpe.COMMON,
        "curriculum": mpe.CURRICULUM,
        "terminate_on_success": mpe.ON_SUCCESS,
        **mpe.NEIGHBORS,
        "curriculum_stage": Param(
            0, "stage of the curriculum: 0 no collision penalty, 1 the full game", low=0, high=1
        ),
    },
    check=mpe.check_curriculum,
    constants={"N_OTHERS_SEEN": "num_agent_neighbors or N - 1"},
    groups=(
        Group(
            "agent",
            "N",
            observation={
                "velocity": mpe.OWN_VELOCITY,
                "position": mpe.OWN_POSITION,
                "landmarks": Slice(
                    "2 * (num_landmark_neighbors or N)", "landmarks, relative (x, y) each"
                ),
                "others": Slice("2 * N_OTHERS_SEEN", "other agents, relative (x, y) each"),
                "utterances": Slice("2 * N_OTHERS_SEEN", "always 0: nobody speaks here"),
            },
            actions=mpe.ACTIONS,
            info={"benchmark_data": Slice(4, "score, collisions, distances, landmarks covered")},
            info_value=_benchmark,
        ),
    ),
    scratch={"cover": Field("real", ("N",), "distance from each landmark to its nearest agent")},
    reward=(
        "(1 - local_ratio) * (minus the sum over landmarks of the distance to the nearest agent) "
        "+ local_ratio * (-1 for every other agent touched)"
    ),
    ends="with terminate_on_success, once every landmark has an agent within 0.1 of it",
    notes=mpe.CURRICULUM_NOTES,
)

raw_env, env, parallel_env = drop_in(SPEC)
