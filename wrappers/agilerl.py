"""AgileRL's face of a batch: a ``PettingZooVecEnv`` without processes.

Source of the interface: AgileRL 2.58, ``vector/pz_vec_env.py`` and ``vector/pz_async_vec_env.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from gpu_zoo.errors import InvalidAction, MissingDependency
from gpu_zoo.memory import copied, to_numpy
from gpu_zoo.results import GroupBuffers
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.incoming import on_host, require_batch, require_mode

try:
    from agilerl.vector.pz_vec_env import PettingZooVecEnv
except ImportError as error:
    raise MissingDependency("AgileRL is missing; install it with: pip install agilerl") from error

ByAgent = dict[str, npt.NDArray[Any]]


class AgileRLVecEnv(PettingZooVecEnv):
    """All agents of a batch by name, as AgileRL's own vectorised PettingZoo environment has them.

    Of an agent that has left, all is NaN until its environment's next episode begins:
    observations, rewards, terminations and truncations. That is what AgileRL knows such agents by.
    All arrays are fresh with every step, for AgileRL keeps them.

    Args:
        batch: the environments, in SAME_STEP mode; of any device, arrays go over as NumPy's.

    Attributes:
        batch: the same.

    Raises:
        TypeError: no batch.
        ValueError: another autoreset mode.
    """

    def __init__(self, batch: VectorEnv) -> None:
        require_batch(batch)
        require_mode(batch, AutoresetMode.SAME_STEP)
        super().__init__(
            batch.num_envs,
            {agent: batch.single_observation_space(agent) for agent in batch.agents},
            {agent: batch.single_action_space(agent) for agent in batch.agents},
            list(batch.agents),
            metadata=batch.metadata,
        )
        self.batch = batch

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[ByAgent, dict[str, Any]]:
        """Begin an episode everywhere.

        Args:
            seed: environment e is seeded with ``seed + e``; None goes on.
            options: as for the batch's reset.

        Returns:
            Observations by agent, float32 ``(num_envs, n)``, and infos by agent, which have
            ``action_mask`` if actions are masked.
        """
        self.batch.reset(seed=seed, options=options)
        observations: ByAgent = {}
        for group in self.batch.group.values():
            observations |= _by_agent(group, np.array(to_numpy(group.observations)))
        return observations, self._infos()

    def step(
        self, actions: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, dict[str, Any]]:
        """Advance every environment by one step.

        Args:
            actions: by agent, arrays or tensors with ``num_envs`` in front. Of those that have left
                they mean nothing, and may be NaN.
            *args: not used.
            **kwargs: not used.

        Returns:
            Observations, rewards, terminations and truncations by agent, with ``num_envs`` in
            front; flags are floats, 0 or 1, or NaN. Infos as for :meth:`reset`.

        Raises:
            InvalidAction: a wrong agent, shape, dtype or value; nothing moved.
            ResetNeeded: no reset yet.
        """
        acted = {name: to_numpy(copied(g.active)) for name, g in self.batch.group.items()}
        here = {
            agent: acted[name][:, i]
            for name, group in self.batch.group.items()
            for i, agent in enumerate(group.agents)
        }
        self.batch.step(
            {
                agent: self._as_action(agent, action, here.get(agent))
                for agent, action in actions.items()
            }
        )
        over = to_numpy(self.batch.engine.arrays["done"])[:, None]
        results: tuple[ByAgent, ...] = ({}, {}, {}, {})
        for name, group in self.batch.group.items():
            gone = ~acted[name]
            arrays = (group.observations, group.rewards, group.terminations, group.truncations)
            for result, array, absent in zip(
                results, arrays, (gone & ~over, gone, gone, gone), strict=True
            ):
                fresh = np.array(to_numpy(array), np.float32)
                fresh[absent] = np.nan
                result.update(_by_agent(group, fresh))
        return *results, self._infos()  # type: ignore[return-value]

    def _as_action(self, agent: str, action: Any, acts: Any) -> Any:
        """What the batch takes for it, on the batch's device."""
        return self.batch.engine.backend.native(self._on_host(agent, action, acts))

    def _on_host(self, agent: str, action: Any, acts: Any) -> npt.NDArray[Any]:
        array = on_host(f"actions[{agent!r}]", action)
        if array.dtype.kind not in "fiu":
            raise InvalidAction(f"actions[{agent!r}]: dtype {array.dtype}, expected numbers")
        if acts is not None and array.dtype.kind == "f" and array.shape[:1] == acts.shape:
            array = np.where(acts.reshape(-1, *[1] * (array.ndim - 1)), array, 0)
        space = self._single_action_spaces.get(agent)
        if isinstance(space, spaces.Box):
            return array.astype(np.float32)
        if array.dtype.kind == "f" and (array == np.round(array)).all():
            array = array.astype(np.int64)  # AgileRL's arrays with NaN in them are floats
        single = isinstance(space, spaces.Discrete) and array.shape[1:] == (1,)
        return array[:, 0] if single else array

    def _infos(self) -> dict[str, Any]:
        infos: dict[str, Any] = {agent: {} for agent in self.possible_agents}
        for group in self.batch.group.values():
            if group.action_masks is not None:
                masks = np.array(to_numpy(group.action_masks), np.int8)
                for agent, mask in _by_agent(group, masks).items():
                    infos[agent]["action_mask"] = mask
        return infos

    def render(self) -> tuple[Any, ...]:
        """A picture of each environment: uint8 ``(height, width, 3)``."""
        return tuple(self.batch.render(index) for index in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Release the batch; ``close()`` calls this once."""
        self.batch.close()


def _by_agent(group: GroupBuffers, array: npt.NDArray[Any]) -> ByAgent:
    return {agent: array[:, i] for i, agent in enumerate(group.agents)}
