"""Compile a few lines of C++ around the kernels' headers and call them through ctypes."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
TRAPPING = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno")
FAST = (*TRAPPING, "-fno-trapping-math")
PLAIN = ("-O0", "-ffp-contract=off")

Array = npt.NDArray[Any]


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="zoo-kernels-")


@functools.cache
def build(source: str, *flags: str) -> ctypes.CDLL:
    """Compile `source`, which defines extern "C" functions, with g++ and load it."""
    folder = Path(_folder().name)
    name = f"wrapper{len(list(folder.glob('*.cpp')))}"
    cpp, library = folder / f"{name}.cpp", folder / f"{name}.so"
    cpp.write_text(source)
    always = ("-std=c++17", "-shared", "-fPIC", "-DZOO_LANE=1", "-I", str(KERNELS))
    command = ["g++", *(flags or FAST), *always, str(cpp), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return ctypes.CDLL(str(library))


def pointer(array: Array) -> ctypes.c_void_p:
    """The address of a C-contiguous array's data."""
    if not array.flags["C_CONTIGUOUS"]:
        raise ValueError("array is not contiguous")
    return ctypes.c_void_p(array.ctypes.data)


def apply(library: ctypes.CDLL, name: str, *arguments: Array) -> Array:
    """Call `void name(const T* x, ..., T* y, long n)` on arrays of n values and return y."""
    given = [np.ascontiguousarray(x) for x in arguments]
    y = np.empty_like(given[0])
    getattr(library, name)(*map(pointer, given), pointer(y), ctypes.c_long(y.size))
    return y
