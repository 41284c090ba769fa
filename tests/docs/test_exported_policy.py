"""The player on the page on exported policies: it needs no gpu_zoo, and plays what was trained."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("mpe2")
from gpu_zoo.baselines.evaluation import Policy, evaluate
from gpu_zoo.baselines.export import export
from gpu_zoo.baselines.ppo import PPOConfig, train

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCRIPT = DOCS / "tutorials" / "exported_policy" / "play.py"
PAGE = DOCS / "export.md"
SPREAD, TAG, SPEAK = "mpe/simple_spread_v3", "mpe/simple_tag_v3", "mpe/simple_speaker_listener_v4"
FORMATS = ["onnx", "torchscript"]


@pytest.fixture(scope="module")
def player() -> Any:
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("play_exported", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(env_id: str, params: dict[str, Any], **changes: Any) -> Policy:
    settings: dict[str, Any] = {
        "num_envs": 32, "horizon": 25, "hidden": (16,), "device": "cpu", "progress": False,
        "total_steps": 1600, "learning_rate": 0.03,
    }  # fmt: skip
    return train(env_id, PPOConfig(**{**settings, **changes}), params).policy


def need(format: str) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    ("format", "env_id", "params", "changes"),
    [
        ("onnx", SPREAD, {}, {"normalize_observations": True}),
        ("onnx", TAG, {"continuous_actions": True}, {"recurrent": True}),
        ("torchscript", TAG, {}, {"separate": True}),
        ("torchscript", SPEAK, {"continuous_actions": True}, {}),
        ("torchscript", SPREAD, {"N": 2}, {"recurrent": True}),
    ],
)
def test_the_likeliest_actions_give_the_same_episodes(
    player: Any, format: Any, env_id: str, params: Any, changes: Any, tmp_path: Path
) -> None:
    """In reference numerics, which are mpe2's, so that each return is the same."""
    need(format)
    policy = trained(env_id, params, **changes)
    export(policy, tmp_path, format)
    returns = player.play(player.Policy(tmp_path, deterministic=True), 8, seed=300)
    exact = {**params, "numerics": "reference"}
    wanted = evaluate(policy, episodes=8, env_params=exact, deterministic=True, seed=300).agents
    for agent, score in wanted.items():
        numbers = [total[agent] for total in returns]
        assert np.mean(numbers) == pytest.approx(score.mean, abs=1e-3), agent
        assert np.std(numbers, ddof=1) / 8**0.5 == pytest.approx(score.stderr, abs=1e-3)


def test_actions_are_drawn_from_what_the_network_says(player: Any) -> None:
    rng = np.random.default_rng(0)
    chances = np.array([0.1, 0.2, 0.7]), np.array([0.6, 0.4])
    logits = np.log(np.concatenate(chances)).astype(np.float32).repeat(40_000).reshape(5, -1).T
    drawn = player.draw({"logits": logits + 3}, {"kind": "multi_discrete", "choices": [3, 2]}, rng)
    assert drawn.shape == (40_000, 2)
    for part, wanted in zip(drawn.T, chances, strict=True):
        np.testing.assert_allclose(np.bincount(part) / 40_000, wanted, atol=0.01)
    single = player.draw({"logits": logits[:, :3]}, {"kind": "discrete", "choices": [3]}, rng)
    np.testing.assert_allclose(np.bincount(single) / 40_000, chances[0], atol=0.01)
    mean, std = np.full((40_000, 1), 0.3, np.float32), np.full((40_000, 1), 0.2, np.float32)
    box = {"kind": "box", "low": [0.1], "high": [0.9]}
    drawn = player.draw({"action": mean, "mean": mean, "std": std}, box, rng)
    assert (drawn.dtype, drawn.min(), drawn.max()) == (np.float32, np.float32(0.1), np.float32(0.9))
    assert np.mean(drawn < 0.5) == pytest.approx(0.8413, abs=0.01)  # one deviation above the mean
    assert np.mean(drawn == np.float32(0.1)) == pytest.approx(0.1587, abs=0.01)
    assert player.draw({"action": mean}, box, rng) is mean


def test_untrained_groups_play_at_random(player: Any, tmp_path: Path) -> None:
    policy = trained(TAG, {}, frozen={"adversary": "random"})
    export(policy, tmp_path, "torchscript")
    returns = player.play(player.Policy(tmp_path), 2)
    assert len(returns) == 2 and set(returns[0]) == set(policy.groups[0].agents) | {"agent_0"}


@pytest.mark.parametrize("format", FORMATS)
def test_the_script_runs_where_there_is_no_gpu_zoo(format: Any, tmp_path: Path) -> None:
    need(format)
    export(trained(SPREAD, {}), tmp_path / "spread", format)
    absent = tmp_path / "absent"
    absent.mkdir()
    forbidden = ["gpu_zoo", "torch" if format == "onnx" else "onnxruntime"]
    for name in forbidden:
        (absent / f"{name}.py").write_text("raise ImportError('not here')\n")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "spread", "--episodes", "3"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(absent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(agent_\d)  -\d+\.\d{3} ± \d+\.\d{3}$", done.stdout, re.M)
    assert rows == ["agent_0", "agent_1", "agent_2"]


def test_the_page_shows_every_section_once_and_in_order() -> None:
    snippet = re.compile(r'^--8<-- "tutorials/exported_policy/play.py:(\w+)"$', re.MULTILINE)
    shown = snippet.findall(PAGE.read_text())
    assert shown == re.findall(r"--8<-- \[start:(\w+)\]", SCRIPT.read_text())
    assert shown == re.findall(r"--8<-- \[end:(\w+)\]", SCRIPT.read_text())
    assert "export.md" in (DOCS.parent / "mkdocs.yml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_its_mean_return_is_evaluate_s(player: Any, format: Any, tmp_path: Path) -> None:
    """Sampled actions, so only the means agree: within four deviations of their difference."""
    need(format)
    policy = trained(
        SPREAD, {}, total_steps=100_000, num_envs=64, hidden=(64, 64), learning_rate=3e-3,
        gamma=0.95, entropy_coef=0.0,
    )  # fmt: skip
    export(policy, tmp_path, format)
    returns = player.play(player.Policy(tmp_path), 600, seed=7)
    numbers = [np.mean(list(total.values())) for total in returns]
    error = np.std(numbers, ddof=1) / len(numbers) ** 0.5
    wanted = evaluate(policy, episodes=4000).mean
    assert np.mean(numbers) == pytest.approx(wanted.mean, abs=4 * np.hypot(error, wanted.stderr))
    assert wanted.mean > evaluate(None, SPREAD, 4000).mean.mean + 4 * error  # it has learned
