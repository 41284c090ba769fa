"""Hyper-parameters of PPO, and where the tuned ones are found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from gpu_zoo.baselines import checks, config_file
from gpu_zoo.baselines.checks import expect

Optimizer = Literal["adam", "lamb"]
OffPolicyClip = Literal["mu", "one"]


@dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters. Those tuned for an environment come from :func:`default_config`.

    Attributes:
        total_steps: environment steps to train for, whatever the number of agents; rounded up to
            whole iterations of ``num_envs * horizon``.
        num_envs: environments stepped at once.
        horizon: steps of each environment between two updates.
        epochs: passes over the data of one iteration.
        minibatches: gradient steps a pass.
        optimizer: ``"adam"``, or ``"lamb"`` for very large batches; see lamb.py.
        learning_rate: the optimizer's step size at the start.
        learning_rate_batch: how many environment steps of a minibatch the learning rate is meant
            for; with others it is multiplied by the root of how many times as many they are. None
            leaves it.
        warmup: share of the run in which the learning rate rises linearly, from half of what it
            would be.
        anneal: let the learning rate fall to 0 linearly over the run.
        gamma: discount a step.
        gae_lambda: weight of long against short horizons in the advantage estimate.
        clip: how far the probability ratio may move from 1 before its gradient is cut.
        value_clip: how far a value may move from its old one before its gradient is cut; None to
            leave values free.
        entropy_coef: weight of the entropy bonus, at the start.
        entropy_coef_end: what this weight moves to linearly over the run; None leaves it.
        value_coef: weight of the value loss.
        max_grad_norm: gradients are scaled down to this norm, for each group's network.
        target_kl: end an iteration's passes once the policy has moved this far; None never does.
            Waits for the device once a pass.
        hidden: widths of the hidden layers, of actor and critic each.
        normalize_observations: bring observations to mean 0 and variance 1, cut at ±10. Mean and
            variance are those of all that each group's agents have seen in the iterations before.
        recurrent: give actors and critics a memory, a GRU as wide as the last hidden layer, between
            that and the outputs. Learns from whole rollouts of each environment, ``num_envs`` of
            them split into ``minibatches``.
        blocks: policies to train side by side, each in its share of the environments: a leader, and
            followers that explore for it (SAPG; see sapg.py). ``entropy_coef`` is the last
            follower's then; the leader's is 0, and those between are spaced evenly. 1 is plain PPO.
        block_embedding: length of the learned row that tells the network a block.
        off_policy_coef: weight of what the leader learns from followers' samples, next to that of
            its own; 0 takes none.
        off_policy_clip: what its ratio to the follower's probability is clipped around: ``"mu"``,
            the ratio that the leader's old policy has, as in the paper, or ``"one"``, as in the
            authors' code.
        bfloat16: compute the networks' products in bfloat16, everything else in float32. For layers
            of hundreds of units; on the CPU, small ones are faster without.
        separate: a network for each agent instead of one for each group. All that is otherwise
            said by group, such as returns and losses, is by agent then.
        central_critic: let the value functions see the global state, which is what all agents see,
            besides the agent's own observation (MAPPO). Those who act need no state.
        scale_rewards: learn from rewards divided by the standard deviation of the discounted
            return so far. Returns are reported as they are.
        frozen: groups that do not learn, each with who plays it instead: ``"random"``, or the path
            of a checkpoint, whose policy is read when training begins.
        pool: how many earlier versions of the groups to keep, for each group that learns to play
            against those of the others (see pool.py); 0 plays against the present ones alone.
        pool_interval: iterations between two versions; the first is the untrained one.
        pool_share: share of the environments with earlier versions in them, rounded down to as many
            for each group and version.
        stagger: start the first episodes at different clocks, spread evenly over the time limit,
            so that environments do not all end theirs in the same step of every iteration.
        seed: of weights, actions, shuffling and environments.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:<index>"``, or ``"auto"``: CUDA where it works.
        cuda_graph: launch a whole iteration on a GPU as one CUDA graph. Not done where iterations
            differ: with ``target_kl``, ``pool``, LAMB, several processes, or a profile.
        threads: CPU threads torch computes with, part of the configuration because the last bits
            of a sum depend on it. A second thread makes networks this small a third faster on an
            idle machine, and many times slower on a busy one, where threads wait for each other.
            The environments' own threads are set by ``GPU_ZOO_NUM_THREADS``.
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
    """

    total_steps: int = 2_000_000
    num_envs: int = 256
    horizon: int = 32
    epochs: int = 4
    minibatches: int = 4
    optimizer: Optimizer = "adam"
    learning_rate: float = 1e-3
    learning_rate_batch: int | None = None
    warmup: float = 0.0
    anneal: bool = True
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_clip: float | None = None
    entropy_coef: float = 0.01
    entropy_coef_end: float | None = None
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float | None = None
    hidden: tuple[int, ...] = (64, 64)
    normalize_observations: bool = False
    recurrent: bool = False
    blocks: int = 1
    block_embedding: int = 16
    off_policy_coef: float = 1.0
    off_policy_clip: OffPolicyClip = "mu"
    bfloat16: bool = False
    separate: bool = False
    central_critic: bool = False
    scale_rewards: bool = False
    frozen: dict[str, str] = field(default_factory=dict)
    pool: int = 0
    pool_interval: int = 20
    pool_share: float = 0.25
    stagger: bool = True
    seed: int = 0
    device: str = "auto"
    cuda_graph: bool = True
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
        counts = ("epochs", "minibatches", "blocks", "block_embedding")
        expect(self, counts, checks.COUNT)
        expect(self, ("learning_rate", "clip", "max_grad_norm"), checks.ABOVE_ZERO)
        expect(self, ("entropy_coef", "value_coef", "off_policy_coef"), checks.NOT_NEGATIVE)
        expect(self, ("gamma", "gae_lambda", "warmup"), checks.SHARE)
        expect(self, ("optimizer",), checks.one_of(get_args(Optimizer)))
        expect(self, ("off_policy_clip",), checks.one_of(get_args(OffPolicyClip)))
        expect(self, ("learning_rate_batch",), checks.COUNT, optional=True)
        expect(self, ("entropy_coef_end",), checks.NOT_NEGATIVE, optional=True)
        expect(self, ("value_clip", "target_kl"), checks.ABOVE_ZERO, optional=True)
        networks = ("normalize_observations", "recurrent", "bfloat16", "separate", "central_critic")
        flags = ("anneal", "stagger", "scale_rewards", "cuda_graph", *networks)
        expect(self, flags, checks.FLAG)
        expect(self, ("frozen",), checks.TEXTS)
        expect(self, ("pool",), checks.COUNT_OR_ZERO)
        expect(self, ("pool_interval",), checks.COUNT)
        expect(self, ("pool_share",), checks.PART)
        limit, of = self.num_envs * self.horizon, "num_envs * horizon"
        if self.recurrent:
            limit, of = self.num_envs, "num_envs (recurrent)"
            what = "at least one width, as recurrent is set"
            expect(self, ("hidden",), (tuple, what, lambda v: len(v) > 0))
            expect(self, ("bfloat16",), (bool, "False, as recurrent is set", lambda v: not v))
        if self.blocks > 1:
            self._check_blocks()
        expect(self, ("minibatches",), (int, f"at most {of} = {limit}", lambda v: v <= limit))

    def _check_blocks(self) -> None:
        share = f"a multiple of blocks = {self.blocks}"
        expect(self, ("num_envs",), (int, share, lambda v: v % self.blocks == 0))
        expect(self, ("recurrent",), (bool, "False, as there are blocks", lambda v: not v))
        expect(self, ("pool",), (int, "0, as there are blocks", lambda v: v == 0))
        if self.off_policy_clip == "one":  # approx_kl is not the policy's own movement then
            what = "None, as off_policy_clip is 'one'"
            expect(self, ("target_kl",), (float, what, lambda v: False), optional=True)

    def after(self, progress: float) -> PPOConfig:
        """The configuration with what its schedules make of it after a share of the run."""
        rate, entropy, end = self.learning_rate, self.entropy_coef, self.entropy_coef_end
        if self.learning_rate_batch is not None:
            batch = self.num_envs * self.horizon / self.minibatches
            rate = rate * math.sqrt(batch / self.learning_rate_batch)
        if progress < self.warmup:
            rate = rate * (1 + progress / self.warmup) / 2
        if self.anneal:
            rate = rate * (1 - progress)
        if end is not None:
            entropy = entropy + (end - entropy) * progress
        return replace(self, learning_rate=rate, entropy_coef=entropy)


def default_config(env_id: str, **changes: Any) -> PPOConfig:
    """The tuned hyper-parameters of an environment, from ``baselines/configs/ppo``, with changes.

    Raises:
        KeyError: no such environment.
        TypeError: a change to something that is no hyper-parameter.
        ValueError: a value out of range.
    """
    return config_file.tuned(PPOConfig, "ppo", env_id, **changes)
