"""Beginning a run and going on with one: the same for every algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from gpu_zoo.baselines import checkpoint, distributed, loop
from gpu_zoo.baselines.algorithms import Config
from gpu_zoo.baselines.loop import Trainer, TrainResult, Update

C = TypeVar("C", bound=Config)
OnUpdate = Callable[[Update], None] | None


@dataclass(frozen=True)
class Runs(Generic[C]):
    """What runs of one algorithm begin with.

    Attributes:
        algorithm: its name, which its checkpoints bear.
        config: its hyper-parameters' class.
        default: gives those tuned for an environment.
        trainer: makes a run of an environment, hyper-parameters and the environment's parameters.
        restored: makes the run that a checkpoint is of, still at its beginning, with these
            hyper-parameters; by default as ``trainer`` does.
        saved: what a checkpoint calls the hyper-parameters.
        several: whether torchrun's processes may share a run.
    """

    algorithm: str
    config: type[C]
    default: Callable[[str], C]
    trainer: Callable[[str, C, Mapping[str, Any]], Trainer]
    restored: Callable[[Mapping[str, Any], C], Trainer] | None = None
    saved: str = "config"
    several: bool = False

    def train(
        self,
        env_id: str,
        config: C | None,
        env_params: Mapping[str, Any] | None,
        on_update: OnUpdate,
    ) -> TrainResult:
        """From the beginning to the end."""
        config = self.default(env_id) if config is None else config
        with self._processes(), loop.cpu_threads(config.threads):
            return loop.run(self.trainer(env_id, config, env_params or {}), on_update)

    def resume(self, path: str | Path, on_update: OnUpdate) -> TrainResult:
        """From a checkpoint to the end.

        Raises:
            CheckpointError: the file is missing, broken or no checkpoint of the algorithm.
        """
        state = checkpoint.load(path, self.algorithm)
        with checkpoint.fitting(path):
            config = self.config(**{**state[self.saved], **checkpoint.places(path, state)})
        with self._processes(), loop.cpu_threads(config.threads):
            if self.restored is None:
                trainer = self.trainer(state["env_id"], config, state["env_params"])
            else:
                trainer = self.restored(state, config)
            with checkpoint.fitting(path):
                trainer.load_state_dict(state)
            return loop.run(trainer, on_update)

    @contextmanager
    def _processes(self) -> Iterator[None]:
        if not self.several:
            distributed.alone(self.algorithm)
        with distributed.joined() if self.several else nullcontext():
            yield
