"""What comes in: a batch, actions in any kind of array, parameters of some environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from gpu_zoo.errors import InvalidAction
from gpu_zoo.memory import to_numpy
from gpu_zoo.vector import VectorEnv


def require_batch(batch: VectorEnv) -> None:
    """Raise TypeError unless it is a batch."""
    if not isinstance(batch, VectorEnv):
        raise TypeError(f"batch={batch!r}: {type(batch).__name__}, expected what make_vec made")


def require_mode(batch: VectorEnv, mode: AutoresetMode) -> None:
    """Raise ValueError unless a batch's finished environments begin anew in this mode."""
    if batch.autoreset_mode != mode:
        raise ValueError(f"batch: autoreset_mode={batch.autoreset_mode.name}, expected {mode.name}")


def on_host(name: str, values: Any, expected: str = "an array of numbers") -> npt.NDArray[Any]:
    """Actions as a NumPy array, of a list or of any kind of array on any device.

    Those that are part of a gradient leave it. bfloat16, which NumPy has not, becomes float32.

    Args:
        name: what it is, for the message.
        values: the actions.
        expected: what it should have been, for the message.

    Raises:
        InvalidAction: NumPy makes no array of it.
    """
    values = _detached(values)
    if str(getattr(values, "dtype", "")) == "torch.bfloat16":
        values = values.float()
    try:
        return to_numpy(values)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidAction(f"{name}: {_said(values)}, expected {expected}") from None


def assign(buffer: Any, values: Any, name: str, *, validate: bool) -> None:
    """Copy actions into an action buffer of any kind; NumPy's into CuPy's or torch's too.

    Whether they are in the action space is the batch's to check, once they are int32 or float32.

    Args:
        buffer: int32 or float32, of the shape that is expected.
        values: integers of any size, or float32.
        name: what it is, for the message.
        validate: whether to check that int32 has the integers, too; on CUDA that waits for the
            device.

    Raises:
        InvalidAction: a wrong shape, dtype or value, or on a device that cannot be copied from;
            the buffer is as it was.
    """
    values = _detached(values) if hasattr(values, "dtype") else on_host(name, values)
    given, wanted = tuple(values.shape), tuple(buffer.shape)
    if given != wanted:
        raise InvalidAction(f"{name}: shape {given}, expected {wanted}")
    dtype = _dtype(values)
    if _dtype(buffer) == "float32":
        if dtype != "float32":
            raise InvalidAction(f"{name}: dtype {dtype}, expected float32; convert it first")
    elif "int" not in dtype:
        raise InvalidAction(f"{name}: dtype {dtype}, expected integers")
    try:
        native = _as_array_of(buffer, values)
    except (TypeError, ValueError, RuntimeError):
        kind = type(buffer).__name__
        raise InvalidAction(f"{name}: {_said(values)}, expected what {kind} takes") from None
    if validate and dtype in ("int64", "uint64", "uint32"):
        _require_int32(name, native)
    buffer[...] = native


def set_param_of(batch: VectorEnv, name: str, value: Any, rows: Any) -> None:
    """Change a parameter in some environments of a batch.

    Args:
        batch: the environments.
        name: the parameter.
        value: one value for all of them.
        rows: their numbers.

    Raises:
        KeyError, TypeError, ValueError: as ``VectorEnv.set_param``.
    """
    param = batch.spec.params.get(name)
    if param is None or param.at != "launch":
        batch.set_param(name, value)  # which says what can change
        return
    # Checked before it goes into an array, which would round 30.9 to 30 and take "30" for it.
    checked = param.check(name, value)
    each = np.array(np.broadcast_to(batch.params[name], batch.num_envs))
    each[rows] = checked
    batch.set_param(name, each)


def _detached(values: Any) -> Any:
    return values.detach() if hasattr(values, "detach") else values


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def _said(values: Any) -> str:
    """An array in one line."""
    if not hasattr(values, "dtype"):
        return repr(values)
    where = f" on {values.device}" if hasattr(values, "device") else ""
    return f"{type(values).__name__} of {_dtype(values)}{where}"


def _as_array_of(buffer: Any, values: Any) -> Any:
    """Values as the buffer's kind of array, on its device; no copy where they already are."""
    if isinstance(buffer, np.ndarray):
        return to_numpy(values)
    if hasattr(buffer, "copy_"):
        import torch

        if isinstance(values, np.ndarray):
            values = np.ascontiguousarray(values)  # torch has no negative strides
        return torch.as_tensor(values, device=buffer.device)
    import cupy

    return cupy.asarray(values)


def _require_int32(name: str, native: Any) -> None:
    """Check that int32 has the integers: a longer one would lose its upper half."""
    # Of what int64 has not, it makes something negative, which no action is.
    wide = native.long() if hasattr(native, "long") else native.astype(np.int64, copy=False)
    wrong = (wide < -(2**31)) | (wide >= 2**31)
    if bool(wrong.any()):
        where = tuple(np.argwhere(to_numpy(wrong))[0].tolist())
        at = "".join(f"[{index}]" for index in where)
        raise InvalidAction(f"{name}{at}: {int(native[where])}, expected an int32")
