"""``gpu-zoo doctor``: what works on this machine, what is missing and which command helps."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from gpu_zoo import compile as compiler
from gpu_zoo.backends import why_no_cuda
from gpu_zoo.backends.cpu import num_threads
from gpu_zoo.errors import MissingDependency
from gpu_zoo.registry import list_ids
from gpu_zoo.version import __version__

CORE = ("numpy", "gymnasium", "pettingzoo")
# What each optional package is for; the first name that is installed counts.
OPTIONAL: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("torch",), "training, array='torch'", "gpu-zoo[train]"),
    (("tensorboard",), "training logs", "gpu-zoo[train]"),
    (("PyYAML",), "configuration files", "gpu-zoo[train]"),
    (("matplotlib",), "gpu-zoo compare", "gpu-zoo[plot]"),
    (("wandb",), "gpu-zoo train --wandb", "gpu-zoo[wandb]"),
    (("pygame-ce", "pygame"), "render()", "gpu-zoo[render]"),
    (("imageio",), "recordings", "gpu-zoo[render]"),
    (("mpe2",), "the original environments, gpu-zoo play --reference", "mpe2==1.1.1"),
    (("stable-baselines3",), "Stable-Baselines3", "gpu-zoo[sb3]"),
    (("ray",), "RLlib", "gpu-zoo[rllib]"),
    (("torchrl",), "TorchRL", "gpu-zoo[torchrl]"),
)
PROBE_ENVS = 64
PROBE_STEPS = 100


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: its name.
        state: ``"ok"``; ``"absent"``, an optional thing; or ``"broken"``.
        text: what was found, or why it does not work.
        fix: the command that helps; empty if none is needed.
    """

    what: str
    state: Literal["ok", "absent", "broken"]
    text: str
    fix: str = ""


def examine() -> Iterator[Finding]:
    """Look at everything, in the order in which things depend on each other."""
    yield Finding("gpu-zoo", "ok", f"{__version__}, {Path(__file__).parent}")
    yield Finding("python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield Finding("system", "ok", f"{platform.platform()}, {os.cpu_count()} cores")
    yield from _packages()
    yield _cache()
    yield _threads()
    yield _compiler()
    yield _step("cpu")
    yield from _cuda()


def cpu_works(findings: list[Finding]) -> bool:
    """Whether environments run on the CPU."""
    needed = ("cache", "threads", "step on cpu")
    return all(f.state == "ok" for f in findings if f.what in needed)


def _packages() -> Iterator[Finding]:
    for name in CORE:
        yield Finding(name, "ok", version(name))
    for names, purpose, install in OPTIONAL:
        installed = [(name, found) for name in names if (found := _version(name))]
        if installed:
            yield Finding(installed[0][0], "ok", installed[0][1])
        else:
            yield Finding(names[0], "absent", f"only for {purpose}", f"pip install '{install}'")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cache() -> Finding:
    folder = compiler.cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        fix = "export GPU_ZOO_CACHE_DIR=<a folder you can write to>"
        return Finding("cache", "broken", f"{folder}: {error.strerror}", fix)
    sizes = [path.stat().st_size for path in folder.iterdir() if path.is_file()]
    return Finding("cache", "ok", f"{folder}, {len(sizes)} kernels, {sum(sizes) / 1e6:.1f} MB")


def _threads() -> Finding:
    chosen = "GPU_ZOO_NUM_THREADS" if "GPU_ZOO_NUM_THREADS" in os.environ else "all usable cores"
    try:
        return Finding("threads", "ok", f"{num_threads()} ({chosen})")
    except ValueError as error:
        return Finding("threads", "broken", str(error), "unset GPU_ZOO_NUM_THREADS")


def _compiler() -> Finding:
    try:
        command = compiler.find_compiler()
        where, number = shutil.which(command[0]), compiler.compiler_version()
        return Finding("compiler", "ok", f"{' '.join(command)} ({where}), {number}")
    except MissingDependency as error:
        fix = "unset CXX" if os.environ.get("CXX") else "apt install g++ (or pip install ziglang)"
        return Finding("compiler", "broken", str(error), fix)


def _step(device: str) -> Finding:
    """Compile and step a real environment, in a process of its own: a crash is a finding too."""
    what = f"step on {device}"
    with tempfile.TemporaryDirectory(prefix="gpu-zoo-doctor-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", f"from gpu_zoo.doctor import probe; probe({device!r})"],
            capture_output=True,
            text=True,
            # An empty cache, or nothing would be compiled.
            env={**os.environ, "GPU_ZOO_CACHE_DIR": folder},
        )
    if done.returncode < 0:
        return Finding(what, "broken", f"the process died of signal {-done.returncode}")
    try:
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return Finding(what, "broken", done.stderr.strip() or "the process said nothing")
    if "error" in report:
        return Finding(what, "broken", report["error"])
    text = (
        f"{report['env']} compiled in {report['compile']:.1f} s, "
        f"{PROBE_ENVS} environments step in {report['step'] * 1e6:.0f} µs"
    )
    return Finding(what, "ok", text)


def probe(device: str) -> None:
    """Compile the first environment for ``device``, step it and print a line of JSON."""
    from gpu_zoo.registry import make_vec

    env_id = list_ids()[0]
    try:
        begin = time.perf_counter()
        env = make_vec(env_id, PROBE_ENVS, device=device)
        env.reset(seed=0)
        compiled = time.perf_counter()
        for _ in range(PROBE_STEPS):
            env.step()
        # Reading a value waits for the device.
        total = float(next(iter(env.group.values())).rewards.sum())
        step = (time.perf_counter() - compiled) / PROBE_STEPS
        if total != total:
            raise ArithmeticError("the rewards are NaN")
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return
    print(json.dumps({"env": env_id, "compile": compiled - begin, "step": step}))


def _cuda() -> Iterator[Finding]:
    driver = _driver()
    yield driver
    extra = "gpu-zoo[cuda12]" if driver.text.startswith("12.") else "gpu-zoo[cuda13]"
    install = f"pip install '{extra}'" if driver.state == "ok" else ""
    yield _nvrtc(install)
    cupy = next((f"{n} {v}" for n in _cupy_names() if (v := _version(n))), None)
    yield (
        Finding("cupy", "ok", cupy) if cupy else Finding("cupy", "absent", "only for CUDA", install)
    )
    if driver.state != "ok":
        return
    reason = why_no_cuda()
    yield Finding("step on cuda", "broken", reason, install) if reason else _step("cuda")


def _cupy_names() -> tuple[str, ...]:
    return ("cupy-cuda13x", "cupy-cuda12x", "cupy")


def _driver() -> Finding:
    what = "cuda driver"
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return Finding(what, "absent", "no NVIDIA driver, so environments run on the CPU")
    number, count = ctypes.c_int(), ctypes.c_int()
    failed = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if failed or not count.value:
        return Finding(what, "broken", f"driver without a device (error {failed})", "nvidia-smi")
    cuda.cuDriverGetVersion(ctypes.byref(number))
    names = []
    for index in range(count.value):
        name = ctypes.create_string_buffer(100)
        cuda.cuDeviceGetName(name, 100, index)
        names.append(name.value.decode())
    major, minor = number.value // 1000, number.value % 1000 // 10
    return Finding(what, "ok", f"{major}.{minor}, {', '.join(names)}")


def _nvrtc(install: str) -> Finding:
    from gpu_zoo import nvrtc

    try:
        return Finding("nvrtc", "ok", f"{nvrtc.version()}")
    except MissingDependency:
        return Finding("nvrtc", "absent", "only for CUDA", install)
