"""Tensors that go from one thread to another, each with a CUDA stream of its own or on the CPU."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters


class Parcel:
    """Tensors that nobody writes to any more, all on one device.

    On CUDA they may not be computed yet when the parcel is made: whoever opens it has its stream
    wait for the sender's, while no thread waits.

    Args:
        tensors: by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)
        device = next(iter(self._tensors.values())).device
        self._made: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._made = torch.cuda.current_stream(device).record_event()

    def open(self, device: torch.device) -> dict[str, Tensor]:
        """The tensors on ``device``, for the current streams of the thread that calls this."""
        for tensor in self._tensors.values():
            if self._made is not None:
                # The stream that reads the tensor, if only to copy it to another device.
                stream = torch.cuda.current_stream(tensor.device)
                stream.wait_event(self._made)
                tensor.record_stream(stream)  # its memory is not another's before that is done
        there = device.type == "cuda"  # what goes to the host is not to be read before it arrived
        return {name: x.to(device, non_blocking=there) for name, x in self._tensors.items()}


class Sent:
    """The weights that a network's owner sent last; older ones are forgotten.

    Attributes:
        parcel: what was sent; None at the very start.
    """

    def __init__(self) -> None:
        self.parcel: Parcel | None = None

    def send(self, weights: Tensor) -> None:
        """Send all weights of the network, ``(n,)``, as they are now."""
        self.parcel = Parcel({"weights": weights.detach().clone()})


class Lagged:
    """Somebody else's network: a copy that lags behind it, by a few turns of its owner.

    Args:
        network: the copy, which learns nothing.
        sent: the owner's weights.
        device: where the copy computes.
    """

    def __init__(self, network: nn.Module, sent: Sent, device: torch.device) -> None:
        self._network = network.to(device).requires_grad_(False)
        self._sent, self._device = sent, device
        self._opened: Parcel | None = None

    def renew(self) -> None:
        """Take over the weights that were sent last."""
        parcel = self._sent.parcel
        if parcel is not None and parcel is not self._opened:
            # The parameters then lie in the parcel's memory, to which nobody writes.
            weights = parcel.open(self._device)["weights"]
            vector_to_parameters(weights, self._network.parameters())
            self._opened = parcel
