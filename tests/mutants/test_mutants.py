"""The checks are checked: each must reject the environments that are broken in its own way."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from mutants.mutate import (
    ENTRY,
    GRID,
    SPREAD,
    TAG,
    TEAM,
    TILE,
    WORLD,
    Mutant,
    mutated_kernels,
)

import gpu_zoo
from gpu_zoo import compile as compiler
from gpu_zoo.prelude import Features
from gpu_zoo.spec import EnvSpec, Slice
from gpu_zoo.testing import (
    CHECKS,
    CheckFailed,
    CheckSkipped,
    check_bounds,
    check_builds,
    check_contract,
    check_determinism,
    check_env,
    check_nvrtc,
    check_races,
)
from gpu_zoo.vector import VectorEnv

CONTRACT = {"steps": 80}
BLOCK = {"shapes": ("block",)}
LANE = {"shapes": ("lane",)}
REVERSED = {"numerics": ("fast",), "builds": ("reversed",), "shapes": ("lane",)}
SHAPES = {"numerics": ("fast",), "builds": ()}
UBSAN = {"shapes": ("lane",), "builds": ("ubsan",)}
ASAN = {"shapes": ("lane",), "builds": ("asan",)}
GPU = {"numerics": ("fast",), "architectures": ("sm_90",)}
TAG_ENV: dict[str, Any] = {
    "env": "warpdrive/tag_continuous_v0",
    "params": {
        "num_taggers": 3, "num_runners": 9, "grid_length": 3.0, "tagging_distance": 0.2,
        "use_full_observation": False, "num_other_agents_observed": 4,
    },
}  # fmt: skip

MUTANTS = [
    # The contract ------------------------------------------------------------------------------
    Mutant(
        "the observation after a reset is the old one",
        check_contract,
        ((ENTRY, "    show(e, here);", "    if (!fresh) show(e, here);"),
         (TILE, "    observe(e, io.observations);",
          "    if (!fresh) observe(e, io.observations);")),
        "observations/agent",
        CONTRACT,
    ),
    Mutant(
        "an entry of the observation is never written",
        check_contract,
        ((SPREAD, "write_zeros(o, DIM_C * N_OTHERS_SEEN);", ""),),
        "nan, expected a finite number",
        CONTRACT,
    ),
    Mutant(
        "an entry of the observation is infinite",
        check_contract,
        ((WORLD, "o = write(o, vec(s.vel[i]));",
          "o = write(o, Vec{s.vel[i][0] > R(0.4) ? 1 / (s.vel[i][0] - s.vel[i][0]) : 0, 0});"),),
        "inf, expected a finite number",
        CONTRACT,
    ),
    Mutant(
        "a reward is NaN",
        check_contract,
        ((SPREAD, "const real own = penalty ?",
          "const real own = collisions(s, i) ? zoo_sqrt(shared) : penalty ?"),),
        "nan, expected a finite number",
        CONTRACT,
    ),
    Mutant(
        "terminated and truncated are swapped",
        check_contract,
        ((ENTRY, "io.terminations[g][at] = e.outcome.terminated[i];",
          "io.terminations[g][at] = e.outcome.truncated[i];"),
         (ENTRY, "io.truncations[g][at] = e.outcome.truncated[i];",
          "io.truncations[g][at] = e.outcome.terminated[i];")),
        "truncations/agent[0]: False, expected true at max_cycles=25",
        CONTRACT,
    ),
    Mutant(
        "a reward comes one step late",
        check_contract,
        ((ENTRY, "    count_returns(e, done);", """
    static real late[64][N_AGENTS];
    for_each(i, N_AGENTS) {
        const real now = e.outcome.reward[i];
        e.outcome.reward[i] = late[e.env % 64][i];
        late[e.env % 64][i] = now;
    }
    count_returns(e, done);"""),),
        "rewards/agent",
        CONTRACT,
    ),
    Mutant(
        "the published reward is not the one that is counted",
        check_contract,
        ((ENTRY, "e.io.rewards[g][at] = e.outcome.reward[i];",
          "e.io.rewards[g][at] = e.outcome.reward[i] * R(1.0001);"),),
        "episode_returns/agent[0]",
        CONTRACT,
    ),
    Mutant(
        "an episode is one step too long",
        check_contract,
        ((ENTRY, "timeout = e.time >= time_limit(e.p);", "timeout = e.time > time_limit(e.p);"),),
        "expected true at max_cycles=25 steps and nowhere else",
        CONTRACT,
    ),
    Mutant(
        "the final observation is the next episode's",
        check_contract,
        ((ENTRY, "    observe(e, e.io.final_observations);",
          "    begin_episode(e);\n    observe(e, e.io.final_observations);"),),
        "not the finished episode's last observation",
        CONTRACT,
    ),
    Mutant(
        "no autoreset",
        check_contract,
        ((ENTRY, "if (!done || e.io.autoreset != SAME_STEP) return false;", "return false;"),),
        "SameStep: environment 0, step 25, ",
        CONTRACT,
    ),
    Mutant(
        "NEXT_STEP's reset step leaves rewards and flags as they were",
        check_contract,
        ((ENTRY, "if (e.io.autoreset != DISABLED) return clear(e);",
          "if (e.io.autoreset != DISABLED) return !(e.io.done[e.env] = 0);"),),
        "NextStep: environment 0, step 26, ",
        CONTRACT,
    ),
    Mutant(
        "NEXT_STEP's reset step still acts",
        check_contract,
        ((TILE, "    if (fresh) begin_episode(e);", "    if (fresh) begin_episode(e);\n"
          "    if (fresh && io.autoreset != SAME_STEP) env_step(e);"),),
        "not as after a reset by hand",
        CONTRACT,
    ),
    Mutant(
        "a finished environment in DISABLED mode moves on",
        check_contract,
        ((ENTRY, "if (e.io.autoreset != DISABLED) return clear(e);",
          "if (e.io.autoreset == DISABLED) return e.time += 1, conclude(e);\n"
          "    return clear(e);"),),
        "a finished environment in DISABLED mode was stepped",
        CONTRACT,
    ),
    Mutant(
        "the reset mask is ignored",
        check_contract,
        ((ENTRY, " && (operation != RESET || io.reset_mask[env]);", ";"),),
        "changed by a reset whose mask is false here",
        CONTRACT,
    ),
    Mutant(
        "the length of an episode is off by one",
        check_contract,
        ((ENTRY, "e.io.last_lengths[e.env] = e.time;", "e.io.last_lengths[e.env] = e.time - 1;"),),
        "last_lengths: 24, expected 25",
        CONTRACT,
    ),
    Mutant(
        "returns run on into the next episode",
        check_contract,
        ((ENTRY, "        e.io.episode_returns[g][e.row(i, 1)] = 0;\n", ""),),
        "episode_returns/agent[0]",
        CONTRACT,
    ),
    Mutant(
        "who has left earns on",
        check_contract,
        ((ENTRY, "        e.outcome.reward[i] = 0;\n        e.outcome.terminated[i] = 1;",
          "        e.outcome.terminated[i] = 1;"),
         (TAG, "        e.reward(i) = reward;", "        e.reward(i) = reward + 1;")),
        "expected 0 after the end",
        CONTRACT,
        **TAG_ENV,
    ),
    Mutant(
        "who has left is back in the next step",
        check_contract,
        ((ENTRY, "e.io.active[g][e.row(i, 1)] = !e.outcome.terminated[i];", "(void)g;"),),
        "active/runner",
        CONTRACT,
        **TAG_ENV,
    ),
    Mutant(
        "observing changes the state",
        check_contract,
        ((SPREAD, "    o = write_self(o, e.s, i);", "    e.s.vel[i][0] += R(1e-3);\n"
          "    o = write_self(o, e.s, i);"),),
        "stale: not what is observed now",
        CONTRACT,
    ),
    # Determinism -------------------------------------------------------------------------------
    Mutant(
        "the seed is ignored",
        check_determinism,
        ((WORLD, "    p[0] = rng_uniform(rng, -bound, bound);",
          "    rng.seed = 0;\n    p[0] = rng_uniform(rng, -bound, bound);"),),
        "another seed: environment 0, step 2 on, observations: the same in the first episode",
    ),
    Mutant(
        "the seed is ignored after the first episode",
        check_determinism,
        ((WORLD, "    p[0] = rng_uniform(rng, -bound, bound);",
          "    if (rng.episode > 1) rng.seed = 0;\n    p[0] = rng_uniform(rng, -bound, bound);"),),
        "another seed: environment 0, step 25 on, observations: the same in later episodes",
    ),
    Mutant(
        "random from step 2 on",
        check_determinism,
        ((SPREAD, "    world_step(e);\n", "    static int calls = 0;\n"
          "    if (e.io.steps[e.env] > 0) e.s.vel[0][0] += R(1e-3) * R(++calls % 7);\n"
          "    world_step(e);\n"),),
        "played twice with one seed: environment 0, step 2, observations/agent[0][0]",
    ),
    Mutant(
        "velocities outlive the reset",
        check_determinism,
        ((WORLD, "        s.vel[i][0] = s.vel[i][1] = 0;\n", ""),),
        "reset after a play: environment 0, step 0, observations/agent[0][0]",
    ),
    Mutant(
        "randomness depends on the size of the batch",
        check_determinism,
        ((ENTRY, "e.rng.episode += 1;", "e.rng.episode += e.io.num_envs;"),),
        "in a batch of 1: environment 0, step 0, ",
    ),
    Mutant(
        "randomness depends on the place in the batch",
        check_determinism,
        ((ENTRY, "e.rng.episode += 1;", "e.rng.episode += 1 + e.env;"),),
        "alone, compared with environment 1 of 64: environment 0, step 0, ",
    ),
    Mutant(
        "a thread leaves out the last environment of its part",
        check_determinism,
        ((ENTRY, "const Io io = *shared;", "const Io io = *shared; end -= begin > 0;"),),
        "2 threads against 1: environment ",
    ),
    # Builds ------------------------------------------------------------------------------------
    Mutant(
        "an environment in a tile gets its neighbour's actions",
        check_builds,
        ((TILE, "memcpy(&stage.actions[start + k][lane],",
          "memcpy(&stage.actions[start + k][lane ^ 1],"),),
        "lane shape, reversed",
        REVERSED,
    ),
    Mutant(
        "an agent writes its neighbour's reward",
        check_builds,
        ((SPREAD, "        e.terminated(i) =", "        if (i > 0) e.reward(i - 1) = e.reward(i);\n"
          "        e.terminated(i) ="),),
        "lane shape, reversed, 1 threads a block, against plain: environment 2, step 1, rewards",
        REVERSED,
    ),
    Mutant(
        "an environment writes its neighbour's reward",
        check_builds,
        ((ENTRY, "    if (!done || e.io.autoreset",
          "    if (e.env > 0) e.io.rewards[0][e.row(0, 1) - 1] = e.outcome.reward[0];\n"
          "    if (!done || e.io.autoreset"),),
        "lane shape, reversed, 1 threads a block, against plain: environment 0, step 1, rewards",
        REVERSED,
    ),
    Mutant(
        "a field said to change only at resets changes in a step",
        check_builds,
        ((SPREAD, "    world_step(e);\n", "    world_step(e);\n"
          "    if (is_first_thread()) e.s.landmark[0][0] += R(0.01);\n    sync_env();\n"),),
        "block shape, plain, 1 threads a block, against plain: environment 0, step 1, ",
        SHAPES,
    ),
    Mutant(
        "a sum grows with the threads of the block",
        check_builds,
        ((SPREAD, "        e.reward(i) = shared *", "        shared -= R(zoo_stride);\n"
          "        e.reward(i) = shared *"),),
        "block shape, emulated, 2 threads a block, against plain: environment 0, step 1, rewards",
        {**SHAPES, "builds": ("emulated",), "shapes": ("block",), "block_sizes": (1, 2)},
    ),
    Mutant(
        "of two that are equally far the registers keep the wrong one",
        check_builds,
        ((GRID, "found[k] = one < before ? before : one < found[k] ? one : found[k];",
          "found[k] = one < before ? before : found[k];"),),
        "block shape, reversed, 1 threads a block, against plain: environment",
        {"numerics": ("fast",), "builds": ("reversed",), "shapes": ("block",)},
        **TAG_ENV,
    ),
    # Races -------------------------------------------------------------------------------------
    Mutant(
        "no barrier between forces and motion",
        check_races,
        ((WORLD, "    sync_env();\n    for_each(i, N_AGENTS) {\n        if (agent_movable(i)) move",
          "    for_each(i, N_AGENTS) {\n        if (agent_movable(i)) move"),),
        "WARNING: ThreadSanitizer: data race",
        BLOCK,
    ),
    Mutant(
        "no barrier between distances and rewards",
        check_races,
        ((SPREAD, "        e.t.cover[l] = zoo_sqrt(nearest);\n    }\n    sync_env();",
          "        e.t.cover[l] = zoo_sqrt(nearest);\n    }"),),
        "at mpe/simple_spread_v3.cu:",
        BLOCK,
    ),
    Mutant(
        "no barrier before all agents' flags are read",
        check_races,
        ((ENTRY, "    sync_env();\n    return !e.outcome.going;", "    return !e.outcome.going;"),),
        "zoo/entry.cuh:",
        BLOCK,
    ),
    Mutant(
        "an environment reads its neighbour's reward",
        check_races,
        ((ENTRY, "    if (!done || e.io.autoreset",
          "    if (e.env > 0) e.io.last_lengths[e.env] += e.io.rewards[0][e.row(0, 1) - 1] > 0;\n"
          "    if (!done || e.io.autoreset"),),
        "at zoo/entry.cuh:",
        LANE,
    ),
    Mutant(
        "no barrier between tags and rewards",
        check_races,
        ((TAG, "    sync_env();\n\n    for_each(i, N_AGENTS) {\n        real reward",
          "    for_each(i, N_AGENTS) {\n        real reward"),),
        "at warpdrive/tag_continuous_v0.cu:",
        BLOCK,
        **TAG_ENV,
    ),
    Mutant(
        "threads count without waiting for each other",
        check_races,
        ((TEAM, "return __atomic_fetch_add(&sum, more, __ATOMIC_RELAXED);",
          "return (sum += more) - more;"),),
        "zoo/team.cuh:",
        BLOCK,
        **TAG_ENV,
    ),
    Mutant(
        "two environments of a block share a workspace",
        check_races,
        ((ENTRY, "block_workspaces[team_of_block()]", "block_workspaces[0 * team_of_block()]"),),
        "WARNING: ThreadSanitizer: data race",
        BLOCK,
        **TAG_ENV,
    ),
    Mutant(
        "the blocks of an environment do not wait for each other",
        check_races,
        ((TEAM, "while ((int)(arrived() - last) < 0) {}", "(void)last;"),),
        "WARNING: ThreadSanitizer: data race",
        {"shapes": ("spread",)},
        **TAG_ENV,
    ),
    Mutant(
        "no barrier around the start that is drawn from a pool",
        check_races,
        ((ENTRY, "    sync_env();\n    copy_start(e.s, e.io.pool[e.outcome.start_row], "
          "e.io.pool_fields);\n    sync_env();",
          "    copy_start(e.s, e.io.pool[e.outcome.start_row], e.io.pool_fields);"),),
        "WARNING: ThreadSanitizer: data race",
        {**BLOCK, "features": Features(pool=True)},
    ),
    Mutant(
        "a barrier that only some threads reach",
        check_races,
        ((SPREAD, "    world_step(e);\n",
          "    world_step(e);\n    if (zoo_first == 0) sync_env();\n"),),
        "check_races",  # a race, or threads that wait for ever: which comes first is chance
        {**BLOCK, "timeout": 20},
        slow=True,
    ),
    Mutant(
        "a step without end",
        check_races,
        ((SPREAD, "    world_step(e);\n",
          "    world_step(e);\n    for (volatile int go = 1; go;) {}\n"),),
        "not done in 10 s; is there a sync_env() some threads miss?",
        {**BLOCK, "timeout": 10},
        slow=True,
    ),
    # Bounds ------------------------------------------------------------------------------------
    Mutant(
        "index N in an array of the state",
        check_bounds,
        ((SPREAD, "        if (j != i && agents_touch(s, i, j)) count += 1;",
          "        if (j != i && s.vel[j + 1][0] > 0) count += 1;"),),
        "index 3 out of bounds for type",
        UBSAN,
    ),
    Mutant(
        "index N in an array of the state, read through a pointer",
        check_bounds,
        ((SPREAD, "        if (j != i && agents_touch(s, i, j)) count += 1;",
          "        if (j != i && agents_touch(s, i, j + 1)) count += 1;"),),
        "ERROR: AddressSanitizer: use-after-poison",
        ASAN,
    ),
    Mutant(
        "index N in an array of the scratch memory",
        check_bounds,
        ((SPREAD, "        e.t.cover[l] = zoo_sqrt(nearest);",
          "        (&e.t.cover[0])[l + 1] = zoo_sqrt(nearest);"),),
        "ERROR: AddressSanitizer: use-after-poison",
        ASAN,
    ),
    Mutant(
        "a reward for agent N",
        check_bounds,
        ((SPREAD, "        e.terminated(i) =", "        e.reward(i + 1) = 0;\n"
          "        e.terminated(i) ="),),
        "ERROR: AddressSanitizer: use-after-poison",
        ASAN,
    ),
    Mutant(
        "an observation one entry too long",
        check_bounds,
        ((SPREAD, "write_zeros(o, DIM_C * N_OTHERS_SEEN);",
          "write_zeros(o, DIM_C * N_OTHERS_SEEN + 1);"),),
        "ERROR: AddressSanitizer: heap-buffer-overflow",
        ASAN,
    ),
    # GPU compilation ---------------------------------------------------------------------------
    Mutant(
        "an error that only NVRTC sees",
        check_nvrtc,
        ((SPREAD, "constexpr real COVER_RADIUS", "#if ZOO_GPU\n#include <no_such_header>\n#endif\n"
          "constexpr real COVER_RADIUS"),),
        "no_such_header",
        GPU,
    ),
    Mutant(
        "an array indexed by an action lies in local memory",
        check_nvrtc,
        ((SPREAD, "    world_step(e);\n", "    world_step(e);\n    real seen[8];\n"
          "    for (int k = 0; k < 8; ++k) seen[(k + e.action(0)) % 8] = e.s.pos[0][0] * R(k);\n"
          "    e.s.vel[0][0] = seen[e.action(N_AGENTS - 1) % 8];\n"),),
        "has a stack frame of",
        GPU,
    ),
]  # fmt: skip
SPEC = gpu_zoo.spec("mpe/simple_spread_v3")


def run(mutant: Mutant) -> None:
    _skip_or(mutant.check, gpu_zoo.spec(mutant.env), mutant.params, **mutant.settings)


def _skip_or(check: Any, *args: Any, **settings: Any) -> None:
    try:
        check(*args, **settings)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    "mutant",
    list({mutant.control: mutant for mutant in MUTANTS if not mutant.slow}.values()),
    ids=lambda mutant: mutant.control,
)
def test_the_real_environment_passes(mutant: Mutant) -> None:
    run(mutant)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, id=m.name, marks=[pytest.mark.slow] if m.slow else []) for m in MUTANTS],
)
def test_the_broken_one_is_rejected(
    mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "KERNELS", mutated_kernels(mutant, tmp_path))
    with pytest.raises(CheckFailed) as failure:
        run(mutant)
    message = str(failure.value)
    assert message.startswith(mutant.check.__name__)
    assert mutant.says in message
    assert "\n" not in message


def _longer_observation() -> EnvSpec:
    group = SPEC.groups[0]
    longer = {**group.observation, "more": Slice(1, "what the kernel does not know of")}
    return dataclasses.replace(SPEC, groups=(dataclasses.replace(group, observation=longer),))


def _velocities_only_at_resets() -> EnvSpec:
    velocities = dataclasses.replace(SPEC.state["vel"], at_reset=True)
    return dataclasses.replace(SPEC, state={**SPEC.state, "vel": velocities})


def _too_few_landmarks() -> EnvSpec:
    fewer = dataclasses.replace(SPEC.state["landmark"], shape=("N - 1", 2))
    return dataclasses.replace(SPEC, state={**SPEC.state, "landmark": fewer})


@pytest.mark.parametrize(
    ("spec", "check", "settings", "says"),
    [
        (_longer_observation(), check_contract, CONTRACT, "[18]: nan, expected a finite number"),
        (_velocities_only_at_resets(), check_builds, SHAPES, "block shape, plain"),
        (_too_few_landmarks(), check_bounds, ASAN, "AddressSanitizer: use-after-poison"),
    ],
    ids=[
        "an observation longer than the kernel's",
        "a field wrongly at_reset",
        "a field too small",
    ],
)
def test_a_broken_spec_is_rejected(
    spec: EnvSpec, check: Any, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(CheckFailed) as failure:
        _skip_or(check, spec, **settings)
    assert says in str(failure.value)


def test_an_observation_outside_its_space_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_small(self: VectorEnv, agent: str) -> spaces.Box:
        size = self._layout(agent).obs_size
        return spaces.Box(-1, 1, (size,), np.float32)

    monkeypatch.setattr(VectorEnv, "single_observation_space", too_small)
    with pytest.raises(CheckFailed, match=r"observations/agent\[\d\]\[\d+\]: .* inside Box\(-1"):
        check_contract(SPEC, **CONTRACT)


def test_a_kernel_elsewhere_is_checked_too(tmp_path: Path) -> None:
    """A user's own environment: an absolute path, broken, and not registered."""
    text = (compiler.KERNELS / SPREAD).read_text()
    kernel = tmp_path / "mine.cu"
    old = "o = write_self(o, e.s, i);"
    assert text.count(old) == 1
    kernel.write_text(text.replace(old, "o = write_self(o, e.s, i + 1);"))
    mine = dataclasses.replace(SPEC, id="mine/mine_v0", kernel=str(kernel))
    expected = r"mine/mine_v0\(.*\), fast: asan: .*poison at mpe/world.*, /.*/mine\.cu:\d+"
    with pytest.raises(CheckFailed, match=expected):
        _skip_or(check_bounds, mine, **ASAN)


def test_check_env_reports_all_and_raises_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def skip(spec: EnvSpec, params: Any) -> None:
        raise CheckSkipped("not today")

    monkeypatch.setitem(CHECKS, "bounds", skip)
    report = check_env("mpe/simple_spread_v3", {"N": 3}, only=["determinism", "bounds"])
    assert report == {"determinism": "ok", "bounds": "skipped: not today"}
    with pytest.raises(CheckFailed, match="nan, expected a finite number"):
        check_env(
            _longer_observation(),
            {"max_cycles": 5},
            only=["contract", "determinism"],
            settings={"contract": CONTRACT, "determinism": {"threads": (1, 2)}},
        )
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert lines[0].startswith("contract") and "failed: check_contract: mpe/" in lines[0]
    assert lines[1].startswith("determinism") and lines[1].endswith("ok")


def test_a_mutant_out_of_date_is_an_error(tmp_path: Path) -> None:
    gone = Mutant("gone", check_contract, ((SPREAD, "no such text", ""),), "")
    with pytest.raises(LookupError, match=r"0 times 'no such text' in mpe/simple_spread_v3\.cu"):
        mutated_kernels(gone, tmp_path)
