"""What is computed in one call on the CPU equals what torch's own operations compute."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.flat import FlatAdam, clip_norm, flatten
from gpu_zoo.baselines.fused import WIDEST, Perceptron
from gpu_zoo.baselines.fused_ppo import FusedNetwork, fuse
from gpu_zoo.baselines.networks import ActorCritic

HEADS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(5),
    "multi_discrete": spaces.MultiDiscrete([3, 4, 2]),
    "box": spaces.Box(-1, 2, (3,)),
}
OBS, AGENTS, ROWS, STATE = 7, 3, 700, 11


@pytest.fixture(params=[1, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def layers(widths: tuple[int, ...], activation: type[nn.Module]) -> list[nn.Module]:
    result: list[nn.Module] = []
    for before, after in pairwise(widths):
        result += [nn.Linear(before, after), activation()]
    return result[:-1]


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("widths", [(18, 64, 64, 5), (3, 4), (7, 33, 1), (100, WIDEST, 17, 9)])
@pytest.mark.parametrize("rows", [1, 49, 1000])
def test_a_perceptron_is_its_layers(
    activation: type[nn.Module], widths: tuple[int, ...], rows: int, threads: int
) -> None:
    torch.manual_seed(rows)
    parts = layers(widths, activation)
    inputs = (2 * torch.randn(rows, widths[0])).requires_grad_()
    given = torch.randn(rows, widths[-1])

    def run(network: nn.Module) -> list[Tensor]:
        outputs = network(inputs)
        found = torch.autograd.grad(outputs, [inputs, *network.parameters()], given)
        return [outputs, *found]

    for mine, theirs in zip(run(Perceptron(*parts)), run(nn.Sequential(*parts)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 5.0, 1e4])
def test_its_tanh(scale: float) -> None:
    """Through one hidden unit with weight 1 and one output with weight 1."""
    network = Perceptron(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1)).requires_grad_(False)
    for layer in (network[0], network[2]):
        layer.weight.fill_(1)
        layer.bias.fill_(0)
    x = torch.linspace(-scale, scale, 10_001).unsqueeze(1)
    error = network(x).double() - x.double().tanh()
    assert float(error.abs().max()) < 4e-7


def test_wide_layers_and_other_numbers_are_left_to_torch() -> None:
    wide = Perceptron(*layers((4, WIDEST + 1, 2), nn.Tanh))
    x = torch.randn(5, 4)
    assert torch.equal(wide(x), nn.Sequential(*wide)(x))
    double = Perceptron(*layers((4, 8, 2), nn.Tanh)).double()
    assert torch.equal(double(x.double()), nn.Sequential(*double)(x.double()))
    assert wide(x[:0]).shape == (0, 2)


def test_flat_parameters_are_the_networks() -> None:
    network = nn.Sequential(*layers((4, 8, 2), nn.Tanh))
    before = [p.detach().clone() for p in network.parameters()]
    whole = flatten(network)
    assert torch.equal(whole, torch.cat([p.reshape(-1) for p in before]))
    network(torch.randn(3, 4)).square().sum().backward()
    assert whole.grad is not None
    grads = [p.grad for p in network.parameters() if p.grad is not None]
    assert torch.equal(whole.grad, torch.cat([g.reshape(-1) for g in grads]))
    assert float(whole.grad.abs().sum()) > 0
    with torch.no_grad():
        whole.mul_(2)
    for parameter, old in zip(network.parameters(), before, strict=True):
        assert torch.equal(parameter, 2 * old)


@pytest.mark.parametrize("max_norm", [0.01, 1e9])
def test_adam_is_torchs(max_norm: float) -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(1001), torch.randn(20, 1001)
    theirs = nn.Parameter(start.clone())
    reference = torch.optim.Adam([theirs], lr=0.01, eps=1e-5)
    mine = nn.Parameter(start.clone())
    mine.grad = torch.zeros_like(mine)
    optimizer = FlatAdam(mine, 0.01, max_norm)
    for number, gradient in enumerate(gradients):
        optimizer.param_groups[0]["lr"] = reference.param_groups[0]["lr"] = 0.01 / (1 + number)
        mine.grad.copy_(gradient)
        theirs.grad = gradient.clone()
        nn.utils.clip_grad_norm_([theirs], max_norm)
        optimizer.step()
        reference.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    states = optimizer.state_dict()["state"][0], reference.state_dict()["state"][0]
    assert set(states[0]) == set(states[1])
    torch.testing.assert_close(states[0]["exp_avg_sq"], states[1]["exp_avg_sq"])
    assert float(states[0]["step"]) == 20


def test_a_norm_below_the_limit_is_left() -> None:
    gradient = torch.tensor([3.0, 4.0])
    clip_norm(gradient, 6.0)
    assert torch.equal(gradient, torch.tensor([3.0, 4.0]))
    clip_norm(gradient, 2.5)
    torch.testing.assert_close(gradient, torch.tensor([1.5, 2.0]))


def networks(head: str, *, state_size: int = 0, normalize: bool = False) -> ActorCritic:
    """One whose weights are not small, so that probabilities differ."""
    generator = torch.Generator().manual_seed(1)
    network = ActorCritic(
        OBS, HEADS[head], (64, 32), generator, normalize=normalize, state_size=state_size
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    if network.moments is not None:
        rows = 2 * torch.randn(500, OBS, generator=generator) + 1
        network.moments.merge(rows, torch.ones(500, dtype=torch.bool))
    return network


def fused(network: ActorCritic) -> FusedNetwork:
    result = fuse(network, flatten(network))
    assert result is not None
    return result


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("normalize", [False, True])
def test_it_acts_as_the_network_does(head: str, normalize: bool, threads: int) -> None:
    network = networks(head, normalize=normalize)
    observations = 3 * torch.randn(ROWS, AGENTS, OBS)
    theirs = network.act(observations, torch.Generator().manual_seed(3))
    mine = fused(network).act(observations, torch.Generator().manual_seed(3))
    if head == "box":
        torch.testing.assert_close(mine[0], theirs[0], rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(mine[0], theirs[0])
        assert len(mine[0].unique()) > 1
    torch.testing.assert_close(mine[1], theirs[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize("value_clip", [None, 0.1])
@pytest.mark.parametrize("normalize", [False, True])
def test_its_gradient_is_that_of_the_loss(
    head: str, central: bool, value_clip: float | None, normalize: bool, threads: int
) -> None:
    network = networks(head, state_size=STATE * central, normalize=normalize)
    generator = torch.Generator().manual_seed(2)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    lanes = (ROWS, AGENTS) if central else (ROWS,)
    observations = 3 * drawn(*lanes, OBS)
    states = drawn(ROWS, STATE) if central else None
    with torch.no_grad():
        actions, log_probs = network.act(observations, generator)
        values = network.value(observations, states)
    batch = learning.Batch(
        observations=observations,
        actions=actions,
        log_probs=log_probs + 0.3 * drawn(*lanes),  # so that some ratios are cut
        values=values + 0.15 * drawn(*lanes),
        advantages=drawn(*lanes),
        returns=drawn(*lanes),
        weights=(drawn(*lanes) > -1).float(),
        states=states,
    )
    config = PPOConfig(value_clip=value_clip, entropy_coef=0.03, clip=0.15, value_coef=0.7)
    rows = torch.randperm(ROWS, generator=generator)[:401]
    mine = fused(network)
    metrics = mine.gradient(batch, rows, config)
    assert mine.whole.grad is not None
    found = mine.whole.grad.clone()

    mine.whole.grad.zero_()
    total, expected = learning.loss(network, batch[rows], config)
    total.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found, mine.whole.grad, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(metrics, expected, rtol=1e-4, atol=2e-6)
    assert 0.05 < float(metrics[4]) < 0.95  # both sides of the cut were tried
