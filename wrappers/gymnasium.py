"""Gymnasium's faces of a batch, each a ``gymnasium.vector.VectorEnv``.

:class:`VectorView` is of environments with one agent; to :class:`LaneView` every agent of an
environment is one, so that they share a policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from gpu_zoo.memory import as_int8, copied
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.lanes import Lanes, Outcome, Policy


class VectorView(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """What Gymnasium's ``SyncVectorEnv`` over as many environments would be: no dicts by agent.

    Observations and flags are the batch's. Rewards are float64, as in Gymnasium's own; in fast
    numerics they are float32 numbers in a float64 array. Rewards and flags are fresh arrays with
    every step. In SAME_STEP mode infos hold ``final_obs`` (an array of objects: each finished
    episode's last observation, else None), ``final_info`` and their masks, if an episode ended.
    Where actions are masked they hold ``action_mask``, int8 ``(num_envs, n)``, 1 where an action
    may be taken next; of a multi-discrete action the components' values lie side by side.

    With CuPy or torch arrays nothing waits for the device: rewards have the batch's own type, with
    ``copy=False`` rewards and flags are its memory too, and in SAME_STEP mode ``final_obs`` is
    always there, the batch's whole array, to be read where ``_final_obs`` is true.

    Args:
        batch: the environments; made by :func:`gpu_zoo.make_vec`.
        copy: whether observations are fresh arrays. If not they are the kernel's memory, which the
            next step changes.

    Attributes:
        batch: the same; for ``get_state``, ``set_param`` and its arrays.
        num_envs: number of environments.
        single_observation_space: of one environment.
        single_action_space: of one environment.
        observation_space: of all, ``num_envs`` in front.
        action_space: of all, ``num_envs`` in front.
        metadata: holds ``autoreset_mode`` as Gymnasium's ``AutoresetMode``.
        render_mode: the environment's parameter of this name, where it has one, else None.
        spec: Gymnasium's, if ``gymnasium.make_vec`` made it.
        closed: whether it was closed.

    Raises:
        ValueError: there is not exactly one agent, or ``render_mode`` is ``"human"``.
    """

    def __init__(self, batch: VectorEnv, *, copy: bool = True) -> None:
        self.closed = True  # until it is made: or Gymnasium would close what is not ours yet
        if len(batch.agents) != 1:
            raise ValueError(
                f"{batch.spec.id} has {len(batch.agents)} agents, expected one; "
                "make_vec gives an environment with dicts by agent"
            )
        self.render_mode = _render_mode(batch)
        self.closed = False
        (self._agent,) = batch.agents
        self.batch = batch
        self.copy = copy
        self.num_envs = batch.num_envs
        self.metadata = dict(batch.metadata)
        self.single_observation_space = batch.single_observation_space(self._agent)
        self.single_action_space = batch.single_action_space(self._agent)
        self.observation_space = batch.observation_space(self._agent)
        self.action_space = batch.action_space(self._agent)
        self._same_step = batch.autoreset_mode == AutoresetMode.SAME_STEP

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start a new episode in every environment, or in those of ``options["reset_mask"]``.

        Args:
            seed: environment i is seeded with ``seed + i``, or with ``seed[i]``; None goes on.
            options: ``{"reset_mask": bool array (num_envs,)}``.

        Returns:
            Observations, float32 ``(num_envs, n)``, and infos with action masks, if there are any.

        Raises:
            InvalidSeed: a seed out of range, or not one for each environment.
            ValueError: a mask of the wrong shape or dtype, or without a true entry; an unknown
                option.
        """
        observations, infos = self.batch.reset(seed=seed, options=options)
        return self._kept(observations[self._agent]), self._mask(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Advance every environment by one step.

        Args:
            actions: integers ``(num_envs,)``, or floats ``(num_envs, size)``, which are rounded to
                float32.

        Returns:
            Observations float32 ``(num_envs, n)``; rewards, terminations and truncations
            ``(num_envs,)``; infos.

        Raises:
            ResetNeeded: no reset yet, or a finished environment in DISABLED mode.
            InvalidAction: an action of the wrong shape, dtype, device or value; nothing moved.
        """
        results = self.batch.step({self._agent: self._as_actions(actions)})
        observations, *others = (part[self._agent] for part in results[:4])
        rewards, terminations, truncations = others
        if isinstance(rewards, np.ndarray):
            rewards = np.array(rewards, np.float64)
            terminations, truncations = terminations.copy(), truncations.copy()
        else:
            rewards, terminations, truncations = map(self._kept, others)
        infos = self._final(results[4]) if self._same_step else {}
        infos |= self._mask(results[4])
        return self._kept(observations), rewards, terminations, truncations, infos

    def render(self) -> tuple[Any, ...]:
        """A picture of each environment: uint8 ``(height, width, 3)``.

        Raises:
            NotImplementedError: the environment has no picture.
        """
        return tuple(self.batch.render(index) for index in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Release the batch; ``close()`` calls this once."""
        self.batch.close()

    def _kept(self, array: Any) -> Any:
        return copied(array) if self.copy else array

    def _as_actions(self, actions: Any) -> Any:
        if hasattr(actions, "device") and not isinstance(actions, np.ndarray):
            return actions  # CuPy's or torch's
        array = np.asarray(actions)
        is_box = isinstance(self.single_action_space, spaces.Box)
        return (
            array.astype(np.float32, copy=False) if is_box and array.dtype.kind in "fi" else array
        )

    def _mask(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """What SyncVectorEnv makes of environments that report an action mask."""
        if "action_mask" not in infos:
            return {}
        mask = infos["action_mask"][self._agent]
        # Every environment reports one, as some action is always allowed.
        return {"action_mask": self._kept(mask), "_action_mask": mask.any(-1)}

    def _final(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """What SyncVectorEnv's infos say of the episodes that just ended."""
        last, ended = infos["final_obs"][self._agent], infos["_final_obs"]
        if isinstance(ended, np.ndarray):
            if not ended.any():
                return {}
            rows = np.full(self.num_envs, None, dtype=object)
            rows[ended] = np.fromiter(last[ended], dtype=object)
            last, ended = rows, ended.copy()
        return {
            "final_obs": last,
            "_final_obs": ended,
            "final_info": {},
            "_final_info": copied(ended),
        }


class LaneView(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Agents as environments: what a trainer of one agent needs to have agents share its policy.

    In SAME_STEP mode, as the agents of an environment begin anew together. A lane is terminated or
    truncated by itself; where its agent has left before its environment's episode is over, it waits
    without reward, and is terminated once more, with ``infos["acted"]`` false, when all begin anew.

    Arrays are fresh with every step: NumPy's if the batch has those, else the batch's own kind.

    Args:
        batch: the environments, in SAME_STEP mode.
        group: whose lanes; may be left out if there is one group.
        others: a policy for each other group, by name, such as ``lanes.chance(seed)``.

    Attributes:
        batch: the same.
        num_envs: number of lanes, ``batch.num_envs * agents``.
        single_observation_space: of one lane.
        single_action_space: of one lane.
        observation_space: of all, lanes in front.
        action_space: of all, lanes in front.
        metadata: holds ``autoreset_mode`` as Gymnasium's ``AutoresetMode``.
        render_mode: the environment's parameter of this name, where it has one, else None.

    Raises:
        ValueError, TypeError: as for :class:`~gpu_zoo.wrappers.lanes.Lanes`.
        ValueError: ``render_mode`` is ``"human"``.
    """

    def __init__(
        self,
        batch: VectorEnv,
        group: str | None = None,
        others: Mapping[str, Policy] | None = None,
    ) -> None:
        self.closed = True  # until it is made: or Gymnasium would close what is not ours yet
        self._lanes = Lanes(batch, group, others)
        self.render_mode = _render_mode(batch)
        self.closed = False
        self.batch = batch
        self.num_envs = self._lanes.count
        self.metadata = dict(batch.metadata)
        self.single_observation_space = self._lanes.observation_space
        self.single_action_space = self._lanes.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start a new episode everywhere; seeds and options are the batch's, not by lane.

        Returns:
            Observations, float32 ``(lanes, n)``, and infos with action masks, if there are any.

        Raises:
            InvalidSeed, ValueError: as for :meth:`gpu_zoo.VectorEnv.reset`.
        """
        self.batch.reset(seed=seed, options=options)
        return copied(self._lanes.observations), self._masks()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Advance every environment by one step.

        Args:
            actions: integers ``(lanes,)``, or ``(lanes, components)``, or float32
                ``(lanes, size)``.

        Returns:
            Observations float32 ``(lanes, n)``; rewards, terminations and truncations ``(lanes,)``;
            infos, with ``final_obs`` ``(lanes, n)`` to be read where ``_final_obs`` is true,
            ``episode`` with returns ``r`` and lengths ``l`` of the same lanes, and ``acted``.

        Raises:
            ResetNeeded: no reset yet.
            InvalidAction: an action of the wrong shape, dtype, device or value; nothing moved.
        """
        outcome = self._lanes.step(actions)
        left = outcome.over & ~outcome.ended
        infos = {"acted": outcome.acted, **self._final(outcome), **self._masks()}
        return (
            copied(self._lanes.observations),
            copied(self._lanes.rewards),
            outcome.terminated | left,
            outcome.truncated,
            infos,
        )

    def render(self) -> tuple[Any, ...]:
        """A picture of each environment, not lane: uint8 ``(height, width, 3)``.

        Raises:
            NotImplementedError: the environment has no picture.
        """
        return tuple(self.batch.render(index) for index in range(self.batch.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Release the batch; ``close()`` calls this once."""
        self.batch.close()

    def _masks(self) -> dict[str, Any]:
        masks = self._lanes.action_masks
        return {} if masks is None else {"action_mask": as_int8(copied(masks))}

    def _final(self, outcome: Outcome) -> dict[str, Any]:
        returns, lengths = self._lanes.statistics(outcome.over)
        return {
            "final_obs": self._lanes.last_observations(outcome.over),
            "_final_obs": outcome.ended,
            "episode": {"r": returns, "l": lengths},
            "_episode": outcome.ended,
        }


def _render_mode(batch: VectorEnv) -> str | None:
    """What Gymnasium's wrappers that show or record pictures look at.

    Raises:
        ValueError: a window, of which a batch has none.
    """
    mode = batch.params.get("render_mode")
    if mode == "human":
        raise ValueError("render_mode='human': expected None or 'rgb_array' of a batch")
    return None if mode is None else str(mode)
