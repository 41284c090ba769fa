"""Taggers and one runner on a grid: the rules of WarpDrive's TagGridWorld, in double precision.

There is no autoreset and no time limit: the caller stops after ``episode_length`` steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))  # cells along x and y, by action


class Rules:
    """One game of tag. Coordinates run from 0 to ``grid_length``, both ends included.

    Agents are numbered taggers first, then the runner.
    """

    def __init__(
        self,
        *,
        num_taggers: int = 10,
        grid_length: int = 10,
        episode_length: int = 100,
        wall_hit_penalty: float = 0.1,
        tag_reward_for_tagger: float = 10.0,
        tag_penalty_for_runner: float = 2.0,
        step_cost_for_tagger: float = 0.01,
        use_full_observation: bool = True,
    ) -> None:
        self.num_taggers = num_taggers
        self.names = [*(f"tagger_{i}" for i in range(num_taggers)), "runner_0"]
        self.grid_length = grid_length
        self.episode_length = episode_length
        self.wall_hit_penalty = wall_hit_penalty
        self.tag_reward_for_tagger = tag_reward_for_tagger
        self.tag_penalty_for_runner = tag_penalty_for_runner
        self.step_cost_for_tagger = step_cost_for_tagger
        self.use_full_observation = use_full_observation

    def reset(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """Begin in cells ``x``, ``y``; return the observations."""
        self.t = 0
        self.x = [int(x) for x in state["x"]]
        self.y = [int(y) for y in state["y"]]
        return self._observe()

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, bool]]:
        """Move all at once; return what everybody observes and gets and whether it is over.

        Only agents that end a step in the runner's cell tag it: passing it does not count.
        """
        self.t += 1
        hit_wall = []
        for i, name in enumerate(self.names):
            dx, dy = MOVES[int(actions[name])]
            x, y = self.x[i] + dx, self.y[i] + dy
            self.x[i] = min(max(x, 0), self.grid_length)
            self.y[i] = min(max(y, 0), self.grid_length)
            hit_wall.append((self.x[i], self.y[i]) != (x, y))
        cells = list(zip(self.x, self.y, strict=True))
        tagged = cells[-1] in cells[:-1]
        if tagged:
            tagger_gets, runner_gets = self.tag_reward_for_tagger, -self.tag_penalty_for_runner
        else:
            tagger_gets, runner_gets = -self.step_cost_for_tagger, self.step_cost_for_tagger
        rewards = {}
        for i, name in enumerate(self.names):
            reward = tagger_gets if i < self.num_taggers else runner_gets
            rewards[name] = reward - self.wall_hit_penalty if hit_wall[i] else reward
        return self._observe(), rewards, dict.fromkeys(self.names, tagged)

    def _observe(self) -> dict[str, Array]:
        """In full: everybody's x, y, type and whether it is oneself. Else: one's own and one other.

        The other is the runner for a tagger, and the nearest tagger for the runner, the first in
        a tie. The time comes last. A tagger's type is 0, the runner's 1.
        """
        N, T, runner = len(self.names), self.num_taggers, self.num_taggers
        x = np.array(self.x) / self.grid_length
        y = np.array(self.y) / self.grid_length
        time = self.t / self.episode_length
        squares = [
            (self.x[j] - self.x[runner]) ** 2 + (self.y[j] - self.y[runner]) ** 2 for j in range(T)
        ]
        nearest = squares.index(min(squares))
        observations = {}
        for i, name in enumerate(self.names):
            kind = float(i == runner)
            if self.use_full_observation:
                kinds, me = np.eye(N)[runner], np.eye(N)[i]
                observations[name] = np.concatenate([x, y, kinds, me, [time]])
            else:
                other = nearest if i == runner else runner
                observations[name] = np.array([x[i], y[i], x[other], y[other], kind, time])
        return observations
