"""A multilayer perceptron in one call, on the CPU: see kernels/learn/mlp.cpp.

Networks of the size that these environments need are too small for torch's operations, each of
which reads all rows from memory and writes them back. This one is used wherever it can be; where
it cannot (on a GPU, in another dtype, while a network is being exported), torch's own layers are.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gpu_zoo import compile as compiler
from gpu_zoo.backends.cpu import pool

# Unlike an environment, what is built here need not round as a GPU does.
FLAGS = ("-ffp-contract=fast", "-DZOO_LANE=1")
WIDEST = 256  # above that, products take the time, and torch's are at least as good
ROWS_A_PART = 192  # rows that a thread should get at least, or waking it costs more than it does


class Call(ctypes.Structure):
    """As in mlp.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "inputs", "parameters", "outputs", "kept", "output_gradients", "input_gradients",
            "gradients",
        )),
        ("rows_a_part", ctypes.c_int64),
    )  # fmt: skip


def net(widths: tuple[int, ...], activation: str) -> str:
    """The arguments of mlp.hpp's template."""
    return ", ".join((str(activation == "relu").lower(), *map(str, widths)))


def build(name: str, definitions: str) -> Path:
    """The shared library made from a file in ``kernels/learn``.

    Raises:
        CompileError: the compiler's own message.
        MissingDependency: there is no compiler.
    """
    text = compiler.flatten_file(compiler.KERNELS / "learn" / f"{name}.cpp")
    return compiler.build_host(
        definitions + text, name, flags=("-ffp-contract=fast", "-DZOO_LANE=1")
    )


class Kernel:
    """The compiled functions for one shape of network.

    Args:
        widths: of inputs, hidden layers and outputs.
        activation: ``"tanh"`` or ``"relu"``.

    Raises:
        CompileError: the compiler's own message.
        MissingDependency: there is no compiler.
    """

    def __init__(self, widths: tuple[int, ...], activation: str) -> None:
        path = build("mlp", f"#define NET {net(widths, activation)}\n")
        library = ctypes.CDLL(str(path))
        self.forward = ctypes.cast(library.mlp_forward, ctypes.c_void_p)
        self.backward = ctypes.cast(library.mlp_backward, ctypes.c_void_p)
        self.widths = widths
        self.kept = sum(widths[1:-1])  # numbers a row that the way back needs of the way forth
        self.sizes = [n for a, b in pairwise(widths) for n in (a * b, b)]
        self.size = sum(self.sizes)

    def run(self, task: Any, rows: int, a_part: int, **tensors: Tensor | None) -> None:
        """Call one of the functions over all rows, a part a thread."""
        addresses = {n: None if x is None else x.data_ptr() for n, x in tensors.items()}
        call = Call(rows_a_part=a_part, **addresses)
        pool().zoo_pool_run(task, ctypes.addressof(call), rows, torch.get_num_threads(), a_part)


@cache
def kernel(widths: tuple[int, ...], activation: str) -> Kernel:
    """The kernel for one shape of network, compiled once."""
    return Kernel(widths, activation)


class Perceptron(nn.Sequential):
    """Linear layers with an activation between them, as one operation where that can be.

    Args:
        layers: Linear layers, and between any two of them a Tanh or a ReLU, the same everywhere.

    Attributes:
        in_bfloat16: whether products are computed in bfloat16. Weights, what goes in and what comes
            out are float32 all the same.
    """

    in_bfloat16 = False

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        self.widths = (linear[0].in_features, *(layer.out_features for layer in linear))
        self.activation = "relu" if any(isinstance(x, nn.ReLU) for x in layers) else "tanh"

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs ``(..., n)`` of inputs ``(..., m)``."""
        if self.in_bfloat16:
            with torch.autocast(inputs.device.type, torch.bfloat16):
                return super().forward(inputs).float()  # type: ignore[no-any-return, no-untyped-call]
        if not self._fits(inputs):
            return super().forward(inputs)  # type: ignore[no-any-return, no-untyped-call]
        which = kernel(self.widths, self.activation)
        rows = inputs.reshape(-1, self.widths[0]).contiguous()
        outputs: Tensor = _Perceptron.apply(rows, which, *self.parameters())  # type: ignore[no-untyped-call]
        return outputs.view(*inputs.shape[:-1], -1)

    def _fits(self, inputs: Tensor) -> bool:
        return (
            inputs.device.type == "cpu"
            and inputs.dtype == self[0].weight.dtype == torch.float32
            and inputs.numel() > 0
            and inputs.shape[-1] == self.widths[0]  # torch's layers say what is wrong
            and max(self.widths) <= WIDEST
            and not torch.compiler.is_compiling()
            and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        )


class _Perceptron(torch.autograd.Function):
    """Outputs ``(rows, n)`` of inputs ``(rows, m)`` and of weights and biases, in turns."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, which: Kernel, *parameters: Tensor) -> Tensor:
        rows, flat = len(inputs), _side_by_side(parameters)
        outputs = inputs.new_empty(rows, which.widths[-1])
        kept = inputs.new_empty(rows, which.kept) if any(ctx.needs_input_grad) else None
        which.run(
            which.forward, rows, part(rows),
            inputs=inputs, parameters=flat, outputs=outputs, kept=kept,
        )  # fmt: skip
        ctx.save_for_backward(inputs, flat, kept)
        ctx.kernel, ctx.shapes = which, [parameter.shape for parameter in parameters]
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        inputs, flat, kept = ctx.saved_tensors
        which: Kernel = ctx.kernel
        rows, a_part = len(inputs), part(len(inputs))
        found = torch.empty_like(inputs) if ctx.needs_input_grad[0] else None
        sums = inputs.new_empty(math.ceil(rows / a_part), which.size)
        which.run(
            which.backward, rows, a_part,
            inputs=inputs, parameters=flat, kept=kept, output_gradients=given.contiguous(),
            input_gradients=found, gradients=sums,
        )  # fmt: skip
        gradients = (sums[0] if len(sums) == 1 else sums.sum(0)).split(which.sizes)
        shaped = (g.view(shape) for g, shape in zip(gradients, ctx.shapes, strict=True))
        return found, None, *shaped


def _side_by_side(parameters: Sequence[Tensor]) -> Tensor:
    """The first parameter, if the others follow it in memory, or a copy in which they do."""
    following = parameters[0].data_ptr()
    for parameter in parameters:
        if parameter.data_ptr() != following:
            return torch.cat([p.reshape(-1) for p in parameters])
        following += parameter.nbytes
    return parameters[0]


def part(rows: int) -> int:
    """Rows that each thread gets."""
    return max(ROWS_A_PART, math.ceil(rows / torch.get_num_threads()))
