"""The subcommands of ``gpu-zoo``, as functions from which tyro makes options and help texts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import tyro

from gpu_zoo.arguments import (
    EnvId,
    File,
    Flag,
    Params,
    Project,
    UserError,
    find_spec,
    parse_params,
    user_errors,
)
from gpu_zoo.author_commands import check, new
from gpu_zoo.baselines.algorithms import Algorithm, Config
from gpu_zoo.bench_command import bench
from gpu_zoo.compare_command import compare
from gpu_zoo.policy_commands import evaluate, export
from gpu_zoo.spec import EnvSpec, Numerics
from gpu_zoo.training import Order, go_on, option, setup_of, start


def run(argv: Sequence[str]) -> int:
    """Parse the arguments, run the subcommand and return its exit code."""
    commands: dict[str, Callable[..., int]] = {
        "list": list_, "info": info, "train": train_command(argv), "compare": compare,
        "evaluate": evaluate, "export": export, "play": play, "render": render, "bench": bench,
        "new": new, "check": check, "doctor": doctor, "source": source,
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
        checkpoint: what gpu-zoo train wrote, or its folder; without one, actions are random.
        record: write this file instead of opening a window: .gif, .png (animated too) or .mp4.
        episodes: how many.
        seed: of the first episode; the next one has the next seed.
        params: environment parameter; the others are as in training.
        deterministic: take the likeliest action instead of drawing one.
        reference: play in the original package's own environment.
    """
    from gpu_zoo import play as player

    entry = find_spec(env_id)
    _expect("episodes", episodes, 1)
    _expect("seed", seed, 0)
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
        checkpoint: what gpu-zoo train wrote, or its folder; without one, actions are random.
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
    _expect("seed", seed, 0)
    _expect("steps", steps, 0)
    env, policy = _open(entry, params, checkpoint, seed, deterministic)
    for _ in islice(player.episode(env, policy, seed), steps + 1):
        pass
    player.save_picture(out, env.render())
    print(f"wrote {out}")
    return 0


def _expect(option: str, value: int, least: int) -> None:
    if not least <= value < 2**31:
        raise UserError(f"--{option} {value}: expected an int of at least {least}, below 2**31")


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
    defaults those of the file named there, and else those tuned for the environment.
    """
    called = argv[0] == "train" and len(argv) > 1 and not argv[1].startswith("-")
    named = argv[1] if called else None
    with user_errors():
        setup = setup_of(named, option(argv, "--config"), option(argv, "--algorithm"))

    def train(
        env_id: EnvId,
        *,
        algorithm: Algorithm = setup.algorithm,
        params: Params = [],  # noqa: B006
        config: File = None,
        run_dir: File = None,
        seeds: int = 1,
        jobs: int | None = None,
        wandb: Project = None,
        resume: File = None,
        profile: Flag = False,
        hyper: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = setup.config,
    ) -> int:
        """Train a policy for each group of agents.

        Defaults are those tuned for the environment, if any are. The run's configuration,
        checkpoint, progress.csv and TensorBoard logs go to a folder of its own.

        Args:
            env_id: environment, such as simple_spread_v3, or a file of your own; comes first.
            algorithm: the options below follow it; ddpg, pql and sac are for continuous actions.
            params: environment parameter.
            config: YAML file of hyper-parameters, such as the config.yaml of another run; options
                named here win over it.
            run_dir: the run's folder; a new one else, runs/<environment>/<time>.
            seeds: train so many times, with --seed and the seeds after it, in processes.
            jobs: how many of them at once; as many as there are cores, if not given.
            wandb: also log to this project of Weights & Biases.
            resume: go on from this checkpoint or run folder, with its own algorithm and options.
            profile: say when the run is over where its time went; not of pql.
            hyper: hyper-parameters.
        """
        if env_id != named or setup.entry is None:
            raise UserError(f"train: name the environment first: gpu-zoo train {env_id} ...")
        values = {**setup.env_params, **parse_params(setup.entry, params)}
        order = Order(env_id, setup.entry, algorithm, values, hyper, run_dir, wandb, profile)
        if resume is not None:
            refused: dict[str, Any] = {
                "--config": config, "--run-dir": run_dir, "--param": params, "--jobs": jobs,
                "--algorithm": option(argv, "--algorithm"), "--seeds": seeds != 1,
                "other hyper-parameters": hyper != setup.config,
            }  # fmt: skip
            for what, given in refused.items():
                if given:
                    raise UserError(f"--resume: not with {what}, a run goes on with its own")
            return go_on(order, resume)
        return start(order, seeds, jobs)

    return train


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
