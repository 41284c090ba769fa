"""Layers with orthogonal weights and zero biases, drawn from a generator of their own."""

from __future__ import annotations

import math

import torch
from torch import nn

from gpu_zoo.baselines.fused import Perceptron


def mlp(
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int,
    gain: float,
    generator: torch.Generator,
    activation: type[nn.Module] = nn.Tanh,
) -> Perceptron:
    """Layers of these widths; ``gain`` scales the last one's weights.

    ReLU is for values in the rewards' own scale, which may be large.
    """
    layers = hidden_layers(inputs, hidden, generator, activation)
    return Perceptron(*layers, linear((inputs, *hidden)[-1], outputs, gain, generator))


def hidden_layers(
    inputs: int,
    hidden: tuple[int, ...],
    generator: torch.Generator,
    activation: type[nn.Module] = nn.Tanh,
) -> list[nn.Module]:
    """Linear layers of these widths, each with an activation after it."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [linear(inputs, size, math.sqrt(2), generator), activation()]
        inputs = size
    return layers


def linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """A linear layer; ``gain`` scales its weights."""
    # Made without storage first: torch's own initialisation would draw from the global generator.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
