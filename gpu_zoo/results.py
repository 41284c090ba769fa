"""What a batch hands out: whole arrays by group, slices of them by agent, and infos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from gpu_zoo.buffers import GROUP_BUFFERS
from gpu_zoo.memory import as_int8
from gpu_zoo.spec import GroupLayout

# Observations, rewards, terminations, truncations and infos.
StepResult = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]


@dataclass(frozen=True)
class GroupBuffers:
    """The whole arrays of one group of agents, for trainers that share parameters.

    All have shape ``(num_envs, agents, ...)``, are written in place by the kernel and stay valid
    for the environment's life. ``n`` is the observation's length.

    Attributes:
        agents: names, in the order of the second axis.
        observation_space: one agent's, unbatched.
        action_space: one agent's, unbatched.
        observations: float32 ``(num_envs, agents, n)``.
        final_observations: float32, the observations with which finished episodes ended; rows of
            environments whose episode did not just end are stale.
        rewards: float32 (float64 in reference numerics) ``(num_envs, agents)``.
        terminations: bool ``(num_envs, agents)``.
        truncations: bool ``(num_envs, agents)``.
        actions: int32 ``(num_envs, agents)``, or float32 ``(num_envs, agents, size)``; write here
            and call ``step()`` to step without a copy.
        active: bool ``(num_envs, agents)``: whether the agent is in the game. It is false from the
            step in which an agent terminated before its environment's episode was over, until the
            next episode; what such an agent does means nothing, and its rewards are 0.
        episode_returns: sum of rewards of the episode so far.
        last_returns: sum of rewards of the episode that ended last.
        action_masks: bool ``(num_envs, agents, n)``, true where the action may be taken now; n
            counts the values of each component, side by side. All true where an agent has left or
            waits for its next episode. None if the group's actions are not masked.
    """

    agents: tuple[str, ...]
    observation_space: spaces.Box
    action_space: spaces.Space[Any]
    observations: Any
    final_observations: Any
    rewards: Any
    terminations: Any
    truncations: Any
    actions: Any
    active: Any
    episode_returns: Any
    last_returns: Any
    action_masks: Any


def group_buffers(group: GroupLayout, arrays: Mapping[str, Any]) -> GroupBuffers:
    """A group's arrays, of those of a batch by name; None for those that it does not have."""
    own = {
        name: arrays.get(f"{name}/{group.name}") for name, _, _ in GROUP_BUFFERS if name != "infos"
    }
    return GroupBuffers(
        agents=group.agents,
        observation_space=group.observation_space(),
        action_space=group.actions.space(),
        **own,
    )


def by_agent(
    name: str, groups: tuple[GroupLayout, ...], arrays: Mapping[str, Any]
) -> dict[str, Any]:
    """Each agent's slice of its group's array: ``(num_envs, ...)``, a view."""
    return {
        agent: arrays[f"{name}/{group.name}"][:, i]
        for group in groups
        if f"{name}/{group.name}" in arrays
        for i, agent in enumerate(group.agents)
    }


def make_infos(
    groups: tuple[GroupLayout, ...], arrays: Mapping[str, Any], mode: AutoresetMode
) -> dict[str, Any]:
    """The infos of a step, as :meth:`gpu_zoo.vector.VectorEnv.step` describes them; views."""
    done = arrays["done"]
    episode = {"r": by_agent("last_returns", groups, arrays), "l": arrays["last_lengths"]}
    infos: dict[str, Any] = {"episode": episode, "_episode": done}
    if mode == AutoresetMode.SAME_STEP:
        infos["final_obs"] = by_agent("final_observations", groups, arrays)
        infos["_final_obs"] = done
        infos["final_info"] = {"episode": episode}
        infos["_final_info"] = done
    benchmark = by_agent("infos", groups, arrays)
    if benchmark:
        infos["benchmark_data"] = benchmark
    masks = by_agent("action_masks", groups, arrays)
    if masks:
        infos["action_mask"] = {agent: as_int8(mask) for agent, mask in masks.items()}
    return infos


def with_fresh_dicts(values: dict[str, Any]) -> dict[str, Any]:
    """The same arrays in a dict of their own, dicts within it included."""
    return {k: with_fresh_dicts(v) if isinstance(v, dict) else v for k, v in values.items()}


def concatenate(parts: list[Any]) -> Any:
    """Arrays ``(num_envs, n)`` of one kind side by side; a copy."""
    if hasattr(parts[0], "clone"):
        import torch

        return torch.cat(parts, dim=1)
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=1)
    import cupy

    return cupy.concatenate(parts, axis=1)
