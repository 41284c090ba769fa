"""PettingZoo's faces of an environment: drop-ins for the original's module.

``drop_in(SPEC)`` gives ``raw_env`` (an AEC environment class), ``env`` (the same behind
PettingZoo's usual wrappers) and ``parallel_env``, with the original's parameters, agent names,
spaces, order of events and, in reference numerics, its very numbers. One environment of the batch
serves them, so the rules exist once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import wrappers

from gpu_zoo.errors import InvalidAction
from gpu_zoo.spec import EnvSpec, Numerics, Param
from gpu_zoo.wrappers.face import Face


class DropIn(NamedTuple):
    """What a module such as ``mpe2.simple_spread_v3`` has."""

    raw_env: type[AECFace]
    env: Callable[..., AECEnv[str, Any, Any]]
    parallel_env: Callable[..., ParallelFace]


class ParallelFace(Face, ParallelEnv[str, Any, Any]):
    """One environment with PettingZoo's parallel API: all agents act at once."""

    _parallel = True

    def __init__(self, spec: EnvSpec, numerics: Numerics = "reference", **params: Any) -> None:
        self._set_up(spec, numerics, params)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode. ``options`` are accepted and mean nothing, as in the original."""
        self.game.reset(seed)
        self.agents = self.possible_agents[:]
        return self._observations(), self.game.masks()

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[
        dict[str, Any],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """All agents act; returns observations, rewards, terminations, truncations and infos.

        Raises:
            ResetNeeded: no reset yet.
            InvalidAction: an agent without a valid action, or one that its mask forbids; nothing
                moved.
        """
        self._require_reset("step")
        if not self.agents:
            return {}, {}, {}, {}, {}
        if not isinstance(actions, Mapping):
            raise InvalidAction(f"actions: {type(actions).__name__}, expected a dict by agent")
        for agent in self.agents:
            if agent not in actions:
                raise InvalidAction(f"actions: nothing for {agent}")
            self.game.set_action(agent, actions[agent])
        if len(actions) != len(self.agents):
            unknown = [repr(name) for name in actions if name not in self.agents]
            raise InvalidAction(f"actions: unknown agent {', '.join(unknown)}")
        self.game.step()
        terminations = self._of_those_here(self.game.terminations())
        truncations = self._of_those_here(self.game.truncations())
        results = (
            self._observations(),
            self._of_those_here(self.game.rewards()),
            terminations,
            truncations,
            self._of_those_here(self.game.infos()),
        )
        self.agents = [a for a in self.agents if not (terminations[a] or truncations[a])]
        if self.render_mode == "human":
            self.render()
        return results

    def _observations(self) -> dict[str, Any]:
        return {agent: self.game.observe(agent) for agent in self.agents}


class AECFace(Face, AECEnv[str, Any, Any]):
    """One environment with PettingZoo's AEC API: agents act in turn, the world after the last."""

    _parallel = False

    def __init__(self, *args: Any, numerics: Numerics = "reference", **params: Any) -> None:
        names = list(self._spec.params)
        twice = [name for name in names[: len(args)] if name in params]
        if twice:
            raise TypeError(f"{self._spec.id}: {twice[0]} is given twice")
        if len(args) > len(names):
            raise TypeError(f"{self._spec.id} takes {len(names)} parameters, got {len(args)}")
        self._set_up(self._spec, numerics, {**dict(zip(names, args, strict=False)), **params})
        # Unlike a parallel one, the original AEC environment lists its agents before reset().
        self.agents = self.possible_agents[:]

    def observe(self, agent: str) -> Any:
        """The agent's observation now, float32."""
        self._require_reset("observe")
        self.game.refresh()
        return self.game.observe(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode. ``options`` are accepted and mean nothing, as in the original."""
        self.game.reset(seed)
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = self.game.masks()
        self.agent_selection = self.agents[0]
        self.steps = 0

    def step(self, action: Any) -> None:
        """The selected agent acts; after the last one of a round the world moves.

        Raises:
            ResetNeeded: no reset yet.
            InvalidAction: the action is not in the agent's action space, or its mask forbids it.
        """
        self._require_reset("step")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self.game.set_action(agent, action)
        turn = self.agents.index(agent)
        self.agent_selection = self.agents[(turn + 1) % len(self.agents)]
        if turn == len(self.agents) - 1:
            self.game.step()
            self.steps += 1
            self.rewards = self._of_those_here(self.game.rewards())
            self.terminations = self._of_those_here(self.game.terminations())
            self.truncations = self._of_those_here(self.game.truncations())
            self.infos = self._of_those_here(self.game.infos())
            self._select_first()
        else:
            self._clear_rewards()
        self._cumulative_rewards[agent] = 0
        self._accumulate_rewards()
        if self.render_mode == "human":
            self.render()

    def _select_first(self) -> None:
        """The next round's first agent; before it, those that leave take their last step."""
        staying = [a for a in self.agents if not (self.terminations[a] or self.truncations[a])]
        if staying and len(staying) < len(self.agents):
            self.agent_selection = staying[0]
            self._deads_step_first()


@cache
def faces(spec: EnvSpec) -> tuple[type[AECFace], type[ParallelFace]]:
    """The classes of one environment, which has its parameters as attributes."""
    module = f"gpu_zoo.{spec.family}.{spec.name}"
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=param.default)
        for name, param in spec.params.items()
    ]
    # What a face has already it treats in its own way.
    taken = {"render_mode", *dir(Face)}
    settings = {name: _setting(name, p) for name, p in spec.params.items() if name not in taken}
    own = {**settings, "_spec": spec, "__module__": module}
    doc = f"{spec.summary} AEC API, without wrappers; see :class:`AECFace`."
    signature = inspect.Signature(parameters)
    raw_env = type("raw_env", (AECFace,), {**own, "__doc__": doc, "__signature__": signature})
    parallel = type("ParallelFace", (ParallelFace,), {**own, "__doc__": ParallelFace.__doc__})
    return raw_env, parallel


def _setting(name: str, param: Param) -> property:
    """A parameter as the attribute that the original has; to write if the kernel reads it anew."""

    def read(face: Face) -> Any:
        return face.game.vector.params[name]

    def write(face: Face, value: Any) -> None:
        # One value: the batch would take a list of one, too.
        face.game.vector.set_param(name, param.check(name, value))

    return property(read, write if param.at == "launch" else None, doc=param.doc)


@cache
def drop_in(spec: EnvSpec) -> DropIn:
    """The three names that the original's module has, for one environment."""
    raw_env, parallel = faces(spec)

    def env(**params: Any) -> AECEnv[str, Any, Any]:
        bare = raw_env(**params)
        clip = wrappers.ClipOutOfBoundsWrapper
        check = wrappers.AssertOutOfBoundsWrapper
        continuous = bare.params.get("continuous_actions", False)
        return wrappers.OrderEnforcingWrapper((clip if continuous else check)(bare))

    env.__doc__ = f"{spec.summary} AEC API, behind PettingZoo's usual wrappers."
    return DropIn(raw_env, env, partial(parallel, spec))
