"""Simple crypto: Alice tells Bob a secret under a key they share; Eve listens.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_crypto_v3``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, Scene, World, particle_spec
from gpu_zoo.spec import Field, Group, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

DIM_C = 4
BOB, AGENTS = 1, 3
KEY = Slice(DIM_C, "the key, one-hot")
WORDS = Slice(DIM_C, "what Alice said in the last step")


def _paint(colors: npt.NDArray[np.float64], scene: Scene) -> None:
    colors[BOB] = colors[AGENTS + int(scene["goal"])]


def _said_and_secret(row: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    values = np.array(row, np.float64)
    return values[:DIM_C], values[DIM_C:]


def _group(name: str, observation: Mapping[str, Slice]) -> Group:
    return Group(
        name,
        1,
        observation=observation,
        actions=mpe.actions(movable=False, dim_c=DIM_C),
        info={"benchmark_data": Slice(2 * DIM_C, "what the agent said, the secret")},
        info_value=_said_and_secret,
    )


SPEC = particle_spec(
    "simple_crypto_v3",
    summary="Alice tells Bob a secret under a key they share, so that Eve does not understand.",
    world=World(
        agents=(
            Body("eve", 1, color=(0.75, 0.25, 0.25), movable=False, silent=False),
            Body("bob", 1, color=(0.25, 0.25, 0.25), movable=False, silent=False),
            Body("alice", 1, color=(0.25, 0.25, 0.25), movable=False, silent=False),
        ),
        landmarks=(
            Body("landmark %d", 1, color=(1.0, 0.0, 0.0)),
            Body("landmark %d", 1, color=(0.0, 1.0, 0.0)),
        ),
        dim_c=DIM_C,
        paint=_paint,
    ),
    params=mpe.COMMON,
    groups=(
        _group("eve", {"utterance": WORDS}),
        _group("bob", {"key": KEY, "utterance": WORDS}),
        _group("alice", {"secret": Slice(DIM_C, "the secret, one-hot"), "key": KEY}),
    ),
    state={
        "goal": Field("i32", (), "the secret: number of a landmark", at_reset=True),
        "key": Field("i32", (), "the key: number of a landmark", at_reset=True),
    },
    reward=(
        "Eve: minus the squared distance between what she says and the secret; Bob and Alice: "
        "hers minus Bob's; somebody who says nothing but zeros counts 0"
    ),
    notes=(
        "As in mpe2 the secret and the key are one of the first two of four symbols.",
        "Colours have three entries here; mpe2's landmarks have four, the symbol's.",
        "Benchmark data is float64; mpe2's utterance is float32 with continuous actions.",
    ),
)

raw_env, env, parallel_env = drop_in(SPEC)
