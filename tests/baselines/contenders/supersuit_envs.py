"""mpe2's simple_spread, vectorised by SuperSuit: every agent of every environment is a lane."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import supersuit
import torch
from mpe2 import simple_spread_v3

from .setting import Setting

TRIED = (1, 2)  # processes of the environments, threads of torch
BATCHES = 8  # pre-drawn batches of random actions, used in a cycle


def make(setting: Setting, base_class: str, processes: int) -> Any:
    """``few_envs`` environments, in this process (1) or in others."""
    env = simple_spread_v3.parallel_env(N=setting.agents, max_cycles=setting.horizon)
    lanes = supersuit.pettingzoo_env_to_vec_env_v1(env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return supersuit.concat_vec_envs_v1(
            lanes, setting.few_envs, num_cpus=processes, base_class=base_class
        )


def fastest(setting: Setting, base_class: str) -> tuple[Any, int]:
    """The environments, in as many processes as step them fastest here, and this number."""
    took = {}
    for processes in TRIED:
        envs = make(setting, base_class, processes)
        play = player(envs, setting)
        play()
        took[processes] = min(_seconds(play) for _ in range(3))
        envs.close()
    best = min(TRIED, key=lambda processes: took[processes])
    return make(setting, base_class, best), best


def player(envs: Any, setting: Setting) -> Callable[[], None]:
    """An episode of all environments with random actions, which are drawn here and not then."""
    rng = np.random.default_rng(setting.seed)
    script = rng.integers(setting.actions, size=(BATCHES, setting.few_envs * setting.agents))
    envs.reset()

    def play() -> None:
        for step in range(setting.horizon):
            envs.step(script[step % BATCHES])

    return play


def mean_return(rewards: Any, setting: Setting) -> float:
    """Of ``(steps, lanes)`` rewards of whole episodes, the mean of their sums over an episode."""
    episodes = rewards.reshape(-1, setting.horizon, rewards.shape[-1])
    return float(episodes.sum(1).mean())


def use_fastest_threads(step: Callable[[], object]) -> int:
    """Let torch compute with as many threads as take a gradient step fastest; their number."""
    took = {}
    for threads in TRIED:
        torch.set_num_threads(threads)
        step()
        took[threads] = min(_seconds(step) for _ in range(50))
    best = min(TRIED, key=lambda threads: took[threads])
    torch.set_num_threads(best)
    return best


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
