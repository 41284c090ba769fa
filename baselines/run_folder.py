"""A run and all it leaves behind, in one folder:

config.yaml            with which the run can be repeated exactly
checkpoint.pt          to resume it, and to play what was trained
progress.csv           a line an iteration: steps, seconds, returns, losses
events.out.tfevents.*  the same for TensorBoard
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_zoo.backends import resolve_device
from gpu_zoo.baselines import config_file
from gpu_zoo.baselines.algorithms import Config
from gpu_zoo.baselines.csv_log import PROGRESS

if TYPE_CHECKING:
    from gpu_zoo.baselines.loop import Update
    from gpu_zoo.baselines.ppo import TrainResult

CONFIG, CHECKPOINT = "config.yaml", "checkpoint.pt"


def new(name: str) -> Path:
    """A folder that is not there yet, ``runs/<name>/<time>``."""
    time = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder = Path("runs") / name / time
    number = 1
    while folder.exists():  # another run of the same second
        number += 1
        folder = folder.with_name(f"{time}_{number}")
    return folder


def checkpoint_of(run: str | Path) -> Path:
    """The checkpoint that is meant by it or by the folder of its run."""
    path = Path(run)
    return path / CHECKPOINT if path.is_dir() else path


def first_process() -> bool:
    """Whether this is the one of torchrun's processes that writes files; alone it always is."""
    return os.environ.get("RANK", "0") == "0"


def check_free(folder: str | Path) -> None:
    """See that a new run may write to a folder.

    Raises:
        ValueError: there is a run in it.
    """
    for name in (CONFIG, CHECKPOINT, PROGRESS):
        if (Path(folder) / name).exists():
            raise ValueError(f"{folder}: expected a folder without a run, but there is {name}")


def placed(folder: str | Path, config: Config) -> Config:
    """The configuration with places in the folder, where it names none, and with a real device."""
    return replace(
        config,
        device=resolve_device(config.device),
        checkpoint=config.checkpoint or str(Path(folder) / CHECKPOINT),
        log_dir=config.log_dir or str(folder),
    )


def train(
    folder: str | Path,
    env_id: str,
    algorithm: str,
    config: Config,
    env_params: Mapping[str, Any] | None = None,
    *,
    on_update: Callable[[Update], None] | None = None,
) -> TrainResult:
    """Train in a folder of the run's own; under torchrun, each process calls it alike.

    Args:
        folder: made if need be.
        env_id: such as ``"mpe/simple_spread_v3"``.
        algorithm: ``"ppo"``, ``"a2c"``, ``"ddpg"``, ``"pql"`` or ``"sac"``.
        config: its hyper-parameters; a checkpoint or log folder that they name is used instead.
        env_params: parameters of the environment.
        on_update: called after every iteration.

    Raises:
        KeyError: no such environment.
        TypeError: actions that the algorithm cannot choose.
        ValueError: a run is in the folder already, or a parameter is out of range.
    """
    if first_process():
        check_free(folder)
    config = placed(folder, config)
    if first_process():
        Path(folder).mkdir(parents=True, exist_ok=True)
        config_file.write(Path(folder) / CONFIG, env_id, algorithm, config, env_params or {})
    trainer: Any = importlib.import_module(f"gpu_zoo.baselines.{algorithm}")
    result: TrainResult = trainer.train(env_id, config, env_params, on_update=on_update)
    return result
