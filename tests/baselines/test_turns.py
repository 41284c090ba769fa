"""Parts that go on side by side: their ratios, however slow each is, and how they end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpu_zoo.baselines.turns import Turns, one_by_one, side_by_side

Threads = Callable[[], set[threading.Thread]]
COSTS = {"explorer": 8, "values": 1, "policy": 2}


def make(limit: int, **costs: int) -> Turns:
    turns = Turns(costs or COSTS, lead=16)
    turns.limit = limit
    return turns


def nothing() -> None:
    pass


def idle(**others: Callable[[], None]) -> dict[str, Callable[[], None]]:
    return {**dict.fromkeys(COSTS, nothing), **others}


@pytest.mark.parametrize("slow", [None, *COSTS])
def test_counts_are_exact_whoever_is_slow(slow: str | None, left: Threads) -> None:
    turns = make(400)
    parts = idle(**({slow: lambda: time.sleep(0.001)} if slow else {}))
    side_by_side(turns, parts)
    assert turns.counts == {"explorer": 50, "values": 400, "policy": 200}
    assert not left()


@pytest.mark.parametrize("slow", [*COSTS])
def test_nobody_gets_further_ahead_than_allowed(slow: str) -> None:
    """The slow part finishes no turn before the others have gone as far ahead as they may."""
    turns = make(400)
    ahead: dict[str, int] = dict.fromkeys(COSTS, 0)

    def wait() -> None:
        most = min(turns.limit, turns.clock(slow) + 16)
        while any(turns.clock(n) + c <= most for n, c in COSTS.items() if n != slow):
            time.sleep(0.0001)
        time.sleep(0.002)  # for whoever would go further

    def note(name: str) -> None:
        this = turns.clock(name) + COSTS[name] - turns.clock(slow)
        ahead[name] = max(ahead[name], this)

    parts: Any = {name: (lambda name=name: note(name)) for name in COSTS}
    side_by_side(turns, {**parts, slow: wait})
    assert ahead == {**dict.fromkeys(COSTS, 16), slow: 0}


def test_a_limit_that_no_turn_ends_at_is_stopped_before_and_made_up_for_later() -> None:
    turns = make(15)
    for work in (side_by_side, one_by_one):
        work(turns, idle())
        assert turns.counts == {
            "explorer": turns.limit // 8, "values": turns.limit, "policy": turns.limit // 2
        }  # fmt: skip
        turns.limit += 100  # 115, and an odd part of a turn again
    assert turns.limit == 215


def test_alone_they_take_turns_in_one_order() -> None:
    turns, order = make(8), list[str]()
    one_by_one(turns, {name: lambda name=name: order.append(name) for name in COSTS})  # type: ignore[misc]
    assert order == ["explorer", *(["values", "policy", "values"] * 4)]


def test_all_begin_before_the_slowest_has_finished() -> None:
    """They do work at the same time: each waits in its first turn until all are in theirs."""
    gate = threading.Barrier(3)
    seen: dict[str, int] = dict.fromkeys(COSTS, 0)

    def turn(name: str) -> Callable[[], None]:
        def take() -> None:
            seen[name] += 1
            if seen[name] == 1:
                gate.wait(60)

        return take

    side_by_side(make(8), {name: turn(name) for name in COSTS})
    assert seen == {"explorer": 1, "values": 8, "policy": 4}


class Broken(Exception):
    """What a part fails with."""


@pytest.mark.parametrize("name", COSTS)
def test_an_error_in_one_part_ends_all_and_is_raised(name: str, left: Threads) -> None:
    turns = make(10**9)

    def fail() -> None:
        if turns.counts[name] == 5:
            raise Broken(name)

    with pytest.raises(Broken, match=name):
        side_by_side(turns, idle(**{name: fail}))
    assert turns.counts[name] == 5
    assert not left()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_all(left: Threads) -> None:
    turns = make(10**9)

    def interrupt() -> None:
        if turns.counts["explorer"] == 5:
            signal.raise_signal(signal.SIGINT)  # as the main thread, which waits, gets it

    with pytest.raises(KeyboardInterrupt):
        side_by_side(turns, idle(explorer=interrupt))
    assert not left()
    assert turns.counts["values"] < 10**6


def test_a_lead_in_which_no_turn_fits_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^lead=7: expected at least 8, a turn's cost$"):
        Turns(COSTS, 7)


@pytest.mark.parametrize("costs", [(8, 1, 2), (1, 3, 2), (2, 3, 5), (1, 1, 1)])
def test_no_costs_make_them_wait_for_each_other_for_ever(costs: Any) -> None:
    """With the least lead that is allowed."""
    turns = Turns(dict(zip(COSTS, costs, strict=True)), lead=max(costs))
    turns.limit = 61
    side_by_side(turns, idle())
    assert turns.counts == {n: 61 // c for n, c in zip(COSTS, costs, strict=True)}
