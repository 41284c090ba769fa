"""Hyper-parameters of PQL."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from gpu_zoo.baselines import checks, config_file
from gpu_zoo.baselines.checks import expect


@dataclass(frozen=True)
class PQLConfig:
    """Hyper-parameters. Those tuned for an environment come from :func:`default_config`.

    They are those of the paper and its code but for these, which are for a CPU: ``num_envs`` (4096
    there), ``batch_size`` (8192), ``capacity`` (5,000,000) and ``hidden`` (512, 256 and 128, with
    ELU where these networks have ReLU); and the optimizer is Adam without weight decay. Noise is
    measured in units of half an action's range.

    Attributes:
        total_steps: environment steps to train for, whatever the number of agents; rounded up to
            whole iterations of ``num_envs * horizon``.
        num_envs: environments stepped at once.
        horizon: steps of each environment in one iteration, the unit in which progress is
            reported and saved. Actor and learners meet at its end.
        warmup: steps of each environment with uniformly random actions, before learning begins.
            There are at least ``n_step``.
        updates: gradient steps of the critics for each step of all environments.
        actor_delay: gradient steps of the critics for one of the actor.
        concurrent: actor, value learner and policy learner each have a thread of their own, and on
            CUDA a stream. Otherwise they take turns in one thread and always in the same order,
            which on the CPU gives the same curve, bit for bit.
        value_device: where the critics learn; None is ``device``.
        policy_device: where the policy learns; None is ``device``.
        batch_size: rows in a gradient step, of either learner.
        capacity: transitions that each group's value learner holds, and observations that its
            policy learner does.
        n_step: rewards summed before the target critics estimate the rest.
        reward_scale: what rewards are multiplied by before they are learned from. Returns are
            reported as they are.
        normalize_observations: bring observations to mean 0 and variance 1, cut at ±10, in actor
            and learners alike.
        actor_lr: Adam's step size for actors.
        critic_lr: Adam's step size for critics.
        max_grad_norm: gradients are scaled down to this norm, those of each group's actor and those
            of its critics.
        gamma: discount a step.
        tau: how far the target critics move towards the critics at each of their updates.
        target_noise: standard deviation of the noise on the actions in targets.
        target_noise_clip: the most that this noise may be.
        noise_min: standard deviation of the exploration noise in the first environment.
        noise_max: in the last one; those between are spaced evenly.
        distributional: learn distributions of returns, by C51, instead of their means.
        atoms: returns that have a probability each.
        v_min: the least of them, in scaled rewards.
        v_max: the greatest.
        hidden: widths of the hidden layers, of actor and critics each.
        seed: of weights, actions, drawing from replays and environments.
        device: of environments and actor: ``"cpu"``, ``"cuda"``, ``"cuda:<index>"``, or ``"auto"``:
            CUDA where it works.
        threads: CPU threads torch computes with, in each of the three.
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
    num_envs: int = 64
    horizon: int = 50
    warmup: int = 32
    updates: int = 8
    actor_delay: int = 2
    concurrent: bool = True
    value_device: str | None = None
    policy_device: str | None = None
    batch_size: int = 256
    capacity: int = 1_000_000
    n_step: int = 3
    reward_scale: float = 1.0
    normalize_observations: bool = True
    actor_lr: float = 5e-4
    critic_lr: float = 5e-4
    max_grad_norm: float = 0.5
    gamma: float = 0.99
    tau: float = 0.05
    target_noise: float = 0.8
    target_noise_clip: float = 0.2
    noise_min: float = 0.05
    noise_max: float = 0.8
    distributional: bool = False
    atoms: int = 51
    v_min: float = -10.0
    v_max: float = 10.0
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
        counts = ("updates", "actor_delay", "batch_size", "capacity", "n_step")
        expect(self, counts, checks.COUNT)
        expect(self, ("warmup",), checks.COUNT_OR_ZERO)
        positive = ("actor_lr", "critic_lr", "max_grad_norm", "reward_scale")
        expect(self, positive, checks.ABOVE_ZERO)
        expect(self, ("gamma", "tau"), checks.SHARE)
        noises = ("target_noise", "target_noise_clip", "noise_min", "noise_max")
        expect(self, noises, checks.NOT_NEGATIVE)
        expect(self, ("atoms",), (int, "an int of at least 2", lambda v: v >= 2))
        expect(self, ("v_min",), checks.FINITE)
        above = (float, f"a number above v_min={self.v_min}", lambda v: self.v_min < v < math.inf)
        expect(self, ("v_max",), above)
        flags = ("concurrent", "normalize_observations", "distributional")
        expect(self, flags, checks.FLAG)
        expect(self, ("value_device", "policy_device"), checks.DEVICE, optional=True)


def default_config(env_id: str, **changes: Any) -> PQLConfig:
    """The tuned hyper-parameters of an environment, from ``baselines/configs/pql``, with changes.

    Raises:
        KeyError: no such environment.
        TypeError: a change to something that is no hyper-parameter.
        ValueError: a value out of range.
    """
    return config_file.tuned(PQLConfig, "pql", env_id, **changes)
