"""Generalised advantage estimates (Schulman et al. 2016, arXiv:1506.02438): see learn/gae.cu."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_zoo import compile as compiler
from gpu_zoo import nvrtc
from gpu_zoo.backends.cpu import pool

NUMBERS = {torch.float32: "float", torch.float64: "double"}
ARRAYS = ("rewards", "values", "next_values", "terminated", "ended", "advantages")
LANES_A_PART = 4096  # that a CPU's thread should get at least
THREADS = 128  # of a block on a GPU


def advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    ended: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """The estimates, float32 or float64 ``(T, ...)`` as all the tensors, on their device.

    Args:
        rewards: of each step.
        values: of the observation before the step.
        next_values: of the observation the step led to, in the same episode.
        terminated: bool: the episode ended for good, so nothing of worth follows, whatever
            ``next_values`` has there. The environment's goes on if the agent has left it; its later
            steps are terminated, too.
        ended: bool: an episode's last step, for whatever reason; nothing flows back over it.
        gamma: discount a step.
        gae_lambda: decay of the sum over steps.
    """
    tensors = [x.contiguous() for x in (rewards, values, next_values, terminated, ended)]
    result = torch.empty_like(tensors[0])
    addresses = [x.data_ptr() for x in (*tensors, result)]
    steps, lanes = len(rewards), rewards[0].numel()
    decay, number = gamma * gae_lambda, NUMBERS[rewards.dtype]
    if rewards.device.type == "cpu":
        library, struct = _on_cpu(number)
        call = struct(*addresses, steps, lanes, gamma, decay)
        threads, where = torch.get_num_threads(), ctypes.addressof(call)
        pool().zoo_pool_run(library, where, lanes, threads, LANES_A_PART)
    else:
        scalars = (np.int64(steps), np.int64(lanes), *np.array([gamma, decay], number[0]))
        arguments = (*map(np.uint64, addresses), *scalars)
        _launch(number, rewards.device.index or 0, lanes, arguments)
    return result


def source(number: str) -> str:
    """The kernel's text, for ``"float"`` or ``"double"``."""
    text = compiler.flatten_file(compiler.KERNELS / "learn" / "gae.cu")
    return f"#define NUMBER {number}\n#define ZOO_LANE 1\n{text}"


@cache
def _on_cpu(number: str) -> tuple[ctypes.c_void_p, type[ctypes.Structure]]:
    """The compiled function, and the struct it takes."""
    kind = ctypes.c_float if number == "float" else ctypes.c_double

    class Gae(ctypes.Structure):
        _fields_ = (
            *((name, ctypes.c_void_p) for name in ARRAYS),
            *((name, ctypes.c_int64) for name in ("steps", "lanes")),
            *((name, kind) for name in ("gamma", "decay")),
        )

    library = ctypes.CDLL(str(compiler.build_host(source(number), "gae")))
    return ctypes.cast(library.gae, ctypes.c_void_p), Gae


def _launch(number: str, index: int, lanes: int, arguments: tuple[Any, ...]) -> None:
    from gpu_zoo.backends.cuda import on_torchs_stream

    with on_torchs_stream(index):
        _on_cuda(number, index)((-(-lanes // THREADS),), (THREADS,), arguments)


@cache
def _on_cuda(number: str, index: int) -> Any:
    import cupy

    arch = f"sm_{cupy.cuda.Device(index).compute_capability}"
    cubin = nvrtc.build_cubin(source(number), "gae", arch)
    return cupy.RawModule(path=str(cubin)).get_function("gae")
