"""What ``gpu-zoo train`` does between its options and the trainers."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from gpu_zoo.arguments import UserError, find_spec, user_errors
from gpu_zoo.baselines import config_file, run_folder
from gpu_zoo.baselines.algorithms import ALGORITHMS, CONTINUOUS, Algorithm, Config
from gpu_zoo.baselines.checks import expect
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.config_file import ConfigError
from gpu_zoo.baselines.pql_config import PQLConfig
from gpu_zoo.seed_runs import run_seeds, seed_folder
from gpu_zoo.spec import EnvSpec
from gpu_zoo.version import __version__


@dataclass(frozen=True)
class Setup:
    """What the options of a call of ``train`` begin with, before the options themselves."""

    entry: EnvSpec | None  # None if the call names no environment
    algorithm: Algorithm
    config: Config
    env_params: Mapping[str, Any]


@dataclass(frozen=True)
class Order:
    """What is to be trained, with which algorithm and where the run is to be."""

    env_id: str  # as it was typed: an id or a file
    entry: EnvSpec
    algorithm: str
    env_params: Mapping[str, Any]
    config: Config
    run_dir: Path | None
    wandb: str | None
    profile: bool


def option(argv: Sequence[str], name: str) -> str | None:
    """The value of an option, before anything is parsed; None if it is not there."""
    value = None
    for i, word in enumerate(argv):
        head, equals, tail = word.partition("=")
        if head == name:
            value = tail if equals else next(iter(argv[i + 1 :]), None)
    return value


def setup_of(env_id: str | None, path: str | None, named: str | None) -> Setup:
    """What the options begin with: the file's values over those tuned for the environment.

    Args:
        env_id: the environment, if the call names one.
        path: the configuration file, if it names one.
        named: the algorithm, if it names one; what is none is left to the parser to refuse.

    Raises:
        ValueError: the file cannot be used, or is for another environment.
        UserError: no such environment.
    """
    chosen = named if named in ALGORITHMS else "ppo"
    if env_id is None:
        return Setup(None, cast(Algorithm, chosen), ALGORITHMS[chosen](), {})
    entry = find_spec(env_id)
    if path is None:
        config: Config = config_file.tuned(ALGORITHMS[chosen], chosen, entry.id)
        return Setup(entry, cast(Algorithm, chosen), config, {})
    file = config_file.read(path)
    if file.env_id not in (None, entry.id, entry.name):
        raise ConfigError(f"{path}: env_id={file.env_id!r}: expected {entry.id!r}, as called")
    if named is None and file.algorithm is not None:
        chosen = file.algorithm
        if chosen not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise ConfigError(f"{path}: algorithm={chosen!r}: expected one of {known}")
    try:
        entry.resolve(file.env_params)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: env_params: {error}") from None
    if file.version not in (None, __version__):
        print(f"{path}: written by gpu_zoo {file.version}, this is {__version__}", file=sys.stderr)
    config = config_file.applied(file, config_file.tuned(ALGORITHMS[chosen], chosen, entry.id))
    return Setup(entry, cast(Algorithm, chosen), config, file.env_params)


def start(order: Order, seeds: int, jobs: int | None) -> int:
    """Begin a run, or one for each of several seeds."""
    entry, config = order.entry, order.config
    _require(order.wandb)
    _check_seeds(config, seeds, jobs)
    _check_profile(order, order.algorithm, seeds)
    with user_errors():
        params = entry.resolve(order.env_params)
        for table in entry.tables.values():
            table.load(params)
    if isinstance(config, PPOConfig):
        from gpu_zoo.baselines import ppo

        with user_errors():
            ppo.check(entry.id, config, order.env_params)
    if config.eval_interval:
        from gpu_zoo.baselines.evaluator import load_opponents

        with user_errors():
            load_opponents(entry.id, order.env_params, config.eval_opponents)
    if order.algorithm in CONTINUOUS:
        from gpu_zoo.baselines.deterministic import make_actors

        with user_errors(f"--algorithm {order.algorithm}: "):  # whether its actions are continuous
            make_actors(entry.id, order.env_params, config.hidden, config.seed)
        least = config.num_envs * max(group.count for group in entry.layout(params))
        enough = (int, f"at least num_envs * agents = {least}", lambda value: value >= least)
        with user_errors("--"):
            expect(config, ("capacity",), enough)
    if config.checkpoint and Path(config.checkpoint).exists():
        raise UserError(
            f"--checkpoint {config.checkpoint}: expected a new file; to go on with it, --resume"
        )
    folder = order.run_dir or run_folder.new(entry.name)
    within = [seed_folder(folder, seed) for seed in range(config.seed, config.seed + seeds)]
    with user_errors("--run-dir "):
        for place in (folder, *within) if run_folder.first_process() else ():
            run_folder.check_free(place)
    with user_errors("--"):
        config = run_folder.placed(folder, config)
    if isinstance(config, PQLConfig):
        from gpu_zoo.baselines.pql import chosen_devices

        with user_errors("--"):
            chosen_devices(config)
    if seeds > 1:
        return run_seeds(order, folder, seeds, jobs)
    _announce(config.checkpoint, config.log_dir)
    shown = {"env_id": entry.id, "algorithm": order.algorithm, "env_params": order.env_params}
    with (
        _lost(order.env_id, config.checkpoint),
        _wandb(order.wandb, folder, {**shown, **asdict(config)}) as on_update,
        _profiled(order.profile),
    ):
        result = run_folder.train(
            folder, entry.id, order.algorithm, config, order.env_params, on_update=on_update
        )
    return _sum_up(order, result, config.checkpoint)


def go_on(order: Order, path: Path) -> int:
    """Go on with the run in a checkpoint or a run folder."""
    _require(order.wandb)
    from gpu_zoo.backends import resolve_device
    from gpu_zoo.baselines import checkpoint

    entry = order.entry
    path = run_folder.checkpoint_of(path)
    with user_errors():
        saved = checkpoint.load(path)
        if saved["env_id"] != entry.id:
            raise ValueError(f"{path}: trained in {saved['env_id']}, not in {entry.id}")
        places = checkpoint.places(path, saved)
        resolve_device(places["device"])
    algorithm = saved.get("algorithm", "ppo")
    _check_profile(order, algorithm, seeds=1)
    _announce(places["checkpoint"], places["log_dir"])
    trainer: Any = importlib.import_module(f"gpu_zoo.baselines.{algorithm}")
    with (
        _lost(order.env_id, str(path)),
        _wandb(order.wandb, path.parent, saved["config"]) as on_update,
        _profiled(order.profile),
    ):
        result = trainer.resume(path, on_update=on_update)
    return _sum_up(order, result, str(path))


def _check_seeds(config: Config, seeds: int, jobs: int | None) -> None:
    if seeds < 1:
        raise UserError(f"--seeds {seeds}: expected at least 1")
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs}: expected at least 1")
    if jobs is not None and seeds == 1:
        raise UserError("--jobs: only with --seeds")
    if seeds > 1 and os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("--seeds: not under torchrun, each is a process of its own")
    if seeds > 1 and (config.checkpoint or config.log_dir):
        raise UserError("--seeds: not with --checkpoint or --log-dir, each has a folder of its own")
    with user_errors(f"--seeds {seeds}: "):
        replace(config, seed=config.seed + seeds - 1)  # the last one


def _check_profile(order: Order, algorithm: str, seeds: int) -> None:
    if order.profile and algorithm == "pql":
        raise UserError("--profile: not with pql, whose parts work at the same time")
    if order.profile and seeds > 1:
        raise UserError("--profile: not with --seeds, runs beside each other slow each other")


def _require(wandb: str | None) -> None:
    for module, package in (("torch", "torch"), ("tensorboard", "tensorboard"), ("yaml", "PyYAML")):
        if importlib.util.find_spec(module) is None:
            raise UserError(f"train needs {package}: pip install 'gpu-zoo[train]'")
    if wandb is not None and importlib.util.find_spec("wandb") is None:
        raise UserError("--wandb needs wandb: pip install 'gpu-zoo[wandb]'")


def _wandb(project: str | None, folder: Path, config: Mapping[str, Any]) -> Any:
    """A context that gives the callback for Weights & Biases, or None if it is not asked for."""
    if project is None or not run_folder.first_process():
        return nullcontext()
    from gpu_zoo.baselines.wandb_log import WandbLog

    return WandbLog(project, folder, config)


@contextmanager
def _lost(env_id: str, checkpoint: str | None) -> Iterator[None]:
    """Another process of torchrun's that is gone is no defect of ours, and neither is Ctrl-C."""
    from gpu_zoo.baselines.checkpoint import CheckpointError
    from gpu_zoo.baselines.distributed import WorkerLost
    from gpu_zoo.baselines.loop import NotFinite

    try:
        yield
    except WorkerLost as error:
        again = f"gpu-zoo train {env_id} --resume {checkpoint}"
        raise UserError(f"{error}, as in: torchrun ... {again}") from None
    except (CheckpointError, NotFinite) as error:
        raise UserError(str(error)) from None
    except KeyboardInterrupt:
        if checkpoint and Path(checkpoint).is_file() and run_folder.first_process():
            resume = f"gpu-zoo train {shlex.quote(env_id)} --resume {shlex.quote(checkpoint)}"
            print(f"stopped; to go on: {resume}", file=sys.stderr)
        raise


@contextmanager
def _profiled(wanted: bool) -> Iterator[None]:
    """Say afterwards where the time of the run within it went, if that is wanted."""
    if not wanted:
        yield
        return
    from gpu_zoo.baselines.profile import recording

    with recording() as profile:
        yield
    if run_folder.first_process():
        print(profile)


def _announce(checkpoint: str | None, log_dir: str | None) -> None:
    if run_folder.first_process():
        print(f"checkpoint: {checkpoint}\nlogs: tensorboard --logdir {log_dir}")


def _sum_up(order: Order, result: Any, checkpoint: str | None) -> int:
    if not run_folder.first_process():
        return 0
    last = result.curve[-1]
    means = next((u.returns for u in reversed(result.curve) if u.returns), dict[str, float]())
    returns = ", ".join(f"{group} {value:.2f}" for group, value in means.items()) or "none yet"
    print(f"{last.env_steps:,} steps in {last.seconds:.0f} s, last mean return: {returns}")
    if order.entry.render is not None:
        where = shlex.quote(str(checkpoint))
        print(f"to see it: gpu-zoo play {shlex.quote(order.env_id)} --checkpoint {where}")
    return 0
