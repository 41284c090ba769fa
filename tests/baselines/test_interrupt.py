"""Ctrl-C: the iteration under way is finished and saved, and the run goes on from there."""

from __future__ import annotations

import importlib
import signal
from pathlib import Path
from typing import Any

import pytest

from gpu_zoo.baselines import checkpoint
from gpu_zoo.baselines.algorithms import ALGORITHMS
from gpu_zoo.baselines.loop import Update, ctrl_c_waits, never

pytestmark = pytest.mark.usefixtures("ctrl_c")
SPREAD = "mpe/simple_spread_v3"
PARAMS = {"N": 2, "continuous_actions": True}


def small(algorithm: str, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "total_steps": 960, "num_envs": 16, "horizon": 10, "hidden": (8,), "device": "cpu",
        "progress": False, "checkpoint_interval": 100, **changes,
    }  # fmt: skip
    if algorithm == "pql":
        settings |= {"warmup": 10, "batch_size": 32, "capacity": 5000, "concurrent": False}
    return ALGORITHMS[algorithm](**settings)


def press(update: Update) -> None:
    if update.index == 2:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("algorithm", ["ppo", "pql"])
def test_what_was_interrupted_is_saved_and_goes_on_exactly(algorithm: str, tmp_path: Path) -> None:
    trainer: Any = importlib.import_module(f"gpu_zoo.baselines.{algorithm}")
    whole = trainer.train(SPREAD, small(algorithm), PARAMS).curve
    path = str(tmp_path / "run.pt")
    with pytest.raises(KeyboardInterrupt):
        trainer.train(SPREAD, small(algorithm, checkpoint=path), PARAMS, on_update=press)
    assert len(checkpoint.load(path)["curve"]) == 3, "pressed after the second, in the third"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert trainer.resume(path).curve == whole


def test_a_run_that_saves_nothing_ends_at_once() -> None:
    seen: list[int] = []

    def note(update: Update) -> None:
        seen.append(update.index)
        press(update)
        seen.append(-update.index)

    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("gpu_zoo.baselines.ppo").train(
            SPREAD, small("ppo"), PARAMS, on_update=note
        )
    assert seen == [1, -1, 2]


def test_the_second_one_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), ctrl_c_waits() as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_somebody_elses_handler_stays() -> None:
    def theirs(number: int, frame: object) -> None:
        pass

    before = signal.signal(signal.SIGINT, theirs)
    try:
        with ctrl_c_waits() as pressed:
            assert pressed is never
            assert signal.getsignal(signal.SIGINT) is theirs
    finally:
        signal.signal(signal.SIGINT, before)
