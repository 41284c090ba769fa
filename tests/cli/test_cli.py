"""The command line: right values, files and exit codes, and one line for every user's mistake."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from json import loads
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_zoo
from gpu_zoo import compile as compiler
from gpu_zoo import registry
from gpu_zoo.cli import main

pytest.importorskip("tyro")
SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"
PLANE = "warpdrive/tag_continuous_v0"
CATALYST = "warpdrive/catalyst_search_v0"
COMMANDS = (
    "list", "info", "train", "compare", "evaluate", "export", "play", "render", "bench", "new",
    "check", "doctor", "source",
)  # fmt: skip
SIZES: list[tuple[str, dict[str, Any]]] = [
    (SPREAD, {}),
    (SPREAD, {"N": 5}),
    (SPREAD, {"N": 6, "num_agent_neighbors": 2, "num_landmark_neighbors": 3}),
    (TAG, {}),
    (TAG, {"num_good": 2, "num_adversaries": 4, "num_obstacles": 0}),
    (TAG, {"num_good": 2, "num_agent_neighbors": 3, "continuous_actions": True}),
]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process: exit code, stdout, stderr."""

    def call(*argv: str) -> tuple[int, str, str]:
        try:
            code = main(argv)
        except SystemExit as error:
            code = int(error.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def _flags(params: dict[str, Any]) -> list[str]:
    return [flag for name, value in params.items() for flag in ("--param", f"{name}={value}")]


def _process(code: str, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    import os

    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


def _frames(path: Path) -> list[np.ndarray[Any, Any]]:
    """A recording's frames; the pillow writer folds equal neighbours into one longer frame."""
    image = pytest.importorskip("PIL.Image").open(path)
    frames = []
    for index in range(image.n_frames):
        image.seek(index)
        frames += [np.asarray(image.convert("RGB"))] * round(image.info["duration"] / 100)
    return frames


# What is shown -------------------------------------------------------------------------------


def test_help_names_all_commands(run: Any) -> None:
    for argv in ((), ("--help",)):
        code, out, _ = run(*argv)
        assert code == 0
        for command in COMMANDS:
            assert f" {command} " in out
    assert set(COMMANDS) == set(re.search(r"\{(.*)\}", out)[1].split(","))  # type: ignore[index]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Any, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    lines = [line.strip(" │|") for line in out.splitlines()]
    options: list[str] = []
    for line in lines[lines.index("") :]:
        if re.match(r"--?[a-z]", line):
            options.append(line)
        elif options:
            options[-1] += f" {line}"
    assert options
    for option in options:
        # Beside its name and its default, a few words of what it means.
        meaning = re.sub(r"--?\S+( [A-Z{]\S*)?|\(default.*|[─╰╯+-]{2,}", "", option)
        assert len(re.findall(r"[a-z]{2,}", meaning)) >= 2, option


def test_list_has_a_row_for_every_environment(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")  # so wide that nothing is folded
    code, out, _ = run("list")
    assert code == 0
    for env_id in gpu_zoo.list_ids():
        row = next(line for line in out.splitlines() if env_id in line)
        env = gpu_zoo.make(env_id)
        sizes = dict.fromkeys(str(env.observation_space(a).shape[0]) for a in env.possible_agents)
        assert f" {' / '.join(sizes)} " in row
        names = "|".join(group.name for group in gpu_zoo.spec(env_id).groups)
        counts = [int(n) for n in re.findall(rf"(\d+) (?:{names})", row)]
        assert sum(counts) == len(env.possible_agents)
        assert gpu_zoo.spec(env_id).reference in row


@pytest.mark.parametrize(("env_id", "params"), SIZES, ids=str)
def test_info_observation_table_fills_the_originals_observation(
    run: Any, env_id: str, params: dict[str, Any]
) -> None:
    original = pytest.importorskip(f"mpe2.{env_id.rsplit('/', 1)[-1]}").parallel_env(**params)
    code, out, _ = run("info", env_id, *_flags(params))
    assert code == 0
    agents_shown = 0
    for group in gpu_zoo.spec(env_id).groups:
        first = f"{group.name}_0"
        size = original.observation_space(first).shape[0]
        count = sum(agent.rpartition("_")[0] == group.name for agent in original.possible_agents)
        assert re.search(rf"Group {group.name}: {count} agents, {first}", out)
        assert f"Observation of {group.name}, float32 ({size},)" in out
        table = out.split(f"Observation of {group.name}, ")[1].split("\n\n")[0]
        ranges = [(int(a), int(b)) for a, b in re.findall(r"\[(\d+):(\d+)\]", table)]
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == size
        space = original.action_space(first)
        shown = out.split(f"Actions of {group.name}, ")[1].split("\n\n")[0]
        assert shown.startswith("Discrete(" if hasattr(space, "n") else "Box(0, 1, (5,)")
        assert [int(i) for i in re.findall(r"^ (\d+) ", shown, re.M)] == list(range(5))
        agents_shown += count
    assert agents_shown == len(original.possible_agents)


@pytest.mark.parametrize("numerics", ["fast", "reference"])
def test_info_state_is_what_get_state_returns(run: Any, numerics: str) -> None:
    _, out, _ = run("info", TAG, "--numerics", numerics)
    env = gpu_zoo.make_vec(TAG, num_envs=2, numerics=numerics)
    env.reset(seed=0)
    state = {name: env.get_state()[name][0] for name in env.spec.state}
    table = out.split(f"State in {numerics} numerics: ")[1]
    for name, value in state.items():
        row = re.search(rf"^ {name} +(\w+) +(\(.*?\)) +(\d+) ", table, re.M)
        assert row is not None
        assert row.groups() == (value.dtype.name, str(value.shape), str(value.nbytes))
    total = int(table.split()[0])
    used = sum(value.nbytes for value in state.values())
    # Rounded up to the widest entry; a field without entries takes the room of one.
    empty = sum(
        value.dtype.itemsize * np.prod(np.maximum(value.shape, 1))
        for value in state.values()
        if value.size == 0
    )
    assert used <= total < used + empty + 8


def test_info_shows_all_that_the_spec_says(run: Any) -> None:
    spec = gpu_zoo.spec(SPREAD)
    _, out, _ = run("info", "simple_spread_v3", "--param", "N=4", "--param", "benchmark_data=true")
    words = " ".join(out.split())
    for text in (spec.summary, spec.reward, spec.ends, spec.reference, *spec.history):
        assert text in words
    assert str(spec.kernel_path) in words
    assert re.search(r"^ N +4 +3 +int of at least 1 +compiled in ", out, re.M)
    assert re.search(r"^ local_ratio +0.5 +0.5 +float from 0 to 1 +set_param ", out, re.M)
    assert "Info of agent (4,)" in out
    for name in spec.params:
        assert re.search(rf"^ {name} ", out, re.M)


def test_texts_and_numbers_are_parameters(run: Any) -> None:
    _, out, _ = run("info", CATALYST, "--param", "final_state=(1,2,5)", "--param", "energy=a.npy")
    assert re.search(r"^ final_state +\(1.0, 2.0, 5.0\) ", out, re.M)
    assert re.search(r"^ energy +'a.npy' ", out, re.M)


def test_source_is_what_is_compiled(run: Any) -> None:
    texts = {}
    for flags in ((), ("--cuda",), ("--param", "N=7"), ("--numerics", "reference")):
        code, out, _ = run("source", SPREAD, *flags)
        assert code == 0
        texts[flags] = out.split("\n", 1)
    plain = texts[()]
    assert plain[0].startswith("// c++ ") and "-ffp-contract=off" in plain[0]
    cuda = texts[("--cuda",)]
    assert cuda[0].startswith("// nvrtc ") and "--fmad=false" in cuda[0]
    assert cuda[1] == plain[1]
    assert "constexpr int N = 3;" in plain[1]
    assert "constexpr int N = 7;" in texts[("--param", "N=7")][1]
    assert "#define ZOO_REFERENCE 0" in plain[1]
    assert "#define ZOO_REFERENCE 1" in texts[("--numerics", "reference")][1]
    # And the text is complete: a compiler needs nothing else.
    assert compiler.build_host(plain[1], "printed").is_file()


# Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["info", "simple_spred_v3"], "did you mean mpe/simple_spread_v3"),
        (["source", "nothing"], "'nothing'"),
        (["train", "nothing"], "'nothing'"),
        (["bench", "nothing"], "'nothing'"),
        (["info", SPREAD, "--param", "n_agents=5"], "'n_agents'"),
        (["train", SPREAD, "--param", "n_agents=5"], "'n_agents'"),
        (["train", SPREAD, "--gamma", "2"], "gamma=2.0: expected a number from 0 to 1"),
        (["train", SPREAD, "--device", "gpu"], "device='gpu'"),
        (["train", "--seed", "3", SPREAD], "name the environment first"),
        (["train", SPREAD, "--resume", "none.pt"], "none.pt: no such file"),
        (["train", SPREAD, "--algorithm", "ddpg"], "expected continuous actions"),
        (["train", SPREAD, "--algorithm", "pql"], "expected continuous actions"),
        (["train", SPREAD, "--algorithm", "sac"], "expected continuous actions"),
        (
            ["train", "pendulum_v1", "--algorithm", "pql", "--value-device", "gpu"],
            "--value_device='gpu': expected 'cpu'",
        ),
        (["train", TAG, "--frozen", "agent", "none.pt"], "none.pt: no such file"),
        (["train", TAG, "--num-envs", "2147483648"], "num_envs=2147483648: expected at most 2**30"),
        (["train", TAG, "--threads", "100000"], "threads=100000: expected at most 1024"),
        (
            ["train", "pendulum_v1", "--algorithm", "ddpg", "--capacity", "1"],
            "capacity=1: expected at least num_envs * agents = 32",
        ),
        (
            ["train", "catalyst_search_v0", "--param", "energy=nofile.npy"],
            "energy='nofile.npy': expected a .npy file",
        ),
        (["compare"], "compare: expected run folders"),
        (["play", TAG, "--record", "a.gif", "--episodes", "0"], "--episodes 0: expected an int of"),
        (["play", TAG, "--record", "a.gif", "--seed", "-1"], "--seed -1: expected an int of at"),
        (["render", TAG, "--out", "a.png", "--steps", "-1"], "--steps -1: expected an int of at"),
        (
            ["train", TAG, "--eval-interval", "5", "--eval-opponents", "agent", "none.pt"],
            "none.pt: no such file",
        ),
        (
            ["train", TAG, "--eval-opponents", "agent", "random"],
            "eval_interval=0: expected at least 1, for the eval_opponents",
        ),
        (["train", TAG, "--frozen", "runner", "random"], "frozen: 'runner' is no group, expected"),
        (["train", SPREAD, "--pool", "3"], "pool=3: expected 0, as only agent learns"),
        (["train", SPREAD, "--algorithm", "a2c", "--gamma", "2"], "gamma=2.0: expected a number"),
        (["info", SPREAD, "--param", "N=many"], "N='many': expected int of at least 1"),
        (["info", SPREAD, "--param", "N=0"], "N=0: expected int of at least 1"),
        (["info", SPREAD, "--param", "N=2.5"], "N='2.5': expected int"),
        (["info", SPREAD, "--param", "N"], "--param N: expected NAME=VALUE"),
        (["info", CATALYST, "--param", "final_state=a,b"], "final_state='a,b': expected numbers"),
        (["info", CATALYST, "--param", "final_state=1,2"], "final_state: 2 numbers, expected 3"),
        (["info", SPREAD, "--param", "curriculum=maybe"], "curriculum='maybe': expected bool"),
        (["info", SPREAD, "--param", "curriculum_stage=1"], "curriculum_stage=1"),
        (["source", SPREAD, "--param", "local_ratio=2"], "local_ratio=2.0: expected float"),
        (["play", SPREAD, "--record", "x.avi"], "x.avi: expected a name that ends in .gif"),
        (["play", SPREAD, "--record", "x.gif", "--param", "render_mode=human"], "render_mode"),
        (["play", SPREAD, "--record", "x.gif", "--checkpoint", "none.pt"], "none.pt: no such file"),
        (["evaluate", "none.pt"], "none.pt: no such file"),
        (["export", "none.pt", "--to", "new"], "none.pt: no such file"),
        (["export", "none.pt", "--to", "/dev/null"], "--to /dev/null: expected a folder"),
        (["evaluate", "none.pt", "--device", "gpu"], "device='gpu'"),
        (["play", PLANE, "--record", "x.gif", "--reference"], f"{PLANE} has no original"),
        (["render", SPREAD, "--out", "x.txt"], "x.txt"),
        (["render", SPREAD, "--out", "/dev/null/x.png"], "/dev/null"),
        (["bench", SPREAD, "--device", "gpu"], "device='gpu'"),
        (["bench", SPREAD, "--num-envs", "0"], "--num-envs 0"),
        (["bench"], "an environment or --family"),
        (["bench", SPREAD, "--family", "mpe"], "an environment or --family"),
        (["bench", "--family", "mep"], "--family mep: expected one of classic, mpe, warpdrive"),
        (["bench", SPREAD, "--device", "cuda:999"], "cuda:999"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(
    run: Any, argv: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*argv)
    assert code == 2
    assert out == ""
    assert err.startswith("gpu-zoo: ")
    assert err.count("\n") == 1
    assert says in err
    assert not list(tmp_path.iterdir())


def test_params_are_parsed_to_the_specs_types() -> None:
    from gpu_zoo.arguments import parse_params

    spec = gpu_zoo.spec(SPREAD)
    texts = {
        "N=5": 5,
        "local_ratio=1": 1.0,
        "num_agent_neighbors=2": 2,
        "num_landmark_neighbors=None": None,
        "render_mode=rgb_array": "rgb_array",
        "curriculum=True": True,
        "curriculum_stage=1": 1,
        "benchmark_data=false": False,
        "continuous_actions=no": False,
        "terminate_on_success=1": True,
    }
    got = parse_params(spec, list(texts))
    wanted = {text.partition("=")[0]: value for text, value in texts.items()}
    assert got == wanted
    assert {name: type(value) for name, value in got.items()} == {
        name: type(value) for name, value in wanted.items()
    }
    assert parse_params(spec, []) == {}


@pytest.mark.parametrize("argv", [["nonsense"], ["info"], ["info", SPREAD, "--nonsense"]])
def test_a_wrong_option_exits_with_2(run: Any, argv: list[str]) -> None:
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert "Traceback" not in err and "gpu-zoo" in err


@pytest.mark.parametrize(
    ("module", "argv", "says"),
    [
        ("tyro", ["list"], "pip install 'gpu-zoo[train]'"),
        ("rich", ["list"], "pip install 'gpu-zoo[train]'"),
        ("imageio", ["play", SPREAD, "--record", "x.gif"], "pip install 'gpu-zoo[render]'"),
        ("imageio_ffmpeg", ["play", SPREAD, "--record", "x.mp4"], "pip install imageio-ffmpeg"),
        ("torch", ["train", SPREAD], "pip install 'gpu-zoo[train]'"),
        ("torch", ["evaluate", "x.pt"], "pip install 'gpu-zoo[train]'"),
        ("torch", ["export", "x.pt", "--to", "x"], "pip install 'gpu-zoo[train]'"),
        ("onnx", ["export", "x.pt", "--to", "x"], "pip install 'gpu-zoo[onnx]'"),
        (
            "torch",
            ["play", SPREAD, "--record", "x.gif", "--checkpoint", "x.pt"],
            "pip install 'gpu-zoo[train]'",
        ),
    ],
)
def test_a_missing_package_is_one_line(
    run: Any, module: str, argv: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == module else real(name, *rest),
    )
    code, out, err = run(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_without_the_original_package_reference_is_one_line(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mpe2", None)
    monkeypatch.delitem(sys.modules, "mpe2.simple_spread_v3", raising=False)
    code, out, err = run("play", SPREAD, "--record", "x.gif", "--reference")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pip install 'mpe2==1.1.1'" in err


def test_defects_of_ours_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr("gpu_zoo.describe.show_list", broken)
    with pytest.raises(ValueError, match="a defect"):
        main(["list"])


# Playing and drawing -------------------------------------------------------------------------


def test_play_records_the_episodes(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.gif"
    argv = ("play", TAG, "--record", str(path), "--episodes", "2", "--param", "max_cycles=7")
    code, out, _ = run(*argv)
    assert code == 0
    frames = _frames(path)
    assert len(frames) == 2 * (7 + 1)
    assert {frame.shape for frame in frames} == {(350, 350, 3)}
    assert "16 frames" in out
    assert re.findall(r"seed (\d): 7 steps, mean return: adversary \S+, agent", out) == ["0", "1"]
    # The second episode begins with the picture that its seed gives.
    env = gpu_zoo.make(TAG, render_mode="rgb_array")
    env.reset(seed=1)
    wanted = env.render()[::2, ::2].astype(int)
    assert np.abs(frames[8].astype(int) - wanted).mean() < 3
    assert np.abs(frames[0].astype(int) - wanted).mean() > 5


@pytest.mark.parametrize("params", [{}, {"continuous_actions": True}], ids=["discrete", "box"])
def test_play_is_the_same_in_the_original(run: Any, tmp_path: Path, params: dict[str, Any]) -> None:
    pytest.importorskip("mpe2")
    returns = []
    for name, flags in (("a", []), ("b", ["--reference"]), ("c", ["--seed", "5"])):
        argv = ["play", SPREAD, "--record", str(tmp_path / f"{name}.png"), *_flags(params), *flags]
        code, out, _ = run(*argv)
        assert code == 0
        returns.append(re.search(r"agent (\S+)", out)[1])  # type: ignore[index]
    a, b, c = (np.array(_frames(tmp_path / f"{name}.png")) for name in "abc")
    assert len(a) == 26
    np.testing.assert_array_equal(a, b)
    assert returns[0] == returns[1] != returns[2]
    assert a.shape == c.shape and (a != c).any()


def test_play_opens_a_window(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    flips = []
    flip = pygame.display.flip
    monkeypatch.setattr(pygame.display, "flip", lambda: (flips.append(1), flip()))
    code, out, _ = run("play", SPREAD, "--param", "max_cycles=4")
    assert code == 0
    assert len(flips) == 5
    assert "4 steps" in out
    assert not pygame.display.get_init()


def test_closing_the_window_ends_the_play(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    flips = []

    def flip() -> None:
        flips.append(1)
        if len(flips) == 3:
            pygame.event.post(pygame.event.Event(pygame.QUIT))

    monkeypatch.setattr(pygame.display, "flip", flip)
    code, _, _ = run("play", SPREAD)
    assert code == 0
    assert len(flips) == 3


def test_play_without_a_display_says_what_to_do(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "no_such_driver")
    code, out, err = run("play", SPREAD)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "record a file" in err


def test_render_writes_the_picture(run: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    env = gpu_zoo.make(SPREAD, render_mode="rgb_array", N=4)
    env.reset(seed=3)
    for index, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(3 + index)
    wanted = [env.render()]
    while env.agents:
        env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        wanted.append(env.render())
    for steps in (0, 9, 99):
        path = tmp_path / f"{steps}.png"
        argv = ("render", SPREAD, "--out", str(path), "--seed", "3", "--steps", str(steps))
        code, out, _ = run(*argv, "--param", "N=4")
        assert (code, out) == (0, f"wrote {path}\n")
        np.testing.assert_array_equal(np.asarray(image.open(path)), wanted[min(steps, 25)])
    assert all((frame != wanted[9]).any() for t, frame in enumerate(wanted) if t != 9)


# Training ------------------------------------------------------------------------------------

SHORT = ("--total-steps", "1024", "--num-envs", "16", "--horizon", "32", "--no-progress")


def test_what_train_wrote_can_be_played_and_resumed(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("train", TAG, *SHORT, "--hidden", "8", "--param", "num_good=2")
    assert code == 0
    folder = next(tmp_path.glob("runs/simple_tag_v3/*"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", folder.name)
    assert list(folder.glob("events.out.tfevents*"))
    checkpoint = str((folder / "checkpoint.pt").relative_to(tmp_path))
    assert f"checkpoint: {checkpoint}" in out
    assert f"tensorboard --logdir {folder.relative_to(tmp_path)}" in out
    assert "1,024 steps" in out
    # The command that it prints, with a recording instead of a window.
    command = re.search(r"to see it: gpu-zoo (.*)", out)[1].split()  # type: ignore[index]
    code, out, _ = run(*command, "--record", "a.png")
    assert code == 0
    # Parameters are those of the training.
    env = gpu_zoo.make(TAG, num_good=2, render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()[::2, ::2].astype(int)
    assert np.abs(_frames(tmp_path / "a.png")[0].astype(int) - first).mean() < 3
    # It is the policy that plays, the same way in the original.
    run(*command, "--record", "b.png", "--reference")
    run("play", TAG, "--param", "num_good=2", "--record", "c.png")
    a, b, c = (np.array(_frames(tmp_path / f"{name}.png")) for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    for argv, says in (
        (["play", SPREAD, "--record", "d.gif", "--checkpoint", checkpoint], f"trained in {TAG}"),
        (["train", SPREAD, "--resume", checkpoint], f"trained in {TAG}"),
        ([*command, "--record", "d.gif", "--param", "num_good=1"], "agents differ"),
    ):
        code, _, err = run(*argv)
        assert (code, err.count("\n")) == (2, 1)
        assert says in err
    code, out, _ = run("train", TAG, "--resume", checkpoint)
    assert code == 0
    assert "1,024 steps" in out


def test_train_says_where_the_time_went_if_asked(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for options in ((), ("--profile",), ("--profile", "--algorithm", "a2c")):
        code, out, _ = run("train", TAG, *options, *SHORT, "--hidden", "8")
        assert code == 0
        whole = re.search(r"^where (\d+\.\d\d) s went:$", out, re.MULTILINE)
        parts = re.findall(r"^  (\w.*?) +(\d+\.\d\d) s +(\d+\.\d)%$", out, re.MULTILINE)
        assert bool(whole) == bool(options) == (len(parts) == 6)
        if whole:
            assert sum(float(s) for _, s, _ in parts) == pytest.approx(float(whole[1]), abs=0.05)
            assert sum(float(share) for *_, share in parts) == pytest.approx(100, abs=0.5)
    code, _, err = run("train", "pendulum_v1", "--profile", "--algorithm", "pql")
    wanted = "gpu-zoo: --profile: not with pql, whose parts work at the same time\n"
    assert (code, err) == (2, wanted)
    code, _, err = run("train", TAG, "--profile", "--seeds", "2")
    assert code == 2 and err.startswith("gpu-zoo: --profile: not with --seeds")


def test_a_policy_of_agents_that_leave_can_be_played(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pygame = pytest.importorskip("pygame")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    params = {"num_taggers": 4, "grid_length": 3.0, "tagging_distance": 0.2, "episode_length": 30}
    code, out, _ = run("train", PLANE, *SHORT, "--hidden", "8", *_flags(params))
    assert code == 0
    command = re.search(r"to see it: gpu-zoo (.*)", out)[1].split()  # type: ignore[index]
    code, out, _ = run(*command, "--record", "a.gif")
    returns = r"seed 0: (\d+) steps, mean return: tagger (\S+), runner (\S+)\n"
    steps, tagger, runner = map(float, re.search(returns, out).groups())  # type: ignore[union-attr]
    # Each of ten runners loses 1 by leaving, for which one of four taggers gains 1; it earns 1 by
    # staying to the end.
    left = (1 - runner) * 10 / 2 if steps == 30 else 10
    assert code == 0 and left > 0 and tagger * 4 == pytest.approx(left, abs=0.1)
    frames = _frames(tmp_path / "a.gif")
    assert len(frames) == steps + 1 and (frames[0] != frames[-1]).any()
    # In a window, and one picture.
    code, out, _ = run(*command, "--param", "episode_length=3")
    assert (code, out.count("mean return: tagger")) == (0, 1)
    assert not pygame.display.get_init()
    code, out, _ = run("render", *command[1:], "--out", "a.png", "--steps", "9")
    assert (code, out) == (0, "wrote a.png\n")


def test_train_options_are_the_tuned_ones_until_changed(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from gpu_zoo.baselines import config_file, ppo

    (tmp_path / "ppo").mkdir()
    tuned = "learning_rate: 0.123\nhidden: [5, 6]\nnum_envs: 7\n"
    (tmp_path / "ppo" / "simple_spread_v3.yaml").write_text(tuned)
    monkeypatch.setattr(config_file, "CONFIGS", tmp_path)
    monkeypatch.chdir(tmp_path)
    calls: list[Any] = []

    def train(*args: Any, on_update: None) -> Any:
        calls.append(args)
        raise KeyboardInterrupt

    monkeypatch.setattr(ppo, "train", train)
    flags = ("--gamma", "0.9", "--no-anneal", "--checkpoint", "here.pt", "--param", "N=2")
    code, _, _ = run("train", "simple_spread_v3", *flags)
    assert code == 130
    ((env_id, config, params),) = calls
    assert (env_id, params) == (SPREAD, {"N": 2})
    assert (config.learning_rate, config.hidden, config.num_envs) == (0.123, (5, 6), 7)
    assert (config.gamma, config.anneal, config.checkpoint) == (0.9, False, "here.pt")
    assert config.log_dir.startswith("runs/simple_spread_v3/")


def test_a_run_that_is_interrupted_says_how_to_go_on(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_zoo.baselines import ppo

    def train(env_id: str, config: Any, *args: Any, **kwargs: Any) -> Any:
        Path(config.checkpoint).touch()
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ppo, "train", train)
    code, _, err = run("train", "simple_spread_v3", "--run-dir", "my run")
    again = "gpu-zoo train simple_spread_v3 --resume 'my run/checkpoint.pt'"
    assert (code, err) == (130, f"stopped; to go on: {again}\n")


def test_no_run_writes_over_anothers_checkpoint(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.pt").write_text("precious")
    code, _, err = run("train", "simple_spread_v3", *SHORT, "--checkpoint", "a.pt")
    assert (code, err.count("\n")) == (2, 1)
    assert "--checkpoint a.pt: expected a new file; to go on with it, --resume" in err
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.pt", "precious")]


@pytest.mark.parametrize("module", ["gpu_zoo", "gpu_zoo.cli"])
def test_it_is_a_module_too(module: str) -> None:
    command = [sys.executable, "-m", module, "info", "nope"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpu-zoo: no environment 'nope'")


@pytest.mark.parametrize("algorithm", [None, "ppo", "a2c", "ddpg", "pql", "sac"])
def test_train_has_a_flag_for_every_hyper_parameter(run: Any, algorithm: str | None) -> None:
    from gpu_zoo.baselines.algorithms import ALGORITHMS

    wanted = ALGORITHMS[algorithm or "ppo"].__dataclass_fields__
    named = [] if algorithm is None else [f"--algorithm={algorithm}"]
    _, out, _ = run("train", *named, "--help")
    for name in wanted:
        assert f"--{name.replace('_', '-')}" in out
    others = {name for config in ALGORITHMS.values() for name in config.__dataclass_fields__}
    for name in others - set(wanted):
        assert f"--{name.replace('_', '-')} " not in out


@pytest.mark.parametrize("algorithm", ["a2c", "ddpg", "pql", "sac"])
def test_other_algorithms_train_are_played_and_resumed(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    options = ("--algorithm", algorithm, "--param", "continuous_actions=true", "--hidden", "8")
    code, out, err = run("train", SPREAD, *SHORT, *options)
    assert (code, err) == (0, "")
    command = re.search(r"to see it: gpu-zoo (.*)", out)[1].split()  # type: ignore[index]
    code, out, _ = run(*command, "--record", "a.png")
    assert code == 0 and "mean return: agent" in out
    code, out, _ = run("train", SPREAD, "--resume", command[-1])
    assert code == 0
    assert "1,024 steps" in out


# Evaluating ----------------------------------------------------------------------------------


@pytest.fixture
def two_tag_policies(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """a.pt and b.pt in the current folder."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for name, seed in (("a.pt", "0"), ("b.pt", "1")):
        code, _, _ = run(
            "train", TAG, *SHORT, "--hidden", "8", "--seed", seed, "--checkpoint", name
        )
        assert code == 0


def test_a_policy_of_an_environment_not_known_here_says_how_to_name_it(
    run: Any, two_tag_policies: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(registry.ENVIRONMENTS, TAG)
    for argv in (("evaluate", "a.pt"), ("export", "a.pt", "--to", "there")):
        code, _, err = run(*argv)
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith(f"gpu-zoo: a.pt: no environment '{TAG}'")
        assert err.endswith("If it is one of your own, name its file: --env FILE\n")


def test_evaluate_prints_what_evaluate_returns(run: Any, two_tag_policies: None) -> None:
    from gpu_zoo.baselines.evaluation import evaluate
    from gpu_zoo.baselines.policies import load_policy

    options = ("--episodes", "40", "--seed", "7", "--param", "max_cycles=10", "--deterministic")
    against: list[dict[str, Any]]
    against = [{}, {"agent": "b.pt"}, {"adversary": "random", "agent": "b.pt"}]
    outputs = set()
    for opponents in against:
        named = [f"--opponent={group}={who}" for group, who in opponents.items()]
        code, out, _ = run("evaluate", "a.pt", *options, *named)
        assert code == 0 and out.startswith(f"{TAG}, 40 episodes: ")
        players = {g: w if w == "random" else load_policy(w) for g, w in opponents.items()}
        wanted = evaluate(
            load_policy("a.pt"), episodes=40, seed=7, env_params={"max_cycles": 10},
            deterministic=True, opponents=players,
        )  # fmt: skip
        for group, score in wanted.groups.items():
            row = rf"^{group} +{score.mean:.3f} ± {score.stderr:.3f}  "
            assert re.search(row + opponents.get(group, "a.pt") + "$", out, re.M)
        outputs.add(out)
    assert len(outputs) == 3


def test_bad_options_of_evaluate(run: Any, two_tag_policies: None) -> None:
    for argv, says in (
        (["--opponent", "agent"], "--opponent agent: expected GROUP=random or GROUP=CHECKPOINT"),
        (["--opponent", "agent=c.pt"], "c.pt: no such file"),
        (["--opponent", "runner=random"], "'runner' is no group, expected adversary or agent"),
        (["--opponent=agent=random", "--opponent=agent=b.pt"], "agent has an opponent already"),
        (["--episodes", "0"], "episodes=0: expected an int of at least 1"),
        (["--param", "N=3"], "no parameter 'N'"),
        (["--param", "num_good=2"], "made for adversary with 16 numbers"),
        (["--env", "simple_spread_v3"], f"a.pt: trained in {TAG}, not in {SPREAD}"),
    ):
        code, out, err = run("evaluate", "a.pt", *argv)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert says in err


def test_export_writes_what_export_does(run: Any, two_tag_policies: None, tmp_path: Path) -> None:
    from gpu_zoo.baselines.export import export
    from gpu_zoo.baselines.policies import load_policy

    code, out, err = run("export", "a.pt", "--to", "new/out", "--format", "torchscript")
    names = ("adversary.pt", "agent.pt", "policy.json")
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"wrote new/out/{name}" for name in names]
    export(load_policy("a.pt"), tmp_path / "wanted", "torchscript")
    wanted, found = (Path(folder) / "policy.json" for folder in ("wanted", "new/out"))
    assert wanted.read_text() == found.read_text()
    code, _, err = run("export", "a.pt", "--to", ".", "--format", "torchscript")
    assert (code, err.count("\n")) == (2, 1)
    assert "--to .: expected a new or empty folder" in err


def test_a_policy_of_one_s_own_environment_is_evaluated_and_exported(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run("new", "my_env")[0] == 0
    code, _, _ = run("train", "my_env", *SHORT, "--hidden", "8", "--checkpoint", "a.pt")
    assert code == 0
    code, out, _ = run("evaluate", "a.pt", "--env", "my_env", "--episodes", "5")
    assert code == 0 and out.startswith("mine/my_env_v0, 5 episodes: ")
    argv = ("export", "a.pt", "--env", "my_env", "--to", "out", "--format", "torchscript")
    assert run(*argv)[0] == 0
    assert loads(Path("out/policy.json").read_text())["env_id"] == "mine/my_env_v0"


# The rest ------------------------------------------------------------------------------------


def test_bench_is_handed_its_options(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("gpu_zoo.bench.bench", lambda *args, **kw: calls.append((args, kw)))
    json = tmp_path / "out.json"
    code, _, _ = run(
        "bench", "simple_tag_v3", "--peers", "--num-envs", "1", "64", "--seconds", "0.5",
        "--device", "cpu", "--json", str(json),
    )  # fmt: skip
    assert code == 0
    options = {"peers": True, "num_envs": (1, 64), "seconds": 0.5, "device": "cpu", "json": json}
    options |= {"params": {}, "rules": None}
    assert calls == [((TAG,), options)]


@pytest.mark.slow
def test_bench_of_a_family_prints_a_line_an_environment(run: Any, tmp_path: Path) -> None:
    json = tmp_path / "out.json"
    options = ("--num-envs", "1", "3", "--seconds", "0.01", "--device", "cpu")
    code, out, _ = run("bench", "--family", "mpe", *options, "--json", str(json))
    assert code == 0
    table = out[out.rindex("times the rate of peers") :]
    reports = loads(json.read_text())
    mpe = [env_id for env_id in gpu_zoo.list_ids() if env_id.startswith("mpe/")]
    assert [report["env_id"] for report in reports] == mpe
    for report in reports:
        assert re.search(rf"^ {report['env_id']} +[\d.]+[kM]? +[\d.]+[kM]? +- +- +-", table, re.M)
        batches = {row["num_envs"] for row in report["rows"] if row["who"] == "gpu_zoo"}
        assert batches == {1, 3}


RULES = str(Path(__file__).parents[1] / "oracle" / "warpdrive_rules" / "tag_continuous.py")
QUICK = ("--seconds", "0.01", "--device", "cpu", "--param", "episode_length=5")


def test_bench_beside_plain_python(run: Any, tmp_path: Path) -> None:
    """Whole episodes, of both, and the ratio of the two."""
    json = tmp_path / "out.json"
    options = ("--rules", RULES, "--num-envs", "1", "8", *QUICK, "--json", str(json))
    code, out, _ = run("bench", "tag_continuous_v0", *options)
    assert code == 0
    assert "plain Python" in out and "episode_length=5" in out
    rows = loads(json.read_text())["rows"]
    plain = rows[-1]
    assert (plain["who"], plain["num_envs"], plain["beside"]) == ("plain Python", 1, "gpu_zoo at 8")
    mine = next(row for row in rows if row["who"] == "gpu_zoo" and row["num_envs"] == 8)
    assert plain["quantum"] == mine["quantum"] == 5
    ratios = [a / b for a, b in zip(mine["rates"], plain["rates"], strict=True)]
    assert plain["ratios"] == pytest.approx(ratios)


def test_bench_sweeps_a_parameter(run: Any, tmp_path: Path) -> None:
    json = tmp_path / "out.json"
    options = ("--sweep", "num_runners=2,7", "--num-envs", "1", "3", *QUICK, "--json", str(json))
    code, out, _ = run("bench", "tag_continuous_v0", *options)
    assert code == 0
    assert re.search(r"^ num_runners=2 +3 ", out, re.M)
    assert re.search(r"^ num_runners=7 +8 ", out, re.M)
    reports = loads(json.read_text())
    assert [report["params"]["num_runners"] for report in reports] == [2, 7]
    assert [[row["num_envs"] for row in report["rows"]] for report in reports] == [[1, 3]] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sweep", "runners=1"), "no parameter 'runners'"),
        (("--sweep", "num_runners=1,x"), "num_runners='x': expected int of at least 1"),
        (("--sweep", "num_runners=1", "--peers"), "--sweep: not with --peers or --rules"),
        (("--rules", "nowhere.py"), "nowhere.py: no such file"),
        (("--param", "seed=-1"), "seed=-1: expected int of at least 0 or None"),
    ],
)
def test_bad_options_of_bench(run: Any, options: tuple[str, ...], message: str) -> None:
    code, _, err = run("bench", "tag_continuous_v0", *options)
    assert code == 2
    assert message in err and err.count("\n") == 1


def test_parameters_of_many_numbers_are_typed_with_commas(run: Any) -> None:
    where = ("--param", "starting_location_x=1,2.5", "--param", "starting_location_y=3,4")
    _, out, _ = run("info", "tag_continuous_v0", "--param", "num_runners=1", *where)
    assert "(1.0, 2.5)" in out
    code, _, err = run("info", "tag_continuous_v0", "--param", "starting_location_x=here")
    assert code == 2 and "starting_location_x='here': expected numbers or None" in err


DOCTOR = "import sys; from gpu_zoo.cli import main; sys.exit(main(['doctor']))"


def test_doctor_finds_a_machine_that_works() -> None:
    done = _process(DOCTOR)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line[7:].split(":")[0]: line for line in done.stdout.splitlines() if ":" in line}
    for name in ("python", "numpy", "gymnasium", "pettingzoo", "compiler", "threads", "cache"):
        assert lines[name].startswith("ok ")
    assert f"numpy: {np.__version__}" in done.stdout
    step = re.search(r"compiled in (\S+) s, 64 environments step in (\d+) µs", lines["step on cpu"])
    assert step is not None
    # It has really compiled: that takes a while even where the cache is full.
    assert float(step[1]) >= 0.2
    assert str(compiler.cache_dir()) in lines["cache"]


@pytest.mark.parametrize(
    ("env", "broken", "fix"),
    [
        ({"CXX": "/nonexistent"}, ["compiler", "step on cpu"], "unset CXX"),
        ({"CXX": "false"}, ["step on cpu"], ""),
        ({"GPU_ZOO_NUM_THREADS": "many"}, ["threads"], "unset GPU_ZOO_NUM_THREADS"),
        ({"GPU_ZOO_CACHE_DIR": "/dev/null/x"}, ["cache"], "GPU_ZOO_CACHE_DIR="),
    ],
    ids=lambda value: str(value),
)
def test_doctor_finds_what_is_broken(env: dict[str, str], broken: list[str], fix: str) -> None:
    done = _process(DOCTOR, **env)
    assert done.returncode == 1, done.stdout + done.stderr
    marked = re.findall(r"^BROKEN (.*?): ", done.stdout, re.M)
    assert set(broken) <= set(marked)
    assert fix in done.stdout
    assert done.stderr == ""


def test_a_crash_of_the_probe_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_zoo import doctor

    class Dead:
        returncode, stdout, stderr = -4, "", ""

    monkeypatch.setattr(doctor.subprocess, "run", lambda *args, **kw: Dead)
    finding = doctor._step("cpu")
    assert finding.state == "broken"
    assert "signal 4" in finding.text


@pytest.mark.parametrize(("driver", "extra"), [("12.8, GPU", "cuda12"), ("13.1, GPU", "cuda13")])
def test_doctor_names_the_packages_for_the_driver(
    monkeypatch: pytest.MonkeyPatch, driver: str, extra: str
) -> None:
    from gpu_zoo import doctor

    monkeypatch.setattr(doctor, "_driver", lambda: doctor.Finding("cuda driver", "ok", driver))
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    monkeypatch.setattr(doctor, "why_no_cuda", lambda: "CuPy is not installed")
    findings = {finding.what: finding for finding in doctor._cuda()}
    for what in ("cupy", "step on cuda"):
        assert findings[what].state != "ok"
        assert findings[what].fix == f"pip install 'gpu-zoo[{extra}]'"


def test_looking_things_up_loads_nothing_heavy() -> None:
    code = (
        "import sys; from gpu_zoo.cli import main\n"
        "light = {'tyro', 'rich'} & set(sys.modules)\n"
        "main(['list']); main(['info', 'simple_tag_v3'])\n"
        "heavy = {'torch', 'pygame', 'imageio', 'cupy', 'mpe2'} & set(sys.modules)\n"
        "print(light, heavy)\n"
    )
    done = _process(code)
    assert done.stdout.splitlines()[-1] == "set() set()", done.stdout + done.stderr


def test_a_reader_that_stops_reading_is_no_error() -> None:
    code = "import sys; from gpu_zoo.cli import main; sys.exit(main(['source', 'simple_tag_v3']))"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
