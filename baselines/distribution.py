"""Critics that give a distribution of returns instead of a mean (C51).

Bellemare, Dabney and Munos 2017, arXiv:1707.06887. A distribution here is a probability for each of
a fixed row of returns, the atoms, evenly spaced.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_zoo.baselines.deterministic import Actor, Critics
from gpu_zoo.baselines.replay import Transitions
from gpu_zoo.baselines.running import RunningMoments


class DistributionalCritics(Critics):
    """Several estimates of the distribution of returns after an action; called, of their mean.

    Args:
        count: how many.
        obs_size: length of an observation.
        action_size: length of an action.
        hidden: widths of the hidden layers of each.
        generator: draws the initial weights; a CPU generator.
        atoms: the returns that have a probability, float32 ``(atoms,)``, evenly spaced.
        moments: standardise observations with these.
    """

    atoms: Tensor

    def __init__(
        self,
        count: int,
        obs_size: int,
        action_size: int,
        hidden: tuple[int, ...],
        generator: torch.Generator,
        atoms: Tensor,
        moments: RunningMoments | None = None,
    ) -> None:
        super().__init__(
            count, obs_size, action_size, hidden, generator, moments, outputs=len(atoms)
        )
        self.register_buffer("atoms", atoms, persistent=False)

    def log_probabilities(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Of all atoms, by every estimate: ``(count, ..., atoms)``."""
        inputs = self.inputs(observations, actions)
        return torch.stack([net(inputs) for net in self.nets]).log_softmax(-1)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The means of all estimates, ``(count, ...)``."""
        return self.log_probabilities(observations, actions).exp() @ self.atoms


def project(probabilities: Tensor, returns: Tensor, discounts: Tensor, atoms: Tensor) -> Tensor:
    """The distribution of ``returns + discounts * Z``, Z as ``probabilities`` has it.

    Its returns lie between the atoms: each gives its probability to the two atoms next to it, the
    more the nearer, which leaves the mean as it was. Those beyond the first or last atom give it to
    that atom.

    Args:
        probabilities: ``(rows, atoms)``.
        returns: ``(rows,)``.
        discounts: ``(rows,)``.
        atoms: ``(atoms,)``, evenly spaced.

    Returns:
        ``(rows, atoms)``; a row's sum is what it was.
    """
    last = len(atoms) - 1
    moved = returns.unsqueeze(-1) + discounts.unsqueeze(-1) * atoms
    # Where they lie, counted in atoms.
    place = ((moved - atoms[0]) * (last / (atoms[-1] - atoms[0]))).clamp(0, last)
    below = place.floor().clamp(max=last - 1)
    upper = probabilities * (place - below)
    index = below.long()
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, index, probabilities - upper)
    return projected.scatter_add_(1, index + 1, upper)


@torch.no_grad()
def target_distribution(
    actor: Actor,
    critics: DistributionalCritics,
    batch: Transitions,
    noise: Tensor,
    noise_clip: float,
) -> Tensor:
    """What the critics should say of a batch's actions, ``(rows, atoms)``.

    Of each row it is the whole distribution of the critic with the least mean. (The least of every
    atom's probabilities, as in PQL's published code, would not add up to 1.)

    Args:
        actor: what acts next.
        critics: the target critics.
        batch: transitions.
        noise: added to the actor's actions.
        noise_clip: the most that it may be.
    """
    actions = actor(batch.next_observations) + noise.clamp(-noise_clip, noise_clip)
    log_probs = critics.log_probabilities(batch.next_observations, actions.clamp(-1, 1))
    probabilities = log_probs.exp()
    least = (probabilities @ critics.atoms).argmin(0)
    rows = torch.arange(len(least), device=least.device)
    return project(probabilities[least, rows], batch.returns, batch.discounts, critics.atoms)


def distribution_loss(
    critics: DistributionalCritics, batch: Transitions, target: Tensor
) -> tuple[Tensor, Tensor]:
    """The sum of all critics' mean cross-entropies with ``target``, and their mean value.

    Args:
        critics: those that learn.
        batch: transitions.
        target: a distribution a row, ``(rows, atoms)``.
    """
    log_probs = critics.log_probabilities(batch.observations, batch.actions)
    values = log_probs.detach().exp() @ critics.atoms
    return -(target * log_probs).sum(-1).mean(1).sum(), values.mean()
