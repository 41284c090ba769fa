"""Random play and bit-for-bit comparison, on which all checks are built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.memory import to_numpy
from gpu_zoo.prelude import Features
from gpu_zoo.spec import EnvSpec, Numerics
from gpu_zoo.vector import VectorEnv

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
# Written only when an episode ends, or given from outside: what they hold after a reset depends
# on what was played before.
STALE_AFTER_RESET = ("final_observations", "last_", "infos", "actions", "reset_mask")


class CheckFailed(AssertionError):
    """An environment breaks a promise. One line: which, and the first place where it shows."""


class CheckSkipped(RuntimeError):
    """A check cannot run on this machine; the message says why."""


@dataclass(frozen=True)
class Subject:
    """What is checked: an environment with parameters, in one of the numerics."""

    spec: EnvSpec
    params: Mapping[str, Any]
    numerics: Numerics = "fast"

    def make(self, num_envs: int, **settings: Any) -> VectorEnv:
        """A batch of it."""
        return VectorEnv(
            self.spec, num_envs, numerics=self.numerics, **{**settings, **dict(self.params)}
        )

    def limited(self, steps: int) -> Subject:
        """The same with episodes of at most so many steps, so that a short play has many."""
        name = self.spec.time_limit
        given = self.spec.resolve(self.params)[name]
        assert isinstance(given, int)
        return Subject(self.spec, {**self.params, name: min(given, steps)}, self.numerics)

    def failure(self, check: str, problem: str) -> CheckFailed:
        """The error to raise."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        return CheckFailed(f"{check}: {self.spec.id}({given}), {self.numerics}: {problem}")

    def require_equal(
        self, check: str, what: str, got: Arrays, want: Arrays, first_step: int = 0
    ) -> None:
        """Raise unless two recordings, step and environment in front, hold the same bits."""
        problem = first_difference(got, want, first_step)
        if problem:
            raise self.failure(check, f"{what}: {problem}")


def give_own(env: VectorEnv, features: Features) -> None:
    """Give each environment its own time limit, and a pool of three states to start in."""
    if features.varied:
        env.set_param(env.spec.time_limit, np.arange(env.num_envs) % 3 + 2)
    if features.pool:
        env.reset(seed=99)
        state = env.get_state()
        rows = np.arange(3) % env.num_envs
        pool = {name: to_numpy(state[name])[rows] for name in env.engine.program.pooled}
        env.set_reset_pool(pool)


def random_actions(env: VectorEnv, steps: int, seed: int = 0) -> Arrays:
    """Actions by group, ``(steps, num_envs, agents, ...)``: often held for a few steps, so that
    the play gets somewhere, and for a box often exactly at a bound. Masks are another matter, see
    :func:`allowed_actions`.
    """
    rng = np.random.default_rng(seed)
    actions: Arrays = {}
    for group in env.engine.program.groups:
        shape = (steps, env.num_envs, group.count)
        if group.actions.choices is not None:
            counts = np.array(group.actions.choices)
            drawn = rng.integers(0, counts, (*shape, len(counts))).astype(np.int32)
        elif group.actions.box is None:
            drawn = rng.integers(0, len(group.actions.names), shape, np.int32)
        else:
            low, high = group.actions.box
            wide = rng.uniform(low - 0.3 * (high - low), high + 0.3 * (high - low), (
                *shape, group.action_size
            ))  # fmt: skip
            drawn = np.clip(wide, low, high).astype(np.float32)
        held = rng.random(shape) < 0.6
        for step in range(1, steps):
            drawn[step][held[step]] = drawn[step - 1][held[step]]
        actions[group.name] = drawn
    return actions


def some_environments(actions: Arrays, which: slice) -> Arrays:
    """The actions of some of the environments."""
    return {name: array[:, which] for name, array in actions.items()}


def allowed_actions(env: VectorEnv, actions: Arrays, step: int) -> Arrays:
    """One step's actions by group, ``(num_envs, agents, ...)``; for a forbidden one, the next that
    the environment allows now, counting on from it and around.
    """
    chosen = {name: array[step].copy() for name, array in actions.items()}
    for group in env.engine.program.groups:
        if group.mask_size:
            masks = to_numpy(env.engine.views[f"action_masks/{group.name}"])
            ends = np.cumsum(group.actions.counts)[:-1]
            for k, mask in enumerate(np.split(masks, ends, -1)):
                own = chosen[group.name]
                part = own[..., k] if group.action_size else own
                part[...] = _next_allowed(part, mask)
    return chosen


def _next_allowed(actions: Array, mask: Array) -> Array:
    count = mask.shape[-1]
    candidates = (actions[..., None] + np.arange(count)) % count
    first = np.take_along_axis(mask, candidates, -1).argmax(-1)
    chosen: Array = (actions + first) % count
    return chosen


def put_actions(env: VectorEnv, actions: Arrays, step: int) -> None:
    """Write one step's actions into the environment's buffers, with others for those forbidden."""
    for name, array in allowed_actions(env, actions, step).items():
        env.engine.views[f"actions/{name}"][...] = env.engine.backend.native(array)


def snapshot(env: VectorEnv) -> Arrays:
    """Copies of all buffers of the batch and of all state fields, as NumPy arrays."""
    arrays = {
        name: np.array(to_numpy(view))
        for name, view in env.engine.views.items()
        if name != "state" and not name.startswith("table/")  # which have no environment in front
    }
    for name, field in env.engine.program.fields.items():
        arrays[f"state/{name}"] = to_numpy(env.engine.memory.read(field))
    return arrays


def after_reset(arrays: Arrays) -> Arrays:
    """Without what a reset leaves as it was."""
    return {n: a for n, a in arrays.items() if not n.startswith(STALE_AFTER_RESET)}


def record(env: VectorEnv, actions: Arrays, seed: int | Sequence[int] | None = 0) -> Arrays:
    """Reset and play: every buffer after the reset and after each step, ``(steps + 1, ...)``."""
    env.reset(seed=seed)
    return record_on(env, actions)


def record_on(env: VectorEnv, actions: Arrays) -> Arrays:
    """Like :func:`record`, from where the environment stands."""
    frames = [snapshot(env)]
    for step in range(len(next(iter(actions.values())))):
        put_actions(env, actions, step)
        env.step()
        frames.append(snapshot(env))
    return {name: np.stack([frame[name] for frame in frames]) for name in frames[0]}


def first_difference(got: Arrays, want: Arrays, first_step: int = 0) -> str:
    """The earliest place where two recordings differ, in words; empty if they do not."""
    earliest: tuple[int, ...] | None = None
    message = ""
    for name, wanted in want.items():
        mine = got[name]
        if mine.shape != wanted.shape or mine.dtype != wanted.dtype:
            return f"{name}: {mine.dtype}{mine.shape}, expected {wanted.dtype}{wanted.shape}"
        different = bits(mine) != bits(wanted)
        if not different.any():
            continue
        at = tuple(int(i) for i in np.unravel_index(int(different.argmax()), different.shape))
        if earliest is None or at[:2] < earliest:
            earliest = at[:2]
            message = place(name, at, first_step) + f" {mine[at]}, expected {wanted[at]}"
    return message


def difference_in(rows: Array, got: Arrays, want: Arrays, step: int) -> str:
    """The first difference between two snapshots in the environments where ``rows`` is true."""
    problem = first_difference(
        {name: got[name][rows][None] for name in want},
        {name: array[rows][None] for name, array in want.items()},
        step,
    )
    if not problem:
        return ""
    # Rows were picked out: give the environment its own number again.
    row, rest = problem.removeprefix("environment ").split(",", 1)
    return f"environment {np.flatnonzero(rows)[int(row)]},{rest}"


def place(name: str, at: tuple[int, ...], first_step: int = 0) -> str:
    """Words for an index whose first two entries are step and environment."""
    index = "".join(f"[{i}]" for i in at[2:])
    return f"environment {at[1]}, step {at[0] + first_step}, {name}{index}:"


def bits(array: Array) -> Array:
    """The array as integers, in which NaN equals NaN and -0.0 is not 0.0."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
