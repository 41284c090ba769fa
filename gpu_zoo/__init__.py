"""Multi-agent reinforcement-learning environments that run as kernels over thousands of copies."""

from __future__ import annotations

from gpu_zoo.log import EpisodeLog
from gpu_zoo.registry import list_ids, make, make_gym_lanes, make_gym_vec, make_vec, register, spec
from gpu_zoo.spec import EnvSpec
from gpu_zoo.trajectory import Trajectory
from gpu_zoo.vector import VectorEnv
from gpu_zoo.version import __version__

__all__ = [
    "EnvSpec",
    "EpisodeLog",
    "Trajectory",
    "VectorEnv",
    "__version__",
    "list_ids",
    "make",
    "make_gym_lanes",
    "make_gym_vec",
    "make_vec",
    "register",
    "spec",
]
