"""The contract of the batched environment, checked on every step of a long random play."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from gpu_zoo.spec import EnvSpec, GroupLayout, Numerics
from gpu_zoo.testing.play import (
    Array,
    Arrays,
    CheckFailed,
    Subject,
    after_reset,
    allowed_actions,
    bits,
    difference_in,
    place,
    put_actions,
    random_actions,
    record_on,
    snapshot,
)
from gpu_zoo.vector import VectorEnv

POISON_FLAG = 0xAA  # neither true nor false
POISON_LENGTH = -7
SEED = 11
# What a step must write wherever the environment moved, and what belongs to the next episode.
STEP_BUFFERS = ("rewards/", "terminations/", "truncations/", "infos/", "last_", "done")
EPISODE_BUFFERS = (
    "observations/", "action_masks/", "steps", "active/", "episode_returns/", "rng", "state/",
)  # fmt: skip
ZERO_AFTER_RESET = (
    "rewards/", "terminations/", "truncations/", "infos/", "episode_returns/", "steps", "done",
)  # fmt: skip


@dataclass
class Coverage:
    """What a play came across."""

    steps: int = 0
    episodes: int = 0
    terminated: int = 0  # episodes that ended before the time limit


def check_contract(
    spec: EnvSpec,
    params: Mapping[str, Any] | None = None,
    *,
    numerics: Numerics = "fast",
    num_envs: int = 33,
    steps: int = 2000,
) -> Coverage:
    """Play at random in all three autoreset modes and check every buffer on every step.

    Observations lie in their space and are finite, all that must be written is written, a mask
    leaves something to do, the time limit and the statistics are exact, a finished episode is
    followed by what its mode says (held against a twin that is reset by hand), and ``get_state``
    captures all there is.

    Returns:
        How many steps and episodes that were.

    Raises:
        CheckFailed: the first place where a promise is broken.
    """
    subject = Subject(spec, params or {}, numerics)
    coverage = Coverage()
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        _Play(subject, mode, num_envs, coverage).run(steps)
        for limit in (1, 3):  # the shortest episodes there are
            _Play(subject.limited(limit), mode, 5, coverage).run(4 * limit)
    _check_round_trip(subject.limited(25))
    for mode in AutoresetMode:
        _check_reset_mask(subject.limited(25), mode)
    return coverage


class _Play:
    """An environment in one mode beside a twin in DISABLED mode that gets the same actions.

    The twin is reset by hand where and when the mode says that the environment resets itself.
    """

    def __init__(
        self, subject: Subject, mode: AutoresetMode, num_envs: int, coverage: Coverage
    ) -> None:
        self.subject = subject
        self.mode = mode
        self.same_step = mode == AutoresetMode.SAME_STEP
        self.coverage = coverage
        self.env = subject.make(num_envs, autoreset_mode=mode)
        disabled = AutoresetMode.DISABLED
        # Finished environments are stepped too, to see that they stay as they are.
        self.twin = subject.make(num_envs, autoreset_mode=disabled, validate_actions=False)
        self.everywhere = np.ones(num_envs, np.bool_)
        self.step = 0
        self.steps = np.zeros(num_envs, np.int32)
        self.returns: Arrays = {
            name: np.zeros_like(self.env.engine.views[f"episode_returns/{name}"])
            for name in self.env.groups
        }
        self.active: Arrays = {
            name: np.ones_like(self.env.engine.views[f"active/{name}"]) for name in self.env.groups
        }

    def run(self, steps: int) -> None:
        actions = random_actions(self.env, steps)
        for env in (self.env, self.twin):
            self._poison(env, self.everywhere)
            observations, infos = env.reset(seed=SEED)
            self._check_fresh(env, self.everywhere)
            self._check_written(env, self.everywhere)
            self._check_faces(env, {"observations": observations})
            if set(infos) - {"action_mask"}:
                raise self._failure("environment 0, step 0, infos: not only masks after a reset")
        for index in range(steps):
            self.step += 1
            self._advance(actions, index)
        self.coverage.steps += steps

    def _advance(self, actions: Arrays, index: int) -> None:
        env, twin = self.env, self.twin
        over = twin.engine.views["done"].copy()  # only NEXT_STEP leaves any for the next step
        live = ~over
        chosen = allowed_actions(env, actions, index)
        put_actions(twin, actions, index)
        self._poison(env, self.everywhere)
        self._poison(twin, live)
        frozen = snapshot(twin) if over.any() else {}
        twin.step()
        self._equal("a finished environment in DISABLED mode was stepped", twin, frozen, over)
        results = env.step(
            {
                agent: chosen[group][:, i]
                for group, agents in env.groups.items()
                for i, agent in enumerate(agents)
            }
        )
        self._check_written(env, live)
        self._check_book(over)
        names = ("observations", "rewards", "terminations", "truncations")
        self._check_faces(env, dict(zip(names, results, strict=False)))
        self._check_observe()
        self._follow(over)

    def _follow(self, over: Array) -> None:
        """Compare with the twin, which here goes where the mode sends the environment."""
        env, twin = self.env, self.twin
        want = snapshot(twin)
        self._equal("not as in DISABLED mode", env, _named(want, STEP_BUFFERS), ~over)
        if self.same_step:
            ended = want["done"]
            final = {
                name.replace("observations", "final_observations"): array
                for name, array in want.items()
                if name.startswith("observations/")
            }
            self._equal("not the finished episode's last observation", env, final, ended)
        else:
            ended = over
            still = _named(want, EPISODE_BUFFERS)
            self._equal("not as in DISABLED mode", env, still, ~over)
            self._check_fresh(env, over)
        if ended.any():
            self._poison(twin, ended)
            before = snapshot(twin)
            twin.reset(options={"reset_mask": ended})
            before["reset_mask"] = ended
            self._equal("reset by a mask that is false here", twin, before, ~ended)
            self._check_fresh(twin, ended)
            self._check_written(twin, ended, infos=False)
            fresh = _named(snapshot(twin), EPISODE_BUFFERS)
            self._equal("not as after a reset by hand", env, fresh, ended)
        if self.same_step:
            rest = _named(snapshot(twin), EPISODE_BUFFERS)
            self._equal("not as in DISABLED mode", env, rest, ~ended)

    # What is checked ---------------------------------------------------------------------------

    def _poison(self, env: VectorEnv, rows: Array) -> None:
        """Fill what the next launch must write, so that it shows if it does not."""
        for name, view in env.engine.views.items():
            if name.startswith(("observations/", "rewards/", "infos/", "last_returns/")):
                view[rows] = np.nan
            elif name.startswith("final_observations/"):
                view[...] = np.nan
            elif name.startswith(("terminations/", "truncations/", "action_masks/")):
                view.view(np.uint8)[rows] = POISON_FLAG
            elif name == "last_lengths":
                view[rows] = POISON_LENGTH
        if env.autoreset_mode == AutoresetMode.SAME_STEP:  # else it is read as well
            env.engine.views["done"].view(np.uint8)[rows] = POISON_FLAG

    def _check_written(self, env: VectorEnv, rows: Array, infos: bool = True) -> None:
        """All that a launch writes is there: finite, in its space, a proper flag."""
        infos = infos and self.step > 0
        for group in env.engine.program.groups:
            space = env.single_observation_space(group.agents[0])
            view = env.engine.views[f"observations/{group.name}"]
            name = f"observations/{group.name}"
            self._require(name, view, np.isfinite(view), self.everywhere, "a finite number")
            inside = (view >= space.low) & (view <= space.high)
            self._require(name, view, inside, self.everywhere, f"inside {space}")
            for kind in ("rewards", "infos") if infos and group.info_size else ("rewards",):
                view = env.engine.views[f"{kind}/{group.name}"]
                finite = np.isfinite(view)
                self._require(f"{kind}/{group.name}", view, finite, rows, "a finite number")
            for kind in ("terminations", "truncations"):
                view = env.engine.views[f"{kind}/{group.name}"].view(np.uint8)
                self._require(f"{kind}/{group.name}", view, view <= 1, rows, "0 or 1")
            if group.mask_size:
                self._check_masks(env, group)

    def _check_masks(self, env: VectorEnv, group: GroupLayout) -> None:
        """Whoever acts may do something, and whoever does not, anything."""
        name, view = f"action_masks/{group.name}", env.engine.views[f"action_masks/{group.name}"]
        raw = view.view(np.uint8)
        self._require(name, raw, raw <= 1, self.everywhere, "0 or 1")
        start = 0
        for k, count in enumerate(group.actions.counts):
            some = np.zeros_like(view)
            some[...] = view[..., start : start + count].any(-1, keepdims=True)
            some[..., :start] = some[..., start + count :] = True
            rule = f"some action of component {k} to be allowed"
            self._require(name, view, some, self.everywhere, rule)
            start += count
        waits = ~env.engine.views[f"active/{group.name}"]
        if env.autoreset_mode != AutoresetMode.SAME_STEP:
            waits |= env.engine.views["done"][:, None]
        free = view | ~waits[..., None]
        self._require(name, view, free, self.everywhere, "true, as the agent does not act")

    def _check_fresh(self, env: VectorEnv, rows: Array) -> None:
        """Just reset: nothing was earned and nothing is over."""
        for name, view in env.engine.views.items():
            if name.startswith(ZERO_AFTER_RESET):
                raw = view.view(np.uint8) if view.dtype == np.bool_ else view
                self._require(name, raw, raw == 0, rows, "0 after a reset")

    def _check_book(self, over: Array) -> None:
        """Steps, time limit, ends and returns, counted by hand from the published rewards."""
        env, live = self.env, ~over
        self.steps[live] += 1
        limit = env.params[env.spec.time_limit]
        timeout = live & (self.steps >= limit)
        done = live.copy()
        for name in env.groups:
            truncated = env.engine.views[f"truncations/{name}"]
            terminated = env.engine.views[f"terminations/{name}"]
            ends = np.broadcast_to(timeout[:, None], truncated.shape)
            self._require(
                f"truncations/{name}", truncated, truncated == ends, live,
                f"true at {env.spec.time_limit}={limit} steps and nowhere else",
            )  # fmt: skip
            gone = ~self.active[name]
            if env.spec.timeout_wins:
                self._require(
                    f"terminations/{name}", terminated, gone | ~(terminated & ends), live,
                    "false where truncated",
                )  # fmt: skip
            self._check_gone(name, gone, live)
            done &= (terminated | truncated).all(axis=1)
            # In the order of the steps and in their own precision, as the kernel adds.
            self.returns[name][live] += env.engine.views[f"rewards/{name}"][live]
        want: Arrays = {"done": done}
        want["last_lengths"] = np.where(done, self.steps, POISON_LENGTH).astype(np.int32)
        for name, total in self.returns.items():
            view = env.engine.views[f"last_returns/{name}"]
            want[f"last_returns/{name}"] = np.where(done[:, None], total, np.nan).astype(view.dtype)
        ended = done if self.same_step else over
        self.steps[ended] = 0
        want["steps"] = self.steps
        for name, active in self.active.items():
            active[ended] = True
            want[f"active/{name}"] = active
        for name, total in self.returns.items():
            total[ended] = 0
            want[f"episode_returns/{name}"] = total
        self._equal("not what the rewards and flags add up to", env, want, self.everywhere)
        self.coverage.episodes += int(done.sum())
        self.coverage.terminated += int((done & ~timeout).sum())

    def _check_gone(self, name: str, gone: Array, live: Array) -> None:
        """Who has left stays terminated and earns nothing; who terminates leaves."""
        terminated = self.env.engine.views[f"terminations/{name}"]
        rewards = self.env.engine.views[f"rewards/{name}"]
        self._require(f"terminations/{name}", terminated, terminated | ~gone, live, "still true")
        self._require(f"rewards/{name}", rewards, (rewards == 0) | ~gone, live, "0 after the end")
        if self.env.spec.leaving:
            self.active[name][live] = (~gone & ~terminated)[live]

    def _check_observe(self) -> None:
        """Observing again changes nothing: the observation is the state's, not an old one."""
        want = _named(snapshot(self.env), ("observations/", "action_masks/", "state/", "rng"))
        for name, view in self.env.engine.views.items():
            if name.startswith("observations/"):
                view[...] = np.nan
            elif name.startswith("action_masks/"):
                view.view(np.uint8)[...] = POISON_FLAG
        self.env.set_state({})
        self._equal("stale: not what is observed now", self.env, want, self.everywhere, swap=True)

    def _check_faces(self, env: VectorEnv, results: Mapping[str, Mapping[str, Any]]) -> None:
        """The dicts by agent are slices of the groups' arrays."""
        if self.step > 50:  # nothing about it changes later, and it takes long
            return
        for kind, by_agent in results.items():
            if list(by_agent) != list(env.agents):
                raise self._failure(f"environment 0, step {self.step}, {kind}: not the agents")
            for group, agents in env.groups.items():
                whole = env.engine.views[f"{kind}/{group}"]
                for i, agent in enumerate(agents):
                    mine = by_agent[agent]
                    if not np.shares_memory(mine, whole) or (bits(mine) != bits(whole[:, i])).any():
                        raise self._failure(
                            f"environment 0, step {self.step}, {kind}[{agent!r}]: not its slice"
                        )

    # Raising -----------------------------------------------------------------------------------

    def _require(self, name: str, values: Array, good: Array, rows: Array, rule: str) -> None:
        wrong = ~good & rows.reshape(-1, *(1,) * (good.ndim - 1))
        if wrong.any():
            at = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
            where = place(name, (self.step, *at))
            raise self._failure(f"{where} {values[at]}, expected {rule}")

    def _equal(
        self, what: str, env: VectorEnv, want: Arrays, rows: Array, swap: bool = False
    ) -> None:
        """Raise unless the environment's buffers hold ``want`` in these rows."""
        if not want or not rows.any():
            return
        got = snapshot(env)
        got = {name: got[name] for name in want}
        problem = difference_in(rows, *((want, got) if swap else (got, want)), self.step)
        if problem:
            raise self._failure(f"{problem} ({what})")

    def _failure(self, problem: str) -> CheckFailed:
        return self.subject.failure("check_contract", f"{self.mode.value}: {problem}")


def _named(arrays: Arrays, prefixes: tuple[str, ...]) -> Arrays:
    return {name: array for name, array in arrays.items() if name.startswith(prefixes)}


def _check_round_trip(subject: Subject, num_envs: int = 35, steps: int = 40) -> None:
    """A state put into another environment goes on there as it does here."""
    here, there = subject.make(num_envs), subject.make(num_envs)
    actions = random_actions(here, 2 * steps)
    first = {name: array[:steps] for name, array in actions.items()}
    second = {name: array[steps:] for name, array in actions.items()}
    here.reset(seed=SEED)
    record_on(here, first)
    state = here.get_state()
    want = record_on(here, second)
    there.reset(seed=SEED + 1000)
    there.set_state(state)
    got = record_on(there, second)
    # At first rewards and flags are still those of the reset.
    kept = {n: a for n, a in want.items() if n.startswith((*EPISODE_BUFFERS, "last_"))}
    what = "after set_state(get_state())"
    subject.require_equal("check_contract", what, _only_first(got, kept), _only_first(want, kept))
    rows = after_reset(want)
    subject.require_equal("check_contract", what, _later(got, rows), _later(want, rows), 1)


def _only_first(arrays: Arrays, names: Arrays) -> Arrays:
    return {name: arrays[name][:1] for name in names}


def _later(arrays: Arrays, names: Arrays) -> Arrays:
    return {name: arrays[name][1:] for name in names}


def _check_reset_mask(subject: Subject, mode: AutoresetMode, num_envs: int = 35) -> None:
    """In the middle of an episode a masked reset starts a new one where it should, only there."""
    env = subject.make(num_envs, autoreset_mode=mode, validate_actions=False)
    mask = np.arange(num_envs) % 3 == 1
    env.reset(seed=SEED)
    record_on(env, random_actions(env, 8))
    before = snapshot(env)
    env.reset(options={"reset_mask": mask})
    after = snapshot(env)
    zeros = {n: np.zeros_like(a) for n, a in after.items() if n.startswith(ZERO_AFTER_RESET)}
    kept = {**before, "reset_mask": mask}
    for what, want, rows in (
        ("reset by a mask", zeros, mask),
        ("changed by a reset whose mask is false here", kept, ~mask),
    ):
        problem = difference_in(rows, after, want, 8)
        if problem:
            raise subject.failure("check_contract", f"{mode.value}: {problem} ({what})")
