"""Means and variances that grow with a run, on the device: of observations, and of returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from gpu_zoo.baselines.distributed import total

LIMIT = 10.0  # standardised numbers are cut here: an outlier of the first minutes teaches nothing
EPSILON = 1e-8


class RunningMoments(nn.Module):
    """Mean and variance of all rows so far, each column by itself; buffers of a module, in float64.

    Batches are merged by the rule of Chan, Golub and LeVeque (1979), which squares differences from
    the mean only, so that a mean far from 0 costs no digits.

    Args:
        size: columns of a row.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor  # sums of squared differences from the mean

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(size, dtype=torch.float64))

    @torch.no_grad()
    def merge(self, rows: Tensor, active: Tensor) -> None:
        """Add the rows ``(..., size)`` where ``active``, bool ``(...)``; the others are finite."""
        weights = active.reshape(-1, 1).double()
        rows = rows.reshape(len(weights), -1).double()
        count = weights.sum()
        mean = (rows * weights).sum(0) / count.clamp(min=1)
        self._add(count, mean, ((rows - mean).square() * weights).sum(0))

    @torch.no_grad()
    def merge_all(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Add several batches, and those that the other processes give."""
        ours = RunningMoments(len(self.mean)).to(self.mean.device)
        for rows, active in batches:
            ours.merge(rows, active)
        sums = total(torch.cat([ours.count.reshape(1), ours.count * ours.mean]))
        count, mean = sums[0], sums[1:] / sums[0].clamp(min=1)
        apart = ours.squares + ours.count * (ours.mean - mean).square()
        self._add(count, mean, total(apart))

    def _add(self, count: Tensor, mean: Tensor, squares: Tensor) -> None:
        difference, together = mean - self.mean, (self.count + count).clamp(min=1)
        self.mean += difference * count / together
        self.squares += squares + difference.square() * self.count * count / together
        self.count += count

    def variance(self) -> Tensor:
        """Variance of each column, float64 ``(size,)``: 1 as long as there is no row."""
        return torch.where(self.count > 0, self.squares / self.count.clamp(min=1), 1.0)

    def inverse_std(self) -> Tensor:
        """What brings each column to standard deviation 1, float64 ``(size,)``."""
        return (self.variance() + EPSILON).rsqrt()

    def standardise(self, rows: Tensor) -> Tensor:
        """Rows with mean 0 and variance 1, cut at ±10, in their own dtype."""
        scale = self.inverse_std().to(rows.dtype)
        return ((rows - self.mean.to(rows.dtype)) * scale).clamp(-LIMIT, LIMIT)


class RewardScale(nn.Module):
    """Rewards in units of the discounted return's standard deviation, as VecNormalize of
    Stable-Baselines3 has them: the return here is that of the rewards so far, not of those to come.

    Unlike there, a whole rollout is divided by one number, that of the rollout's end, and nothing
    is cut off.

    Args:
        lanes: environments and agents.
        gamma: discount a step.
    """

    returns: Tensor

    def __init__(self, lanes: tuple[int, ...], gamma: float) -> None:
        super().__init__()
        self.gamma = gamma
        self.moments = RunningMoments(1)
        self.register_buffer("returns", torch.zeros(lanes, dtype=torch.float64))

    @torch.no_grad()
    def merge(self, rewards: Tensor, ended: Tensor, active: Tensor) -> None:
        """Go on with a rollout, all ``(T, *lanes)``; each episode's return begins at 0."""
        self.moments.merge_all(self._follow(rewards, ended, active))

    def _follow(
        self, rewards: Tensor, ended: Tensor, active: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for reward, over, present in zip(rewards, ended, active, strict=True):
            self.returns.mul_(self.gamma).add_(reward)
            yield self.returns.unsqueeze(-1), present
            self.returns.masked_fill_(over, 0)

    def scale(self, rewards: Tensor) -> Tensor:
        """The rewards in these units."""
        return rewards * self.moments.inverse_std().to(rewards.dtype)
