"""The same kernel in reverse order, with threads that really share a block, and sanitized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cases import BUILT, DEFAULTS, LARGE, Case, over

from gpu_zoo.testing import CheckSkipped, check_bounds, check_builds, check_races

# Races come first: a barrier that some threads miss would hang the emulated builds.


@over(BUILT, slow=LARGE)
@pytest.mark.covers("tsan")
def test_no_data_race(case: Case) -> None:
    _or_skip(check_races, case)


@over(BUILT, slow=LARGE)
@pytest.mark.covers("ubsan", "asan")
def test_no_index_leaves_its_array(case: Case) -> None:
    _or_skip(check_bounds, case, shapes=("lane",))


@over(DEFAULTS)
@pytest.mark.slow
@pytest.mark.covers("ubsan", "asan")
def test_no_index_leaves_its_array_in_the_block_shape(case: Case) -> None:
    _or_skip(check_bounds, case, shapes=("block",))


@over(BUILT, slow=LARGE)
@pytest.mark.covers("reversed", "emulated")
def test_all_builds_give_the_same_bits(case: Case) -> None:
    check_builds(case.spec, case.params, numerics=["fast"])


@over(DEFAULTS)
@pytest.mark.covers("reversed", "emulated")
def test_all_builds_give_the_same_bits_in_reference_numerics(case: Case) -> None:
    check_builds(case.spec, case.params, numerics=["reference"])


def _or_skip(check: Callable[..., object], case: Case, **settings: Any) -> None:
    try:
        check(case.spec, case.params, **settings)
    except CheckSkipped as reason:
        pytest.skip(str(reason))
