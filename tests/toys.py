"""Small games with known answers, to test trainers with; their rules are in tests/baselines."""

from __future__ import annotations

from pathlib import Path

from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice

FOLDER = Path(__file__).parent / "baselines"
STAY_STEPS, AIM_STEPS = 6, 3  # of an episode

STAY_OR_GO = EnvSpec(
    id="toy/stay_or_go_v0",
    kernel=str(FOLDER / "stay_or_go.cu"),
    summary="Stay if it pays.",
    params={"max_cycles": Param(STAY_STEPS, "steps", low=1)},
    groups=(
        Group(
            "agent",
            2,
            {
                "mood": Slice(1, "1 or -1"),
                "time": Slice(1, "0 to 1"),
                "colour": Slice(3, "one-hot"),
            },
            (Actions(("leave", "colour"), choices=(2, 3)),),
        ),
    ),
    state={"mood": Field("i32", (2,), "1 or -1"), "colour": Field("i32", (2,), "0, 1 or 2")},
    leaving=True,
)
AIM = EnvSpec(
    id="toy/aim_v0",
    kernel=str(FOLDER / "aim.cu"),
    summary="Remember a target and hit it.",
    params={"max_cycles": Param(AIM_STEPS, "steps", low=1)},
    groups=(
        Group(
            "agent",
            2,
            {"target": Slice(1, "1 or -1 at first, then 0"), "one": Slice(1, "1")},
            (Actions(("aim",), box=(-2.0, 2.0)),),
        ),
    ),
    state={"target": Field("i32", (2,), "1 or -1")},
)
