"""What environments share in which each agent is to reach a target of its own."""

from __future__ import annotations

from gpu_zoo.mpe import params as mpe
from gpu_zoo.spec import Field, Group, Param, Slice

PARAMS = {
    "N": Param(4, "number of agents", at="compile", low=1),
    **mpe.COMMON,
    "terminate_on_success": mpe.ON_SUCCESS,
}
# Agents for whom the targets are matched in memory: none up to MAX_SETS_OF of mpe/assign.cuh.
CONSTANTS = {"N_ROOM": "N if N > 6 else 0"}
SCRATCH = {
    "shared": Field("real", (), "everybody's reward"),
    "close": Field("u8", (), "whether every agent is at its target"),
    "price": Field("real", ("N_ROOM",), "price of each target while agents are matched to them"),
    "reach": Field("real", ("N_ROOM",), "length of the shortest path to each target"),
    "matched": Field("real", ("N_ROOM",), "each agent's clipped distance to its target"),
    "owner": Field("i32", ("N_ROOM",), "agent to whom each target is given"),
    "before": Field("i32", ("N_ROOM",), "target before each on the shortest path"),
    "settled": Field("u8", ("N_ROOM",), "whether the shortest path to a target is known"),
}
REWARD = (
    "minus the mean distance, clipped to 2, between agents and targets, matched so that the summed "
    "distance is least; everybody gets the same"
)
ENDS = "with terminate_on_success, once every agent is within 0.05 of its target"
NOTES = (
    "Rewards may differ from mpe2's in the last bits: its distances are from NumPy's `norm`, which "
    "rounds differently on different machines.",
)


def group(landmarks: int) -> Group:
    """The agents, who see this many landmarks."""
    return Group(
        "agent",
        "N",
        observation={
            "velocity": mpe.OWN_VELOCITY,
            "position": mpe.OWN_POSITION,
            "landmarks": Slice(2 * landmarks, "landmarks, relative (x, y) each"),
        },
        actions=mpe.ACTIONS,
    )
