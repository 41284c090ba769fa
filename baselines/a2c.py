"""Advantage actor-critic for groups of agents (A2C; Mnih et al. 2016, arXiv:1602.01783).

    result = train("mpe/simple_spread_v3")
    evaluate(result.policy)

A rollout of ``horizon`` steps is collected, one gradient step is made on all of it, and it is
thrown away. That is PPO with one pass and one minibatch (Huang et al. 2022, arXiv:2205.09123): when
the gradient is taken the policy is still the one that acted, so PPO's ratio r = pi / pi_old is 1,
nothing is clipped, and as grad r = r grad log pi, the gradient of -r * advantage is the policy
gradient, -advantage * grad log pi. So rollouts, loss and loop are those of ppo.py, with their
bootstrap at time limits and their weights for agents that have left. Here stands what differs:
advantages are not normalised, and the optimizer may be RMSprop.

Of the losses reported, ``approx_kl`` and ``clip_fraction`` are therefore 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from gpu_zoo.baselines import learner, ppo
from gpu_zoo.baselines.a2c_config import A2CConfig, default_config
from gpu_zoo.baselines.evaluation import Policy, evaluate
from gpu_zoo.baselines.flat import clip_before_steps
from gpu_zoo.baselines.loop import TrainResult, Update
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.runs import Runs
from gpu_zoo.results import GroupBuffers

__all__ = [
    "A2CConfig",
    "Policy",
    "TrainResult",
    "Update",
    "default_config",
    "evaluate",
    "resume",
    "train",
]


class Learner(learner.Learner):
    """One group of agents: PPO's learner with A2C's advantages and optimizer."""

    def __init__(self, group: GroupBuffers, network: ActorCritic, config: A2CConfig) -> None:
        super().__init__(group, network, config.as_ppo())
        if config.optimizer == "rmsprop":
            rmsprop: Any = torch.optim.RMSprop(
                [self.parameters], lr=config.learning_rate, alpha=0.99, eps=1e-5
            )
            clip_before_steps(rmsprop, self.parameters, config.max_grad_norm)
            self.optimizer = rmsprop

    def prepare(self) -> learner.Batch:
        """Turn the full rollout into samples, with advantages in the rewards' own scale."""
        batch = super().prepare()
        return replace(batch, advantages=batch.returns - batch.values)


class Trainer(ppo.Trainer):
    """All that a run consists of, and that a checkpoint holds."""

    def __init__(self, env_id: str, config: A2CConfig, env_params: Mapping[str, Any]) -> None:
        self.a2c = config
        super().__init__(env_id, config.as_ppo(), env_params)

    def make_learner(self, group: GroupBuffers, network: ActorCritic) -> Learner:
        """A group's learner."""
        return Learner(group, network, self.a2c)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        return {**super().state_dict(), "algorithm": "a2c", "a2c": asdict(self.a2c)}


A2C = Runs("a2c", A2CConfig, default_config, Trainer, saved="a2c", several=True)


def train(
    env_id: str,
    config: A2CConfig | None = None,
    env_params: Mapping[str, Any] | None = None,
    *,
    on_update: Callable[[Update], None] | None = None,
) -> TrainResult:
    """Train one policy for each group of agents of an environment.

    On the CPU the same configuration gives the same curve, bit for bit.

    Args:
        env_id: such as ``"mpe/simple_spread_v3"``.
        config: hyper-parameters; by default those of :func:`default_config`.
        env_params: parameters of the environment.
        on_update: called after every iteration.

    Raises:
        KeyError: no such environment.
        ValueError: a parameter out of range.
    """
    return A2C.train(env_id, config, env_params, on_update)


def resume(path: str | Path, *, on_update: Callable[[Update], None] | None = None) -> TrainResult:
    """Go on with a run from its checkpoint, exactly as if it had never stopped.

    It goes on saving to ``path``, and computes on the same device.

    Raises:
        CheckpointError: the file is missing, broken or no checkpoint of A2C.
    """
    return A2C.resume(path, on_update)
