"""Networks that remember: a GRU between the layers of an MLP and its last."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gpu_zoo.baselines.layers import hidden_layers, linear


class Recurrent(nn.Module):
    """Tanh layers, a GRU as wide as the last of them, and a linear layer.

    Whoever uses it holds the memory, ``(..., width)``: zeros know nothing.

    Args:
        inputs: length of an input.
        hidden: widths of the tanh layers, at least one.
        outputs: length of an output.
        gain: scales the last layer's initial weights.
        generator: draws the initial weights.
    """

    def __init__(
        self,
        inputs: int,
        hidden: tuple[int, ...],
        outputs: int,
        gain: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.width = hidden[-1]
        self.body = nn.Sequential(*hidden_layers(inputs, hidden, generator))
        self.cell = nn.GRUCell(self.width, self.width, device="meta").to_empty(device="cpu")
        for weight in (self.cell.weight_ih, self.cell.weight_hh):
            nn.init.orthogonal_(weight, generator=generator)
        for bias in (self.cell.bias_ih, self.cell.bias_hh):
            nn.init.zeros_(bias)
        self.last = linear(self.width, outputs, gain, generator)

    def step(self, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs for one step's inputs ``(..., n)``, and the memory after it."""
        memory = self._remember(self.body(inputs), memory)
        return self.last(memory), memory

    def forward(self, inputs: Tensor, keep: Tensor, memory: Tensor) -> Tensor:
        """Outputs for whole sequences, the same as those of step after step.

        Args:
            inputs: ``(rows, T, agents, n)``.
            keep: bool ``(rows, T, agents)``; where false, memory is lost before that step.
            memory: ``(rows, agents, width)``, before the first step.
        """
        features, memories = self.body(inputs), list[Tensor]()
        for t in range(inputs.shape[1]):
            memory = self._remember(features[:, t], memory * keep[:, t].unsqueeze(-1))
            memories.append(memory)
        outputs: Tensor = self.last(torch.stack(memories, 1))
        return outputs

    def _remember(self, features: Tensor, memory: Tensor) -> Tensor:
        flat = self.cell(features.reshape(-1, self.width), memory.reshape(-1, self.width))
        return flat.view(memory.shape)  # type: ignore[no-any-return]
