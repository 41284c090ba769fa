"""LAMB: Adam whose steps are as long as their layer allows, for very large batches.

You et al. 2020 (arXiv:1904.00962), in the form that Shacklett et al. 2021 (arXiv:2103.07013, "Large
Batch Simulation") train with: the trust ratio is bounded on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

LARGEST_NORM = 10.0  # weights longer than this count as this long


def is_trusted(name: str) -> bool:
    """Whether the parameter of this name is a layer's weights, and not biases or the like."""
    return "weight" in name.rpartition(".")[2]


class Lamb(torch.optim.Optimizer):
    """A layer's weights w move by ``lr * ratio * step``, where ``step`` is Adam's direction plus
    ``weight_decay * w`` (decoupled decay) and ``ratio = min(|w|, 10) / |step|``, kept within
    ``[rho, 1 / rho]``. Everything else, such as biases, has plain Adam: ratio 1 and no decay.

    Waits for no device: norms and ratios stay on it.

    Args:
        parameters: by name, as ``module.named_parameters()`` gives them.
        lr: learning rate.
        betas: decay of the means of gradients and of their squares.
        eps: added to the root of the mean square.
        weight_decay: share of the weights added to their step.
        rho: bound of the trust ratio, over 0 and at most 1; 1 is AdamW.

    Raises:
        ValueError: a value out of range.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
        weight_decay: float = 0.01,
        rho: float = 0.01,
    ) -> None:
        if not 0 < rho <= 1:
            raise ValueError(f"rho={rho!r}: expected a number above 0 and at most 1")
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not value >= 0:
                raise ValueError(f"{name}={value!r}: expected a number of at least 0")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas={betas!r}: expected two numbers from 0 to below 1")
        trusted, others = list[nn.Parameter](), list[nn.Parameter]()
        for name, parameter in parameters:
            (trusted if is_trusted(name) else others).append(parameter)
        groups = [
            {"params": trusted, "weight_decay": weight_decay, "rho": rho},
            {"params": others, "weight_decay": 0.0, "rho": 1.0},
        ]
        super().__init__(
            [group for group in groups if group["params"]],
            {"lr": lr, "betas": betas, "eps": eps, "steps": 0},
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move all parameters that have a gradient; ``closure`` is not supported.

        Raises:
            ValueError: there is a closure.
        """
        if closure is not None:
            raise ValueError(f"closure={closure!r}: expected None")
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if weights:
                group["steps"] += 1
                self._move(group, weights)

    def _move(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        steps = self._adam(group, weights)
        if group["weight_decay"] > 0:
            torch._foreach_add_(steps, weights, alpha=group["weight_decay"])
        if group["rho"] < 1:
            torch._foreach_mul_(steps, trust_ratios(weights, steps, group["rho"]))
        torch._foreach_add_(weights, steps, alpha=-group["lr"])

    def _adam(self, group: dict[str, Any], weights: list[Tensor]) -> list[Tensor]:
        """Adam's direction for each tensor of weights; the learning rate is not in it."""
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {
                    "mean": torch.zeros_like(weight),
                    "square": torch.zeros_like(weight),
                }
        gradients = [w.grad for w in weights if w.grad is not None]
        means = [self.state[w]["mean"] for w in weights]
        squares = [self.state[w]["square"] for w in weights]
        first, second = group["betas"]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        roots = torch._foreach_div(squares, 1 - second ** group["steps"])
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        steps = torch._foreach_div(means, 1 - first ** group["steps"])
        torch._foreach_div_(steps, roots)
        return list(steps)


def trust_ratios(weights: list[Tensor], steps: list[Tensor], rho: float) -> list[Tensor]:
    """How much longer or shorter each tensor's step is to be, one number for each tensor."""
    sizes = torch.stack(torch._foreach_norm(weights)).clamp(max=LARGEST_NORM)
    lengths = torch.stack(torch._foreach_norm(steps))
    tiny = torch.finfo(lengths.dtype).tiny  # a step of length 0 has any ratio
    return list((sizes / lengths.clamp(min=tiny)).clamp(rho, 1 / rho).unbind())
