"""Rollout storage and advantage estimates, for all environments and agents of a group at once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from gpu_zoo.baselines.distributed import total
from gpu_zoo.baselines.graph import host_knows
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.results import GroupBuffers

Stored = TypeVar("Stored", "States", "Rollout")


def _select(stored: Stored, envs: Tensor) -> Stored:
    part = copy.copy(stored)
    for name, value in vars(stored).items():
        if isinstance(value, Tensor):
            setattr(part, name, value.index_select(1, envs))
    return part


class States:
    """What all agents of an environment saw together, once for each environment, time first.

    Global states are the observations of all groups side by side, as ``env.state()`` gives them,
    but as the groups' networks see them, and with zeros for agents that have left.

    Attributes:
        states: float32 ``(horizon + 1, num_envs, size)``.
        final_states: float32 ``(horizon, num_envs, size)``, those that episodes ended with; to be
            read only where one did.
    """

    def __init__(self, rollouts: Sequence[Rollout], size: int) -> None:
        steps, num_envs = rollouts[0].done.shape
        device = rollouts[0].done.device
        self.states = torch.zeros(steps + 1, num_envs, size, device=device)
        self.final_states = torch.zeros(steps, num_envs, size, device=device)
        for rollout in rollouts:
            rollout.shared = self

    def note(self, t: int, observations: Sequence[Tensor]) -> None:
        """Put together what the groups see before step ``t``, each ``(num_envs, agents, n)``."""
        torch.cat([rows.flatten(1) for rows in observations], 1, out=self.states[t])

    def note_final(self, t: int, observations: Sequence[Tensor]) -> None:
        """The same for what episodes ended with in step ``t``."""
        torch.cat([rows.flatten(1) for rows in observations], 1, out=self.final_states[t])


class Rollout:
    """What one group of agents saw and did: ``(horizon, num_envs, agents, ...)``, time first.

    What all groups saw together is in ``shared``, if there are critics that see it. Observations
    are ``obs_size`` numbers and the network's labels.
    """

    def __init__(self, horizon: int, group: GroupBuffers, network: ActorCritic) -> None:
        self.shared: States | None = None
        self.memory: Tensor | None = network.new_memory(*group.rewards.shape)  # before step 0
        lanes = tuple(group.rewards.shape)
        device, head = group.rewards.device, network.head

        def store(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.obs_size = group.observations.shape[-1]
        length = self.obs_size + network.labels
        self.observations = store(horizon + 1, *lanes, length)
        self.final_observations = store(horizon, *lanes, length)
        self.actions = store(horizon, *lanes, *head.action_shape, dtype=head.action_dtype)
        self.masks: Tensor | None = None  # of the actions, where they are masked
        if group.action_masks is not None:
            self.masks = store(horizon, *group.action_masks.shape, dtype=torch.bool)
        self.log_probs = store(horizon, *lanes)
        self.values = store(horizon + 1, *lanes)
        self.rewards = store(horizon, *lanes)
        self.active = store(horizon, *lanes, dtype=torch.bool)  # before the step; see GroupBuffers
        self.terminated = store(horizon, *lanes, dtype=torch.bool)
        self.truncated = store(horizon, *lanes, dtype=torch.bool)
        self.done = store(horizon, lanes[0], dtype=torch.bool)  # the environment began anew
        if self.memory is not None:
            self.final_values = store(horizon, *lanes)  # of final_observations

    def of(self, envs: Tensor) -> Rollout:
        """A copy with these environments alone, int64 ``(n,)``; there must be no memory."""
        part = _select(self, envs)
        if self.shared is not None:
            part.shared = _select(self.shared, envs)
        return part

    def keep(self) -> Tensor:
        """Where memory lives through to a step: not into a new episode, nor after an agent left.

        Of what was before step 0 only those who left are known here; see ``Learner.settle``.
        """
        begins = torch.cat([torch.zeros_like(self.done[:1]), self.done[:-1]])
        return self.active & ~begins.unsqueeze(-1)

    def ended(self) -> Tensor:
        """Where a step was the agent's last in its episode, for whatever reason."""
        return self.terminated | self.truncated | self.done.unsqueeze(-1)


def normalise(advantages: Tensor, active: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1 over the active samples of all processes, and 0 elsewhere.

    Sums take the active samples only, so that shapes are static and no count goes to the host.
    """
    counted = advantages.masked_fill(~active, 0).double()
    count, added = total(torch.stack([active.sum().double(), counted.sum()]))
    mean = added / count.clamp(min=1)
    difference = (counted - mean).masked_fill(~active, 0)
    variance = total(difference.square().sum()) / (count - 1).clamp(min=1)
    result: Tensor = difference / (variance.sqrt() + 1e-8)
    return result.to(advantages.dtype)


def next_values(rollout: Rollout, network: ActorCritic) -> Tensor:
    """Values of what each step led to.

    Where an episode ended, the buffers already hold the next one's first observation, so the value
    comes from the final observation. Elsewhere it is the next step's.
    """
    values, done, shared = rollout.values[1:].clone(), rollout.done, rollout.shared
    if rollout.memory is not None:  # there, the value had to be taken before all was forgotten
        return torch.where(done.unsqueeze(-1), rollout.final_values, values)
    if host_knows(values.device):
        states = None if shared is None else shared.final_states[done]
        values[done] = network.value(rollout.final_observations[done], states)
        return values
    # How many episodes ended is known to the device alone, so it is done for all places.
    states = None if shared is None else shared.final_states
    final = network.value(rollout.final_observations, states)
    return torch.where(done.unsqueeze(-1), final, values)
