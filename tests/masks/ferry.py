"""A toy whose masks move: who is driven in a step must do 0, others may do 0 or 1, nobody 2.

Coins say who is driven, and no walker sees its own before the step is over. What it does when it is
free says what it has learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo import VectorEnv
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice

STEPS, BONUS, COINS = 6, 0.25, 8
DISCRETE, MULTI, BOX = 0, 1, 2
FERRY = EnvSpec(
    id="toy/ferry_v0",
    kernel=str(Path(__file__).parent / "ferry.cu"),
    summary="Ride if driven.",
    params={
        "N": Param(2, "walkers", at="compile", low=1),
        "SPACE": Param(DISCRETE, "of the actions", at="compile", choices=(DISCRETE, MULTI, BOX)),
        "max_cycles": Param(STEPS, "steps", low=1),
        "bonus": Param(BONUS, "for walking"),
        "may_quit": Param(False, "who is free and rides has left"),
    },
    groups=(
        Group(
            "walker",
            "N",
            {"coin": Slice(1, "of the step before", 0, 1), "time": Slice(1, "0 to 1", 0, 1)},
            (
                Actions(("ride", "walk", "fly")),
                Actions(("move", "say"), choices=(3, 2)),
                Actions(("force",), box=(-1.0, 1.0)),
            ),
            choice="SPACE",
            action_mask=True,
        ),
        Group("watcher", 1, {"driven": Slice(1, "how many")}, (Actions(("a", "b")),), choice=0),
    ),
    state={"coins": Field("i32", ("COINS", "N"), "1 is driven", at_reset=True)},
    constants={"COINS": COINS},
)
LEAVING = replace(FERRY, id="toy/ferry_leaving_v0", leaving=True)


def masks_by_the_rules(driven: npt.NDArray[Any], space: int = DISCRETE) -> npt.NDArray[np.bool_]:
    """The masks of those who act, ``(..., 3)`` or ``(..., 5)``; ``driven`` is ``(...)``."""
    free = np.asarray(driven) == 0
    always, never = np.ones_like(free), np.zeros_like(free)
    columns = [always, free, never] + ([free, always] if space == MULTI else [])
    return np.stack(columns, -1)


def driven_now(env: VectorEnv) -> npt.NDArray[np.int32]:
    """Who is driven in the next step, ``(num_envs, N)``, from the state."""
    state = env.get_state()
    coins, steps = np.asarray(state["coins"]), np.asarray(state["steps"])
    now: npt.NDArray[np.int32] = coins[np.arange(env.num_envs), steps % COINS]
    return now


class Rules:
    """The rules once more, for discrete actions, with masks."""

    def __init__(self, **params: Any) -> None:
        self.params = params

    def reset(self, state: Mapping[str, Any]) -> dict[str, Any]:
        self.coins, self.time = state["coins"], 0
        return self._observe()

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, ...]:
        rewards: dict[str, float] = {"watcher_0": 0.0}
        terminations = {"watcher_0": False}
        for i in range(self.params["N"]):
            agent = f"walker_{i}"
            if agent in actions:
                driven = bool(self.coins[self.time % COINS][i])
                assert actions[agent] in ([0] if driven else [0, 1]), "a forbidden action"
                walked = actions[agent] == 1
                rewards[agent] = 1.0 if driven else self.params["bonus"] * walked
                terminations[agent] = not (driven or walked) and self.params["may_quit"]
        self.time += 1
        return self._observe(), rewards, terminations

    def action_masks(self) -> dict[str, Any]:
        rows = masks_by_the_rules(self.coins[self.time % COINS])
        return {f"walker_{i}": row for i, row in enumerate(rows)}

    def _observe(self) -> dict[str, Any]:
        before, now = (self.coins[(self.time + k) % COINS] for k in (-1, 0))
        share = self.time / self.params["max_cycles"]
        seen = {f"walker_{i}": [before[i], share] for i in range(self.params["N"])}
        return {**seen, "watcher_0": [now.sum()]}
