"""A run's numbers in Weights & Biases, for those who have it: ``pip install 'gpu-zoo[wandb]'``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gpu_zoo.baselines.csv_log import STEP
from gpu_zoo.errors import MissingDependency

if TYPE_CHECKING:
    from gpu_zoo.baselines.loop import Update

ID_FILE = "wandb_id.txt"


class WandbLog:
    """Logs every iteration; a context manager, and an ``on_update`` of the trainers.

        with WandbLog("my_project", "runs/spread", config) as log:
            ppo.train("mpe/simple_spread_v3", on_update=log)

    A run that is resumed in the same folder goes on in Weights & Biases as well. The iterations
    after its checkpoint that are there already come again, the same, and are not taken twice.

    Args:
        project: the project's name.
        folder: the run's folder, whose name the run gets, and whose folder's name its group.
        config: what is shown as the run's configuration.

    Raises:
        MissingDependency: wandb is not installed.
    """

    def __init__(self, project: str, folder: str | Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingDependency(
                "Weights & Biases needs wandb: pip install 'gpu-zoo[wandb]'"
            ) from None
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        known = folder / ID_FILE
        self._run: Any = wandb.init(
            project=project,
            id=known.read_text().strip() if known.is_file() else None,
            resume="allow",
            name=folder.name,
            group=folder.resolve().parent.name,
            config=dict(config),
            dir=str(folder),
        )
        known.write_text(f"{self._run.id}\n")
        self._run.define_metric("*", step_metric=STEP)

    def __call__(self, update: Update) -> None:
        """Log an iteration."""
        times: dict[str, float] = {STEP: update.env_steps, "seconds": update.seconds}
        self._run.log(times | update.numbers(), step=update.index)

    def __enter__(self) -> WandbLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run.finish(exit_code=0 if kind is None else 1)
