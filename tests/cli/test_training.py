"""``gpu-zoo train`` with files, run folders and several seeds, and ``gpu-zoo compare``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_zoo.cli import main

pytest.importorskip("tyro")
pytest.importorskip("torch")

SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"
SHORT = ("--total-steps", "640", "--num-envs", "16", "--horizon", "20", "--minibatches", "2",
         "--hidden", "8", "--no-progress")  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command in this process and an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> tuple[int, str, str]:
        try:
            code = main(argv)
        except SystemExit as error:
            code = int(error.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What training is started with: folder, environment, algorithm, configuration, parameters."""
    from gpu_zoo import training
    from gpu_zoo.baselines import run_folder

    calls: list[Any] = []

    def train(*args: Any, on_update: Any = None) -> Any:
        calls.append(args)
        raise KeyboardInterrupt

    monkeypatch.setattr(run_folder, "train", train)
    monkeypatch.setattr(training, "run_seeds", train)
    return calls


def returns_of(folder: str) -> list[dict[str, float]]:
    """The lines of a folder's progress.csv without what a clock says."""
    from gpu_zoo.baselines import csv_log

    rows = csv_log.read(Path(folder) / "progress.csv")
    return [{n: v for n, v in row.items() if not n.startswith("s")} for row in rows]


def test_command_line_wins_over_file_and_file_over_tuned(
    run: Any, started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_zoo.baselines import config_file

    shipped = tmp_path / "shipped" / "a2c"
    shipped.mkdir(parents=True)
    (shipped / "simple_spread_v3.yaml").write_text("gamma: 0.5\nhorizon: 11\nnum_envs: 12\n")
    monkeypatch.setattr(config_file, "CONFIGS", tmp_path / "shipped")
    (tmp_path / "my.yaml").write_text(
        "env_id: mpe/simple_spread_v3\nalgorithm: a2c\nenv_params: {N: 5, local_ratio: 0.25}\n"
        "horizon: 21\nnum_envs: 22\nlearning_rate: 3e-4\nhidden: [4, 5]\n"
    )
    options = ("--config", "my.yaml", "--num-envs", "33", "--param", "N=6", "--run-dir", "here")
    code, _, err = run("train", "simple_spread_v3", *options)
    assert (code, err) == (130, "")
    ((folder, env_id, algorithm, config, params),) = started
    assert (str(folder), env_id, algorithm) == ("here", SPREAD, "a2c")
    assert params == {"N": 6, "local_ratio": 0.25}
    assert (config.gamma, config.horizon, config.num_envs) == (0.5, 21, 33)
    assert (config.learning_rate, config.hidden) == (3e-4, (4, 5))
    assert (config.checkpoint, config.log_dir) == ("here/checkpoint.pt", "here")


def test_an_algorithm_on_the_command_line_wins_over_the_file_s(
    run: Any, started: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "my.yaml").write_text("algorithm: a2c\ngamma: 0.5\n")
    for words in (("--algorithm", "ppo", "--config=my.yaml"), ("--config", "my.yaml")):
        assert run("train", SPREAD, *words)[0] == 130
    assert [call[2] for call in started] == ["ppo", "a2c"]
    assert [call[3].gamma for call in started] == [0.5, 0.5]
    (tmp_path / "my.yaml").write_text("algorithm: ddpg\ntau: 0.1\n")
    code, out, err = run("train", SPREAD, "--algorithm", "ppo", "--config", "my.yaml")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "my.yaml: tau: expected one of" in err


def test_a_file_of_another_version_is_taken_with_a_word(
    run: Any, started: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "my.yaml").write_text("version: 0.0.1\n")
    code, _, err = run("train", SPREAD, "--config", "my.yaml")
    assert (code, len(started), err.count("\n")) == (130, 1, 1)
    assert err.startswith("my.yaml: written by gpu_zoo 0.0.1, this is ")


@pytest.mark.parametrize(
    ("text", "argv", "says"),
    [
        ("gama: 1\n", (), "my.yaml: gama: expected one of env_id,"),
        ("gamma: high\n", (), "my.yaml: gamma='high': expected a number from 0 to 1"),
        ("gamma: 1\n", ("--gamma", "2"), "gamma=2.0: expected a number from 0 to 1"),
        ("env_id: mpe/simple_tag_v3\n", (), f"my.yaml: env_id='{TAG}': expected '{SPREAD}'"),
        ("algorithm: dqn\n", (), "my.yaml: algorithm='dqn': expected one of ppo, a2c, ddpg"),
        ("env_params: {n: 3}\n", (), f"my.yaml: env_params: {SPREAD} has no parameter 'n'"),
        ("env_params: {N: '3'}\n", (), "my.yaml: env_params: N='3': expected int"),
        ("algorithm: ddpg\n", (), "expected continuous actions"),
        ("{}\n", ("--config", "other.yaml"), "other.yaml: no such file"),
        ("{}\n", ("--seeds", "0"), "--seeds 0: expected at least 1"),
        ("{}\n", ("--seeds", "2", "--jobs", "0"), "--jobs 0: expected at least 1"),
        ("{}\n", ("--jobs", "2"), "--jobs: only with --seeds"),
        ("{}\n", ("--seeds", "2", "--checkpoint", "c.pt"), "--seeds: not with --checkpoint"),
        ("{}\n", ("--seeds", "2", "--log-dir", "logs"), "--seeds: not with --checkpoint or --log"),
        ("{}\n", ("--seeds", "2", "--seed", str(2**31 - 1)), "--seeds 2: seed=2147483648: expec"),
        ("{}\n", ("--resume", "c.pt"), "--resume: not with --config"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value.split("\n")[0][:40],
)
def test_a_mistake_is_one_line(
    run: Any, started: list[Any], tmp_path: Path, text: str, argv: tuple[str, ...], says: str
) -> None:
    (tmp_path / "my.yaml").write_text(text)
    code, out, err = run("train", SPREAD, "--config", "my.yaml", *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("gpu-zoo: ")
    assert says in err
    assert [path.name for path in tmp_path.iterdir()] == ["my.yaml"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--gamma", "0.5"), "--resume: not with other hyper-parameters"),
        (("--param", "N=5"), "--resume: not with --param"),
        (("--run-dir", "x"), "--resume: not with --run-dir"),
        (("--algorithm", "ppo"), "--resume: not with --algorithm"),
        (("--seeds", "2"), "--resume: not with --seeds"),
        (("--jobs", "2"), "--resume: not with --jobs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_resumed_run_takes_no_other_options(run: Any, argv: tuple[str, ...], says: str) -> None:
    code, out, err = run("train", SPREAD, "--resume", "c.pt", *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


@pytest.mark.parametrize(
    ("module", "argv", "says"),
    [
        ("yaml", ("train", SPREAD), "need PyYAML: pip install 'gpu-zoo[train]'"),
        ("wandb", ("train", SPREAD, "--wandb", "zoo"), "--wandb needs wandb: pip install 'gpu-zoo"),
        ("yaml", ("compare", "."), "compare needs PyYAML: pip install 'gpu-zoo[train]'"),
        ("matplotlib", ("compare", "."), "--out needs matplotlib: pip install 'gpu-zoo[plot]'"),
    ],
)
def test_a_missing_package_is_one_line(
    run: Any, module: str, argv: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == module else real(name, *rest),
    )
    monkeypatch.setitem(sys.modules, module, None)
    code, out, err = run(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_run_s_configuration_repeats_it_and_its_folder_resumes_it(
    run: Any, tmp_path: Path
) -> None:
    code, out, _ = run("train", SPREAD, *SHORT, "--param", "N=2", "--run-dir", "runs/first")
    assert code == 0
    assert "checkpoint: runs/first/checkpoint.pt" in out
    again = ("train", SPREAD, "--config", "runs/first/config.yaml", "--run-dir", "second")
    assert run(*again, "--no-progress")[0] == 0
    assert returns_of("second") == returns_of("runs/first")
    assert len(returns_of("second")) == 2
    code, out, err = run("train", SPREAD, *SHORT, "--run-dir", "second")
    assert (code, out) == (2, "")
    assert "--run-dir second: expected a folder without a run" in err
    _, by_file, _ = run("evaluate", "second/checkpoint.pt", "--episodes", "8")
    code, by_folder, _ = run("evaluate", "second", "--episodes", "8")
    assert code == 0
    assert by_folder == by_file.replace("second/checkpoint.pt", "second")
    code, out, _ = run("train", SPREAD, "--resume", "second")
    assert code == 0
    assert "640 steps" in out and "second/checkpoint.pt" in out


def test_wandb_gets_the_run_s_configuration(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[Any] = []
    stub: Any = SimpleNamespace(
        __spec__=SimpleNamespace(),
        init=lambda **options: SimpleNamespace(
            id="x1",
            define_metric=lambda *a, **k: None,
            log=lambda numbers, step: told.append(step),
            finish=lambda exit_code: told.append(options),
        ),
    )
    monkeypatch.setitem(sys.modules, "wandb", stub)
    words = ("train", SPREAD, *SHORT, "--param", "N=2", "--run-dir", "a", "--wandb", "zoo")
    code, _, err = run(*words)
    assert (code, err) == (0, "")
    steps, options = told[:-1], told[-1]
    assert steps == [1, 2]
    config = options["config"]
    assert (options["project"], options["name"]) == ("zoo", "a")
    assert (config["env_id"], config["algorithm"]) == (SPREAD, "ppo")
    assert (config["env_params"], config["hidden"]) == ({"N": 2}, (8,))


def test_seeds_are_runs_of_their_own_and_one_that_fails_loses_no_other(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_zoo import seed_runs

    code = "import sys\nif '6' in sys.argv: sys.exit('some lines\\nout of luck')\n"
    monkeypatch.setattr(seed_runs, "TRAIN", code + seed_runs.TRAIN)
    words = ("train", SPREAD, *SHORT, "--param", "N=2", "--seed", "5")
    code, out, err = run(*words, "--seeds", "3", "--jobs", "2", "--run-dir", "many")
    assert (code, err) == (1, "1 of 3 seeds failed\n")
    assert "seed 5: 640 steps in" in out and "seed 7: 640 steps in" in out
    assert "seed 6: failed with exit code 1: out of luck (all of it: many/seed_6/out" in out
    assert (tmp_path / "many/seed_6/output.txt").read_text() == "some lines\nout of luck\n"
    # A seed's run is the one that the seed alone would have given.
    assert run(*words, "--run-dir", "alone")[0] == 0
    assert returns_of("many/seed_5") == returns_of("alone")
    assert returns_of("many/seed_7") != returns_of("alone")
    # The two that are there are one curve.
    code, out, _ = run("compare", "many", "--out", "a.svg")
    assert code == 0
    (row,) = [line.split("│")[1:-1] for line in out.splitlines() if SPREAD in line]
    assert [cell.strip() for cell in row[:5]] == [SPREAD, "ppo", "2", "agent", "640"]
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_seeds_are_not_processes_of_torchrun(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, out, err = run("train", SPREAD, *SHORT, "--seeds", "2")
    assert (code, out, err) == (
        2, "", "gpu-zoo: --seeds: not under torchrun, each is a process of its own\n"
    )  # fmt: skip


def test_no_seed_begins_where_one_would_overwrite_a_run(run: Any, tmp_path: Path) -> None:
    taken = tmp_path / "many" / "seed_1"
    taken.mkdir(parents=True)
    (taken / "config.yaml").touch()
    code, out, err = run("train", SPREAD, *SHORT, "--seeds", "2", "--run-dir", "many")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--run-dir many/seed_1: expected a folder without a run" in err
    assert [path.name for path in (tmp_path / "many").iterdir()] == ["seed_1"]


@pytest.mark.parametrize(("jobs", "most"), [("1", 1), ("2", 2), ("9", 4)])
def test_no_more_processes_at_a_time_than_jobs(
    run: Any, monkeypatch: pytest.MonkeyPatch, jobs: str, most: int
) -> None:
    """Each waits until as many as may run have begun, and notes how many run beside it."""
    from gpu_zoo import seed_runs

    code = (
        "import os, pathlib, sys, time\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('--run-dir') + 1])\n"
        "mine = folder.parent / f'running.{os.getpid()}'; mine.touch()\n"
        "begun = lambda: len(list(folder.parent.glob('begun.*')))\n"
        "(folder.parent / f'begun.{os.getpid()}').touch()\n"
        "for _ in range(3000):\n"
        f"    if begun() >= {most}: break\n"
        "    time.sleep(0.01)\n"
        "beside = len(list(folder.parent.glob('running.*')))\n"
        "rows = f'env_steps,seconds,steps_per_second\\n{beside},1.0,1.0\\n'\n"
        "(folder / 'progress.csv').write_text(rows)\n"
        "mine.unlink()\n"
    )
    monkeypatch.setattr(seed_runs, "TRAIN", code)
    monkeypatch.setattr(seed_runs, "POLL", 0.05)
    done, out, err = run("train", SPREAD, *SHORT, "--seeds", "4", "--jobs", jobs, "--run-dir", "x")
    assert (done, err) == (0, "")
    beside = [row["env_steps"] for k in range(4) for row in returns_of(f"x/seed_{k}")]
    assert len(beside) == 4 and max(beside) == most
    assert out.count("last mean return: none yet") == 4


def test_an_interrupt_ends_all_processes(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_zoo import seed_runs

    started: list[Any] = []
    launch = seed_runs._launch
    monkeypatch.setattr(seed_runs, "TRAIN", "import time; time.sleep(1000)")

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    def note(*args: Any) -> Any:
        started.append(launch(*args))
        return started[-1]

    monkeypatch.setattr(seed_runs, "_launch", note)
    monkeypatch.setattr(seed_runs.time, "sleep", interrupt)
    code, _, _ = run("train", SPREAD, *SHORT, "--seeds", "3", "--jobs", "2", "--run-dir", "x")
    assert code == 130
    assert len(started) == 2
    assert all(one.process.returncode not in (None, 0) for one in started)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("none",), "none: expected a run folder, or a folder that has some within"),
        ((".", "--out", "a.gif"), "--out a.gif: expected a name that ends in .png"),
    ],
)
def test_bad_arguments_of_compare(run: Any, argv: tuple[str, ...], says: str) -> None:
    code, out, err = run("compare", *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_the_table_has_medians_and_quartiles_by_hand(run: Any, tmp_path: Path) -> None:
    from gpu_zoo.baselines import config_file
    from gpu_zoo.baselines.config import PPOConfig

    header = "env_steps,seconds,steps_per_second,adversary/return,agent/return\n"
    for seed, last in enumerate((3.0, 1.0, 2.0, 9.0, 4.0)):
        folder = tmp_path / "runs" / str(seed)
        folder.mkdir(parents=True)
        config_file.write(folder / "config.yaml", TAG, "ppo", PPOConfig(seed=seed), {})
        line = f"1000,{seed + 1}.0,{100 + seed}.0,{last},{-last}\n"
        (folder / "progress.csv").write_text(header + (line if seed < 4 else line * 2))
    (tmp_path / "runs/4/progress.csv").write_text(header + line + line.replace("1000", "2000"))
    code, out, _ = run("compare", "runs", "--out", "None")
    assert code == 0
    rows = [[c.strip() for c in line.split("│")[1:-1]] for line in out.splitlines() if TAG in line]
    # In order 1, 2, 3, 4, 9.
    assert rows == [
        [TAG, "ppo", "5", "adversary", "1,000", "3", "102", "3.00 [2.00, 4.00]"],
        [TAG, "ppo", "5", "agent", "1,000", "3", "102", "-3.00 [-4.00, -2.00]"],
    ]
    assert out.count("at step 1,000 of 2,000; the curve ends there") == 4
    assert not (tmp_path / "curves.png").exists()
    code, out, _ = run("compare", "runs", "--out", "None", "--evaluations")
    assert (code, out.count("none yet")) == (0, 1), "a run without evaluations has no such returns"
