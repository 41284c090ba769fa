"""Checkpoints on disk: a file is either the old one or the new one, never half of it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gpu_zoo.registry import UnknownEnvironment

FORMAT = "gpu_zoo checkpoint 1"


class CheckpointError(ValueError):
    """A file that is missing, broken, or no checkpoint of ours."""


def save(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` (tensors, numbers, strings, and lists and dicts of them) to ``path``.

    The content goes to a new file in the same folder, which then takes the old one's place in one
    step. Whatever happens in between, ``path`` holds a whole checkpoint.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            torch.save({"format": FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())  # or a power cut could leave the new name on an empty file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: str | Path, *algorithms: str) -> dict[str, Any]:
    """Read what :func:`save` wrote, its tensors on the CPU. Runs no code from the file.

    Args:
        path: the file.
        algorithms: those of which it must be; by default, any.

    Raises:
        CheckpointError: the file is missing, broken or something else.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        with warnings.catch_warnings():  # about files that are not torch's
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a dozen kinds, some of them many lines long
        raise CheckpointError(f"{path}: broken, or not a checkpoint of gpu_zoo") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: not a checkpoint of gpu_zoo, or of another version")
    if algorithms and content.get("algorithm", "ppo") not in algorithms:
        names = " or ".join(name.upper() for name in algorithms)
        raise CheckpointError(f"{path}: a checkpoint of another algorithm than {names}")
    return content


@contextmanager
def fitting(path: str | Path) -> Iterator[None]:
    """Around the use of what a checkpoint holds: what does not fit is the checkpoint's fault.

    Raises:
        CheckpointError: the environment, or gpu_zoo, is another one than when it was written.
    """
    try:
        yield
    except (CheckpointError, UnknownEnvironment):
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        # torch lists all tensors that differ, a line each, after a headline.
        lines = [line.strip() for line in str(error).splitlines()]
        reason = lines[1] if len(lines) > 1 else lines[0]
        raise CheckpointError(
            f"{path}: does not fit the environment, or this version of gpu_zoo: {reason}"
        ) from error


def places(path: str | Path, state: Mapping[str, Any]) -> dict[str, Any]:
    """What a resumed run's configuration has instead: where it computes and writes.

    It computes on the same device and saves to ``path``. Logs that lay in the checkpoint's folder
    do so still, should the folder have been moved.
    """
    saved, log_dir = state["config"]["checkpoint"], state["config"]["log_dir"]
    if saved and log_dir and Path(saved).parent == Path(log_dir):
        log_dir = str(Path(path).parent)
    return {"device": state["device"], "checkpoint": str(path), "log_dir": log_dir}
