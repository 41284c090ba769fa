"""Trained policies of any of the bundled algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_zoo.baselines import checkpoint
from gpu_zoo.baselines.deterministic import DeterministicPolicy, make_actors
from gpu_zoo.baselines.evaluation import Policy, make_networks
from gpu_zoo.spec import GroupLayout


def load_policy(path: str | Path, device: str = "cpu", seed: int = 0) -> Policy:
    """The policy in a checkpoint, whatever algorithm wrote it.

    Args:
        path: the checkpoint.
        device: where the policy is to compute.
        seed: for the actions that it will sample.

    Raises:
        CheckpointError: the file is missing, broken or no checkpoint.
    """
    if checkpoint.load(path).get("algorithm") == "ddpg":
        return DeterministicPolicy.load(path, device, seed)
    return Policy.load(path, device, seed)


def networks_in(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint has for acting, on the CPU: networks that learned, and frozen ones.

    By group or by agent; groups that were frozen as random are left out.
    """
    env_id, env_params, config = (content[key] for key in ("env_id", "env_params", "config"))
    networks: dict[str, Any]
    if content.get("algorithm") == "ddpg":
        part, networks = "actor", {**make_actors(env_id, env_params, tuple(config["hidden"]), 0)}
    else:
        part = "network"
        networks = {**make_networks(env_id, env_params, tuple(config["hidden"]), 0, config)}
    networks = {name: networks[name] for name in content["learners"]}
    for name, network in networks.items():
        network.load_state_dict(content["learners"][name][part])
    for source in content.get("frozen", {}).values():
        networks |= {} if source is None else networks_in(source)
    return networks


def excerpt(content: Mapping[str, Any], group: GroupLayout) -> dict[str, Any] | None:
    """What a checkpoint holds of what acts for one group, as a small checkpoint of its own.

    None if the group was frozen as random in the run that wrote it.
    """
    frozen: Mapping[str, dict[str, Any] | None] = content.get("frozen", {})
    if group.name in frozen:
        return frozen[group.name]
    return {
        "algorithm": content.get("algorithm", "ppo"),
        "env_id": content["env_id"],
        "env_params": content["env_params"],
        "config": content["config"],
        "learners": {
            name: {part: learner[part] for part in ("network", "actor") if part in learner}
            for name, learner in content["learners"].items()
            if name == group.name or name in group.agents
        },
    }
