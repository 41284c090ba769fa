"""What is handed to Weights & Biases, by a module that stands in for it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_zoo.baselines import ppo
from gpu_zoo.baselines.wandb_log import WandbLog
from gpu_zoo.errors import MissingDependency

SMALL: dict[str, Any] = {
    "total_steps": 640, "num_envs": 16, "horizon": 10, "minibatches": 2, "hidden": (8,),
    "device": "cpu", "progress": False,
}  # fmt: skip


class Wandb:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.inits: list[dict[str, Any]] = []
        self.rows: list[tuple[dict[str, float], int]] = []
        self.metrics: list[tuple[str, str]] = []
        self.exit_codes: list[int] = []

    def init(self, **options: Any) -> Any:
        self.inits.append(options)
        return SimpleNamespace(
            id=options["id"] or "fresh",
            define_metric=lambda name, step_metric: self.metrics.append((name, step_metric)),
            log=lambda numbers, step: self.rows.append((numbers, step)),
            finish=lambda exit_code: self.exit_codes.append(exit_code),
        )


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Wandb:
    stub = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", stub)  # type: ignore[arg-type]
    return stub


def test_every_iteration_is_logged_at_its_step(wandb: Wandb, tmp_path: Path) -> None:
    folder = tmp_path / "spread" / "seed_0"
    with WandbLog("zoo", folder, {"gamma": 0.9}) as log:
        curve = ppo.train("mpe/simple_spread_v3", ppo.PPOConfig(**SMALL), on_update=log).curve
    (options,) = wandb.inits
    assert (options["project"], options["name"], options["group"]) == ("zoo", "seed_0", "spread")
    assert (options["config"], options["dir"]) == ({"gamma": 0.9}, str(folder))
    assert (options["id"], options["resume"]) == (None, "allow")
    assert wandb.metrics == [("*", "env_steps")]
    assert [step for _, step in wandb.rows] == [1, 2, 3, 4]
    for (numbers, _), update in zip(wandb.rows, curve, strict=True):
        returns = {f"{group}/return": value for group, value in update.returns.items()}
        times = {"env_steps": update.env_steps, "seconds": update.seconds}
        assert numbers == {**times, **returns, **update.losses}
    assert wandb.exit_codes == [0]


def test_a_resumed_run_goes_on_under_its_id(wandb: Wandb, tmp_path: Path) -> None:
    for _ in range(2):
        with WandbLog("zoo", tmp_path, {}):
            pass
    assert [options["id"] for options in wandb.inits] == [None, "fresh"]


def test_a_run_that_fails_is_marked_as_failed(wandb: Wandb, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), WandbLog("zoo", tmp_path, {}):
        raise KeyboardInterrupt
    assert wandb.exit_codes == [1]


def test_without_the_package_the_command_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingDependency, match=r"pip install 'gpu-zoo\[wandb\]'"):
        WandbLog("zoo", tmp_path / "new", {})
    assert not (tmp_path / "new").exists()
