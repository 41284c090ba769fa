"""What the classic control environments share."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_zoo.render import RENDER_MODE
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice

REFERENCE = "gymnasium 1.4.0"
GOAL_VELOCITY = Param(0.0, "speed to the right that the car must have at the goal")
FRESH = Field("i32", (), "whether no step was taken yet: the first one's numbers are float64")

POSITION = Slice(1, "position along the track", low=-1.2, high=0.6)
VELOCITY = Slice(1, "velocity", low=-0.07, high=0.07)
CAR = {
    "position": Field("real", (), "position along the track"),
    "velocity": Field("real", (), "distance moved in a step"),
}

NOTES = (
    "`max_cycles` is Gymnasium's `max_episode_steps`; on the last step an episode may be both "
    "terminated and truncated, as there.",
    "Left out: the options of `reset` that change where an episode starts.",
    "The episode is over with its termination. In Gymnasium one can step on.",
)
OUTSIDE = (
    "Actions outside the box are refused unless `validate_actions=False`; then they mean what they "
    "mean in Gymnasium.",
)


def classic_spec(
    name: str,
    *,
    summary: str,
    max_cycles: int,
    render: str,
    render_fps: int,
    params: Mapping[str, Param] | None = None,
    observation: Mapping[str, Slice],
    actions: Actions,
    state: Mapping[str, Field],
    reward: str,
    ends: str = "",
    notes: tuple[str, ...] = (),
) -> EnvSpec:
    """The spec of an environment with one agent; what all of them share is filled in.

    Args:
        name: our name, such as ``"cartpole_v1"``; also the kernel file's.
        summary: one sentence.
        max_cycles: the time limit that Gymnasium registers it with.
        render: the function in ``gpu_zoo.render.classic`` that draws it.
        render_fps: Gymnasium's.
        params: the constructor's other parameters.
        observation: the parts of the observation.
        actions: the action space.
        state: the fields of the state.
        reward: the reward in words.
        ends: when an episode terminates, in words.
        notes: differences from Gymnasium, beside those that all share, and oddities kept from it.
    """
    limit = Param(max_cycles, "steps after which the episode is truncated", low=1)
    version = name.rsplit("_", 1)[-1]
    return EnvSpec(
        id=f"classic/{name}",
        kernel=f"classic/{name}.cu",
        summary=summary,
        params={"max_cycles": limit, **(params or {}), "render_mode": RENDER_MODE},
        groups=(Group("agent", 1, observation, (actions,)),),
        state=state,
        reward=reward,
        ends=ends,
        timeout_wins=False,
        reference=REFERENCE,
        notes=(*NOTES, *(OUTSIDE if actions.box else ()), *notes),
        render=f"gpu_zoo.render.classic:{render}",
        render_fps=render_fps,
        history=(f"{version}: first version here; follows {REFERENCE}",),
    )
