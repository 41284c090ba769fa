"""The subcommands for trained policies: ``gpu-zoo evaluate`` and ``gpu-zoo export``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from gpu_zoo.arguments import Flag, Params, UserError, find_spec, parse_params, user_errors
from gpu_zoo.spec import EnvSpec

if TYPE_CHECKING:  # a command that is not called must not load torch
    from gpu_zoo.baselines.evaluation import Evaluation, Opponent, Policy

Checkpoint = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CHECKPOINT")]
Opponents = Annotated[
    list[str], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="GROUP=WHO", name="opponent")
]
OwnEnv = Annotated[str | None, tyro.conf.arg(metavar="ID")]


def evaluate(
    checkpoint: Checkpoint,
    *,
    env: OwnEnv = None,
    opponents: Opponents = [],  # noqa: B006
    episodes: int = 1000,
    params: Params = [],  # noqa: B006
    deterministic: Flag = False,
    seed: int = 2**40,
    device: str = "auto",
) -> int:
    """Play whole episodes with a trained policy: mean returns by group, with standard errors.

    Args:
        checkpoint: what gpu-zoo train wrote, or the folder of the run.
        env: environment of your own that it was trained in, a file or a folder.
        opponents: who plays a group instead: random, or another checkpoint; again for another one.
        episodes: how many to play.
        params: environment parameter; the others are as in training.
        deterministic: take the likeliest actions instead of drawing them.
        seed: of the first environment; the next one has the next seed.
        device: auto, cpu, cuda or cuda:<index>.
    """
    from gpu_zoo.backends import resolve_device

    with user_errors("--"):
        resolve_device(device)
    policy, entry = _load(checkpoint, env)
    env_params = {**policy.env_params, **parse_params(entry, params)}
    players = _opponents(opponents)
    from gpu_zoo.baselines import evaluation

    with user_errors():
        result = evaluation.evaluate(
            policy, episodes=episodes, env_params=env_params, device=device,
            deterministic=deterministic, opponents=players, seed=seed,
        )  # fmt: skip
    _show(entry, result, str(checkpoint), dict(text.split("=", 1) for text in opponents))
    return 0


def export(
    checkpoint: Checkpoint,
    *,
    to: Path,
    format: Literal["onnx", "torchscript"] = "onnx",
    env: OwnEnv = None,
) -> int:
    """Write a trained policy into a folder, for programs that have no gpu_zoo.

    Args:
        checkpoint: what gpu-zoo train wrote, or the folder of the run.
        to: the folder: a file for each network, and policy.json, which says who acts by which.
        format: onnx, or torchscript for torch.jit.load.
        env: environment of your own that it was trained in, a file or a folder.
    """
    _require_torch(checkpoint)
    from gpu_zoo.baselines import export as exports

    with user_errors("--to "):
        exports.check(to, format)
    policy, _ = _load(checkpoint, env)
    for path in exports.export(policy, to, format):
        print(f"wrote {path}")
    return 0


def _require_torch(checkpoint: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        raise UserError(f"{checkpoint}: needs torch: pip install 'gpu-zoo[train]'")


def _load(checkpoint: Path, env: str | None) -> tuple[Policy, EnvSpec]:
    """The policy, and the environment that it was trained in.

    Raises:
        UserError: no checkpoint, or one of another environment, or of one that is not known here.
    """
    _require_torch(checkpoint)
    from gpu_zoo.baselines.policies import load_policy

    entry = None if env is None else find_spec(env)
    with user_errors(), _own_environment(checkpoint):
        policy = load_policy(checkpoint)
        if entry is not None and policy.env_id != entry.id:
            raise ValueError(f"{checkpoint}: trained in {policy.env_id}, not in {entry.id}")
    return policy, entry or find_spec(policy.env_id)


@contextmanager
def _own_environment(checkpoint: Path) -> Iterator[None]:
    """Around the loading of a policy: no environment of the user's own is known by itself."""
    from gpu_zoo.registry import UnknownEnvironment

    try:
        yield
    except UnknownEnvironment as error:
        raise UserError(
            f"{checkpoint}: {error} If it is one of your own, name its file: --env FILE"
        ) from None


def _opponents(given: Sequence[str]) -> dict[str, Opponent]:
    """``["agent=random", "adversary=other.pt"]`` as players by group."""
    from gpu_zoo.baselines.policies import load_policy

    players: dict[str, Opponent] = {}
    for text in given:
        group, equals, who = text.partition("=")
        if not (group and equals and who):
            raise UserError(f"--opponent {text}: expected GROUP=random or GROUP=CHECKPOINT")
        if group in players:
            raise UserError(f"--opponent {text}: {group} has an opponent already")
        with user_errors():
            players[group] = "random" if who == "random" else load_policy(who)
    return players


def _show(entry: EnvSpec, result: Evaluation, own: str, others: dict[str, str]) -> None:
    print(f"{entry.id}, {result.episodes:,} episodes: mean return of an agent ± standard error")
    width = max(map(len, result.groups))
    for group, score in result.groups.items():
        who = others.get(group, own)
        print(f"{group:{width}}  {score.mean:.3f} ± {score.stderr:.3f}  {who}")
