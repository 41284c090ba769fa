"""Groups that are not trained: they act at random, or as a checkpoint has them act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gpu_zoo.baselines import checkpoint
from gpu_zoo.baselines.evaluation import Policy, others_of, played_by
from gpu_zoo.baselines.groups import split
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.players import Player, frozen_copy
from gpu_zoo.baselines.policies import excerpt, networks_in
from gpu_zoo.results import GroupBuffers
from gpu_zoo.spec import GroupLayout

Source = dict[str, Any] | None  # what a checkpoint holds of one group; None for chance


def load_frozen(
    env_id: str, env_params: Mapping[str, Any], frozen: Mapping[str, str]
) -> dict[str, Source]:
    """Read who plays the frozen groups.

    Args:
        env_id: the environment.
        env_params: its parameters.
        frozen: ``"random"`` or a checkpoint's path, by group.

    Raises:
        ValueError: no such group, no other one left to learn, or a policy made for other agents.
        CheckpointError: a file is missing, broken or no checkpoint.
    """
    sources: dict[str, Source] = {}
    for name, group in others_of("frozen", env_id, env_params, frozen).items():
        who = frozen[name]
        sources[name] = None
        if who != "random":
            sources[name] = excerpt(checkpoint.load(who), group)
            with played_by(f"frozen[{name!r}]: {who}"):
                _networks(sources[name], group)
    return sources


def _networks(source: Source, group: GroupLayout) -> dict[str, ActorCritic | None]:
    """By the group's name, or by its agents' names; None for chance."""
    if source is None:
        return {group.name: None}
    policy = Policy(source["env_id"], source["env_params"], networks_in(source))
    return policy.networks_for(group)


class FrozenGroup:
    """One group of agents that acts and does not learn.

    Attributes:
        source: who plays it, as a checkpoint is to hold it.
        networks: what plays it, by its name or by its agents'; empty for chance.
        players: one for the group, or one for each agent.

    Args:
        group: its buffers in the environment.
        layout: its sizes.
        source: who plays it.
    """

    def __init__(self, group: GroupBuffers, layout: GroupLayout, source: Source) -> None:
        self.group, self.source = group, source
        self.networks: dict[str, ActorCritic] = {}
        self.players: list[Player] = []
        networks = _networks(source, layout)
        whole = {layout.name: group}
        for name, buffers in (whole if layout.name in networks else split(whole)).items():
            if (network := networks[name]) is not None:
                network = self.networks[name] = frozen_copy(network).to(group.rewards.device)
            self.players.append(Player(buffers, network))

    # Its part of the global state, asked for as a learner's is; but nothing is kept, so only at
    # the time of the step.

    def seen(self, t: int) -> Tensor:
        """What the group sees: zeros where an agent has left."""
        gone = ~self.group.active.unsqueeze(-1)
        seen: Tensor = self.group.observations.masked_fill(gone, 0)
        return seen

    def finally_seen(self, t: int) -> Tensor:
        """What the step ended an episode with, where it did."""
        gone = self.group.terminations.unsqueeze(-1)
        seen: Tensor = self.group.final_observations.masked_fill(gone, 0)
        return seen
