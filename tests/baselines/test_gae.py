"""The kernel of the advantage estimates; against the defining sum it stands in test_ppo.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_zoo import nvrtc
from gpu_zoo.baselines import gae
from gpu_zoo.errors import MissingDependency
from gpu_zoo.testing import ARCHITECTURES


def rollout(lanes: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(lanes)
    numbers = torch.randn(3, 19, lanes, generator=generator, dtype=dtype)
    terminated, truncated = torch.rand(2, 19, lanes, generator=generator) < 0.1
    return [*numbers, terminated, terminated | truncated]


def loop(
    rewards: Tensor, values: Tensor, following: Tensor, terminated: Tensor, ended: Tensor
) -> Tensor:
    result, carried = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + 0.97 * following[t].masked_fill(terminated[t], 0) - values[t]
        carried = delta + (0.97 * 0.9 * carried).masked_fill(ended[t], 0)
        result[t] = carried
    return result


@pytest.mark.parametrize("lanes", [1, 255, 256, 257, 10_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_lane_is_estimated(lanes: int, dtype: torch.dtype) -> None:
    tensors = rollout(lanes, dtype)
    torch.testing.assert_close(gae.advantages(*tensors, 0.97, 0.9), loop(*tensors))


def test_threads_make_no_difference() -> None:
    tensors = rollout(10_000)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(gae.advantages(*tensors, 0.97, 0.9))
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_views_of_any_stride() -> None:
    tensors = [x.t().contiguous().t() for x in rollout(300)]
    assert not tensors[0].is_contiguous()
    assert torch.equal(
        gae.advantages(*tensors, 0.97, 0.9), gae.advantages(*rollout(300), 0.97, 0.9)
    )


@pytest.mark.parametrize("number", ["float", "double"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_compiles_for_gpus(number: str, architecture: str) -> None:
    try:
        _, log = nvrtc.compile_cubin(gae.source(number), "gae", architecture)
    except MissingDependency as error:
        pytest.skip(str(error))
    usage = nvrtc.usage(log)["gae"]
    assert (usage.stack, usage.spills) == (0, 0)
