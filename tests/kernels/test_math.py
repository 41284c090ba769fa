"""zoo/math.cuh: errors in ulp, special values, and the same bits however it is compiled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from .harness import FAST, PLAIN, TRAPPING, Array, apply, build

NAMES = ("exp", "log", "log1p", "sin", "cos", "logaddexp0", "sqrt", "floor")
SOURCE = '#include "zoo/math.cuh"\n' + "".join(
    f'extern "C" void {name}_{kind}(const {kind}* x, {kind}* y, long n) '
    f"{{ for (long i = 0; i < n; i++) y[i] = zoo_{name}(x[i]); }}\n"
    for name in NAMES
    for kind in ("float", "double")
)
ATAN2_SOURCE = '#include "zoo/math.cuh"\n' + "".join(
    f'extern "C" void {name}(const {kind}* y, const {kind}* x, {kind}* angle, long n) '
    f"{{ for (long i = 0; i < n; i++) angle[i] = {function}(y[i], x[i]); }}\n"
    for name, kind, function in (
        ("atan2_float", "float", "zoo_atan2"),
        ("atan2_double", "double", "zoo_atan2"),
        ("atan2_real", "real", "real_atan2"),
    )
)
ROUNDED_SOURCE = f"""
#include "zoo/math.cuh"
extern "C" void single(const double* x, double* y, long n) {{
  for (long i = 0; i < n; i += 2) for (int k = 0; k < 2; k++) y[i + k] = zoo_single(x[i + k]);
}}
extern "C" void mod(const double* x, double* y, long n) {{
  for (long i = 0; i < n; i++) y[i] = zoo_mod(x[i], {2 * math.pi!r});
}}
extern "C" void mod_float(const float* x, float* y, long n) {{
  for (long i = 0; i < n; i++) y[i] = zoo_mod(x[i], 6.2831855f);
}}
extern "C" void square(const double* x, double* y, long n) {{
  for (long i = 0; i < n; i++) y[i] = real_square(x[i]);
}}
extern "C" void square_float(const float* x, float* y, long n) {{
  for (long i = 0; i < n; i++) y[i] = real_square(x[i]);
}}
"""
REAL_NAMES = ("exp", "log", "log1p", "sin", "cos", "logaddexp0")
REAL_SOURCE = '#include "zoo/math.cuh"\n' + "".join(
    f'extern "C" void {name}_real(const real* x, real* y, long n) '
    f"{{ for (long i = 0; i < n; i++) y[i] = real_{name}(x[i]); }}\n"
    for name in REAL_NAMES
)

FLOAT_BOUNDS = {"exp": 0.8, "log": 1.0, "log1p": 1.0, "sin": 0.9, "cos": 0.9, "logaddexp0": 1.7}
DOUBLE_BOUNDS = {"exp": 0.9, "log": 0.8, "log1p": 0.8, "sin": 0.9, "cos": 0.9, "logaddexp0": 1.7}
ATAN2_BOUND = 1.7
TRIG_RANGE = {np.float32: 1e4, np.float64: 1e5}
INF = math.inf
NAN = math.nan
needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double"
)
WIDER = [
    pytest.param(np.float32, np.float64, id="float"),
    pytest.param(np.float64, np.longdouble, id="double", marks=needs_long_double),
]


def compute(name: str, x: Array, *flags: str) -> Array:
    kind = {"float32": "float", "float64": "double"}[x.dtype.name]
    return apply(build(SOURCE, *flags), f"{name}_{kind}", x)


def angles(y: Array, x: Array, *flags: str, name: str = "") -> Array:
    kind = {"float32": "float", "float64": "double"}[x.dtype.name]
    return apply(build(ATAN2_SOURCE, *flags), name or f"atan2_{kind}", y, x)


def wide(name: str, x: Array) -> Array:
    """The answer in x's own (wider) precision."""
    with np.errstate(all="ignore"):
        if name == "logaddexp0":
            return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
        function: Callable[[Array], Array] = getattr(np, name)
        return function(x)


def ulp_errors(got: Array, want: Array) -> Array:
    """|got - want| in units of the last place `want` would have in got's type."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(want)[1] - 1, info.minexp)
        error = np.abs(got.astype(want.dtype) - want)
        error = error / np.ldexp(np.ones_like(want), exponent - info.nmant)
        same = (got == want.astype(got.dtype)) & ~np.isfinite(got)
    error[same | (np.isnan(got) & np.isnan(want))] = 0
    error[np.isnan(error)] = INF
    return error


def around(x: Array, steps: int) -> Array:
    """Each value of x and its `steps` neighbours on either side."""
    bits = x.view(np.int32 if x.dtype == np.float32 else np.int64)
    return (bits[:, None] + np.arange(-steps, steps + 1, dtype=bits.dtype)).view(x.dtype).ravel()


def borders(dtype: type[np.floating]) -> Array:
    """Where a function overflows, underflows, changes its reduction or its sign."""
    info = np.finfo(dtype)
    half_powers = np.ldexp(math.sqrt(0.5), np.arange(-8, 9))
    values = [
        *np.log([float(info.max), float(info.tiny), float(info.smallest_subnormal)]),
        *(np.log(2) * (np.arange(-300, 300) + 0.5)),
        *half_powers,
        *(half_powers - 1),
        *(2.0 ** np.arange(-60, 61)),
        *(2.0 ** np.arange(-60, 61) - 1),
        *(-1 + 2.0 ** np.arange(-24.0, -1)),
        float(info.tiny),
        float(info.max),
        -1.0,
    ]
    return around(np.unique(np.array(values, dtype)), 100)


def in_range(name: str, x: Array) -> Array:
    x = x[np.isfinite(x)]
    if name in ("sin", "cos"):
        return x[np.abs(x) <= TRIG_RANGE[x.dtype.type]]
    return x


def worst(name: str, x: Array, want_type: type[np.floating]) -> float:
    x = in_range(name, x)
    errors = ulp_errors(compute(name, x), wide(name, x.astype(want_type)))
    at = int(np.argmax(errors))
    print(f"{name} {x.dtype}: {x.size} points, worst {errors[at]:.3f} ulp at {float(x[at]).hex()}")
    return float(errors[at])


def float_points(name: str) -> Array:
    patterns = np.arange(0, 2**32, 2053, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edge = TRIG_RANGE[np.float32] if name in ("sin", "cos") else 110.0
    dense = np.linspace(-edge, edge, 500_001, dtype=np.float32)
    near_one = np.linspace(-1, 3, 500_001, dtype=np.float32)
    turns = (np.arange(1, 6367) * (math.pi / 2)).astype(np.float32)
    return np.concatenate([patterns, dense, near_one, borders(np.float32), around(turns, 2)])


def double_points(name: str, count: int) -> Array:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    edge = TRIG_RANGE[np.float64] if name in ("sin", "cos") else 760.0
    turns = np.arange(1, 63662) * (np.arctan(np.longdouble(1)) * 2)
    hard = around(turns.astype(np.float64)[:: 1 if count > 10_000 else 200], 1)
    return np.concatenate(
        [
            bits,
            rng.uniform(-edge, edge, count),
            rng.uniform(-3, 3, count),
            rng.uniform(0.68, 0.73, count),  # around sqrt(1/2), where log changes its exponent
            rng.uniform(-0.32, -0.27, count),
            rng.choice(borders(np.float64), count),
            hard,
        ]
    )


@pytest.mark.parametrize("name", FLOAT_BOUNDS)
def test_float_error(name: str) -> None:
    assert worst(name, float_points(name), np.float64) <= FLOAT_BOUNDS[name]


@needs_long_double
@pytest.mark.parametrize("name", DOUBLE_BOUNDS)
def test_double_error(name: str) -> None:
    assert worst(name, double_points(name, 200_000), np.longdouble) <= DOUBLE_BOUNDS[name]


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "sin", "cos"])
def test_double_error_by_mpmath(name: str) -> None:
    x = in_range(name, double_points(name, 700))
    if name in ("log", "log1p"):
        x = x[x > (-1 if name == "log1p" else 0)]
    if name == "exp":
        x = x[np.abs(x) < 750]
    info = np.finfo(np.float64)
    errors = []
    with mpmath.workdps(60):
        function = getattr(mpmath, name)
        for point, got in zip(x.tolist(), compute(name, x).tolist(), strict=True):
            want = function(mpmath.mpf(point))
            if math.isinf(got) and want >= mpmath.mpf(2) ** 1024 * (1 - mpmath.mpf(2) ** -54):
                continue
            exponent = max(int(mpmath.frexp(want)[1]) - 1, info.minexp)
            errors.append(float(abs(got - want) / mpmath.mpf(2) ** (exponent - info.nmant)))
    print(f"{name} by mpmath: {len(errors)} points, worst {max(errors):.3f} ulp")
    assert len(errors) > 1000
    assert max(errors) <= DOUBLE_BOUNDS[name]


def points_in_the_plane(dtype: type[np.floating], count: int) -> tuple[Array, Array]:
    """y and x: all directions and sizes, and the borders of the reduction from both sides."""
    rng = np.random.default_rng(6)
    info = np.finfo(dtype)
    bits = rng.integers(0, 2**64, (2, count), dtype=np.uint64).view(dtype)[:, :count]
    size = 2.0 ** rng.uniform(info.minexp - info.nmant, info.maxexp - 1, count)
    slope = 2.0 ** rng.uniform(-30, 30, count) * rng.choice([-1, 1], count)
    near = np.concatenate([around(np.array([s], dtype), 50) for s in (0.5, 1.0, 2.0)])
    x = rng.uniform(1, 2, count).astype(dtype)
    with np.errstate(all="ignore"):
        y = [
            *bits[0], *rng.normal(size=count), *(size * slope), *(x * rng.choice(near, count)),
            *(x * rng.uniform(0.2, 0.55, count)), *(x * rng.uniform(1.8, 2.2, count)),
        ]  # fmt: skip
        x = [*bits[1], *rng.normal(size=count), *(size * rng.choice([-1, 1], count)), *x, *x, *x]
        y, x = np.array(y, dtype), np.array(x, dtype)
    finite = np.isfinite(y) & np.isfinite(x)
    return y[finite], x[finite]


@pytest.mark.parametrize(("dtype", "wider"), WIDER)
def test_atan2_error(dtype: type[np.floating], wider: type[np.floating]) -> None:
    y, x = points_in_the_plane(dtype, 100_000)
    errors = ulp_errors(angles(y, x), np.arctan2(y.astype(wider), x.astype(wider)))
    at = int(np.argmax(errors))
    print(f"atan2 {x.dtype}: {x.size} points, worst {errors[at]:.3f} ulp at {y[at]!r}, {x[at]!r}")
    assert x.size > 400_000
    assert errors[at] <= ATAN2_BOUND


def test_atan2_error_by_mpmath() -> None:
    y, x = points_in_the_plane(np.float64, 300)
    info = np.finfo(np.float64)
    errors = []
    with mpmath.workdps(60):
        for b, a, got in zip(y.tolist(), x.tolist(), angles(y, x).tolist(), strict=True):
            want = mpmath.atan2(mpmath.mpf(b), mpmath.mpf(a))
            exponent = max(int(mpmath.frexp(want)[1]) - 1, info.minexp)
            errors.append(float(abs(got - want) / mpmath.mpf(2) ** (exponent - info.nmant)))
    assert len(errors) > 1000
    assert max(errors) <= ATAN2_BOUND


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atan2_of_zeros_infinities_and_extremes(dtype: type[np.floating]) -> None:
    """The C library's answers, signs of zero too, and one set of bits for every NaN."""
    info = np.finfo(dtype)
    sizes = [0.0, float(info.smallest_subnormal), float(info.tiny), 1.0, float(info.max), INF]
    values = [*sizes, *(-size for size in sizes), NAN, -NAN]
    y, x = (np.array(side, dtype) for side in zip(*itertools.product(values, values), strict=True))
    want = [math.atan2(b, a) for b, a in zip(y.tolist(), x.tolist(), strict=True)]
    want = np.array([NAN if math.isnan(angle) else angle for angle in want], dtype)
    got = angles(y, x)
    close = ulp_errors(got, want.astype(np.longdouble)) <= ATAN2_BOUND
    assert np.all(close & (np.signbit(got) == np.signbit(want)))
    assert len({angle.tobytes() for angle in got[np.isnan(got)]}) == 1
    exact = np.isin(np.abs(want), np.array([0, 1, 2, 4, 3], dtype) * dtype(math.pi / 4))
    assert got[exact].tobytes() == want[exact].tobytes()


@pytest.mark.parametrize("flags", [PLAIN, TRAPPING], ids=["O0", "trapping"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atan2_has_the_same_bits_however_compiled(
    dtype: type[np.floating], flags: tuple[str, ...]
) -> None:
    y, x = points_in_the_plane(dtype, 20_000)
    assert angles(y, x).tobytes() == angles(y, x, *flags).tobytes()


SPECIAL = {
    "exp": ([0.0, -0.0, INF, -INF, 1e4, -1e4], [1, 1, INF, 0, INF, 0]),
    "log": ([0.0, -0.0, 1.0, INF, -1.0, -INF, -1e-40], [-INF, -INF, 0, INF, NAN, NAN, NAN]),
    "log1p": ([0.0, -0.0, -1.0, INF, -1.5, -INF], [0, -0.0, -INF, INF, NAN, NAN]),
    "sin": ([0.0, -0.0, INF, -INF, 1e30], [0, -0.0, NAN, NAN, 0]),
    "cos": ([0.0, -0.0, INF, -INF, 1e30], [1, 1, NAN, NAN, 1]),
    "logaddexp0": ([INF, -INF, 0.0, 1e30, -1e30], [INF, 0, math.log(2), 1e30, 0]),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str, dtype: type[np.floating]) -> None:
    """Exact answers, signs of zero, and one set of bits for every NaN."""
    x, want = SPECIAL[name]
    got = compute(name, np.array([*x, NAN, -NAN], dtype))
    assert got.tobytes() == np.array([*want, NAN, NAN], dtype).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_trig_stays_within_one_outside_its_range(name: str, dtype: type[np.floating]) -> None:
    x = np.geomspace(1, float(np.finfo(dtype).max) / 2, 200_001, dtype=dtype)
    got = compute(name, np.concatenate([x, -x]))
    assert np.all(np.abs(got) <= 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sqrt_and_floor_are_exact(dtype: type[np.floating]) -> None:
    x = np.abs(np.random.default_rng(1).normal(size=10_000) * 100).astype(dtype)
    assert np.array_equal(compute("sqrt", x), np.sqrt(x))
    assert np.array_equal(compute("floor", -x), np.floor(-x))


@pytest.mark.parametrize("flags", [PLAIN, TRAPPING], ids=["O0", "trapping"])
@pytest.mark.parametrize("name", NAMES)
def test_same_bits_however_compiled(name: str, flags: tuple[str, ...]) -> None:
    float_patterns = np.arange(0, 2**32, 16411, dtype=np.uint64).astype(np.uint32).view(np.float32)
    for x in (float_patterns, borders(np.float32), double_points(name, 20_000)):
        if name in ("sqrt", "floor"):  # the hardware's NaN may have either sign
            x = x[x >= 0]
        assert compute(name, x).tobytes() == compute(name, x, *flags).tobytes()


def test_real_is_ours_in_a_fast_build() -> None:
    y, x = points_in_the_plane(np.float32, 1000)
    assert np.array_equal(angles(y, x, name="atan2_real"), angles(y, x))
    library = build(REAL_SOURCE)
    x = np.linspace(0.001, 80, 10_001, dtype=np.float32)
    for name in REAL_NAMES:
        assert np.array_equal(apply(library, f"{name}_real", x), compute(name, x))


def test_real_is_the_c_library_in_a_reference_build() -> None:
    reference = (*FAST, "-DZOO_REFERENCE=1")
    y, x = points_in_the_plane(np.float64, 1000)
    want = [math.atan2(b, a) for b, a in zip(y.tolist(), x.tolist(), strict=True)]
    assert angles(y, x, *reference, name="atan2_real").tolist() == want
    library = build(REAL_SOURCE, *reference)
    x = np.random.default_rng(2).uniform(0.001, 80, 2000)
    for name in ("exp", "log", "log1p", "sin", "cos"):
        want = [getattr(math, name)(v) for v in x.tolist()]
        assert apply(library, f"{name}_real", x).tolist() == want
    x = np.concatenate([x, -x, [0.0, -0.0, 1e3, -1e3, INF, -INF]])
    assert apply(library, "logaddexp0_real", x).tolist() == np.logaddexp(0, x).tolist()


# What NumPy's and Python's scalars do ---------------------------------------------------------


def rounded(name: str, x: Array, *flags: str) -> Array:
    return apply(build(ROUNDED_SOURCE, *(flags or FAST), "-DZOO_REFERENCE=1"), name, x)


@pytest.mark.parametrize("flags", [FAST, PLAIN], ids=["fast", "plain"])
def test_single_rounds_two_at_once(flags: tuple[str, ...]) -> None:
    """g++ 12 drops (double)(float)x here."""
    x = np.random.default_rng(0).normal(size=1000)
    assert np.array_equal(rounded("single", x, *flags), x.astype(np.float32).astype(np.float64))


def test_mod_is_pythons() -> None:
    x = np.concatenate([np.random.default_rng(0).uniform(-100, 100, 10_000), [0.0, 2 * math.pi]])
    assert rounded("mod", x).tolist() == [value % (2 * math.pi) for value in x.tolist()]
    single = rounded("mod_float", x.astype(np.float32))
    error = np.abs(single - x % (2 * math.pi))
    assert np.minimum(error, 2 * math.pi - error).max() < 2e-5


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_square_is_numpys(kind: type[np.floating]) -> None:
    """Of one number; of an array NumPy's x ** 2 is x * x, and so is ours in fast numerics."""
    x = np.random.default_rng(0).normal(size=20_000).astype(kind)
    name = "square" if kind is np.float64 else "square_float"
    assert rounded(name, x).tolist() == [value**2 for value in x]
    fast = apply(build(ROUNDED_SOURCE, *FAST), name, x)
    assert np.array_equal(fast, x * x)
