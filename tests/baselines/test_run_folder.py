"""A run's folder: what is in it, that it repeats the run, and that it can be moved and resumed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_zoo.baselines import a2c, checkpoint, config_file, csv_log, ddpg, ppo, run_folder
from gpu_zoo.baselines.algorithms import ALGORITHMS
from gpu_zoo.baselines.checkpoint import CheckpointError
from gpu_zoo.baselines.policies import load_policy

SPREAD = "mpe/simple_spread_v3"
SMALL: dict[str, Any] = {
    "total_steps": 1120, "num_envs": 16, "horizon": 10, "hidden": (8,), "device": "cpu",
    "progress": False, "gamma": 0.9 + 0.01, "seed": 3,
}  # fmt: skip
EXTRA: dict[str, dict[str, Any]] = {
    "ppo": {"minibatches": 3, "learning_rate": 1e-3 / 3},
    "a2c": {"optimizer": "adam"},
    "ddpg": {"warmup": 10, "updates": 1, "batch_size": 32, "capacity": 5000},
    "pql": {"warmup": 10, "batch_size": 32, "capacity": 5000, "concurrent": False},
    "sac": {"warmup": 10, "updates": 1, "batch_size": 32, "capacity": 5000},
}
PARAMS = {"N": 2, "continuous_actions": True, "local_ratio": 1 / 3}


def small(algorithm: str, **changes: Any) -> Any:
    return ALGORITHMS[algorithm](**{**SMALL, **EXTRA[algorithm], **changes})


class Stop(Exception):
    """A run cut short."""


def stop_at_5(update: ppo.Update) -> None:
    if update.index == 5:
        raise Stop


@pytest.mark.parametrize("algorithm", sorted(EXTRA))
def test_the_configuration_in_a_folder_repeats_the_run(algorithm: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    once = run_folder.train(first, SPREAD, algorithm, small(algorithm), PARAMS)
    file = config_file.read(first / "config.yaml")
    assert (file.env_id, file.algorithm) == (SPREAD, algorithm)
    config: Any = config_file.applied(file, ALGORITHMS[algorithm](progress=False))
    again = run_folder.train(second, SPREAD, algorithm, config, file.env_params)
    assert again.curve == once.curve
    assert any(update.returns for update in once.curve)
    for group, network in once.policy.networks.items():
        theirs = again.policy.networks[group].state_dict()
        assert all(torch.equal(tensor, theirs[n]) for n, tensor in network.state_dict().items())
    assert (second / "config.yaml").read_text() == (first / "config.yaml").read_text()
    for folder in (first, second):
        assert len(checkpoint.load(folder / "checkpoint.pt")["curve"]) == 7
        assert list(folder.glob("events.out.tfevents*"))


def test_progress_is_the_curve(tmp_path: Path) -> None:
    curve = run_folder.train(tmp_path, SPREAD, "ppo", small("ppo")).curve
    rows = csv_log.read(tmp_path / "progress.csv")
    assert len(rows) == len(curve) == 7
    for row, update in zip(rows, curve, strict=True):
        assert row.pop("steps_per_second") > 0
        returns = {f"{group}/return": value for group, value in update.returns.items()}
        times = {"env_steps": update.env_steps, "seconds": update.seconds}
        assert row == {**times, **returns, **update.losses}


@pytest.mark.parametrize("trainer", [ppo, a2c, ddpg], ids=lambda module: module.__name__[-4:])
def test_a_folder_that_was_moved_is_gone_on_with(trainer: Any, tmp_path: Path) -> None:
    algorithm = trainer.__name__.rsplit(".", 1)[-1]
    old, new = tmp_path / "old", tmp_path / "new"
    with pytest.raises(Stop):
        config = small(algorithm, checkpoint_interval=3)
        run_folder.train(old, SPREAD, algorithm, config, PARAMS, on_update=stop_at_5)
    assert [row["env_steps"] for row in csv_log.read(old / "progress.csv")][-1] == 5 * 160
    old.rename(new)
    curve = trainer.resume(new / "checkpoint.pt").curve
    assert not old.exists()
    rows = csv_log.read(new / "progress.csv")
    assert [row["env_steps"] for row in rows] == [160 * n for n in range(1, 8)]
    returns = [row.get("agent/return") for row in rows]
    assert returns == [update.returns.get("agent") for update in curve]
    assert len(checkpoint.load(new / "checkpoint.pt")["curve"]) == 7


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    for name in ("config.yaml", "checkpoint.pt", "progress.csv"):
        folder = tmp_path / name[:4]
        folder.mkdir()
        (folder / name).write_text("kept")
        with pytest.raises(ValueError, match=f"expected a folder without a run, .* {name}"):
            run_folder.train(folder, SPREAD, "ppo", small("ppo"))
        assert [(file.name, file.read_text()) for file in folder.iterdir()] == [(name, "kept")]


def test_of_several_processes_the_first_alone_makes_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    run_folder.train(tmp_path / "new", SPREAD, "ppo", small("ppo", log_dir=str(tmp_path / "logs")))
    assert not (tmp_path / "new" / "config.yaml").exists()
    (tmp_path / "config.yaml").write_text("the first one's")  # before this one looks
    run_folder.train(tmp_path, SPREAD, "ppo", small("ppo", log_dir=str(tmp_path / "logs")))
    assert (tmp_path / "config.yaml").read_text() == "the first one's"


def test_new_folders_of_the_same_second_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = set()
    for _ in range(5):
        folder = run_folder.new("simple_v3")
        folder.mkdir(parents=True)
        seen.add(folder)
    assert len(seen) == 5
    assert {folder.parent for folder in seen} == {Path("runs/simple_v3")}


def test_the_device_in_the_configuration_is_a_real_one(tmp_path: Path) -> None:
    config = run_folder.placed(tmp_path, small("ppo", device="auto", checkpoint="here.pt"))
    assert config.device in ("cpu", "cuda")
    assert (config.checkpoint, config.log_dir) == ("here.pt", str(tmp_path))


@pytest.mark.parametrize("algorithm", sorted(EXTRA))
def test_a_checkpoint_of_another_environment_or_version_is_told_in_one_line(
    algorithm: str, tmp_path: Path
) -> None:
    """As when the file of an environment of one's own has been edited since."""
    folder = tmp_path / "run"
    run_folder.train(folder, SPREAD, algorithm, small(algorithm, total_steps=160), PARAMS)
    path = folder / "checkpoint.pt"
    trainer = importlib.import_module(f"gpu_zoo.baselines.{algorithm}")
    content = checkpoint.load(path)
    own = "a2c" if algorithm == "a2c" else "config"
    others, newer = {"env_params": {**PARAMS, "N": 3}}, {own: {**content[own], "zeal": 1}}
    for change, call, reason in (
        (others, trainer.resume, r"state\['pos'\]: shape \(16, 2, 2\), expected \(16, 3, 2\)"),
        (others, load_policy, r"size mismatch for .* shape .*, the shape in current model is "),
        (newer, trainer.resume, r".*unexpected keyword argument 'zeal'"),
    ):
        checkpoint.save(path, {**content, **change})
        message = f"^{path}: does not fit the environment, or this version of gpu_zoo: {reason}"
        with pytest.raises(CheckpointError, match=message) as caught:
            call(path)
        assert "\n" not in str(caught.value)
