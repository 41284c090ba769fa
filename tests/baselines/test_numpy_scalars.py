"""NumPy's scalars in configurations and environment parameters become Python's own types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_zoo.baselines import a2c, checkpoint, checks, config_file, ddpg, ppo, pql, run_folder, sac
from gpu_zoo.baselines.export import export
from gpu_zoo.baselines.policies import load_policy

SPREAD = "mpe/simple_spread_v3"
SMALL: dict[str, Any] = {
    "total_steps": np.int64(32), "num_envs": np.int32(4), "horizon": np.int64(4),
    "hidden": (np.int64(8),), "gamma": np.float64(0.9), "progress": np.bool_(False),
    "eval_opponents": {}, "device": np.str_("cpu"),
}  # fmt: skip
REPLAY = {"capacity": np.int64(200), "batch_size": np.int64(4), "warmup": np.int64(1)}
ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo": (ppo.PPOConfig, {"learning_rate": np.float64(1e-3), "anneal": np.bool_(True)}),
    "a2c": (a2c.A2CConfig, {"learning_rate": np.float64(1e-3), "anneal": np.bool_(True)}),
    "ddpg": (ddpg.DDPGConfig, {**REPLAY, "actor_lr": np.float32(1e-3)}),
    "pql": (pql.PQLConfig, {**REPLAY, "concurrent": np.bool_(False)}),
    "sac": (sac.SACConfig, {**REPLAY, "target_entropy": np.float64(-1)}),
}
PARAMS = {
    "max_cycles": np.int64(5), "continuous_actions": np.bool_(True),
    "local_ratio": np.float64(0.25),
}  # fmt: skip
PYTHON_S = (bool, int, float, str, type(None), tuple, dict)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_written_can_be_read(algorithm: str, tmp_path: Path) -> None:
    """The run's file and checkpoint, and what is exported."""
    kind, own = ALGORITHMS[algorithm]
    config = kind(**SMALL, **own)
    for name, value in vars(config).items():
        assert type(value) in PYTHON_S, name
    assert type(config.hidden[0]) is int
    run_folder.train(tmp_path, SPREAD, algorithm, config, PARAMS)
    plain = {"max_cycles": 5, "continuous_actions": True, "local_ratio": 0.25}
    file = config_file.read(tmp_path / "config.yaml")
    assert file.env_params == plain
    assert file.hyper_parameters["gamma"] == 0.9
    policy = load_policy(tmp_path)
    assert policy.env_params == plain
    export(policy, tmp_path / "exported", "torchscript")
    described = json.loads((tmp_path / "exported" / "policy.json").read_text())
    assert described["env_params"] == plain
    saved = checkpoint.load(tmp_path / "checkpoint.pt")["env_params"]
    assert {name: type(value) for name, value in saved.items()} == {
        "max_cycles": int, "continuous_actions": bool, "local_ratio": float,
    }  # fmt: skip


def test_arrays_and_what_is_within_others() -> None:
    given = {"a": np.array([1.5, 2.0]), "b": [np.int8(1), (np.float32(0.5),)], np.str_("c"): None}
    found = checks.plain(given)
    assert found == {"a": (1.5, 2.0), "b": [1, (0.5,)], "c": None}
    assert type(found["a"][0]) is float and type(found["b"][0]) is int
    assert all(type(name) is str for name in found)


def test_a_numpy_scalar_is_checked_like_a_number() -> None:
    with pytest.raises(ValueError, match=r"^num_envs=0: expected "):
        ppo.PPOConfig(num_envs=np.int64(0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^num_envs=2.0: expected "):
        ppo.PPOConfig(num_envs=np.float64(2))  # type: ignore[arg-type]
    for width in (True, np.bool_(True)):
        with pytest.raises(ValueError, match=r"^hidden=\(True,\): expected "):
            ppo.PPOConfig(hidden=(width,))  # type: ignore[arg-type]
