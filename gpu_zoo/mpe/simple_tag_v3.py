"""Simple tag: adversaries chase faster good agents around obstacles.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_tag_v3``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_zoo.mpe import params as mpe
from gpu_zoo.spec import EnvSpec, Field, Group, Param, Slice, Value
from gpu_zoo.wrappers.pettingzoo import drop_in


def _check(values: Mapping[str, Value]) -> None:
    if not values["num_good"] and not values["num_adversaries"]:
        raise ValueError("num_good=0, num_adversaries=0: expected at least one agent")
    mpe.check_curriculum(values)


def _group(name: str, count: str, good_others: str) -> Group:
    return Group(
        name,
        count,
        observation={
            "velocity": mpe.OWN_VELOCITY,
            "position": mpe.OWN_POSITION,
            "obstacles": Slice(
                "2 * (num_landmark_neighbors or num_obstacles)",
                "obstacles, relative (x, y) each",
            ),
            "others": Slice(
                "2 * (num_agent_neighbors or num_good + num_adversaries - 1)",
                "other agents, relative (x, y) each",
            ),
            "velocities": Slice(
                f"2 * (num_agent_neighbors or {good_others})",
                "velocities of the other good agents",
            ),
        },
        actions=mpe.ACTIONS,
        info={"benchmark_data": Slice(1, "good agents an adversary touches")},
        info_value=_touches,
    )


def _touches(row: Any) -> int:
    return int(row[0])


SPEC = EnvSpec(
    id="mpe/simple_tag_v3",
    kernel="mpe/simple_tag_v3.cu",
    summary="Adversaries chase faster good agents around obstacles.",
    reference="mpe2 1.1.1",
    params={
        "num_good": Param(1, "number of good agents", at="compile", low=0),
        "num_adversaries": Param(3, "number of adversaries", at="compile", low=0),
        "num_obstacles": Param(2, "number of obstacles", at="compile", low=0),
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
            0, "stage of the curriculum: good agents at 50, 75, 100 % speed", low=0, high=2
        ),
    },
    check=_check,
    constants={"N_LANDMARKS": "num_obstacles", "N_ALL": "num_good + num_adversaries"},
    groups=(
        _group("adversary", "num_adversaries", "num_good"),
        _group("agent", "num_good", "num_good - 1"),
    ),
    state={
        "pos": Field("real", ("N_ALL", 2), "agents' positions"),
        "vel": Field("real", ("N_ALL", 2), "agents' velocities, units a second"),
        "landmark": Field("real", ("num_obstacles", 2), "obstacles' positions", at_reset=True),
        "stage": Field("i32", (), "curriculum stage of this episode", at_reset=True),
    },
    scratch={
        "force": Field("real", ("N_ALL", 2), "force on each agent"),
        "hits": Field("i32", ("N_ALL",), "adversaries that touch each good agent"),
    },
    reward=(
        "good agents: -10 for every adversary that touches them, and minus a cost of leaving the "
        "square; adversaries: +10 for every touch between any adversary and any good agent"
    ),
    ends="with terminate_on_success, once every good agent is touched by an adversary",
    notes=(
        "The curriculum works as mpe2 documents it. In mpe2 1.1.1 itself the stage never leaves 0: "
        "a property of the scenario's base class drops what is assigned to it. So episodes differ "
        "from mpe2's once the stage is moved.",
        "`curriculum_stage` is a parameter of our own; mpe2 only has the methods.",
    ),
    render="gpu_zoo.render.mpe:draw_tag",
    history=("v3: first version here; follows mpe2 1.1.1",),
)

raw_env, env, parallel_env = drop_in(SPEC)
