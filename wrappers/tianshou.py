"""Tianshou's face of a batch whose environments have one agent: a ``BaseVectorEnv``.

Source of the interface: Tianshou 2.0.1, ``env/venvs.py`` and ``data/collector.py``. For several
agents Tianshou has ``PettingZooEnv``, which takes our AEC environments as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from gpu_zoo.errors import InvalidAction, MissingDependency, ResetNeeded
from gpu_zoo.memory import to_numpy
from gpu_zoo.seeds import seed_rows
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.incoming import on_host, require_batch, require_mode, set_param_of

try:
    from tianshou.env import BaseVectorEnv
except ImportError as error:
    raise MissingDependency(
        "Tianshou is missing; install it with: pip install 'gpu-zoo[tianshou]'"
    ) from error

Ids = int | Sequence[int] | npt.NDArray[Any] | None


class TianshouVectorEnv(BaseVectorEnv):
    """A batch as Tianshou's collectors use it: they reset finished environments by number.

    Args:
        batch: the environments, in DISABLED mode; of any device, arrays go over as NumPy's.

    Attributes:
        batch: the same.
        env_num: number of environments.

    Raises:
        TypeError: no batch.
        ValueError: more than one agent; another autoreset mode.
    """

    def __init__(self, batch: VectorEnv) -> None:
        require_batch(batch)
        if len(batch.agents) != 1:
            raise ValueError(f"batch: {len(batch.agents)} agents, expected one")
        require_mode(batch, AutoresetMode.DISABLED)
        (self._agent,) = batch.agents
        self.batch = batch
        self.env_num = batch.num_envs
        # What Tianshou asks of any: environments are never waited for one by one.
        self.is_async = False
        self.is_closed = False
        self.waiting_id: list[int] = []
        self.ready_id = list(range(self.env_num))
        self._attributes: dict[str, Any] = {
            "observation_space": batch.single_observation_space(self._agent),
            "action_space": batch.single_action_space(self._agent),
            "metadata": batch.metadata,
            "spec": batch.spec,
            "reward_range": (-float("inf"), float("inf")),
        }
        self._seeds: list[int] | None = None

    def get_env_attr(self, key: str, id: Ids = None) -> list[Any]:
        """A space, ``metadata``, ``spec`` or parameter, an environment.

        Raises:
            AttributeError: another name.
        """
        rows = self._rows(id)
        if key in self._attributes:
            return [self._attributes[key]] * len(rows)
        if key in self.batch.params:
            each = np.broadcast_to(self.batch.params[key], self.env_num)
            return list(each[rows].tolist())
        raise AttributeError(f"{self.batch.spec.id} has no attribute {key!r}")

    def set_env_attr(self, key: str, value: Any, id: Ids = None) -> None:
        """Change a parameter of all environments, or of some.

        Raises:
            KeyError, TypeError, ValueError: as ``VectorEnv.set_param``.
        """
        if id is None:
            self.batch.set_param(key, value)
        else:
            set_param_of(self.batch, key, value, self._rows(id))

    def seed(self, seed: int | Sequence[int] | None = None) -> list[list[int] | None]:
        """Seeds of the next reset of all: ``seed + i`` for environment i, or its own.

        Raises:
            InvalidSeed: out of range, or not one for each environment.
        """
        if seed is None:
            self._seeds = None
            return [None] * self.env_num
        seed_rows(seed, self.env_num, self.batch.numerics)  # checks it
        if isinstance(seed, (int, np.integer)):
            self._seeds = [int(seed) + i for i in range(self.env_num)]
        else:
            self._seeds = [int(one) for one in seed]
        return [[one] for one in self._seeds]

    def reset(
        self, env_id: Ids = None, **kwargs: Any
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.object_]]:
        """Begin an episode in all environments, or in some.

        Args:
            env_id: which.
            **kwargs: ``seed``, for a reset of all.

        Returns:
            Observations float32 ``(k, n)``, fresh, and a dict each.

        Raises:
            TypeError, IndexError, ValueError: as for :meth:`step`.
            InvalidSeed: as for :meth:`seed`.
        """
        rows = self._rows(env_id, "env_id")
        if len(rows) == self.env_num:
            seed = kwargs.get("seed", self._seeds)
            self._seeds = None
            observations, _ = self.batch.reset(seed=seed)
        else:
            mask = np.isin(np.arange(self.env_num), rows)
            observations, _ = self.batch.reset(options={"reset_mask": mask})
        return np.array(to_numpy(observations[self._agent]))[rows], self._infos(rows)

    def step(self, action: Any, id: Ids = None) -> tuple[npt.NDArray[Any], ...]:
        """Advance all environments by one step, or some, and no others.

        Args:
            action: ``(k,)`` integers or ``(k, size)`` floats, which are rounded to float32.
            id: which; their order is that of all arrays here.

        Returns:
            Observations float32 ``(k, n)``; rewards, terminations and truncations ``(k,)``; a dict
            each with ``env_id``. All fresh.

        Raises:
            InvalidAction: a wrong shape, dtype or value; nothing moved.
            ResetNeeded: no reset yet, or one of them is over.
            TypeError: numbers of environments that are no integers.
            IndexError: there is no such environment.
            ValueError: an environment is named twice.
        """
        rows = self._rows(id)
        over = rows[to_numpy(self.batch.engine.arrays["done"])[rows]]
        if len(over):
            raise ResetNeeded(f"step: the episode of environment {over[0]} is over; reset it first")
        others = np.setdiff1d(np.arange(self.env_num), rows)
        engine, before = self.batch.engine, self.batch.get_state() if len(others) else None
        if before is not None:  # those that are over are not to be reset, but to stay as they are
            refuses, engine.refuses_finished = engine.refuses_finished, False
        try:
            results = self.batch.step({self._agent: self._actions(action, rows)})[:4]
        finally:
            if before is not None:
                engine.refuses_finished = refuses
        told = [np.array(to_numpy(result[self._agent]))[rows] for result in results]
        if before is not None:
            after = self.batch.get_state()
            for name, array in after.items():
                array[others] = before[name][others]
            self.batch.set_state(after)
        return *told, self._infos(rows)

    def _actions(self, action: Any, rows: npt.NDArray[np.intp]) -> Any:
        """Actions of all environments, on the batch's device."""
        given = on_host("action", action)
        space = self._attributes["action_space"]
        wanted = (len(rows), *space.shape)
        if given.shape != wanted:
            raise InvalidAction(f"action: shape {given.shape}, expected {wanted}")
        kinds, words = ("fiu", "floats") if isinstance(space, spaces.Box) else ("iu", "integers")
        if given.dtype.kind not in kinds:
            raise InvalidAction(f"action: dtype {given.dtype}, expected {words}")
        if isinstance(space, spaces.Box):
            given = given.astype(np.float32, copy=False)
        every = self._idle().astype(given.dtype)
        every[rows] = given
        return self.batch.engine.backend.native(every)

    def _idle(self) -> npt.NDArray[Any]:
        """What those that are not asked are given: 0, or the nearest that is allowed."""
        (layout,) = self.batch.engine.program.groups
        shape = (self.env_num, *self._attributes["action_space"].shape)
        masks = self.batch.group[layout.name].action_masks
        if masks is None:
            nearest = np.clip(0, *layout.actions.limits)
            return np.tile(nearest, (self.env_num, 1)).reshape(shape)
        ends = np.cumsum(layout.actions.counts)[:-1]
        parts = np.split(to_numpy(masks)[:, 0], ends, axis=-1)
        return np.stack([part.argmax(-1) for part in parts], axis=-1).reshape(shape)

    def _rows(self, ids: Ids, name: str = "id") -> npt.NDArray[np.intp]:
        """The environments' numbers, checked; each is there once."""
        if ids is None:
            return np.arange(self.env_num)
        rows = np.atleast_1d(np.asarray(ids, None if np.size(ids) else np.intp))
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TypeError(f"{name}={ids!r}: expected numbers of environments")
        if rows.size and not 0 <= rows.min() <= rows.max() < self.env_num:
            raise IndexError(f"{name}={ids!r}: expected numbers from 0 to {self.env_num - 1}")
        if len(np.unique(rows)) < len(rows):
            raise ValueError(f"{name}={ids!r}: expected each environment once")
        return rows.astype(np.intp)

    def _infos(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.object_]:
        return np.array([{"env_id": row} for row in rows.tolist()], dtype=object)

    def render(self, **kwargs: Any) -> list[Any]:
        """A picture of each environment."""
        return [self.batch.render(row) for row in range(self.env_num)]

    def close(self) -> None:
        """Release the batch; closing twice does nothing."""
        self.batch.close()
        self.is_closed = True
