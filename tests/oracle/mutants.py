"""A kernel with one place changed, to show that a test would see it."""

from __future__ import annotations

import dataclasses
import hashlib

from gpu_zoo.compile import KERNELS, cache_dir
from gpu_zoo.spec import EnvSpec

# Where bodies meet often enough that a change in the contact force shows.
WITH_CONTACTS = ["mpe/simple_spread_v3", "mpe/simple_tag_v3"]


def mutated(spec: EnvSpec, old: str, new: str, world: bool = True) -> EnvSpec:
    """The spec with ``old`` replaced by ``new`` in mpe/world.cuh, or in its own kernel file.

    Beside the compiled kernels, in a folder that stays: the next run finds it compiled.
    """
    name = hashlib.sha256(f"{spec.id} {new}".encode()).hexdigest()[:12]
    folder = cache_dir() / "mutants" / name
    (folder / "mpe").mkdir(parents=True, exist_ok=True)
    physics = (KERNELS / "mpe" / "world.cuh").read_text()
    rules = spec.kernel_path.read_text()
    changed = physics if world else rules
    where = "mpe/world.cuh" if world else spec.kernel
    assert changed.count(old) == 1, f"{old!r} is not once in {where}: adapt the mutants"
    (folder / "mpe" / "world.cuh").write_text(physics.replace(old, new) if world else physics)
    kernel = folder / spec.kernel_path.name
    kernel.write_text(rules if world else rules.replace(old, new))
    return dataclasses.replace(spec, kernel=str(kernel))
