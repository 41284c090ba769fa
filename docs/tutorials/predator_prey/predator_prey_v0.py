"""Predators hunt prey on a grid, where food grows for the prey: the data."""

from __future__ import annotations

from pathlib import Path

import gpu_zoo
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

# --8<-- [start:params]
PARAMS = {
    "num_predators": Param(2, "number of predators", at="compile", low=1),
    "num_prey": Param(2, "number of prey", at="compile", low=1),
    "num_food": Param(3, "places where food grows", at="compile", low=1),
    "size": Param(8, "cells of the grid's side", low=2),
    "regrow": Param(10, "steps until eaten food has grown again", low=1),
    "max_cycles": Param(100, "steps after which the episode is truncated", low=1),
}
# --8<-- [end:params]

# --8<-- [start:groups]
MOVES = Actions(("stay", "left", "right", "down", "up"))
OBSERVATION = {
    "position": Slice(2, "own x and y", low=0, high=1),
    "others": Slice(
        "2 * (num_predators + num_prey - 1)",
        "relative x and y of the other agents, predators first",
        low=-1,
        high=1,
    ),
    "caught": Slice("num_prey", "1 for prey that was caught", low=0, high=1),
    "food": Slice(
        "3 * num_food",
        "relative x and y of each place, and 1 if there is food",
        low=-1,
        high=1,
    ),
}
GROUPS = (
    Group("predator", "num_predators", OBSERVATION, (MOVES,)),
    Group("prey", "num_prey", OBSERVATION, (MOVES,)),
)
# --8<-- [end:groups]

# --8<-- [start:state]
STATE = {
    "pos": Field("i32", ("num_predators + num_prey", 2), "x and y of all, predators first"),
    "caught": Field("u8", ("num_prey",), "0 free, 1 caught in this step, 2 caught before"),
    "food": Field("i32", ("num_food", 2), "x and y of the places", at_reset=True),
    "wait": Field("i32", ("num_food",), "steps until there is food; 0: there is"),
    "eater": Field("i32", ("num_food",), "which prey ate it in this step; -1: nobody"),
}
# --8<-- [end:state]

# --8<-- [start:spec]
SPEC = EnvSpec(
    id="tutorial/predator_prey_v0",
    kernel=str(Path(__file__).resolve().with_suffix(".cu")),
    summary="Predators hunt prey on a grid, where food grows for the prey.",
    params=PARAMS,
    groups=GROUPS,
    state=STATE,
    reward="predators, alike: 1 for every prey caught; prey: 1 for food eaten, -1 when caught",
    ends="once all prey is caught",
    history=("v0: first version",),
)

gpu_zoo.register(SPEC)
raw_env, env, parallel_env = drop_in(SPEC)
# --8<-- [end:spec]
