"""Simple spread: N agents cover N landmarks without bumping into each other.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_spread_v3``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_zoo.mpe import params as mpe
from gpu_zoo.spec import EnvSpec, Field, Group, Param, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in


def _benchmark(row: Any) -> tuple[np.float64, int, np.float64, int]:
    return np.float64(row[0]), int(row[1]), np.float64(row[2]), int(row[3])


SPEC = EnvSpec(
    id="mpe/simple_spread_v3",
    kernel="mpe/simple_spread_v3.cu",
    summary="N agents cover N landmarks without bumping into each other.",
    reference="mpe2 1.1.1",
    params={
        "N": Param(3, "number of agents, and of landmarks", at="compile", low=1),
        "local_ratio": Param(
            0.5, "weight of an agent's own reward; 1 - local_ratio for the shared", low=0, high=1
        ),
        "max_cycles": mpe.MAX_CYCLES,
        "continuous_actions": mpe.CONTINUOUS,
        "render_mode": mpe.RENDER_MODE,
        "dynamic_rescaling": mpe.RESCALING,
        "benchmark_data": mpe.BENCHMARK,
        "curriculum": mpe.CURRICULUM,
        "terminate_on_success": mpe.ON_SUCCESS,
        "num_agent_neighbors": mpe.AGENT_NEIGHBORS,
        "num_landmark_neighbors": mpe.LANDMARK_NEIGHBORS,
        "curriculum_stage": Param(
            0, "stage of the curriculum: 0 no collision penalty, 1 the full game", low=0, high=1
        ),
    },
    check=mpe.check_curriculum,
    constants={"N_LANDMARKS": "N", "N_OTHERS_SEEN": "num_agent_neighbors or N - 1"},
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
    state={
        "pos": Field("real", ("N", 2), "agents' positions"),
        "vel": Field("real", ("N", 2), "agents' velocities, units a second"),
        "landmark": Field("real", ("N", 2), "landmarks' positions", at_reset=True),
    },
    scratch={
        "force": Field("real", ("N", 2), "force on each agent"),
        "cover": Field("real", ("N",), "distance from each landmark to its nearest agent"),
    },
    reward=(
        "(1 - local_ratio) * (minus the sum over landmarks of the distance to the nearest agent) "
        "+ local_ratio * (-1 for every other agent touched)"
    ),
    ends="with terminate_on_success, once every landmark has an agent within 0.1 of it",
    notes=(
        "The curriculum works as mpe2 documents it. In mpe2 1.1.1 itself the stage never leaves 0: "
        "a property of the scenario's base class drops what is assigned to it. So episodes differ "
        "from mpe2's once the stage is moved.",
        "`curriculum_stage` is a parameter of our own; mpe2 only has the methods.",
    ),
    render="gpu_zoo.render.mpe:draw_spread",
    history=("v3: first version here; follows mpe2 1.1.1",),
)

raw_env, env, parallel_env = drop_in(SPEC)
