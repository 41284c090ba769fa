"""What tests of trainers with threads share."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def left() -> Callable[[], set[threading.Thread]]:
    """The threads that run now and did not when the test began, whoever began those."""
    before = set(threading.enumerate())
    return lambda: set(threading.enumerate()) - before


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, as in a terminal; a shell's background processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
