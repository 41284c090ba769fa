"""What single mpe2 scenarios add to their world, agents and landmarks.

Used by the views in :mod:`gpu_zoo.mpe.bodies`. Each function returns functions that get, by name,
an attribute as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gpu_zoo.mpe.bodies import WorldView

Getters = Mapping[str, Callable[[], Any]]
ADVERSARIES = {"adversary", "leadadversary", "eve"}  # groups of agents
PREY_PACE = (0.5, 0.75, 1.0)  # of simple_tag's good agents, by the curriculum's stage


def of_world(world: WorldView) -> Getters:
    """What the world has beside mpe2's ``World``."""
    count, name = world._game.params.get, world._spec.name
    if name in ("simple_spread_v3", "simple_reference_v3", "simple_speaker_listener_v4"):
        return {"collaborative": lambda: True}
    if name == "simple_adversary_v3":
        return {"num_agents": lambda: len(world.agents)}
    if name == "simple_world_comm_v3":
        return {
            "food": lambda: [x for x in world.landmarks if x.name.startswith("food")],
            "forests": lambda: [x for x in world.landmarks if x.name.startswith("forest")],
        }
    if name == "collect_treasure_v1":
        return {
            "num_collectors": lambda: count("num_collectors"),
            "num_deposits": lambda: count("num_deposits"),
            "treasure_types": lambda: list(range(int(count("num_deposits", 0)))),
        }
    return {}


def of_agent(world: WorldView, index: int) -> Getters:
    """What an agent has beside mpe2's ``Agent``, or has otherwise."""
    role = world._game.agents[index].rsplit("_", 1)[0]
    return {
        **_role(world, role),
        **_goals(world, index, role),
        **_prey(world, role),
        **_carried(world, index, role),
        **_symbols(world, role),
    }


def of_landmark(world: WorldView, index: int) -> Getters:
    """What a landmark has beside mpe2's ``Landmark``, or has otherwise."""
    name, now = world._spec.name, world._game.memory
    if name in ("simple_tag_v3", "simple_world_comm_v3"):
        return {"boundary": lambda: False}
    if name == "simple_push_v3":
        return {"index": lambda: index}
    if name == "simple_crypto_v3":
        return {"color": lambda: np.eye(world.dim_c)[index]}
    if name == "collect_treasure_v1":
        return {
            "type": lambda: int(now("kind")[index]),
            "alive": lambda: bool(now("alive")[index]),
            "respawn_prob": lambda: 1.0,
        }
    return {}


def _role(world: WorldView, role: str) -> Getters:
    groups = {group.name for group in world._spec.groups}
    getters: dict[str, Callable[[], Any]] = {}
    if groups & ADVERSARIES:
        getters["adversary"] = lambda: role in ADVERSARIES
    if "leadadversary" in groups:
        getters["leader"] = lambda: role == "leadadversary"
    if "alice" in groups:
        getters["speaker"] = lambda: role == "alice"
    return getters


def _goals(world: WorldView, index: int, role: str) -> Getters:
    def landmark() -> Any:
        goals = world._game.memory("goal")
        return world.landmarks[int(goals[index] if goals.ndim else goals)]

    if world._spec.name in ("simple_adversary_v3", "simple_push_v3", "simple_crypto_v3"):
        return {"goal_a": landmark}
    if world._spec.name == "simple_reference_v3" or role == "speaker":
        return {"goal_a": lambda: world.agents[1 - index], "goal_b": landmark}
    return {}


def _prey(world: WorldView, role: str) -> Getters:
    """The curriculum slows simple_tag's good agents down."""
    if world._spec.name != "simple_tag_v3" or role != "agent":
        return {}
    if not world._game.params["curriculum"]:
        return {}

    prey: Any = next(body for body in world._spec.world.agents if body.name == role)

    def pace() -> float:
        return PREY_PACE[int(world._game.memory("stage"))]

    return {"max_speed": lambda: prey.max_speed * pace(), "accel": lambda: prey.accel * pace()}


def _carried(world: WorldView, index: int, role: str) -> Getters:
    if role not in ("collector", "deposit"):
        return {}
    collectors = sum(name.startswith("collector") for name in world._game.agents)

    def holding() -> int | None:
        kind = int(world._game.memory("holding")[index]) if role == "collector" else -1
        return None if kind < 0 else kind

    return {
        "collector": lambda: role == "collector",
        "holding": holding,
        "d_i": lambda: max(0, index - collectors),
    }


def _symbols(world: WorldView, role: str) -> Getters:
    """simple_crypto's colours are symbols: four numbers, not red, green and blue."""

    def symbol(field: str) -> Any:
        return np.eye(world.dim_c)[int(world._game.memory(field))]

    if role == "bob":
        return {"color": lambda: symbol("goal")}
    if role == "alice":
        return {"key": lambda: symbol("key")}
    return {}
