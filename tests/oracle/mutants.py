"""A kernel with one place of mpe/world.cuh changed, to show that a test would see it."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from gpu_zoo.compile import KERNELS
from gpu_zoo.spec import EnvSpec


def mutated(spec: EnvSpec, old: str, new: str, config: pytest.Config) -> EnvSpec:
    """The spec with ``old`` replaced by ``new``.

    In a folder that stays, so that the next run finds it compiled.
    """
    assert config.cache is not None
    name = hashlib.sha256(f"{spec.id} {new}".encode()).hexdigest()[:12]
    folder = config.cache.mkdir(f"mutant-{name}")
    world = (KERNELS / "mpe" / "world.cuh").read_text()
    assert world.count(old) == 1, f"{old!r} is not once in mpe/world.cuh: adapt the mutants"
    (folder / "mpe").mkdir(exist_ok=True)
    (folder / "mpe" / "world.cuh").write_text(world.replace(old, new))
    kernel = folder / spec.kernel_path.name
    kernel.write_text(spec.kernel_path.read_text())
    return dataclasses.replace(spec, kernel=str(kernel))
