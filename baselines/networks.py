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

from gpu_zoo.baselines.running import RunningMoments


def mlp(
    inputs: int, hidden: tuple[int, ...], outputs: int, gain: float, generator: torch.Generator
) -> nn.Sequential:
    """Tanh layers with orthogonal weights and zero biases; ``gain`` scales the last layer's."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [_linear(inputs, size, math.sqrt(2), generator), nn.Tanh()]
        inputs = size
    return nn.Sequential(*layers, _linear(inputs, outputs, gain, generator))


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    # Made without storage first: torch's own initialisation would draw from the global generator.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


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

    def _mean(self, outputs: Tensor) -> Tensor:
        return outputs + (self.low + self.high) / 2

    def sample(self, outputs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """An unclipped action and its log-probability."""
        noise = torch.empty_like(outputs).normal_(generator=generator)
        return self._mean(outputs) + noise * self.log_std.exp(), self._log_density(noise)

    def mode(self, outputs: Tensor) -> Tensor:
        """The mean."""
        return self._mean(outputs)

    def log_prob_and_entropy(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of the unclipped ``action``, and the distribution's entropy."""
        noise = (action - self._mean(outputs)) * (-self.log_std).exp()
        entropy = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum()
        return self._log_density(noise), entropy.expand(noise.shape[:-1])

    def _log_density(self, noise: Tensor) -> Tensor:
        return (-0.5 * (noise.square() + math.log(2 * math.pi)) - self.log_std).sum(-1)

    def to_env(self, action: Tensor) -> Tensor:
        """The action as the environment takes it: clipped to the box."""
        return action.clamp(self.low, self.high)


class ActorCritic(nn.Module):
    """A policy and a value function, two MLPs that share nothing.

    Args:
        obs_size: length of an observation.
        action_space: Discrete, MultiDiscrete or Box, the last two with one dimension.
        hidden: widths of the hidden layers of either MLP.
        generator: draws the initial weights; a CPU generator, so that they do not depend on the
            device.
        normalize: standardise observations with the moments in ``moments``, which the trainer
            lets grow.
        state_size: length of the global state that the critic sees besides; 0 for none.
    """

    def __init__(
        self,
        obs_size: int,
        action_space: spaces.Space[Any],
        hidden: tuple[int, ...],
        generator: torch.Generator,
        *,
        normalize: bool = False,
        state_size: int = 0,
    ) -> None:
        super().__init__()
        self.head = _head(action_space)
        self.moments = RunningMoments(obs_size) if normalize else None
        # Nearly the same output for every observation at first, so that all actions are tried.
        self.actor = mlp(obs_size, hidden, self.head.outputs, 0.01, generator)
        self.critic = mlp(obs_size + state_size, hidden, 1, 1.0, generator)

    def see(self, observations: Tensor) -> Tensor:
        """Observations as actor and critic get them."""
        return observations if self.moments is None else self.moments.standardise(observations)

    def act(self, observations: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A sampled action and its log-probability for observations ``(..., obs_size)``."""
        return self.head.sample(self.actor(self.see(observations)), generator)

    def best(self, observations: Tensor) -> Tensor:
        """The likeliest action."""
        return self.head.mode(self.actor(self.see(observations)))

    def value(self, observations: Tensor, states: Tensor | None = None) -> Tensor:
        """The expected discounted return, ``(...)``.

        A critic of the global state needs ``states``, ``(..., state_size)``: one for all agents,
        which are the second axis from the end of ``observations``.
        """
        seen = self.see(observations)
        if states is not None:
            seen = torch.cat([seen, states.unsqueeze(-2).expand(*seen.shape[:-1], -1)], -1)
        values: Tensor = self.critic(seen)
        return values.squeeze(-1)

    def log_prob_and_entropy(self, observations: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of ``action``, and the policy's entropy."""
        return self.head.log_prob_and_entropy(self.actor(self.see(observations)), action)


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
