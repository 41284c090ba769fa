"""A batch on the CPU that refuses actions as one on a GPU does: unless they are on its device."""

from __future__ import annotations

from typing import Any

from gpu_zoo.vector import VectorEnv


def as_if_on_a_gpu(batch: VectorEnv) -> None:
    """Have a batch take nothing but what its backend has made an array of the device of."""
    backend: Any = batch.engine.backend
    sent: list[Any] = []
    native = backend.native

    def remembered(value: Any) -> Any:
        sent.append(native(value))
        return sent[-1]

    backend.native = remembered
    backend.holds = lambda value: any(value is array for array in sent)
