"""PPO in one file of plain torch, the way CleanRL writes it, over SuperSuit's mpe2."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from . import supersuit_envs
from .setting import Contender, Note, Setting


def make(setting: Setting) -> Contender:
    """The loop below, with the setting's hyper-parameters."""
    envs, processes = supersuit_envs.fastest(setting, "gymnasium")
    loop = Loop(setting, envs)
    threads = supersuit_envs.use_fastest_threads(loop.one_gradient)
    loop.reset()

    def train() -> None:
        loop.improve(loop.rollout(), setting.learning_rate)

    def learn(note: Note) -> None:
        new, updates = Loop(setting, envs), math.ceil(setting.total_steps / setting.env_steps)
        new.reset()
        for update in range(updates):
            batch = new.rollout()
            new.improve(batch, setting.learning_rate * (1 - update / updates))
            played = supersuit_envs.mean_return(new.rewards, setting)
            note((update + 1) * setting.env_steps, played)

    play = supersuit_envs.player(envs, setting)
    steps = setting.env_steps
    return Contender(
        f"one file of plain torch on concat_vec_envs_v1 of mpe2, {setting.few_envs} environments x "
        f"{setting.agents} agents x {setting.long_horizon} steps; num_cpus: {processes}, torch "
        f"threads: {threads}, each the fastest here",
        {
            "environment": (setting.horizon * setting.few_envs, play),
            "acting": (steps, loop.rollout),
            "training": (steps, train),
        },
        learn,
    )


class Agent(nn.Module):
    """An actor and a critic that share nothing."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.actor = _tower(setting, setting.actions, 0.01)
        self.critic = _tower(setting, 1, 1.0)

    def forward(self, seen: Tensor, actions: Tensor | None = None) -> tuple[Tensor, ...]:
        """Actions, drawn if none are given; their log-probabilities, entropies and values."""
        policy = Categorical(logits=self.actor(seen))
        if actions is None:
            actions = policy.sample()
        return actions, policy.log_prob(actions), policy.entropy(), self.critic(seen).squeeze(-1)


def _tower(setting: Setting, outputs: int, gain: float) -> nn.Sequential:
    widths = (setting.obs_size, setting.hidden, setting.hidden, outputs)
    layers: list[nn.Module] = []
    for inputs, size in pairwise(widths):
        layer = nn.Linear(inputs, size)
        nn.init.orthogonal_(layer.weight, math.sqrt(2) if len(layers) < 4 else gain)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Loop:
    """Storage of one rollout, and what is done with it."""

    def __init__(self, setting: Setting, envs: Any) -> None:
        torch.manual_seed(setting.seed)
        self.setting, self.envs = setting, envs
        self.agent = Agent(setting)
        self.optimizer = torch.optim.Adam(
            self.agent.parameters(), setting.learning_rate, eps=setting.adam_eps
        )
        shape = (setting.long_horizon, setting.few_envs * setting.agents)
        self.seen = torch.zeros(*shape, setting.obs_size)
        self.actions = torch.zeros(shape, dtype=torch.int64)
        self.log_probs, self.rewards, self.dones, self.values = torch.zeros(4, *shape)

    def reset(self) -> None:
        """Begin new episodes in all environments."""
        observations, _ = self.envs.reset(seed=self.setting.seed)
        self.next_seen = torch.as_tensor(observations)
        self.next_done = torch.zeros(len(observations))

    @torch.no_grad()
    def rollout(self) -> tuple[Tensor, ...]:
        """Play and store; samples one a row."""
        for t in range(len(self.seen)):
            self.seen[t], self.dones[t] = self.next_seen, self.next_done
            actions, log_probs, _, values = self.agent(self.next_seen)
            self.actions[t], self.log_probs[t], self.values[t] = actions, log_probs, values
            observations, rewards, ended, cut, _ = self.envs.step(actions.numpy())
            self.rewards[t] = torch.as_tensor(rewards)
            self.next_seen = torch.as_tensor(observations)
            self.next_done = torch.as_tensor(np.logical_or(ended, cut), dtype=torch.float32)
        last = self.agent.critic(self.next_seen).squeeze(-1)
        dones = torch.cat([self.dones[1:], self.next_done.unsqueeze(0)])
        advantages = estimate(self.rewards, self.values, dones, last, self.setting)
        rows = (self.seen, self.actions, self.log_probs, advantages, advantages + self.values)
        return tuple(row.flatten(0, 1) for row in rows)

    def improve(self, batch: tuple[Tensor, ...], rate: float) -> None:
        """All epochs of gradient steps."""
        setting = self.setting
        self.optimizer.param_groups[0]["lr"] = rate
        order = np.arange(setting.samples)
        for _ in range(setting.epochs):
            np.random.shuffle(order)
            for rows in order.reshape(setting.minibatches, -1):
                chosen = torch.as_tensor(rows)
                self.descend(*(column[chosen] for column in batch))

    def descend(
        self, seen: Tensor, actions: Tensor, old: Tensor, advantages: Tensor, returns: Tensor
    ) -> None:
        """One gradient step."""
        setting = self.setting
        _, log_probs, entropy, values = self.agent(seen, actions)
        ratio = (log_probs - old).exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = ratio.clamp(1 - setting.clip, 1 + setting.clip)
        gain = torch.min(ratio * advantages, clipped * advantages).mean()
        error = (values - returns).square().mean()
        loss = setting.value_coef * error - gain - setting.entropy_coef * entropy.mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), setting.max_grad_norm)
        self.optimizer.step()

    def one_gradient(self) -> None:
        """The work of a gradient step, without one."""
        size = self.setting.samples // self.setting.minibatches
        actions = torch.zeros(size, dtype=torch.int64)
        found = self.agent(torch.zeros(size, self.setting.obs_size), actions)
        sum(part.sum() for part in found[1:]).backward()


def estimate(
    rewards: Tensor, values: Tensor, dones: Tensor, last: Tensor, setting: Setting
) -> Tensor:
    """Generalised advantages ``(T, lanes)``; ``dones`` are those of the steps, ``last`` a value."""
    advantages, flowing = torch.zeros_like(rewards), torch.zeros_like(last)
    for t in reversed(range(len(rewards))):
        follows = last if t == len(rewards) - 1 else values[t + 1]
        left = 1 - dones[t]
        error = rewards[t] + setting.gamma * follows * left - values[t]
        flowing = error + setting.gamma * setting.gae_lambda * left * flowing
        advantages[t] = flowing
    return advantages
