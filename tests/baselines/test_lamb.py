"""LAMB and the schedules of large batches: against plain loops, and that runs resume exactly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpu_zoo.baselines import loop, ppo
from gpu_zoo.baselines.lamb import Lamb, is_trusted
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.ppo import PPOConfig, resume, train
from gpu_zoo.spec import Actions

SPREAD = "mpe/simple_spread_v3"


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 8, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (12, 16),
        "device": "cpu", "progress": False, "total_steps": 400, "optimizer": "lamb",
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def norm(numbers: list[float]) -> float:
    return math.sqrt(sum(x * x for x in numbers))


def by_hand(
    start: list[float], gradients: list[list[float]], lr: float, decay: float, rho: float
) -> list[float]:
    """One tensor's numbers after all steps, number by number."""
    w, m, v = [*start], [0.0] * len(start), [0.0] * len(start)
    for t, gradient in enumerate(gradients, 1):
        m = [0.9 * a + 0.1 * g for a, g in zip(m, gradient, strict=True)]
        v = [0.999 * a + 0.001 * g * g for a, g in zip(v, gradient, strict=True)]
        step = [
            (a / (1 - 0.9**t)) / (math.sqrt(b / (1 - 0.999**t)) + 1e-5) + decay * x
            for a, b, x in zip(m, v, w, strict=True)
        ]
        ratio = min(norm(w), 10.0) / norm(step)
        ratio = min(max(ratio, rho), 1 / rho)
        w = [x - lr * ratio * s for x, s in zip(w, step, strict=True)]
    return w


@pytest.mark.parametrize(
    ("scale", "lr", "rho"),
    [(0.3, 0.1, 0.01), (1e-4, 0.01, 0.1), (40.0, 0.1, 0.01), (5.0, 0.1, 0.9)],
    ids=["free", "least ratio", "longest weights", "greatest ratio"],
)
def test_steps_are_those_of_a_plain_loop(scale: float, lr: float, rho: float) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(3, 4, generator=generator, dtype=torch.float64) * scale)
    bias = nn.Parameter(torch.randn(3, generator=generator, dtype=torch.float64))
    log_std = nn.Parameter(torch.randn(2, 2, generator=generator, dtype=torch.float64))
    unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
    parameters = {"0.weight": weight, "0.bias": bias, "head.log_std": log_std, "9.weight": unused}
    optimizer = Lamb(parameters.items(), lr, rho=rho)
    starts = [p.detach().flatten().tolist() for p in (weight, bias, log_std)]
    noted: list[list[list[float]]] = [[], [], []]
    for _ in range(5):
        for i, p in enumerate((weight, bias, log_std)):
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            noted[i].append(p.grad.flatten().tolist())
        optimizer.step()
    settings = ((0.01, rho), (0.0, 1.0), (0.0, 1.0))
    for p, start, gradients, (decay, bound) in zip(
        (weight, bias, log_std), starts, noted, settings, strict=True
    ):
        wanted = by_hand(start, gradients, lr, decay, bound)
        assert p.detach().flatten().tolist() == pytest.approx(wanted, rel=1e-10, abs=1e-12)
    assert unused.tolist() == [1, 1]


def test_nothing_to_divide_by_is_no_nan() -> None:
    weight = nn.Parameter(torch.zeros(2, 2))
    optimizer = Lamb([("weight", weight)], 0.1)
    weight.grad = torch.zeros(2, 2)
    optimizer.step()
    assert weight.tolist() == [[0, 0], [0, 0]]
    weight.grad = torch.ones(2, 2)
    optimizer.step()
    assert bool((weight < 0).all())  # weights that are 0 do not stay there


@pytest.mark.parametrize("recurrent", [False, True])
def test_biases_and_the_like_are_told_from_weights(recurrent: bool) -> None:
    space = Actions(("x", "y"), box=(-1.0, 1.0)).space()
    network = ActorCritic(5, space, (8,), torch.Generator(), recurrent=recurrent)
    for name, parameter in network.named_parameters():
        assert is_trusted(name) is (parameter.ndim == 2), name


def test_norms_are_not_read_by_the_host() -> None:
    """Meta tensors hold no numbers: whoever wants one fails."""
    network = nn.Linear(3, 2, device="meta")
    optimizer = Lamb(network.named_parameters(), 0.1)
    for _ in range(2):
        for parameter in network.parameters():
            parameter.grad = torch.empty_like(parameter)
        optimizer.step()
    with pytest.raises(RuntimeError):
        float(network.weight.detach().norm())


@pytest.mark.parametrize(
    "changes",
    [{"rho": 0}, {"rho": 1.5}, {"lr": -1}, {"eps": math.nan}, {"betas": (0.9, 1.0)},
     {"weight_decay": -1}],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_a_bad_value_is_named(changes: dict[str, Any]) -> None:
    ((name, _),) = changes.items()
    with pytest.raises(ValueError, match=f"^{name}=.*: expected "):
        Lamb(nn.Linear(2, 2).named_parameters(), **{"lr": 0.1, **changes})


def test_gradients_are_scaled_down_to_the_norm_allowed() -> None:
    learner = ppo.Trainer(SPREAD, small(max_grad_norm=0.3), {}).learners["agent"]
    for length, wanted in ((5.0, 0.3), (0.2, 0.2)):
        gradients = [p.grad for p in learner.network.parameters() if p.grad is not None]
        for gradient in gradients:
            gradient.fill_(length / math.sqrt(learner.parameters.numel()))
        learner.optimizer.step()
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        assert float(norm) == pytest.approx(wanted, rel=1e-4)


def test_resume_is_exact(tmp_path: Path) -> None:
    path = str(tmp_path / "run.pt")
    settings: dict[str, Any] = {"warmup": 0.5, "learning_rate_batch": 10}
    whole = train(SPREAD, small(**settings), {"continuous_actions": True})

    def stop(update: ppo.Update) -> None:
        if update.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        config = small(checkpoint=path, checkpoint_interval=1, **settings)
        train(SPREAD, config, {"continuous_actions": True}, on_update=stop)
    resumed = resume(path)
    assert resumed.curve == whole.curve
    networks = [run.policy.networks["agent"].state_dict() for run in (resumed, whole)]
    assert all(torch.equal(networks[0][name], networks[1][name]) for name in networks[0])
    other = train(SPREAD, small(**settings, optimizer="adam"), {"continuous_actions": True})
    assert other.curve[0].returns == whole.curve[0].returns
    assert other.curve[0].losses != whole.curve[0].losses


def test_the_learning_rate_follows_the_batch_and_warms_up() -> None:
    """40 steps of environments a minibatch, four times what the rate is meant for; 5 iterations."""
    config = small(learning_rate=0.01, learning_rate_batch=10, warmup=0.5, anneal=False)
    trainer = ppo.Trainer(SPREAD, config, {})
    seen: list[list[float]] = []
    groups = trainer.learners["agent"].optimizer.param_groups
    loop.run(trainer, lambda _: seen.append([group["lr"] for group in groups]))
    wanted = [0.02 * share for share in (0.5, 0.7, 0.9, 1, 1)]
    assert [rates[0] for rates in seen] == pytest.approx(wanted)
    assert [rates[1] for rates in seen] == pytest.approx(wanted)
    annealed = small(learning_rate=0.01, learning_rate_batch=10, warmup=0.5)
    assert annealed.after(0.2).learning_rate == pytest.approx(0.02 * 0.7 * 0.8)
    assert small(learning_rate=0.01).after(0.0).learning_rate == 0.01
