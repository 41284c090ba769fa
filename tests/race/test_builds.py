"""The same kernel in reverse order, with threads that really share a block, and sanitized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import BUILT, DEFAULTS, FEW, LARGE, OTHERS, Case, over
from gymnasium.vector import AutoresetMode

from gpu_zoo.prelude import Features
from gpu_zoo.testing import CheckSkipped, check_bounds, check_builds, check_races
from gpu_zoo.testing.builds import shapes_of
from gpu_zoo.testing.play import Array, Arrays, Subject, random_actions, record_on

# Races come first: a barrier that some threads miss would hang the emulated builds.


@over(BUILT, slow=LARGE)
@pytest.mark.covers("tsan")
def test_no_data_race(case: Case) -> None:
    _or_skip(check_races, case)


@over(BUILT, slow=LARGE)
@pytest.mark.covers("ubsan", "asan")
def test_no_index_leaves_its_array(case: Case) -> None:
    _or_skip(check_bounds, case, shapes=shapes_of(case.spec)[:1])


@over(DEFAULTS)
@pytest.mark.slow
@pytest.mark.covers("ubsan", "asan")
def test_no_index_leaves_its_array_in_the_other_shape(case: Case) -> None:
    _or_skip(check_bounds, case, shapes=shapes_of(case.spec)[1:])


@over(BUILT, slow=LARGE)
@pytest.mark.covers("reversed", "emulated")
def test_all_builds_give_the_same_bits(case: Case) -> None:
    check_builds(case.spec, case.params, numerics=["fast"])


@over(FEW, slow=OTHERS)
@pytest.mark.covers("reversed", "emulated")
def test_all_builds_give_the_same_bits_in_reference_numerics(case: Case) -> None:
    check_builds(case.spec, case.params, numerics=["reference"])


OWN = [Case("mpe/simple_tag_v3"), Case("warpdrive/tag_continuous_v0", {"num_runners": 3})]


@over(OWN)
@pytest.mark.covers("tsan", "emulated")
def test_own_parameters_and_starts_are_shared_by_threads(case: Case) -> None:
    features = Features(pool=True, varied=True)
    shapes = shapes_of(case.spec)[1:]  # teams of threads, of one block and of two
    _or_skip(check_races, case, shapes=shapes, features=features)
    check_builds(
        case.spec, case.params, numerics=["fast"], shapes=shapes, builds=["emulated"],
        block_sizes=(1, 3), features=features,
    )  # fmt: skip


def _or_skip(check: Callable[..., object], case: Case, **settings: Any) -> None:
    try:
        check(case.spec, case.params, **settings)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@over(DEFAULTS)
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.covers("reversed")
def test_a_tile_at_once_is_its_environments_one_by_one(case: Case, mode: AutoresetMode) -> None:
    """Also where tiles are not full, and where only some of their environments are stepped.

    The reversed build takes one environment at a time.
    """
    subject = Subject(case.spec, case.params).limited(3)
    for num_envs in (31, 32, 70):
        first = np.arange(num_envs) % 3  # neighbours end their episodes on different steps
        got, want = (
            _play(subject, first, autoreset_mode=mode, build=build)
            for build in ("plain", "reversed")
        )
        subject.require_equal("tiles", f"{num_envs} environments, {mode}", got, want)


def _play(subject: Subject, first: Array, **settings: Any) -> Arrays:
    # In DISABLED mode environments are stepped after their end, which is an error if validated.
    env = subject.make(len(first), validate_actions=False, **settings)
    env.reset(seed=1)
    env.engine.views["steps"][...] = first
    return record_on(env, random_actions(env, 12))
