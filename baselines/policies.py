"""Trained policies of any of the bundled algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_zoo.baselines import checkpoint, deterministic, squashed
from gpu_zoo.baselines.deterministic import DeterministicPolicy
from gpu_zoo.baselines.evaluation import Policy, make_networks
from gpu_zoo.baselines.run_folder import checkpoint_of
from gpu_zoo.baselines.squashed import SquashedPolicy
from gpu_zoo.spec import GroupLayout

KINDS = {"ddpg": DeterministicPolicy, "pql": DeterministicPolicy, "sac": SquashedPolicy}


def load_policy(path: str | Path, device: str = "cpu", seed: int = 0) -> Policy:
    """The policy in a checkpoint, whatever algorithm wrote it.

    Args:
        path: the checkpoint, or the folder of its run.
        device: where the policy is to compute.
        seed: for the actions that it will sample.

    Raises:
        CheckpointError: the file is missing, broken or no checkpoint.
    """
    path = checkpoint_of(path)
    kind = KINDS.get(checkpoint.load(path).get("algorithm", "ppo"), Policy)
    return kind.load(path, device, seed)


def networks_in(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint has for acting, on the CPU: networks that learned, and frozen ones.

    By group or by agent; groups that were frozen as random are left out.
    """
    part, networks = _fresh(content)
    networks = {name: networks[name] for name in content["learners"]}
    for name, network in networks.items():
        network.load_state_dict(content["learners"][name][part])
    for source in content.get("frozen", {}).values():
        networks |= {} if source is None else networks_in(source)
    return networks


def _fresh(content: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a checkpoint calls the networks that act, and such networks untrained."""
    env_id, env_params, config = (content[key] for key in ("env_id", "env_params", "config"))
    hidden, algorithm = tuple(config["hidden"]), content.get("algorithm")
    if algorithm == "sac":
        return "actor", {**squashed.make_actors(env_id, env_params, hidden, 0)}
    if algorithm in KINDS:
        normalize = config.get("normalize_observations", False)
        return "actor", {**deterministic.make_actors(env_id, env_params, hidden, 0, normalize)}
    return "network", {**make_networks(env_id, env_params, hidden, 0, config)}


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
