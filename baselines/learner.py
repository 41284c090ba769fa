"""What PPO learns from, and how: the loss, and one group of agents that descends it.

The loop over rollouts is in ppo.py, hyper-parameters are in config.py, storage and advantages in
rollout.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gpu_zoo.baselines import distributed, sapg
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.flat import FlatAdam, clip_before_steps, flatten, set_rate
from gpu_zoo.baselines.fused_ppo import fuse
from gpu_zoo.baselines.gae import advantages
from gpu_zoo.baselines.graph import shuffled
from gpu_zoo.baselines.lamb import Lamb
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.profile import part
from gpu_zoo.baselines.rollout import Rollout, next_values, normalise
from gpu_zoo.baselines.running import RewardScale
from gpu_zoo.results import GroupBuffers

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


@dataclass(frozen=True)
class Batch:
    """Samples to learn from, one a row: agents, environments and times no longer matter.

    Those of agents that had left the game have weight 0 and count for nothing, all others 1. With
    global states, a row is one of these and holds a sample of each agent: ``(rows, agents, ...)``.
    With memories, a row is an environment's whole rollout: ``(rows, horizon, agents, ...)``.
    ``bonus`` is the share of the entropy bonus that a sample has; without it, each has all of it.
    """

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    weights: Tensor
    states: Tensor | None = None
    bonus: Tensor | None = None
    keep: Tensor | None = None
    memory: Tensor | None = None
    masks: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> Batch:
        chosen = {n: x.index_select(0, rows) for n, x in vars(self).items() if x is not None}
        return Batch(**chosen)


def loss(
    network: ActorCritic, batch: Batch, config: PPOConfig, entropy_coef: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The loss to descend, and ``METRICS``, means over the samples that count, as one tensor.

    ``entropy_coef``, where a CUDA graph is to read it anew, goes before the configuration's.
    """
    log_probs, entropy, values = review(network, batch)
    log_ratio = log_probs - batch.log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    policy_loss = -torch.min(ratio * batch.advantages, clipped * batch.advantages)

    value_loss = (values - batch.returns).square()
    if config.value_clip is not None:
        moved = (values - batch.values).clamp(-config.value_clip, config.value_clip)
        value_loss = torch.max(value_loss, (batch.values + moved - batch.returns).square())

    with torch.no_grad():
        kl = ratio - 1 - log_ratio  # an estimate that is never negative
        cut = ((ratio - 1).abs() > config.clip).float()
    bonus = entropy if batch.bonus is None else entropy * batch.bonus
    terms = torch.stack([policy_loss, value_loss, entropy, kl, cut, bonus])
    means = (terms * batch.weights).flatten(1).sum(1) / batch.weights.sum().clamp(min=1)
    weight = config.entropy_coef if entropy_coef is None else entropy_coef
    total = means[0] + config.value_coef * means[1] - weight * means[5]
    return total, means[:5].detach()


def review(network: ActorCritic, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, entropies and values that the network now gives to the samples."""
    if batch.memory is not None and batch.keep is not None:
        return network.review(
            batch.observations, batch.actions, batch.keep, batch.memory, batch.states, batch.masks
        )
    log_probs, entropy = network.log_prob_and_entropy(
        batch.observations, batch.actions, batch.masks
    )
    return log_probs, entropy, network.value(batch.observations, batch.states)


def optimizer(
    network: ActorCritic, parameters: nn.Parameter, config: PPOConfig
) -> torch.optim.Optimizer:
    """What is to move the network's weights, all of which are ``parameters``."""
    if config.optimizer == "adam":
        return FlatAdam(parameters, config.learning_rate, config.max_grad_norm)
    lamb = Lamb(network.named_parameters(), config.learning_rate)
    clip_before_steps(lamb, parameters, config.max_grad_norm)
    return lamb


class Learner:
    """One group of agents: its buffers in the environment, its network and its rollout."""

    def __init__(self, group: GroupBuffers, network: ActorCritic, config: PPOConfig) -> None:
        device = group.rewards.device
        self.group = group
        self.config = config
        self.network = network.to(device)
        self.parameters = flatten(self.network)
        self.optimizer = optimizer(self.network, self.parameters, config)
        self.fused = fuse(self.network, self.parameters)
        self.rollout = Rollout(config.horizon, group, self.network)
        if config.blocks > 1:
            sapg.label(self.rollout, config.blocks)
        self.memory = self.network.new_memory(*group.rewards.shape)
        self.reward_scale: RewardScale | None = None
        if config.scale_rewards:
            self.reward_scale = RewardScale(tuple(group.rewards.shape), config.gamma).to(device)
        self.return_sum = torch.zeros(config.blocks, dtype=torch.float64, device=device)
        self.zero = torch.zeros((), device=device)
        self.entropy_coef = torch.full((), config.entropy_coef, device=device)

    def adapt(self, config: PPOConfig) -> None:
        """Take on an iteration's learning rate and entropy bonus, where a CUDA graph reads them."""
        set_rate(self.optimizer, config.learning_rate)
        self.entropy_coef.fill_(config.entropy_coef)

    def look(self, t: int) -> None:
        """Note what the group sees: zeros where an agent has left and its row means nothing."""
        group = self.group
        torch.where(
            group.active.unsqueeze(-1), group.observations, self.zero,
            out=self.rollout.observations[t, ..., : self.rollout.obs_size],
        )  # fmt: skip

    def seen(self, t: int) -> Tensor:
        """The group's part of the global state before step ``t``."""
        return self.network.see(self.rollout.observations[t])

    def finally_seen(self, t: int) -> Tensor:
        """Its part of the state that step ``t`` ended an episode with, where it did."""
        gone = self.rollout.terminated[t].unsqueeze(-1)
        return self.network.see(self.rollout.final_observations[t].masked_fill(gone, 0))

    def value(self, t: int, memory: Tensor | None) -> Tensor:
        """Values of what the group was seen to see before step ``t``."""
        rollout = self.rollout
        states = None if rollout.shared is None else rollout.shared.states[t]
        return self.network.value(rollout.observations[t], states, memory)

    def act(self, t: int, generator: torch.Generator) -> None:
        """Write the group's actions where the environment reads them, and note them."""
        rollout, network = self.rollout, self.network
        rollout.active[t] = self.group.active
        observations = rollout.observations[t]
        actors, critics = self.remember(t)
        masks = None
        if rollout.masks is not None:
            masks = rollout.masks[t].copy_(self.group.action_masks)
        if self.fused is not None:
            actions, log_probs = self.fused.act(observations, generator, masks)
        else:
            actions, log_probs = network.act(observations, generator, actors, masks)
        rollout.actions[t] = actions
        rollout.log_probs[t] = log_probs
        if critics is not None:
            rollout.values[t] = self.value(t, critics)
        self.group.actions.copy_(network.head.to_env(actions))

    def record(self, t: int, done: Tensor, counted: Tensor) -> None:
        """Note what the step gave; add the returns of the episodes in ``counted``."""
        rollout, group = self.rollout, self.group
        rollout.rewards[t] = group.rewards
        rollout.terminated[t] = group.terminations
        rollout.truncated[t] = group.truncations
        rollout.final_observations[t, ..., : rollout.obs_size] = group.final_observations
        rollout.done[t] = done
        returns = group.last_returns.mean(1, dtype=torch.float64)
        self.return_sum += sapg.by_block(torch.where(counted, returns, 0.0), self.config.blocks)

    def remember(self, t: int) -> tuple[Tensor | None, Tensor | None]:
        """The memories of actors and critics before step ``t``, to be changed by it."""
        memory, rollout = self.memory, self.rollout
        if memory is None or rollout.memory is None:
            return None, None
        memory.mul_(self.group.active[..., None, None])
        if t == 0:
            rollout.memory.copy_(memory)
        return memory[..., 0, :], memory[..., 1, :]

    def settle(self, t: int) -> None:
        """After step ``t``, value what episodes ended with, and forget them."""
        rollout, memory = self.rollout, self.memory
        if memory is not None:
            states = None if rollout.shared is None else rollout.shared.final_states[t]
            rollout.final_values[t] = self.network.value(
                rollout.final_observations[t], states, memory[..., 1, :].clone()
            )
            memory.masked_fill_(rollout.done[t].reshape(-1, 1, 1, 1), 0)

    def measure_rewards(self) -> None:
        """Let the scale of the rewards follow the full rollout."""
        rollout = self.rollout
        if self.reward_scale is not None:
            self.reward_scale.merge(rollout.rewards, rollout.ended(), rollout.active)

    def measure_observations(self) -> None:
        """Let the network's moments follow the full rollout, when it has been learned from.

        Until then they stand still: probabilities would change with them, and nothing was learned.
        """
        rollout, moments = self.rollout, self.network.moments
        if moments is not None:  # step by step, as float64 takes twice the room
            seen = rollout.observations[:-1, ..., : rollout.obs_size]
            moments.merge_all(zip(seen, rollout.active, strict=True))

    def prepare(self) -> Batch:
        """Turn the full rollout into samples."""
        rollout, config = self.rollout, self.config
        if self.memory is not None:
            rollout.values[-1] = self.value(config.horizon, self.memory[..., 1, :].clone())
        else:  # nothing had to be known any sooner, and all at once is less work
            states = None if rollout.shared is None else rollout.shared.states
            rollout.values.copy_(self.network.value(rollout.observations, states))
        return self.samples(rollout, config.gae_lambda)

    def samples(self, rollout: Rollout, gae_lambda: float) -> Batch:
        """What can be learned from a rollout whose values are all there."""
        scale = self.reward_scale
        values = rollout.values[:-1]
        advantage = advantages(
            rollout.rewards if scale is None else scale.scale(rollout.rewards),
            values,
            next_values(rollout, self.network),
            rollout.terminated,
            rollout.ended(),
            self.config.gamma,
            gae_lambda,
        )
        rows = (
            rollout.observations[:-1], rollout.actions, rollout.log_probs, values,
            normalise(advantage, rollout.active), advantage + values, rollout.active.float(),
        )  # fmt: skip
        states = None if rollout.shared is None else rollout.shared.states[:-1]
        masks = rollout.masks
        if rollout.memory is not None:
            return replace(
                Batch(*(tensor.transpose(0, 1) for tensor in rows)),
                states=None if states is None else states.transpose(0, 1),
                keep=rollout.keep().transpose(0, 1),
                memory=rollout.memory,
                masks=None if masks is None else masks.transpose(0, 1),
            )
        last = 2 if states is None else 1
        return replace(
            Batch(*(tensor.flatten(0, last) for tensor in rows)),
            states=None if states is None else states.flatten(0, 1),
            masks=None if masks is None else masks.flatten(0, last),
        )

    def learn(self, batch: Batch, config: PPOConfig, generator: torch.Generator) -> Tensor:
        """Improve the network on ``batch``; the mean of ``METRICS`` over all gradient steps.

        ``config`` is this iteration's, see :meth:`PPOConfig.after`.
        """
        history: list[Tensor] = []
        for _ in range(config.epochs):
            for rows in shuffled(len(batch.returns), generator).tensor_split(config.minibatches):
                with part("gradient"):
                    history.append(self.gradient(batch, rows, config))
                with part("optimizer"):
                    self.optimizer.step()
            if config.target_kl is not None and float(history[-1][3]) > config.target_kl:
                break
        return torch.stack(history).mean(0)

    def gradient(self, batch: Batch, rows: Tensor, config: PPOConfig) -> Tensor:
        """Find the loss's gradient in some of the batch's rows; their ``METRICS``."""
        gradient = self.parameters.grad
        assert gradient is not None
        if self.fused is not None:
            metrics = self.fused.gradient(batch, rows, config)
        else:
            gradient.zero_()
            descent, metrics = loss(self.network, batch[rows], config, self.entropy_coef)
            descent.backward()  # type: ignore[no-untyped-call]
        if distributed.size() == 1:
            return metrics
        # Means over the samples of all processes, in one message.
        count = batch.weights[rows].sum().reshape(1)
        together = distributed.total(torch.cat([gradient * count, metrics * count, count]))
        together /= together[-1].clamp(min=1)
        gradient.copy_(together[: len(gradient)])
        return together[len(gradient) : -1]
