"""A group of agents in all environments as rows of one array: what trainers of one agent see.

A lane is one agent of one environment. Most trainers know nothing of agents; to them every lane is
an environment of its own, and all lanes share one policy. Lanes of an environment lie side by side:
agent i of environment e is lane ``e * agents + i``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from gpu_zoo.memory import copied, to_numpy
from gpu_zoo.results import GroupBuffers
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.incoming import assign, require_batch, require_mode

# From a group's arrays to its actions: integers ``(num_envs, agents)``, or
# ``(num_envs, agents, components)``, or float32 ``(num_envs, agents, size)``.
Policy = Callable[[GroupBuffers], Any]


@dataclass(frozen=True)
class Outcome:
    """What a step did to each lane; bool ``(lanes,)``, of the batch's kind of array.

    Attributes:
        acted: the lane's agent was in the game when the step began.
        terminated: its episode ended with this step by the rules.
        truncated: its episode was cut off with this step. May be true with ``terminated``.
        ended: one of the two.
        over: its environment's episode ended, so what it observes now is the next one's first. A
            lane whose agent had left before is ``over`` without being ``ended``.
    """

    acted: Any
    terminated: Any
    truncated: Any
    ended: Any
    over: Any

    @property
    def cut(self) -> Any:
        """Cut off and not terminated, so that what would have come is worth its value."""
        return self.truncated & ~self.terminated

    @property
    def done(self) -> Any:
        """What the lane observes now is of another episode, or of none."""
        return self.ended | self.over


class Lanes:
    """One group of a batch, ``num_envs * agents`` lanes of it.

    All arrays are views of the batch's memory, ``(lanes, ...)``, written in place by each step.

    Args:
        batch: the environments, in SAME_STEP mode.
        group: whose lanes; may be left out if there is one group.
        others: a policy for each other group, by name; see :func:`chance`.

    Attributes:
        batch: the same.
        name: of the group.
        count: number of lanes.
        agents: lanes of an environment.
        observation_space: of one lane.
        action_space: of one lane.
        observations: float32 ``(lanes, n)``.
        rewards: float32 or float64 ``(lanes,)``.
        action_masks: bool ``(lanes, n)``, or None where actions are not masked.

    Raises:
        ValueError: another autoreset mode; no such group; more than one and none named; a group
            without a policy.
        TypeError: a policy that cannot be called.
    """

    def __init__(
        self,
        batch: VectorEnv,
        group: str | None = None,
        others: Mapping[str, Policy] | None = None,
    ) -> None:
        require_batch(batch)
        require_mode(batch, AutoresetMode.SAME_STEP)
        self.batch = batch
        self.name = _the_group(batch, group)
        self._others = _checked_others(batch, self.name, dict(others or {}))
        buffers = self.buffers = batch.group[self.name]
        self.agents = len(buffers.agents)
        self.count = batch.num_envs * self.agents
        self.observation_space = buffers.observation_space
        self.action_space = buffers.action_space
        self.observations = self._flat(buffers.observations)
        self.rewards = self._flat(buffers.rewards)
        masks = buffers.action_masks
        self.action_masks = None if masks is None else self._flat(masks)
        self._actions = self._flat(buffers.actions)
        self._xp = library_of(self.observations)

    def _flat(self, array: Any) -> Any:
        return array.reshape(self.count, *array.shape[2:])

    def step(self, actions: Any = None) -> Outcome:
        """Advance every environment by one step; arrays change in place.

        Args:
            actions: integers ``(lanes,)``, or ``(lanes, components)`` of a multi-discrete space,
                or float32 ``(lanes, size)`` for a box. Those of agents that have left mean nothing
                but must be in the action space. None steps on what stands in the action buffer.

        Raises:
            InvalidAction: a wrong shape, dtype or value; nothing moved.
            ResetNeeded: no reset yet.
        """
        if actions is not None:
            assign(self._actions, actions, "actions", validate=self.batch.validate_actions)
        for name, policy in self._others.items():
            group = self.batch.group[name]
            said = f"actions of others[{name!r}]"
            assign(group.actions, policy(group), said, validate=self.batch.validate_actions)
        # Not what it is after the step: then it may be the next episode's.
        acted = copied(self.buffers.active)
        self.batch.step()
        terminated = acted & self.buffers.terminations
        truncated = acted & self.buffers.truncations
        return Outcome(
            acted=self._flat(acted),
            terminated=self._flat(terminated),
            truncated=self._flat(truncated),
            ended=self._flat(terminated | truncated),
            over=copied(self._each(self.batch.engine.arrays["done"])),
        )

    def last_observations(self, over: Any) -> Any:
        """The observations that episodes ended with, for lanes that ended with the last step.

        Args:
            over: :attr:`Outcome.over` of that step.

        Returns:
            Float32 ``(lanes, n)``, fresh; of the other lanes what they observe now.
        """
        final = self._flat(self.buffers.final_observations)
        return self._xp.where(over[:, None], final, self.observations)

    def statistics(self, over: Any) -> tuple[Any, Any]:
        """Returns and lengths of the lanes' episodes, whole if they ended with the last step.

        Args:
            over: :attr:`Outcome.over` of that step.

        Returns:
            Returns, of the rewards' dtype, and lengths, int32; both ``(lanes,)`` and fresh.
        """
        so_far, whole = self.buffers.episode_returns, self.buffers.last_returns
        steps, length = (self.batch.engine.arrays[name] for name in ("steps", "last_lengths"))
        return (
            self._xp.where(over, self._flat(whole), self._flat(so_far)),
            self._xp.where(over, self._each(length), self._each(steps)),
        )

    def _each(self, array: Any) -> Any:
        """An environment's number for each of its lanes."""
        shape = (self.batch.num_envs, self.agents)
        return self._xp.broadcast_to(array[:, None], shape).reshape(-1)

    def states(self) -> Any:
        """Each lane's environment's global state, float32 ``(lanes, size)``.

        It is all agents' observations, in order, as ``batch.state()`` gives it.
        """
        state = self.batch.state()
        shape = (self.batch.num_envs, self.agents, state.shape[1])
        return self._xp.broadcast_to(state[:, None], shape).reshape(self.count, -1)


def library_of(array: Any) -> Any:
    """The library that an array is of: numpy, cupy or torch."""
    return importlib.import_module(type(array).__module__.partition(".")[0])


def require_torch(batch: VectorEnv) -> None:
    """Check that a batch's arrays are torch's, for a trainer that works on them as they are.

    Raises:
        TypeError: they are of another kind.
    """
    kind = type(batch.engine.arrays["done"])
    if not hasattr(kind, "clone"):
        raise TypeError(f"batch: arrays are {kind.__name__}, expected make_vec(..., array='torch')")


def chance(seed: int) -> Policy:
    """A policy that draws actions uniformly, among those allowed where they are masked.

    Args:
        seed: of its own generator.
    """
    rng = np.random.default_rng(seed)

    def draw(group: GroupBuffers) -> Any:
        space, shape = group.action_space, tuple(group.actions.shape)
        if isinstance(space, spaces.Box):
            return rng.uniform(space.low, space.high, shape).astype(np.float32)
        counts = np.atleast_1d(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n)  # type: ignore[attr-defined]
        if group.action_masks is None:
            drawn = rng.integers(counts, size=(*group.rewards.shape, len(counts)))
        else:
            masks = np.split(to_numpy(group.action_masks), np.cumsum(counts)[:-1], axis=-1)
            # The largest of as many uniform numbers as there are allowed values.
            drawn = np.stack([(rng.random(m.shape) * m).argmax(-1) for m in masks], axis=-1)
        return drawn.reshape(shape).astype(np.int32)

    return draw


def _the_group(batch: VectorEnv, group: str | None) -> str:
    names = ", ".join(repr(name) for name in batch.group)
    if group is None and len(batch.group) == 1:
        return next(iter(batch.group))
    if group is None:
        raise ValueError(f"group=None: {batch.spec.id} has several, expected one of {names}")
    if group not in batch.group:
        raise ValueError(f"group={group!r}: expected one of {names}")
    return group


def _checked_others(batch: VectorEnv, own: str, others: dict[str, Policy]) -> dict[str, Policy]:
    wanted = [name for name in batch.group if name != own]
    for name in others:
        if name not in wanted:
            raise ValueError(f"others[{name!r}]: expected {', '.join(wanted) or 'no other group'}")
    for name in wanted:
        if name not in others:
            raise ValueError(
                f"others: nothing for {name!r}, expected a policy, such as lanes.chance(seed)"
            )
        if not callable(others[name]):
            raise TypeError(f"others[{name!r}]={others[name]!r}: expected a function")
    return others
