"""Split and aggregate: PPO by a leader that learns from followers, who explore (SAPG).

Singla, Agarwal and Pathak 2024 (arXiv:2407.20230). Environments are split into blocks, each with a
policy of its own. All are one network, which tells them apart by a learned row for each block.
Block 0 is the leader's. The others, its followers, are PPO with an entropy bonus that grows from
block to block, so that they go different ways. In each iteration the leader also learns from as
many of the followers' environments as it has itself, drawn anew, with its own critic's one-step
targets. PPO's loss stays what it is, but for each sample's share of the entropy bonus: see
:func:`from_followers`.

The policy that is evaluated, and whose returns are the run's, is the leader's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from gpu_zoo.baselines.graph import shuffled
from gpu_zoo.baselines.networks import ActorCritic, GaussianHead
from gpu_zoo.baselines.rollout import Rollout, normalise
from gpu_zoo.baselines.running import RunningMoments

if TYPE_CHECKING:
    from gpu_zoo.baselines.learner import Batch, Learner

LEADER = 0


# Blocks ----------------------------------------------------------------------------------------
#
# Environments are dealt out in turn, 0, 1, ..., 0, 1, ... So what differs evenly from the first to
# the last, such as staggered clocks, differs alike in all blocks.


def label(rollout: Rollout, blocks: int) -> None:
    """Put each environment's block into the last place of the observations, where it stays.

    Raises:
        ValueError: blocks cannot have equal parts of this process's environments.
    """
    count = rollout.done.shape[1]
    if count % blocks:
        raise ValueError(f"num_envs: {count} a process, expected a multiple of blocks = {blocks}")
    block = torch.arange(count, device=rollout.done.device) % blocks
    for observations in (rollout.observations, rollout.final_observations):
        observations[..., -1] = block.unsqueeze(-1)


def by_block(numbers: Tensor, blocks: int) -> Tensor:
    """Sums over each block's environments, ``(blocks,)``, of one number for each environment."""
    return numbers.reshape(-1, blocks).sum(0)


def draw(num_envs: int, blocks: int, generator: torch.Generator) -> Tensor:
    """As many of the followers' environments as the leader has, int64, none of them twice."""
    share, followers = num_envs // blocks, blocks - 1
    chosen = shuffled(num_envs - share, generator)[:share]
    return chosen // followers * blocks + chosen % followers + 1


# Networks --------------------------------------------------------------------------------------


class BlockGaussianHead(GaussianHead):
    """A Gaussian whose standard deviation is its block's.

    What it takes for outputs are the actor's with the block's ``log_std`` beside them.
    """

    def __init__(self, space: spaces.Box, blocks: int) -> None:
        super().__init__(space)
        self.log_std = nn.Parameter(self.log_std.detach().repeat(blocks, 1))

    def distribution(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The mean, and the logarithm of the standard deviation."""
        own, log_std = outputs.chunk(2, -1)
        return own + (self.low + self.high) / 2, log_std


class BlockActorCritic(ActorCritic):
    """The policies and value functions of all blocks: one actor and one critic, without memory.

    Observations are ``(..., obs_size + 1)`` with the block's number in the last place, instead of
    which actor and critic get the block's row of ``rows``; or ``(..., obs_size)``, the leader's.

    Args:
        obs_size: length of an observation without the number.
        action_space: Discrete, MultiDiscrete or Box, the last two with one dimension.
        hidden: widths of the hidden layers of either MLP.
        generator: draws the initial weights.
        blocks: how many.
        embedding: length of a row.
        normalize: as in :class:`ActorCritic`.
        state_size: as there.
    """

    labels = 1
    numbers: Tensor

    def __init__(
        self,
        obs_size: int,
        action_space: spaces.Space[Any],
        hidden: tuple[int, ...],
        generator: torch.Generator,
        *,
        blocks: int,
        embedding: int,
        normalize: bool = False,
        state_size: int = 0,
    ) -> None:
        super().__init__(
            obs_size + embedding, action_space, hidden, generator, state_size=state_size
        )
        self.obs_size = obs_size
        self.moments = RunningMoments(obs_size) if normalize else None
        if isinstance(action_space, spaces.Box):
            self.head = BlockGaussianHead(action_space, blocks)
        self.rows = nn.Parameter(torch.randn(blocks, embedding, generator=generator))
        self.register_buffer("numbers", torch.arange(float(blocks)), persistent=False)

    def see(self, observations: Tensor) -> Tensor:
        """Observations as all blocks see them, without the number."""
        return super().see(observations[..., : self.obs_size])

    def _inputs(self, observations: Tensor) -> Tensor:
        return torch.cat([self.see(observations), self._pick(self.rows, observations)], -1)

    def raw_outputs(self, observations: Tensor, memory: Tensor | None = None) -> Tensor:
        """What the head takes for outputs: the actor's, and a box's ``log_std`` beside them."""
        outputs = super().raw_outputs(observations, memory)
        if not isinstance(self.head, BlockGaussianHead):
            return outputs
        return torch.cat([outputs, self._pick(self.head.log_std, observations)], -1)

    def _pick(self, rows: Tensor, observations: Tensor) -> Tensor:
        """The row of each observation's block. A product, as its gradient is summed in a fixed
        order and fast; that of an index is one or the other on a GPU.
        """
        if observations.shape[-1] == self.obs_size:
            return rows[LEADER].expand(*observations.shape[:-1], -1)
        return (observations[..., -1:] == self.numbers).to(rows.dtype) @ rows


# Samples ---------------------------------------------------------------------------------------


def with_followers(learner: Learner, batch: Batch, generator: torch.Generator) -> Batch:
    """The samples of a rollout, and those of the followers that the leader learns from, too.

    Advantages are normalised over all of them.

    Args:
        learner: its rollout is full, and its network still the one that acted.
        batch: the samples of its own rollout.
        generator: draws the followers' environments.
    """
    config = learner.config
    batch = replace(batch, bonus=batch.observations[..., -1] / (config.blocks - 1))
    if config.off_policy_coef == 0:
        return batch
    envs = draw(learner.rollout.done.shape[1], config.blocks, generator)
    lent, mu = from_followers(learner, envs)
    own = len(batch.returns)
    both = {n: torch.cat([x, getattr(lent, n)]) for n, x in vars(batch).items() if x is not None}
    batch = replace(batch, **both)
    advantages = normalise(batch.returns - batch.values, batch.weights > 0)
    advantages[own:] *= mu
    batch.weights[own:] *= config.off_policy_coef
    return replace(batch, advantages=advantages)


def from_followers(learner: Learner, envs: Tensor) -> tuple[Batch, Tensor]:
    """What followers did in ``envs``, as samples of the leader's, and mu by which to weigh them.

    The paper's surrogate for an action of follower j, which the leader would take with the ratio
    r = pi / pi_j, is min(r A, clip(r, mu (1 - eps), mu (1 + eps)) A), with mu = pi_old / pi_j. As
    r = mu pi / pi_old, that is mu times PPO's own surrogate around the leader's old policy: the old
    log-probabilities are to be the leader's, and advantages times mu. With ``off_policy_clip``
    ``"one"``, as in the authors' code, it is PPO's around the follower: its log-probabilities stay,
    and mu counts as 1.

    Args:
        learner: whose rollout is full.
        envs: environments of followers, int64 ``(n,)``.

    Returns:
        Samples whose values and one-step returns are by the leader's critic, with advantages yet
        to be computed from these; and mu, one for each of them.
    """
    network, part = learner.network, learner.rollout.of(envs)
    part.observations[..., -1] = LEADER
    part.final_observations[..., -1] = LEADER
    states = None if part.shared is None else part.shared.states
    part.values = network.value(part.observations, states)
    mu = torch.ones_like(part.log_probs)
    if learner.config.off_policy_clip == "mu":
        before = part.log_probs
        part.log_probs, _ = network.log_prob_and_entropy(
            part.observations[:-1], part.actions, part.masks
        )
        mu = (part.log_probs - before).exp()
    batch = learner.samples(part, gae_lambda=0.0)
    return replace(batch, bonus=torch.zeros_like(batch.returns)), mu.reshape(batch.returns.shape)
