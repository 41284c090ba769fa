"""What the sanitizers watch: the process that ``builds`` starts, not for users.

``gpu-zoo check`` runs the checks.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gpu_zoo import compile as compiler
from gpu_zoo.testing.builds import SEED, STEPS, guarded
from gpu_zoo.testing.play import give_own, put_actions, random_actions
from gpu_zoo.vector import VectorEnv


def _play(job: dict[str, Any]) -> None:
    """What the sanitizers watch; started by ``builds._run_sanitized``."""
    compiler.KERNELS = Path(job["kernels"])
    if job["build"] == "asan":
        flatten = compiler.flatten
        compiler.flatten = lambda program: guarded(program, flatten(program))
    # Actions are not validated, as that would read the buffers that _separate_buffers replaces.
    for shape in job["shapes"]:
        for mode in ("same_step", "next_step"):
            env = VectorEnv(
                job["spec"], 5, autoreset_mode=mode, numerics=job["numerics"], shape=shape,
                build=job["build"], validate_actions=False, **job["params"],
            )  # fmt: skip
            give_own(env, job["features"])
            if job["build"] == "tsan":
                env.engine.backend.set_block_size(3)  # type: ignore[attr-defined]
            kept_alive = _separate_buffers(env) if job["build"] == "asan" else []
            actions = random_actions(env, STEPS)
            env.reset(seed=SEED)
            for step in range(STEPS):
                put_actions(env, actions, step)
                env.step()
            del kept_alive


def _separate_buffers(env: VectorEnv) -> list[np.ndarray[Any, Any]]:
    """Give every buffer an allocation of its own, so that AddressSanitizer sees where it ends."""
    buffers: list[np.ndarray[Any, Any]] = []
    io = env.engine.backend._io.copy()  # type: ignore[attr-defined]
    for name, view in env.engine.views.items():
        field, _, group = name.partition("/")
        own = view.copy() if field == "table" else np.zeros_like(view)
        buffers.append(own)
        env.engine.views[name] = own
        if field == "table":
            io["tables"][group] = own.ctypes.data
        elif group:
            io[field][list(env.groups).index(group)] = own.ctypes.data
        else:
            io[field] = own.ctypes.data
    env.engine.backend.bind(io)
    return buffers


if __name__ == "__main__":
    if sys.argv[1:] != ["--worker"]:
        sys.exit("python -m gpu_zoo.testing is for gpu_zoo's own use: gpu-zoo check ID")
    _play(pickle.load(sys.stdin.buffer))
