"""Environment steps a second of MAPPO in skrl, end to end: on mpe2 as usual, and on a batch."""

from __future__ import annotations

import time
from typing import Any

import mpe2.simple_spread_v3
import torch
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.multi_agents.torch.mappo import MAPPO, MAPPO_CFG
from skrl.trainers.torch import SequentialTrainer

import gpu_zoo
from gpu_zoo.wrappers.skrl import SkrlMultiAgentEnv

NUM_ENVS = 1024
ROLLOUTS = 32


def perceptron(inputs: int, outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
        torch.nn.Linear(64, outputs),
    )  # fmt: skip


class Policy(CategoricalMixin, Model):
    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        self.net = perceptron(self.num_observations, self.num_actions)

    def compute(self, inputs: Any, role: str) -> Any:
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = perceptron(self.num_states, 1)

    def compute(self, inputs: Any, role: str) -> Any:
        return self.net(inputs["states"]), {}


def usual(seconds: float) -> float:
    """Over PettingZoo's parallel environment, one of which is all that skrl's wrapper takes."""
    return _rate(
        wrap_env(mpe2.simple_spread_v3.parallel_env(), "pettingzoo", verbose=False), seconds
    )


def ours(seconds: float) -> float:
    """Over a batch of 1,024."""
    batch = gpu_zoo.make_vec("mpe/simple_spread_v3", NUM_ENVS, array="torch")
    return _rate(SkrlMultiAgentEnv(batch), seconds)


def _rate(env: Any, seconds: float) -> float:
    torch.set_num_threads(1)
    algorithm = _mappo(env)
    cfg = {
        "timesteps": 2 * ROLLOUTS, "headless": True, "disable_progressbar": True,
        "close_environment_at_exit": False,
    }  # fmt: skip
    trainer = SequentialTrainer(env=env, agents=algorithm, cfg=cfg)
    trainer.train()  # compiles and warms up
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        trainer.train()
        steps += 2 * ROLLOUTS * env.num_envs
    return steps / (time.perf_counter() - begun)


def _mappo(env: Any) -> MAPPO:
    agents = env.possible_agents
    nothing = {agent: {} for agent in agents}
    models = {}
    for agent in agents:
        spaces = {
            "observation_space": env.observation_spaces[agent],
            "state_space": env.state_spaces[agent],
            "action_space": env.action_spaces[agent],
        }
        models[agent] = {"policy": Policy(**spaces), "value": Value(**spaces)}
    return MAPPO(
        possible_agents=agents,
        models=models,
        memories={a: RandomMemory(memory_size=ROLLOUTS, num_envs=env.num_envs) for a in agents},
        observation_spaces=env.observation_spaces,
        state_spaces=env.state_spaces,
        action_spaces=env.action_spaces,
        device=env.device,
        cfg=MAPPO_CFG(
            rollouts=ROLLOUTS, learning_epochs=4, mini_batches=4,
            learning_rate_scheduler_kwargs=nothing, observation_preprocessor_kwargs=nothing,
            state_preprocessor_kwargs=nothing, value_preprocessor_kwargs=nothing,
            experiment={"write_interval": 0, "checkpoint_interval": 0},
        ),
    )  # fmt: skip
