"""The script that measures what training reaches, with tiny runs."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from gpu_zoo.baselines import checkpoint, config_file, ppo, run_folder
from gpu_zoo.baselines.config import PPOConfig

SCRIPTS = Path(__file__).resolve().parents[2] / "docs" / "_scripts"
SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"
TINY = PPOConfig(
    total_steps=640, num_envs=16, horizon=20, minibatches=2, hidden=(8,), device="cpu",
    progress=False,
)  # fmt: skip


@pytest.fixture
def returns(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))  # which its processes inherit
    return importlib.import_module("returns")


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("build_pages")


def test_the_interval_is_student_s_by_hand(returns: Any) -> None:
    # Of 1 to 5: standard deviation sqrt(2.5), error sqrt(2.5 / 5); t of 4 degrees is 2.776.
    found = returns.summary([4.0, 1.0, 5.0, 2.0, 3.0])
    assert found["mean"] == 3
    assert found["half_width"] == pytest.approx(2.776445 * 0.5**0.5, rel=1e-6)
    # Of two: t of 1 degree is 12.706; the error is half their distance.
    assert returns.summary([1.0, 3.0])["half_width"] == pytest.approx(12.7062, rel=1e-5)
    assert returns.summary([7.0]) == {"mean": 7.0, "half_width": None}


def test_finished_runs_are_measured_once(
    returns: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (0, 1):
        config = dataclasses.replace(TINY, seed=seed)
        run_folder.train(tmp_path / "runs" / f"{seed}", TAG, "ppo", config, {"num_good": 2})
    path = tmp_path / "new" / "r.json"
    words = ["--runs", str(tmp_path / "runs"), "--json", str(path), "--episodes", "50"]
    assert returns.main(words) == 0
    (entry,) = json.loads(path.read_text())["entries"]
    assert (entry["env_id"], entry["algorithm"], entry["env_params"]) == (
        TAG,
        "ppo",
        {"num_good": 2},
    )
    assert entry["config"]["hidden"] == [8] and "seed" not in entry["config"]
    assert [(run["seed"], run["env_steps"]) for run in entry["runs"]] == [(0, 640), (1, 640)]
    # Each number, asked for by itself.
    policy = ppo.Policy.load(tmp_path / "runs/1/checkpoint.pt")
    run = entry["runs"][1]
    random = ppo.evaluate(None, TAG, 50, env_params={"num_good": 2}).groups
    together = ppo.evaluate(policy, episodes=50).groups
    for group, other in (("adversary", "agent"), ("agent", "adversary")):
        apart = ppo.evaluate(policy, episodes=50, opponents={other: "random"}).groups
        assert entry["random"][group] == random[group].mean
        assert run["trained"][group] == together[group].mean
        assert run["others_random"][group] == apart[group].mean
        both = [r["others_random"][group] for r in entry["runs"]]
        assert entry["groups"][group]["others_random"] == returns.summary(both)
    # All of it is there, so nothing is done.
    before = path.read_text()
    monkeypatch.setattr(returns, "measure", None)
    assert returns.main(words) == 0
    assert path.read_text() == before
    with pytest.raises(SystemExit):
        returns.main([*words[:-1], "60"])  # not into a file with episodes of another number


def test_it_trains_what_is_missing_and_goes_on_where_it_was_stopped(
    returns: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = tmp_path / "ppo"
    shipped.mkdir()
    file = shipped / "simple_spread_v3.yaml"
    file.write_text("total_steps: 640\nnum_envs: 16\nhorizon: 20\nhidden: [8]\nminibatches: 2\n")
    monkeypatch.setattr(config_file, "CONFIGS", tmp_path)
    monkeypatch.setenv("GPU_ZOO_NUM_THREADS", "1")
    path, folder = tmp_path / "r.json", tmp_path / "runs"
    words = ["--only", "simple_spread_v3", "--json", str(path), "--folder", str(folder)]
    words += ["--jobs", "2", "--episodes", "20"]
    assert returns.main([*words, "--seeds", "2"]) == 0
    (entry,) = json.loads(path.read_text())["entries"]
    assert [run["seed"] for run in entry["runs"]] == [0, 1]
    assert entry["runs"][0]["trained"] != entry["runs"][1]["trained"]
    assert entry["groups"]["agent"].keys() == {"trained"}  # there are no others
    capsys.readouterr()
    assert returns.main([*words, "--seeds", "2"]) == 0
    assert capsys.readouterr().out.startswith("0 runs to do")
    # A configuration that was changed is measured anew, in folders of its own.
    results = returns.Results(path, 20, 2)
    file.write_text(file.read_text() + "gamma: 0.5\n")
    todo = dict(returns.wanted(results, folder, [SPREAD], "ppo", 3))
    assert [config.seed for _, config in todo.values()] == [0, 1, 2]
    assert all(config.gamma == 0.5 for _, config in todo.values())
    assert not any(place.exists() for place in todo)


def test_a_run_that_was_stopped_is_gone_on_with(returns: Any, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    stopped: list[float] = []

    def stop(update: ppo.Update) -> None:
        stopped.append(update.seconds)
        raise Stop

    whole = run_folder.train(tmp_path / "whole", SPREAD, "ppo", TINY).curve
    for name, interval in (("before", 50), ("after", 1)):  # its first checkpoint
        config = dataclasses.replace(TINY, checkpoint_interval=interval)
        with pytest.raises(Stop):
            run_folder.train(tmp_path / name, SPREAD, "ppo", config, on_update=stop)
        seconds = []
        for _ in range(2):
            returns.train(SPREAD, "ppo", config, tmp_path / name)
            saved = checkpoint.load(tmp_path / name / "checkpoint.pt")
            assert [ppo.Update(**update) for update in saved["curve"]] == whole
            seconds.append([update["seconds"] for update in saved["curve"]])
        assert seconds[0] == seconds[1]  # one that is done stays as it is
        assert (seconds[0][0] == stopped[-1]) == (name == "after")  # and is that which was begun


def test_the_page_s_table_is_the_newest_file(pages: Any, tmp_path: Path) -> None:
    assert "No run" in "\n".join(pages.returns(tmp_path))
    interval = {"mean": -3.14159, "half_width": 0.456}
    entry = {
        "env_id": TAG, "algorithm": "ppo", "random": {"agent": -20.0, "adversary": 1.0},
        "runs": [{"seconds": 10, "env_steps": 2_000_000}, {"seconds": 15, "env_steps": 2_000_000}],
        "groups": {
            "adversary": {"trained": interval, "others_random": {"mean": 5, "half_width": None}},
            "agent": {"trained": interval},
        },
    }  # fmt: skip
    report = {"machine": {"cores": 2}, "versions": {"torch": "2.0"}, "jobs": 1, "episodes": 1000}
    for day, entries in (("2026-01-02", [entry]), ("2026-01-01", [])):
        text = json.dumps({**report, "entries": entries})
        (tmp_path / f"{day}-returns-cpu.json").write_text(text)
    (tmp_path / "2027-01-01-mpe-cpu.json").write_text("[]")  # something else
    lines = "\n".join(pages.returns(tmp_path)).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "`mpe" in line]
    head = [f"`{TAG}`", "ppo"]
    assert rows == [
        [*head, "adversary", "2", "1.00", "-3.14 ± 0.46", "5.00", "2 M", "10"],
        [*head, "agent", "2", "-20.00", "-3.14 ± 0.46", "-", "2 M", "10"],
    ]
    assert "cores 2; runs at a time: 1. torch 2.0." in lines[-2]
    assert lines[-1] == "Episodes of each policy: 1,000. File: `2026-01-02-returns-cpu.json`."


def test_a_curve_has_the_means_of_its_stretches(returns: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(returns, "POINTS", 2)
    rows = [
        {"env_steps": 10, "agent/return": 1.0},
        {"env_steps": 20},
        {"env_steps": 30, "agent/return": 3.0},
        {"env_steps": 40},
    ]
    assert returns.curve(rows, ["agent"]) == {"env_steps": [20, 40], "agent": [1.0, 3.0]}
    assert returns.curve(rows[1:2], ["agent"]) == {"env_steps": [20], "agent": [None]}


def test_a_curve_is_drawn_where_its_numbers_are(pages: Any) -> None:
    drawn = importlib.import_module("curve_svg")
    seeds = [{"env_steps": [0, 1e6], "agent": returned} for returned in ([0, 10], [4, 10], [8, 10])]
    picture = drawn.svg(seeds)
    left, right, top, low = 64, 640 - 16, 28, 260 - 40
    middle = low - (low - top) * 0.4
    assert f'd="M{left}.0 {middle:.1f}L{right}.0 {top}.0" fill="none"' in picture
    assert f'd="M{left}.0 {low - (low - top) * 0.8:.1f}L{right}.0 {top}.0L{right}.0' in picture
    assert drawn.ticks(-0.3, 10) == [0, 2, 4, 6, 8, 10]
    assert drawn.ticks(-1230, -140) == [-1200, -1000, -800, -600, -400, -200]


def test_rates_in_words(pages: Any) -> None:
    count = importlib.import_module("measured").count
    assert [count(rate) for rate in (387.4, 2502.0, 97945.0, 119e3, 4.763e6, 166.9e6)] == [
        "387", "2.50 k", "97.9 k", "119 k", "4.76 M", "167 M",
    ]  # fmt: skip
