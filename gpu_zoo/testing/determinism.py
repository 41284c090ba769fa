"""An environment's episode depends on its seed and its actions, and on nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpu_zoo.spec import EnvSpec, Numerics
from gpu_zoo.testing.play import (
    Arrays,
    Subject,
    after_reset,
    bits,
    random_actions,
    record,
    some_environments,
)

CHECK = "check_determinism"
SEED = 7
BATCH = 64
LIMIT = 25  # steps an episode has at most here, so that a play sees several


def check_determinism(
    spec: EnvSpec,
    params: Mapping[str, Any] | None = None,
    *,
    numerics: Numerics = "fast",
    random_start: bool = True,
    threads: tuple[int, ...] = (1, 2, 3),
) -> None:
    """Check that the same seed gives the same play whatever the batch, threads and history.

    All plays run over several episodes without a new seed.

    Args:
        spec: the environment.
        params: its parameters.
        numerics: ``"fast"`` or ``"reference"``.
        random_start: whether another seed must give another play; False for environments
            without chance.
        threads: numbers of threads to compare on the CPU.

    Raises:
        CheckFailed: the first place where two plays differ that should not, or the other way.
    """
    subject = Subject(spec, params or {}, numerics).limited(LIMIT)
    env = subject.make(BATCH)
    actions = random_actions(env, 3 * LIMIT - 5)
    want = record(env, actions, SEED)
    again = record(subject.make(BATCH), actions, SEED)
    subject.require_equal(CHECK, "played twice with one seed", again, want)
    replayed = after_reset(record(env, actions, SEED))
    subject.require_equal(CHECK, "reset after a play", replayed, after_reset(want))
    if random_start:
        _check_other_seed(subject, want, record(env, actions, SEED + 1000))
    _check_batches(subject, actions, want)
    _check_threads(subject.limited(7), threads)


def _check_other_seed(subject: Subject, one: Arrays, other: Arrays) -> None:
    """Most environments differ under another seed, after the first step and episode too."""
    different = np.zeros(one["steps"].shape, np.bool_)
    for name, array in one.items():
        if name.startswith("observations/"):
            axes = tuple(range(2, array.ndim))
            different |= (bits(array) != bits(other[name])).any(axis=axes)
    # In SAME_STEP mode the step that ends an episode already shows the next one.
    later = np.logical_or.accumulate(one["done"], axis=0)
    for where, rows in (("in the first episode", ~later), ("in later episodes", later)):
        rows[:2] = False  # an environment may look random in its first two observations only
        same = rows.any(axis=0) & ~(different & rows).any(axis=0)
        if same.mean() > 0.5:
            env = int(same.argmax())
            raise subject.failure(
                CHECK,
                f"another seed: environment {env}, step {int(rows[:, env].argmax())} on, "
                f"observations: the same {where}, expected others",
            )


def _check_batches(subject: Subject, actions: Arrays, want: Arrays) -> None:
    for count in (1, 5):
        part = slice(0, count)
        got = record(subject.make(count), some_environments(actions, part), SEED)
        subject.require_equal(CHECK, f"in a batch of {count}", got, _environments(want, part))
    for index in (1, BATCH - 1):
        part = slice(index, index + 1)
        got = record(subject.make(1), some_environments(actions, part), SEED + index)
        what = f"alone, compared with environment {index} of {BATCH}"
        subject.require_equal(CHECK, what, got, _environments(want, part))
    turned = {name: array[:, ::-1] for name, array in actions.items()}
    seeds = [SEED + i for i in reversed(range(BATCH))]
    got = record(subject.make(BATCH), turned, seeds)
    subject.require_equal(
        CHECK, "in reverse order", got, _environments(want, slice(None, None, -1))
    )


def _environments(recording: Arrays, which: slice) -> Arrays:
    return {name: array[:, which] for name, array in recording.items()}


def _check_threads(subject: Subject, threads: tuple[int, ...]) -> None:
    want: Arrays | None = None
    for count in threads:
        with _num_threads(count):
            chunk = subject.make(1).engine.backend._chunk  # type: ignore[attr-defined]
            env = subject.make(3 * chunk + 5)
        got = record(env, random_actions(env, 16), SEED)
        want = want or got
        subject.require_equal(CHECK, f"{count} threads against {threads[0]}", got, want)


@contextmanager
def _num_threads(count: int) -> Iterator[None]:
    name = "GPU_ZOO_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
