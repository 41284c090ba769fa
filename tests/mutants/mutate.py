"""Broken kernels, made from the real ones by replacing text in a copy of the kernels' folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_zoo import compile as compiler

ENTRY = "zoo/entry.cuh"
TILE = "zoo/tile.cuh"
TEAM = "zoo/team.cuh"
GRID = "zoo/grid.cuh"
TAG = "warpdrive/tag_continuous_v0.cu"
SPREAD = "mpe/simple_spread_v3.cu"
WORLD = "mpe/world.cuh"


@dataclass(frozen=True, eq=False)
class Mutant:
    """A way to break an environment, and the check that must notice.

    Attributes:
        name: what is broken.
        check: one of :mod:`gpu_zoo.testing`'s.
        edits: (file, old text, new text); the old text must be there exactly once.
        says: what the check's message must contain, so that it fails for the right reason.
        settings: arguments of the check.
        params: the environment's parameters.
        slow: takes long to be noticed.
        env: the environment.
    """

    name: str
    check: Callable[..., object]
    edits: tuple[tuple[str, str, str], ...]
    says: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=lambda: {"N": 3})
    slow: bool = False
    env: str = "mpe/simple_spread_v3"

    @property
    def control(self) -> str:
        """Mutants with the same one share the run that the real environment must pass."""
        return f"{self.env} {self.check.__name__} {dict(self.settings)} {dict(self.params)}"


def mutated_kernels(mutant: Mutant, folder: Path) -> Path:
    """A copy of the kernels' folder with the mutant's edits.

    Raises:
        LookupError: the text to replace is not there, or more than once.
    """
    copy = folder / "kernels"
    shutil.copytree(compiler.KERNELS, copy)
    for name, old, new in mutant.edits:
        text = (copy / name).read_text()
        if text.count(old) != 1:
            raise LookupError(
                f"mutant {mutant.name!r} is out of date: {text.count(old)} times {old!r} in {name}"
            )
        (copy / name).write_text(text.replace(old, new))
    return copy
