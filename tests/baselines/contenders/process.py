"""A contender's process as the parent sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .setting import Setting

FOLDER = Path(__file__).resolve().parents[1]  # where python -m finds the contenders


class Failed(Exception):
    """A contender's process has ended; the message has its name and the last line it wrote."""


@dataclass(frozen=True)
class Entry:
    """A contender: what it is called, its module, and what its ``make`` gets."""

    name: str
    module: str
    options: tuple[tuple[str, Any], ...] = ()


class Process:
    """A contender at work, until it is closed.

    Attributes:
        said: what it said of itself, see worker.py.

    Raises:
        Failed: it cannot be made, such as for want of a package.
    """

    def __init__(self, entry: Entry, python: str, setting: Setting, packages: list[str]) -> None:
        self.entry = entry
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, "-m", "contenders.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            cwd=FOLDER, start_new_session=True,
        )  # fmt: skip
        self.said = self.ask({
            "module": entry.module, "options": dict(entry.options), "setting": asdict(setting),
            "packages": packages,
        })  # fmt: skip

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request; the first answer.

        Raises:
            Failed: the process ended instead.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next answer.

        Raises:
            Failed: the process ended instead.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._fail()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def learn(self, budget: float) -> tuple[list[dict[str, Any]], bool]:
        """Train for at most so many seconds: the curve, and whether it came to its end."""
        points, answer = [], self.ask({"learn": budget})
        while "finished" not in answer:
            points.append(answer)
            answer = self.answer()
        return points, answer["finished"]

    def _fail(self) -> None:
        self.close()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        last = lines[-1] if lines else f"exit status {self._process.returncode}"
        raise Failed(f"{self.entry.name}: {last}")

    def close(self) -> None:
        """End the process, and those that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
