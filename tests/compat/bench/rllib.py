"""RLlib's PPO on simple_spread: with mpe2 behind RLlib's own wrapper, and on ours.

Same network, hyper-parameters and number of environments, in one process: 64, with which RLlib's
own way is about as fast as it gets. Its default is one environment, a fraction of that.
"""

from __future__ import annotations

import time
from typing import Any

ENVS, SAMPLES = 64, 4096


def usual(seconds: float, num_envs: int = ENVS) -> float:
    """Environment steps a second over ``ParallelPettingZooEnv``."""
    from mpe2 import simple_spread_v3
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
    from ray.tune.registry import register_env

    register_env("spread", lambda _: ParallelPettingZooEnv(simple_spread_v3.parallel_env()))
    return _train(_config("spread", num_envs), seconds)


def ours(seconds: float, num_envs: int = ENVS) -> float:
    """Environment steps a second on a batch."""
    from gpu_zoo.wrappers.rllib import BatchedRunner, register

    register("mpe/simple_spread_v3")
    config = _config("mpe/simple_spread_v3", num_envs)
    return _train(config.env_runners(env_runner_cls=BatchedRunner), seconds)


def _config(env: str, num_envs: int) -> Any:
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    network = RLModuleSpec(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
    return (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs)
        .multi_agent(policies={"shared"}, policy_mapping_fn=lambda *_, **__: "shared")
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"shared": network}))
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=SAMPLES, minibatch_size=1024, num_epochs=4)
        .debugging(seed=0, log_level="ERROR")
    )


def _train(config: Any, seconds: float) -> float:
    """Of whole iterations, after one that is not timed."""
    algorithm = config.build_algo()
    algorithm.train()
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        done += int(algorithm.train()["env_runners"]["num_env_steps_sampled"])
    rate = done / (time.perf_counter() - begun)
    algorithm.stop()
    return rate


if __name__ == "__main__":
    for count in (1, 4, 16, 64, 256):
        print(f"{count:4} environments: {usual(15, count):6.0f} steps/s in RLlib's usual way")
    for count in (64, 256):
        print(f"{count:4} environments: {ours(15, count):6.0f} steps/s on a batch")
