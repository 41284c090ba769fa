"""Where the time of a run goes: how long each of its parts took.

    with recording() as profile:
        train("mpe/simple_spread_v3")
    print(profile)

A trainer puts its parts into ``with part(name)``, which does nothing unless somebody records.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch

REST = "the rest"
PENDING = 4096  # spans kept until those of them that are over are added up
_NOTHING = nullcontext()


class Profile:
    """Seconds of a run by part.

    On CUDA a part's time is the device's, between two events in its stream, waiting for the host
    included. Nobody waits for an event before the run is over.

    Attributes:
        whole: seconds of the run, from its first iteration to the end of its last.
    """

    def __init__(self) -> None:
        self.whole = 0.0
        self._device = torch.device("cpu")
        self._seconds: dict[str, float] = {}
        self._spans: deque[tuple[str, torch.cuda.Event, torch.cuda.Event]] = deque()

    def seconds(self) -> dict[str, float]:
        """By part, in the order in which they first ended, and ``REST``: they add up to ``whole``.

        Call it when the run is over.
        """
        return {**self._seconds, REST: self.whole - sum(self._seconds.values())}

    def __str__(self) -> str:
        shares = {name: took / max(self.whole, 1e-9) for name, took in self.seconds().items()}
        rows = [f"  {n:24s}{s * self.whole:9.2f} s{s:7.1%}" for n, s in shares.items()]
        return "\n".join([f"where {self.whole:.2f} s went:", *rows])

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What happens within it is part ``name``; parts do not overlap."""
        if self._device.type == "cpu":
            begun = time.perf_counter()
            yield
            self._add(name, time.perf_counter() - begun)
            return
        begin = self._event()
        yield
        self._spans.append((name, begin, self._event()))
        while len(self._spans) > PENDING:
            if not self._spans[0][2].query():  # type: ignore[no-untyped-call]
                break
            self._settle()

    @contextmanager
    def run(self, device: torch.device) -> Iterator[None]:
        """What happens within it is the whole, on ``device``."""
        self._device = device
        if device.type == "cpu":
            begun = time.perf_counter()
            yield
            self.whole += time.perf_counter() - begun
            return
        begin = self._event()
        yield
        end = self._event()
        end.synchronize()
        self.whole += begin.elapsed_time(end) / 1000
        while self._spans:
            self._settle()

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _settle(self) -> None:
        name, begin, end = self._spans.popleft()
        self._add(name, begin.elapsed_time(end) / 1000)

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds


_current: ContextVar[Profile | None] = ContextVar("profile", default=None)


@contextmanager
def recording() -> Iterator[Profile]:
    """Within it, runs are recorded into the profile that it gives."""
    profile = Profile()
    token = _current.set(profile)
    try:
        yield profile
    finally:
        _current.reset(token)


def is_recording() -> bool:
    """Whether somebody records."""
    return _current.get() is not None


def part(name: str) -> AbstractContextManager[None]:
    """What happens within it is this part of the run."""
    profile = _current.get()
    return _NOTHING if profile is None else profile.part(name)


def run(device: torch.device) -> AbstractContextManager[None]:
    """What happens within it is the run, on this device."""
    profile = _current.get()
    return _NOTHING if profile is None else profile.run(device)
