"""What each environment may have of its own: the state it starts in, and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_zoo.memory import to_numpy
from gpu_zoo.prelude import Program
from gpu_zoo.spec import Param


class Pool(NamedTuple):
    """Starting states as the kernel reads them.

    Attributes:
        rows: bytes ``(rows, state_bytes)``, each row a struct ``State``.
        fields: bit k is set if field k of ``Program.pooled`` is given.
    """

    rows: npt.NDArray[np.uint8]
    fields: int


def pack_pool(program: Program, states: Mapping[str, Any]) -> Pool:
    """Check starting states given by field, ``(rows, *shape)`` each, and bring them together.

    Raises:
        TypeError: not a dict.
        KeyError: not a field of the state.
        ValueError: a wrong shape or dtype, no field or row at all, or more rows in one field than
            in another.
    """
    if not isinstance(states, Mapping):
        raise TypeError(f"reset_pool: {type(states).__name__}, expected a dict by field")
    known = program.pooled
    for name in states:
        if name not in known:
            raise KeyError(f"reset_pool[{name!r}]: expected one of {', '.join(known)}")
    given = {name: to_host(f"reset_pool[{name!r}]", values) for name, values in states.items()}
    counts = {name: len(values) if values.ndim else 0 for name, values in given.items()}
    rows = max(counts.values(), default=0)
    if rows == 0:
        raise ValueError("reset_pool: no states, expected at least one field and one row")
    packed = np.zeros((rows, program.state_bytes), np.uint8)
    for name, values in given.items():
        field = known[name]
        wanted = (rows, *field.shape)
        if values.shape != wanted:
            raise ValueError(f"reset_pool[{name!r}]: shape {values.shape}, expected {wanted}")
        if values.dtype != field.dtype:
            raise ValueError(
                f"reset_pool[{name!r}]: dtype {values.dtype}, expected {field.dtype.name}"
            )
        flat = np.ascontiguousarray(values).reshape(rows, -1).view(np.uint8)
        packed[:, field.offset : field.offset + flat.shape[1]] = flat
    fields = sum(1 << bit for bit, name in enumerate(known) if name in given)
    return Pool(packed, fields)


def is_array(value: Any) -> bool:
    """Whether a parameter's value is one for each environment."""
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def check_each(name: str, param: Param, value: Any, num_envs: int) -> npt.NDArray[Any]:
    """One value of a parameter for each environment, checked like a single one.

    Returns:
        A read-only array ``(num_envs,)`` of bool, int64 or float64.

    Raises:
        TypeError: the wrong kind of values.
        ValueError: not one for each environment, or one out of range.
    """
    values = to_host(name, value)
    if values.shape != (num_envs,):
        raise ValueError(f"{name}: shape {values.shape}, expected ({num_envs},) or one value")
    kinds = {bool: "b", int: "iu", float: "fiu"}.get(param.type)
    if kinds is None:
        raise TypeError(f"{name}: one value an environment, expected one for all, no number")
    if values.dtype.kind not in kinds:
        raise TypeError(f"{name}: dtype {values.dtype}, expected {param.type.__name__}s")
    if param.choices is None:  # the ends of the range; a NaN, if there is one
        envs = {int(values.argmin()), int(values.argmax())}
    else:
        envs = set(np.unique(values, return_index=True)[1].tolist())
    for env in sorted(envs):
        param.check(f"{name}[{env}]", values[env].item())
    checked: npt.NDArray[Any] = np.array(values, param.type)
    checked.flags.writeable = False
    return checked


def to_host(name: str, value: Any) -> npt.NDArray[Any]:
    """A NumPy array of numbers, of a NumPy, CuPy or torch array, or of a list.

    Raises:
        TypeError: what NumPy makes no array of numbers of; ``name`` is for the message.
    """
    if hasattr(value, "detach"):  # a tensor that is part of a gradient
        value = value.detach()
    try:
        return np.asarray(value) if isinstance(value, Mapping) else to_numpy(value)
    except ValueError:
        raise TypeError(f"{name}: {value!r}, expected an array of numbers") from None
