"""A run's numbers as comma-separated values: a line an iteration, columns by name."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path

PROGRESS, STEP = "progress.csv", "env_steps"


class CsvLog:
    """Appends lines to a file; each is on disk when :meth:`append` returns.

    A number that is first known later gets a column then; a number that a line lacks is an empty
    cell there.

    Args:
        path: the file; its folder is made if need be.
        start: environment steps already made. Lines of the file up to there are kept, and later
            ones, which belong to a run that was cut short, are dropped; so are all if it is 0.
    """

    def __init__(self, path: str | Path, start: int = 0) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        rows = read(self._path) if start and self._path.is_file() else []
        self._columns = [STEP]
        self._rewrite([row for row in rows if row[STEP] <= start])

    def append(self, row: Mapping[str, float]) -> None:
        """Add a line, which has a number for ``env_steps``."""
        if row.keys() <= set(self._columns):
            self._writer.writerow(row)
            self._file.flush()
        else:
            self.close()
            self._rewrite([*read(self._path), row])

    def close(self) -> None:
        """Nothing more is to come."""
        self._file.close()

    def _rewrite(self, rows: list[Mapping[str, float]] | list[dict[str, float]]) -> None:
        self._columns = list(
            dict.fromkeys([*self._columns, *(name for row in rows for name in row)])
        )
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        self._file = temporary.open("w", newline="")
        self._writer = csv.DictWriter(self._file, self._columns, lineterminator="\n")
        self._writer.writeheader()
        self._writer.writerows(rows)
        self._file.flush()
        os.replace(temporary, self._path)  # the open file goes on under the new name


def read(path: str | Path) -> list[dict[str, float]]:
    """The lines of a file, without empty cells; a last line that is not complete is left out.

    Numbers come back to the last bit, those without a point as ints.

    Raises:
        ValueError: something else than such a file; the message is one line.
    """
    path = Path(path)
    lines = path.read_text().splitlines(keepends=True)
    table = list(csv.reader(line for line in lines if line.endswith("\n")))
    if not table or table[0][:1] != [STEP]:
        raise ValueError(f"{path}: expected a table whose first column is {STEP}")
    header = table[0]
    try:
        return [
            {name: _number(cell) for name, cell in zip(header, row, strict=True) if cell}
            for row in table[1:]
        ]
    except ValueError:
        raise ValueError(f"{path}: expected {len(header)} numbers in every line") from None


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)
