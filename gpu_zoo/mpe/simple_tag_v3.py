"""Simple tag: adversaries chase faster good agents around obstacles.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_tag_v3``.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, World, particle_spec
from gpu_zoo.spec import Field, Group, Param, Slice, Value
from gpu_zoo.wrappers.pettingzoo import drop_in

WORLD = World(
    agents=(
        Body("adversary", "num_adversaries", color=(0.85, 0.35, 0.35), size=0.075, collide=True,
             accel=3.0, max_speed=1.0),
        Body("agent", "num_good", color=(0.35, 0.85, 0.35), size=0.05, collide=True,
             accel=4.0, max_speed=1.3),
    ),
    landmarks=(
        Body("landmark %d", "num_obstacles", color=(0.25, 0.25, 0.25), size=0.2, collide=True),
    ),
    dim_c=2,
)  # fmt: skip


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
        info_value=mpe.as_int,
    )


SPEC = particle_spec(
    "simple_tag_v3",
    summary="Adversaries chase faster good agents around obstacles.",
    world=WORLD,
    params={
        "num_good": Param(1, "number of good agents", at="compile", low=0),
        "num_adversaries": Param(3, "number of adversaries", at="compile", low=0),
        "num_obstacles": Param(2, "number of obstacles", at="compile", low=0),
        **mpe.COMMON,
        "curriculum": mpe.CURRICULUM,
        "terminate_on_success": mpe.ON_SUCCESS,
        **mpe.NEIGHBORS,
        "curriculum_stage": Param(
            0, "stage of the curriculum: good agents at 50, 75, 100 % speed", low=0, high=2
        ),
    },
    check=_check,
    groups=(
        _group("adversary", "num_adversaries", "num_good"),
        _group("agent", "num_good", "num_good - 1"),
    ),
    state={"stage": Field("i32", (), "curriculum stage of this episode", at_reset=True)},
    scratch={"hits": Field("i32", (WORLD.n_agents,), "adversaries that touch each good agent")},
    reward=(
        "good agents: -10 for every adversary that touches them, and minus a cost of leaving the "
        "square; adversaries: +10 for every touch between any adversary and any good agent"
    ),
    ends="with terminate_on_success, once every good agent is touched by an adversary",
    notes=mpe.CURRICULUM_NOTES,
)

raw_env, env, parallel_env = drop_in(SPEC)
