"""gpu_zoo's own PPO: gpu_zoo.baselines.ppo as it is."""

from __future__ import annotations

from typing import Any

import torch

from gpu_zoo.backends.cpu import num_threads
from gpu_zoo.baselines import ppo
from gpu_zoo.baselines.config import PPOConfig, default_config
from gpu_zoo.bench import contenders as environments

from .setting import Contender, Note, Setting

ENV_ID = "mpe/simple_spread_v3"


def make(setting: Setting, *, threads: int = 1, shipped: bool = False) -> Contender:
    """Ours: the setting's hyper-parameters, or those that are shipped for the environment."""
    config = _shipped(setting) if shipped else _matched(setting, threads)
    torch.set_num_threads(config.threads)
    environment = environments.ours(ENV_ID, config.num_envs, "cpu")
    trainer = ppo.Trainer(ENV_ID, config, {})

    def act() -> None:
        trainer.collect()
        with torch.no_grad():
            for learner in trainer.learners.values():
                learner.prepare()

    def learn(note: Note) -> None:
        def on_update(update: ppo.Update) -> None:
            note(update.env_steps, update.returns.get("agent"))

        ppo.train(ENV_ID, config, on_update=on_update)

    steps = config.num_envs * config.horizon
    return Contender(
        f"gpu_zoo.baselines.ppo, {config.num_envs} environments x {config.horizon} steps, "
        f"{config.epochs} epochs of {config.minibatches} minibatches; torch threads: "
        f"{config.threads}, environments' threads: {num_threads()}",
        {
            "environment": (environment.quantum * config.num_envs, lambda: environment.run(1)),
            "acting": (steps, act),
            "training": (steps, trainer.iterate),  # its learning rate stays
        },
        learn,
    )


def _shipped(setting: Setting) -> PPOConfig:
    return default_config(
        ENV_ID, total_steps=setting.total_steps, seed=setting.seed, device="cpu", progress=False
    )


def _matched(setting: Setting, threads: int) -> PPOConfig:
    names = (
        "num_envs", "total_steps", "horizon", "epochs", "minibatches", "learning_rate", "gamma",
        "gae_lambda", "clip", "value_coef", "entropy_coef", "max_grad_norm", "seed",
    )  # fmt: skip
    given: dict[str, Any] = {name: getattr(setting, name) for name in names}
    return PPOConfig(
        **given, hidden=(setting.hidden, setting.hidden), threads=threads, device="cpu",
        progress=False,
    )  # fmt: skip
