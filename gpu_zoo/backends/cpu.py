"""The CPU: a kernel is a shared library made by the host compiler, stepped by a thread pool."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo import compile as compiler
from gpu_zoo.backends import ALIGNMENT, Operation
from gpu_zoo.prelude import Program

# Agents a thread should get at least, or waking it costs more than it does.
AGENTS_A_CHUNK = 1024
MAX_THREADS = 1024  # as in pool.cpp


def num_threads() -> int:
    """Threads a step may use: ``$GPU_ZOO_NUM_THREADS``, else the cores this process may run on.

    Raises:
        ValueError: the variable is no integer from 1 to 1024.
    """
    chosen = os.environ.get("GPU_ZOO_NUM_THREADS")
    if chosen:
        if not chosen.isdecimal() or not 1 <= int(chosen) <= MAX_THREADS:
            raise ValueError(
                f"GPU_ZOO_NUM_THREADS={chosen!r}: expected an integer from 1 to {MAX_THREADS}"
            )
        return int(chosen)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def pool() -> ctypes.CDLL:
    """The thread pool's library, one a process."""
    source = (compiler.KERNELS / "zoo" / "pool.cpp").read_text()
    library = ctypes.CDLL(str(compiler.build_host(source, "pool")))
    pointer, i32, i64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    library.zoo_pool_run.argtypes = [pointer, pointer, i32, i32, i32]
    library.zoo_pool_run.restype = None
    library.zoo_find_bad_discrete.argtypes = [pointer, i64, ctypes.c_int32]
    library.zoo_find_bad_discrete.restype = i64
    library.zoo_find_bad_multi.argtypes = [pointer, i64, pointer, ctypes.c_int32]
    library.zoo_find_bad_multi.restype = i64
    library.zoo_find_bad_box.argtypes = [pointer, i64, ctypes.c_float, ctypes.c_float]
    library.zoo_find_bad_box.restype = i64
    return library


class CpuBackend:
    """See :class:`gpu_zoo.backends.Backend`."""

    device = "cpu"

    def __init__(
        self, program: Program, num_envs: int, as_torch: bool = False, build: str = "plain"
    ) -> None:
        self._num_envs = num_envs
        self._as_torch = as_torch
        self._build = build
        self.load(program)
        # An emulated block already has threads of its own.
        self._threads = 1 if build in ("emulated", "tsan") else num_threads()
        agents_a_tile = program.num_agents * program.tile
        self._chunk = program.tile * -(-AGENTS_A_CHUNK // agents_a_tile)
        self._run = pool().zoo_pool_run
        self._arena = np.empty(0, np.uint8)
        self._io = np.zeros((), program.io)

    def wait(self) -> None:
        pass  # a launch returns when all is done

    def load(self, program: Program) -> None:
        path = compiler.build_host(compiler.flatten(program), program.spec.name, self._build)
        self._library = ctypes.CDLL(str(path))
        if self._library.zoo_sizeof_io() != program.io.itemsize:
            raise AssertionError("the compiler and NumPy disagree on the layout of Io")
        self._entries = {
            name: ctypes.cast(getattr(self._library, f"zoo_{name}"), ctypes.c_void_p)
            for name in ("reset", "step", "observe")
        }

    def address(self, native: npt.NDArray[Any]) -> int:
        return native.ctypes.data

    def set_block_size(self, threads: int) -> None:
        """Threads an emulated block has; only in builds with ZOO_EMULATE."""
        self._library.zoo_set_block_size(threads)

    def allocate(self, nbytes: int) -> int:
        raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        self._arena = raw[start : start + nbytes]
        return self._arena.ctypes.data

    def view(self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self._arena[offset : offset + nbytes].view(dtype).reshape(shape)

    def native(self, value: Any) -> npt.NDArray[Any]:
        return np.asarray(value)

    def holds(self, value: Any) -> bool:
        return getattr(getattr(value, "device", "cpu"), "type", "cpu") == "cpu" and not hasattr(
            value, "__cuda_array_interface__"
        )

    def public(self, native: npt.NDArray[Any]) -> Any:
        if not self._as_torch:
            return native
        import torch

        return torch.from_dlpack(native)  # type: ignore[attr-defined]

    def bind(self, io: npt.NDArray[np.void]) -> None:
        self._io = io.copy()
        self._address = self._io.ctypes.data

    def launch(self, operation: Operation) -> None:
        self._run(
            self._entries[operation], self._address, self._num_envs, self._threads, self._chunk
        )
