"""Actions on their way in: checked for names, shape, dtype and value before any kernel runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu_zoo.backends import Backend
from gpu_zoo.errors import InvalidAction
from gpu_zoo.memory import copied, to_numpy
from gpu_zoo.spec import GroupLayout


class ActionWriter:
    """Copies a dict of actions into the groups' action buffers, and checks the buffers.

    Args:
        groups: the groups of agents.
        backend: where the buffers live.
        views: native arrays by buffer name; ``actions/<group>`` are written.
        num_envs: number of environments.
        validate: whether to check values too, against masks as well; on CUDA that waits for the
            device.
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
        # As large as a buffer is, both here and on the device.
        begins = {name: backend.address(buffer) for name, buffer in self._buffers.items()}
        self._ranges = [
            (begins[name], begins[name] + buffer.nbytes) for name, buffer in self._buffers.items()
        ]
        self._names = {agent for agent, _, _ in self._slots}
        rows = backend.native(np.arange(num_envs))
        self._masks = {
            agent: Mask(agent, group, rows, views[f"action_masks/{group.name}"][:, i])
            for group in groups
            if group.mask_size
            for i, agent in enumerate(group.agents)
        }

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

    def _is_ours(self, native: Any) -> bool:
        """Whether an array lies in an action buffer."""
        address = self._backend.address(native)
        return any(begin <= address < end for begin, end in self._ranges)

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
            for i, agent in enumerate(group.agents):
                if agent in self._masks:
                    self._masks[agent].check(buffer[:, i])

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
            if agent in self._masks:
                self._masks[agent].check(native)
        # One agent's action may be a view of where another's is about to be written.
        return copied(native) if self._is_ours(native) else native

    def _raise_names(self, actions: Mapping[str, Any]) -> None:
        unknown = [repr(name) for name in actions if name not in self._names]
        if unknown:  # said first: a group's name, say, is also why its agents are missing
            known = ", ".join(agent for agent, _, _ in self._slots)
            raise InvalidAction(f"actions: unknown agent {', '.join(unknown)}, expected {known}")
        missing = [agent for agent, _, _ in self._slots if agent not in actions]
        raise InvalidAction(f"actions: nothing for {', '.join(missing)}")


class Mask:
    """One agent's action masks, to hold actions against.

    Args:
        agent: its name.
        group: its group.
        rows: native ``arange(num_envs)``.
        masks: native bool ``(num_envs, mask_size)``, where the kernel writes them.
    """

    def __init__(self, agent: str, group: GroupLayout, rows: Any, masks: Any) -> None:
        self._agent, self._group, self._rows, self._masks = agent, group, rows, masks

    def check(self, actions: Any) -> None:
        """Check actions that are in their space: native integers ``(num_envs, ...)``.

        Raises:
            InvalidAction: the first that the mask forbids.
        """
        start = 0
        for k, count in enumerate(self._group.actions.counts):
            column = copied(self._rows)
            column[...] = actions[:, k] if self._group.action_size else actions
            wrong = ~self._masks[self._rows, column + start]
            if bool(wrong.any()):
                (env,) = _first(wrong.nonzero())
                row = to_numpy(self._masks[env, start : start + count])
                problem = forbidden(actions[env], k, row)
                raise InvalidAction(f"actions[{self._agent!r}][{env}]: {problem}")
            start += count


def forbidden(action: Any, component: int, allowed: Any) -> str:
    """Words for an action that a mask forbids.

    Args:
        action: the whole of it: an integer, or one for each component.
        component: which one is forbidden.
        allowed: flags of that component's values.
    """
    which = f" in component {component}" if np.ndim(action) else ""
    said = np.asarray(to_numpy(action)).tolist()
    return f"{said} is masked, expected one of {np.flatnonzero(allowed).tolist()}{which}"


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
