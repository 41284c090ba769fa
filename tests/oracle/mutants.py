"""A kernel with one place of mpe/world.cuh changed, to show that a test would see it."""

from __future__ import annotations

import dataclasses
import hashlib

from gpu_zoo.compile import KERNELS, cache_dir
from gpu_zoo.spec import EnvSpec

# Where bodies meet often enough that a change in the contact force shows.
WITH_CONTACTS = ["mpe/simple_spread_v3", "mpe/simple_tag_v3"]


def mutated(spec: EnvSpec, old: str, new: str) -> EnvSpec:
    """The spec with ``old`` replaced by ``new``.

    Beside the compiled kernels, in a folder that stays: the next run finds it compiled.
    """
    name = hashlib.sha256(f"{spec.id} {new}".encode()).hexdigest()[:12]
    folder = cache_dir() / "mutants" / name
    world = (KERNELS / "mpe" / "world.cuh").read_text()
    assert world.count(old) == 1, f"{old!r} is not once in mpe/world.cuh: adapt the mutants"
    (folder / "mpe").mkdir(parents=True, exist_ok=True)
    (folder / "mpe" / "world.cuh").write_text(world.replace(old, new))
    kernel = folder / spec.kernel_path.name
    kernel.write_text(spec.kernel_path.read_text())
    return dataclasses.replace(spec, kernel=str(kernel))
