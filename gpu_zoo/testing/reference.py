"""A kernel beside the same rules in plain Python, step by step.

A kernel is fast and hard to read; a few lines of Python are slow and easy to read. Whoever writes
the rules twice, once each way, finds the mistakes of both.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode

from gpu_zoo.spec import EnvSpec, Numerics
from gpu_zoo.testing.play import (
    Array,
    Arrays,
    CheckFailed,
    CheckSkipped,
    Subject,
    allowed_actions,
    put_actions,
    random_actions,
)
from gpu_zoo.vector import VectorEnv

CHECK = "check_reference"
SEED = 13
LIMIT = 25  # steps an episode has at most in the second play, so that it sees several
# How far numbers may be apart, relative to the expected one or to 1. In fast numerics the state is
# float32, and what the rules compute in float64 drifts away from it.
OBSERVATIONS = {"reference": 1e-6, "fast": 1e-3}
REWARDS = {"reference": 1e-9, "fast": 1e-3}
ByAgent = Mapping[str, Any]


class Rules(Protocol):
    """The rules of one environment in plain Python, as :func:`check_reference` plays them.

    Where actions are masked they may also have a method ``action_masks()``, which returns the masks
    of the agents still in the game, after a reset and after each step: bools ``(n,)`` by agent.
    """

    def __init__(self, **params: Any) -> None:
        """Take all of the environment's parameters by name, defaults included."""

    def reset(self, state: Mapping[str, Array]) -> ByAgent:
        """Begin an episode in this state.

        Args:
            state: the fields of the spec's ``state``, as
                :meth:`~gpu_zoo.vector.VectorEnv.get_state` has them, of one environment:
                an array of the field's shape each, which is yours to keep and to change.

        Returns:
            All agents' observations: numbers, ``(n,)`` each.
        """

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent]:
        """Move on by one step. The time limit is not the rules' business.

        Args:
            actions: the actions of the agents still in the game: an int each, or an array
                ``(size,)``. An agent is out once its termination was true.

        Returns:
            Observations, rewards and terminations, of these agents at least.
        """


def check_reference(
    spec: EnvSpec,
    params: Mapping[str, Any] | None = None,
    *,
    rules: Callable[..., Rules] | None = None,
    numerics: Numerics = "reference",
    num_envs: int = 7,
    steps: int = 200,
    observation_tolerance: float | None = None,
    reward_tolerance: float | None = None,
) -> None:
    """Play at random beside the rules in plain Python and compare all that an agent is told.

    That is done twice: with the time limit as it is, and with a short one, for many episodes.

    Args:
        spec: the environment.
        params: its parameters.
        rules: a class like :class:`Rules`.
        numerics: ``"fast"`` or ``"reference"``.
        num_envs: environments, each of which has rules of its own.
        steps: how many to play.
        observation_tolerance: how far an observation may be from the expected one, relative to it
            or to 1; by default 1e-6 in reference numerics and 1e-3 in fast numerics.
        reward_tolerance: likewise; 1e-9 and 1e-3.

    Raises:
        CheckFailed: the first place where they differ, or what is wrong with the rules' class.
        CheckSkipped: there are no rules.
    """
    if rules is None:
        raise CheckSkipped("no rules in plain Python were given")
    tolerances = {
        "observations": _default(observation_tolerance, OBSERVATIONS[numerics]),
        "rewards": _default(reward_tolerance, REWARDS[numerics]),
        "terminations": 0.0,
    }
    subject = Subject(spec, params or {}, numerics)
    for played in (subject, subject.limited(LIMIT)):
        _Duel(played, rules, num_envs, tolerances).run(steps)


def _default(given: float | None, default: float) -> float:
    return default if given is None else given


class _Duel:
    """A batch of environments and as many of the author's objects, played side by side."""

    def __init__(
        self,
        subject: Subject,
        rules: Callable[..., Rules],
        num_envs: int,
        tolerances: Mapping[str, float],
    ) -> None:
        self.subject = subject
        self.tolerances = tolerances
        self.step = 0
        self.env: VectorEnv = subject.make(num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
        self.rules = [self._ask(i, lambda: rules(**self.env.params)) for i in range(num_envs)]
        self.playing: list[list[str]] = [[] for _ in range(num_envs)]

    def run(self, steps: int) -> None:
        actions = random_actions(self.env, steps)
        self.env.reset(seed=SEED)
        self._begin(np.ones(self.env.num_envs, np.bool_))
        for index in range(steps):
            self.step += 1
            over = self.env.engine.views["done"].copy()
            chosen = allowed_actions(self.env, actions, index)
            put_actions(self.env, actions, index)
            self.env.step()
            self._advance(chosen, over)
            self._begin(over)

    def _begin(self, fresh: Array) -> None:
        """New episodes: the rules begin where the kernel has drawn them."""
        state = self.env.get_state() if fresh.any() else {}
        for i in np.flatnonzero(fresh).tolist():
            own = {name: np.array(state[name][i]) for name in self.env.spec.state}
            self.playing[i] = list(self.env.agents)
            observations = self._ask(i, partial(self.rules[i].reset, own))
            self._compare(i, "observations", observations)
            self._compare_masks(i)

    def _advance(self, actions: Arrays, over: Array) -> None:
        """A step of those whose episode goes on."""
        for i in np.flatnonzero(~over).tolist():
            given = {
                agent: _as_python(actions[group][i, k])
                for group, agents in self.env.groups.items()
                for k, agent in enumerate(agents)
                if agent in self.playing[i]
            }
            if not given:
                continue  # nobody is left to ask
            answer = self._ask(i, partial(self.rules[i].step, given))
            if not isinstance(answer, tuple) or len(answer) != 3:
                problem = "step() must return (observations, rewards, terminations)"
                raise self._failure(i, f"the rules' {problem}")
            for name, values in zip(self.tolerances, answer, strict=True):
                self._compare(i, name, values)
            ended = self._kernel("terminations")
            self.playing[i] = [agent for agent in self.playing[i] if not ended[agent][i]]
            self._compare_masks(i)

    def _compare_masks(self, i: int) -> None:
        """The masks of those who act next, if the rules have them."""
        masks = getattr(self.rules[i], "action_masks", None)
        if masks is not None and not self.env.engine.views["done"][i]:
            self._compare(i, "action_masks", self._ask(i, masks))

    def _compare(self, i: int, name: str, wanted: Any) -> None:
        """The kernel's values of environment ``i`` against the rules', agent by agent."""
        if not isinstance(wanted, Mapping):
            raise self._failure(i, f"the rules' {name}: {type(wanted).__name__}, expected a dict")
        kernel, truncations = self._kernel(name), self._kernel("truncations")
        for agent in self.playing[i]:
            if name == "terminations" and self.subject.spec.timeout_wins and truncations[agent][i]:
                continue  # at the time limit nobody terminates, whatever the rules say
            if agent not in kernel:
                continue  # its actions are not masked
            if agent not in wanted:
                raise self._failure(i, f"the rules' {name}: nothing for {agent!r}")
            got = np.asarray(kernel[agent][i])
            want = np.asarray(wanted[agent])
            if want.shape != got.shape:
                shapes = f"{want.shape}, expected {got.shape}"
                raise self._failure(i, f"the rules' {name}[{agent!r}]: shape {shapes}")
            self._require_close(i, name, agent, got, want.astype(got.dtype))

    def _require_close(self, i: int, name: str, agent: str, got: Array, want: Array) -> None:
        limit = self.tolerances.get(name, 0.0)
        exact = got.dtype == np.bool_
        close = got == want if exact else np.isclose(got, want, rtol=limit, atol=limit)
        if np.all(close):
            return
        at = np.unravel_index(int(np.argmin(close)), got.shape)
        index = "".join(f"[{k}]" for k in at)
        where = f"{name}[{agent!r}]{index}"
        raise self._failure(i, f"{where}: {got[at]}, expected {want[at]} by the rules")

    def _kernel(self, name: str) -> Mapping[str, Array]:
        """What the batch says: by agent, ``(num_envs, ...)``."""
        return self.env.engine.by_agent(name)

    def _ask(self, i: int, function: Callable[[], Any]) -> Any:
        """Call the author's code; an error in it is a finding, with the author's own line."""
        try:
            return function()
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(f"{type(error).__name__}: {error}".split())
            place = f"{Path(last.filename).name}:{last.lineno}"
            raise self._failure(i, f"the rules raised {text} ({place})") from error

    def _failure(self, i: int, problem: str) -> CheckFailed:
        return self.subject.failure(CHECK, f"environment {i}, step {self.step}, {problem}")


def _as_python(action: Array) -> Any:
    """A discrete action as an int, others as an array of their own."""
    return int(action) if np.ndim(action) == 0 else np.array(action)
