"""The memory of a batch: one allocation, and the arrays that lie in it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.backends import ALIGNMENT, Backend
from gpu_zoo.buffers import Buffer
from gpu_zoo.prelude import Program, StateField


class Memory:
    """All arrays of ``num_envs`` environments, with gaps that keep them out of each other's cache
    sets.

    Attributes:
        arena: the whole of it, as bytes.
        views: native arrays by name: ``"rewards/agent"``, ``"steps"``, ``"table/energy"``, and
            ``"state"`` as bytes.
    """

    def __init__(self, program: Program, backend: Backend, num_envs: int) -> None:
        self._program, self._backend, self._num_envs = program, backend, num_envs
        self._tile_count = -(-num_envs // program.tile)
        self._offsets: dict[str, int] = {}
        end = 0
        buffers = self._buffers()
        for name, buffer in buffers.items():
            self._offsets[name] = end
            nbytes = math.prod(buffer.shape) * buffer.dtype.itemsize
            end = -(-(end + nbytes) // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        self._base = backend.allocate(end)
        self.arena = backend.view(0, np.dtype("u1"), (end,))
        self.views = {
            name: backend.view(self._offsets[name], buffer.dtype, buffer.shape)
            for name, buffer in buffers.items()
        }

    def _buffers(self) -> dict[str, Buffer]:
        program = self._program
        buffers = {
            name: Buffer(buffer.dtype, (self._num_envs, *buffer.shape))
            for name, buffer in program.buffers.items()
        }
        buffers |= {f"table/{name}": table for name, table in program.tables.items()}
        tile_bytes = program.tile * program.state_bytes
        return {**buffers, "state": Buffer(np.dtype("u1"), (self._tile_count, tile_bytes))}

    def address(self, name: str) -> int:
        """Where an array begins, for the kernels; 0 if there is none of this name."""
        return self._base + self._offsets[name] if name in self._offsets else 0

    def tiles(self, field: StateField) -> Any:
        """A field of the state: ``(tiles, entries, environments of a tile)``, a view."""
        tile = self._program.tile
        per_tile = tile * self._program.state_bytes // field.dtype.itemsize
        shape = (self._tile_count, per_tile)
        whole = self._backend.view(self._offsets["state"], field.dtype, shape)
        start = field.offset * tile // field.dtype.itemsize
        part = whole[:, start : start + field.size * tile]
        return part.reshape(self._tile_count, field.size, tile)

    def read(self, field: StateField) -> Any:
        """A field of the state, ``(num_envs, *shape)``; a copy."""
        tiles = self.tiles(field).swapaxes(1, 2)
        # The length is spelt out: of a field without entries -1 could not be worked out.
        flat = tiles.reshape(tiles.shape[0] * tiles.shape[1], *field.shape)
        return copied(flat[: self._num_envs])

    def write(self, field: StateField, native: Any) -> None:
        """Put a native array ``(num_envs, *shape)`` in a field's place."""
        tiles = self.tiles(field)
        count, size, tile = tiles.shape
        padded = copied(tiles.swapaxes(1, 2)).reshape(count * tile, size)
        padded[: self._num_envs] = native.reshape(self._num_envs, size)
        tiles[...] = padded.reshape(count, tile, size).swapaxes(1, 2)


def copied(value: Any) -> Any:
    """A copy of an array of any kind, or of all arrays in a dict."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return value.clone() if hasattr(value, "clone") else value.copy()


def as_int8(flags: Any) -> Any:
    """An array of bools as int8, in which true is 1: as Gymnasium has masks. The same memory."""
    if hasattr(flags, "clone"):
        import torch

        return flags.view(torch.int8)
    return flags.view(np.int8)


def to_numpy(value: Any) -> npt.NDArray[Any]:
    """A NumPy array of a NumPy, CuPy or torch array; on the CPU over the same memory."""
    if hasattr(value, "cpu"):  # torch's
        value = value.cpu()
    elif hasattr(value, "get"):  # CuPy's
        value = value.get()
    return np.asarray(value)
