"""Replay of n-step transitions in device memory, for all environments and agents of a group.

Nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpu_zoo.baselines.ring import Ring
from gpu_zoo.results import GroupBuffers


@dataclass(frozen=True)
class Transitions:
    """What agents saw and did, and what came of it, one transition a row.

    A target for the value of the action is ``returns + discounts * value(next_observations)``.

    Attributes:
        observations: float32 ``(rows, obs_size)``.
        actions: ``(rows, *action_shape)``.
        returns: float32 ``(rows,)``: the discounted sum of the next n rewards, or of fewer where
            the episode ended before.
        next_observations: float32 ``(rows, obs_size)``: the observation after the last of these
            rewards, in the same episode; zeros where the agent's game was over.
        discounts: float32 ``(rows,)``: gamma to the power of the number of rewards summed; 0 where
            the agent's game was over. A time limit does not end a game.
    """

    observations: Tensor
    actions: Tensor
    returns: Tensor
    next_observations: Tensor
    discounts: Tensor


class Replay:
    """The latest ``capacity`` transitions of a group, from which any can be drawn.

    Steps are noted in two halves, as the environment overwrites its buffers: :meth:`before` and
    :meth:`after`. They wait in a window of ``n_step`` steps until all rewards of their sum are
    known. Steps of agents that had left the game are left out.

    Args:
        capacity: transitions kept; at least one step's, ``num_envs * agents``.
        lanes: ``(num_envs, agents)``.
        obs_size: length of an observation.
        action_shape: of one agent's action, such as ``(2,)``.
        n_step: the number of rewards summed.
        gamma: discount a step.
        device: where all of it lies.
        action_dtype: of actions.

    Raises:
        ValueError: ``capacity`` is smaller than one step's transitions, or ``n_step`` below 1.
    """

    def __init__(
        self,
        capacity: int,
        lanes: tuple[int, int],
        obs_size: int,
        action_shape: tuple[int, ...],
        n_step: int,
        gamma: float,
        device: torch.device | str,
        action_dtype: torch.dtype = torch.float32,
    ) -> None:
        count = lanes[0] * lanes[1]
        if capacity < count:
            raise ValueError(f"capacity={capacity}: expected at least num_envs * agents = {count}")
        if n_step < 1:
            raise ValueError(f"n_step={n_step}: expected at least 1")
        self.n_step, self.gamma = n_step, gamma

        def store(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.window = {
            "observations": store(n_step, count, obs_size),
            "actions": store(n_step, count, *action_shape, dtype=action_dtype),
            "active": store(n_step, count, dtype=torch.bool),
            "rewards": store(n_step, count),
            "next_observations": store(n_step, count, obs_size),
            "terminated": store(n_step, count, dtype=torch.bool),
            "ended": store(n_step, count, dtype=torch.bool),
        }
        entry, number = ((obs_size,), torch.float32), ((), torch.float32)
        self.ring = Ring(
            capacity,
            device,
            {
                "observations": entry, "actions": (action_shape, action_dtype), "returns": number,
                "next_observations": entry, "discounts": number,
            },
        )  # fmt: skip
        self.steps = 0
        self.lane = torch.arange(count, device=device)

    @property
    def rows(self) -> Transitions:
        """What is stored, in no order, and a last row that means nothing."""
        return Transitions(**self.ring.columns)

    def before(self, observations: Tensor, actions: Tensor, active: Tensor) -> None:
        """Note what is about to happen.

        Args:
            observations: ``(num_envs, agents, obs_size)``.
            actions: ``(num_envs, agents, *action_shape)``.
            active: bool ``(num_envs, agents)``, as in :class:`~gpu_zoo.results.GroupBuffers`.
        """
        self._note(observations=observations, actions=actions, active=active)

    def after(
        self, rewards: Tensor, next_observations: Tensor, terminated: Tensor, ended: Tensor
    ) -> None:
        """Note what came of it, and store the step of ``n_step - 1`` steps ago.

        Args:
            rewards: ``(num_envs, agents)``.
            next_observations: ``(num_envs, agents, obs_size)``, of the same episode still: see
                :func:`next_observations`.
            terminated: bool ``(num_envs, agents)``: nothing follows for the agent.
            ended: bool ``(num_envs, agents)``: the last step of the agent's episode, for whatever
                reason; no sum goes beyond it.
        """
        self._note(
            rewards=rewards, next_observations=next_observations, terminated=terminated, ended=ended
        )
        self.steps += 1
        if self.steps >= self.n_step:
            transitions, counts = self._oldest()
            self.ring.put(vars(transitions), counts)

    def _note(self, **values: Tensor) -> None:
        slot = self.steps % self.n_step
        for name, value in values.items():
            self.window[name][slot].copy_(value.flatten(0, 1))

    def _oldest(self) -> tuple[Transitions, Tensor]:
        """The transitions that begin with the window's first step, and which of them count."""
        window, first = self.window, self.steps % self.n_step
        going = torch.ones_like(window["ended"][0])
        terminated = torch.zeros_like(going)
        returns = torch.zeros_like(window["rewards"][0])
        summed = torch.zeros_like(self.lane)
        for k in range(self.n_step):
            slot = (first + k) % self.n_step
            returns += torch.where(going, self.gamma**k * window["rewards"][slot], 0.0)
            terminated |= going & window["terminated"][slot]
            summed += going
            going = going & ~window["ended"][slot]
        following = window["next_observations"][(first + summed - 1) % self.n_step, self.lane]
        powers = torch.full_like(returns, self.gamma).pow(summed)
        transitions = Transitions(
            window["observations"][first],
            window["actions"][first],
            returns,
            following.masked_fill(terminated.unsqueeze(-1), 0),  # it may be anything
            powers.masked_fill(terminated, 0),
        )
        return transitions, window["active"][first]

    def sample(self, count: int, generator: torch.Generator) -> Transitions:
        """Draw ``count`` transitions uniformly, with replacement; zeros if nothing is stored."""
        return Transitions(**self.ring.draw(count, generator))

    def state_dict(self) -> dict[str, Any]:
        """All that is held: what is stored, and what waits in the window."""
        return {
            "steps": self.steps,
            "window": {name: value.clone() for name, value in self.window.items()},
            **self.ring.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave, of a replay of the same sizes."""
        self.steps = state["steps"]
        for name, value in state["window"].items():
            self.window[name].copy_(value)
        self.ring.load_state_dict(state)


def next_observations(group: GroupBuffers, done: Tensor) -> Tensor:
    """What the last step led to, ``(num_envs, agents, obs_size)``.

    Where an episode ended, the buffers already hold the next one's first observation, so this is
    the final observation.

    Args:
        group: the buffers after the step.
        done: bool ``(num_envs,)``, which environments began anew: ``infos["_episode"]``.
    """
    where: Tensor = torch.where(done[:, None, None], group.final_observations, group.observations)
    return where
