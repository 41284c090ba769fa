"""Every promise of the batched environment, on every step of a random play in every mode."""

from __future__ import annotations

import pytest
from cases import DEFAULTS, ENDS_EARLY, LARGE, VARIANTS, Case, over

from gpu_zoo.testing import check_contract


@over(DEFAULTS)
@pytest.mark.parametrize("numerics", ["fast", "reference"])
def test_a_long_play_keeps_the_contract(case: Case, numerics: str) -> None:
    covered = check_contract(case.spec, case.params, numerics=numerics, steps=600)
    assert covered.episodes > 1000


@over(VARIANTS, slow=LARGE)
def test_all_parameters_keep_the_contract(case: Case) -> None:
    check_contract(case.spec, case.params, steps=250)


@over(VARIANTS, slow=[])
@pytest.mark.slow
def test_all_parameters_keep_the_contract_in_reference_numerics(case: Case) -> None:
    check_contract(case.spec, case.params, numerics="reference", steps=250)


@over(ENDS_EARLY)
def test_random_play_meets_early_ends(case: Case) -> None:
    covered = check_contract(case.spec, case.params, steps=600)
    assert covered.terminated > 0
