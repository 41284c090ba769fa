"""The latest rows of something, in device memory, from which any can be drawn.

Nothing here waits for the device: what cannot be stored goes to a row that is never read, and how
many rows there are is known to the device alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class Ring:
    """The latest ``capacity`` rows of several columns.

    Args:
        capacity: rows kept.
        device: where they lie.
        columns: by name, the shape and dtype of one row's entry.
    """

    def __init__(
        self,
        capacity: int,
        device: torch.device | str,
        columns: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
    ) -> None:
        self.capacity = capacity
        # The last row takes what is not to be kept.
        self.columns = {
            name: torch.zeros((capacity + 1, *shape), dtype=dtype, device=device)
            for name, (shape, dtype) in columns.items()
        }
        self.head = torch.zeros((), dtype=torch.int64, device=device)  # to be written next
        self.size = torch.zeros((), dtype=torch.int64, device=device)  # rows that hold something

    def put(self, rows: Mapping[str, Tensor], counts: Tensor) -> None:
        """Store rows, ``(n, ...)`` in each column, where ``counts``, bool ``(n,)``.

        ``n`` is ``capacity`` at most.
        """
        row = (self.head + counts.cumsum(0) - 1) % self.capacity
        row = row.masked_fill(~counts, self.capacity)
        for name, kept in self.columns.items():
            kept.index_copy_(0, row, rows[name])
        total = counts.sum()
        self.head.add_(total).remainder_(self.capacity)
        self.size.add_(total).clamp_(max=self.capacity)

    def draw(self, count: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw ``count`` rows uniformly, with replacement; zeros if nothing is stored."""
        # The remainder of so large a number is uniform to one part in 10^9.
        number = torch.randint(
            2**62, (count,), generator=generator, device=self.size.device, dtype=torch.int64
        )
        row = number % self.size.clamp(min=1)
        return {name: kept.index_select(0, row) for name, kept in self.columns.items()}

    def state_dict(self) -> dict[str, Any]:
        """All that is stored."""
        size = int(self.size)
        rows = {name: kept[:size].clone() for name, kept in self.columns.items()}
        return {"head": self.head.clone(), "rows": rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave, of a ring of the same size."""
        self.head.copy_(state["head"])
        for name, rows in state["rows"].items():
            self.columns[name][: len(rows)].copy_(rows)
            self.size.fill_(len(rows))
