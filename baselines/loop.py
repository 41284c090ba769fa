"""The loop around a trainer's iterations: progress, curve and checkpoints."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from gpu_zoo.baselines import checkpoint, distributed, profile
from gpu_zoo.baselines.curves import EVALUATED, IN_TRAINING
from gpu_zoo.baselines.evaluation import Policy
from gpu_zoo.baselines.evaluator import Config, Evaluator
from gpu_zoo.baselines.logger import Logger


@dataclass(frozen=True)
class Update:
    """One iteration: ``horizon`` steps of all environments, then learning from them.

    Attributes:
        index: iterations so far, this one included.
        env_steps: environment steps so far.
        episodes: how many ended in this iteration, those with a staggered start not counted.
        returns: by group, their mean return, itself a mean over the group's agents; empty if no
            episode ended. By agent, if each has a network of its own.
        losses: means over the gradient steps, named ``<group>/<metric>``, or by agent.
        seconds: since the run began, stops not counted.
        evaluated: by group, the mean return of the evaluation after it; empty if there was none.
    """

    index: int
    env_steps: int
    episodes: int
    returns: dict[str, float]
    losses: dict[str, float]
    seconds: float = field(compare=False)
    evaluated: dict[str, float] = field(default_factory=dict)

    def numbers(self) -> dict[str, float]:
        """What there is to log of it, by name, but for the time."""
        returns = {f"{group}/{IN_TRAINING}": value for group, value in self.returns.items()}
        evaluated = {f"{group}/{EVALUATED}": value for group, value in self.evaluated.items()}
        return returns | evaluated | self.losses


def iterations(config: Config) -> int:
    """How many a run has."""
    return math.ceil(config.total_steps / (config.num_envs * config.horizon))


@dataclass(frozen=True)
class TrainResult:
    """What training gives.

    Attributes:
        policy: the trained policy.
        curve: one entry an iteration.
    """

    policy: Policy
    curve: list[Update]


class Trainer(Protocol):
    """A run: all that it consists of, and that a checkpoint holds.

    Attributes:
        curve: one entry for each iteration made so far.
    """

    curve: list[Update]

    @property
    def config(self) -> Config:
        """Its hyper-parameters."""

    def iterate(self) -> tuple[int, dict[str, float], dict[str, float]]:
        """``horizon`` steps of all environments, and learning from them: episodes, returns and
        losses as :class:`Update` has them.
        """

    def policy(self) -> Policy:
        """What has been learned so far; its networks are those that learn."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on; of all processes, on the first."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""


def run(trainer: Trainer, on_update: Callable[[Update], None] | None = None) -> TrainResult:
    """Iterate to the end of the run, saving now and then.

    A run that saves, in one process, saves on Ctrl-C as well, after the iteration under way.

    Args:
        trainer: the run; its curve grows.
        on_update: called after every iteration.

    Raises:
        NotFinite: rewards or losses are no numbers any more; the last checkpoint is left as it was.
    """
    with profile.run(trainer.policy().device):
        _iterate(trainer, on_update)
    return TrainResult(trainer.policy(), trainer.curve)


def _iterate(trainer: Trainer, on_update: Callable[[Update], None] | None) -> None:
    config, curve = trainer.config, trainer.curve
    a_step = config.num_envs * config.horizon
    updates = iterations(config)
    before = curve[-1].seconds if curve else 0.0
    begun = time.perf_counter()
    start = len(curve) * a_step
    first = distributed.rank() == 0
    evaluator = Evaluator(config, trainer.policy)
    progress, log_dir = config.progress and first, config.log_dir if first else None
    careful = (
        ctrl_c_waits() if config.checkpoint and distributed.size() == 1 else nullcontext(never)
    )
    with Logger(updates * a_step, start, progress, log_dir) as logger, careful as stopped:
        while len(curve) < updates:
            index = len(curve) + 1
            episodes, returns, losses = trainer.iterate()
            _check_finite(index, {**losses, **returns}, config.checkpoint)
            evaluated = evaluator.after(index) if first else {}
            seconds = before + time.perf_counter() - begun
            update = Update(index, index * a_step, episodes, returns, losses, seconds, evaluated)
            curve.append(update)
            logger.log(update.env_steps, seconds, update.returns, update.numbers())
            stopping = stopped()
            due = index % config.checkpoint_interval == 0 or index == updates or stopping
            if config.checkpoint and due:
                state = trainer.state_dict()
                if first:
                    checkpoint.save(config.checkpoint, state)
            if on_update is not None:
                on_update(update)
            if stopping:
                raise KeyboardInterrupt


class NotFinite(ArithmeticError):
    """A run in which a return or a loss is no number any more."""


def _check_finite(index: int, numbers: Mapping[str, float], saved: str | None) -> None:
    """Before anything is saved: nothing would be learned from here on.

    Raises:
        NotFinite: see there.
    """
    wrong = [f"{name}={value}" for name, value in numbers.items() if not math.isfinite(value)]
    if wrong:
        kept = f"; {saved} is as it was" if saved else ""
        raise NotFinite(f"iteration {index}: {', '.join(wrong)}, expected finite numbers{kept}")


def never() -> bool:
    """No."""
    return False


@contextmanager
def ctrl_c_waits() -> Iterator[Callable[[], bool]]:
    """Within the block the first Ctrl-C interrupts nothing; gives a function that says if it came.

    The second interrupts as ever. Where Ctrl-C is not Python's own to handle, nothing changes.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or (
        threading.current_thread() is not threading.main_thread()  # which alone hears of it
    ):
        yield never
        return
    pressed: list[int] = []

    def note(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Within the block torch computes with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
