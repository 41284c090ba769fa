"""Who shares a network: the agents of a group, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpu_zoo.results import GroupBuffers

ARRAYS = (
    "observations", "final_observations", "rewards", "terminations", "truncations", "actions",
    "active", "episode_returns", "last_returns",
)  # fmt: skip


def split(groups: Mapping[str, GroupBuffers]) -> dict[str, GroupBuffers]:
    """Every agent as a group of its own, in order: views of the same memory, by agent."""
    return {
        agent: replace(
            group,
            agents=(agent,),
            action_masks=None if (m := group.action_masks) is None else m[:, i : i + 1],
            **{name: getattr(group, name)[:, i : i + 1] for name in ARRAYS},
        )
        for group in groups.values()
        for i, agent in enumerate(group.agents)
    }
