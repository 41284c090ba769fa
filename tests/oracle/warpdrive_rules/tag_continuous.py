"""Tag on a square with turning, accelerating agents: the rules of WarpDrive's TagContinuous.

As WarpDrive plays it on the CPU, but in double precision and with the taggers first. There is no
autoreset and no time limit: the caller stops after ``episode_length`` steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TURN = 2 * math.pi  # a full turn, radians


def table(lowest: float, highest: float, levels: int) -> list[float]:
    """What each action adds: nothing for action 0, then ``levels`` evenly spaced values."""
    return [0.0, *np.linspace(lowest, highest, levels).tolist()]


class Rules:
    """One game of tag.

    Lengths are in the unit of ``grid_length``, the side of the square; speeds in lengths a step,
    accelerations in speeds a step, angles in radians. Agents are numbered taggers first.
    """

    def __init__(
        self,
        *,
        num_taggers: int = 1,
        num_runners: int = 10,
        grid_length: float = 10.0,
        episode_length: int = 100,
        max_speed: float = 1.0,
        skill_level_runner: float = 1.0,
        skill_level_tagger: float = 1.0,
        max_acceleration: float = 1.0,
        min_acceleration: float = -1.0,
        max_turn: float = math.pi / 2,
        min_turn: float = -math.pi / 2,
        num_acceleration_levels: int = 10,
        num_turn_levels: int = 10,
        edge_hit_penalty: float = 0.0,
        use_full_observation: bool = True,
        num_other_agents_observed: int = 2,
        tagging_distance: float = 0.01,
        tag_reward_for_tagger: float = 1.0,
        step_penalty_for_tagger: float = 0.0,
        tag_penalty_for_runner: float = -1.0,
        step_reward_for_runner: float = 0.0,
        end_of_game_reward_for_runner: float = 1.0,
        runner_exits_game_after_tagged: bool = True,
    ) -> None:
        self.taggers = range(num_taggers)
        self.runners = range(num_taggers, num_taggers + num_runners)
        self.names = [f"tagger_{i}" for i in range(num_taggers)]
        self.names += [f"runner_{i}" for i in range(num_runners)]
        self.grid_length = grid_length
        self.episode_length = episode_length
        self.max_speed = max_speed
        self.top_speed = [max_speed * skill_level_tagger] * num_taggers
        self.top_speed += [max_speed * skill_level_runner] * num_runners
        self.accelerations = table(min_acceleration, max_acceleration, num_acceleration_levels)
        self.turns = table(min_turn, max_turn, num_turn_levels)
        self.edge_hit_penalty = edge_hit_penalty
        self.use_full_observation = use_full_observation
        self.num_observed = num_other_agents_observed
        self.margin = tagging_distance * grid_length
        self.tag_reward_for_tagger = tag_reward_for_tagger
        self.tag_penalty_for_runner = tag_penalty_for_runner
        self.step_reward = [step_penalty_for_tagger] * num_taggers
        self.step_reward += [step_reward_for_runner] * num_runners
        self.end_of_game_reward = end_of_game_reward_for_runner
        self.runner_exits = runner_exits_game_after_tagged

    def reset(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """Begin at places ``x``, ``y``, facing ``direction``, at rest; return the observations."""
        self.t = 0
        self.x: list[float] = np.asarray(state["x"], np.float64).tolist()
        self.y: list[float] = np.asarray(state["y"], np.float64).tolist()
        self.direction: list[float] = np.asarray(state["direction"], np.float64).tolist()
        self.speed = [0.0] * len(self.names)
        self.acceleration = [0.0] * len(self.names)
        self.hit_edge = [False] * len(self.names)
        self.alive = [True] * len(self.names)
        return self._observe(range(len(self.names)))

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, bool]]:
        """Take each agent's (acceleration, turn) indices; return what they observe, get and end.

        The observations are those of after the movement and before the tagging.
        """
        acting = [i for i in range(len(self.names)) if self.alive[i]]
        self.t += 1
        for i in range(len(self.names)):
            if self.alive[i]:
                accelerate, turn = actions[self.names[i]]
                self._move(i, self.accelerations[int(accelerate)], self.turns[int(turn)])
            else:  # stays where it was tagged
                self.direction[i] = self.speed[i] = self.acceleration[i] = 0.0
        observations = self._observe(acting)
        rewards = self._score(acting)
        over = not any(self.alive[i] for i in self.runners)
        terminations = {self.names[i]: over or not self.alive[i] for i in acting}
        if over:
            self.alive = [False] * len(self.names)
        return observations, rewards, terminations

    def _move(self, i: int, more_acceleration: float, turn: float) -> None:
        """One step of agent ``i``. The acceleration stays on until the speed is at a limit."""
        self.direction[i] = (self.direction[i] + turn) % TURN
        self.acceleration[i] += more_acceleration
        self.speed[i] = min(max(self.speed[i] + self.acceleration[i], 0.0), self.top_speed[i])
        if self.speed[i] <= 0 or self.speed[i] >= self.top_speed[i]:
            self.acceleration[i] = 0.0
        x = self.x[i] + self.speed[i] * math.cos(self.direction[i])
        y = self.y[i] + self.speed[i] * math.sin(self.direction[i])
        self.x[i] = min(max(x, 0.0), self.grid_length)
        self.y[i] = min(max(y, 0.0), self.grid_length)
        self.hit_edge[i] = self.x[i] != x or self.y[i] != y

    def _distances(self, i: int) -> Array:
        """From agent ``i`` to every agent."""
        dx = np.array(self.x) - self.x[i]
        dy = np.array(self.y) - self.y[i]
        return np.sqrt(dx * dx + dy * dy)

    def _nearest(self, i: int) -> list[int]:
        """The nearest others still in the game, nearest first, the lower number first in a tie."""
        order = np.argsort(self._distances(i), kind="stable").tolist()
        return [j for j in order if j != i and self.alive[j]][: self.num_observed]

    def _observe(self, agents: Any) -> dict[str, Array]:
        """The others' x, y, speed, acceleration and direction less one's own, type and alive.

        One feature of all others after the next, and the time at the end. Each value is brought
        to its scale before one is taken from the other. A tagger's type is 1, a runner's 0.
        """
        diagonal = self.grid_length * math.sqrt(2)
        motion = np.array(
            [
                np.array(self.x) / diagonal,
                np.array(self.y) / diagonal,
                np.array(self.speed) / (self.max_speed + 1e-10),
                np.array(self.acceleration) / (self.max_speed + 1e-10),
                np.array(self.direction) / TURN,
            ]
        )
        everybody = range(len(self.names))
        kind = np.array([i in self.taggers for i in everybody])
        alive = np.array(self.alive)
        observations = {}
        for i in agents:
            if self.use_full_observation:
                others = [j for j in everybody if j != i]
                slots = len(others)
            else:
                others = self._nearest(i)
                slots = self.num_observed
            features = np.zeros((7, slots))  # those of empty slots stay 0
            features[:5, : len(others)] = motion[:, others] - motion[:, i : i + 1]
            features[5, : len(others)] = kind[others]
            features[6, : len(others)] = alive[others]
            observations[self.names[i]] = np.append(features, self.t / self.episode_length)
        return observations

    def _score(self, acting: list[int]) -> dict[str, float]:
        """Tag the runners, and say what everybody gets.

        A runner is tagged by the nearest tagger, the first one in a tie, if that is nearer than
        the margin. One tagger may tag several runners in a step.
        """
        rewards = [0.0] * len(self.names)
        for i in acting:
            if self.hit_edge[i]:
                rewards[i] += self.edge_hit_penalty
            rewards[i] += self.step_reward[i]
        for i in self.runners:
            if not self.alive[i]:
                continue
            distances = self._distances(i)[: len(self.taggers)]
            tagger = int(np.argmin(distances))
            if distances[tagger] < self.margin:
                rewards[i] += self.tag_penalty_for_runner
                rewards[tagger] += self.tag_reward_for_tagger
                self.alive[i] = not self.runner_exits
        if self.t == self.episode_length:
            for i in self.runners:
                if self.alive[i]:
                    rewards[i] += self.end_of_game_reward
        return {self.names[i]: rewards[i] for i in acting}
