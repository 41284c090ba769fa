"""Every kernel compiles for GPUs and stays in registers. Needs NVRTC, but no GPU."""

from __future__ import annotations

from typing import Any

import pytest
from cases import BUILT, DEFAULTS, LARGE, ROWS, Case, over

from gpu_zoo.testing import CheckSkipped, check_nvrtc


@over(DEFAULTS)
@pytest.mark.parametrize(
    ("numerics", "architecture"),
    [("fast", "sm_80"), ("fast", "sm_90"), ("fast", "sm_100"), ("reference", "sm_75")],
)
def test_compiles_for_gpus(case: Case, numerics: str, architecture: str) -> None:
    _compile(case, numerics=[numerics], architectures=[architecture])


@over(DEFAULTS)
def test_compiles_in_the_block_shape(case: Case) -> None:
    _compile(case, numerics=["fast"], architectures=["sm_90"], shape="block")


@over(BUILT, LARGE)
@pytest.mark.slow
@pytest.mark.parametrize("shape", ["lane", "block"])
def test_compiles_everything(case: Case, shape: str) -> None:
    # With many agents ptxas may park a word or two of a thread to need fewer registers.
    _compile(case, shape=shape, allow_stack=max(8, ROWS[case.id].allow_stack))


def _compile(case: Case, **settings: Any) -> None:
    try:
        usages = check_nvrtc(
            case.spec, case.params, **{"allow_stack": ROWS[case.id].allow_stack, **settings}
        )
    except CheckSkipped as reason:
        pytest.skip(str(reason))
    assert usages
