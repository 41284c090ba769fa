"""Rock, paper, scissors between two who may not show the same hand twice running: the data."""

from __future__ import annotations

from pathlib import Path

import gpu_zoo
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

# --8<-- [start:groups]
HANDS = Actions(("rock", "paper", "scissors"))
OBSERVATION = {
    "own": Slice(3, "1 at one's own last hand; 0 before the first", low=0, high=1),
    "other": Slice(3, "1 at the other's last hand", low=0, high=1),
}
GROUPS = (
    Group("left", 1, OBSERVATION, (HANDS,), action_mask=True),
    Group("right", 1, OBSERVATION, (HANDS,), action_mask=True),
)
# --8<-- [end:groups]

SPEC = EnvSpec(
    id="tutorial/hands_v0",
    kernel=str(Path(__file__).resolve().with_suffix(".cu")),
    summary="Rock, paper, scissors between two who may not show the same hand twice running.",
    params={"max_cycles": Param(20, "rounds", low=1)},
    groups=GROUPS,
    state={"last": Field("i32", (2,), "the last hand of each; -1 before the first")},
    reward="1 to who wins a round, -1 to who loses it, 0 to both if the hands are alike",
    history=("v0: first version",),
)

gpu_zoo.register(SPEC)
raw_env, env, parallel_env = drop_in(SPEC)
