"""An episode depends on its seed and its actions: not on the batch, the threads or the past."""

from __future__ import annotations

import pytest
from cases import DEFAULTS, LARGE, VARIANTS, Case, over

from gpu_zoo.testing import check_determinism


@over(DEFAULTS)
@pytest.mark.parametrize("numerics", ["fast", "reference"])
def test_deterministic(case: Case, numerics: str) -> None:
    check_determinism(case.spec, case.params, numerics=numerics, random_start=case.random_start)


@over(VARIANTS, slow=LARGE)
def test_deterministic_with_all_parameters(case: Case) -> None:
    check_determinism(case.spec, case.params, random_start=case.random_start)
