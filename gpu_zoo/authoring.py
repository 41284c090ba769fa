"""Environments that lie in a file of yours: how one is named, found and loaded.

An author's folder looks as ``gpu-zoo new my_env`` writes it::

    my_env/my_env_v0.py      the spec, by the name SPEC
    my_env/my_env_v0.cu      the kernel
    my_env/my_env_rules.py   the same rules in plain Python, by the name Rules; may be missing

Commands take the folder or the first of these files where they take the id of an environment.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from gpu_zoo import registry
from gpu_zoo.spec import EnvSpec

_VERSIONED = re.compile(r"(?P<name>.+)_v(?P<version>\d+)")


class LoadError(ValueError):
    """An author's file that cannot be loaded; one line, with the place in the file."""


def find(text: str) -> EnvSpec:
    """The environment that ``text`` names: an id, an author's file or an author's folder.

    Raises:
        LoadError: a file or folder that holds no environment.
        UnknownEnvironment: neither an id nor a file.
    """
    path = locate(text)
    return registry.spec(text) if path is None else load(path)


def locate(text: str) -> Path | None:
    """The author's file that ``text`` names, itself or by its folder; None for an id.

    Raises:
        LoadError: a folder without such a file.
    """
    path = Path(text)
    if path.suffix == ".py":
        return path
    ids = registry.list_ids()
    if not path.is_dir() or any(text in (known, known.rsplit("/", 1)[-1]) for known in ids):
        return None
    name = path.resolve().name
    found = [file for file in path.glob("*.py") if _name(file) == name]
    if not found:
        raise LoadError(f"{text}: no {name}_v0.py in this folder")
    return max(found, key=_version)


def load(path: str | Path) -> EnvSpec:
    """Run an author's file and return the environment it defines, which is then registered.

    A kernel that the spec names without a folder lies beside the file. Loading a file again runs it
    again, with the changes made since.

    Args:
        path: a Python file that defines ``SPEC``.

    Raises:
        LoadError: there is no such file, it fails, or what it defines is no environment.
    """
    path = Path(path)
    module = _run(path)
    spec = getattr(module, "SPEC", None)
    if not isinstance(spec, EnvSpec):
        found = "no SPEC" if spec is None else f"SPEC is a {type(spec).__name__}"
        raise LoadError(f"{path}: {found}, expected SPEC = EnvSpec(...)")
    beside = path.resolve().parent / spec.kernel
    if beside.is_file() and spec.kernel_path != beside:
        spec = replace(spec, kernel=str(beside))
    if registry.ENVIRONMENTS.get(spec.id) is not spec:  # else the file has done it itself
        try:
            registry.register(spec)
        except (TypeError, ValueError) as error:
            raise LoadError(f"{path}: {_one_line(error)}") from error
    return spec


def load_rules(path: str | Path, name: str = "Rules") -> type[Any]:
    """The class of an author's file that plays the rules in plain Python.

    Raises:
        LoadError: there is no such file, it fails, or it has no such class.
    """
    found = getattr(_run(Path(path)), name, None)
    if not isinstance(found, type):
        raise LoadError(f"{path}: no class {name}")
    return found


def rules_of(text: str, given: str | None = None) -> type[Any] | None:
    """The rules in plain Python that belong to the environment ``text`` names, if there are any.

    Args:
        text: as for :func:`find`.
        given: ``"file.py"`` or ``"file.py:Class"``; by default the file ``..._rules.py`` that lies
            beside the author's file, and ``Rules``.

    Raises:
        LoadError: what was given, or what lies there, cannot be loaded.
    """
    if given is not None:
        file, _, name = given.partition(":")
        return load_rules(file, name or "Rules")
    path = locate(text)
    if path is None:
        return None
    beside = path.with_name(f"{_name(path) or path.stem}_rules.py")
    return load_rules(beside) if beside.is_file() else None


def _name(file: Path) -> str:
    match = _VERSIONED.fullmatch(file.stem)
    return match["name"] if match else ""


def _version(file: Path) -> int:
    match = _VERSIONED.fullmatch(file.stem)
    return int(match["version"]) if match else -1


def _run(path: Path) -> ModuleType:
    """Import a file by its path; its neighbours can be imported by name, as in a script."""
    if not path.is_file():
        raise LoadError(f"{path}: no such file")
    file = path.resolve()
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    # Under its own name, unless that is another module's already.
    taken = sys.modules.get(file.stem)
    ours = taken is None or getattr(taken, "__file__", None) == str(file)
    name = file.stem if ours else f"gpu_zoo author {file}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        line = _line(str(file), error)
        raise LoadError(f"{path}{line}: {_one_line(error)}") from error
    return module


def _line(file: str, error: Exception) -> str:
    """The author's line that raised the error, as ``":12"``."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f":{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f":{lines[-1]}" if lines else ""


def _one_line(error: Exception) -> str:
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(said.split())}"
