"""What compare_training.py says is what was measured; what it compares with is PPO."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import gpu_zoo

sys.path.append(str(Path(__file__).parent))

import compare_training
from contenders import plain_torch, products, report, worker
from contenders.process import Entry, Failed, Process
from contenders.setting import Contender, Note, Setting


def test_the_setting_is_the_task_that_all_are_said_to_have() -> None:
    setting = Setting()
    assert (setting.env_steps, setting.samples, setting.long_horizon) == (12_800, 38_400, 800)
    assert setting.samples // setting.minibatches == 1200
    group = gpu_zoo.make_vec("mpe/simple_spread_v3", 1).group["agent"]
    assert len(group.agents) == setting.agents
    assert group.observation_space.shape == (setting.obs_size,)
    assert group.action_space.n == setting.actions


@pytest.mark.parametrize("num_envs", [0, 24, 16])  # 16 x 25 x 3 samples are not 32 minibatches
def test_sizes_that_do_not_divide_are_refused(num_envs: int) -> None:
    with pytest.raises(ValueError, match=f"^num_envs={num_envs}: expected "):
        Setting(num_envs=num_envs)


# The arithmetic --------------------------------------------------------------------------------


def test_flops_are_a_hand_count() -> None:
    actor, critic = 18 * 64 + 64 * 64 + 64 * 5, 18 * 64 + 64 * 64 + 64 * 1
    first = 2 * 18 * 64  # of both: no gradient goes back to observations
    acting = 2 * actor + 2 * critic * 26 / 25  # the value after the last step is needed as well
    learning = 4 * 3 * 2 * (actor + critic) - 4 * 2 * first
    assert products.flops(Setting()) == {
        "acting": pytest.approx(acting), "learning": learning, "all": acting + learning,
    }  # fmt: skip


def test_the_products_timed_are_those_counted() -> None:
    setting = Setting(num_envs=32)
    contender, counted = products.make(setting, threads=1), products.flops(setting)
    for mode, what in (("acting", "acting"), ("training", "all")):
        env_steps, call = contender.modes[mode]
        assert env_steps == setting.env_steps
        with FlopCounterMode(display=False) as counter:
            call()
        assert counter.get_total_flops() == pytest.approx(counted[what] * setting.samples)


# The CleanRL-style loop ------------------------------------------------------------------------


def test_advantages_are_their_definition() -> None:
    """The sum of discounted errors up to the end of the episode, written out."""
    setting, rng = Setting(gamma=0.9, gae_lambda=0.8), torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, 7, 3, generator=rng)
    last = torch.randn(3, generator=rng)
    dones = torch.zeros(7, 3)
    dones[2, 0] = dones[6, 1] = 1
    found = plain_torch.estimate(rewards, values, dones, last, setting)
    following = torch.cat([values[1:], last.unsqueeze(0)])
    for t in range(7):
        for lane in range(3):
            total, weight = 0.0, 1.0
            for k in range(t, 7):
                goes_on = 1 - float(dones[k, lane])
                error = rewards[k, lane] + 0.9 * following[k, lane] * goes_on - values[k, lane]
                total += weight * float(error)
                weight *= 0.9 * 0.8 * goes_on
            assert float(found[t, lane]) == pytest.approx(total, abs=1e-5)


class Bandit:
    """48 lanes in which action 3 earns 1 and all others nothing; episodes of 25 steps."""

    def __init__(self) -> None:
        self.t = 0

    def reset(self, seed: int | None = None) -> tuple[Any, Any]:
        return torch.zeros(48, 18).numpy(), {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        self.t += 1
        over = torch.full((48,), self.t % 25 == 0).numpy()
        return self.reset()[0], (actions == 3).astype("f4"), over, over & False, {}


@pytest.mark.slow
def test_the_loop_learns_and_its_returns_are_episodes_sums() -> None:
    pytest.importorskip("supersuit")
    from contenders.supersuit_envs import mean_return

    torch.set_num_threads(1)
    setting = Setting(num_envs=32)
    loop, returns = plain_torch.Loop(setting, Bandit()), []
    loop.reset()
    for _ in range(8):
        loop.improve(loop.rollout(), setting.learning_rate)
        returns.append(mean_return(loop.rewards, setting))
        assert returns[-1] == pytest.approx(float((loop.actions == 3).float().mean()) * 25)
    assert returns[0] < 8 and returns[-1] > 20  # chance is 5


# The processes ---------------------------------------------------------------------------------


def test_a_turn_is_about_as_long_as_asked_and_a_call_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def call() -> None:
        now[0] += 0.5

    assert worker.turn(100, call, 0.1) == {"env_steps": 100, "seconds": 0.5}
    assert worker.turn(100, call, 2) == {"env_steps": 400, "seconds": 2.0}


def test_a_run_ends_with_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def learn(note: Note) -> None:
        for i in range(1, 5):
            now[0] += 1
            note(10 * i, None if i == 1 else float(-i))

    contender = Contender("", {}, learn)
    *points, end = worker.learn(contender, 10)
    assert end == {"finished": True}
    assert points[:2] == [
        {"seconds": 1, "env_steps": 10, "return": None},
        {"seconds": 2, "env_steps": 20, "return": -2},
    ]
    assert len(points) == 4
    *points, end = worker.learn(contender, 1.5)
    assert end == {"finished": False} and len(points) == 2


@pytest.mark.slow
def test_ours_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (Entry("gpu_zoo", "ours"), Entry("nobody", "no_such_module"))
    monkeypatch.setattr(compare_training, "ENTRIES", wanted)
    options = ("--num-envs", "32", "--steps", "2400", "--turns", "2", "--seconds", "0.01")
    found = compare_training.measure(compare_training.parse(options))
    (row,) = found["rows"]
    assert {mode: len(r) for mode, r in row["env_steps_per_s"].items()} == dict.fromkeys(
        compare_training.MODES, 2
    )
    assert min(row["env_steps_per_s"]["environment"]) > max(row["env_steps_per_s"]["training"])
    assert [point["env_steps"] for point in row["curve"]] == [800, 1600, 2400] and row["finished"]
    assert row["curve"][0]["return"] is None  # no whole episode has ended yet
    assert -60 < row["curve"][-1]["return"] < -10
    (note,) = found["notes"]
    assert note.startswith("left out: nobody: ") and "no_such_module" in note
    json.dumps(found)


def test_a_process_that_dies_says_its_last_line() -> None:
    process = Process(
        Entry("products", "products", (("threads", 1),)), sys.executable, Setting(num_envs=32), []
    )
    with pytest.raises(Failed, match=r"^products: KeyError: 'environment'"):
        process.ask({"turn": "environment", "seconds": 0})


# What is said ----------------------------------------------------------------------------------


def row(name: str, training: list[float], **changes: Any) -> dict[str, Any]:
    curve = [
        {"seconds": i + 1.0, "env_steps": 800 * (i + 1), "return": -20.0 + i} for i in range(12)
    ]
    return {
        "name": name, "method": f"how {name} does it", "facts": {}, "versions": {"torch": "2.13.0"},
        "env_steps_per_s": {"training": training, "acting": [2000.0] * 3}, "curve": curve,
        "finished": True, **changes,
    }  # fmt: skip


@pytest.fixture
def found() -> dict[str, Any]:
    facts = {
        "flops an agent step": {"acting": 20_000.0, "learning": 240_000.0, "all": 260_000.0},
        "agent steps/s if all ran at this rate": 200_000.0,
    }
    return {
        "title": "a game", "date": "2026-12-01", "turns": 3, "seconds a turn": 1.0, "budget": 12.5,
        "machine": {"processor": "a processor", "cores": 2, "load average at start": 0.25},
        "setting": {"agents": 3, "seed": 0, "total_steps": 9600}, "notes": ["nobody: left out"],
        "rows": [
            row("gpu_zoo", [1000, 1200, 800]),
            row("slow", [100, 60, 200], finished=False),
            row("products alone", [4000, 5000, 4000], curve=[], facts=facts),
        ],
    }  # fmt: skip


def test_speeds_are_medians_and_ratios_are_within_a_turn(found: dict[str, Any]) -> None:
    _, (ours, slow, limit) = report.speeds(found)
    assert ours == ["gpu_zoo", "-", "6.00k / 2.00k ±0%", "3.00k / 1.00k ±20%", ""]
    # 10, 20 and 4 times; the ratio of the medians would be 10, so the spread tells them apart.
    assert slow[3:] == ["300 / 100 ±70%", "10.0 (4.00..20.0)"]
    assert limit[3] == "12.0k / 4.00k ±12%"


def test_runs_tell_where_they_came(found: dict[str, Any]) -> None:
    _, (ours, slow) = report.runs(found)
    # Returns rise from -20 by 1 each second: -10 after 11, and -18 .. -9 are the last ten.
    assert ours == ["gpu_zoo", "12.0", "9,600", "-13.50", "11.0"]
    assert slow[:2] == ["slow", "12.0, stopped"]


def test_ours_beside_the_products(found: dict[str, Any]) -> None:
    (said,) = [remark for remark in report.remarks(found) if "floating point" in remark]
    assert "takes 260,000 floating" in said and "20,000 of them to act" in said
    assert "trains at 25% of the rate" in said and "(12.0k agent steps" in said
    assert said.endswith("it would be 200k")


def test_the_section_takes_the_place_between_its_markers(
    found: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "performance.md"
    monkeypatch.setattr(report, "PAGE", page)
    page.write_text(f"before\n{report.BEGIN}\nTO MEASURE\n{report.END}\nafter\n")
    for _ in range(2):  # it may be written again
        report.write_section(found, tmp_path / "assets" / "a.svg")
        text = page.read_text()
        assert text.startswith("before\n") and text.endswith("\nafter\n")
        assert "TO MEASURE" not in text and text.count("| slow |") == 2
        assert "](assets/a.svg)" in text and "those stopped had 12.5 s" in text
        assert "- nobody: left out" in text
    page.write_text("no markers")
    with pytest.raises(ValueError, match="expected <!-- training: begin -->"):
        report.write_section(found, tmp_path / "a.svg")


def test_the_page_has_the_markers() -> None:
    text = report.PAGE.read_text()
    assert text.count(report.BEGIN) == text.count(report.END) == 1


def test_the_plot_is_in_words_on_no_background(found: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.svg"
    report.plot(found, path)
    text = path.read_text()
    for words in (
        "seconds since the run began", "mean return of an agent", "a game, 2 cores",
        "gpu_zoo: 9.60k steps, in 12 s", "slow: 9.60k steps, stopped after 12 s",
    ):  # fmt: skip
        assert words in text
    assert "products" not in text  # which learn nothing
    assert "#ffffff" not in text and "#000000" not in text.replace("stroke: #000000", "")
    report.plot(found, tmp_path / "b.svg")
    assert text == (tmp_path / "b.svg").read_text()


MISTAKES = [
    (["--turns", "0"], "--turns 0: expected more than 0"),
    (["--budget", "inf"], "--budget inf: expected more than 0"),
    (["--num-envs", "100"], "--num-envs 100: expected a positive multiple of 16"),
    (["--plot", "a.png"], "--plot a.png: expected a name that ends in .svg"),
    (["--docs"], "--docs: expected --plot as well"),
    (["--json", "no/such/folder/a.json"], "expected a file in a folder that is there"),
    (["--read", "no-such.json"], "--read no-such.json: no such file"),
]


@pytest.mark.parametrize(("options", "says"), MISTAKES, ids=lambda x: str(x)[:20])
def test_a_mistake_is_named(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        compare_training.parse(options)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("module", ["sb3", "plain_torch"])
def test_a_contender_over_supersuit(module: str) -> None:
    for package in ("stable_baselines3", "supersuit", "mpe2"):
        pytest.importorskip(package)
    setting = Setting(num_envs=32, total_steps=1600)
    process = Process(Entry(module, module), sys.executable, setting, [])
    try:
        for mode in compare_training.MODES:
            answer = process.ask({"turn": mode, "seconds": 0.01})
            assert answer["env_steps"] == (400 if mode == "environment" else 800)
        points, finished = process.learn(1000)
        assert finished and [point["env_steps"] for point in points] == [800, 1600]
        assert all(-35 < point["return"] < -15 for point in points)  # random actions make -26
    finally:
        process.close()
