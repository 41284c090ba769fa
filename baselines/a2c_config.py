"""Hyper-parameters of A2C."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from gpu_zoo.baselines import checks, config_file
from gpu_zoo.baselines.config import PPOConfig

Optimizer = Literal["rmsprop", "adam"]


@dataclass(frozen=True)
class A2CConfig:
    """Hyper-parameters. Those tuned for an environment come from :func:`default_config`.

    Attributes:
        total_steps: environment steps to train for, whatever the number of agents; rounded up to
            whole iterations of ``num_envs * horizon``.
        num_envs: environments stepped at once.
        horizon: steps of each environment between two updates, and so the longest n of the n-step
            returns.
        optimizer: ``"rmsprop"``, as in the paper, or ``"adam"``.
        learning_rate: the optimizer's step size at the start.
        anneal: let the learning rate fall to 0 linearly over the run.
        gamma: discount a step.
        gae_lambda: weight of long against short horizons in the advantage estimate; 1 gives n-step
            returns with the longest n that the rollout holds.
        entropy_coef: weight of the entropy bonus.
        value_coef: weight of the value loss.
        max_grad_norm: gradients are scaled down to this norm, for each group's network.
        hidden: widths of the hidden layers, of actor and critic each.
        stagger: start the first episodes at different clocks, spread evenly over the time limit.
        seed: of weights, actions and environments.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:<index>"``, or ``"auto"``: CUDA where it works.
        threads: CPU threads torch computes with.
        checkpoint: file to save to, during and after the run; None saves nothing.
        checkpoint_interval: iterations between two saves.
        eval_interval: iterations between two evaluations, whose returns are logged as
            ``<group>/eval_return``: whole episodes with the likeliest actions, the same ones every
            time, in environments of their own. 0 evaluates never.
        eval_episodes: episodes of an evaluation.
        eval_opponents: who plays some of the groups there, by group: ``"random"``, or the path of a
            checkpoint, which is read when training begins or goes on.
        log_dir: folder for TensorBoard and ``progress.csv``; None writes nothing.
        progress: show a progress line in the terminal.

    Raises:
        ValueError: a value out of range.
    """

    total_steps: int = 2_000_000
    num_envs: int = 256
    horizon: int = 8
    optimizer: Optimizer = "rmsprop"
    learning_rate: float = 2e-3
    anneal: bool = True
    gamma: float = 0.99
    gae_lambda: float = 1.0
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    hidden: tuple[int, ...] = (64, 64)
    stagger: bool = True
    seed: int = 0
    device: str = "auto"
    threads: int = 1
    checkpoint: str | None = None
    checkpoint_interval: int = 200
    eval_interval: int = 0
    eval_episodes: int = 100
    eval_opponents: dict[str, str] = field(default_factory=dict)
    log_dir: str | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        checks.make_plain(self)
        if self.optimizer not in get_args(Optimizer):
            raise ValueError(f"optimizer={self.optimizer!r}: expected 'rmsprop' or 'adam'")
        self.as_ppo()  # which checks what the two have in common

    def as_ppo(self) -> PPOConfig:
        """PPO with one gradient step a rollout, on all of it: see a2c.py."""
        shared = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "optimizer"}
        return PPOConfig(
            **shared, epochs=1, minibatches=1, value_clip=None, target_kl=None,
            cuda_graph=self.optimizer == "adam",  # RMSprop's learning rate would stay as it was
        )  # fmt: skip


def default_config(env_id: str, **changes: Any) -> A2CConfig:
    """The tuned hyper-parameters of an environment, from ``baselines/configs/a2c``, with changes.

    Raises:
        KeyError: no such environment.
        TypeError: a change to something that is no hyper-parameter.
        ValueError: a value out of range.
    """
    return config_file.tuned(A2CConfig, "a2c", env_id, **changes)
