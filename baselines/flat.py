"""All of a network's parameters as one tensor, and their gradients as another.

What treats every number alike, such as Adam, the norm of a gradient, or a mean over processes, is
then one operation instead of one for each layer's weights and biases.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from gpu_zoo.baselines import fused


def flatten(network: nn.Module) -> nn.Parameter:
    """Move the parameters of ``network`` side by side into one tensor, and their gradients too.

    The network keeps its parameters, which are views from now on: whatever changes them in place
    changes the whole, and the other way round. Gradients have to be zeroed, not set to None.

    Returns:
        All parameters, float32 ``(n,)``, in the network's order; ``grad`` is there, and zero.
    """
    parameters = list(network.parameters())
    whole = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parameters]))
    whole.grad = torch.zeros_like(whole)
    start = 0
    for parameter in parameters:
        part = slice(start, start + parameter.numel())
        parameter.data = whole.data[part].view(parameter.shape)
        parameter.grad = whole.grad[part].view(parameter.shape)
        start = part.stop
    return whole


@torch.no_grad()
def clip_norm(gradient: Tensor, limit: float) -> None:
    """Scale a gradient down to this norm where it is larger."""
    gradient.mul_((limit / (gradient.norm() + 1e-6)).clamp(max=1))


def clip_before_steps(optimizer: torch.optim.Optimizer, whole: nn.Parameter, limit: float) -> None:
    """Have each step of an optimizer begin with :func:`clip_norm`; FlatAdam does so by itself."""
    gradient = whole.grad
    assert gradient is not None
    optimizer.register_step_pre_hook(lambda *_: clip_norm(gradient, limit))


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give an optimizer another step size: in place where a CUDA graph may read it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class Step(ctypes.Structure):
    """As ``Descent`` in adam.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "parameters", "gradient", "mean", "square", "steps",
        )),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_double) for name in (
            "rate", "max_norm", "beta_mean", "beta_square", "epsilon",
        )),
    )  # fmt: skip


@cache
def _adam() -> Any:
    return ctypes.CDLL(str(fused.build("adam", ""))).adam


class FlatAdam(torch.optim.Adam):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) along a gradient scaled down to a norm.

    Args:
        whole: all parameters, from :func:`flatten`.
        rate: the step size, until :func:`set_rate` changes it.
        max_norm: the largest norm.
    """

    def __init__(self, whole: nn.Parameter, rate: float, max_norm: float) -> None:
        cuda = whole.device.type == "cuda"
        lr = torch.tensor(rate, device=whole.device) if cuda else rate
        super().__init__([whole], lr=lr, eps=1e-5, fused=True, capturable=cuda)
        self.whole, self.max_norm = whole, max_norm

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step; on the CPU in one call, where torch's operations would cost more to start."""
        gradient = self.whole.grad
        assert gradient is not None
        if gradient.device.type != "cpu":
            clip_norm(gradient, self.max_norm)
            super().step()
            return
        state, options = self.state[self.whole], self.param_groups[0]
        if not state:  # as torch has it after its first step
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(self.whole.data)
            state["exp_avg_sq"] = torch.zeros_like(self.whole.data)
        step = Step(
            parameters=self.whole.data_ptr(), gradient=gradient.data_ptr(),
            mean=state["exp_avg"].data_ptr(), square=state["exp_avg_sq"].data_ptr(),
            steps=state["step"].data_ptr(), count=self.whole.numel(), rate=options["lr"],
            max_norm=self.max_norm, beta_mean=options["betas"][0],
            beta_square=options["betas"][1], epsilon=options["eps"],
        )  # fmt: skip
        _adam()(ctypes.byref(step))
