"""Where a run's time went: nothing is lost, nothing is counted twice, nobody waits for a GPU."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from gpu_zoo.baselines import a2c, ddpg, loop, ppo, profile, sac
from gpu_zoo.baselines.profile import REST, Profile, part, recording

SPREAD = "mpe/simple_spread_v3"
SMALL: dict[str, Any] = {"num_envs": 16, "horizon": 25, "device": "cpu", "progress": False}
PARTS = {"environment steps", "acting", "values and advantages", "gradient", "optimizer"}


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_the_parts_of_a_run_add_up_to_it(algorithm: str) -> None:
    with recording() as found:
        if algorithm == "ppo":
            curve = ppo.train(SPREAD, ppo.PPOConfig(total_steps=1200, **SMALL)).curve
        else:
            curve = a2c.train(SPREAD, a2c.A2CConfig(total_steps=1200, **SMALL)).curve
    seconds = found.seconds()
    assert set(seconds) == PARTS | {REST}
    assert all(took > 0 for took in seconds.values())
    assert sum(seconds.values()) == pytest.approx(found.whole)
    assert found.whole >= curve[-1].seconds  # the trainer's own clock, which starts a little later


@pytest.mark.parametrize("algorithm", [ddpg, sac])
def test_so_do_the_parts_of_learning_from_a_replay(algorithm: Any) -> None:
    small = {**SMALL, "warmup": 10, "batch_size": 16, "hidden": (8,)}
    config = algorithm.default_config("classic/pendulum_v1", total_steps=1200, **small)
    with recording() as found:
        curve = algorithm.train("classic/pendulum_v1", config).curve
    seconds = found.seconds()
    assert set(seconds) == {"environment steps", "acting", "replay", "learning", REST}
    assert all(took > 0 for took in seconds.values())
    assert sum(seconds.values()) == pytest.approx(found.whole)
    assert found.whole >= curve[-1].seconds


def test_each_part_gets_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that only the parts themselves move: 25 steps x 2 + 4 gradients x 3, and so on."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slower(owner: Any, name: str, seconds: float) -> None:
        real = getattr(owner, name)

        def method(*args: Any, **kwargs: Any) -> Any:
            now[0] += seconds
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, method)

    config = ppo.PPOConfig(total_steps=800, epochs=2, minibatches=3, **SMALL)  # two iterations
    trainer = ppo.Trainer(SPREAD, config, {})
    learner = trainer.learners["agent"]
    slower(trainer.env, "step", 2)
    slower(learner, "act", 3)
    slower(learner, "prepare", 5)
    slower(learner, "gradient", 7)
    slower(learner.optimizer, "step", 11)
    slower(trainer, "record", 13)
    with recording() as found:
        loop.run(trainer)
    assert found.seconds() == {
        "environment steps": 2 * 25 * 2, "acting": 2 * 25 * 3, "values and advantages": 2 * 5,
        "gradient": 2 * 6 * 7, "optimizer": 2 * 6 * 11, REST: 2 * 25 * 13,
    }  # fmt: skip


def test_nothing_is_recorded_unless_asked() -> None:
    assert isinstance(part("acting"), nullcontext)
    assert isinstance(profile.run(torch.device("cpu")), nullcontext)
    with recording() as found:
        pass
    ppo.train(SPREAD, ppo.PPOConfig(total_steps=400, **SMALL))
    assert found.whole == 0 and found.seconds() == {REST: 0}


def test_the_text_has_seconds_and_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 2.5, 3.0, 3.5, 4.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    found = Profile()
    with found.run(torch.device("cpu")):
        for name in ("acting", "gradient"):
            with found.part(name):
                pass
    whole, *rows = str(found).splitlines()
    assert whole == "where 4.00 s went:"
    assert [row.split() for row in rows] == [
        ["acting", "1.50", "s", "37.5%"],
        ["gradient", "0.50", "s", "12.5%"],
        ["the", "rest", "2.00", "s", "50.0%"],
    ]


class Event:
    """A CUDA event on a device that is done with what lies before ``Event.reached`` milliseconds.

    Every event recorded is 100 ms after the one before.
    """

    count = 0
    reached = 0
    waits = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self, stream: Any) -> None:
        assert stream == ("stream", "cuda:1")
        Event.count += 1
        self.at = Event.count * 100

    def query(self) -> bool:
        return self.at <= Event.reached

    def synchronize(self) -> None:
        Event.waits += 1
        Event.reached = max(Event.reached, self.at)

    def elapsed_time(self, end: Event) -> float:
        assert self.query() and end.query(), "not there yet: CUDA raises an error"
        return float(end.at - self.at)


def test_on_cuda_events_are_read_when_they_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream", str(device)))
    monkeypatch.setattr(profile, "PENDING", 10)
    found = Profile()
    with found.run(torch.device("cuda:1")):
        for i in range(100):
            with found.part("acting"):
                pass
            if i == 49:
                assert len(found._spans) == 50  # kept: the device has reached none of them
                Event.reached = Event.count * 100
        assert Event.waits == 0
        assert len(found._spans) == 50  # those that are not over, and none besides
    assert Event.waits == 1
    # 202 events, 100 ms from each to the next: 100 parts of one such stretch out of 201.
    assert found.seconds() == pytest.approx({"acting": 10.0, REST: 10.1})
