"""Simple world comm: tag with food to eat, forests to hide in, and a leader that sees through.

``env``, ``raw_env`` and ``parallel_env`` stand in for those of ``mpe2.simple_world_comm_v3``.
"""

from __future__ import annotations

from gpu_zoo.mpe import params as mpe
from gpu_zoo.mpe.world import Body, World, particle_spec
from gpu_zoo.spec import Actions, Field, Group, Param, Slice
from gpu_zoo.wrappers.pettingzoo import drop_in

DIM_C = 4
LANDMARKS = Slice(
    "2 * (num_obstacles + num_food + num_forests)",
    "obstacles, food, forests, relative (x, y) each",
)
OTHERS = Slice(
    "2 * (num_good + num_adversaries - 1)", "other agents, relative (x, y) each, 0 if hidden"
)
FORESTS = Slice("num_forests", "1 for a forest it is in, -1 for another")
# As mpe2 works it out: 0.65 would be another pixel.
LEADER = (0.95 - 0.3, 0.45 - 0.3, 0.45 - 0.3)

WORLD = World(
    agents=(
        Body("leadadversary", 1, color=LEADER, size=0.075, collide=True, accel=3.0,
             max_speed=1.0, silent=False),
        Body("adversary", "num_adversaries - 1", color=(0.95, 0.45, 0.45), size=0.075,
             collide=True, accel=3.0, max_speed=1.0),
        Body("agent", "num_good", color=(0.45, 0.95, 0.45), size=0.045, collide=True, accel=4.0,
             max_speed=1.3),
    ),
    landmarks=(
        Body("landmark %d", "num_obstacles", color=(0.25, 0.25, 0.25), size=0.2, collide=True),
        Body("food %d", "num_food", color=(0.15, 0.15, 0.65), size=0.03),
        Body("forest %d", "num_forests", color=(0.6, 0.9, 0.6), size=0.3),
    ),
    dim_c=DIM_C,
)  # fmt: skip


def _adversary(name: str, count: str | int, actions: tuple[Actions, Actions]) -> Group:
    return Group(
        name,
        count,
        observation={
            "velocity": mpe.OWN_VELOCITY,
            "position": mpe.OWN_POSITION,
            "landmarks": LANDMARKS,
            "others": OTHERS,
            "velocities": Slice("2 * num_good", "velocities of good agents, 0 if hidden"),
            "forests": FORESTS,
            "utterance": Slice(DIM_C, "what the leader said in the last step"),
        },
        actions=actions,
        info={"benchmark_data": Slice(1, "good agents the adversary touches")},
        info_value=mpe.as_int,
    )


SPEC = particle_spec(
    "simple_world_comm_v3",
    summary="Tag with food to eat, forests to hide in, and a leading adversary that sees through.",
    world=WORLD,
    params={
        "num_good": Param(2, "number of good agents", at="compile", low=1),
        "num_adversaries": Param(
            4, "number of adversaries, the leader included", at="compile", low=1
        ),
        "num_obstacles": Param(1, "number of obstacles", at="compile", low=0),
        "num_food": Param(2, "number of pieces of food", at="compile", low=1),
        "max_cycles": mpe.MAX_CYCLES,
        "num_forests": Param(2, "number of forests", at="compile", low=0),
        **{name: param for name, param in mpe.COMMON.items() if name != "max_cycles"},
    },
    groups=(
        _adversary("leadadversary", 1, mpe.actions(dim_c=DIM_C)),
        _adversary("adversary", "num_adversaries - 1", mpe.ACTIONS),
        Group(
            "agent",
            "num_good",
            observation={
                "velocity": mpe.OWN_VELOCITY,
                "position": mpe.OWN_POSITION,
                "landmarks": LANDMARKS,
                "others": OTHERS,
                "forests": FORESTS,
                "velocities": Slice(
                    "2 * (num_good - 1)", "velocities of the other good agents, 0 if hidden"
                ),
            },
            actions=mpe.ACTIONS,
            info={"benchmark_data": Slice(1, "always 0")},
            info_value=mpe.as_int,
        ),
    ),
    scratch={"hits": Field("i32", (WORLD.n_agents,), "adversaries that touch each good agent")},
    reward=(
        "good agents: -5 for every adversary that touches them, minus twice a cost of leaving the "
        "square, +2 for food they touch, -0.05 times the distance to the nearest food; "
        "adversaries: -0.1 times the distance to the nearest good agent, +5 for every touch "
        "between any adversary and any good agent"
    ),
    notes=(
        "As in mpe2 good agents have the forests before the velocities, adversaries the velocities "
        "before the forests (PettingZoo issue 1207).",
        "As in mpe2 a reset draws the places of food and forests twice; the second one counts.",
        "mpe2 also accepts `num_adversaries=0`, and then makes the first good agent the leader, "
        "and `num_good=0` or `num_food=0`, with which its rewards fail; here there is at least one "
        "of each.",
    ),
)

raw_env, env, parallel_env = drop_in(SPEC)
