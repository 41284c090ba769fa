"""Hyper-parameters of DDPG and TD3."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpu_zoo.baselines import checks, config_file
from gpu_zoo.baselines.checks import expect


@dataclass(frozen=True)
class DDPGConfig:
    """Hyper-parameters. Those tuned for an environment come from :func:`default_config`.

    The defaults are TD3's; ``critics=1, target_noise=0, actor_delay=1`` is plain DDPG. Noise is
    measured in units of half an action's range.

    Attributes:
        total_steps: environment steps to train for, whatever the number of agents; rounded up to
            whole iterations of ``num_envs * horizon``.
        num_envs: environments stepped at once.
        horizon: steps of each environment in one iteration, the unit in which progress is
            reported and saved. Learning goes on within it.
        warmup: steps of each environment with uniformly random actions, before learning begins.
        updates: gradient steps of the critics after each step of all environments.
        batch_size: transitions in a gradient step.
        capacity: transitions that each group's replay holds.
        n_step: rewards summed before the target critics estimate the rest.
        actor_lr: Adam's step size for actors.
        critic_lr: Adam's step size for critics.
        gamma: discount a step.
        tau: how far the target networks move towards the others at each update of the actor.
        critics: how many learn side by side; a target is the least of their estimates.
        actor_delay: critic updates for each update of the actor and of the target networks.
        target_noise: standard deviation of the noise on the target actor's actions.
        target_noise_clip: the most that this noise may be.
        noise_min: standard deviation of the exploration noise in the first environment.
        noise_max: in the last one; those between are spaced evenly.
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
    n_step: int = 3
    actor_lr: float = 1e-3
    critic_lr: float = 1e-3
    gamma: float = 0.99
    tau: float = 0.01
    critics: int = 2
    actor_delay: int = 2
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    noise_min: float = 0.05
    noise_max: float = 0.8
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
        checks.of_every_run(self)
        counts = ("updates", "batch_size", "capacity", "n_step", "critics", "actor_delay")
        expect(self, counts, checks.COUNT)
        expect(self, ("warmup",), checks.COUNT_OR_ZERO)
        expect(self, ("actor_lr", "critic_lr"), checks.ABOVE_ZERO)
        expect(self, ("gamma", "tau"), checks.SHARE)
        noises = ("target_noise", "target_noise_clip", "noise_min", "noise_max")
        expect(self, noises, checks.NOT_NEGATIVE)


def default_config(env_id: str, **changes: Any) -> DDPGConfig:
    """The tuned hyper-parameters of an environment, from ``baselines/configs/ddpg``, with changes.

    Raises:
        KeyError: no such environment.
        TypeError: a change to something that is no hyper-parameter.
        ValueError: a value out of range.
    """
    return config_file.tuned(DDPGConfig, "ddpg", env_id, **changes)
