"""Same seed, same actions: the drop-ins give mpe2's own episodes.

Observations, state(), terminations, truncations and lists of agents to the last bit and in the
same order; rewards and benchmark data of the same Python types, within REWARD_ULP.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpu_zoo
import gpu_zoo.compile
import gpu_zoo.wrappers.pettingzoo
import pytest
from gpu_zoo.spec import EnvSpec
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
    drop_in,
    least,
    original,
    shared_params,
)
from pettingzoo.utils.env_logger import EnvLogger

VARIANTS = 8  # compile-time variants an environment
EXAMPLES = 30  # constructor calls an API and variant, each of up to four episodes
MPE = [env_id for env_id in gpu_zoo.list_ids() if env_id.startswith("mpe/")]
ROWS = [
    pytest.param(env_id, v, id=f"{env_id.split('/')[1]}-{v}")
    for env_id in MPE
    for v in range(VARIANTS)
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
        for env_id in MPE:
            if "curriculum" in gpu_zoo.spec(env_id).params:
                patch.setattr(scenario_class(env_id), "curriculum_stage", 0, raising=False)
        yield


def scenario_class(env_id: str) -> Any:
    raw_env = original(gpu_zoo.spec(env_id)).raw_env
    return sys.modules[raw_env.__module__].Scenario  # type: ignore[attr-defined]


@pytest.fixture(scope="module", autouse=True)
def report(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say what was compared."""
    EnvLogger.suppress_output()
    yield
    EnvLogger.unsuppress_output()
    terminal = request.config.pluginmanager.get_plugin("terminalreporter")
    for env_id, counts in COUNTS.items():
        seen = ", ".join(f"{count} {what}" for what, count in sorted(counts.seen.items()))
        line = f"{env_id} = mpe2: {seen}; worst reward {counts.worst_ulp:g} ulp"
        if terminal is not None:
            terminal.write_line(f"\n{line} ({counts.worst_relative:.1e})")


def counts_of(env_id: str) -> Counts:
    return COUNTS.setdefault(env_id, Counts())


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
    """Up to four episodes, the first one seeded and mostly the others not."""
    found = []
    for number in range(draw(st.integers(1, 4))):
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


def check(env_id: str, api: str, params: dict[str, Any], played: list[Episode]) -> None:
    spec = gpu_zoo.spec(env_id)
    ours, theirs = (
        getattr(module, "parallel_env" if api == "parallel" else "env")(**params)
        for module in (drop_in(spec), original(spec))
    )
    compare = compare_parallel if api == "parallel" else compare_aec
    compare(ours, theirs, played, counts_of(env_id))


def play(env_id: str, api: str, fixed: dict[str, Any], examples: int) -> None:
    spec = gpu_zoo.spec(env_id)

    @settings(LAX, max_examples=examples)
    @given(launch=launch_params(spec, 40), played=episodes(spec))
    def example(launch: dict[str, Any], played: list[Episode]) -> None:
        check(env_id, api, {**fixed, **launch}, played)

    example()


def variant(env_id: str, number: int) -> tuple[dict[str, Any], int]:
    """A compile-time variant, and how many examples mpe2 can play of it in a few seconds."""
    spec = gpu_zoo.spec(env_id)
    variants = compile_variants(spec, VARIANTS)
    if number >= len(variants):
        pytest.skip(f"{env_id} has {len(variants)} variants")
    fixed = variants[number]
    bodies = sum(group.count for group in spec.layout(spec.resolve(fixed)))
    return fixed, max(4, min(EXAMPLES, EXAMPLES * 6 // bodies))


@pytest.mark.parametrize(("env_id", "number"), ROWS)
def test_parallel_episodes_are_mpe2s(env_id: str, number: int) -> None:
    play(env_id, "parallel", *variant(env_id, number))


@pytest.mark.parametrize(("env_id", "number"), ROWS)
def test_aec_episodes_are_mpe2s(env_id: str, number: int) -> None:
    fixed, examples = variant(env_id, number)
    play(env_id, "aec", fixed, examples // 2)


@pytest.mark.parametrize("env_id", MPE)
def test_mpe2s_curriculum_is_stuck(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once this fails, mpe2 has mended its curriculum: drop the fixture and the specs' notes."""
    spec = gpu_zoo.spec(env_id)
    if "curriculum" not in spec.params:
        pytest.skip("no curriculum")
    monkeypatch.delattr(scenario_class(env_id), "curriculum_stage")
    theirs = original(spec).raw_env(curriculum=True)
    theirs.set_curriculum_stage(1)
    assert theirs.curriculum_stage == 0
    ours = drop_in(spec).raw_env(curriculum=True)
    ours.set_curriculum_stage(1)
    assert ours.curriculum_stage == 1
