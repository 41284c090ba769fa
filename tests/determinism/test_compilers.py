"""Two compilers, the same bits: trajectories do not depend on who compiled the kernel."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cases import FEW, OTHERS, Case, over

PLAY = """
import hashlib, sys
import numpy as np
import gpu_zoo
from gpu_zoo.testing.play import put_actions, random_actions

env = gpu_zoo.make_vec(sys.argv[1], 333, numerics=sys.argv[2])
env.reset(seed=3)
actions = random_actions(env, 60)
digest = hashlib.sha256()
for step in range(60):
    put_actions(env, actions, step)
    env.step()
    for name in sorted(env.engine.views):
        digest.update(np.ascontiguousarray(env.engine.views[name]).tobytes())
print(digest.hexdigest())
"""


@over(FEW, slow=OTHERS)
@pytest.mark.parametrize("numerics", ["fast", pytest.param("reference", marks=pytest.mark.slow)])
def test_clang_and_the_host_compiler_agree(case: Case, numerics: str) -> None:
    """And clang vectorises the fast rules: an error says where it cannot (zoo/tile.cuh)."""
    pytest.importorskip("ziglang", reason="the second compiler: pip install ziglang")
    clang = f"{sys.executable} -m ziglang c++"
    if numerics == "fast":
        clang += " -Werror=pass-failed"
    digests = {}
    for name, compiler in (("host", {}), ("clang", {"CXX": clang})):
        done = subprocess.run(
            [sys.executable, "-c", PLAY, case.id, numerics],
            env={**_environment(), **compiler},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
        digests[name] = done.stdout
    assert len(digests["host"]) > 60
    assert digests["host"] == digests["clang"]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "CXX"}
