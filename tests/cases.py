"""THE test matrix: one row an environment, and what of it is tested with which parameters.

A new environment needs a row here; the suite does not start without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

import gpu_zoo
from gpu_zoo.testing.builds import shapes_of
from gpu_zoo.warpdrive import catalyst_search_v0 as catalyst


@dataclass(frozen=True, eq=False)
class Case:
    """An environment with parameters."""

    id: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> gpu_zoo.EnvSpec:
        return gpu_zoo.spec(self.id)

    @property
    def random_start(self) -> bool:
        return ROWS[self.id].random_start(self.params)

    def __str__(self) -> str:
        shown = [f"{name}={value}" for name, value in self.params.items()]
        changed = ",".join(shown[:3] + ["..."] * (len(shown) > 3))
        return f"{self.id.rsplit('/', 1)[-1]}[{changed or 'default'}]"


@dataclass(frozen=True)
class Row:
    """What is tested of an environment.

    Attributes:
        reference: the module this environment follows, or Gymnasium's id.
        variants: parameters to test beside the defaults.
        built: those of them that are also built in all ways (reversed, threads, sanitizers, GPU),
            which takes a compilation each. Together they should reach every branch of the kernel.
        broken: (old, new) texts in the kernel file; the oracle tests must notice each change.
        ends_early: those in which random play must meet episodes that end before the time limit.
        large: parameters that take long to compile: tested with ``-m slow``.
        allow_stack: bytes of stack frame that ``check_nvrtc`` lets pass, with the reason beside it.
        random_start: whether a seed matters under these parameters.
    """

    reference: str
    variants: tuple[Mapping[str, Any], ...]
    built: tuple[Mapping[str, Any], ...]
    broken: tuple[tuple[str, str], ...] = ()
    ends_early: tuple[Mapping[str, Any], ...] = ()
    large: tuple[Mapping[str, Any], ...] = ()
    allow_stack: int = 0
    random_start: Callable[[Mapping[str, Any]], bool] = lambda params: True


SPREAD_BRANCHES = {
    "N": 3,
    "num_agent_neighbors": 1,
    "num_landmark_neighbors": 2,
    "continuous_actions": True,
    "benchmark_data": True,
    "terminate_on_success": True,
}
TAG_BRANCHES = {
    "num_good": 2,
    "num_adversaries": 2,
    "num_obstacles": 1,
    "num_agent_neighbors": 2,
    "num_landmark_neighbors": 1,
    "continuous_actions": True,
    "benchmark_data": True,
    "terminate_on_success": True,
}
ONE_COVERS = {"N": 1, "terminate_on_success": True}
ONE_CAUGHT = {"terminate_on_success": True, "curriculum": True, "curriculum_stage": 0}

# Small enough for many tags to fall in one step, and for runners to leave before the time is up.
TAG_CROWD = {
    "num_taggers": 3, "num_runners": 9, "grid_length": 3.0, "tagging_distance": 0.2,
    "use_full_observation": False, "num_other_agents_observed": 4, "skill_level_tagger": 1.5,
    "edge_hit_penalty": -0.5, "step_reward_for_runner": 0.25, "step_penalty_for_tagger": -0.125,
}  # fmt: skip
# As in WarpDrive's own configuration, but for the numbers of agents.
TAG_MANY = {
    "num_taggers": 10, "num_runners": 60, "grid_length": 20.0, "tagging_distance": 0.05,
    "use_full_observation": False, "num_other_agents_observed": 10,
}  # fmt: skip

# Many taggers are equally near here, and more of them than a warp has threads.
GRID_CROWD = {
    "num_taggers": 40, "grid_length": 12, "use_full_observation": False, "fixed_start": True,
}  # fmt: skip

GRID_STARTS = ("fixed_start", "starting_location_x")

# A single atom that starts at its goal's height may leave the slab, which is small here.
CATALYST_FLAT = {
    "nx": 3, "ny": 4, "nz": 5, "z_slab_lower": 1, "z_slab_upper": 3, "initial_state": (2, 3, 1),
    "final_state": (0, 1, 1),
}  # fmt: skip
CATALYST_ONE_LAYER = {**CATALYST_FLAT, "z_slab_upper": 2}
# Goals next to the starts, so that both are reached.
CATALYST_TWO = {
    "num_atoms": 2, "nx": 3, "ny": 3, "nz": 6, "z_slab_lower": 2, "z_slab_upper": 4,
    "ienergy": 2.5, "initial_state": (0, 0, 2, 1, 1, 3), "final_state": (0, 0, 3, 2, 1, 2),
}  # fmt: skip

# Alike for all particle environments: the other kind of actions, and what infos then hold.
OTHER_KIND = {"continuous_actions": True, "benchmark_data": True}
# More than 6 agents are matched to their targets by other code, and more than 8 take a block.
NINE_IN_PLACE = {**OTHER_KIND, "N": 9, "terminate_on_success": True}
ONE_IN_PLACE = {"N": 1, "terminate_on_success": True}
IN_PLACE = (
    ONE_IN_PLACE,
    {"N": 3, "continuous_actions": True, "max_cycles": 9},
    {"N": 7},
    {"benchmark_data": True, "terminate_on_success": True},
    NINE_IN_PLACE,
)

# fmt: off
ROWS: dict[str, Row] = {
    "classic/acrobot_v1": Row(
        reference="Acrobot-v1", variants=({"max_cycles": 7},), built=(),
        broken=(
            ("(k1 + real(2) * k2 + real(2) * k3 + k4)", "(k1 + real(2) * (k2 + k3) + k4)"),
            ("real(0.5) * real_square(speed1) * sine - phi2", "phi2"),
            ("height > 1", "height > real(1.2)"),
            ("angle > PI ? angle - 2 * PI", "angle > PI ? angle - PI"),
            ("s.fresh = 1;", "s.fresh = 0;"),
            ("zoo_single(rng_uniform(rng, -START, START))", "rng_uniform(rng, -START, START)"),
        ),
    ),
    "classic/cartpole_v1": Row(
        reference="CartPole-v1",
        variants=({"sutton_barto_reward": True}, {"max_cycles": 12}),
        built=(),
        broken=(
            ("POLE_MOMENT * theta_acc * cosine", "POLE_MOMENT * (theta_acc * cosine)"),
            ("real(4) / real(3)", "real(1.3333333333333335)"),
            ("MAX_X = real(2.4)", "MAX_X = real(2.3)"),
            ("? real(-1) : real(1)", "? real(-1) : real(0)"),
        ),
        ends_early=({},),
    ),
    "classic/mountain_car_continuous_v0": Row(
        reference="MountainCarContinuous-v0",
        variants=({"goal_velocity": 0.02}, {"max_cycles": 12}),
        built=(),
        broken=(
            ("e.s.fresh = 1;", "e.s.fresh = 0;"),
            ("T(throttle * (float)POWER - (float)pull)", "T(throttle * POWER - pull)"),
            ("hits_wall ? T(0)", "hits_wall ? velocity"),
            ("GOAL = 0.45", "GOAL = 0.46"),
        ),
    ),
    "classic/mountain_car_v0": Row(
        reference="MountainCar-v0",
        variants=({"goal_velocity": 0.02}, {"max_cycles": 12}),
        built=(),
        broken=(
            ("e.s.velocity + (real(e.action(0) - 1) * FORCE +",
             "(e.s.velocity + real(e.action(0) - 1) * FORCE) + ("),
            ("hits_wall ? real(0)", "hits_wall ? velocity"),
            ("GOAL = real(0.5)", "GOAL = real(0.51)"),
        ),
    ),
    "classic/pendulum_v1": Row(
        reference="Pendulum-v1", variants=({"g": 9.81}, {"max_cycles": 12}), built=(),
        broken=(
            ("0.001f * real_square(torque)", "real(0.001) * torque * torque"),
            ("2 * PI) - PI", "2 * PI) - real(3.1415926535897936)"),
            ("s.cost = cost_of(s, torque);", "s.cost = cost_of(s, e.control(0, 0) / 2);"),
            ("MAX_SPEED = 8", "MAX_SPEED = real(7.9)"),
        ),
    ),
    "mpe/collect_treasure_v1": Row(
        reference="mpe2.collect_treasure_v1",
        variants=(
            {"num_collectors": 1, "num_deposits": 1, "num_treasures": 1},
            {"num_collectors": 3, "num_deposits": 4, "num_treasures": 2, "max_cycles": 60},
            {**OTHER_KIND, "num_collectors": 2, "num_treasures": 9},
        ),
        built=(),
        broken=(
            ("rng_uniform(s.returns, 0, 1);", ""),
            ("if (delivered) s.holding[c]", "if (false) s.holding[c]"),
            ("slot = write(slot, vec(s.vel[j]));", "slot = write(slot, vec(s.vel[i]));"),
            ("x / num_collectors, y", "x / num_collectors, x"),
            ("there += e.s.alive[l]", "there += 1"),
        ),
        # A generator, eight agents and six treasures in doubles need more than 255 registers. That
        # is in reference numerics, which nobody trains in; fast numerics spill nothing.
        allow_stack=32,
    ),
    "mpe/simple_adversary_v3": Row(
        reference="mpe2.simple_adversary_v3",
        variants=(
            {"N": 1},
            {"N": 5, "num_agent_neighbors": 2, "num_landmark_neighbors": 7},
            {**OTHER_KIND, "N": 3, "num_landmark_neighbors": 1},
        ),
        built=(),
        broken=(
            ("nearest = zoo_min(nearest, e.t.goal_distance[g])", "nearest = nearest"),
            ("write(o, goal_position", "write(o, Vec{} - goal_position"),
            ("info += N_LANDMARKS;", "info += 1;"),
        ),
    ),
    "mpe/simple_crypto_v3": Row(
        reference="mpe2.simple_crypto_v3", variants=(OTHER_KIND, {"max_cycles": 3}), built=(),
        broken=(
            ("e.s.key = rng", "e.s.key = 1 - rng"),
            ("miss(e.s, EVE) - miss(e.s, BOB)", "miss(e.s, EVE) + miss(e.s, BOB)"),
            ("info[DIM_C + k] = R(k == e.s.goal)", "info[DIM_C + k] = R(k == e.s.key)"),
        ),
    ),
    "mpe/simple_push_v3": Row(
        reference="mpe2.simple_push_v3", variants=(OTHER_KIND, {"max_cycles": 3}), built=(),
        broken=(
            ("s.goal + 1, 0.75f", "s.goal, 0.75f"),
            ("goal_distance(s, GOOD, s.goal) - goal", "-goal"),
        ),
    ),
    "mpe/simple_reference_v3": Row(
        reference="mpe2.simple_reference_v3",
        variants=({"local_ratio": 0.0}, {**OTHER_KIND, "local_ratio": 1.0}),
        built=(),
        broken=(
            ("write_one_hot(o, COLORS, e.s.goal[i]", "write_one_hot(o, COLORS, e.s.goal[other(i)]"),
            ("write_utterance(o, e.s, other(i))", "write_utterance(o, e.s, i)"),
            ("- e.t.miss[i] * e.p.local_ratio", "- e.t.miss[other(i)] * e.p.local_ratio"),
        ),
    ),
    "mpe/simple_speaker_listener_v4": Row(
        reference="mpe2.simple_speaker_listener_v4",
        variants=(OTHER_KIND, {"max_cycles": 3}),
        built=(OTHER_KIND,),
        broken=(
            ("e.s.goal, 0.65f", "1, 0.65f"),
            ("return -squared(vec(s.pos[LISTENER])", "return -squared(vec(s.pos[SPEAKER])"),
            ("info[0] = score(e.s)", "info[0] = -score(e.s)"),
        ),
    ),
    "mpe/simple_v3": Row(
        reference="mpe2.simple_v3", variants=(OTHER_KIND, {"max_cycles": 3}), built=(),
        broken=(
            ("e.reward(i) = -squared(", "e.reward(i) = R(-0.99) * squared("),
            ("scatter_landmarks(e, 1)", "scatter_landmarks(e, R(0.9))"),
        ),
    ),
    "mpe/simple_world_comm_v3": Row(
        reference="mpe2.simple_world_comm_v3",
        variants=(
            {"num_good": 1, "num_adversaries": 1, "num_obstacles": 0, "num_food": 1,
             "num_forests": 0},
            {"num_good": 3, "num_adversaries": 2, "num_obstacles": 2, "num_forests": 3},
            {**OTHER_KIND, "num_adversaries": 2, "num_food": 3, "num_forests": 1},
        ),
        built=(),
        broken=(
            ("scatter_landmarks(e, R(0.9), FOOD);", ""),
            ("together || !hidden || i == LEADER", "together || !hidden"),
            ("touches_landmark(s, i, l) ? R(2) : 0", "touches_landmark(s, i, l) ? R(1) : 0"),
            ("a < e.t.hits[g] ? R(5) : 0", "a < e.t.hits[g] ? R(4) : 0"),
            ("- 2 * bound(s.pos[i][1])", "- bound(s.pos[i][1])"),
        ),
    ),
    "mpe/simple_formation_v1": Row(
        reference="mpe2.simple_formation_v1",
        variants=IN_PLACE,
        built=(NINE_IN_PLACE,),
        broken=(
            ("scatter_landmarks(e, R(0.5))", "scatter_landmarks(e, 1)"),
            ("angle < 0 ? angle + TURN : angle", "angle"),
            ("start = zoo_min(start", "start = zoo_max(start"),
            ("RADIUS * real_sin(angle)", "RADIUS * real_sin(angle + R(1e-12))"),
        ),
        ends_early=(ONE_IN_PLACE,),
        large=({"N": 6}, {"N": 8}),
    ),
    "mpe/simple_line_v1": Row(
        reference="mpe2.simple_line_v1",
        variants=IN_PLACE,
        built=(NINE_IN_PLACE,),
        broken=(
            ("scatter_landmarks(e, R(0.25), 0, 1)", "scatter_landmarks(e, R(0.26), 0, 1)"),
            ("angle += FIVE_DEGREES", "angle -= FIVE_DEGREES"),
            ("k * (LENGTH / (N_AGENTS - 1))", "k * (LENGTH / N_AGENTS)"),
            ("&& zoo_abs(to[1]) < 1", ""),
        ),
        ends_early=(ONE_IN_PLACE,),
        large=({"N": 6}, {"N": 8}),
    ),
    "mpe/simple_spread_v3": Row(
        reference="mpe2.simple_spread_v3",
        variants=(
            {"N": 5, "local_ratio": 0.0},
            {"continuous_actions": True},
            {"num_agent_neighbors": 5, "num_landmark_neighbors": 1},
            {"curriculum": True, "curriculum_stage": 1, "max_cycles": 10},
            ONE_COVERS,
            {"benchmark_data": True, "curriculum": True},
            SPREAD_BRANCHES,
        ),
        built=(SPREAD_BRANCHES,),
        broken=(
            ("covered += e.t.cover[l] < COVER_RADIUS", "covered += 1"),
            ("penalty ? -R(", "penalty ? R("),
        ),
        ends_early=(ONE_COVERS,),
        large=({"N": 8},),
    ),
    "mpe/simple_tag_v3": Row(
        reference="mpe2.simple_tag_v3",
        variants=(
            {"num_good": 2, "num_adversaries": 4, "num_obstacles": 0},
            {"num_good": 0, "num_adversaries": 2},
            {"num_good": 2, "num_adversaries": 0, "num_obstacles": 1},
            {"continuous_actions": True, "max_cycles": 7},
            {"num_agent_neighbors": 1, "num_landmark_neighbors": 3},
            {"curriculum": True, "curriculum_stage": 1, "benchmark_data": True},
            ONE_CAUGHT,
            TAG_BRANCHES,
        ),
        built=(TAG_BRANCHES,),
        broken=(
            ("scatter_landmarks(e, R(0.9))", "scatter_landmarks(e, 1)"),
            ("R(10 * hits)", "R(10 * e.t.hits[num_adversaries]) + 1"),
        ),
        ends_early=(ONE_CAUGHT, TAG_BRANCHES),
        large=({"num_good": 3, "num_adversaries": 6, "num_obstacles": 3},),
    ),
    "warpdrive/catalyst_search_v0": Row(
        reference="oracle.warpdrive_rules.catalyst_search",
        variants=(
            CATALYST_FLAT,
            CATALYST_TWO,
            {**CATALYST_ONE_LAYER, "terminate_reward": 3.0},
            {"z_slab_lower": 0, "z_slab_upper": 16, "ienergy": 4.0, "min_reward": -0.5},
            {"nx": 1, "ny": 2, "z_slab_upper": 16, "initial_state": (0, 0, 15),
             "final_state": (0, 1, 4), "max_denergy": 7.0},
            {**catalyst.CONFIGS["diffusion3d"], "ienergy": 1.0},
            {**catalyst.CONFIGS["two_atom_diffusion"], "ienergy": 2.0},
        ),
        built=(CATALYST_FLAT, CATALYST_TWO),
        broken=(
            ("move % 2 == 0 ? 1 : -1", "move % 2 == 0 ? -1 : 1"),
            ("to < 0 ? to + cells(k)", "to < 0 ? 0"),
            ("MAY_LEAVE | !outside", "!outside"),
            ("(moved[k] >= z_slab_upper)", "(moved[k] > z_slab_upper)"),
            ("- (up ? z_slab_lower", "- (up ? 1 + z_slab_lower"),
            ("there &= ", "there |= "),
            ("p.min_reward), (real)0)", "p.min_reward), (real)1)"),
            ("distance(start + k, goal + k)", "distance(start, goal)"),
        ),
        ends_early=(CATALYST_TWO, CATALYST_ONE_LAYER),
        random_start=lambda params: False,
    ),
    "warpdrive/tag_continuous_v0": Row(
        reference="oracle.warpdrive_rules.tag_continuous",
        variants=(
            TAG_CROWD,
            {**TAG_CROWD, "num_other_agents_observed": 12, "episode_length": 9},
            {**TAG_CROWD, "use_full_observation": True, "runner_exits_game_after_tagged": False},
            {"num_acceleration_levels": 0, "num_turn_levels": 1, "min_turn": 1.0},
            {**TAG_CROWD, "num_runners": 21, "num_other_agents_observed": 20},
        ),
        built=(TAG_CROWD,),
        broken=(
            ("s.speed[i] + wanted", "s.speed[i] + pushes[e.action(i, 0)]"),
            ("speed > 0 && speed < limit ? wanted : 0", "wanted"),
            ("s.at_wall[i] = x != inside_x ||", "s.at_wall[i] = x < 0 ||"),
            ("s.at_wall[i] = 0;\n    s.seen[i] = 0;", "s.at_wall[i] = 0;"),
            ("if (one < best) best = one;", "best = one;"),
            ("tag < e.t.tags[i]", "tag < (e.t.tags[i] > 0)"),
            ("if (!out && e.time", "if (e.time"),
            ("bool out = e.t.left == 0;", "bool out = false;"),
            ("last = best.found[AT_ONCE - 1];", "last = best.found[0];"),
        ),
        ends_early=(TAG_CROWD,),
        large=(TAG_MANY,),
    ),
    "warpdrive/tag_gridworld_v0": Row(
        reference="oracle.warpdrive_rules.tag_gridworld",
        variants=(
            {"num_taggers": 4, "use_full_observation": False},
            {"num_taggers": 5, "fixed_start": True, "grid_length": 5},
            {"num_taggers": 1, "grid_length": 2, "wall_hit_penalty": 0.5,
             "starting_location_x": (2, 0), "starting_location_y": (0, 1)},
            GRID_CROWD,
        ),
        built=(GRID_CROWD, {"num_taggers": 4, "use_full_observation": False}),
        broken=(
            ("zoo_min(zoo_max(x, 0), e.p.grid_length)", "zoo_min(zoo_max(x, 0), 9)"),
            ("(action == 3) - (action == 4)", "(action == 4) - (action == 3)"),
            ("(x != s.x[i]) | (y", "(x != s.x[i]) & (y"),
            ("tagged |= square == 0;", "tagged = square == 0;"),
            ("zoo_min(nearest, (u64)square << 32 | (u32)i)",
             "nearest >> 32 < square ? nearest : (u64)square << 32 | (u32)i"),
            ("? -p.tag_penalty_for_runner :", "? p.tag_penalty_for_runner :"),
            ("o[3 * N_AGENTS + k] = k == i", "o[3 * N_AGENTS + k] = k != i"),
        ),
        ends_early=({}, GRID_CROWD),
        random_start=lambda params: params.keys().isdisjoint(GRID_STARTS),
        large=({"num_taggers": 999, "grid_length": 100, "use_full_observation": False},),
    ),
}

# fmt: on
if set(ROWS) != set(gpu_zoo.list_ids()):
    raise AssertionError(
        f"tests/cases.py: no row for {sorted(set(gpu_zoo.list_ids()) - set(ROWS))}, "
        f"a row but no environment for {sorted(set(ROWS) - set(gpu_zoo.list_ids()))}"
    )

TAG_ID = "warpdrive/tag_continuous_v0"
IDS = sorted(ROWS)
DEFAULTS = [Case(env_id) for env_id in IDS]
VARIANTS = [Case(env_id, params) for env_id in IDS for params in ROWS[env_id].variants]
BUILT = [Case(env_id, params) for env_id in IDS for params in ({}, *ROWS[env_id].built)]
ENDS_EARLY = [Case(env_id, params) for env_id in IDS for params in ROWS[env_id].ends_early]
LARGE = [Case(env_id, params) for env_id in IDS for params in ROWS[env_id].large]


# One of each family; what the others may do differently is tested with ``-m slow``.
FEW = [c for c in DEFAULTS if c.id in ("classic/cartpole_v1", "mpe/simple_tag_v3", TAG_ID)]
OTHERS = [c for c in DEFAULTS if c not in FEW]


def over_broken(ids: list[str]) -> pytest.MarkDecorator:
    """Parametrise ``env_id``, ``old`` and ``new``: changes of kernels that oracles must notice.

    Each takes a compilation: all but the first of an environment run with ``-m slow`` only.
    """
    chosen = [
        pytest.param(
            env_id, *edit, id=f"{env_id.split('/')[1]}-{number}",
            marks=[pytest.mark.slow] if number else [],
        )
        for env_id in ids
        for number, edit in enumerate(ROWS[env_id].broken)
    ]  # fmt: skip
    return pytest.mark.parametrize(("env_id", "old", "new"), chosen)


def over(*cases: list[Case], slow: list[Case] | None = None) -> pytest.MarkDecorator:
    """Parametrise a test's argument ``case``; the ``slow`` ones run with ``-m slow`` only."""
    chosen = [pytest.param(case, id=str(case)) for group in cases for case in group]
    chosen += [pytest.param(case, id=str(case), marks=pytest.mark.slow) for case in slow or ()]
    return pytest.mark.parametrize("case", chosen)


def over_shapes(*cases: list[Case]) -> pytest.MarkDecorator:
    """Parametrise a test's arguments ``case`` and ``shape``: all shapes that a case is made for."""
    chosen = [
        pytest.param(case, shape, id=f"{case}-{shape}")
        for group in cases
        for case in group
        for shape in shapes_of(case.spec)
    ]
    return pytest.mark.parametrize(("case", "shape"), chosen)
