"""Evaluation now and then during a run, which changes nothing in the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.ddpg_config import DDPGConfig
from gpu_zoo.baselines.evaluation import Opponent, Policy, evaluate, others_of, played_by
from gpu_zoo.baselines.policies import load_policy
from gpu_zoo.baselines.pql_config import PQLConfig

Config = PPOConfig | DDPGConfig | PQLConfig


def load_opponents(
    env_id: str, env_params: Mapping[str, Any], sources: Mapping[str, str]
) -> dict[str, Opponent]:
    """Who plays some groups in evaluations.

    Args:
        env_id: the environment.
        env_params: its parameters.
        sources: ``"random"``, or a checkpoint's or its run folder's path, by group.

    Raises:
        ValueError: no such group, no other one left to learn, or a policy made for other agents.
        CheckpointError: a file is missing, broken or no checkpoint.
    """
    opponents: dict[str, Opponent] = {}
    for name, group in others_of("eval_opponents", env_id, env_params, sources).items():
        who = sources[name]
        opponents[name] = "random"
        if who != "random":
            policy = opponents[name] = load_policy(who)
            with played_by(f"eval_opponents[{name!r}]: {who}"):
                policy.networks_for(group)
    return opponents


class Evaluator:
    """Plays whole episodes with a run's policy: likeliest actions, the same episodes every time.

    Args:
        config: the run's hyper-parameters.
        policy: gives what has been learned so far.

    Raises:
        ValueError: see :func:`load_opponents`.
        CheckpointError: see there.
    """

    def __init__(self, config: Config, policy: Callable[[], Policy]) -> None:
        self.config, self.policy = config, policy
        self.opponents: dict[str, Opponent] = {}
        if config.eval_interval:
            now = policy()
            self.opponents = load_opponents(now.env_id, now.env_params, config.eval_opponents)

    def after(self, iteration: int) -> dict[str, float]:
        """Mean returns by group after an iteration; empty if none are due."""
        interval = self.config.eval_interval
        if not interval or iteration % interval:
            return {}
        policy = self.policy()
        found = evaluate(
            policy, episodes=self.config.eval_episodes, device=str(policy.device),
            deterministic=True, opponents=self.opponents,
        )  # fmt: skip
        return {group: score.mean for group, score in found.groups.items()}
