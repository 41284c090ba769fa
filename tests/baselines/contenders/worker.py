"""A contender's process: it reads requests and writes answers, a line of JSON each.

    python -m contenders.worker < requests

The first line names the module, its options and the setting, and is answered with what the
contender says of itself. After that ``{"turn": MODE, "seconds": S}`` measures for about so long,
and ``{"learn": BUDGET}`` trains for at most so many seconds, with an answer for every iteration.
Standard output belongs to the answers; what libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import distributions
from typing import Any, TextIO

from .setting import Contender, Setting


class OutOfTime(Exception):
    """Ends a run that has used up its budget."""


def main() -> None:
    """Answer requests until there are none."""
    answers = _claim_stdout()
    order = json.loads(sys.stdin.readline())
    begun = time.perf_counter()
    make = import_module(f".{order['module']}", __package__).make
    contender: Contender = make(Setting(**order["setting"]), **order["options"])
    made = time.perf_counter() - begun
    first = {mode: _timed(call) for mode, (_, call) in contender.modes.items()}
    _say(answers, {
        "method": contender.method, "facts": contender.facts, "modes": list(contender.modes),
        "learns": contender.learn is not None, "seconds to make": made,
        "seconds of the first call": first, "python": sys.version.split()[0],
        "versions": {d.name: d.version for d in distributions() if d.name in order["packages"]},
    })  # fmt: skip
    for line in sys.stdin:
        request = json.loads(line)
        if "turn" in request:
            _say(answers, turn(*contender.modes[request["turn"]], request["seconds"]))
        else:
            for point in learn(contender, request["learn"]):
                _say(answers, point)


def turn(env_steps: int, call: Callable[[], object], seconds: float) -> dict[str, float]:
    """Call it for about so many seconds, and once at least."""
    calls, begun = 0, time.perf_counter()
    while True:
        call()
        calls += 1
        elapsed = time.perf_counter() - begun
        if elapsed * (calls + 0.5) / calls >= seconds:
            return {"env_steps": calls * env_steps, "seconds": elapsed}


def learn(contender: Contender, budget: float) -> Iterator[dict[str, Any]]:
    """Train; a point of the curve for each iteration, and ``{"finished": ...}`` at the end.

    Points are given when the run is over, so that nobody has to read them while it is measured.
    """
    assert contender.learn is not None
    points: list[dict[str, Any]] = []
    begun = time.perf_counter()

    def note(env_steps: int, mean_return: float | None) -> None:
        elapsed = time.perf_counter() - begun
        points.append({"seconds": elapsed, "env_steps": env_steps, "return": mean_return})
        if elapsed > budget:
            raise OutOfTime

    try:
        contender.learn(note)
        finished = True
    except OutOfTime:
        finished = False
    yield from points
    yield {"finished": finished}


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _claim_stdout() -> TextIO:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
