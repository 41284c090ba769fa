"""Two compilers, the same bits: trajectories do not depend on who compiled the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import DEFAULTS, Case, over

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
    for name in sorted(env._views):
        digest.update(np.ascontiguousarray(env._views[name]).tobytes())
print(digest.hexdigest())
"""


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


@over(DEFAULTS)
@pytest.mark.parametrize("numerics", ["fast", pytest.param("reference", marks=pytest.mark.slow)])
def test_clang_and_the_host_compiler_agree(case: Case, numerics: str, caches: Path) -> None:
    pytest.importorskip("ziglang", reason="the second compiler: pip install ziglang")
    digests = {}
    for name, compiler in (("host", {}), ("clang", {"CXX": f"{sys.executable} -m ziglang c++"})):
        done = subprocess.run(
            [sys.executable, "-c", PLAY, case.id, numerics],
            env={**_environment(), **compiler, "GPU_ZOO_CACHE_DIR": str(caches / name)},
            capture_output=True,
            text=True,
            check=True,
        )
        digests[name] = done.stdout
    assert len(digests["host"]) > 60
    assert digests["host"] == digests["clang"]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "CXX"}


STRICT = """
import sys
import gpu_zoo
from gpu_zoo.compile import build_host, flatten
from gpu_zoo.prelude import Program

spec = gpu_zoo.spec(sys.argv[1])
source = flatten(Program(spec, spec.resolve({})))
build_host(source, spec.name, flags=["-Werror=pass-failed"])
"""


@over(DEFAULTS)
def test_clang_vectorises_the_rules(case: Case, tmp_path: Path) -> None:
    """It says so where it cannot do what ``omp simd`` asks for (kernels/zoo/tile.cuh)."""
    pytest.importorskip("ziglang", reason="the second compiler: pip install ziglang")
    done = subprocess.run(
        [sys.executable, "-c", STRICT, case.id],
        env={
            **os.environ,
            "CXX": f"{sys.executable} -m ziglang c++",
            "GPU_ZOO_CACHE_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
