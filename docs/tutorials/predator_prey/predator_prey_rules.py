"""Predators hunt prey on a grid, where food grows for the prey: the rules in plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# --8<-- [start:rules]
STEPS = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))  # stay, left, right, down, up


class Rules:
    """One environment."""

    def __init__(self, **params: Any) -> None:
        """Take all parameters by name."""
        self.size, self.regrow = params["size"], params["regrow"]
        self.predators = [f"predator_{i}" for i in range(params["num_predators"])]
        self.prey = [f"prey_{i}" for i in range(params["num_prey"])]

    def reset(self, state: Mapping[str, Any]) -> dict[str, list[float]]:
        """Begin an episode in a state that the kernel has drawn."""
        agents = self.predators + self.prey
        cells = [(x, y) for x, y in state["pos"].tolist()]
        self.pos = dict(zip(agents, cells, strict=True))
        self.food = [(x, y) for x, y in state["food"].tolist()]
        self.wait = [0] * len(self.food)
        self.free = set(self.prey)
        return self.observations()

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        """Move, catch, eat; observations, rewards and terminations by agent."""
        rewards = dict.fromkeys(self.pos, 0.0)
        for agent, action in actions.items():
            if agent in self.predators or agent in self.free:
                self.pos[agent] = self.neighbour(self.pos[agent], STEPS[action])
        hunted = {self.pos[predator] for predator in self.predators}
        for prey in [prey for prey in self.prey if prey in self.free and self.pos[prey] in hunted]:
            self.free.remove(prey)
            rewards[prey] -= 1
            for predator in self.predators:
                rewards[predator] += 1
        for f, cell in enumerate(self.food):
            eaters = [prey for prey in self.prey if prey in self.free and self.pos[prey] == cell]
            if self.wait[f] > 0:
                self.wait[f] -= 1
            elif eaters:
                rewards[eaters[0]] += 1
                self.wait[f] = self.regrow
        return self.observations(), rewards, dict.fromkeys(self.pos, not self.free)

    def neighbour(self, cell: tuple[int, int], step: tuple[int, int]) -> tuple[int, int]:
        """The cell next to this one; nobody leaves the grid."""
        x, y = (min(max(c + s, 0), self.size - 1) for c, s in zip(cell, step, strict=True))
        return x, y

    def observations(self) -> dict[str, list[float]]:
        """What each agent sees: position, others, who was caught, food."""
        seen = {}
        for agent, (x, y) in self.pos.items():
            row: list[float] = [x, y]
            for other, (ox, oy) in self.pos.items():
                if other != agent:
                    row += [ox - x, oy - y]
            row = [entry / self.size for entry in row]
            row += [prey not in self.free for prey in self.prey]
            for (fx, fy), wait in zip(self.food, self.wait, strict=True):
                row += [(fx - x) / self.size, (fy - y) / self.size, wait == 0]
            seen[agent] = row
        return seen


# --8<-- [end:rules]
