"""Several processes that train one policy, as torchrun starts them; one alone is the usual case.

Each has its own share of the environments, on a GPU of its own or on the CPU. What they compute is
what one process would compute with all of them: sums over samples are sums over all processes'.

    torchrun --nproc-per-node=2 -m gpu_zoo.baselines.ppo mpe/simple_spread_v3
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor


class WorkerLost(RuntimeError):
    """Another process of the run is gone, so this one cannot go on either."""


def size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this is, counted from 0, which alone writes files and to the terminal."""
    return dist.get_rank() if size() > 1 else 0


@contextmanager
def joined() -> Iterator[None]:
    """Within it, this process works with the others that torchrun started; alone if it did not."""
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    if alone or not dist.is_available() or dist.is_initialized():
        yield
        return
    cuda = torch.cuda.is_available()
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def local_device(device: str) -> str:
    """The device of this process: of several GPUs, the one that torchrun meant for it."""
    if size() > 1 and device == "cuda":
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return device


def alone(algorithm: str) -> None:
    """Raise an error if torchrun started several processes.

    Raises:
        ValueError: it did, and ``algorithm`` knows nothing of them.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count > 1:
        raise ValueError(f"{count} processes: {algorithm} trains in one, expected no torchrun")


def share(count: int, what: str) -> int:
    """This process's part of ``count``.

    Raises:
        ValueError: the processes cannot have equal parts; the message calls it ``what``.
    """
    if count % size():
        raise ValueError(f"{what}={count}: expected a multiple of the {size()} processes")
    return count // size()


def own_seed(seed: int) -> int:
    """A seed of this process's own, for what it draws; the first one's is ``seed`` itself."""
    if rank() == 0:
        return seed
    return int(np.random.SeedSequence((seed, rank())).generate_state(1, np.uint64)[0] >> 1)


def total(values: Tensor) -> Tensor:
    """The sum over all processes, in place.

    Raises:
        WorkerLost: a process is gone.
    """
    if size() > 1:
        with _others_there():
            dist.all_reduce(values)
    return values


def gathered(value: Any) -> list[Any]:
    """What each process gave, in order, on the first of them; an empty list on the others.

    Raises:
        WorkerLost: a process is gone.
    """
    if size() == 1:
        return [value]
    everything: list[Any] = [None] * size()
    with _others_there():
        dist.gather_object(value, everything if rank() == 0 else None)
    return everything if rank() == 0 else []


@contextmanager
def _others_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # whatever the backend calls it
        raise WorkerLost(
            f"process {rank()} of {size()}: another process of this run is gone "
            f"({str(error).splitlines()[0]}); resume from the last checkpoint"
        ) from error
