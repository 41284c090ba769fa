"""Networks of SAC: an actor that draws actions within their bounds; and its policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import softplus

import gpu_zoo
from gpu_zoo.baselines import checkpoint
from gpu_zoo.baselines.deterministic import BoxHead, box
from gpu_zoo.baselines.evaluation import Policy
from gpu_zoo.baselines.layers import mlp

LOG_STD = (-10.0, 2.0)  # beyond these a deviation is as good as none, or all actions are extremes


class SquashedActor(nn.Module):
    """Observations ``(..., obs_size)`` to actions ``(..., size)`` from -1 to 1, drawn at random.

    An action is the tanh of a normally distributed number, whose mean and deviation the network
    gives.

    Args:
        obs_size: length of an observation.
        action_space: a Box with one dimension.
        hidden: widths of the hidden layers.
        generator: draws the initial weights; a CPU generator.

    Raises:
        TypeError: another action space.
    """

    def __init__(
        self,
        obs_size: int,
        action_space: spaces.Space[Any],
        hidden: tuple[int, ...],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.head = BoxHead(box(action_space))
        # At first the mean is nearly 0 and the deviation nearly 1, so that all actions are tried.
        self.net = mlp(obs_size, hidden, 2 * self.head.action_shape[0], 0.01, generator, nn.ReLU)

    def mean_and_log_std(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Of the normal distribution, ``(..., size)`` each."""
        mean, log_std = self.net(observations).chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD)

    def best(self, observations: Tensor, memory: None = None, masks: None = None) -> Tensor:
        """The tanh of the mean."""
        return self.mean_and_log_std(observations)[0].tanh()

    def act(
        self,
        observations: Tensor,
        generator: torch.Generator,
        memory: None = None,
        masks: None = None,
    ) -> tuple[Tensor, Tensor]:
        """A drawn action and the logarithm of its probability density, ``(...)``.

        Both pass gradients to the network.
        """
        mean, log_std = self.mean_and_log_std(observations)
        noise = torch.empty_like(mean).normal_(generator=generator)
        number = mean + noise * log_std.exp()
        normal = -0.5 * (noise.square() + math.log(2 * math.pi)) - log_std
        return number.tanh(), (normal - log_slope(number)).sum(-1)

    def new_memory(self, *lanes: int) -> None:
        """None: it has no memory."""


def log_slope(number: Tensor) -> Tensor:
    """The logarithm of the slope of tanh, by which densities shrink: log(1 - tanh(number)^2).

    Written so that nothing is lost where tanh is 1 but for rounding.
    """
    return 2 * (math.log(2) - number - softplus(-2 * number))


class SquashedPolicy(Policy):
    """A :class:`~gpu_zoo.baselines.evaluation.Policy` whose networks are actors of SAC."""

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu", seed: int = 0) -> SquashedPolicy:
        """The policy in a checkpoint of SAC; ``seed`` is for the actions it will draw.

        Raises:
            CheckpointError: the file is missing, broken or no checkpoint of SAC.
        """
        content = checkpoint.load(path, "sac")
        env_id, env_params = content["env_id"], content["env_params"]
        actors = make_actors(env_id, env_params, tuple(content["config"]["hidden"]), seed)
        for group, actor in actors.items():
            with checkpoint.fitting(path):
                actor.load_state_dict(content["learners"][group]["actor"])
            actor.to(device)
        return cls(env_id, env_params, actors, seed)  # type: ignore[arg-type] # they act alike


def make_actors(
    env_id: str, env_params: Mapping[str, Any], hidden: tuple[int, ...], seed: int
) -> dict[str, SquashedActor]:
    """A fresh actor for every group of agents of an environment, on the CPU.

    Raises:
        TypeError: a group whose actions are not continuous.
    """
    spec = gpu_zoo.spec(env_id)
    generator = torch.Generator().manual_seed(seed)
    return {
        group.name: SquashedActor(group.obs_size, group.actions.space(), hidden, generator)
        for group in spec.layout(spec.resolve(env_params))
    }
