"""The full state of a batch, out of it and back in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_zoo.buffers import Buffer
from gpu_zoo.engine import Engine
from gpu_zoo.memory import copied

# What belongs to it besides the environment's own state fields.
OF_BATCH = ("rng", "steps", "done", "last_lengths")
OF_GROUPS = ("episode_returns", "last_returns")


def take(engine: Engine) -> dict[str, Any]:
    """The state by name, as fresh arrays ``(num_envs, ...)``."""
    state = {
        name: engine.backend.public(engine.memory.read(field))
        for name, field in engine.program.fields.items()
    }
    for name in _buffers(engine):
        state[name] = engine.backend.public(copied(engine.views[name]))
    return state


def put(engine: Engine, state: Mapping[str, Any]) -> None:
    """Check what :func:`take` gave, or some of its entries, and put it back.

    Raises:
        KeyError: an unknown name.
        TypeError: not a dict.
        ValueError: a wrong shape or dtype; nothing has changed.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"state: {type(state).__name__}, expected a dict by name")
    fields = engine.program.fields
    wanted = {name: Buffer(field.dtype, field.shape) for name, field in fields.items()}
    wanted |= {name: engine.program.buffers[name] for name in _buffers(engine)}
    checked = {}
    for name, value in state.items():
        if name not in wanted:
            raise KeyError(f"state[{name!r}]: expected one of {', '.join(wanted)}")
        checked[name] = _checked(engine, name, value, wanted[name])
    for name, native in checked.items():
        if name in fields:
            engine.memory.write(fields[name], native)
        else:
            engine.views[name][...] = native


def _checked(engine: Engine, name: str, value: Any, wanted: Buffer) -> Any:
    native = engine.backend.native(value)
    shape = (engine.num_envs, *wanted.shape)
    if tuple(native.shape) != shape:
        raise ValueError(f"state[{name!r}]: shape {tuple(native.shape)}, expected {shape}")
    if str(native.dtype).removeprefix("torch.") != wanted.dtype.name:
        raise ValueError(f"state[{name!r}]: dtype {native.dtype}, expected {wanted.dtype.name}")
    return native


def _buffers(engine: Engine) -> list[str]:
    groups = [group.name for group in engine.program.groups]
    kinds = [*(["active"] if engine.spec.leaving else []), *OF_GROUPS]
    return [*OF_BATCH, *(f"{kind}/{group}" for kind in kinds for group in groups)]
