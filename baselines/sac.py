"""Soft actor-critic for groups of agents, with a learned temperature.

SAC (Haarnoja et al. 2018, arXiv:1801.01290 and arXiv:1812.05905): the actor draws its actions, and
is rewarded for doing so from a broad distribution, by temperature times entropy. The temperature
moves until the entropy is what was asked for.

    result = train("classic/pendulum_v1")
    evaluate(result.policy)

Loop, replay and the critics' loss are those of ddpg.py, with its bootstrap at time limits and with
agents that have left left out. Here stands what differs: targets and losses, and no noise.
Networks are in squashed.py, hyper-parameters in sac_config.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpu_zoo.baselines import ddpg
from gpu_zoo.baselines.ddpg import critic_loss, descend, follow
from gpu_zoo.baselines.deterministic import Critics
from gpu_zoo.baselines.evaluation import Policy, evaluate
from gpu_zoo.baselines.loop import TrainResult, Update
from gpu_zoo.baselines.replay import Transitions
from gpu_zoo.baselines.runs import Runs
from gpu_zoo.baselines.sac_config import SACConfig, default_config
from gpu_zoo.baselines.squashed import SquashedActor, SquashedPolicy, make_actors
from gpu_zoo.results import GroupBuffers

__all__ = [
    "SACConfig", "SquashedPolicy", "TrainResult", "Update", "default_config", "evaluate", "resume",
    "train",
]  # fmt: skip


@torch.no_grad()
def targets(
    actor: SquashedActor,
    critics: Critics,
    batch: Transitions,
    temperature: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """What the critics should say of a batch's actions, ``(rows,)``.

    Args:
        actor: what acts next.
        critics: the target critics; the least of their estimates counts.
        batch: transitions; nothing follows where the agent's game was over, no entropy either.
        temperature: of the entropy.
        generator: draws the actions.
    """
    actions, log_probs = actor.act(batch.next_observations, generator)
    values: Tensor = critics(batch.next_observations, actions).amin(0)
    return batch.returns + batch.discounts * (values - temperature * log_probs)


def actor_loss(
    actor: SquashedActor,
    critics: Critics,
    observations: Tensor,
    temperature: Tensor,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Minus value and weighted entropy of what the actor does; and the actions' log-densities."""
    actions, log_probs = actor.act(observations, generator)
    values = critics(observations, actions).amin(0)
    return (temperature * log_probs - values).mean(), log_probs.detach()


class Learner(ddpg.Learner):
    """One group of agents: DDPG's learner with SAC's actor and losses, and a temperature."""

    actor: SquashedActor  # type: ignore[assignment]

    def __init__(
        self, group: GroupBuffers, actor: SquashedActor, config: SACConfig, weights: torch.Generator
    ) -> None:
        super().__init__(group, actor, config.as_ddpg(), weights)  # type: ignore[arg-type]
        wanted, device = config.target_entropy, group.rewards.device
        self.target_entropy = -actor.head.action_shape[0] if wanted is None else wanted
        self.log_temperature = torch.nn.Parameter(
            torch.tensor(math.log(config.temperature), device=device)
        )
        self.temperature_optimizer = torch.optim.Adam(
            [self.log_temperature], lr=config.temperature_lr
        )
        self.measured |= {"temperature": [], "entropy": []}

    def explore(self, seen: Tensor, generator: torch.Generator) -> Tensor:
        """Actions as the actor draws them."""
        return self.actor.act(seen, generator)[0]

    def learn(self, generator: torch.Generator) -> None:
        """One gradient step of critics, actor and temperature."""
        batch = self.replay.sample(self.config.batch_size, generator)
        temperature = self.log_temperature.detach().exp()
        target = targets(self.actor, self.target_critics, batch, temperature, generator)
        loss, value = critic_loss(self.critics, batch, target)
        descend(loss, self.critics, self.critic_optimizer)
        self._note(critic_loss=loss, value=value)

        loss, log_probs = actor_loss(
            self.actor, self.critics, batch.observations, temperature, generator
        )
        descend(loss, self.actor, self.actor_optimizer)
        self._note(actor_loss=loss, entropy=-log_probs.mean(), temperature=temperature)

        # Too little entropy, and the temperature rises.
        missing = self.target_entropy + log_probs.mean()
        self.log_temperature.grad = -missing
        self.temperature_optimizer.step()
        follow(self.target_critics, self.critics, self.config.tau)

    def _parts(self) -> dict[str, Any]:
        parts = {**super()._parts(), "temperature_optimizer": self.temperature_optimizer}
        del parts["target_actor"]
        return parts

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        return {**super().state_dict(), "log_temperature": self.log_temperature.detach()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        self.log_temperature.data.copy_(state["log_temperature"])


class Trainer(ddpg.Trainer):
    """All that a run consists of, and that a checkpoint holds."""

    def __init__(self, env_id: str, config: SACConfig, env_params: Mapping[str, Any]) -> None:
        self.sac = config
        super().__init__(env_id, config.as_ddpg(), env_params)

    def make_actors(self) -> dict[str, Any]:
        """A fresh actor a group."""
        return make_actors(self.env_id, self.env_params, self.sac.hidden, self.sac.seed)

    def make_learner(self, group: GroupBuffers, actor: Any, weights: torch.Generator) -> Learner:
        """A group's learner."""
        return Learner(group, actor, self.sac, weights)

    def policy(self) -> Policy:
        """What has been learned so far; its networks are those that learn."""
        actors: Any = {name: learner.actor for name, learner in self.learners.items()}
        return SquashedPolicy(self.env_id, self.env_params, actors, self.sac.seed)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        return {**super().state_dict(), "algorithm": "sac", "config": asdict(self.sac)}


SAC = Runs("sac", SACConfig, default_config, Trainer)


def train(
    env_id: str,
    config: SACConfig | None = None,
    env_params: Mapping[str, Any] | None = None,
    *,
    on_update: Callable[[Update], None] | None = None,
) -> TrainResult:
    """Train one policy for each group of agents of an environment with continuous actions.

    On the CPU the same configuration gives the same curve, bit for bit.

    Args:
        env_id: such as ``"classic/pendulum_v1"``.
        config: hyper-parameters; by default those of :func:`default_config`.
        env_params: parameters of the environment, such as ``{"continuous_actions": True}``.
        on_update: called after every iteration.

    Raises:
        KeyError: no such environment.
        TypeError: the actions of a group are not continuous.
        ValueError: a parameter out of range, or a replay too small for one step.
    """
    return SAC.train(env_id, config, env_params, on_update)


def resume(path: str | Path, *, on_update: Callable[[Update], None] | None = None) -> TrainResult:
    """Go on with a run from its checkpoint, exactly as if it had never stopped.

    It goes on saving to ``path``, and computes on the same device.

    Raises:
        CheckpointError: the file is missing, broken or no checkpoint of SAC.
    """
    return SAC.resume(path, on_update)
