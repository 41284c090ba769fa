"""Same seed, same actions: the drop-ins give mpe2's own episodes.

Observations, state(), terminations, truncations and lists of agents to the last bit and in the
same order; rewards and benchmark data of the same Python types, within REWARD_ULP.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from cases import over_broken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.episodes import (
    Counts,
    Driver,
    Episode,
    accepted,
    compare_aec,
    compare_parallel,
    compile_variants,
    draw_value,
    least,
    original,
    same_array,
    shared_params,
)
from oracle.mutants import WITH_CONTACTS, mutated
from pettingzoo.utils.env_logger import EnvLogger

import gpu_zoo
from gpu_zoo.spec import EnvSpec, Param
from gpu_zoo.wrappers.pettingzoo import drop_in

VARIANTS = 5  # compile-time variants an environment
EXAMPLES = 8  # constructor calls an API and variant, each of up to six episodes
MPE = [env_id for env_id in gpu_zoo.list_ids() if env_id.startswith("mpe/")]
WITH_CURRICULUM = [i for i in MPE if "curriculum" in gpu_zoo.spec(i).params]
ROWS = [
    pytest.param(env_id, v, id=f"{env_id.split('/')[1]}-{v}")
    for env_id in MPE
    for v in range(len(compile_variants(gpu_zoo.spec(env_id), VARIANTS)))
]
LAX = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
COUNTS: dict[str, Counts] = {}


@pytest.fixture(scope="module", autouse=True)
def mended_curriculum() -> Iterator[None]:
    """mpe2 1.1.1's curriculum as it is documented.

    There it never leaves stage 0: BaseScenario's property ``curriculum_stage`` has a setter that
    throws the value away, see test_mpe2s_curriculum_is_stuck.
    """
    with pytest.MonkeyPatch.context() as patch:
        for env_id in WITH_CURRICULUM:
            patch.setattr(scenario_class(env_id), "curriculum_stage", 0, raising=False)
        yield


def scenario_class(env_id: str) -> Any:
    raw_env = original(gpu_zoo.spec(env_id)).raw_env
    return sys.modules[raw_env.__module__].Scenario


@pytest.fixture(scope="module", autouse=True)
def report(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say what was compared."""
    EnvLogger.suppress_output()
    yield
    EnvLogger.unsuppress_output()
    capture: Any = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for env_id, counts in COUNTS.items():
            seen = ", ".join(f"{count} {what}" for what, count in sorted(counts.seen.items()))
            print(f"\n{env_id} = mpe2: {seen}; worst reward error {counts.worst_ulp:g} ulp")


SEEDS = st.one_of(st.integers(0, 1000), st.sampled_from([2**31, 2**32 - 1, 2**64, 2**70]))


@st.composite
def launch_params(draw: st.DrawFn, spec: EnvSpec, max_cycles: int) -> dict[str, Any]:
    """Values of the parameters that compile nothing, some of them left out."""
    values: dict[str, Any] = {}
    for name, param in shared_params(spec).items():
        if param.at == "compile" or name == "render_mode" or draw(st.integers(0, 3)) == 0:
            continue
        if name == "max_cycles":
            values[name] = draw(st.integers(1, max_cycles))
        elif param.type is bool:
            values[name] = draw(st.booleans())
        elif param.type is float:
            values[name] = draw(st.floats(param.low, param.high))
        else:
            values[name] = draw(st.integers(least(param), least(param) + 5))
    return values


@st.composite
def episodes(draw: st.DrawFn, spec: EnvSpec) -> list[Episode]:
    """Up to six episodes, the first one seeded and mostly the others not."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        stages: dict[int, int | None] = {}
        if "curriculum" in spec.params:
            stages = draw(
                st.dictionaries(
                    st.integers(0, 12), st.one_of(st.none(), st.integers(-1, 4)), max_size=2
                )
            )
        reseeded = number == 0 or draw(st.integers(0, 4)) == 0
        found.append(
            Episode(
                policy=draw(st.sampled_from(Driver.POLICIES)),
                actions_seed=draw(st.integers(0, 2**32)),
                seed=draw(SEEDS) if reseeded else None,
                stages=stages,
            )
        )
    return found


def check(
    spec: EnvSpec,
    api: str,
    params: dict[str, Any],
    played: list[Episode],
    counts: Counts | None = None,
) -> None:
    ours, theirs = (
        getattr(module, "parallel_env" if api == "parallel" else "env")(**params)
        for module in (drop_in(spec), original(spec))
    )
    compare = compare_parallel if api == "parallel" else compare_aec
    compare(ours, theirs, played, counts or COUNTS.setdefault(spec.id, Counts()))


def play(env_id: str, api: str, fixed: dict[str, Any], examples: int) -> None:
    spec = gpu_zoo.spec(env_id)

    @settings(LAX, max_examples=examples)
    @given(launch=launch_params(spec, 40), played=episodes(spec))
    def example(launch: dict[str, Any], played: list[Episode]) -> None:
        check(spec, api, {**fixed, **launch}, played)

    example()


def variant(env_id: str, number: int) -> tuple[dict[str, Any], int]:
    """A compile-time variant, and how many examples mpe2 can play of it in a few seconds."""
    spec = gpu_zoo.spec(env_id)
    fixed = compile_variants(spec, VARIANTS)[number]
    bodies = sum(group.count for group in spec.layout(spec.resolve(fixed)))
    return fixed, max(4, min(EXAMPLES, EXAMPLES * 6 // bodies))


@pytest.mark.parametrize(("env_id", "number"), ROWS)
def test_parallel_episodes_are_mpe2s(env_id: str, number: int) -> None:
    play(env_id, "parallel", *variant(env_id, number))


@pytest.mark.parametrize(
    ("env_id", "number"),
    [pytest.param(*r.values, id=r.id, marks=[pytest.mark.slow] * (r.values[1] > 1)) for r in ROWS],
)
def test_aec_episodes_are_mpe2s(env_id: str, number: int) -> None:
    fixed, examples = variant(env_id, number)
    play(env_id, "aec", fixed, examples // 2)


@pytest.mark.parametrize("env_id", MPE)
@pytest.mark.parametrize("api", ["parallel", "aec"])
def test_actions_outside_the_box_are_clipped_alike(env_id: str, api: str) -> None:
    """PettingZoo's ClipOutOfBoundsWrapper around the original; the same around or in ours."""
    spec = gpu_zoo.spec(env_id)
    params = {"continuous_actions": True, "max_cycles": 10}
    played = [Episode("outside", number, number) for number in range(3)]
    check(spec, api, params, played)
    assert EnvLogger.mqueue  # both warn


@pytest.mark.parametrize("env_id", MPE)
@pytest.mark.parametrize("number", [0, 1])
def test_long_episodes_are_mpe2s(env_id: str, number: int) -> None:
    """Contacts are chaotic: a difference in the last bit grows to one in the first."""
    spec = gpu_zoo.spec(env_id)
    params = {"continuous_actions": bool(number), "max_cycles": 500}
    check(spec, "parallel", params, [Episode(p, 1, 1) for p in ("chase", "visit")])


# Who succeeds in these environments with terminate_on_success.
SUCCESS = {"mpe/simple_spread_v3": "cover", "mpe/simple_tag_v3": "chase"}


@pytest.mark.parametrize("env_id", SUCCESS)
@pytest.mark.parametrize("api", ["parallel", "aec"])
def test_success_terminates_alike(env_id: str, api: str) -> None:
    spec = gpu_zoo.spec(env_id)
    params = {"continuous_actions": True, "terminate_on_success": True, "max_cycles": 60}
    before = COUNTS.setdefault(env_id, Counts()).seen["terminated"]
    check(spec, api, params, [Episode(SUCCESS[env_id], seed, seed) for seed in range(10)])
    assert COUNTS[env_id].seen["terminated"] >= before + 3


@pytest.mark.slow
@pytest.mark.parametrize("env_id", MPE)
@pytest.mark.parametrize("api", ["parallel", "aec"])
def test_any_parameters_are_mpe2s(env_id: str, api: str) -> None:
    """As the first two tests, with compile-time parameters drawn too."""
    spec = gpu_zoo.spec(env_id)
    compiled = st.fixed_dictionaries(
        {},
        optional={
            name: st.tuples(st.integers(least(p), least(p) + 8), st.booleans()).map(
                partial(pick, p)
            )
            for name, p in shared_params(spec).items()
            if p.at == "compile"
        },
    )

    @settings(LAX, max_examples=40, derandomize=False)
    @given(
        fixed=compiled.filter(partial(accepted, spec)),
        launch=st.lists(launch_params(spec, 100), min_size=3, max_size=3),
        played=episodes(spec),
    )
    def example(fixed: dict[str, Any], launch: list[dict[str, Any]], played: list[Episode]) -> None:
        for values in launch:
            check(spec, api, {**fixed, **values}, played)

    example()


def pick(param: Param, drawn: tuple[int, bool]) -> Any:
    return draw_value(param, lambda low, high: drawn[0], drawn[1])


def test_treasures_that_are_away_come_last_wherever_the_agents_are() -> None:
    """They lie at (-999, -999), which far out is nearer than the others."""
    spec = gpu_zoo.spec("mpe/collect_treasure_v1")
    ours, theirs = (module.parallel_env() for module in (drop_in(spec), original(spec)))
    for env in (ours, theirs):
        env.reset(seed=0)
    worlds = [env.unwrapped.world for env in (ours, theirs)]
    for world in worlds:  # some collectors on treasures
        for collector, treasure in zip(world.agents[:3], world.landmarks, strict=False):
            collector.state.p_pos = treasure.state.p_pos.copy()
    for env in (ours, theirs):
        env.step(dict.fromkeys(env.agents, 0))
    alive = [treasure.alive for treasure in worlds[1].landmarks]
    assert any(alive) and not all(alive)
    for world in worlds:
        for number, agent in enumerate(world.agents):
            agent.state.p_pos = np.array([-600.0 - number, -600.0])
    same_array(ours.state(), theirs.state(), "far out")


# The oracle must see the least mistake in the physics all environments share (mpe/world.cuh).
MUTANTS = {
    "draws y before x": (
        "p[0] = rng_uniform(rng, -bound, bound);",
        "p[0] = rng_uniform(rng, -bound, bound); real x = p[0]; p[0] = p[1]; p[1] = x;",
    ),
    "time step 1 ulp off": ("DT = R(0.1)", "DT = R(0.10000000000000002)"),
    "damping 2 ulp off": ("DAMPING = R(0.25)", "DAMPING = R(0.2500000000000001)"),
    "moves with the new velocity": (
        "s.vel[i][0] = v.x;",
        "s.pos[i][0] += (v.x - s.vel[i][0]) * DT; s.vel[i][0] = v.x;",
    ),
    "contact margin 1 ulp off": ("= R(1e-3)", "= R(1.0000000000000002e-3)"),
    "contact in another order": ("CONTACT_FORCE * d.x / dist", "CONTACT_FORCE * (d.x / dist)"),
    "contact cut off": ("ZOO_REFERENCE ? R(0.75)", "ZOO_REFERENCE ? R(0.02)"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("env_id", WITH_CONTACTS)
def test_mutant_is_caught(env_id: str, mutant: str) -> None:
    spec = mutated(gpu_zoo.spec(env_id), *MUTANTS[mutant])
    with pytest.raises(AssertionError, match="episode"):
        for policy in ("chase", "visit"):
            played = [Episode(policy, seed, seed) for seed in range(20)]
            check(spec, "parallel", {}, played, Counts())


@over_broken(MPE)
def test_broken_rules_are_caught(env_id: str, old: str, new: str) -> None:
    spec = mutated(gpu_zoo.spec(env_id), old, new, world=False)
    with pytest.raises(AssertionError, match="episode"):
        for policy in ("uniform", "chase", "leave", "visit"):
            played = [Episode(policy, seed, seed) for seed in range(4)]
            check(spec, "parallel", {"benchmark_data": True}, played, Counts())


@pytest.mark.parametrize("env_id", WITH_CURRICULUM)
def test_mpe2s_curriculum_is_stuck(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once this fails, mpe2 has mended its curriculum: drop the fixture and the specs' notes."""
    spec = gpu_zoo.spec(env_id)
    monkeypatch.delattr(scenario_class(env_id), "curriculum_stage")
    theirs = original(spec).raw_env(curriculum=True)
    theirs.set_curriculum_stage(1)
    assert theirs.curriculum_stage == 0
    ours = drop_in(spec).raw_env(curriculum=True)
    ours.set_curriculum_stage(1)
    assert ours.curriculum_stage == 1
