"""my_env: walkers on a line gather at one of its cells.

This file is the data: parameters, agents, observations, state. The rules are my_env_v0.cu, and once
more in plain Python my_env_rules.py. ``gpu-zoo check my_env`` holds the two against each other.

    import gpu_zoo, my_env_v0                                  # the import registers it
    envs = gpu_zoo.make_vec("mine/my_env_v0", num_envs=4096)   # a batch, stepped by one kernel
    env = my_env_v0.parallel_env()                             # one of them, PettingZoo's API
"""

from __future__ import annotations

from pathlib import Path

import gpu_zoo
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

SPEC = EnvSpec(
    id="mine/my_env_v0",
    kernel=str(Path(__file__).resolve().with_suffix(".cu")),
    summary="Walkers on a line gather at one of its cells.",
    params={
        # at="compile": it changes the shape of an array, so the kernel is compiled for its value.
        "N": Param(3, "number of walkers", at="compile", low=1),
        # Others are read at every step as e.p.length: env.set_param("length", 5) changes them.
        "length": Param(10, "cells of the line", low=2),
        "max_cycles": Param(50, "steps after which the episode is truncated", low=1),
    },
    groups=(
        Group(
            "walker",  # the agents are walker_0, walker_1, ...
            "N",
            observation={
                "target": Slice(1, "the target, relative, in lengths of the line", low=-1, high=1),
                "others": Slice("N - 1", "the other walkers, likewise", low=-1, high=1),
            },
            actions=(Actions(("stay", "left", "right")),),
        ),
    ),
    state={
        "pos": Field("i32", ("N",), "the walkers' cells"),
        # at_reset: only env_reset writes it, so that a step need not store it.
        "target": Field("i32", (), "the cell to gather at", at_reset=True),
    },
    reward="of all walkers alike: minus their mean distance to the target, in lengths of the line",
    ends="once all walkers stand on the target",
    history=("v0: first version",),
)

gpu_zoo.register(SPEC)
raw_env, env, parallel_env = drop_in(SPEC)
