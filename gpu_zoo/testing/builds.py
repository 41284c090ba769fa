"""One kernel, built in ways that bring out what a single thread hides.

The plain build runs one thread and loops forwards, which hides every missing barrier, every write
to a neighbour and every index that stays inside the memory. So the same file is also run in
reverse order, with blocks of real threads, and under the compiler's sanitizers.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gpu_zoo import compile as compiler
from gpu_zoo import nvrtc
from gpu_zoo.prelude import PLAIN, Features, Program
from gpu_zoo.spec import EnvSpec, Numerics
from gpu_zoo.testing.play import CheckSkipped, Subject, give_own, random_actions, record

BLOCK_SIZES = (1, 2, 3, 5, 8)
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
SEED = 5
STEPS = 20
LIMIT = 6  # steps an episode has at most here: three resets in a play
_REPORT = re.compile(r"WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:")
_PROCESS = re.compile(r"^==\d+==| on address 0x.*| \(pid=\d+\)")
_KERNEL_LINE = re.compile(r"[^\s(]+\.cuh?:\d+")
_EMULATION = "zoo/emulate.cuh"
# A copied struct keeps its own guards: copying the forbidden bytes would be an error by itself.
_GUARD = """#include <sanitizer/asan_interface.h>
struct ZooGuard {
    char bytes[24];
    ZooGuard() { __asan_poison_memory_region(bytes, sizeof bytes); }
    ZooGuard(const ZooGuard&) : ZooGuard() {}
    ZooGuard& operator=(const ZooGuard&) { return *this; }
    ~ZooGuard() { __asan_unpoison_memory_region(bytes, sizeof bytes); }
};
"""


def shapes_of(spec: EnvSpec) -> tuple[str, ...]:
    """The shapes that an environment is made for; in several blocks if it may have many agents."""
    return {"auto": ("lane", "block"), "lane": ("lane",), "block": ("block", "spread")}[spec.shape]


def check_builds(
    spec: EnvSpec,
    params: Mapping[str, Any] | None = None,
    *,
    numerics: Iterable[Numerics] = ("fast", "reference"),
    shapes: Iterable[str] | None = None,
    builds: Iterable[str] = ("reversed", "emulated"),
    block_sizes: Iterable[int] = BLOCK_SIZES,
    features: Features = PLAIN,
) -> None:
    """Check that all builds in all shapes give the same bits in every buffer on every step.

    Args:
        spec: the environment.
        params: its parameters.
        numerics: which of the numerics.
        shapes: which shapes; by default those that the environment is made for.
        builds: which builds, beside the plain one.
        block_sizes: threads that an emulated block has.
        features: whether environments have their own parameters, and starts out of a pool.

    Raises:
        CheckFailed: the first place where a build differs from the plain one.
    """
    shapes = tuple(shapes or shapes_of(spec))
    for kind in numerics:
        subject = Subject(spec, params or {}, kind).limited(LIMIT)
        wanted = [(shape, build) for shape in shapes for build in ("plain", *builds)]
        _build(subject, wanted, features)
        count = 37 if "lane" in shapes else 5  # a tile and a part of one, or a block's and more
        env = subject.make(count)
        give_own(env, features)
        actions = random_actions(env, STEPS)
        want = record(env, actions, SEED)
        for shape in shapes:
            for build in ("plain", *builds):
                sizes = block_sizes if build == "emulated" else (1,)
                # Of blocks that wait for each other few threads show as much, and sooner.
                for threads in [t for t in sizes if shape != "spread" or t <= 3]:
                    env = subject.make(count, shape=shape, build=build)
                    give_own(env, features)
                    if build == "emulated":
                        env.engine.backend.set_block_size(threads)  # type: ignore[attr-defined]
                    what = f"{shape} shape, {build}, {threads} threads a block, against plain"
                    got = record(env, actions, SEED)
                    subject.require_equal("check_builds", what, got, want)


def _build(subject: Subject, wanted: list[tuple[str, str]], features: Features = PLAIN) -> None:
    """Compile several builds at once, so that making the environments finds them."""
    params = subject.spec.resolve(subject.params)
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        for shape, build in wanted:
            program = Program(subject.spec, params, subject.numerics, shape, features)
            source = compiler.flatten(program)
            if build == "asan":
                source = guarded(program, source)
            workers.submit(compiler.build_host, source, subject.spec.name, build)


def guarded(program: Program, source: str) -> str:
    """The kernel's flat text ``source`` with forbidden bytes behind each field of its structs."""
    # In the block shape a State lies in the batch's memory, whose layout is not ours to change.
    names = ("State", "Scratch", "Outcome") if program.lane else ("Scratch", "Outcome")
    for name in names:
        struct = re.search(rf"^struct {name} \{{\n(.*?)^\}};", source, re.MULTILINE | re.DOTALL)
        if struct is None:
            raise AssertionError(f"the kernel's text has no struct {name}")
        # On the field's own line, so that reports name the author's lines.
        fields = "".join(
            f"{line} ZooGuard guard{i};\n" if line.endswith(";") else f"{line}\n"
            for i, line in enumerate(struct[1].splitlines())
        )
        source = source[: struct.start(1)] + fields + source[struct.end(1) :]
    return _GUARD + source


def check_races(
    spec: EnvSpec,
    params: Mapping[str, Any] | None = None,
    *,
    numerics: Numerics = "fast",
    shapes: Iterable[str] | None = None,
    timeout: float = 120,
    features: Features = PLAIN,
) -> None:
    """Run blocks of three real threads under ThreadSanitizer.

    Raises:
        CheckFailed: a data race, with the kernel's file and line; or threads that wait for ever.
        CheckSkipped: ThreadSanitizer is not to be had here.
    """
    subject = Subject(spec, params or {}, numerics)
    _run_sanitized("check_races", "tsan", subject, shapes or shapes_of(spec), timeout, features)


def check_bounds(
    spec: EnvSpec,
    params: Mapping[str, Any] | None = None,
    *,
    numerics: Numerics = "fast",
    shapes: Iterable[str] | None = None,
    builds: Iterable[str] = ("ubsan", "asan"),
    timeout: float = 120,
) -> None:
    """Run under UndefinedBehaviorSanitizer and AddressSanitizer.

    For the latter each buffer of the batch is an allocation of its own, and each field of the
    kernel's structs has forbidden bytes behind it (of ``State`` in the lane shape only). That is
    the index N which the former lets pass: as the address just behind an array it is legal.

    Raises:
        CheckFailed: the first report, with the kernel's file and line.
        CheckSkipped: a sanitizer is not to be had here.
    """
    for build in builds:
        _run_sanitized(
            "check_bounds", build, Subject(spec, params or {}, numerics),
            shapes or shapes_of(spec), timeout,
        )  # fmt: skip


def _run_sanitized(
    check: str,
    build: str,
    subject: Subject,
    shapes: Iterable[str],
    timeout: float,
    features: Features = PLAIN,
) -> None:
    """Play in a process of its own: a sanitizer must be there from the start, and may abort."""
    preload = _runtime(build)
    subject = subject.limited(LIMIT)
    shapes = tuple(shapes)
    for kernel in {PLAIN, features}:  # without what is given later, they are made
        _build(subject, [(shape, build) for shape in shapes], kernel)
    job = {
        "spec": _portable(subject.spec),
        "params": dict(subject.params),
        "numerics": subject.numerics,
        "build": build,
        "shapes": shapes,
        "features": features,
        "kernels": compiler.KERNELS,  # where a copy of the kernels is tested, it too
    }
    settings = {
        "LD_PRELOAD": preload,
        "TSAN_OPTIONS": "halt_on_error=1 exitcode=66",
        "ASAN_OPTIONS": "detect_leaks=0 exitcode=66",
        "OPENBLAS_NUM_THREADS": "1",
        "GPU_ZOO_NUM_THREADS": "1",
    }
    # setarch itself must not run under the sanitizer, which dislikes randomised addresses.
    command = [*_fixed_addresses(), "env", *(f"{k}={v}" for k, v in settings.items())]
    command += [sys.executable, "-m", "gpu_zoo.testing", "--worker"]
    try:
        done = subprocess.run(
            command, input=pickle.dumps(job), capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise subject.failure(
            check, f"{build}: not done in {timeout:g} s; is there a sync_env() some threads miss?"
        ) from None
    if done.returncode != 0:
        text = (done.stderr + done.stdout).decode(errors="replace")
        raise subject.failure(check, f"{build}: {_first_report(text)}")


def _portable(spec: EnvSpec) -> EnvSpec:
    """The spec without its functions, which do not pickle and whose work is done."""
    groups = tuple(
        replace(g, info_value=None, observation=dict(g.observation), info=dict(g.info))
        for g in spec.groups
    )
    return replace(
        spec,
        check=None,
        groups=groups,
        params=dict(spec.params),
        state=dict(spec.state),
        scratch=dict(spec.scratch),
        constants=dict(spec.constants),
    )


def _first_report(text: str) -> str:
    """A sanitizer's first complaint and the kernel lines it names, in one line."""
    lines = text.strip().splitlines() or ["no output"]
    start = next((i for i, line in enumerate(lines) if _REPORT.search(line)), None)
    if start is None:
        return "the process failed: " + lines[-1]
    places: list[str] = []
    for line in lines[start:]:
        match = _KERNEL_LINE.search(line)
        place = compiler.from_here(match[0]) if match else ""
        if place and _EMULATION not in place and place not in places:
            places.append(place)
    # The rules' own lines, of all threads that meet there, before what called them.
    places.sort(key=lambda place: place.startswith("zoo/"))
    at = f" at {', '.join(places[:4])}" if places and places[0] not in lines[start] else ""
    return _PROCESS.sub("", lines[start]).strip() + at


@cache
def _runtime(build: str) -> str:
    """The library to preload for a sanitizer, or ``""`` if it comes along by itself.

    Raises:
        CheckSkipped: the compiler has none.
    """
    if sys.platform != "linux":
        raise CheckSkipped(f"{build} runs on Linux only")
    library = {"tsan": "libtsan.so", "asan": "libasan.so", "ubsan": "libubsan.so"}[build]
    command = [*compiler.find_compiler(), f"-print-file-name={library}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if not Path(found).is_absolute():
        raise CheckSkipped(f"{build}: {command[0]} has no {library}; g++ has (CXX=g++)")
    return "" if build == "ubsan" else found


@cache
def _fixed_addresses() -> tuple[str, ...]:
    """``setarch -R``, where it is there and allowed."""
    command = ("setarch", "-R")
    if shutil.which(command[0]) is None:
        return ()
    works = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if works else ()


def check_nvrtc(
    spec: EnvSpec,
    params: Mapping[str, Any] | None = None,
    *,
    numerics: Iterable[Numerics] = ("fast", "reference"),
    architectures: Iterable[str] = ARCHITECTURES,
    shape: str | None = None,
    features: Features = PLAIN,
    allow_stack: int = 0,
) -> dict[str, nvrtc.Usage]:
    """Compile for GPUs, which needs none: no errors, no spills, and no local memory.

    Args:
        spec: the environment.
        params: its parameters.
        numerics: which of the numerics.
        architectures: which GPUs.
        shape: ``"lane"``, ``"block"`` or ``"spread"`` instead of the spec's own.
        features: what else the kernel must do.
        allow_stack: bytes of stack frame, spills included, that a kernel may have where there is
            a reason for it.

    Returns:
        Registers and memory by ``"<numerics> <architecture> <kernel>"``.

    Raises:
        CheckFailed: the compiler's message, or which kernel needs too much.
        CheckSkipped: NVRTC is not installed.
    """
    try:
        nvrtc.library()
    except ImportError as error:
        raise CheckSkipped(str(error)) from None
    usages: dict[str, nvrtc.Usage] = {}
    for kind in numerics:
        subject = Subject(spec, params or {}, kind)
        program = Program(spec, spec.resolve(subject.params), kind, shape, features)
        source = compiler.flatten(program)
        for arch in architectures:
            try:
                _, log = nvrtc.compile_cubin(source, spec.name, arch)
            except compiler.CompileError as error:
                first = str(error).splitlines()[0]
                raise subject.failure("check_nvrtc", f"{arch}: {first}") from None
            found = nvrtc.usage(log)
            if set(found) != {"zoo_reset", "zoo_step", "zoo_observe"}:
                raise subject.failure("check_nvrtc", f"{arch}: log names only {sorted(found)}")
            for kernel, usage in found.items():
                _require_registers_only(subject, f"{arch}: {kernel}", usage, allow_stack)
                usages[f"{kind} {arch} {kernel}"] = usage
    return usages


def _require_registers_only(
    subject: Subject, what: str, usage: nvrtc.Usage, allow_stack: int
) -> None:
    if max(usage.stack, usage.spills) > allow_stack:
        raise subject.failure(
            "check_nvrtc",
            f"{what} has a stack frame of {usage.stack} bytes and spills {usage.spills}; "
            f"at most {allow_stack} are allowed",
        )
