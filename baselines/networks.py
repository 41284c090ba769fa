"""Actor-critic networks and action distributions, written out by hand: no host reads, no checks.

torch.distributions would validate its arguments, which waits for the device at every step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from gpu_zoo.baselines.layers import mlp
from gpu_zoo.baselines.recurrent import Recurrent
from gpu_zoo.baselines.running import RunningMoments

# The logit of an action that is masked. Its probability is exactly 0, as no float32 is as small as
# its exponential; and it is finite, so that 0 times its logarithm is 0 and not NaN, here and in
# gradients.
MASKED = -1e30


class CategoricalHead(nn.Module):
    """One of ``n`` actions; the actor gives logits. Actions are int64 of shape ``(...)``."""

    action_shape: tuple[int, ...] = ()
    action_dtype = torch.int64

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__()
        self.outputs = int(space.n)

    def sample(self, logits: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """An action and its log-probability. The largest of logit + Gumbel noise is a sample."""
        log_probs = torch.log_softmax(logits, -1)
        exponential = torch.empty_like(logits).exponential_(generator=generator)
        exponential.clamp_(min=torch.finfo(logits.dtype).tiny)  # after 0 any action may be drawn
        action = (log_probs - exponential.log_()).argmax(-1)
        return action, log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def mode(self, logits: Tensor) -> Tensor:
        """The likeliest action."""
        return logits.argmax(-1)

    def log_prob_and_entropy(self, logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of ``action``, and the distribution's entropy."""
        log_probs = torch.log_softmax(logits, -1)
        log_prob = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        return log_prob, -(log_probs.exp() * log_probs).sum(-1)

    def to_env(self, action: Tensor) -> Tensor:
        """The action as the environment takes it."""
        return action


class MultiCategoricalHead(nn.Module):
    """An action for each of several components, drawn independently; the logits lie side by side.

    Actions are int64 of shape ``(..., components)``.
    """

    action_dtype = torch.int64

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__()
        self.counts: list[int] = space.nvec.tolist()
        self.parts = [CategoricalHead(spaces.Discrete(count)) for count in self.counts]
        self.action_shape: tuple[int, ...] = (len(self.counts),)
        self.outputs = sum(self.counts)

    def _split(self, logits: Tensor) -> Iterator[tuple[CategoricalHead, Tensor]]:
        return zip(self.parts, torch.split(logits, self.counts, -1), strict=True)

    def sample(self, logits: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """An action and its log-probability, the sum of its components'."""
        drawn = [part.sample(own, generator) for part, own in self._split(logits)]
        actions, log_probs = zip(*drawn, strict=True)
        return torch.stack(actions, -1), torch.stack(log_probs).sum(0)

    def mode(self, logits: Tensor) -> Tensor:
        """The likeliest action."""
        return torch.stack([part.mode(own) for part, own in self._split(logits)], -1)

    def log_prob_and_entropy(self, logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of ``action``, and the distribution's entropy."""
        both = [
            part.log_prob_and_entropy(own, action[..., k])
            for k, (part, own) in enumerate(self._split(logits))
        ]
        log_probs, entropies = zip(*both, strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def to_env(self, action: Tensor) -> Tensor:
        """The action as the environment takes it."""
        return action


class GaussianHead(nn.Module):
    """A box; the actor gives the mean, the standard deviation is learned but sees no observation.

    Samples are not bounded: :meth:`to_env` clips them to the box, while log-probabilities are
    those of the unclipped sample, as in Stable-Baselines3. Clipping is part of the environment as
    far as the gradient is concerned, and the density stays a plain Gaussian's. The distribution
    starts in the middle of the box, half the box wide, so that little is clipped at first.
    """

    action_dtype = torch.float32
    low: Tensor
    high: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.action_shape: tuple[int, ...] = space.shape
        self.outputs = int(space.low.size)
        self.register_buffer("low", torch.from_numpy(space.low.copy()), persistent=False)
        self.register_buffer("high", torch.from_numpy(space.high.copy()), persistent=False)
        self.log_std = nn.Parameter(((self.high - self.low) / 2).log())

    def distribution(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The mean, and the logarithm of the standard deviation."""
        return outputs + (self.low + self.high) / 2, self.log_std

    def sample(self, outputs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """An unclipped action and its log-probability."""
        mean, log_std = self.distribution(outputs)
        noise = torch.empty_like(mean).normal_(generator=generator)
        return mean + noise * log_std.exp(), _log_density(noise, log_std)

    def mode(self, outputs: Tensor) -> Tensor:
        """The mean."""
        return self.distribution(outputs)[0]

    def log_prob_and_entropy(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of the unclipped ``action``, and the distribution's entropy."""
        mean, log_std = self.distribution(outputs)
        noise = (action - mean) * (-log_std).exp()
        entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
        return _log_density(noise, log_std), entropy.expand(noise.shape[:-1])

    def to_env(self, action: Tensor) -> Tensor:
        """The action as the environment takes it: clipped to the box."""
        return action.clamp(self.low, self.high)


def _log_density(noise: Tensor, log_std: Tensor) -> Tensor:
    return (-0.5 * (noise.square() + math.log(2 * math.pi)) - log_std).sum(-1)


class ActorCritic(nn.Module):
    """A policy and a value function, two MLPs that share nothing.

    Recurrent ones have a memory, ``(..., 2, width)``, the policy's and the value function's. What
    takes a ``memory`` wants one of the two, ``(..., width)``, and changes it in place; without one
    it wants a network that has none. What takes ``masks`` wants them, bool ``(..., n)``, where
    actions are masked: true where the action is allowed, a multi-discrete action's components side
    by side.

    Args:
        obs_size: length of an observation.
        action_space: Discrete, MultiDiscrete or Box, the last two with one dimension.
        hidden: widths of the hidden layers of either MLP.
        generator: draws the initial weights; a CPU generator, so that they do not depend on the
            device.
        normalize: standardise observations with the moments in ``moments``, which the trainer
            lets grow.
        state_size: length of the global state that the critic sees besides; 0 for none.
        recurrent: put a GRU before either MLP's last layer.

    Attributes:
        labels: how many of the last places of an observation in a rollout say whose it is, and are
            none of the environment's.
    """

    labels = 0

    def __init__(
        self,
        obs_size: int,
        action_space: spaces.Space[Any],
        hidden: tuple[int, ...],
        generator: torch.Generator,
        *,
        normalize: bool = False,
        state_size: int = 0,
        recurrent: bool = False,
    ) -> None:
        super().__init__()
        self.head = _head(action_space)
        self.moments = RunningMoments(obs_size) if normalize else None
        # Nearly the same output for every observation at first, so that all actions are tried.
        make = Recurrent if recurrent else mlp
        self.actor = make(obs_size, hidden, self.head.outputs, 0.01, generator)
        self.critic = make(obs_size + state_size, hidden, 1, 1.0, generator)

    def new_memory(self, *lanes: int) -> Tensor | None:
        """Memories that know nothing, ``(*lanes, 2, width)``; None if the network has none."""
        if not isinstance(self.actor, Recurrent):
            return None
        return torch.zeros(*lanes, 2, self.actor.width, device=self.actor.last.weight.device)

    def see(self, observations: Tensor) -> Tensor:
        """Observations as actor and critic get them, without labels."""
        return observations if self.moments is None else self.moments.standardise(observations)

    def _inputs(self, observations: Tensor) -> Tensor:
        """What the actor gets."""
        return self.see(observations)

    def raw_outputs(self, observations: Tensor, memory: Tensor | None = None) -> Tensor:
        """What the head gets."""
        return _step(self.actor, self._inputs(observations), memory)

    def _see_all(self, observations: Tensor, states: Tensor | None) -> Tensor:
        """What the critic gets."""
        seen = self._inputs(observations)
        if states is None:
            return seen
        return torch.cat([seen, states.unsqueeze(-2).expand(*seen.shape[:-1], -1)], -1)

    def act(
        self,
        observations: Tensor,
        generator: torch.Generator,
        memory: Tensor | None = None,
        masks: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """A sampled action and its log-probability for observations ``(..., obs_size)``."""
        outputs = self.raw_outputs(observations, memory)
        return self.head.sample(mask_logits(outputs, masks), generator)

    def best(
        self, observations: Tensor, memory: Tensor | None = None, masks: Tensor | None = None
    ) -> Tensor:
        """The likeliest action."""
        return self.head.mode(mask_logits(self.raw_outputs(observations, memory), masks))

    def value(
        self, observations: Tensor, states: Tensor | None = None, memory: Tensor | None = None
    ) -> Tensor:
        """The expected discounted return, ``(...)``.

        A critic of the global state needs ``states``, ``(..., state_size)``: one for all agents,
        which are the second axis from the end of ``observations``.
        """
        return _step(self.critic, self._see_all(observations, states), memory).squeeze(-1)

    def log_prob_and_entropy(
        self, observations: Tensor, action: Tensor, masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log-probability of ``action``, and the policy's entropy."""
        outputs = mask_logits(self.raw_outputs(observations), masks)
        return self.head.log_prob_and_entropy(outputs, action)

    def review(
        self,
        observations: Tensor,
        actions: Tensor,
        keep: Tensor,
        memory: Tensor,
        states: Tensor | None,
        masks: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities, entropies and values of whole sequences, ``(rows, T, agents)`` each.

        Args:
            observations: ``(rows, T, agents, obs_size)``.
            actions: ``(rows, T, agents, ...)``.
            keep: bool ``(rows, T, agents)``; where false, memory is lost before that step.
            memory: ``(rows, agents, 2, width)``, before the first step; left as it is.
            states: ``(rows, T, state_size)``, for a critic that sees them.
            masks: bool ``(rows, T, agents, n)``, where actions are masked.
        """
        outputs = self.actor(self.see(observations), keep, memory[..., 0, :])
        outputs = mask_logits(outputs, masks)
        values: Tensor = self.critic(self._see_all(observations, states), keep, memory[..., 1, :])
        return *self.head.log_prob_and_entropy(outputs, actions), values.squeeze(-1)


def mask_logits(logits: Tensor, masks: Tensor | None) -> Tensor:
    """Logits of the distribution over the actions that ``masks`` allows, where there are any."""
    return logits if masks is None else logits.masked_fill(~masks, MASKED)


def _step(tower: nn.Module, inputs: Tensor, memory: Tensor | None) -> Tensor:
    if memory is None:
        outputs: Tensor = tower(inputs)
        return outputs
    assert isinstance(tower, Recurrent)
    outputs, after = tower.step(inputs, memory)
    memory.copy_(after)
    return outputs


def _head(space: spaces.Space[Any]) -> CategoricalHead | MultiCategoricalHead | GaussianHead:
    if isinstance(space, spaces.Discrete):
        return CategoricalHead(space)
    if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
        return MultiCategoricalHead(space)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return GaussianHead(space)
    raise TypeError(
        f"action_space={space}: expected Discrete, or MultiDiscrete or Box with one dimension"
    )
