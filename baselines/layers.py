"""Layers with orthogonal weights and zero biases, drawn from a generator of their own."""

from __future__ import annotations

import torch
from torch import nn


def tanh_layers(
    inputs: int, hidden: tuple[int, ...], gain: float, generator: torch.Generator
) -> list[nn.Module]:
    """Linear layers of these widths, each with a tanh after it."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [linear(inputs, size, gain, generator), nn.Tanh()]
        inputs = size
    return layers


def linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """A linear layer; ``gain`` scales its weights."""
    # Made without storage first: torch's own initialisation would draw from the global generator.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
