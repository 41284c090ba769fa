"""Logging whole episodes of chosen environments of a batch, on the device that steps them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from gpu_zoo.backends import ALIGNMENT, Operation
from gpu_zoo.buffers import Buffer
from gpu_zoo.errors import ClosedEnvironmentError, ResetNeeded
from gpu_zoo.memory import to_numpy
from gpu_zoo.trajectory import Trajectory
from gpu_zoo.vector import VectorEnv

Source = Callable[[], Any]  # gives what the chosen environments hold now, one row each
# Buffers with one row a step; one row a frame, of the reset and of each step, have the others.
STEP_BUFFERS = ("actions", "rewards", "terminations", "truncations")


class EpisodeLog:
    """Keeps one whole episode of each chosen environment, from its start to its end.

    Once made, it is told of every ``reset``, ``step`` and ``set_state`` of the batch and copies
    what the chosen environments hold into memory of its own, of the batch's kind and on its
    device. Nothing waits for the device until :meth:`fetch`, and the work is the same in each
    step.

    Each environment's episode is its first one that begins after the log was made, or that has
    just begun then. One that a ``reset`` cuts short is dropped, and the next one logged in its
    place; so is one that ``set_state`` puts on a step that the log has not seen.

    In SAME_STEP mode an episode's last step begins the next one, so the state in which it ended
    is never there to be logged: the last frame is the one before it. The last step's actions,
    rewards and flags are logged, and so are the last observations. Where the last frame matters,
    use NEXT_STEP or DISABLED.

    Args:
        env: the batch, reset or not.
        environments: which of its environments to log.
        steps: the most steps of an episode to keep; by default the time limit as it is now. Of a
            longer episode the beginning is kept.
        observations: whether to log observations, too.

    Raises:
        TypeError: no :class:`~gpu_zoo.VectorEnv`, or a number that is no int.
        IndexError: there is no such environment.
        ValueError: no environment, one that is named twice, or steps below 1.
        ClosedEnvironmentError: the batch was closed.
    """

    def __init__(
        self,
        env: VectorEnv,
        environments: Sequence[int] = (0,),
        *,
        steps: int | None = None,
        observations: bool = False,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise TypeError(f"env: {type(env).__name__}, expected a gpu_zoo.VectorEnv")
        if env.closed:
            raise ClosedEnvironmentError(f"EpisodeLog: {env.spec.id} was closed; make a new one")
        self._env, self._engine = env, env.engine
        self._environments = _checked(environments, env.num_envs)
        self._steps = _time_limit(env) if steps is None else _as_int("steps", steps)
        if self._steps < 1:
            raise ValueError(f"steps={steps}: expected at least 1")
        self._same_step = env.autoreset_mode == AutoresetMode.SAME_STEP
        chosen = np.array(self._environments)
        self._index = self._to_device(chosen)
        self._lanes = self._to_device(np.arange(len(chosen)))
        self._sources = dict(self._find_sources(chosen, observations))
        self._allocate()
        if self._engine.is_reset:
            self._log_frame()  # of environments that stand at the start of an episode
        self._engine.watchers.append(self._notice)

    @property
    def complete(self) -> bool:
        """Whether all episodes have ended, or have as many steps as are kept.

        Waits for the device.
        """
        return bool((self._over | (self._length >= self._steps)).all())

    def fetch(self) -> Trajectory:
        """What was logged until now, brought to the host in one copy. Logging goes on.

        Raises:
            ResetNeeded: no episode has begun yet.
        """
        arena = np.array(to_numpy(self._arena))
        arrays = {
            name: _part(arena, offset, self._buffers[name])
            for name, offset in self._offsets.items()
        }
        begun = arrays["going"] | arrays["over"]
        if not begun.any():
            raise ResetNeeded("fetch: no episode has begun since the log was made")
        lengths = np.minimum(arrays["length"], self._steps)
        ended = arrays["over"] & (arrays["length"] <= self._steps)
        frames = np.where(begun, lengths + 1 - (ended & self._same_step), 0)
        observed = np.where(begun, lengths + 1, 0)
        fields: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for name in self._sources:
            kind, _, what = name.partition("/")
            rows = arrays[name][:-1]  # the last one took what is not to be kept
            counts = {"observations": observed}.get(kind, frames)
            _blank(rows, lengths if kind in STEP_BUFFERS else counts)
            fields.setdefault(kind, {})[what] = rows
        env = self._env
        return Trajectory(
            env_id=env.spec.id,
            params={
                name: value[list(self._environments)] if isinstance(value, np.ndarray) else value
                for name, value in env.params.items()
            },
            numerics=env.numerics,
            autoreset_mode=env.autoreset_mode.value,
            agents=dict(env.groups),
            environments=self._environments,
            lengths=lengths,
            frames=frames,
            ended=ended,
            state=fields.pop("state", {}),
            observations=fields.pop("observations", {}),
            **fields,
        )

    def close(self) -> None:
        """Log nothing from now on; what was logged can be fetched. Closing twice does nothing."""
        if self._notice in self._engine.watchers:
            self._engine.watchers.remove(self._notice)

    def __enter__(self) -> EpisodeLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Memory ------------------------------------------------------------------------------------

    def _to_device(self, array: npt.NDArray[Any]) -> Any:
        return self._engine.backend.public(self._engine.backend.native(array))

    def _find_sources(
        self, chosen: npt.NDArray[np.int64], observations: bool
    ) -> Iterator[tuple[str, Source]]:
        """What is logged, by name, and where it comes from."""
        for name in self._engine.program.fields:
            yield f"state/{name}", self._field(name, chosen)
        kinds = [*STEP_BUFFERS, "active", *(["observations"] if observations else [])]
        for group in self._env.groups:
            for kind in kinds:
                yield f"{kind}/{group}", self._rows(f"{kind}/{group}")

    def _rows(self, name: str) -> Source:
        array, index = self._engine.arrays[name], self._index
        return lambda: array[index]

    def _field(self, name: str, chosen: npt.NDArray[np.int64]) -> Source:
        """A field of the state, which lies in tiles: the environments of a tile side by side."""
        engine = self._engine
        field, tile = engine.program.fields[name], engine.program.tile
        tiles = engine.backend.public(engine.memory.tiles(field))
        which, lane = self._to_device(chosen // tile), self._to_device(chosen % tile)
        shape = (len(chosen), *field.shape)
        return lambda: tiles[which, :, lane].reshape(shape)

    def _allocate(self) -> None:
        """One arena, so that it is fetched in one copy. Each buffer has a row for what is not kept.

        ``going``, ``over`` and ``length`` say of each chosen environment whether its episode is
        being logged, whether it has ended, and how many steps it has, those included that are not
        kept.
        """
        count, program = len(self._environments), self._engine.program
        self._buffers = {
            "length": Buffer(np.dtype("i8"), (count,)),
            "going": Buffer(np.dtype("?"), (count,)),
            "over": Buffer(np.dtype("?"), (count,)),
        }
        for name in self._sources:
            kind, _, what = name.partition("/")
            own = program.fields[what] if kind == "state" else program.buffers[name]
            rows = self._steps + (1 if kind in STEP_BUFFERS else 2)
            self._buffers[name] = Buffer(own.dtype, (rows, count, *own.shape))
        self._offsets: dict[str, int] = {}
        end = 0
        for name, buffer in self._buffers.items():
            self._offsets[name] = end
            nbytes = int(np.prod(buffer.shape, dtype=np.int64)) * buffer.dtype.itemsize
            end += -(-nbytes // ALIGNMENT) * ALIGNMENT
        self._arena = self._to_device(np.zeros(end, np.uint8))
        self._logged = {
            name: _part(self._arena, offset, self._buffers[name])
            for name, offset in self._offsets.items()
        }
        self._length, self._going, self._over = (
            self._logged[name] for name in ("length", "going", "over")
        )
        self._where = importlib.import_module(type(self._arena).__module__.split(".")[0]).where

    # Logging -----------------------------------------------------------------------------------
    # No branch depends on what the device holds: rows of environments that are not logged now go
    # to the buffer's last row.

    def _notice(self, operation: Operation) -> None:
        if operation == "step":
            self._log_step()
            return
        if operation == "reset":
            self._going &= ~self._now("reset_mask")
        else:
            # set_state: time may have gone back, but not on to where there is no log.
            steps = self._now("steps")
            self._going &= steps <= self._length
            self._length[...] = self._where(self._going, steps, self._length)
        self._log_frame()

    def _log_step(self) -> None:
        done = self._going & self._now("done")
        # In SAME_STEP mode the step counter is the next episode's already.
        taken = self._where(done, self._now("last_lengths"), self._now("steps"))
        self._length[...] = self._where(self._going, taken, self._length)
        kept = self._going & (taken <= self._steps)
        self._write(STEP_BUFFERS, self._where(kept, taken - 1, self._steps))
        if self._same_step:
            self._log_last_observations(self._where(done & kept, taken, self._steps + 1))
            self._going &= ~done
        self._over |= done
        self._log_frame()
        self._going &= ~done

    def _log_frame(self) -> None:
        steps = self._now("steps")
        begins = ~(self._going | self._over) & (steps == 0)
        self._length[...] = self._where(begins, 0, self._length)
        self._going |= begins
        kept = self._going & (steps <= self._steps)
        row = self._where(kept, steps, self._steps + 1)
        self._write(("state", "active", "observations"), row)

    def _log_last_observations(self, row: Any) -> None:
        for name, buffer in self._logged.items():
            if name.startswith("observations/"):
                last = self._engine.arrays[f"final_{name}"]
                buffer[row, self._lanes] = last[self._index]

    def _write(self, kinds: tuple[str, ...], row: Any) -> None:
        for name, source in self._sources.items():
            if name.startswith(kinds):
                self._logged[name][row, self._lanes] = source()

    def _now(self, name: str) -> Any:
        return self._engine.arrays[name][self._index]


def _checked(environments: Sequence[int], num_envs: int) -> tuple[int, ...]:
    if isinstance(environments, (str, bytes)) or not hasattr(environments, "__iter__"):
        raise TypeError(f"environments={environments!r}: expected a list of ints")
    chosen = tuple(_as_int("environments", index) for index in environments)
    if not chosen:
        raise ValueError("environments: none is named, expected at least one")
    for index in chosen:
        if not 0 <= index < num_envs:
            raise IndexError(f"environments: {index}, expected 0 <= index < {num_envs}")
        if chosen.count(index) > 1:
            raise ValueError(f"environments: {index} is named twice")
    return chosen


def _as_int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: {value!r}, expected an int")
    return int(value)


def _time_limit(env: VectorEnv) -> int:
    """The longest of the batch's, where environments have one each."""
    return int(np.max(env.params[env.spec.time_limit]))


def _part(arena: Any, offset: int, buffer: Buffer) -> Any:
    """A buffer in an arena of bytes: a view."""
    nbytes = int(np.prod(buffer.shape, dtype=np.int64)) * buffer.dtype.itemsize
    part = arena[offset : offset + nbytes]
    if hasattr(part, "clone"):  # torch's
        import torch

        return part.view(getattr(torch, buffer.dtype.name)).reshape(buffer.shape)
    return part.view(buffer.dtype).reshape(buffer.shape)


def _blank(rows: npt.NDArray[Any], counts: npt.NDArray[Any]) -> None:
    """Zero what an environment has no row of: leftovers of episodes that were cut short."""
    for lane, count in enumerate(counts):
        rows[count:, lane] = 0
