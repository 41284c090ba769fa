"""An author's folder to break, and a registry and modules that are as before after each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_zoo.scaffold import write_environment


@pytest.fixture(autouse=True)
def own_modules(own_registry: None) -> Iterator[None]:
    """What a test loads is gone after it."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(modules):
        if str(getattr(sys.modules[name], "__file__", "")).endswith(("_v0.py", "_rules.py")):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What ``gpu-zoo new my_env`` writes, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_environment("my_env")
    return tmp_path / "my_env"
