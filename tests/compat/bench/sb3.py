"""Stable-Baselines3's PPO on simple_spread: over SuperSuit's bridge to mpe2, and on ours.

Same network, hyper-parameters and steps an iteration; 16 environments over SuperSuit, which is the
fastest of some numbers tried there, and 256 on ours.
"""

from __future__ import annotations

import time
from typing import Any

USUAL_ENVS, OUR_ENVS, AGENTS, SAMPLES = 16, 256, 3, 19_200


def _train(env: Any, seconds: float) -> float:
    """Environment steps a second of whole iterations, after one that is not timed."""
    from stable_baselines3 import PPO

    model = PPO(
        "MlpPolicy", env, n_steps=SAMPLES // env.num_envs, batch_size=1200, n_epochs=4,
        learning_rate=2e-3, gamma=0.95, device="cpu",
    )  # fmt: skip # and without a seed, which SuperSuit's bridge does not take
    model.learn(SAMPLES)
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        model.learn(SAMPLES, reset_num_timesteps=False)
        done += SAMPLES
    return done / AGENTS / (time.perf_counter() - begun)


def usual(seconds: float) -> float:
    """Over SuperSuit, as PettingZoo's tutorial does it."""
    import supersuit
    from mpe2 import simple_spread_v3

    env = supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env())
    many = supersuit.concat_vec_envs_v1(env, USUAL_ENVS, num_cpus=1, base_class="stable_baselines3")
    return _train(many, seconds)


def ours(seconds: float) -> float:
    """On a batch."""
    import gpu_zoo
    from gpu_zoo.wrappers.sb3 import SB3VecEnv

    return _train(SB3VecEnv(gpu_zoo.make_vec("mpe/simple_spread_v3", OUR_ENVS)), seconds)
