"""Configurations as files: those that come along, a user's own, and the one beside every run.

All three are YAML of one form. Every key may be left out:

    env_id: mpe/simple_spread_v3
    env_params: {N: 5}
    algorithm: ppo
    version: 0.1.0  # of gpu_zoo, which wrote the file
    learning_rate: 1e-3  # and any other hyper-parameter of the algorithm
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_zoo.baselines import checks, yaml_text
from gpu_zoo.registry import spec
from gpu_zoo.version import __version__

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    C = TypeVar("C", bound=DataclassInstance)

CONFIGS = Path(__file__).parent / "configs"
# Where a run writes and what it shows are no part of what it computes.
PLACES = ("checkpoint", "log_dir", "progress")
# Neither is what is measured beside it, though to repeat a run is to measure it again.
MEASURED = ("eval_interval", "eval_episodes", "eval_opponents")


class ConfigError(ValueError):
    """A configuration file that cannot be used; the message names file, key and what is due."""


@dataclass(frozen=True)
class ConfigFile:
    """What a configuration file says.

    Attributes:
        path: the file.
        env_id: the environment it is for, or None.
        algorithm: the algorithm it is for, or None.
        env_params: parameters of the environment; the spec checks them.
        version: of the gpu_zoo that wrote it, or None.
        hyper_parameters: all other keys; :func:`applied` checks them.
    """

    path: Path
    env_id: str | None
    algorithm: str | None
    env_params: dict[str, Any]
    version: str | None
    hyper_parameters: dict[str, Any]


def read(path: str | Path) -> ConfigFile:
    """Read a configuration file.

    Raises:
        ConfigError: the file is missing or no YAML mapping, or one of the keys that are no
            hyper-parameters has a value of another type.
        MissingDependency: PyYAML is not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    try:
        content = yaml_text.load(path.read_text())
    except ValueError as error:  # UnicodeDecodeError is one
        raise ConfigError(f"{path}: {error}") from None
    content = {} if content is None else content
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"{path}: expected lines of the form key: value")
    known: dict[str, Any] = {}
    for key, kind, what in (
        ("env_id", str, "an id, such as mpe/simple_spread_v3"),
        ("algorithm", str, "a name, such as ppo"),
        ("env_params", dict, "a mapping, such as {N: 5}"),
        ("version", str, "a version of gpu_zoo"),
    ):
        value = known[key] = content.pop(key, None)
        if value is not None and not isinstance(value, kind):
            raise ConfigError(f"{path}: {key}={value!r}: expected {what}")
    known["env_params"] = known["env_params"] or {}
    return ConfigFile(path=path, hyper_parameters=content, **known)


def applied(file: ConfigFile, config: C) -> C:
    """A configuration with the file's hyper-parameters in place of its own.

    Raises:
        ConfigError: a key that is none of them, or a value of another type or out of range.
    """
    names = [field.name for field in fields(config)]
    for key in file.hyper_parameters:
        if key not in names:
            raise ConfigError(f"{file.path}: {key}: {_unknown(key, names)}")
    try:
        return replace(config, **file.hyper_parameters)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file.path}: {error}") from None


def _unknown(key: str, names: Collection[str]) -> str:
    others = ("env_id", "env_params", "algorithm", "version")
    near = difflib.get_close_matches(key, [*names, *others], n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"expected one of {', '.join(others)} or a hyper-parameter of the algorithm{hint}"


def write(
    path: str | Path,
    env_id: str,
    algorithm: str,
    config: DataclassInstance,
    env_params: Mapping[str, Any],
) -> None:
    """Write the configuration of a run, with which it can be repeated exactly.

    All hyper-parameters are in it, also those left at their defaults, but not ``PLACES``.
    """
    content: dict[str, Any] = {"env_id": env_id, "env_params": _plain(env_params)}
    content |= {"algorithm": algorithm, "version": __version__}
    content |= _plain({k: v for k, v in asdict(config).items() if k not in PLACES})
    Path(path).write_text(yaml_text.dump(content))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    own = checks.plain(values)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in own.items()}


def tuned(kind: type[C], algorithm: str, env_id: str, **changes: Any) -> C:
    """The hyper-parameters that come along for an environment, with changes.

    Where there is no ``configs/<algorithm>/<name>.yaml``, the algorithm's own defaults.

    Raises:
        KeyError: no such environment.
        TypeError: a change to something that is no hyper-parameter.
        ValueError: a value out of range.
    """
    path = CONFIGS / algorithm / f"{spec(env_id).name}.yaml"
    config = applied(read(path), kind()) if path.is_file() else kind()
    return replace(config, **changes)
