"""Evaluation during a run: it measures what was learned so far, and changes nothing."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_zoo.baselines import checkpoint, csv_log, ppo
from gpu_zoo.baselines.algorithms import ALGORITHMS
from gpu_zoo.baselines.checkpoint import CheckpointError
from gpu_zoo.baselines.evaluation import evaluate
from gpu_zoo.baselines.loop import Update
from gpu_zoo.baselines.policies import load_policy

ADVERSARY = "mpe/simple_adversary_v3"
PARAMS = {"max_cycles": 8, "continuous_actions": True}
REPLAY = {"warmup": 10, "batch_size": 32, "capacity": 5000}
EXTRA: dict[str, dict[str, Any]] = {
    "ppo": {"recurrent": True}, "a2c": {}, "ddpg": REPLAY, "sac": REPLAY,
    "pql": {**REPLAY, "concurrent": False},
}  # fmt: skip
AGAINST = {"agent": "random"}


def small(algorithm: str = "ppo", **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "total_steps": 800, "num_envs": 16, "horizon": 10, "hidden": (8,), "device": "cpu",
        "progress": False, "eval_interval": 2, "eval_episodes": 5, **EXTRA[algorithm], **changes,
    }  # fmt: skip
    return ALGORITHMS[algorithm](**settings)


def trained(algorithm: str, config: Any, **kwargs: Any) -> Any:
    return importlib.import_module(f"gpu_zoo.baselines.{algorithm}").train(
        ADVERSARY, config, PARAMS, **kwargs
    )


def means(policy: Any, against: dict[str, Any], episodes: int = 5) -> dict[str, float]:
    """By hand: mean over the episodes of the mean over a group's agents."""
    found = evaluate(policy, episodes=episodes, deterministic=True, opponents=against)
    return {group: score.mean for group, score in found.groups.items()}


@pytest.mark.parametrize("algorithm", EXTRA)
def test_every_second_iteration_is_measured_and_none_is_changed(
    algorithm: str, tmp_path: Path
) -> None:
    """Policies of checkpoints, loaded and measured afterwards, give what was measured then."""
    path, wanted = tmp_path / "run.pt", list[dict[str, float]]()

    def keep(update: Update) -> None:
        wanted.append(means(load_policy(path), {}) if update.index % 2 == 0 else {})

    config = small(algorithm, checkpoint=str(path), checkpoint_interval=1)
    measured = trained(algorithm, config, on_update=keep)
    assert [update.evaluated for update in measured.curve] == wanted
    assert [set(numbers) for numbers in wanted] == [set(), {"adversary", "agent"}] * 2 + [set()]
    assert wanted[1] != wanted[3]
    plain = trained(algorithm, replace(config, eval_interval=0, checkpoint=None))
    assert [replace(update, evaluated={}) for update in measured.curve] == plain.curve
    for name, network in plain.policy.networks.items():
        theirs = measured.policy.networks[name].state_dict()
        assert all(torch.equal(tensor, theirs[n]) for n, tensor in network.state_dict().items())


def test_opponents_play_in_evaluations_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "other.pt")
    trained("ppo", small(seed=1, checkpoint=path, eval_interval=0))
    other, curves = load_policy(path), []
    for source, player in (("random", "random"), (path, other)):
        result = trained("ppo", small(total_steps=640, eval_opponents={"agent": source}))
        assert result.curve[3].evaluated == means(result.policy, {"agent": player})
        assert result.curve[3].evaluated != means(result.policy, {})
        curves.append([replace(update, evaluated={}) for update in result.curve])
    assert curves[0] == curves[1]


def test_what_was_measured_is_logged_and_resumed(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(update: Update) -> None:
        if update.index == 3:
            raise Stop

    config = small(eval_opponents=AGAINST)
    whole = trained("ppo", config).curve
    path = tmp_path / "checkpoint.pt"
    saving = replace(config, checkpoint=str(path), checkpoint_interval=3, log_dir=str(tmp_path))
    with pytest.raises(Stop):
        trained("ppo", saving, on_update=stop)
    assert ppo.resume(path).curve == whole
    rows = csv_log.read(tmp_path / "progress.csv")
    for row, update in zip(rows, whole, strict=True):
        found = {k: v for k, v in row.items() if k.endswith("/eval_return")}
        assert found == {f"{g}/eval_return": v for g, v in update.evaluated.items()}


def test_a_checkpoint_from_before_there_were_evaluations_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    whole = trained("ppo", small(eval_interval=0)).curve

    def old(update: Update) -> None:
        if update.index == 2:
            state = checkpoint.load(path)
            state["config"] = {k: v for k, v in state["config"].items() if "eval" not in k}
            state["curve"] = [
                {k: v for k, v in entry.items() if k != "evaluated"} for entry in state["curve"]
            ]
            checkpoint.save(path, state)
            raise InterruptedError

    saving = small(eval_interval=0, checkpoint=str(path), checkpoint_interval=1)
    with pytest.raises(InterruptedError):
        trained("ppo", saving, on_update=old)
    assert ppo.resume(path).curve == whole


@pytest.mark.parametrize("algorithm", EXTRA)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval_interval": -1}, r"^eval_interval=-1: expected an int of at least 0$"),
        ({"eval_episodes": 0}, r"^eval_episodes=0: expected an int of at least 1$"),
        ({"eval_opponents": {"agent": 1}}, r"^eval_opponents=.*: expected a dict of strings"),
    ],
)
def test_bad_values(algorithm: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(algorithm, **changes)


def test_bad_opponents(tmp_path: Path) -> None:
    path = str(tmp_path / "other.pt")
    ppo.train("mpe/simple_push_v3", small(eval_interval=0, checkpoint=path), {})
    for opponents, message in (
        ({"runner": "random"}, r"^eval_opponents: 'runner' is no group, expected adversary or "),
        ({"agent": "random", "adversary": "random"}, r"^eval_opponents=.*: expected a group to "),
        ({"agent": path}, r"^eval_opponents\['agent'\]: .*other.pt was made for agent with 19 "),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            trained("ppo", small(eval_opponents=opponents))
    with pytest.raises(CheckpointError, match=r"none.pt: no such file$"):
        trained("ppo", small(eval_opponents={"agent": str(tmp_path / "none.pt")}))
