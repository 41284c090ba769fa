"""Actions on their way in: checked for names, shape, dtype and value before any kernel runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu_zoo.backends import Backend
from gpu_zoo.errors import InvalidAction
from gpu_zoo.spec import GroupLayout


class ActionWriter:
    """Copies a dict of actions into the groups' action buffers, and checks the buffers.

    Args:
        groups: the groups of agents.
        backend: where the buffers live.
        views: native arrays by buffer name; ``actions/<group>`` are written.
        num_envs: number of environments.
        validate: whether to check values too; on CUDA that waits for the device.
    """

    def __init__(
        self,
        groups: tuple[GroupLayout, ...],
        backend: Backend,
        views: Mapping[str, Any],
        num_envs: int,
        validate: bool,
    ) -> None:
        self._groups = groups
        self._backend = backend
        self._validate = validate
        self._num_envs = num_envs
        self._buffers = {group.name: views[f"actions/{group.name}"] for group in groups}
        self._slots = [
            (agent, group, self._buffers[group.name][:, i])
            for group in groups
            for i, agent in enumerate(group.agents)
        ]
        self._names = {agent for agent, _, _ in self._slots}

    def write(self, actions: Mapping[str, Any]) -> None:
        """Check every agent's action, then copy all of them.

        Raises:
            InvalidAction: which agent, what came, what was expected.
        """
        if not isinstance(actions, Mapping):
            raise InvalidAction(
                f"actions: {type(actions).__name__}, expected a dict by agent; to use whole "
                "arrays, write to env.group[...].actions and call step()"
            )
        if actions.keys() != self._names:
            self._raise_names(actions)
        checked = [
            (slot, self._checked(agent, group, slot, actions[agent]))
            for agent, group, slot in self._slots
        ]
        for slot, native in checked:
            slot[...] = native

    def check_buffers(self) -> None:
        """Check the values that stand in the action buffers.

        Raises:
            InvalidAction: the first wrong one, by environment and agent.
        """
        for group in self._groups:
            buffer = self._buffers[group.name]
            where = _first_wrong(buffer, group)
            if where is not None:
                env, agent = where[0], group.agents[where[1]]
                raise InvalidAction(
                    f"actions[{agent!r}][{env}]: {buffer[where]}, expected {_range(group)}"
                )

    def _checked(self, agent: str, group: GroupLayout, slot: Any, value: Any) -> Any:
        if not self._backend.holds(value):
            raise InvalidAction(
                f"actions[{agent!r}]: {type(value).__name__} on another device, "
                f"expected an array on {self._backend.device}"
            )
        try:
            native = self._backend.native(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidAction(f"actions[{agent!r}]: {error}") from None
        if tuple(native.shape) != tuple(slot.shape):
            raise InvalidAction(
                f"actions[{agent!r}]: shape {tuple(native.shape)}, expected {tuple(slot.shape)}"
            )
        dtype = str(native.dtype).removeprefix("torch.")
        if group.actions.box is None and "int" not in dtype:
            raise InvalidAction(f"actions[{agent!r}]: dtype {dtype}, expected integers")
        if group.actions.box is not None and dtype != "float32":
            raise InvalidAction(
                f"actions[{agent!r}]: dtype {dtype}, expected float32; convert it first"
            )
        if self._validate:
            where = _first_wrong(native, group)
            if where is not None:
                raise InvalidAction(
                    f"actions[{agent!r}][{where[0]}]: {native[where]}, expected {_range(group)}"
                )
        return native

    def _raise_names(self, actions: Mapping[str, Any]) -> None:
        missing = [agent for agent, _, _ in self._slots if agent not in actions]
        if missing:
            raise InvalidAction(f"actions: nothing for {', '.join(missing)}")
        unknown = [repr(name) for name in actions if name not in self._names]
        known = ", ".join(agent for agent, _, _ in self._slots)
        raise InvalidAction(f"actions: unknown agent {', '.join(unknown)}, expected {known}")


def _range(group: GroupLayout) -> str:
    low, high = (side.tolist() for side in group.actions.limits)
    if group.actions.choices is not None:
        return f"0 <= action < {list(group.actions.choices)}"
    if group.actions.box is None:
        return f"0 <= action < {high[0] + 1}"
    return f"{low[0]:g} <= action <= {high[0]:g}"


def _first_wrong(values: Any, group: GroupLayout) -> tuple[int, ...] | None:
    """Index of the first value outside the action space, or None."""
    if isinstance(values, np.ndarray) and values.dtype.itemsize == 4 and values.flags.c_contiguous:
        at = _find_in_memory(values, group)
        return None if at < 0 else tuple(int(i) for i in np.unravel_index(at, values.shape))
    for k, (low, high) in enumerate(zip(*(a.tolist() for a in group.actions.limits), strict=True)):
        part = values[..., k] if group.action_size else values
        wrong = ~((part >= low) & (part <= high))  # not <, so that NaN is wrong
        if bool(wrong.any()):
            tail = (k,) if group.action_size else ()
            return (*_first(wrong.nonzero()), *tail)
    return None


def _first(indices: Any) -> tuple[int, ...]:
    """The first of the places that ``nonzero`` gives, as NumPy or as torch writes them."""
    if isinstance(indices, tuple):
        return tuple(int(index[0]) for index in indices)
    return tuple(int(i) for i in indices[0])


def _find_in_memory(values: Any, group: GroupLayout) -> int:
    from gpu_zoo.backends.cpu import pool

    actions, where = group.actions, (values.ctypes.data, values.size)
    if actions.box is not None:
        return int(pool().zoo_find_bad_box(*where, *actions.box))
    if actions.choices is None:
        return int(pool().zoo_find_bad_discrete(*where, len(actions.names)))
    choices = np.array(actions.choices, np.int32)
    return int(pool().zoo_find_bad_multi(*where, choices.ctypes.data, choices.size))
