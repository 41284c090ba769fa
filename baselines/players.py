"""Those who act without learning: a network, or chance, for some environments of a group."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from gpu_zoo.baselines.masks import draw_allowed
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.results import GroupBuffers


class Player:
    """Acts for one group, in all environments or some: by a network, or uniformly at random.

    Attributes:
        network: what acts; None for chance.
        memory: a recurrent network's, ``(environments, agents, 2, width)``; None for all others.

    Args:
        group: the group's buffers, which the player reads and writes.
        network: what acts, on the group's device.
        rows: the environments played in.
    """

    def __init__(
        self, group: GroupBuffers, network: ActorCritic | None, rows: slice = slice(None)
    ) -> None:
        self.rows = rows
        self._observations, self._actions = group.observations[rows], group.actions[rows]
        self._space = group.action_space
        self._masks: Tensor | None = None
        if group.action_masks is not None:
            self._masks = group.action_masks[rows]
        self.network = network
        self.memory: Tensor | None = None
        if network is not None:
            self.memory = network.new_memory(*self._actions.shape[:2])

    def act(self, generator: torch.Generator, deterministic: bool = False) -> None:
        """Write actions where the environment reads them."""
        if self.network is None:
            act_randomly(self._space, self._actions, generator, self._masks)
        else:
            action = choose(
                self.network, self._observations, generator, deterministic, self.memory, self._masks
            )
            self._actions.copy_(action)

    def forget(self, done: Tensor) -> None:
        """Forget where an episode has ended; ``done`` is bool ``(num_envs,)``."""
        if self.memory is not None:
            self.memory.masked_fill_(done[self.rows].reshape(-1, 1, 1, 1), 0)


def frozen_copy(network: ActorCritic) -> ActorCritic:
    """The network as it is now: it shares nothing with the other and takes no gradients."""
    return copy.deepcopy(network).requires_grad_(False)


def choose(
    network: ActorCritic,
    observations: Tensor,
    generator: torch.Generator,
    deterministic: bool,
    memory: Tensor | None = None,
    masks: Tensor | None = None,
) -> Tensor:
    """Actions as the environment takes them; changes a recurrent network's whole ``memory``."""
    own = None if memory is None else memory[..., 0, :]
    if deterministic:
        return network.head.to_env(network.best(observations, own, masks))
    return network.head.to_env(network.act(observations, generator, own, masks)[0])


def act_randomly(
    space: spaces.Space[Any],
    into: Tensor,
    generator: torch.Generator,
    masks: Tensor | None = None,
) -> None:
    """Fill ``into`` with actions drawn uniformly from the space, or from what ``masks`` allow."""
    if masks is not None:
        draw_allowed(space, masks, into, generator)
    elif isinstance(space, spaces.Discrete):
        into.random_(0, int(space.n), generator=generator)
    elif isinstance(space, spaces.MultiDiscrete):
        for k, count in enumerate(space.nvec.tolist()):
            into[..., k].random_(0, count, generator=generator)
    else:
        assert isinstance(space, spaces.Box)
        low, high = float(np.min(space.low)), float(np.max(space.high))
        into.uniform_(low, high, generator=generator)
