"""Where the arrays live and how a kernel is launched: one small class a device."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from gpu_zoo.errors import MissingDependency
from gpu_zoo.prelude import Program

Operation = Literal["reset", "step", "observe"]
ArrayKind = Literal["numpy", "cupy", "torch"]
ALIGNMENT = 256  # bytes; what CUDA's own allocator gives and DLPack consumers expect


class Backend(Protocol):
    """One arena of memory on a device, and three kernels that work on it.

    Native arrays are NumPy's on the CPU, and CuPy's or torch's on CUDA.
    """

    device: str

    def load(self, program: Program) -> None:
        """Compile a program, unless that was done before, and launch its kernels from now on."""

    def wait(self) -> None:
        """Return when the device has done all that it was given, on any stream."""

    def address(self, native: Any) -> int:
        """Where a native array lies."""

    def allocate(self, nbytes: int) -> int:
        """Allocate the arena, zeroed, and return its address."""

    def view(self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """A native array over part of the arena."""

    def native(self, value: Any) -> Any:
        """``value`` as a native array; no copy where it already is one."""

    def holds(self, value: Any) -> bool:
        """Whether ``value`` can be read on this device without being sent there."""

    def public(self, native: Any) -> Any:
        """A native array as the kind of array the user asked for, over the same memory."""

    def bind(self, io: npt.NDArray[np.void]) -> None:
        """Give the kernels their ``Io`` struct: pointers and launch parameters."""

    def launch(self, operation: Operation) -> None:
        """Run one kernel over all environments."""


def resolve_device(device: str) -> str:
    """``"cpu"``, ``"cuda"`` or ``"cuda:1"``; ``"auto"`` takes CUDA where it works.

    Raises:
        ValueError: another string.
        MissingDependency: CUDA was asked for and is not usable; the message says what is missing.
    """
    if device == "auto":
        return "cpu" if why_no_cuda() else "cuda"
    kind, _, index = device.partition(":") if isinstance(device, str) else ("", "", "")
    if device != "cpu" and (kind != "cuda" or not (index.isdigit() or device == "cuda")):
        raise ValueError(f"device={device!r}: expected 'cpu', 'cuda', 'cuda:<index>' or 'auto'")
    if kind == "cuda":
        reason = why_no_cuda()
        if reason:
            raise MissingDependency(f"device={device!r}: {reason}")
    return device


def why_no_cuda() -> str:
    """Why CUDA cannot be used here, with the command that helps; empty if it can."""
    from gpu_zoo.backends import cuda

    return cuda.why_unusable()


def make_backend(
    program: Program, num_envs: int, device: str, array: ArrayKind | None, build: str = "plain"
) -> Backend:
    """The backend for ``device`` (already resolved), with its kernels compiled.

    Raises:
        ValueError: ``array`` does not go with the device.
        MissingDependency: ``array="torch"`` without torch.
    """
    on_cpu = device == "cpu"
    kinds = ("numpy", "torch") if on_cpu else ("cupy", "torch")
    array = array or kinds[0]  # type: ignore[assignment]
    if array not in kinds:
        raise ValueError(
            f"array={array!r}: expected {' or '.join(map(repr, kinds))} with device={device!r}"
        )
    if array == "torch":
        _require_torch()
    if on_cpu:
        from gpu_zoo.backends.cpu import CpuBackend
        from gpu_zoo.compile import HOST_BUILDS

        if build not in HOST_BUILDS:
            names = ", ".join(map(repr, HOST_BUILDS))
            raise ValueError(f"build={build!r}: expected one of {names}")

        return CpuBackend(program, num_envs, as_torch=array == "torch", build=build)
    from gpu_zoo.backends.cuda import CudaBackend

    return CudaBackend(program, num_envs, device, as_torch=array == "torch")


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "array='torch': torch is not installed: pip install 'gpu-zoo[train]'"
        ) from error
