"""my_env once more, in plain Python: what the kernel is checked against.

Written for the reader, not for the machine; ``gpu_zoo.testing.Rules`` says what a class like this
must have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOVES = (0, -1, 1)  # stay, left, right


class Rules:
    """One environment."""

    def __init__(self, N: int, length: int, max_cycles: int) -> None:
        """Take the parameters. The time limit is not for the rules to keep."""
        self.agents = [f"walker_{i}" for i in range(N)]
        self.length = length

    def reset(self, state: Mapping[str, Any]) -> dict[str, list[float]]:
        """Begin an episode in a state that the kernel has drawn."""
        self.target = int(state["target"])
        self.pos = dict(zip(self.agents, state["pos"].tolist(), strict=True))
        return self.observations()

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, list[float]], dict[str, float], dict[str, bool]]:
        """Move everyone, then reward everyone."""
        for agent, action in actions.items():
            cell = self.pos[agent] + MOVES[action]
            self.pos[agent] = min(max(cell, 0), self.length - 1)
        distance = sum(abs(cell - self.target) for cell in self.pos.values())
        reward = -distance / (len(self.agents) * self.length)
        rewards = dict.fromkeys(self.agents, reward)
        terminations = dict.fromkeys(self.agents, distance == 0)
        return self.observations(), rewards, terminations

    def observations(self) -> dict[str, list[float]]:
        """What each walker sees: the target, then the others, relative to itself."""
        seen = {}
        for agent, cell in self.pos.items():
            others = [self.pos[other] for other in self.agents if other != agent]
            seen[agent] = [(there - cell) / self.length for there in (self.target, *others)]
        return seen
