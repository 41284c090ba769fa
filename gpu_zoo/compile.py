"""From a kernel file to something that runs: one flat text, then a shared library or a cubin.

Built files are cached on disk under the hash of everything they depend on, and appear there by
renaming a finished file, so that several processes may build the same kernel at once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import gpu_zoo.kernels
from gpu_zoo.errors import MissingDependency
from gpu_zoo.prelude import Program

KERNELS = Path(gpu_zoo.kernels.__path__[0])
ENTRY = "zoo/entry.cuh"
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
# As g++ and clang write it, and as NVRTC does.
_ERROR = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*)(?::(?P<line>\d+)(?::\d+)?|\((?P<nvline>\d+)\)): "
    r"(?:fatal |catastrophic )?error: (?P<what>.*)$",
    re.MULTILINE,
)
# What zoo/entry.cuh calls, and so where a compiler complains if the author's file has it not.
_CALLED = {
    "env_reset": "env_reset(Env& e)",
    "env_step": "env_step(Env& e)",
    "env_score": "env_score(Env& e)",
    "env_observe": "env_observe(const Env& e, int i, Row o)",
    "env_info": "env_info(const Env& e, int i, real* info)",
    "env_mask": "env_mask(const Env& e, int i, MaskRow mask)",
}

# No contraction and no fast-math: the CPU and the GPU must round alike.
# errno and floating-point traps are side effects nobody reads; without them sqrt is one
# instruction and a branch may become a select.
HOST_FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", "-fopenmp-simd", "-fPIC", "-shared", "-fvisibility=default", "-pthread",
    "-Wall", "-Wextra", "-Wno-unknown-pragmas",
)  # fmt: skip
# What each build of the same kernel adds. All but "plain" exist for tests; they keep loops as
# loops, or compiling would take longer than running.
HOST_BUILDS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "reversed": ("-DZOO_ROLLED", "-DZOO_REVERSE"),
    "emulated": ("-DZOO_ROLLED", "-DZOO_EMULATE"),
    "tsan": ("-DZOO_ROLLED", "-DZOO_EMULATE", "-O1", "-g", "-fsanitize=thread"),
    "ubsan": (
        "-DZOO_ROLLED", "-O1", "-g", "-fsanitize=undefined,bounds-strict",
        "-fno-sanitize-recover=all",
    ),
    "asan": ("-DZOO_ROLLED", "-O1", "-g", "-fsanitize=address"),
}  # fmt: skip


class CompileError(RuntimeError):
    """A kernel did not compile. The message begins with the first error in the author's own file,
    as ``path:line: error: ...``; all that the compiler said follows.
    """


def compile_error(compiler: str, source: str, said: str) -> CompileError:
    """The error to raise where a compiler refused a kernel's flat text.

    Args:
        compiler: who refused it.
        source: the text; its first ``#line`` names the author's file.
        said: the compiler's message.
    """
    marker = re.search(r'^#line 1 "(.*)"', source, re.MULTILINE)
    kernel = marker[1] if marker else "a kernel"
    return CompileError(f"{_summary(kernel, said)}\n{compiler} failed\n{said.strip()}".strip())


def _summary(kernel: str, said: str) -> str:
    errors = list(_ERROR.finditer(said))
    own = [error for error in errors if error["file"] == kernel]
    if not errors:
        return f"{from_here(kernel)}: error: it did not compile"
    first = (own or errors)[0]
    for name, declared in _CALLED.items():
        if not own and re.search(rf"\b{name}\b", first["what"]):
            return f"{from_here(kernel)}: error: expected a function ZOO_FN void {declared}"
    return f"{from_here(first['file'])}:{first['line'] or first['nvline']}: error: {first['what']}"


def from_here(path: str) -> str:
    """The path as one would type it here, if it lies under the current folder."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def flatten(program: Program) -> str:
    """The kernel and all it includes as one text, with ``#line`` markers for the compiler.

    Raises:
        CompileError: the kernel's last line, which includes ``zoo/entry.cuh``, is not there.
        FileNotFoundError: an include that neither lies beside the kernel nor under ``kernels/``.
    """
    seen: set[Path] = set()
    kernel = program.spec.kernel_path
    text = _flatten_file(kernel, program, seen, (kernel.parent, KERNELS))
    if KERNELS / ENTRY not in seen:  # it would compile, to a library without functions
        raise CompileError(f'{from_here(str(kernel))}: error: no #include "{ENTRY}" at its end')
    return program.flags() + text


def flatten_file(path: Path) -> str:
    """A file under ``kernels/`` that belongs to no environment, and all it includes, as one text.

    Raises:
        FileNotFoundError: an include that neither lies beside it nor under ``kernels/``.
    """
    return _flatten_file(path, None, set(), (path.parent, KERNELS))


def _flatten_file(
    path: Path, program: Program | None, seen: set[Path], folders: tuple[Path, ...]
) -> str:
    # Names relative to the package keep the text, and so the cache key, free of machine paths.
    name = path.relative_to(KERNELS) if path.is_relative_to(KERNELS) else path
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        match = _INCLUDE.match(line)
        if line.startswith("#pragma once"):
            lines.append("")
        elif match is None:
            lines.append(line)
        elif match[1] == "spec.cuh" and program is not None:
            lines += ['#line 1 "spec.cuh"', program.text().replace("#pragma once", "")]
            lines.append(f'#line {number + 1} "{name}"')
        else:
            included = _find_include(match[1], path, number, folders)
            if included not in seen:
                seen.add(included)
                lines.append(_flatten_file(included, program, seen, folders))
            lines.append(f'#line {number + 1} "{name}"')
    return "\n".join(lines)


def _find_include(name: str, path: Path, number: int, folders: tuple[Path, ...]) -> Path:
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    places = " or ".join(str(folder) for folder in folders)
    raise FileNotFoundError(f'{path}:{number}: #include "{name}": no such file in {places}')


def cache_dir() -> Path:
    """Where built kernels are kept: ``$GPU_ZOO_CACHE_DIR``, else the user's cache folder."""
    chosen = os.environ.get("GPU_ZOO_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gpu_zoo"


@cache
def find_compiler() -> tuple[str, ...]:
    """The host C++ compiler as a command: ``$CXX``, else c++, g++, clang++, else ziglang's.

    Raises:
        MissingDependency: none is installed; the message says how to install one.
    """
    chosen = os.environ.get("CXX")
    if chosen:
        try:
            command = tuple(shlex.split(chosen))
        except ValueError:  # a quote that is not closed
            command = ()
        if not command or shutil.which(command[0]) is None:
            raise MissingDependency(f"$CXX={chosen!r}: no such program; unset CXX or install it.")
        return command
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return (name,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++")
    raise MissingDependency(
        "no C++ compiler found (looked for $CXX, c++, g++, clang++, ziglang). "
        "Install one: apt install g++, or xcode-select --install, or pip install ziglang"
    )


@cache
def compiler_version() -> str:
    """First line of the host compiler's ``--version``."""
    done = subprocess.run([*find_compiler(), "--version"], capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.stdout else "unknown"


@cache
def processor() -> str:
    """The processor's name: ``-march=native`` makes libraries that fit only it."""
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    lines = [
        line.split(":", 1)[1].strip()
        for line in info.split("\n\n")[0].splitlines()
        if line.startswith(("model name", "flags", "Features", "CPU part"))
    ]
    return f"{platform.machine()} " + " ".join(lines)


def build_host(source: str, name: str, build: str = "plain", flags: Sequence[str] = ()) -> Path:
    """Compile C++ text into a shared library and return its path.

    Args:
        source: the whole text.
        name: what the file in the cache is called, apart from its hash.
        build: one of :data:`HOST_BUILDS`.
        flags: more compiler flags.

    Raises:
        CompileError: no compiler, or the compiler's own message.
    """
    command = [*find_compiler(), *HOST_FLAGS, *HOST_BUILDS[build], *flags]
    key = "\0".join([source, *command, compiler_version(), processor()])
    target = cached_path(name, key, ".so")
    if target.is_file():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        text = Path(folder) / f"{name}.cpp"
        text.write_text(source)
        built = Path(folder) / target.name
        run = [*command, "-I", str(KERNELS), str(text), "-o", str(built)]
        done = subprocess.run(run, capture_output=True, text=True)
        if done.returncode != 0:
            raise compile_error(" ".join(find_compiler()), source, done.stderr)
        with built.open("rb") as file:
            os.fsync(file.fileno())  # or a power cut may leave half a library under its name
        os.replace(built, target)
    return target


def cached_path(name: str, key: str, suffix: str) -> Path:
    """Where the file built from ``key`` is kept; makes the folder.

    Raises:
        CompileError: the folder cannot be made.
    """
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(
            f"{folder}: {error.strerror}; expected a folder for built kernels, which "
            "GPU_ZOO_CACHE_DIR may name"
        ) from None
    return folder / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:20]}{suffix}"
