"""Every kernel compiles for GPUs and stays in registers. Needs NVRTC, but no GPU."""

from __future__ import annotations

from typing import Any

import pytest
from cases import BUILT, DEFAULTS, FEW, LARGE, OTHERS, ROWS, Case, over

from gpu_zoo.prelude import Features
from gpu_zoo.testing import ARCHITECTURES, CheckSkipped, check_nvrtc

pytestmark = pytest.mark.covers("cubin")


@over(DEFAULTS)
@pytest.mark.parametrize(
    ("numerics", "architecture"),
    [
        *(("fast", architecture) for architecture in ARCHITECTURES),
        ("reference", ARCHITECTURES[0]),
        pytest.param("reference", ARCHITECTURES[-1], marks=pytest.mark.slow),
    ],
)
def test_compiles_for_gpus(case: Case, numerics: str, architecture: str) -> None:
    _compile(case, numerics=[numerics], architectures=[architecture])


@over(FEW, slow=OTHERS)
def test_compiles_in_the_block_shape(case: Case) -> None:
    _compile(case, numerics=["fast"], architectures=["sm_90"], shape="block")


@over(FEW, slow=OTHERS)
def test_compiles_with_own_parameters_and_starts(case: Case) -> None:
    features = Features(pool=True, varied=True)
    _compile(case, numerics=["fast"], architectures=["sm_75"], features=features)


@over(BUILT, LARGE)
@pytest.mark.slow
@pytest.mark.parametrize("shape", [None, "block"])
def test_compiles_everything(case: Case, shape: str | None) -> None:
    # The loops over eight agents, unrolled, do not quite fit the registers of a thread, and who is
    # matched to which of eight targets is searched for in arrays, 920 bytes of them in float64.
    _compile(case, shape=shape, allow_stack=max(920, ROWS[case.id].allow_stack))


def _compile(case: Case, **settings: Any) -> None:
    try:
        usages = check_nvrtc(
            case.spec, case.params, **{"allow_stack": ROWS[case.id].allow_stack, **settings}
        )
    except CheckSkipped as reason:
        pytest.skip(str(reason))
    assert usages
