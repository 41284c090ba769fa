"""NVIDIA's run-time compiler: from flat kernel text to a cubin for one GPU architecture.

Called directly rather than through CuPy, whose cache does not see changes in included files and
which always adds a flag that flushes denormal numbers. A cubin needs no GPU to be made, so every
kernel can be compiled on any machine.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpu_zoo.compile import CompileError, cached_path, compile_error
from gpu_zoo.errors import MissingDependency

FLAGS = ("--std=c++17", "--fmad=false", "--device-int128", "--ptxas-options=-v", "-lineinfo")
_USAGE = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True)
class Usage:
    """What a kernel needs of the GPU: registers a thread; bytes of local memory and of spills."""

    registers: int
    stack: int
    spills: int


@cache
def library() -> ctypes.CDLL:
    """The NVRTC library: a pip package's, else the system's.

    Raises:
        MissingDependency: there is none.
    """
    for path in [*_pip_libraries(), ctypes.util.find_library("nvrtc")]:
        if path is not None:
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                continue
    raise MissingDependency(
        "NVRTC is not installed: pip install 'gpu-zoo[cuda13]' (or 'gpu-zoo[cuda12]' for CUDA 12)"
    )


def _pip_libraries() -> list[Path]:
    found = importlib.util.find_spec("nvidia")
    if found is None:
        return []
    # The search path says where nvidia's wheels put their folders; newest major version first.
    folders = [Path(folder) for folder in found.submodule_search_locations or ()]
    return sorted(
        (
            path
            for folder in folders
            for path in folder.glob("*/lib/libnvrtc.so.*")
            if "builtins" not in path.name and "alt" not in path.name
        ),
        reverse=True,
    )


def version() -> str:
    """The library's version, such as ``"13.0"``."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def compile_cubin(source: str, name: str, arch: str) -> tuple[bytes, str]:
    """Compile flat text for an architecture such as ``"sm_90"``; returns the cubin and the log.

    Raises:
        CompileError: the compiler's message, with the author's own lines.
        MissingDependency: NVRTC is not installed.
    """
    nvrtc = library()
    program = ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), name.encode(), 0, None, None
    )
    if made != 0:
        raise CompileError(f"{name}: NVRTC could not take the source (error {made})")
    try:
        options = [f"--gpu-architecture={arch}", *FLAGS]
        encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = nvrtc.nvrtcCompileProgram(program, len(options), encoded)
        log = _text(program, "ProgramLog")
        if failed:
            raise compile_error(f"NVRTC for {arch}", source, log)
        return _bytes(program, "CUBIN"), log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library(), f"nvrtcGet{what}")(program, buffer)
    return buffer.raw


def _text(program: ctypes.c_void_p, what: str) -> str:
    return _bytes(program, what).rstrip(b"\0").decode(errors="replace")


def usage(log: str) -> dict[str, Usage]:
    """Registers and local memory of each kernel, read from the compiler's log."""
    return {
        match["kernel"]: Usage(int(match["registers"]), int(match["stack"]), int(match["stores"]))
        for match in _USAGE.finditer(log)
    }


def build_cubin(source: str, name: str, arch: str) -> Path:
    """Like :func:`compile_cubin`, cached on disk; returns the file's path."""
    target = cached_path(name, "\0".join([source, arch, *FLAGS, version()]), ".cubin")
    if not target.is_file():
        cubin, _ = compile_cubin(source, name, arch)
        unfinished = target.with_suffix(f".{os.getpid()}")
        with unfinished.open("wb") as file:
            file.write(cubin)
            file.flush()
            os.fsync(file.fileno())  # or a power cut may leave half a kernel under its name
        os.replace(unfinished, target)
    return target
