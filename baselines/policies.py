"""Trained policies of any of the bundled algorithms."""

from __future__ import annotations

from pathlib import Path

from gpu_zoo.baselines import checkpoint
from gpu_zoo.baselines.deterministic import DeterministicPolicy
from gpu_zoo.baselines.evaluation import Policy
from gpu_zoo.baselines.squashed import SquashedPolicy


def load_policy(path: str | Path, device: str = "cpu", seed: int = 0) -> Policy:
    """The policy in a checkpoint, whatever algorithm wrote it.

    Args:
        path: the checkpoint.
        device: where the policy is to compute.
        seed: for the actions that it will sample.

    Raises:
        CheckpointError: the file is missing, broken or no checkpoint.
    """
    kinds = {"ddpg": DeterministicPolicy, "pql": DeterministicPolicy, "sac": SquashedPolicy}
    kind = kinds.get(checkpoint.load(path).get("algorithm", "ppo"), Policy)
    return kind.load(path, device, seed)
