"""Self-play against the past: a pool of earlier versions of all groups that learn.

With opponents that only know each other, two groups may chase each other in circles: what beats the
other's latest habit need not beat its last one. So in a share of the environments one group plays
as it now is, and all others that learn as they were in an earlier iteration.

These environments are split evenly over the groups, and those of a group over the pool's members,
so that each member is met as often as any other: a uniform draw, without its noise. An environment
keeps its opponent until that gives way to a newer version, and each version acts in one forward
pass for all environments it plays in.

What a frozen version does teaches nothing: these rows have weight 0, as those of agents that have
left the game. And as they say little of how well the groups do, episodes with frozen versions are
not counted in the returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.players import Player, frozen_copy

if TYPE_CHECKING:
    from gpu_zoo.baselines.learner import Learner


@dataclass(frozen=True)
class Seat:
    """Where one learner's earlier versions play: some environments, one version at a time."""

    name: str  # the learner's
    slot: int  # of the pool
    player: Player


class Pool:
    """Earlier versions of the groups, and where they play.

    Attributes:
        current: bool ``(num_envs,)``, the environments in which all play as they now are.
        members: what acts for each learner, by its name; one dict a version. The newest replaces
            the oldest once there are ``config.pool`` of them.
        versions: how many there have been.

    Args:
        sides: learners by name, of each group that learns.
        config: the run's hyper-parameters.

    Raises:
        ValueError: fewer than two groups learn, or there are too few environments.
    """

    def __init__(self, sides: Mapping[str, Mapping[str, Learner]], config: PPOConfig) -> None:
        self.size = config.pool
        self.learners = {name: x for side in sides.values() for name, x in side.items()}
        rewards = next(iter(self.learners.values())).group.rewards
        num_envs = len(rewards)  # of this process
        each = environments_each(config, list(sides), num_envs)
        start = first = num_envs - len(sides) * self.size * each
        self.seats: list[Seat] = []
        for side in sides:
            for slot in range(self.size):
                rows = slice(start, start + each)
                start += each
                others = [x for other, x in sides.items() if other != side]
                for name, learner in ((n, x) for other in others for n, x in other.items()):
                    player = Player(learner.group, learner.network, rows)
                    self.seats.append(Seat(name, slot, player))
        self.current = torch.arange(num_envs, device=rewards.device) < first
        self.members: list[dict[str, ActorCritic]] = []
        self.versions = 0
        self.grow()

    def grow(self) -> None:
        """Take in the groups as they now are."""
        version = {name: frozen_copy(x.network) for name, x in self.learners.items()}
        slot = self.versions % self.size
        self.members[slot : slot + 1] = [version]
        self.versions += 1
        self._sit()

    def _sit(self) -> None:
        """Give each seat its member. One that is new there remembers nothing."""
        for seat in self.seats:
            network = self.members[seat.slot % len(self.members)][seat.name]
            if seat.player.network is not network:
                seat.player.network = network
                if seat.player.memory is not None:
                    seat.player.memory.zero_()

    def exclude(self) -> None:
        """Mark what frozen versions did in the full rollouts as nothing to learn from."""
        for seat in self.seats:
            self.learners[seat.name].rollout.active[:, seat.player.rows] = False

    def state_dict(self) -> dict[str, Any]:
        """All versions; what they remember is the players'."""
        return {
            "versions": self.versions,
            "members": [
                {name: network.state_dict() for name, network in member.items()}
                for member in self.members
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""
        self.versions = state["versions"]
        self.members = []
        for saved in state["members"]:
            member = {name: frozen_copy(x.network) for name, x in self.learners.items()}
            for name, network in member.items():
                network.load_state_dict(saved[name])
            self.members.append(member)
        self._sit()


def environments_each(config: PPOConfig, groups: list[str], num_envs: int) -> int:
    """In how many environments each group meets each member, of ``num_envs`` in this process.

    Raises:
        ValueError: in none, or there are no two groups.
    """
    if len(groups) < 2:
        raise ValueError(f"pool={config.pool}: expected 0, as only {groups[0]} learns")
    each = int(num_envs * config.pool_share) // (len(groups) * config.pool)
    if each < 1:
        raise ValueError(
            f"pool_share={config.pool_share}: expected {len(groups) * config.pool} of "
            f"{num_envs} environments or more, one for each group and member of the pool"
        )
    return each
