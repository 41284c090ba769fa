"""progress.csv: what is written is there at once and to the last bit, also after a resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_zoo.baselines import csv_log
from gpu_zoo.baselines.csv_log import CsvLog


def test_lines_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "progress.csv"
    log = CsvLog(path)
    log.append({"env_steps": 10, "seconds": 0.5})
    assert path.read_text() == "env_steps,seconds\n10,0.5\n"
    log.append({"env_steps": 20})
    assert path.read_text() == "env_steps,seconds\n10,0.5\n20,\n"
    log.append({"seconds": 1.5, "agent/return": -0.1, "env_steps": 30})  # known from now on
    log.append({"env_steps": 40, "seconds": 2.0, "agent/return": 3})
    text = "env_steps,seconds,agent/return\n10,0.5,\n20,,\n30,1.5,-0.1\n40,2.0,3\n"
    assert path.read_text() == text
    log.close()
    assert [file.name for file in path.parent.iterdir()] == ["progress.csv"]


def test_numbers_come_back_to_the_last_bit(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    rows = [{"env_steps": 2**53 + 1, "x": 0.1 + 0.2}, {"env_steps": 2**54, "x": -1e-300 / 3}]
    log = CsvLog(path)
    for row in rows:
        log.append(row)
    log.append({"env_steps": 2**55, "x": float("nan")})
    log.close()
    *found, last = csv_log.read(path)
    assert found == rows
    assert type(found[0]["env_steps"]) is int
    assert last["x"] != last["x"]


def test_after_a_resume_lines_behind_the_checkpoint_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("env_steps,a,b\n10,1.0,\n20,2.0,5.0\n30,3.0,6.0\n40,4.")
    log = CsvLog(path, start=20)
    assert path.read_text() == "env_steps,a,b\n10,1.0,\n20,2.0,5.0\n"
    log.append({"env_steps": 30, "a": 7.0})
    log.close()
    assert path.read_text() == "env_steps,a,b\n10,1.0,\n20,2.0,5.0\n30,7.0,\n"


@pytest.mark.parametrize("start", [0, 40])
def test_a_run_without_a_past_begins_a_file(tmp_path: Path, start: int) -> None:
    path = tmp_path / "progress.csv"
    if start == 0:  # all of it is behind the checkpoint that a new run begins with
        path.write_text("env_steps,a\n10,1.0\n")
    log = CsvLog(path, start)
    log.append({"env_steps": start + 10, "c": 1.0})
    log.close()
    assert path.read_text() == f"env_steps,c\n{start + 10},1.0\n"


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("env_steps,a\n10,1.0\n20,2")  # was it 2, or the beginning of 25?
    assert csv_log.read(path) == [{"env_steps": 10, "a": 1.0}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "first column is env_steps"),
        ("step,a\n1,2\n", "first column is env_steps"),
        ("env_steps,a\n1,2,3\n", "expected 2 numbers in every line"),
        ("env_steps,a\n1,two\n", "expected 2 numbers in every line"),
    ],
)
def test_another_file_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "progress.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=says) as caught:
        csv_log.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
