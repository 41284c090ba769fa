"""An environment whose agents end one by one at known steps: what every adapter has to get right.

With the defaults ``agent_0`` terminates at step 5, ``agent_1`` at 8, and the time limit truncates
``agent_2`` at 10. ``MIXED`` ends everybody at once, ``agent_0`` by terminating and the others by
the time limit; in ``TERMINATED`` nobody is truncated.

The reward of agent i at step t is ``100 i + t``. It observes i, t, the number of the episode and
its last action; after its end all four are -1, which no trainer should ever be given to learn from.
Action 2 is allowed only where t + i is even, if ``MASKED``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice

STAGGERED: dict[str, Any] = {}
MIXED = {"first_end": 5, "second_end": 0, "max_cycles": 5}
TERMINATED = {"first_end": 3, "second_end": 4, "third_end": 6, "max_cycles": 50}
CASES = {"staggered": STAGGERED, "mixed": MIXED, "terminated": TERMINATED}

HAZARD = EnvSpec(
    id="test/hazard_v0",
    kernel=str(Path(__file__).parent / "wrappers" / "hazard.cu"),
    summary="End one by one.",
    params={
        "max_cycles": Param(10, "steps until the time limit", low=1),
        "first_end": Param(5, "step in which agent_0 terminates, 0: never", low=0),
        "second_end": Param(8, "the same of agent_1", low=0),
        "third_end": Param(0, "the same of agent_2", low=0),
    },
    groups=(
        Group(
            "agent",
            3,
            {
                "agent": Slice(1, "its number"),
                "time": Slice(1, "steps since the reset"),
                "episode": Slice(1, "counted from 1"),
                "action": Slice(1, "its last"),
            },
            (Actions(("none", "left", "right")),),
        ),
    ),
    state={
        "episode": Field("i32", (), "episodes begun"),
        "last_action": Field("i32", (3,), "of each agent"),
    },
    leaving=True,
    timeout_wins=False,
)
MASKED = replace(
    HAZARD, id="test/hazard_masked_v0", groups=(replace(HAZARD.groups[0], action_mask=True),)
)


def ends(params: dict[str, Any]) -> list[tuple[int, bool, bool]]:
    """By agent: the step in which it ends, and whether it is terminated and truncated then."""
    given = {name: param.default for name, param in HAZARD.params.items()} | params
    limit, result = given["max_cycles"], []
    for name in ("first_end", "second_end", "third_end"):
        end = given[name] or limit + 1
        result.append((min(end, limit), end <= limit, end >= limit))
    return result
