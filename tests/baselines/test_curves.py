"""Learning curves of several runs: which are one, and the median and quartiles worked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_zoo.baselines import config_file, curves
from gpu_zoo.baselines.a2c_config import A2CConfig
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.curves import band

SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"
TABLE = "env_steps,seconds,steps_per_second,agent/return\n"


def make(
    folder: Path,
    lines: str = "10,1.0,10.0,5.0\n",
    env_id: str = SPREAD,
    env_params: dict[str, Any] | None = None,
    config: Any = None,
    **changes: Any,
) -> Path:
    folder.mkdir(parents=True)
    config = PPOConfig(**changes) if config is None else config
    name = type(config).__name__.removesuffix("Config").lower()
    config_file.write(folder / "config.yaml", env_id, name, config, env_params or {})
    (folder / "progress.csv").write_text(TABLE + lines)
    return folder


def points(*pairs: tuple[float, float]) -> tuple[Any, Any]:
    x, y = np.array(pairs, dtype=np.float64).T
    return x, y


def test_band_is_the_median_and_the_quartiles_by_hand() -> None:
    found = band([points((10, y), (20, 10 * y)) for y in (4.0, 0.0, 8.0, 1.0, 2.0)])
    # In order 0, 1, 2, 4, 8: the quartiles are the second and the fourth.
    np.testing.assert_array_equal(found.x, [10, 20])
    np.testing.assert_array_equal(found.median, [2, 20])
    np.testing.assert_array_equal(found.low, [1, 10])
    np.testing.assert_array_equal(found.high, [4, 40])


def test_band_between_points_and_only_where_all_curves_are() -> None:
    # At 3 the first is halfway from 0 to 8, at 4 three quarters; the second's own points are 3, 9.
    first, second = points((2, 0), (4, 8), (6, 8)), points((3, 6), (4, 0), (9, 10))
    found = band([first, second])
    np.testing.assert_array_equal(found.x, [3, 4, 6])
    np.testing.assert_allclose(found.median, [5, 4, 6])  # of 4 and 6; 8 and 0; 8 and 4
    np.testing.assert_allclose(found.low, [4.5, 2, 5])
    np.testing.assert_allclose(found.high, [5.5, 6, 7])


def test_one_curve_is_its_own_band() -> None:
    found = band([points((1, 2), (3, 5))])
    for values in (found.low, found.median, found.high):
        np.testing.assert_array_equal(values, [2, 5])


def test_curves_that_do_not_meet_have_no_band() -> None:
    found = band([points((1, 2), (2, 5)), points((3, 2), (4, 5))])
    assert len(found.x) == len(found.median) == 0


def test_evaluations_are_a_curve_of_their_own(tmp_path: Path) -> None:
    table = f"{TABLE.strip()},agent/eval_return\n10,1.5,10.0,1.0,\n20,2.5,10.0,2.0,7.0\n"
    for seed, settings in enumerate(({}, {"eval_interval": 2, "eval_opponents": {"a": "random"}})):
        (make(tmp_path / str(seed), seed=seed, **settings) / "progress.csv").write_text(table)
    training, measured = (curves.find([tmp_path], m) for m in (curves.IN_TRAINING, "eval_return"))
    assert curves.pools(training)[SPREAD][0].runs == tuple(training), "they differ in their seed"
    for runs, x, y in ((training, [10, 20], [1, 2]), (measured, [20], [7])):
        assert runs[0].groups == ["agent"]
        assert [list(axis) for axis in runs[0].curve("agent", "env_steps")] == [x, y]
    assert (training[0].final("agent"), measured[0].final("agent")) == (2, 7)


def test_a_run_is_what_its_folder_says(tmp_path: Path) -> None:
    lines = "10,1.5,10.0,\n20,2.5,10.0,-1.0\n30,3.5,10.0,-3.0\n"
    folder = make(tmp_path / "a", lines, env_params={"N": 5}, seed=4)
    run = curves.load(folder)
    assert (run.env_id, run.algorithm, run.seed, run.groups) == (SPREAD, "ppo", 4, ["agent"])
    assert run.settings["env_params.N"] == 5 and run.settings["gamma"] == 0.99
    assert "seed" not in run.settings
    for axis, wanted in (("env_steps", [20, 30]), ("seconds", [2.5, 3.5])):
        x, y = run.curve("agent", axis)
        assert (x.tolist(), y.tolist()) == (wanted, [-1.0, -3.0])


@pytest.mark.parametrize(
    ("lines", "final"),
    [
        # Of 100 steps the last ten are 91 to 100: lines 95 and 100.
        ("85,1,1,1.0\n90,1,1,50.0\n95,1,1,2.0\n100,1,1,4.0\n", 3.0),
        ("95,1,1,\n100,1,1,4.0\n", 4.0),
        ("10,1,1,7.0\n100,1,1,\n", 7.0),  # no episode ended late, so the last that did
    ],
)
def test_final_is_the_mean_of_the_last_tenth(tmp_path: Path, lines: str, final: float) -> None:
    assert curves.load(make(tmp_path / "a", lines)).final("agent") == final


def test_runs_that_differ_only_in_seed_are_one(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        make(tmp_path / f"a{seed}", seed=seed)
        make(tmp_path / f"b{seed}", seed=seed, gamma=0.5, hidden=(8, 8))
    make(tmp_path / "c", env_params={"N": 5})
    make(tmp_path / "d", config=A2CConfig())
    make(tmp_path / "e", env_id=TAG, gamma=0.7)
    found = curves.pools(curves.find([tmp_path]))
    assert {env_id: {p.label: [r.folder.name for r in p.runs] for p in pools}
            for env_id, pools in found.items()} == {
        SPREAD: {
            "ppo gamma=0.99 hidden=[64, 64] env_params.N=default": ["a0", "a1", "a2"],
            "ppo gamma=0.5 hidden=[8, 8] env_params.N=default": ["b0", "b1", "b2"],
            "ppo gamma=0.99 hidden=[64, 64] env_params.N=5": ["c"],
            "a2c": ["d"],
        },
        TAG: {"ppo": ["e"]},
    }  # fmt: skip


def test_another_version_is_another_curve(tmp_path: Path) -> None:
    make(tmp_path / "a")
    old = make(tmp_path / "b", seed=1) / "config.yaml"
    old.write_text(old.read_text().replace("version: ", "version: 0.0."))
    (pools,) = curves.pools(curves.find([tmp_path])).values()
    assert len(pools) == 2
    assert all("version=" in pool.label for pool in pools)


def test_the_same_run_twice_is_a_mistake(tmp_path: Path) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b")
    with pytest.raises(ValueError, match=r"b: expected another seed than that of .*a, from which"):
        curves.pools(curves.find([tmp_path]))
    # Named twice, by itself and by its folder, it is one.
    assert len(curves.find([tmp_path / "a", tmp_path / "a", tmp_path])) == 2


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none: expected a run folder, or a folder that has"):
        curves.find([tmp_path / "none"])
    folder = make(tmp_path / "a")
    text = (folder / "config.yaml").read_text()
    for broken in (text.replace("seed: 0", ""), text.replace("env_id", "env_params"), "gamma: 1\n"):
        (folder / "config.yaml").write_text(broken)
        with pytest.raises(ValueError, match=r"config\.yaml: "):
            curves.find([tmp_path])
    (folder / "config.yaml").unlink()
    with pytest.raises(ValueError, match=r"a: expected a run folder, but there is no config\.yaml"):
        curves.find([tmp_path])


def test_lines_drawn_are_medians_and_bands_quartiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    from gpu_zoo.baselines import plot

    for seed, last in enumerate((0.0, 4.0, 8.0)):
        make(tmp_path / f"{seed}", f"10,1.0,1,1.0\n20,{seed + 2},1,{last}\n", seed=seed)
    make(tmp_path / "tag", env_id=TAG)
    kept: list[Any] = []
    save = figure.Figure.savefig
    monkeypatch.setattr(
        figure.Figure, "savefig", lambda self, *a, **k: (kept.append(self), save(self, *a, **k))
    )
    for name, begin in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        plot.draw(tmp_path / name, curves.pools(curves.find([tmp_path])))
        assert (tmp_path / name).read_bytes().startswith(begin)
    steps, seconds, tag, _ = kept[0].axes
    assert (steps.get_title(), steps.get_xlabel()) == (f"{SPREAD}: agent", "environment steps")
    assert (tag.get_title(), seconds.get_xlabel()) == (f"{TAG}: agent", "seconds")
    (line,) = steps.lines
    assert line.get_xydata().tolist() == [[10, 1], [20, 4]]
    assert steps.get_legend().get_texts()[0].get_text() == "ppo (3 seeds)"
    corners = {tuple(point) for point in steps.collections[0].get_paths()[0].vertices.tolist()}
    assert {(10, 1), (20, 2), (20, 6)} <= corners  # of 0, 4 and 8 the quartiles are 2 and 6
    # Over seconds all three are there up to 2 s: 0, halfway from 1 to 4, a third from 1 to 8.
    assert seconds.lines[0].get_xydata()[-1].tolist() == pytest.approx([2, 2.5])
