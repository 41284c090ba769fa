"""The matrix products of an iteration and nothing else: what no trainer that uses torch.mm beats.

No environment, no biases, no tanh, no samples gathered, no optimizer.
"""

from __future__ import annotations

import time
from itertools import pairwise

import torch
from torch import Tensor

from .setting import Contender, Setting

LARGE = 1024  # a product large enough to run at the processor's best rate


def towers(setting: Setting) -> list[tuple[int, ...]]:
    """Widths of actor and critic."""
    hidden = (setting.obs_size, setting.hidden, setting.hidden)
    return [(*hidden, setting.actions), (*hidden, 1)]


def flops(setting: Setting) -> dict[str, float]:
    """Floating point operations of the matrix products, for each step of an agent.

    A product of ``(n, a)`` and ``(a, b)`` is ``2 n a b``. The way back takes one for each layer's
    weights and, but for the first layer, one for its inputs.
    """
    forward = [sum(2 * a * b for a, b in pairwise(widths)) for widths in towers(setting)]
    inputs = [sum(2 * a * b for a, b in pairwise(widths[1:])) for widths in towers(setting)]
    acting = forward[0] + forward[1] * (setting.horizon + 1) / setting.horizon
    learning = setting.epochs * (2 * sum(forward) + sum(inputs))
    return {"acting": acting, "learning": learning, "all": acting + learning}


def make(setting: Setting, *, threads: int) -> Contender:
    """torch.mm of the shapes of gpu_zoo's iteration, results written to the same place again."""
    torch.set_num_threads(threads)
    actor, critic = towers(setting)
    lanes = setting.num_envs * setting.agents
    act_step = Products(actor, lanes)
    values = Products(critic, lanes * (setting.horizon + 1))
    minibatch = [
        Products(widths, setting.samples // setting.minibatches) for widths in towers(setting)
    ]

    def act() -> None:
        for _ in range(setting.horizon):
            act_step.forward()
        values.forward()

    def train() -> None:
        act()
        for _ in range(setting.epochs * setting.minibatches):
            for products in minibatch:
                products.forward()
                products.backward()

    counted, best = flops(setting), _best_rate()
    return Contender(
        f"torch.mm of the shapes of gpu_zoo's iteration and nothing else, torch threads: {threads}",
        {"acting": (setting.env_steps, act), "training": (setting.env_steps, train)},
        facts={
            "flops an agent step": counted,
            f"flop/s of a product of {LARGE} x {LARGE}": best,
            "agent steps/s if all ran at this rate": best / counted["all"],
        },
    )


class Products:
    """Those of one tower on so many rows."""

    def __init__(self, widths: tuple[int, ...], rows: int) -> None:
        self.weights = [torch.randn(a, b) / a for a, b in pairwise(widths)]
        self.gradients = [torch.empty_like(w) for w in self.weights]
        self.values = [torch.randn(rows, width) for width in widths]
        self.errors = [torch.randn(rows, width) for width in widths]

    def forward(self) -> None:
        """Each layer's outputs from its inputs."""
        for weights, inputs, outputs in zip(
            self.weights, self.values, self.values[1:], strict=False
        ):
            torch.mm(inputs, weights, out=outputs)

    def backward(self) -> None:
        """Each layer's gradient, and its inputs' but for the first layer."""
        for i in reversed(range(len(self.weights))):
            torch.mm(self.values[i].T, self.errors[i + 1], out=self.gradients[i])
            if i:
                torch.mm(self.errors[i + 1], self.weights[i].T, out=self.errors[i])


def _best_rate() -> float:
    """Floating point operations a second of a large product, the best of ten."""
    a, b = torch.randn(2, LARGE, LARGE)
    out = torch.empty(LARGE, LARGE)

    def once(a: Tensor, b: Tensor) -> float:
        begun = time.perf_counter()
        torch.mm(a, b, out=out)
        return 2 * LARGE**3 / (time.perf_counter() - begun)

    return max(once(a, b) for _ in range(10))
