"""Work of the same shape again and again, on a GPU launched as one CUDA graph.

A small network's operations take a GPU less time than it takes Python to start them. A graph holds
all of an iteration's, thousands of them, and starts with one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def host_knows(device: torch.device) -> bool:
    """Whether Python may ask for a number computed there without waiting for it."""
    return device.type == "cpu"


def shuffled(count: int, generator: torch.Generator) -> Tensor:
    """The numbers below ``count`` in random order, int64, on the generator's device."""
    if host_knows(generator.device):
        return torch.randperm(count, generator=generator)
    # randperm may not be part of a CUDA graph.
    return torch.rand(count, generator=generator, device=generator.device).argsort()


class Graphed:
    """A function without arguments, called as usual on the CPU and, on a GPU, for the first time.

    That first call compiles and allocates what may not be in a graph. The second one is captured,
    and from then on the graph is replayed: the function's Python runs no more. So it must wait for
    nothing, change tensors in place, and leave its result in the same ones.

    Args:
        function: the work; returns one tensor.
        device: where it is done.
        generators: what it draws from.
    """

    def __init__(
        self,
        function: Callable[[], Tensor],
        device: torch.device,
        generators: Sequence[torch.Generator],
    ) -> None:
        self.function, self.device, self.generators = function, device, generators
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: Tensor | None = None

    def __call__(self) -> Tensor:
        """Do the work; the result is overwritten by the next call."""
        self.calls += 1
        if self.device.type != "cuda" or self.calls == 1:
            return self.function()
        if self.graph is None:
            self.graph = self._capture()
        self.graph.replay()
        assert self.result is not None
        return self.result

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        torch.cuda.synchronize(self.device)
        with torch.cuda.device(self.device), torch.cuda.graph(graph):
            self.result = self.function()
        return graph
