"""CUDA: a kernel is a cubin launched by CuPy on the current stream of the user's framework.

Memory is one allocation from CuPy's or torch's pool, made once. A launch allocates nothing, waits
for nothing and takes no argument that changes from step to step, so a step can be captured in a
CUDA graph.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo import compile as compiler
from gpu_zoo import nvrtc
from gpu_zoo.backends import Operation
from gpu_zoo.ctext import LANE_THREADS
from gpu_zoo.errors import MissingDependency
from gpu_zoo.prelude import Program
from gpu_zoo.team import MAX_SLOTS

INSTALL = "pip install 'gpu-zoo[cuda13]' (or 'gpu-zoo[cuda12]' for CUDA 12)"


def why_unusable() -> str:
    """Why CUDA cannot be used here, with the command that helps; empty if it can."""
    try:
        import cupy
    except ImportError:
        return f"CuPy is not installed: {INSTALL}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy finds no CUDA device ({error}): install NVIDIA's driver, check nvidia-smi"
    if count == 0:
        return "CuPy finds no CUDA device: check nvidia-smi and CUDA_VISIBLE_DEVICES"
    try:
        nvrtc.library()
    except MissingDependency as error:
        return str(error)
    return ""


class CudaBackend:
    """See :class:`gpu_zoo.backends.Backend`."""

    def __init__(self, program: Program, num_envs: int, device: str, as_torch: bool) -> None:
        import cupy

        self._cupy = cupy
        self._as_torch = as_torch
        self._workspaces: Any = None
        self._index = int(device.partition(":")[2] or 0)
        count = cupy.cuda.runtime.getDeviceCount()
        if self._index >= count:
            raise ValueError(f"device={device!r}: there are {count} CUDA devices")
        self.device = device
        self._num_envs = num_envs
        self.load(program)
        self._io: Any = None

    def wait(self) -> None:
        with self._cupy.cuda.Device(self._index):
            self._cupy.cuda.runtime.deviceSynchronize()

    def load(self, program: Program) -> None:
        with self._cupy.cuda.Device(self._index) as gpu:
            arch = f"sm_{gpu.compute_capability}"
            cubin = nvrtc.build_cubin(compiler.flatten(program), program.spec.name, arch)
            # Blocks that wait for each other must all be running.
            together = program.team.blocks > 1
            module = self._cupy.RawModule(path=str(cubin), enable_cooperative_groups=together)
            self._kernels = {
                name: module.get_function(f"zoo_{name}") for name in ("reset", "step", "observe")
            }
            self._block = (program.team.block_threads,)
            self._grid = (self._blocks(program, self._num_envs, gpu),)

    def _blocks(self, program: Program, num_envs: int, gpu: Any) -> int:
        team = program.team
        if program.lane:
            return -(-num_envs // LANE_THREADS)
        slots = -(-num_envs // team.per_block)
        if team.in_memory:
            slots = min(slots, MAX_SLOTS)
        if team.blocks > 1:
            occupancy = self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
            fewest = min(occupancy(k.kernel.ptr, team.threads, 0) for k in self._kernels.values())
            running = fewest * gpu.attributes["MultiProcessorCount"]
            if running < team.blocks:
                raise ValueError(
                    f"device={self.device!r}: runs {running} blocks at a time, and "
                    f"{program.num_agents} agents take {team.blocks}"
                )
            slots = min(slots, running // team.blocks)
        if team.in_memory:
            self._workspaces = self._zeros(slots * team.workspace)
            self._arrivals = self._zeros(slots * 4)
        return slots * team.blocks

    def allocate(self, nbytes: int) -> int:
        self._arena = self._zeros(nbytes)
        return self.address(self._arena)

    def _zeros(self, nbytes: int) -> Any:
        if self._as_torch:
            import torch

            return torch.zeros(nbytes, dtype=torch.uint8, device=f"cuda:{self._index}")
        with self._cupy.cuda.Device(self._index):
            return self._cupy.zeros(nbytes, np.uint8)

    def address(self, native: Any) -> int:
        return int(native.data_ptr() if self._as_torch else native.data.ptr)

    def view(self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        part = self._arena[offset : offset + nbytes]
        if self._as_torch:
            import torch

            return part.view(getattr(torch, dtype.name)).reshape(shape)
        return part.view(dtype).reshape(shape)

    def native(self, value: Any) -> Any:
        if self._as_torch:
            import torch

            return torch.as_tensor(value, device=f"cuda:{self._index}")
        with self._cupy.cuda.Device(self._index):
            return self._cupy.asarray(value)

    def holds(self, value: Any) -> bool:
        if self._as_torch:
            where: Any = getattr(value, "device", None)
            return getattr(where, "type", "") == "cuda" and where.index == self._index
        return hasattr(value, "__cuda_array_interface__")

    def public(self, native: Any) -> Any:
        return native

    def bind(self, io: npt.NDArray[np.void]) -> None:
        if self._workspaces is not None:
            io["workspaces"] = self.address(self._workspaces)
            io["arrivals"] = self.address(self._arrivals)
        raw = self.native(np.frombuffer(io.tobytes(), np.uint8).copy())
        first = self._io is None
        if first:
            self._io = self._zeros(len(raw))
        with self._current_stream():
            self._io[...] = raw
            if first:
                # Whoever steps on another stream than the one of today must find all this done.
                self._cupy.cuda.runtime.deviceSynchronize()

    def launch(self, operation: Operation) -> None:
        with self._current_stream():
            self._kernels[operation](self._grid, self._block, (self.address(self._io),))

    def _current_stream(self) -> AbstractContextManager[Any]:
        """CuPy on the device, and on the stream that torch works on if torch owns the arrays."""
        if self._as_torch:
            return on_torchs_stream(self._index)
        return self._cupy.cuda.Device(self._index)  # type: ignore[no-any-return]


def on_torchs_stream(index: int) -> AbstractContextManager[Any]:
    """Within it CuPy launches on device ``index``, on the stream that torch works on there."""
    import cupy
    import torch

    stack = ExitStack()
    stack.enter_context(cupy.cuda.Device(index))
    stack.enter_context(_as_cupys(torch.cuda.current_stream(index).cuda_stream, index))
    return stack


@cache
def _as_cupys(handle: int, index: int) -> Any:
    import cupy
    import torch

    # from_external came with CuPy 14, which deprecates ExternalStream.
    if hasattr(cupy.cuda.Stream, "from_external"):
        theirs = torch.cuda.ExternalStream(handle, index)  # type: ignore[no-untyped-call]
        return cupy.cuda.Stream.from_external(theirs)
    return cupy.cuda.ExternalStream(handle, index)
