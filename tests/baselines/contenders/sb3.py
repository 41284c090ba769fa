"""Stable-Baselines3's PPO over SuperSuit's vectorisation of mpe2, as its users run it."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import set_random_seed

from . import supersuit_envs
from .setting import Contender, Note, Setting


def make(setting: Setting) -> Contender:
    """SB3's PPO with the setting's hyper-parameters."""
    envs, processes = supersuit_envs.fastest(setting, "stable_baselines3")
    model = _model(setting, envs)
    _, callback = model._setup_learn(setting.samples, None)  # what learn() begins with
    sizes = (setting.samples // setting.minibatches, setting.obs_size)
    observations, actions = torch.zeros(sizes), torch.zeros(sizes[0])

    def gradient() -> None:
        values, log_probs, _ = model.policy.evaluate_actions(observations, actions)
        (values.sum() + log_probs.sum()).backward()

    threads = supersuit_envs.use_fastest_threads(gradient)

    def act() -> None:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)

    def train() -> None:
        act()
        model.train()

    def learn(note: Note) -> None:
        new = _model(setting, envs)
        new.learn(setting.total_steps * setting.agents, callback=_Curve(setting, note))

    play = supersuit_envs.player(envs, setting)
    steps = setting.env_steps
    return Contender(
        f"PPO('MlpPolicy') on concat_vec_envs_v1 of mpe2, {setting.few_envs} environments x "
        f"{setting.agents} agents x {setting.long_horizon} steps; num_cpus: {processes}, torch "
        f"threads: {threads}, each the fastest here",
        {
            "environment": (setting.horizon * setting.few_envs, play),
            "acting": (steps, act),
            "training": (steps, train),
        },
        learn,
    )


def _model(setting: Setting, envs: Any) -> PPO:
    set_random_seed(setting.seed)  # given to PPO it would seed the environments, which cannot be
    rate = setting.learning_rate
    return PPO(
        "MlpPolicy", envs, learning_rate=lambda left: left * rate, n_steps=setting.long_horizon,
        batch_size=setting.samples // setting.minibatches, n_epochs=setting.epochs,
        gamma=setting.gamma, gae_lambda=setting.gae_lambda, clip_range=setting.clip,
        ent_coef=setting.entropy_coef, vf_coef=setting.value_coef,
        max_grad_norm=setting.max_grad_norm, device="cpu",
        policy_kwargs={"net_arch": {"pi": [setting.hidden] * 2, "vf": [setting.hidden] * 2}},
    )  # fmt: skip


class _Curve(BaseCallback):
    """Notes an iteration when the next one begins, or when there is none."""

    def __init__(self, setting: Setting, note: Note) -> None:
        super().__init__()
        self.setting, self.note = setting, note
        self.mean_return: float | None = None

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        rewards = self.model.rollout_buffer.rewards  # type: ignore[attr-defined]
        self.mean_return = supersuit_envs.mean_return(rewards, self.setting)

    def _on_rollout_start(self) -> None:
        if self.mean_return is not None:
            self.note(self.num_timesteps // self.setting.agents, self.mean_return)

    def _on_training_end(self) -> None:
        self._on_rollout_start()
