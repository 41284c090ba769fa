"""mpe/assign.cuh against SciPy's linear_sum_assignment and all permutations, and NumPy's sum."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from .harness import FAST, Array, build, pointer

SIZES = range(1, 13)
LENGTHS = (*range(1, 20), 24, 127, 128, 129, 136, 300)
METHODS = [
    *(pytest.param(n, "sets", id=f"{n}-sets") for n in range(1, 7)),
    *(pytest.param(n, "paths", id=f"{n}-paths") for n in SIZES),
]
SOURCE = """#include "mpe/assign.cuh"
template <int n> struct Room {
    real price[n], reach[n], matched[n];
    int owner[n], before[n];
    u8 settled[n];
};
template <int n, bool sets> void run(const real* d, real* out, long count) {
    for (long k = 0; k < count; k++, d += n * n, out += 3) {
        auto distance_to = [=](int i, int j) { return d[i * n + j]; };
        Room<n> room;
        Matched m;
        if constexpr (sets) m = match_by_sets<n>(distance_to);
        else m = match_by_paths<n>(distance_to, room);
        out[0] = m.total, out[1] = m.clipped, out[2] = m.largest;
    }
}
""" + "".join(
    f'extern "C" void {how}_{n}(const real* d, real* out, long count)'
    f"{{ run<{n}, {str(how == 'sets').lower()}>(d, out, count); }}\n"
    for n, how in (p.values for p in METHODS)
)  # fmt: skip
SUM_SOURCE = '#include "mpe/assign.cuh"\n' + "".join(
    f'extern "C" void sum_{n}(const real* a, real* out) {{ *out = numpy_sum<{n}>(a); }}\n'
    for n in LENGTHS
)
REFERENCE = (*FAST, "-DZOO_REFERENCE=1")
KINDS = [
    pytest.param(np.float64, REFERENCE, 1e-14, id="reference"),
    pytest.param(np.float32, FAST, 2e-6, id="fast"),
]


def matched(how: str, distances: Array, flags: tuple[str, ...]) -> Array:
    """Total, clipped total and largest of the matched distances, for each matrix."""
    distances = np.ascontiguousarray(distances)
    count, n, _ = distances.shape
    out = np.empty((count, 3), distances.dtype)
    function = getattr(build(SOURCE, *flags), f"{how}_{n}")
    function(pointer(distances), pointer(out), ctypes.c_long(count))
    return out


def in_the_plane(n: int, count: int) -> Array:
    """Distances between points at random, up to a few units: some are clipped."""
    rng = np.random.default_rng(n)
    a, b = rng.uniform(-1.5, 1.5, (2, count, n, 2))
    return np.asarray(np.linalg.norm(a[:, :, None] - b[:, None], axis=-1))


def awkward(n: int) -> Iterator[tuple[str, Array]]:
    """Matrices for which several assignments are best, or of which some go wrong."""
    rng = np.random.default_rng(100 + n)
    a, b = rng.integers(0, 9, (2, 200, n)) / 4
    yield "on one line", np.abs(a[:, :, None] - b[:, None])
    yield "on both sides of all targets", np.abs(np.sort(a)[:, :, None] + 3.0 * np.arange(n))
    yield "small integers", rng.integers(0, 3, (200, n, n)).astype(float)
    yield "all the same", np.ones((1, n, n))
    yield "all zero", np.zeros((1, n, n))
    yield "products", np.multiply.outer(np.arange(1.0, n + 1), np.arange(1.0, n + 1))[None]
    yield "products, falling", 150 - np.multiply.outer(np.arange(n), np.arange(1.0, n + 1))[None]
    gaps = np.where(np.eye(n, k=1) + np.eye(n) > 0, rng.uniform(0, 1, (50, n, n)), 1e4)
    yield "few of them near", gaps
    yield "as near as eps", 1 + rng.integers(0, 3, (200, n, n)) * 2.0**-23


@pytest.mark.parametrize(("dtype", "flags", "tolerance"), KINDS)
@pytest.mark.parametrize(("n", "how"), METHODS)
def test_matches_as_scipy(
    n: int, how: str, dtype: type[np.floating], flags: tuple[str, ...], tolerance: float
) -> None:
    distances = in_the_plane(n, 500).astype(dtype)
    clipped_any = 0
    for d, (total, clipped, largest) in zip(distances, matched(how, distances, flags), strict=True):
        best = d[linear_sum_assignment(d)]
        assert total == pytest.approx(best.sum(), rel=tolerance)
        assert clipped == np.clip(best, 0, 2).sum()  # to the last bit: in NumPy's order
        assert largest == best.max()
        clipped_any += best.max() > 2
    assert clipped_any > 3


@pytest.mark.parametrize(("dtype", "flags", "tolerance"), KINDS)
@pytest.mark.parametrize(("n", "how"), METHODS)
def test_awkward_distances(
    n: int, how: str, dtype: type[np.floating], flags: tuple[str, ...], tolerance: float
) -> None:
    for what, exact in awkward(n):
        distances = exact.astype(dtype)
        for d, found in zip(distances, matched(how, distances, flags), strict=True):
            least = d[linear_sum_assignment(d)].astype(float).sum()
            assert found[0] == pytest.approx(least, rel=tolerance, abs=0), what
            if n <= 4:
                assert_from_a_best_assignment(d, found, least, tolerance, what)


def assert_from_a_best_assignment(
    d: Array, found: Array, least: float, tolerance: float, what: str
) -> None:
    """The three numbers are those of one assignment, and that is among the best."""
    agents = np.arange(len(d))
    options = [d[agents, list(p)].astype(float) for p in itertools.permutations(agents)]
    assert any(
        best.sum() <= least * (1 + tolerance)
        and found[1] == pytest.approx(np.clip(best, 0, 2).sum(), rel=tolerance)
        and found[2] == best.max()
        for best in options
    ), what


@pytest.mark.parametrize(("dtype", "flags", "tolerance"), KINDS)
@pytest.mark.parametrize(("n", "how"), METHODS)
def test_ends_whatever_the_distances(
    n: int, how: str, dtype: type[np.floating], flags: tuple[str, ...], tolerance: float
) -> None:
    """A state that is not finite must not hang a GPU."""
    values = np.array([0, 1, math.nan, math.inf, float(np.finfo(dtype).max)], dtype)
    rng = np.random.default_rng(n)
    matched(how, rng.choice(values, (2000, n, n)), flags)
    for value in values:
        matched(how, np.full((1, n, n), value), flags)


@pytest.mark.parametrize("n", LENGTHS)
def test_adds_in_numpys_order(n: int) -> None:
    function = getattr(build(SUM_SOURCE, *REFERENCE), f"sum_{n}")
    for a in np.random.default_rng(n).uniform(0, 2, (300, n)):
        out = np.empty(1)
        function(pointer(a), pointer(out))
        assert out[0] == a.sum()
