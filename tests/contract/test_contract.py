"""Every promise of the batched environment, on every step of a random play in every mode."""

from __future__ import annotations

import pytest
from cases import DEFAULTS, ENDS_EARLY, LARGE, VARIANTS, Case, over

from gpu_zoo.testing import check_contract


@over(DEFAULTS)
@pytest.mark.parametrize("numerics", ["fast", "reference"])
def test_a_long_play_keeps_the_contract(case: Case, numerics: str) -> None:
    limit = case.spec.resolve(case.params)[case.spec.time_limit]
    assert isinstance(limit, int)
    steps = max(600, limit + 100)
    covered = check_contract(case.spec, case.params, numerics=numerics, steps=steps)
    # 33 environments in two modes, of which one takes a step more to begin an episode.
    assert covered.episodes >= 2 * 33 * (steps // (limit + 1))


@over(VARIANTS, slow=LARGE)
def test_all_parameters_keep_the_contract(case: Case) -> None:
    check_contract(case.spec, case.params, steps=120)


@over(VARIANTS, slow=[])
@pytest.mark.slow
def test_all_parameters_keep_the_contract_in_reference_numerics(case: Case) -> None:
    check_contract(case.spec, case.params, numerics="reference", steps=250)


@over(ENDS_EARLY)
def test_random_play_meets_early_ends(case: Case) -> None:
    covered = check_contract(case.spec, case.params, steps=600)
    assert covered.terminated > 0
