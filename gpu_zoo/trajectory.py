"""Logged episodes: what was done and seen in them, on disk, and as an animation."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FORMAT = "gpu_zoo trajectory 1"
# What a file holds as JSON under "header", and what as arrays of these names.
HEADER = ("env_id", "numerics", "autoreset_mode", "agents", "environments")
PLAIN = ("lengths", "frames", "ended")

Array = npt.NDArray[Any]
ByName = dict[str, Array]


@dataclass(frozen=True)
class Trajectory:
    """Whole episodes of some environments of a batch, as NumPy arrays.

    Frame 0 is the start of an episode, and step t leads from frame t to frame t + 1. Episodes
    differ in length: of environment ``environments[k]`` only ``[:frames[k], k]`` of the frames and
    ``[:lengths[k], k]`` of the steps mean something; the rest is zero. E is the number of
    environments, S that of steps an episode may have.

    Attributes:
        env_id: the environment's id.
        params: parameter values; an array ``(E,)`` where each environment has its own.
        numerics: ``"fast"`` or ``"reference"``.
        autoreset_mode: Gymnasium's name of the batch's mode.
        agents: group to the names of its agents.
        environments: indices in the batch.
        lengths: int64 ``(E,)``, steps logged of each episode; 0 where none has begun.
        frames: int64 ``(E,)``, frames logged: one more than steps, but as many in SAME_STEP mode
            if the episode ended, since its last state was gone at once; 0 where none has begun.
        ended: bool ``(E,)``, whether the episode is here to its end.
        state: field of the state to array ``(S + 1, E, ...)``.
        active: group to bool ``(S + 1, E, agents)``: who is in the game.
        actions: group to array ``(S, E, agents, ...)``.
        rewards: group to float ``(S, E, agents)``.
        terminations: group to bool ``(S, E, agents)``.
        truncations: group to bool ``(S, E, agents)``.
        observations: group to float32 ``(S + 1, E, agents, n)``, the last ones included in every
            mode; empty unless they were logged.
    """

    env_id: str
    params: Mapping[str, Any]
    numerics: str
    autoreset_mode: str
    agents: Mapping[str, tuple[str, ...]]
    environments: tuple[int, ...]
    lengths: Array
    frames: Array
    ended: Array
    state: ByName
    active: ByName
    actions: ByName
    rewards: ByName
    terminations: ByName
    truncations: ByName
    observations: ByName

    def pictures(self, environment: int | None = None) -> Iterator[npt.NDArray[np.uint8]]:
        """Each frame of an episode, drawn: uint8 ``(700, 700, 3)``.

        Args:
            environment: its index in the batch; by default the first one logged.

        Raises:
            IndexError: that environment was not logged.
            ValueError: no episode of it has begun.
            KeyError: the environment is not registered here.
            NotImplementedError: it has no picture.
            MissingDependency: pygame is not installed.
        """
        from gpu_zoo.registry import spec
        from gpu_zoo.render.screen import Screen

        k = self._place(environment)
        screen = Screen(spec(self.env_id), "rgb_array", 0)
        params = self._params_of(k)
        start = self._scene(0, k)
        for frame in range(self.frames[k]):
            pixels = screen.show(self._scene(frame, k), start, params)
            assert pixels is not None
            yield pixels

    def animate(
        self, path: str | Path, environment: int | None = None, *, fps: float | None = None
    ) -> None:
        """Write an episode as an animated picture, 350 pixels wide.

        Args:
            path: a name that ends in ``.gif``, ``.png`` (animated, too) or ``.mp4``.
            environment: its index in the batch; by default the first one logged.
            fps: frames a second; by default the environment's ``render_fps``.

        Raises:
            ValueError: another ending, ``fps`` not above 0, or no episode has begun.
            IndexError: that environment was not logged.
            KeyError: the environment is not registered here.
            NotImplementedError: it has no picture.
            MissingDependency: a package is not installed.
        """
        from gpu_zoo import play
        from gpu_zoo.registry import spec

        fps = spec(self.env_id).render_fps if fps is None else fps
        if not isinstance(fps, (int, float)) or not fps > 0:
            raise ValueError(f"fps={fps!r}: expected a number above 0")
        play.check_recording(Path(path))
        frames = [play.shrink(picture) for picture in self.pictures(environment)]
        play.save_recording(Path(path), frames, fps)

    def save(self, path: str | Path) -> None:
        """Write everything to one file of NumPy's ``.npz`` format.

        It is written beside ``path`` and then takes its place, so that ``path`` never holds half
        of it.
        """
        path = Path(path)
        header = {name: getattr(self, name) for name in HEADER}
        single = {n: v for n, v in self.params.items() if not isinstance(v, np.ndarray)}
        arrays = {name: getattr(self, name) for name in PLAIN}
        arrays |= {f"params/{n}": v for n, v in self.params.items() if n not in single}
        for name in _by_name():
            arrays |= {f"{name}/{key}": value for key, value in getattr(self, name).items()}
        text = json.dumps({"format": FORMAT, **header, "params": single})
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with unfinished.open("wb") as file:
                np.savez_compressed(file, header=np.array(text), **arrays)
                file.flush()
                os.fsync(file.fileno())  # or a power cut could leave the new name on an empty file
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Trajectory:
        """Read what :meth:`save` wrote. Runs no code from the file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is broken, or something else.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(str(arrays.pop("header")))
            if header.pop("format") != FORMAT:
                raise ValueError("another format")
            return cls(**_unpacked(header, arrays))
        except FileNotFoundError:
            raise
        # What NumPy and zipfile make of files that are none of theirs, or cut short.
        except (
            ValueError, KeyError, TypeError, AttributeError, EOFError, OSError,
            zipfile.BadZipFile, zlib.error,
        ) as error:  # fmt: skip
            raise ValueError(f"{path}: broken, or no trajectory of gpu_zoo") from error

    def _place(self, environment: int | None) -> int:
        if environment is None:
            environment = self.environments[0]
        if environment not in self.environments:
            logged = ", ".join(map(str, self.environments))
            raise IndexError(f"environment={environment!r}: expected one of those logged, {logged}")
        k = self.environments.index(environment)
        if not self.frames[k]:
            raise ValueError(f"environment={environment}: no episode of it has begun")
        return k

    def _params_of(self, k: int) -> dict[str, Any]:
        return {
            name: value[k].item() if isinstance(value, np.ndarray) else value
            for name, value in self.params.items()
        }

    def _scene(self, frame: int, k: int) -> ByName:
        """What a draw function is given."""
        scene = {name: value[frame, k] for name, value in self.state.items()}
        scene |= {f"active/{group}": value[frame, k] for group, value in self.active.items()}
        return {**scene, "steps": np.array(frame)}


def _by_name() -> list[str]:
    """The attributes that are arrays by name."""
    return [field.name for field in fields(Trajectory) if field.type == "ByName"]


def _unpacked(header: dict[str, Any], arrays: ByName) -> dict[str, Any]:
    """The attributes, from a file's header and arrays."""
    values: dict[str, Any] = {**header, **{name: arrays.pop(name) for name in PLAIN}}
    # JSON has no tuples.
    values["environments"] = tuple(header["environments"])
    values["agents"] = {group: tuple(names) for group, names in header["agents"].items()}
    values["params"] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in header["params"].items()
    }
    values |= {name: {} for name in _by_name()}
    for name, array in arrays.items():
        kind, _, key = name.partition("/")
        values[kind][key] = array
    return values
