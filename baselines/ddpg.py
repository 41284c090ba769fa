"""Deep deterministic policy gradient for groups of agents, on the device from start to end.

DDPG (Lillicrap et al. 2016, arXiv:1509.02971) with what TD3 added to it (Fujimoto et al. 2018,
arXiv:1802.09477): targets from the least of several critics, noise on the target's actions, and an
actor that learns more slowly than the critics. For many environments at once each has its own
amount of exploration noise, and targets sum n rewards (PQL; Li et al. 2023, arXiv:2307.12983).

Every group of agents shares one actor and its critics, which see an agent's own observation and
action only. All groups learn at once.

    result = train("classic/pendulum_v1")
    evaluate(result.policy)

The file reads from top to bottom: targets and losses, one group's learner, and the loop over all of
them. Hyper-parameters are in ddpg_config.py, networks in deterministic.py, storage in replay.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gpu_zoo
from gpu_zoo.baselines import checks
from gpu_zoo.baselines.ddpg_config import DDPGConfig, default_config
from gpu_zoo.baselines.deterministic import (
    Actor,
    Critics,
    DeterministicPolicy,
    make_actors,
)
from gpu_zoo.baselines.evaluation import Policy, evaluate
from gpu_zoo.baselines.loop import TrainResult, Update
from gpu_zoo.baselines.profile import part
from gpu_zoo.baselines.replay import Replay, Transitions, next_observations
from gpu_zoo.baselines.runs import Runs
from gpu_zoo.results import GroupBuffers

__all__ = [
    "DDPGConfig", "DeterministicPolicy", "TrainResult", "Update", "default_config", "evaluate",
    "resume", "train",
]  # fmt: skip

METRICS = ("critic_loss", "value", "actor_loss")


# Learning --------------------------------------------------------------------------------------


@torch.no_grad()
def targets(
    actor: Actor, critics: Critics, batch: Transitions, noise: Tensor, noise_clip: float
) -> Tensor:
    """What the critics should say of a batch's actions, ``(rows,)``.

    Args:
        actor: the target actor.
        critics: the target critics; the least of their estimates counts.
        batch: transitions; the bootstrap is theirs, 0 where the agent's game was over.
        noise: added to the actor's actions after it was clipped, so that a narrow peak of the
            critics is not taken for a value.
        noise_clip: the most that it may be.
    """
    actions = actor(batch.next_observations) + noise.clamp(-noise_clip, noise_clip)
    values: Tensor = critics(batch.next_observations, actions.clamp(-1, 1)).amin(0)
    return batch.returns + batch.discounts * values


def critic_loss(critics: Critics, batch: Transitions, target: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of all critics' mean squared errors, and their mean value."""
    values = critics(batch.observations, batch.actions)
    return (values - target).square().mean(1).sum(), values.detach().mean()


def actor_loss(actor: Actor, critics: Critics, observations: Tensor) -> Tensor:
    """Minus the value of what the actor does. Only the actor is to descend it."""
    return -critics.first(observations, actor(observations)).mean()


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Move the target's weights a share ``tau`` of the way to the source's."""
    for slow, fast in zip(target.parameters(), source.parameters(), strict=True):
        slow.lerp_(fast, tau)


class Learner:
    """One group of agents: its buffers in the environment, its networks and its replay."""

    def __init__(
        self, group: GroupBuffers, actor: Actor, config: DDPGConfig, weights: torch.Generator
    ) -> None:
        device, lanes = group.rewards.device, tuple(group.rewards.shape)
        obs_size, shape = group.observations.shape[-1], actor.head.action_shape
        self.group, self.config = group, config
        self.actor = actor.to(device)
        critics = Critics(config.critics, obs_size, shape[0], config.hidden, weights)
        self.critics = critics.to(device)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_optimizer = torch.optim.Adam(actor.parameters(), lr=config.actor_lr, fused=True)
        self.critic_optimizer = torch.optim.Adam(
            critics.parameters(), lr=config.critic_lr, fused=True
        )
        self.replay = Replay(
            config.capacity, (lanes[0], lanes[1]), obs_size, shape, config.n_step, config.gamma,
            device,
        )  # fmt: skip
        # From careful to bold: who explores how much need not be tuned, nor fall over time.
        spread = torch.linspace(config.noise_min, config.noise_max, lanes[0], device=device)
        self.noise = spread.reshape(-1, 1, 1)
        self.critic_updates = 0
        self.return_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.zero = torch.zeros((), device=device)
        self.measured: dict[str, list[Tensor]] = {name: [] for name in METRICS}

    @torch.no_grad()
    def act(self, generator: torch.Generator) -> None:
        """Note what the group sees, and write its actions where the environment reads them."""
        group = self.group
        # Zeros where an agent has left and its row means nothing.
        seen = torch.where(group.active.unsqueeze(-1), group.observations, self.zero)
        if self.replay.steps < self.config.warmup:
            shape = (*seen.shape[:-1], *self.actor.head.action_shape)
            actions = seen.new_empty(shape).uniform_(-1, 1, generator=generator)
        else:
            actions = self.explore(seen, generator)
        self.replay.before(seen, actions, group.active)
        group.actions.copy_(self.actor.head.to_env(actions))

    def explore(self, seen: Tensor, generator: torch.Generator) -> Tensor:
        """Actions with noise."""
        actions: Tensor = self.actor(seen)
        noise = torch.empty_like(actions).normal_(generator=generator)
        return (actions + self.noise * noise).clamp(-1, 1)

    @torch.no_grad()
    def record(self, done: Tensor) -> None:
        """Note what the step gave, and add the returns of the episodes that ended."""
        group = self.group
        ended = group.terminations | group.truncations | done.unsqueeze(-1)
        following = next_observations(group, done)
        self.replay.after(group.rewards, following, group.terminations, ended)
        returns = group.last_returns.mean(1, dtype=torch.float64)
        self.return_sum += torch.where(done, returns, 0.0).sum()

    def learn(self, generator: torch.Generator) -> None:
        """One gradient step of the critics, and of the actor if it is its turn."""
        config = self.config
        batch = self.replay.sample(config.batch_size, generator)
        noise = torch.empty_like(batch.actions).normal_(generator=generator)
        target = targets(
            self.target_actor, self.target_critics, batch, noise * config.target_noise,
            config.target_noise_clip,
        )  # fmt: skip
        loss, value = critic_loss(self.critics, batch, target)
        descend(loss, self.critics, self.critic_optimizer)
        self._note(critic_loss=loss, value=value)
        self.critic_updates += 1
        if self.critic_updates % config.actor_delay == 0:
            loss = actor_loss(self.actor, self.critics, batch.observations)
            descend(loss, self.actor, self.actor_optimizer)
            self._note(actor_loss=loss)
            follow(self.target_critics, self.critics, config.tau)
            follow(self.target_actor, self.actor, config.tau)

    def _note(self, **values: Tensor) -> None:
        for name, value in values.items():
            self.measured[name].append(value.detach())

    def take_measured(self) -> dict[str, Tensor]:
        """Means of ``METRICS`` since the last call, without those of which there are none."""
        means = {name: torch.stack(v).mean() for name, v in self.measured.items() if v}
        self.measured = {name: [] for name in self.measured}
        return means

    def _parts(self) -> dict[str, Any]:
        names = (
            "actor", "critics", "target_actor", "target_critics", "actor_optimizer",
            "critic_optimizer", "replay",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        state = {name: part.state_dict() for name, part in self._parts().items()}
        return {**state, "critic_updates": self.critic_updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""
        for name, own in self._parts().items():
            own.load_state_dict(state[name])
        self.critic_updates = state["critic_updates"]


def descend(loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A gradient step of ``network`` alone: what else the loss went through gets no gradient.

    The actor's loss goes through the critics, which would otherwise learn to praise.
    """
    optimizer.zero_grad()
    loss.backward(inputs=list(network.parameters()))  # type: ignore[no-untyped-call]
    optimizer.step()


# The loop --------------------------------------------------------------------------------------


class Trainer:
    """All that a run consists of, and that a checkpoint holds."""

    def __init__(self, env_id: str, config: DDPGConfig, env_params: Mapping[str, Any]) -> None:
        self.env_id, self.config, self.env_params = env_id, config, checks.plain(env_params)
        actors = self.make_actors()
        self.env = gpu_zoo.make_vec(
            env_id, config.num_envs, device=config.device, array="torch", **env_params
        )
        weights = torch.Generator().manual_seed(config.seed + 2**31)  # not those of the actors
        self.learners = {
            name: self.make_learner(group, actors[name], weights)
            for name, group in self.env.group.items()
        }
        self.device = next(iter(self.env.group.values())).rewards.device
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.env.reset(seed=config.seed * config.num_envs)  # no two seeds share an environment
        self.curve: list[Update] = []

    def make_actors(self) -> dict[str, Actor]:
        """A fresh actor a group."""
        return make_actors(self.env_id, self.env_params, self.config.hidden, self.config.seed)

    def make_learner(self, group: GroupBuffers, actor: Actor, weights: torch.Generator) -> Learner:
        """A group's learner."""
        return Learner(group, actor, self.config, weights)

    def step(self) -> Tensor:
        """One step of all environments, and learning after it; how many episodes ended."""
        config = self.config
        with part("acting"):
            for learner in self.learners.values():
                learner.act(self.generator)
        with part("environment steps"):
            done: Tensor = self.env.step()[4]["_episode"]
        for learner in self.learners.values():
            with part("replay"):
                learner.record(done)
            if learner.replay.steps > max(config.warmup, config.n_step):
                with part("learning"):
                    for _ in range(config.updates):
                        learner.learn(self.generator)
        return done.sum()

    def iterate(self) -> tuple[int, dict[str, float], dict[str, float]]:
        """One iteration: episodes, returns and losses, read in one go."""
        episodes = torch.zeros((), dtype=torch.float64, device=self.device)
        for learner in self.learners.values():
            learner.return_sum.zero_()
        for _ in range(self.config.horizon):
            episodes += self.step()
        losses = {
            f"{group}/{name}": value
            for group, learner in self.learners.items()
            for name, value in learner.take_measured().items()
        }
        sums = [learner.return_sum for learner in self.learners.values()]
        numbers = torch.stack([episodes, *sums, *(v.double() for v in losses.values())]).tolist()
        count, rest = numbers[0], numbers[1:]
        returns = {g: s / count for g, s in zip(self.learners, rest, strict=False) if count}
        return int(count), returns, dict(zip(losses, rest[len(sums) :], strict=True))

    def policy(self) -> Policy:
        """What has been learned so far; its networks are those that learn."""
        actors: Any = {name: learner.actor for name, learner in self.learners.items()}
        return DeterministicPolicy(self.env_id, self.env_params, actors, self.config.seed)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        return {
            "algorithm": "ddpg",
            "env_id": self.env_id,
            "env_params": self.env_params,
            "device": self.env.device,
            "config": asdict(self.config),
            "curve": [asdict(update) for update in self.curve],
            "env": self.env.get_state(),
            "generator": self.generator.get_state(),
            "learners": {name: learner.state_dict() for name, learner in self.learners.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""
        self.curve = [Update(**update) for update in state["curve"]]
        self.env.set_state({name: value.to(self.device) for name, value in state["env"].items()})
        self.generator.set_state(state["generator"])
        for name, saved in state["learners"].items():
            self.learners[name].load_state_dict(saved)


DDPG = Runs("ddpg", DDPGConfig, default_config, Trainer)


def train(
    env_id: str,
    config: DDPGConfig | None = None,
    env_params: Mapping[str, Any] | None = None,
    *,
    on_update: Callable[[Update], None] | None = None,
) -> TrainResult:
    """Train one policy for each group of agents of an environment with continuous actions.

    On the CPU the same configuration gives the same curve, bit for bit. Returns in the curve are
    those of exploring agents; :func:`evaluate` plays without noise.

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
    return DDPG.train(env_id, config, env_params, on_update)


def resume(path: str | Path, *, on_update: Callable[[Update], None] | None = None) -> TrainResult:
    """Go on with a run from its checkpoint, exactly as if it had never stopped.

    It goes on saving to ``path``, and computes on the same device.

    Raises:
        CheckpointError: the file is missing, broken or no checkpoint of DDPG.
    """
    return DDPG.resume(path, on_update)
