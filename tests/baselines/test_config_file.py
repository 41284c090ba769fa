"""Configuration files: those that come along, a user's mistakes, and one written beside a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import gpu_zoo
from gpu_zoo.baselines import (
    a2c_config,
    config,
    config_file,
    ddpg_config,
    pql_config,
    sac_config,
)
from gpu_zoo.baselines.algorithms import ALGORITHMS
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.config_file import CONFIGS, ConfigError

SPREAD = "mpe/simple_spread_v3"
DEFAULTS: dict[str, Any] = {
    "ppo": config.default_config,
    "a2c": a2c_config.default_config,
    "ddpg": ddpg_config.default_config,
    "pql": pql_config.default_config,
    "sac": sac_config.default_config,
}


def written(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def test_every_shipped_file_is_the_default_of_its_environment() -> None:
    files = sorted(CONFIGS.rglob("*.*"))
    assert {f"ppo/{name}.yaml" for name in ("simple_spread_v3", "simple_tag_v3")} <= {
        str(file.relative_to(CONFIGS)) for file in files
    }
    for file in files:
        # Read by hand: one "key: value" a line.
        lines = dict(line.split(": ", 1) for line in file.read_text().splitlines() if line)
        env_id, algorithm = lines.pop("env_id"), lines.pop("algorithm")
        assert file == CONFIGS / algorithm / f"{gpu_zoo.spec(env_id).name}.yaml"
        found = DEFAULTS[algorithm](env_id)
        for name, text in lines.items():
            assert str(getattr(found, name)) == text.replace("[", "(").replace("]", ")").replace(
                "true", "True"
            ).replace("false", "False"), f"{file}: {name}"
        plain = ALGORITHMS[algorithm]()
        for field in dataclasses.fields(plain):
            if field.name not in lines:
                assert getattr(found, field.name) == getattr(plain, field.name)


@pytest.mark.parametrize("algorithm", sorted(DEFAULTS))
def test_without_a_file_defaults_are_the_algorithm_s(algorithm: str) -> None:
    env_id = "mpe/simple_crypto_v3"
    if (CONFIGS / algorithm / "simple_crypto_v3.yaml").exists():
        pytest.skip("it has a file")
    found = DEFAULTS[algorithm](env_id, seed=7)
    assert found == ALGORITHMS[algorithm](seed=7)
    with pytest.raises(KeyError, match="nothing"):
        DEFAULTS[algorithm]("nothing")


def test_a_file_tuned_for_one_algorithm_is_not_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_file, "CONFIGS", tmp_path)
    for algorithm, gamma in (("ppo", 0.5), ("ddpg", 0.25)):
        (tmp_path / algorithm).mkdir()
        (tmp_path / algorithm / "simple_spread_v3.yaml").write_text(f"gamma: {gamma}\n")
    assert [DEFAULTS[name](SPREAD).gamma for name in ("ppo", "a2c", "ddpg")] == [0.5, 0.99, 0.25]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), ("1E3", 1000.0), ("2.e-4", 2e-4), (".5e1", 5.0), ("1", 1), ("0.25", 0.25)],
)
def test_numbers_are_numbers_with_and_without_a_point(
    tmp_path: Path, text: str, value: float
) -> None:
    file = config_file.read(written(tmp_path, f"learning_rate: {text}\n"))
    assert file.hyper_parameters == {"learning_rate": value}
    assert type(file.hyper_parameters["learning_rate"]) is type(value)
    assert config_file.applied(file, PPOConfig()).learning_rate == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- 1\n", "expected lines of the form key: value"),
        ("gamma 0.9\n", "expected lines of the form key: value"),
        ("1: 2\n", "expected lines of the form key: value"),
        ("gamma: [0.9\n", "line 2: expected ',' or ']'"),
        ("gamma: 0.9\ngamma: 0.8\n", "gamma: expected once, found 2 times"),
        ("env_params: {N: 3, N: 4}\n", "N: expected once, found 2 times"),
        ("gamma: !!python/object:os.system x\n", "could not determine a constructor"),
        ("env_id: 3\n", "env_id=3: expected an id"),
        ("algorithm: [ppo]\n", "algorithm=['ppo']: expected a name"),
        ("env_params: 5\n", "env_params=5: expected a mapping"),
        ("version: 0.1\n", "version=0.1: expected a version"),
        ("learning_rat: 0.1\n", "learning_rat: expected one of env_id, env_params, algorithm, ver"),
        ("learning_rat: 0.1\n", "did you mean learning_rate or learning_rate_batch?"),
        ("env: mpe/simple_v3\n", "did you mean env_id?"),
        ("epochs: two\n", "epochs='two': expected an int of at least 1"),
        ("epochs: 2.0\n", "epochs=2.0: expected an int of at least 1"),
        ("gamma: 1.5\n", "gamma=1.5: expected a number from 0 to 1"),
        ("gamma: null\n", "gamma=None: expected a number from 0 to 1"),
        ("anneal: 1\n", "anneal=1: expected True or False"),
        ("hidden: 64\n", "hidden=64: expected a tuple of ints"),
        ("device: 0\n", "device=0: expected 'auto', 'cpu'"),
        ("checkpoint: 5\n", "checkpoint=5: expected a path, or None"),
        ("log_dir: true\n", "log_dir=True: expected a path, or None"),
    ],
)
def test_a_mistake_names_file_key_and_what_is_expected(
    tmp_path: Path, text: str, says: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        config_file.applied(config_file.read(path), PPOConfig())
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and says in message
    assert "\n" not in message


def test_a_missing_or_binary_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file"):
        config_file.read(tmp_path / "none.yaml")
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"run\.yaml: .*decode") as caught:
        config_file.read(tmp_path / "run.yaml")
    assert "\n" not in str(caught.value)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    file = config_file.read(written(tmp_path, "# nothing yet\n"))
    assert (file.env_id, file.algorithm, file.env_params, file.version) == (None, None, {}, None)
    assert config_file.applied(file, PPOConfig(seed=3)) == PPOConfig(seed=3)


@pytest.mark.parametrize(
    "changed",
    [
        PPOConfig(learning_rate=0.1 + 0.2, value_clip=1e-5 / 3, hidden=(), seed=5, anneal=False),
        a2c_config.A2CConfig(optimizer="adam", gamma=1 / 3, hidden=(7, 8, 9), device="cpu"),
        ddpg_config.DDPGConfig(actor_lr=1e-12 / 7, n_step=5, warmup=0),
    ],
    ids=lambda changed: type(changed).__name__,
)
def test_what_is_written_is_read_to_the_last_bit(tmp_path: Path, changed: Any) -> None:
    path = tmp_path / "config.yaml"
    params = {"N": 5, "local_ratio": 0.1 + 0.2, "final_state": (1.0, 2.0), "mode": None}
    places = {"checkpoint": "here.pt", "log_dir": "there", "progress": False}
    elsewhere = dataclasses.replace(changed, **places)
    config_file.write(path, SPREAD, "some", elsewhere, params)
    file = config_file.read(path)
    assert (file.env_id, file.algorithm, file.version) == (SPREAD, "some", gpu_zoo.__version__)
    assert file.env_params == {**params, "final_state": [1.0, 2.0]}
    # All is in it but where the run was written to and whether it was shown.
    assert set(file.hyper_parameters) == {f.name for f in dataclasses.fields(changed)} - set(places)
    assert config_file.applied(file, type(changed)()) == changed
