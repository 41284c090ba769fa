"""Parts of a computation that go on side by side at fixed ratios, kept by counting turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping


class Turns:
    """Who may take a turn: whoever is ahead waits, for however long the others take.

    A part's clock shows its turns times what one of them costs, so that clocks that go alike keep
    turns in the inverse ratio of their costs. With costs of 8, 1 and 2 the second part takes eight
    turns, and the third four, for one of the first. No clock goes beyond that of the slowest part
    by more than ``lead``, and all stop before ``limit``, which is where they meet: there nobody
    works, and nothing changes.

    Args:
        costs: of a turn of each part.
        lead: how far ahead a clock may be; at least the greatest cost, or nobody could begin.

    Attributes:
        counts: turns taken by each part.
        limit: what no clock goes beyond.

    Raises:
        ValueError: ``lead`` is below the greatest cost.
    """

    def __init__(self, costs: Mapping[str, int], lead: int) -> None:
        if lead < max(costs.values()):
            raise ValueError(f"lead={lead}: expected at least {max(costs.values())}, a turn's cost")
        self.costs, self.lead = dict(costs), lead
        self.counts = dict.fromkeys(costs, 0)
        self.limit = 0
        self._stopped = False
        self._changed = threading.Condition()

    def clock(self, name: str) -> int:
        """What a part's clock shows."""
        return self.counts[name] * self.costs[name]

    def _has_more(self, name: str) -> bool:
        return not self._stopped and self.clock(name) + self.costs[name] <= self.limit

    def _is_due(self, name: str) -> bool:
        slowest = min(self.clock(other) for other in self.costs)
        return self.clock(name) + self.costs[name] <= slowest + self.lead

    def wait(self, name: str) -> bool:
        """Wait until a part may take its next turn; False if there is none below the limit."""
        with self._changed:
            self._changed.wait_for(lambda: not self._has_more(name) or self._is_due(name))
            return self._has_more(name)

    def took(self, name: str) -> None:
        """Count a turn that was taken."""
        with self._changed:
            self.counts[name] += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Let nobody begin another turn."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def next(self) -> str | None:
        """The part whose clock is furthest behind, of those with a turn below the limit."""
        waiting = [name for name in self.costs if self._has_more(name)]
        return min(waiting, key=self.clock, default=None)


def one_by_one(turns: Turns, parts: Mapping[str, Callable[[], None]]) -> None:
    """Take all turns up to the limit in this thread, always in the same order."""
    while (name := turns.next()) is not None:
        parts[name]()
        turns.took(name)


def side_by_side(turns: Turns, parts: Mapping[str, Callable[[], None]]) -> None:
    """Take all turns up to the limit, each part in a thread of its own.

    When it returns, or raises, no thread is left. An error in one part stops the others after the
    turn they are in, and so does Ctrl-C.

    Raises:
        BaseException: what the first part to fail raised.
    """
    errors: list[BaseException] = []
    ended = threading.Semaphore(0)  # not Thread.join: Python 3.11's, interrupted, calls it ended

    def work(name: str) -> None:
        try:
            while turns.wait(name):
                parts[name]()
                turns.took(name)
        except BaseException as error:  # to be raised where it is seen
            errors.append(error)
            turns.stop()
        finally:
            ended.release()

    threads = [threading.Thread(target=work, args=(name,), name=name) for name in parts]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            while not ended.acquire(timeout=0.5):
                pass  # to see Ctrl-C even where it wakes another thread than this
    except BaseException:  # Ctrl-C
        turns.stop()
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
    if errors:
        raise errors[0]
