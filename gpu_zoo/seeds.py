"""From a seed to each environment's random number generator."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.errors import InvalidSeed
from gpu_zoo.spec import Numerics

MAX_SEED = 2**63 - 1


def seed_rows(
    seed: int | Sequence[int] | None, num_envs: int, numerics: Numerics
) -> npt.NDArray[np.int64]:
    """The generators' words of 64 bits, ``(num_envs, words)``, as the kernel has them.

    Args:
        seed: environment i gets ``seed + i``, or ``seed[i]``; None takes the operating system's
            entropy.
        num_envs: number of environments.
        numerics: which generator it is.

    Raises:
        InvalidSeed: a seed out of 0 ... 2**63 - 1, or not one for each environment.
    """
    if seed is None:
        seeds = [secrets.randbits(62) for _ in range(num_envs)]
    else:
        seeds = _checked(seed, num_envs, numerics)
    if numerics == "reference":
        fresh = (np.random.PCG64(np.random.SeedSequence(one)) for one in seeds)
        rows = np.array([_words(bits.state) for bits in fresh], np.uint64)
    else:
        rows = np.zeros((num_envs, 2), np.uint64)
        rows[:, 0] = seeds
    return rows.view(np.int64)  # torch has no uint64 to speak of


def _checked(seed: int | Sequence[int], num_envs: int, numerics: Numerics) -> list[int]:
    if (
        isinstance(seed, (bool, np.bool_))
        or not isinstance(seed, (int, np.integer, list, tuple, np.ndarray))
        or (isinstance(seed, np.ndarray) and seed.ndim == 0)
    ):
        raise InvalidSeed(f"seed={seed!r}: expected an int or one int an environment")
    if isinstance(seed, (int, np.integer)):
        seeds = [int(seed) + i for i in range(num_envs)]
    else:
        seeds = [_as_int(one) for one in seed]
    if len(seeds) != num_envs:
        raise InvalidSeed(f"seed: {len(seeds)} seeds for {num_envs} environments")
    # NumPy's seed sequence, which reference numerics uses, takes any size.
    limit = MAX_SEED if numerics == "fast" else None
    if min(seeds) < 0 or (limit is not None and max(seeds) > limit):
        bound = "" if limit is None else " <= 2**63 - 1 - num_envs"
        raise InvalidSeed(f"seed={seed!r}: expected 0 <= seed{bound}")
    return seeds


def _as_int(seed: Any) -> int:
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise InvalidSeed(f"seed: {seed!r} among the seeds, expected ints")
    return int(seed)


def generator_of(words: npt.NDArray[np.int64], numerics: Numerics) -> np.random.Generator:
    """A generator as NumPy's that stands where the words of an environment's do.

    In fast numerics, whose generator NumPy has not in this form, it is one seeded by the words.
    """
    row = [int(word) for word in words.view(np.uint64)]
    if numerics == "fast":
        return np.random.default_rng(row)
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": row[0] << 64 | row[1], "inc": row[2] << 64 | row[3]},
        "uinteger": row[4] & 0xFFFFFFFF,
        "has_uint32": row[4] >> 32,
    }
    return np.random.Generator(bits)


def words_of(generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """An environment's words in reference numerics, from NumPy's PCG64 where it stands."""
    return np.array(_words(generator.bit_generator.state), np.uint64).view(np.int64)


def _words(whole: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
    """The kernel's five words of a state of NumPy's PCG64."""
    state, low = whole["state"], (1 << 64) - 1
    buffer = whole["has_uint32"] << 32 | whole["uinteger"]
    return (
        state["state"] >> 64,
        state["state"] & low,
        state["inc"] >> 64,
        state["inc"] & low,
        buffer,
    )
