"""Networks of DDPG and PQL: an actor that names one action, critics that value it; their policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

import gpu_zoo
from gpu_zoo.baselines import checkpoint
from gpu_zoo.baselines.evaluation import Policy
from gpu_zoo.baselines.layers import mlp
from gpu_zoo.baselines.running import RunningMoments


def standardised(observations: Tensor, moments: RunningMoments | None) -> Tensor:
    """Observations as networks get them: as they are, if there are no moments."""
    return observations if moments is None else moments.standardise(observations)


def box(space: spaces.Space[Any]) -> spaces.Box:
    """The space, if it is of continuous actions.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise TypeError(
            f"action_space={space}: expected continuous actions, a Box with one dimension"
        )
    return space


class BoxHead(nn.Module):
    """Scales actions from -1 to 1, as the learner has them, to the space's box, and back."""

    low: Tensor
    high: Tensor
    middle: Tensor
    reach: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        low, high = torch.from_numpy(space.low.copy()), torch.from_numpy(space.high.copy())
        self.action_shape: tuple[int, ...] = space.shape
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)
        self.register_buffer("middle", (low + high) / 2, persistent=False)
        self.register_buffer("reach", (high - low) / 2, persistent=False)

    def to_env(self, action: Tensor) -> Tensor:
        """The action as the environment takes it."""
        # Rounded, the middle plus the whole reach may be beyond the bound by its last bit.
        return (self.middle + self.reach * action).clamp(self.low, self.high)


class Actor(nn.Module):
    """Observations ``(..., obs_size)`` to actions ``(..., size)`` from -1 to 1.

    Args:
        obs_size: length of an observation.
        action_space: a Box with one dimension.
        hidden: widths of the hidden layers.
        generator: draws the initial weights; a CPU generator.
        normalize: standardise observations with the moments in ``moments``, which the trainer
            lets grow.

    Raises:
        TypeError: another action space.
    """

    def __init__(
        self,
        obs_size: int,
        action_space: spaces.Space[Any],
        hidden: tuple[int, ...],
        generator: torch.Generator,
        *,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.obs_size = obs_size
        self.head = BoxHead(box(action_space))
        self.moments = RunningMoments(obs_size) if normalize else None
        # Nearly the middle of the box at first: tanh would pass no gradient near its bounds.
        self.net = mlp(obs_size, hidden, self.head.action_shape[0], 0.01, generator, nn.ReLU)

    def forward(self, observations: Tensor) -> Tensor:
        """The action for each observation."""
        actions: Tensor = self.net(standardised(observations, self.moments))
        return actions.tanh()

    # As other policies' networks are asked: for their likeliest action, for a sample and its
    # log-probability, and for a memory, which this one has not. A box has no masks.

    def best(self, observations: Tensor, memory: None = None, masks: None = None) -> Tensor:
        """The same."""
        return self.forward(observations)

    def act(
        self,
        observations: Tensor,
        generator: torch.Generator,
        memory: None = None,
        masks: None = None,
    ) -> tuple[Tensor, Tensor]:
        """The same, and its log-probability, 0."""
        actions = self.forward(observations)
        return actions, actions.new_zeros(actions.shape[:-1])

    def new_memory(self, *lanes: int) -> None:
        """None."""


class Critics(nn.Module):
    """Several estimates of the value of an action from -1 to 1, which share nothing.

    Args:
        count: how many.
        obs_size: length of an observation.
        action_size: length of an action.
        hidden: widths of the hidden layers of each.
        generator: draws the initial weights; a CPU generator.
        moments: standardise observations with these, which are an actor's, too.
        outputs: of each network.
    """

    def __init__(
        self,
        count: int,
        obs_size: int,
        action_size: int,
        hidden: tuple[int, ...],
        generator: torch.Generator,
        moments: RunningMoments | None = None,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        self.moments = moments
        self.nets = nn.ModuleList(
            mlp(obs_size + action_size, hidden, outputs, 1.0, generator, nn.ReLU)
            for _ in range(count)
        )

    def inputs(self, observations: Tensor, actions: Tensor) -> Tensor:
        """What the networks get."""
        return torch.cat([standardised(observations, self.moments), actions], -1)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """All estimates, ``(count, ...)``."""
        inputs = self.inputs(observations, actions)
        return torch.stack([net(inputs).squeeze(-1) for net in self.nets])

    def first(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The first estimate alone, ``(...)``."""
        value: Tensor = self.nets[0](self.inputs(observations, actions))
        return value.squeeze(-1)


class DeterministicPolicy(Policy):
    """A :class:`~gpu_zoo.baselines.evaluation.Policy` whose networks are actors of DDPG or PQL.

    It draws nothing: ``deterministic`` makes no difference, nor does the seed.
    """

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu", seed: int = 0) -> DeterministicPolicy:
        """The policy in a checkpoint of DDPG or PQL.

        Raises:
            CheckpointError: the file is missing, broken or no such checkpoint.
        """
        content = checkpoint.load(path, "ddpg", "pql")
        env_id, env_params, config = content["env_id"], content["env_params"], content["config"]
        normalize = config.get("normalize_observations", False)
        actors = make_actors(env_id, env_params, tuple(config["hidden"]), seed, normalize)
        for group, actor in actors.items():
            with checkpoint.fitting(path):
                actor.load_state_dict(content["learners"][group]["actor"])
            actor.to(device)
        return cls(env_id, env_params, actors, seed)  # type: ignore[arg-type] # they act alike


def make_actors(
    env_id: str,
    env_params: Mapping[str, Any],
    hidden: tuple[int, ...],
    seed: int,
    normalize: bool = False,
) -> dict[str, Actor]:
    """A fresh actor for every group of agents of an environment, on the CPU.

    Raises:
        TypeError: a group whose actions are not continuous.
    """
    spec = gpu_zoo.spec(env_id)
    generator = torch.Generator().manual_seed(seed)
    return {
        group.name: Actor(
            group.obs_size, group.actions.space(), hidden, generator, normalize=normalize
        )
        for group in spec.layout(spec.resolve(env_params))
    }
