"""Hyper-parameters of SAC."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from gpu_zoo.baselines import checks, config_file
from gpu_zoo.baselines.checks import expect
from gpu_zoo.baselines.ddpg_config import DDPGConfig


@dataclass(frozen=True)
class SACConfig:
    """Hyper-parameters. Those tuned for an environment come from :func:`default_config`.

    Attributes:
        total_steps: environment steps to train for, whatever the number of agents; rounded up to
            whole iterations of ``num_envs * horizon``.
        num_envs: environments stepped at once.
        horizon: steps of each environment in one iteration, the unit in which progress is
            reported and saved. Learning goes on within it.
        warmup: steps of each environment with uniformly random actions, before learning begins.
        updates: gradient steps of critics, actor and temperature after each step of all
            environments.
        batch_size: transitions in a gradient step.
        capacity: transitions that each group's replay holds.
        n_step: rewards summed before the target critics estimate the rest. The entropy of the
            actions in between is not part of the sum.
        temperature: weight of the entropy of actions against rewards, at the start.
        target_entropy: what the temperature is moved for the mean entropy of an action to be, in
            nats, where actions are scaled from -1 to 1; None is minus the length of an action.
        actor_lr: Adam's step size for actors.
        critic_lr: Adam's step size for critics.
        temperature_lr: Adam's step size for the logarithm of the temperature.
        gamma: discount a step.
        tau: how far the target critics move towards the critics at each update.
        critics: how many learn side by side; a target is the least of their estimates.
        hidden: widths of the hidden layers, of actor and critics each.
        seed: of weights, actions, drawing from the replay and environments.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:<index>"``, or ``"auto"``: CUDA where it works.
        threads: CPU threads torch computes with.
        checkpoint: file to save to, during and after the run; None saves nothing. It holds the
            replay, too.
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

    total_steps: int = 200_000
    num_envs: int = 32
    horizon: int = 50
    warmup: int = 50
    updates: int = 4
    batch_size: int = 256
    capacity: int = 1_000_000
    n_step: int = 1
    temperature: float = 0.2
    target_entropy: float | None = None
    actor_lr: float = 1e-3
    critic_lr: float = 1e-3
    temperature_lr: float = 1e-3
    gamma: float = 0.99
    tau: float = 0.01
    critics: int = 2
    hidden: tuple[int, ...] = (128, 128)
    seed: int = 0
    device: str = "auto"
    threads: int = 1
    checkpoint: str | None = None
    checkpoint_interval: int = 50
    eval_interval: int = 0
    eval_episodes: int = 100
    eval_opponents: dict[str, str] = field(default_factory=dict)
    log_dir: str | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        checks.make_plain(self)
        expect(self, ("temperature", "temperature_lr"), checks.ABOVE_ZERO)
        expect(self, ("target_entropy",), checks.FINITE, optional=True)
        self.as_ddpg()  # which checks what the two have in common

    def as_ddpg(self) -> DDPGConfig:
        """DDPG with the same loop, replay and critics: see sac.py."""
        own = ("temperature", "target_entropy", "temperature_lr")
        return DDPGConfig(**{f.name: getattr(self, f.name) for f in fields(self)
                             if f.name not in own})  # fmt: skip


def default_config(env_id: str, **changes: Any) -> SACConfig:
    """The tuned hyper-parameters of an environment, from ``baselines/configs/sac``, with changes.

    Raises:
        KeyError: no such environment.
        TypeError: a change to something that is no hyper-parameter.
        ValueError: a value out of range.
    """
    return config_file.tuned(SACConfig, "sac", env_id, **changes)
