"""Collect treasure: collectors bring treasures to the deposits of their kind.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.collect_treasure_v1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, Scene, World, particle_spec
from gpu_zoo.spec import Field, Group, Param, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

# mpe2's colours of the kinds of treasure, of which there are as many as deposits.
KINDS = np.array(
    [
        (0.212, 0.408, 0.776),
        (0.945, 0.553, 0.000),
        (0.169, 0.627, 0.173),
        (0.839, 0.149, 0.157),
        (0.580, 0.404, 0.741),
        (0.549, 0.337, 0.294),
    ]
)


def _paint(colors: npt.NDArray[np.float64], scene: Scene) -> None:
    collectors, agents = len(scene["holding"]), len(scene["pos"])
    for collector, kind in enumerate(scene["holding"]):
        if kind >= 0:
            colors[collector] = 0.85 * KINDS[kind]
    colors[collectors:agents] = KINDS[: agents - collectors] * 0.35
    colors[agents:] = KINDS[scene["kind"]]


def _holding(row: Any) -> tuple[int | None, int]:
    return (None if row[0] < 0 else int(row[0])), int(row[1])


def _carriers(row: Any) -> tuple[int, int]:
    return int(row[0]), int(row[1])


def _observation(held: Mapping[str, Slice]) -> dict[str, Slice]:
    return {
        "position": mpe.OWN_POSITION,
        "velocity": mpe.OWN_VELOCITY,
        **held,
        "agents": Slice(
            "(num_collectors + num_deposits - 1) * (4 + 2 * num_deposits)",
            "other agents, nearest first: relative (x, y), velocity (x, y), kind it takes one-hot, "
            "kind it holds one-hot",
        ),
        "treasures": Slice(
            "num_treasures * (2 + num_deposits)",
            "treasures, nearest first: relative (x, y), kind one-hot; zeros for those away",
        ),
    }


SPEC = particle_spec(
    "collect_treasure_v1",
    summary="Collectors bring treasures to the deposits of their kind, which move as well.",
    world=World(
        agents=(
            Body("collector", "num_collectors", color=(0.85, 0.85, 0.85), size=0.05,
                 accel=1.5, max_speed=1.0),
            Body("deposit", "num_deposits", color=(0.0, 0.0, 0.0), size=0.075,
                 accel=1.5, max_speed=1.0, mass=2.25),
        ),
        landmarks=(Body("treasure_%d", "num_treasures", color=(0.0, 0.0, 0.0), size=0.025),),
        dim_c=2,
        paint=_paint,
    ),
    params={
        "num_collectors": Param(6, "number of collectors", at="compile", low=1),
        "num_deposits": Param(
            2, "number of deposits, and of kinds of treasure", at="compile", low=1, high=len(KINDS)
        ),
        "num_treasures": Param(6, "number of treasures", at="compile", low=1),
        **mpe.COMMON,
    },
    groups=(
        Group(
            "collector",
            "num_collectors",
            observation=_observation(
                {"holding": Slice("num_deposits", "kind of treasure it holds, one-hot")}
            ),
            actions=mpe.ACTIONS,
            info={"benchmark_data": Slice(2, "kind held or -1, treasures that are there")},
            info_value=_holding,
        ),
        Group(
            "deposit",
            "num_deposits",
            observation=_observation({}),
            actions=mpe.ACTIONS,
            info={"benchmark_data": Slice(2, "collectors that carry its kind, treasures there")},
            info_value=_carriers,
        ),
    ),
    state={
        "landmark": Field("real", ("num_treasures", 2), "treasures' positions; -999 if away"),
        "kind": Field("i32", ("num_treasures",), "each treasure's kind"),
        "alive": Field("i32", ("num_treasures",), "1 for a treasure that is there, 0 if away"),
        "holding": Field("i32", ("num_collectors",), "kind each collector holds, -1 for none"),
        "gain": Field("real", (), "everybody's reward for the last step's pickups, deliveries"),
        "returns": Field("rng", (), "draws where treasures come back"),
    },
    reward=(
        "all: +5 for every pickup and +5 for every delivery of the step; collectors: -5 for every "
        "other collector touched, -0.1 times the distance to the nearest treasure or, if carrying, "
        "to the matching deposit; deposits: -0.1 times the distance to the nearest collector that "
        "carries their kind, else to the collectors' centre"
    ),
    notes=(
        "As in mpe2 the generator for treasures that come back is copied when an episode begins, "
        "so it repeats the numbers of the reset.",
        "mpe2 1.1.0 rewarded pickups and deliveries wrongly; 1.1.1 is followed.",
    ),
)  # fmt: skip

raw_env, env, parallel_env = drop_in(SPEC)
