"""zoo/rand.cuh: Philox by its published answers and by statistics, PCG64 by NumPy's own draws."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from .harness import FAST, Array, build, pointer

FAST_SOURCE = """#include "zoo/rand.cuh"
extern "C" {
void philox(const u32* counter, const u32* key, u32* out) { philox4x32(counter, key, out); }
// The first count draws of each (seed, episode): row i of out. Returns the last Rng's draw.
u32 bits(const u64* seeds, const u32* episodes, long rows, long count, u32* out) {
  Rng r = {0, 0, 0};
  for (long i = 0; i < rows; i++) {
    r = Rng{seeds[i], episodes[i], 0};
    for (long j = 0; j < count; j++) out[i * count + j] = rng_bits(r);
  }
  return r.draw;
}
u32 uniform(u64 seed, u32 episode, float lo, float hi, long count, float* out) {
  Rng r = {seed, episode, 0};
  for (long j = 0; j < count; j++) out[j] = rng_uniform(r, lo, hi);
  return r.draw;
}
u32 integers(u64 seed, u32 episode, int n, long count, int* out) {
  Rng r = {seed, episode, 0};
  for (long j = 0; j < count; j++) out[j] = rng_integers(r, n);
  return r.draw;
}
}
"""

REFERENCE_SOURCE = """#include "zoo/rand.cuh"
// Operation i is uniform(lo[i], hi[i]) where n[i] is 0, else integers(n[i]).
extern "C" void draw(Rng* r, const int* n, const double* lo, const double* hi, long count,
                     double* out) {
  for (long i = 0; i < count; i++)
    out[i] = n[i] ? (double)rng_integers(*r, n[i]) : rng_uniform(*r, lo[i], hi[i]);
}
"""

KNOWN_ANSWERS = [
    ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text: str) -> Array:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


def bits(seeds: Array, episodes: Array, count: int) -> Array:
    """The first `count` words of each (seed, episode), a row each."""
    seeds, episodes = seeds.astype(np.uint64), episodes.astype(np.uint32)
    out = np.empty((seeds.size, count), np.uint32)
    long = ctypes.c_long
    build(FAST_SOURCE).bits(
        pointer(seeds), pointer(episodes), long(seeds.size), long(count), pointer(out)
    )
    return out


def uniform(seed: int, episode: int, lo: float, hi: float, count: int) -> Array:
    out = np.empty(count, np.float32)
    build(FAST_SOURCE).uniform(
        ctypes.c_uint64(seed), ctypes.c_uint32(episode), ctypes.c_float(lo), ctypes.c_float(hi),
        ctypes.c_long(count), pointer(out),
    )  # fmt: skip
    return out


def integers(seed: int, episode: int, n: int, count: int) -> tuple[Array, int]:
    """The first draws below n, and how many words they took."""
    out = np.empty(count, np.int32)
    function = build(FAST_SOURCE).integers
    function.restype = ctypes.c_uint32
    drawn = function(
        ctypes.c_uint64(seed), ctypes.c_uint32(episode), ctypes.c_int(n), ctypes.c_long(count),
        pointer(out),
    )  # fmt: skip
    return out, int(drawn)


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN_ANSWERS, ids=["zeros", "ones", "pi"])
def test_philox_known_answers(counter: str, key: str, want: str) -> None:
    out = np.empty(4, np.uint32)
    build(FAST_SOURCE).philox(pointer(words(counter)), pointer(words(key)), pointer(out))
    assert out.tolist() == words(want).tolist()


def test_a_draw_is_the_first_word_of_its_block() -> None:
    seed, episode, out = 0x0123456789ABCDEF, 77, np.empty(4, np.uint32)
    got = bits(np.array([seed], np.uint64), np.array([episode]), 50)[0]
    key = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32)
    for draw in range(50):
        counter = np.array([draw, episode, 0, 0], np.uint32)
        build(FAST_SOURCE).philox(pointer(counter), pointer(key), pointer(out))
        assert got[draw] == out[0]


def assert_flat(values: Array) -> None:
    """Chi-square of 32 bit words in 16 bins, by the high and by the low four bits."""
    for bins in (values >> 28, values & 15):
        counts = np.bincount(bins.ravel().astype(np.int64), minlength=16)
        assert stats.chisquare(counts).pvalue > 1e-4


def assert_uncorrelated(a: Array, b: Array) -> None:
    assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / np.sqrt(a.size)
    same_bits = 1 - np.unpackbits((a ^ b).view(np.uint8)).mean()
    assert abs(same_bits - 0.5) < 5 * 0.5 / np.sqrt(32 * a.size)


@pytest.mark.parametrize("vary", ["draw", "seed", "seed_hi", "episode"])
def test_statistics(vary: str) -> None:
    """Flat, and neighbours unrelated, along each of the numbers a draw depends on."""
    many, zero = np.arange(200_000, dtype=np.uint64), np.zeros(200_000, np.uint64)
    if vary == "draw":
        values = bits(zero[:1], zero[:1], many.size)[0]
    elif vary == "episode":
        values = bits(zero + 5, many, 1)[:, 0]
    else:
        values = bits(many << np.uint64(32 if vary == "seed_hi" else 0), zero, 1)[:, 0]
    assert_flat(values)
    for lag in (1, 2, 16, 1024):
        assert_uncorrelated(values[:-lag], values[lag:])


def test_streams_of_neighbouring_seeds_and_episodes_are_unrelated() -> None:
    seeds, episodes = np.meshgrid(np.arange(16), np.arange(16))
    values = bits(seeds.ravel(), episodes.ravel(), 2000).reshape(16, 16, 2000)
    assert np.unique(values).size > values.size * 0.999  # 512,000 words of 2^32: few repeats
    assert_uncorrelated(values[1:], values[:-1])
    assert_uncorrelated(values[:, 1:], values[:, :-1])
    assert_uncorrelated(values, values.transpose(1, 0, 2)[::-1])


def test_uniform_is_the_word_scaled() -> None:
    seed, episode, lo, hi = 2**40 + 3, 9, -1.5, 0.7
    got = uniform(seed, episode, lo, hi, 100_000)
    word = bits(np.array([seed], np.uint64), np.array([episode]), 100_000)[0]
    low, width = np.float32(lo), np.float32(hi) - np.float32(lo)
    unit = (word >> 8).astype(np.float32) * np.float32(2.0**-24)
    assert got.tobytes() == (low + width * unit).tobytes()
    assert got.min() >= low
    assert got.max() <= np.float32(hi)
    assert stats.kstest(got, stats.uniform(lo, hi - lo).cdf).pvalue > 1e-4


@pytest.mark.parametrize("n", [2, 3, 5, 16, 1000])
def test_integers_are_flat(n: int) -> None:
    values, drawn = integers(11, 2, n, 200_000)
    assert drawn == values.size
    assert values.min() == 0
    assert values.max() == n - 1
    assert stats.chisquare(np.bincount(values, minlength=n)).pvalue > 1e-4


@given(
    seed=st.integers(0, 2**64 - 1), episode=st.integers(0, 2**32 - 1), n=st.integers(1, 2**31 - 1)
)
@settings(max_examples=200, deadline=None)
def test_integers_stay_below_n(seed: int, episode: int, n: int) -> None:
    values, drawn = integers(seed, episode, n, 20)
    assert np.all((values >= 0) & (values < n))
    assert drawn == (0 if n == 1 else 20)
    if n > 1:
        word = bits(np.array([seed], np.uint64), np.array([episode]), 20)[0].astype(object)
        assert values.tolist() == [w * n >> 32 for w in word]


# NumPy's generator. An operation is (0, lo, hi) for uniform or (n, 0, 0) for integers.
Operation = tuple[int, float, float]
MASK = 2**64 - 1


def reference_state(generator: np.random.Generator) -> list[int]:
    """NumPy's state as struct Rng's words: state, increment, the waiting half and whether it is."""
    state = generator.bit_generator.state
    inner = state["state"]
    halves = [half for key in ("state", "inc") for half in (inner[key] >> 64, inner[key] & MASK)]
    return [*halves, state["uinteger"] | state["has_uint32"] << 32]


def assert_like_numpy(seed: int, operations: list[Operation]) -> None:
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    rng = np.array(reference_state(generator), np.uint64)
    n = np.array([operation[0] for operation in operations], np.int32)
    lo, hi = (np.array([o[k] for o in operations], np.float64) for k in (1, 2))
    out = np.empty(n.size, np.float64)
    build(REFERENCE_SOURCE, *FAST, "-DZOO_REFERENCE=1").draw(
        pointer(rng), pointer(n), pointer(lo), pointer(hi), ctypes.c_long(n.size), pointer(out)
    )
    want = [
        float(generator.integers(count)) if count else generator.uniform(low, high)
        for count, low, high in operations
    ]
    assert out.tolist() == want
    assert rng.tolist() == reference_state(generator)


BOUND = st.floats(-1e6, 1e6)
OPERATION = st.one_of(
    st.tuples(st.just(0), BOUND, BOUND).map(lambda o: (o[0], min(o[1:]), max(o[1:]))),
    st.tuples(st.one_of(st.integers(1, 10), st.integers(1, 2**31 - 1)), st.just(0.0), st.just(0.0)),
)


@given(seed=st.integers(0, 2**128), operations=st.lists(OPERATION, min_size=1, max_size=60))
@settings(max_examples=300, deadline=None)
def test_reference_draws_what_numpy_draws(seed: int, operations: list[Operation]) -> None:
    assert_like_numpy(seed, operations)


@pytest.mark.parametrize("n", [3 * 2**29, 1431655766])
def test_reference_redraws_as_numpy_does(n: int) -> None:
    """2^32 mod n is large for these: a quarter and a third of the words are drawn again."""
    for seed in range(50):
        assert_like_numpy(seed, [(n, 0.0, 0.0), (0, -1.0, 1.0)] * 50)


def test_reference_follows_many_seeds() -> None:
    mixed: list[Operation] = [(0, -1.0, 1.0), (5, 0.0, 0.0), (1, 0.0, 0.0), (7, 0.0, 0.0)]
    for seed in range(500):
        assert_like_numpy(seed, mixed * 5)
