"""Distributions of returns: projection and loss against plain loops and worked values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gymnasium import spaces

from gpu_zoo.baselines.deterministic import Actor
from gpu_zoo.baselines.distribution import (
    DistributionalCritics,
    distribution_loss,
    project,
    target_distribution,
)
from gpu_zoo.baselines.replay import Transitions


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def by_hand(
    probabilities: list[float], shift: float, scale: float, atoms: list[float]
) -> list[float]:
    """Each atom's probability goes where it moves to, to the two atoms around it."""
    projected = [0.0] * len(atoms)
    for probability, atom in zip(probabilities, atoms, strict=True):
        moved = min(max(shift + scale * atom, atoms[0]), atoms[-1])
        for k in range(len(atoms) - 1):
            low, high = atoms[k], atoms[k + 1]
            if low <= moved < high or (k == len(atoms) - 2 and moved == high):
                projected[k] += probability * (high - moved) / (high - low)
                projected[k + 1] += probability * (moved - low) / (high - low)
    return projected


@pytest.mark.parametrize("count", [2, 5, 51])
def test_projection_is_that_of_a_plain_loop(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    atoms = torch.linspace(-3, 7, count)
    p = torch.randn(200, count, generator=generator).softmax(-1)
    returns = 6 * torch.randn(200, generator=generator)
    discounts = torch.rand(200, generator=generator)
    discounts[::5] = 0.0  # over
    returns[1::5], discounts[1::5] = 0.0, 1.0  # atoms move onto atoms
    found = project(p, returns, discounts, atoms)
    wanted = [
        by_hand(row, float(r), float(d), atoms.tolist())
        for row, r, d in zip(p.tolist(), returns, discounts, strict=True)
    ]
    torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[1::5], p[1::5], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.sum(1), torch.ones(200))
    assert float(found.min()) >= 0
    # Where nothing lies beyond the atoms the mean is that of the target without a projection.
    inside = (returns + 7 * discounts <= 7) & (returns - 3 * discounts >= -3)
    assert 20 < int(inside.sum()) < 200
    means = returns + discounts * (p @ atoms)
    torch.testing.assert_close((found @ atoms)[inside], means[inside], atol=1e-4, rtol=1e-4)


def test_projection_worked_by_hand() -> None:
    atoms = torch.tensor([0.0, 1.0, 2.0])
    p = torch.tensor([[0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])
    # 0.5 + 0.5 z: 0.5, 1, 1.5;  9: beyond the last;  0.25 alone, as the discount is 0
    found = project(p, torch.tensor([0.5, 9.0, 0.25]), torch.tensor([0.5, 1.0, 0.0]), atoms)
    wanted = [[0.1, 0.1 + 0.3 + 0.25, 0.25], [0, 0, 1], [0.75, 0.25, 0]]
    torch.testing.assert_close(found, torch.tensor(wanted))


def tiny() -> tuple[Actor, DistributionalCritics]:
    """Observation s, action a = tanh(s). Of atoms 0 and 1 both have log-odds for 1: of the first
    critic s + a, of the second -s.
    """
    generator = torch.Generator().manual_seed(0)
    actor = Actor(1, spaces.Box(-1, 1, (1,)), (), generator)
    critics = DistributionalCritics(2, 1, 1, (), generator, torch.tensor([0.0, 1.0]))
    nets: Any = critics.nets
    with torch.no_grad():
        actor.net[0].weight.fill_(1.0)
        nets[0][0].weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        nets[1][0].weight.copy_(torch.tensor([[0.0, 0.0], [-1.0, 0.0]]))
    return actor, critics


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_means_and_probabilities_by_hand() -> None:
    _, critics = tiny()
    s, a = torch.tensor([[2.0]]), torch.tensor([[-0.5]])
    torch.testing.assert_close(critics(s, a).flatten(), torch.tensor([sigmoid(1.5), sigmoid(-2.0)]))
    p = critics.log_probabilities(s, a).exp()
    assert p.shape == (2, 1, 2)
    torch.testing.assert_close(p.sum(-1), torch.ones(2, 1))


def test_the_target_is_the_whole_distribution_of_the_critic_with_the_least_mean() -> None:
    actor, critics = tiny()
    batch = Transitions(
        torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([0.0, 0.2]),
        torch.tensor([[1.0], [-1.0]]), torch.tensor([1.0, 0.5]),
    )  # fmt: skip
    noise = torch.tensor([[0.5], [0.0]])
    found = target_distribution(actor, critics, batch, noise, 0.1)
    # s = 1: the second's -1 is less than anything of the first; s = -1: the first's -1 - tanh(1)
    one = sigmoid(-1.0)
    other = sigmoid(-1 - math.tanh(1))
    # 0.2 + 0.5 z: 0.2 and 0.7
    upper = (1 - other) * 0.2 + other * 0.7
    wanted = torch.tensor([[1 - one, one], [1 - upper, upper]])
    torch.testing.assert_close(found, wanted)
    assert not found.requires_grad
    # The noise counts: where the first decides, it is cut to 0.1 and added to the action.
    noisy = target_distribution(actor, critics, batch, torch.tensor([[0.0], [0.5]]), 0.1)
    other = sigmoid(-1 - math.tanh(1) + 0.1)
    assert float(noisy[1, 1]) == pytest.approx((1 - other) * 0.2 + other * 0.7)


def test_cross_entropy_and_its_gradient_by_hand() -> None:
    _, critics = tiny()
    s, a = torch.tensor([[2.0], [1.0]]), torch.tensor([[-0.5], [0.0]])
    batch = Transitions(s, a, torch.zeros(2), s, torch.zeros(2))
    target = torch.tensor([[0.3, 0.7], [1.0, 0.0]])
    loss, value = distribution_loss(critics, batch, target)

    def entropy(odds: float, t: float) -> float:
        return -(t * math.log(sigmoid(odds)) + (1 - t) * math.log(1 - sigmoid(odds)))

    first = (entropy(1.5, 0.7) + entropy(1.0, 0.0)) / 2
    second = (entropy(-2.0, 0.7) + entropy(-1.0, 0.0)) / 2
    assert loss.item() == pytest.approx(first + second, rel=1e-5)
    values = [sigmoid(x) for x in (1.5, 1.0, -2.0, -1.0)]
    assert value.item() == pytest.approx(sum(values) / 4, rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    nets: Any = critics.nets
    # Of cross-entropy in the log-odds: probability minus target; here times s, and halved.
    slope = ((sigmoid(1.5) - 0.7) * 2 + sigmoid(1.0) * 1) / 2
    assert nets[0][0].weight.grad[1, 0].item() == pytest.approx(slope, rel=1e-5)


def test_a_critic_learns_a_distribution_and_not_its_mean_alone() -> None:
    """Rewards of -1 and 3, as likely as each other, after which all is over."""
    generator = torch.Generator().manual_seed(0)
    atoms = torch.linspace(-5, 5, 11)
    critics = DistributionalCritics(2, 1, 1, (8,), generator, atoms)
    actor = Actor(1, spaces.Box(-1, 1, (1,)), (), generator)
    rewards = torch.tensor([-1.0, 3.0]).repeat(64)
    zeros = torch.zeros(128, 1)
    batch = Transitions(zeros, zeros, rewards, zeros, torch.zeros(128))
    optimizer = torch.optim.Adam(critics.parameters(), lr=0.05)
    for _ in range(300):
        loss, _ = distribution_loss(
            critics, batch, target_distribution(actor, critics, batch, zeros, 0.0)
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    p = critics.log_probabilities(zeros[:1], zeros[:1]).exp().detach()
    wanted = torch.zeros(11)
    wanted[4] = wanted[8] = 0.5
    torch.testing.assert_close(p, wanted.expand(2, 1, 11), atol=0.03, rtol=0)
