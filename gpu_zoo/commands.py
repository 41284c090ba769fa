"""The subcommands of ``gpu-zoo``, as functions from which tyro makes options and help texts."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from gpu_zoo.arguments import (
    EnvId,
    File,
    Flag,
    Params,
    UserError,
    find_spec,
    parse_params,
    user_errors,
)
from gpu_zoo.author_commands import check, new
from gpu_zoo.baselines.a2c_config import A2CConfig
from gpu_zoo.baselines.config import PPOConfig, default_config
from gpu_zoo.baselines.ddpg_config import DDPGConfig
from gpu_zoo.bench_command import bench
from gpu_zoo.spec import EnvSpec, Numerics

Algorithm = Literal["ppo", "a2c", "ddpg"]
Config = PPOConfig | A2CConfig | DDPGConfig
ALGORITHMS: dict[str, type[Config]] = {"ppo": PPOConfig, "a2c": A2CConfig, "ddpg": DDPGConfig}


def run(argv: Sequence[str]) -> int:
    """Parse the arguments, run the subcommand and return its exit code."""
    commands: dict[str, Callable[..., int]] = {
        "list": list_, "info": info, "train": train_command(argv), "play": play,
        "render": render, "bench": bench, "new": new, "check": check, "doctor": doctor,
        "source": source,
    }  # fmt: skip
    with user_errors():
        command = tyro.extras.subcommand_cli_from_dict(
            {name: _deferred(function) for name, function in commands.items()},
            prog="gpu-zoo",
            description="Multi-agent environments that run as kernels over thousands of copies.",
            args=argv,
        )
    return int(command())


def _deferred(function: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    """The same options, but calling it only says what to call: parsing is over by then."""

    @wraps(function)
    def defer(*args: Any, **kwargs: Any) -> Callable[[], int]:
        return partial(function, *args, **kwargs)

    return defer


def list_() -> int:
    """List all environments."""
    from gpu_zoo.describe import show_list

    show_list()
    return 0


def info(env_id: EnvId, *, params: Params = [], numerics: Numerics = "fast") -> int:  # noqa: B006
    """Show an environment: agents, observations, actions, parameters, reward, state.

    Args:
        env_id: environment, such as simple_spread_v3, or a file or folder of your own.
        params: environment parameter; sizes are shown for these values.
        numerics: numbers of the state: fast is float32, reference is float64.
    """
    from gpu_zoo.describe import show_info

    entry = find_spec(env_id)
    show_info(entry, entry.resolve(parse_params(entry, params)), numerics)
    return 0


def play(
    env_id: EnvId,
    *,
    checkpoint: File = None,
    record: File = None,
    episodes: int = 1,
    seed: int = 0,
    params: Params = [],  # noqa: B006
    deterministic: Flag = False,
    reference: Flag = False,
) -> int:
    """Play episodes in a window or into a file: a trained policy, or random actions.

    Args:
        env_id: environment, such as simple_spread_v3, or a file or folder of your own.
        checkpoint: what gpu-zoo train wrote; without one, actions are random.
        record: write this file instead of opening a window: .gif, .png (animated too) or .mp4.
        episodes: how many.
        seed: of the first episode; the next one has the next seed.
        params: environment parameter; the others are as in training.
        deterministic: take the likeliest action instead of drawing one.
        reference: play in the original package's own environment.
    """
    from gpu_zoo import play as player

    entry = find_spec(env_id)
    mode = "human" if record is None else "rgb_array"
    if record is None:
        from gpu_zoo.render.screen import require_display

        require_display()
    else:
        with user_errors("--record "):
            player.check_recording(record)
    env, policy = _open(entry, params, checkpoint, seed, deterministic, mode, reference)
    frames = []
    for number in range(episodes):
        returns: dict[str, float] = {}
        for steps, returns in enumerate(player.episode(env, policy, seed + number)):  # noqa: B007
            if record is not None:
                frames.append(player.shrink(env.render()))
            elif steps == 0:
                env.render()  # later frames are shown by the step itself
            elif player.window_was_closed():
                env.close()
                return 0
        earned = player.mean_by_group(entry, returns)
        print(f"seed {seed + number}: {steps} steps, mean return: {earned}")
    if record is not None:
        player.save_recording(record, frames, env.metadata["render_fps"])
        print(f"wrote {record}: {len(frames)} frames")
    env.close()
    return 0


def render(
    env_id: EnvId,
    *,
    out: Path,
    checkpoint: File = None,
    seed: int = 0,
    steps: int = 0,
    params: Params = [],  # noqa: B006
    deterministic: Flag = False,
) -> int:
    """Write one picture of an environment.

    Args:
        env_id: environment, such as simple_spread_v3, or a file or folder of your own.
        out: the file, such as picture.png.
        checkpoint: what gpu-zoo train wrote; without one, actions are random.
        seed: of the episode.
        steps: how many to take before the picture; fewer if the episode ends.
        params: environment parameter; the others are as in training.
        deterministic: take the likeliest action instead of drawing one.
    """
    from itertools import islice

    from gpu_zoo import play as player

    entry = find_spec(env_id)
    if out.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
        raise UserError(f"--out {out}: expected a name that ends in .png, .jpg or .webp")
    env, policy = _open(entry, params, checkpoint, seed, deterministic)
    for _ in islice(player.episode(env, policy, seed), steps + 1):
        pass
    player.save_picture(out, env.render())
    print(f"wrote {out}")
    return 0


def _open(
    entry: EnvSpec,
    given: Sequence[str],
    checkpoint: Path | None,
    seed: int,
    deterministic: bool,
    render_mode: str = "rgb_array",
    reference: bool = False,
) -> tuple[Any, Callable[..., Any]]:
    """The environment and who plays in it."""
    from gpu_zoo import play as player

    values = parse_params(entry, given)
    if "render_mode" in values:
        raise UserError("--param render_mode: this command chooses it")
    if entry.render is None:
        raise UserError(f"{entry.id} cannot be drawn: its spec has no render function")
    if reference and entry.family != "mpe":
        raise UserError(f"--reference: {entry.id} has no original with PettingZoo's interface")
    if checkpoint is None:
        env = player.open_env(entry, render_mode, values, reference)
        return env, player.random_policy(env, seed)
    with user_errors():
        policy, trained = player.load_policy(entry, checkpoint, values, seed, deterministic)
    return player.open_env(entry, render_mode, {**trained, **values}, reference), policy


def train_command(argv: Sequence[str]) -> Callable[..., int]:
    """The train command; its options are those of the algorithm named in its call, and their
    defaults those tuned for the environment named there.
    """
    called = argv[0] == "train" and len(argv) > 1 and not argv[1].startswith("-")
    named = argv[1] if called else None
    chosen = _algorithm(argv)
    tuned: Config = ALGORITHMS[chosen]()
    if named is not None:
        entry = find_spec(named)
        tuned = default_config(entry.id) if chosen == "ppo" else tuned

    def train(
        env_id: EnvId,
        *,
        algorithm: Algorithm = "ppo",
        params: Params = [],  # noqa: B006
        resume: File = None,
        config: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = tuned,
    ) -> int:
        """Train a policy for each group of agents.

        Defaults of PPO are those tuned for the environment. The checkpoint and the TensorBoard logs
        go to a new folder, runs/<environment>/<time>/, unless other places are named.

        Args:
            env_id: environment, such as simple_spread_v3, or a file of your own; comes first.
            algorithm: the options below follow it; ddpg is for continuous actions.
            params: environment parameter.
            resume: go on from this checkpoint, with its own algorithm and options.
            config: hyper-parameters.
        """
        if env_id != named:
            raise UserError(f"train: name the environment first: gpu-zoo train {env_id} ...")
        return _train(env_id, algorithm, params, resume, config)

    return train


def _algorithm(argv: Sequence[str]) -> str:
    """The algorithm named, before anything is parsed; PPO if none is, or none that we have."""
    for i, word in enumerate(argv):
        option, _, value = word.partition("=")
        if option == "--algorithm":
            value = value or next(iter(argv[i + 1 :]), "")
            return value if value in ALGORITHMS else "ppo"
    return "ppo"


def _train(
    env_id: str, algorithm: str, given: Sequence[str], resume: Path | None, config: Config
) -> int:
    entry = find_spec(env_id)
    values = parse_params(entry, given)
    for module in ("torch", "tensorboard"):
        if importlib.util.find_spec(module) is None:
            raise UserError(f"train needs {module}: pip install 'gpu-zoo[train]'")
    from gpu_zoo.backends import resolve_device
    from gpu_zoo.baselines import checkpoint
    from gpu_zoo.baselines.distributed import WorkerLost

    places: dict[str, Any]
    if resume is not None:
        with user_errors():
            saved = checkpoint.load(resume)
            if saved["env_id"] != entry.id:
                raise ValueError(f"{resume}: trained in {saved['env_id']}, not in {entry.id}")
        algorithm, places = saved.get("algorithm", "ppo"), saved["config"]
    else:
        folder = Path("runs") / entry.name / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        config = replace(
            config,
            checkpoint=config.checkpoint or str(folder / "checkpoint.pt"),
            log_dir=config.log_dir or str(folder),
        )
        places = vars(config)
        if algorithm == "ddpg":
            from gpu_zoo.baselines.deterministic import make_actors

            with user_errors("--algorithm ddpg: "):  # whether its actions are continuous
                make_actors(entry.id, values, config.hidden, config.seed)
    with user_errors("--"):
        resolve_device(places["device"])
    first = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun started
    if first:
        logs = f"logs: tensorboard --logdir {places['log_dir']}"
        print(f"checkpoint: {places['checkpoint']}\n{logs}")
    trainer: Any = importlib.import_module(f"gpu_zoo.baselines.{algorithm}")
    try:
        result = trainer.resume(resume) if resume else trainer.train(entry.id, config, values)
    except WorkerLost as error:
        again = f"gpu-zoo train {env_id} --resume {places['checkpoint']}"
        raise UserError(f"{error}, as in: torchrun ... {again}") from None
    if not first:
        return 0
    last = result.curve[-1]
    means = next((u.returns for u in reversed(result.curve) if u.returns), dict[str, float]())
    returns = ", ".join(f"{group} {value:.2f}" for group, value in means.items()) or "none yet"
    print(f"{last.env_steps:,} steps in {last.seconds:.0f} s, last mean return: {returns}")
    if entry.render is not None:
        where = shlex.quote(str(places["checkpoint"]))
        print(f"to see it: gpu-zoo play {shlex.quote(env_id)} --checkpoint {where}")
    return 0


def doctor() -> int:
    """Check this machine: versions, compiler, a real compile and step, CUDA."""
    from gpu_zoo.describe import console
    from gpu_zoo.doctor import cpu_works, examine

    out = console()
    marks = {"ok": "ok    ", "absent": "-     ", "broken": "BROKEN"}
    findings = []
    for finding in examine():
        findings.append(finding)
        out.print(f"{marks[finding.state]} {finding.what}: {finding.text}", soft_wrap=True)
        if finding.fix:
            verb = "try" if finding.state == "broken" else "to get it"
            out.print(f"       {verb}: {finding.fix}", soft_wrap=True)
    works = cpu_works(findings)
    out.print("\nEnvironments run on the CPU." if works else "\nNo environment can run here yet.")
    return 0 if works else 1


def source(
    env_id: EnvId,
    *,
    params: Params = [],  # noqa: B006
    numerics: Numerics = "fast",
    cuda: Flag = False,
) -> int:
    """Print the whole text that is compiled for an environment.

    Args:
        env_id: environment, such as simple_spread_v3, or a file or folder of your own.
        params: environment parameter.
        numerics: numbers of the state: fast is float32, reference is float64.
        cuda: name the CUDA compiler's options in the first line, not the host compiler's; the text
            is the same.
    """
    from gpu_zoo import compile as compiler
    from gpu_zoo import nvrtc
    from gpu_zoo.prelude import Program

    entry = find_spec(env_id)
    program = Program(entry, entry.resolve(parse_params(entry, params)), numerics)
    flags = nvrtc.FLAGS if cuda else compiler.HOST_FLAGS
    print(f"// {'nvrtc' if cuda else 'c++'} {shlex.join(flags)}")
    print(compiler.flatten(program))
    return 0
