"""As a newcomer would: gpu-zoo new, gpu-zoo check, and the other commands on what they find."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from authoring.edits import edit

import gpu_zoo
from gpu_zoo.authoring import load, load_rules
from gpu_zoo.cli import main
from gpu_zoo.scaffold import TEMPLATES
from gpu_zoo.testing import CHECKS, CheckFailed, check_env

pytest.importorskip("tyro")
QUICK = ("--only", "determinism", "--only", "reference")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Any:
    def call(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


# gpu-zoo new ---------------------------------------------------------------------------------


def test_new_writes_an_environment_under_its_own_name(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("new", "hunt", "--family", "forest")
    assert (code, err) == (0, "")
    files = {"hunt_v0.py", "hunt_v0.cu", "hunt_rules.py", "test_hunt.py", "hunt.md"}
    assert {path.name for path in Path("hunt").iterdir()} == files
    assert all(f"wrote hunt/{name}" in out for name in files)
    assert out.endswith("next: gpu-zoo check hunt\n")
    for path in Path("hunt").iterdir():
        assert "my_env" not in path.read_text() and "mine/" not in path.read_text()
    spec = load("hunt/hunt_v0.py")
    assert spec.id == "forest/hunt_v0"
    assert spec.kernel_path == tmp_path / "hunt" / "hunt_v0.cu"
    code, out, _ = run("check", "hunt", *QUICK)
    assert code == 0
    assert [line.split()[-1] for line in out.splitlines()] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["my_env"], "my_env: is there already; nothing was written"),
        (["3x"], "name='3x': expected a Python identifier"),
        (["a-b"], "name='a-b': expected a Python identifier"),
        (["class"], "name='class': expected a Python identifier"),
        (["../x"], "name='../x': expected a Python identifier"),
        (["x", "--family", "a/b"], "family='a/b': expected a Python identifier"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_new_refuses(run: Any, folder: Path, argv: list[str], says: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.parent.rglob("*")}
    code, out, err = run("new", *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert {path: path.stat().st_mtime_ns for path in folder.parent.rglob("*")} == before


def test_new_does_not_take_a_name_that_is_in_use(
    run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load("my_env/my_env_v0.py")
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    code, _, err = run("new", "my_env")
    assert (code, err.count("\n")) == (2, 1)
    assert "mine/my_env_v0 is an environment already" in err


def test_templates_are_in_the_package_data() -> None:
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert '"templates/*.*"' in text
    assert all("." in path.name for path in TEMPLATES.iterdir() if path.is_file())


# gpu-zoo check -------------------------------------------------------------------------------


def test_what_new_wrote_passes_all_checks(run: Any, folder: Path) -> None:
    code, out, err = run("check", "my_env")
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert list(lines) == list(CHECKS)
    for name, line in lines.items():
        # Sanitizers and NVRTC are not everywhere; the rest is.
        assert line.endswith(" ok") or (name in ("races", "bounds", "nvrtc") and "skipped" in line)


@pytest.mark.slow
def test_what_new_wrote_passes_its_own_tests(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "my_env"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_test_worked_out_by_hand_tests(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "my_env"]
    for code, old, new in ((0, "", ""), (1, "-real(distance)", "real(distance)")):
        if old:
            edit(folder / "my_env_v0.cu", old, new)
        done = subprocess.run(
            [*command, "-k", "by_hand"], capture_output=True, text=True, cwd=folder.parent
        )
        assert done.returncode == code, done.stdout


def test_check_of_a_broken_environment_exits_with_1(run: Any, folder: Path) -> None:
    edit(folder / "my_env_v0.cu", "distance == 0;", "distance <= 1;")
    code, out, err = run("check", "my_env", *QUICK)
    assert (code, err) == (1, "")
    determinism, reference = out.splitlines()
    assert determinism.endswith("ok")
    assert "failed: check_reference: mine/my_env_v0()" in reference


def test_check_takes_parameters_and_rules(run: Any, folder: Path) -> None:
    (folder / "my_env_rules.py").rename(folder / "others.py")
    code, out, _ = run("check", "my_env", *QUICK)
    assert code == 0
    assert "reference" in out and "skipped: no rules" in out
    code, out, _ = run("check", "my_env", *QUICK, "--rules", "my_env/others.py", "--param", "N=2")
    assert code == 0
    assert "skipped" not in out
    edit(folder / "others.py", "reward = -distance", "reward = distance")
    code, out, _ = run("check", "my_env", *QUICK, "--rules", "my_env/others.py:Rules",
                       "--param", "N=2")  # fmt: skip
    assert code == 1
    assert "check_reference: mine/my_env_v0(N=2)" in out


def test_check_of_rules_without_chance(run: Any, folder: Path) -> None:
    kernel = folder / "my_env_v0.cu"
    edit(kernel, "target = rng_integers(e.rng, e.p.length)", "target = 1")
    edit(kernel, "e.s.pos[i] = rng_integers(e.rng, e.p.length)", "e.s.pos[i] = 0")
    code, out, _ = run("check", "my_env", *QUICK)
    assert code == 1
    assert "another seed" in out
    code, out, _ = run("check", "my_env", *QUICK, "--without-chance")
    assert code == 0


def test_check_of_a_kernel_that_does_not_compile(run: Any, folder: Path) -> None:
    line = edit(folder / "my_env_v0.cu", "const int move = action", "const int move = acton")
    code, out, err = run("check", "my_env")
    assert (code, out) == (1, "")
    assert err.startswith(f"my_env/my_env_v0.cu:{line}: error: ")
    assert "acton" in err.splitlines()[0]


def test_check_of_an_environment_of_ours(run: Any) -> None:
    code, out, _ = run("check", "simple_v3", "--only", "determinism")
    assert code == 0
    assert re.fullmatch(r"determinism +[\d.]+ s  ok\n", out)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["check", "my_env", "--only", "all"], "--only all: expected one of contract, determinism"),
        (["check", "my_env", "--param", "N=0"], "N=0: expected int of at least 1"),
        (["check", "my_env", "--rules", "no.py"], "no.py: no such file"),
        (["check", "my_env", "--rules", "my_env/my_env_rules.py:X"], "no class X"),
        (["check", "my_envs"], "no environment 'my_envs'"),
        (["check", "no.py"], "no.py: no such file"),
        (["info", "no.py"], "no.py: no such file"),
        (["train", "no.py"], "no.py: no such file"),
        (["source", "my_env/my_env_rules.py"], "no SPEC, expected SPEC = EnvSpec(...)"),
        (["play", "my_env", "--record", "x.gif"], "mine/my_env_v0 cannot be drawn"),
        (["render", "my_env", "--out", "x.png"], "mine/my_env_v0 cannot be drawn"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(run: Any, folder: Path, argv: list[str], says: str) -> None:
    code, out, err = run(*argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("gpu-zoo: ")
    assert says in err


# The other commands --------------------------------------------------------------------------


def test_info_source_and_bench(run: Any, folder: Path) -> None:
    code, out, _ = run("info", "my_env", "--param", "N=5")
    assert code == 0
    assert "mine/my_env_v0" in out and "Group walker: 5 agents" in out
    code, out, _ = run("source", "my_env/my_env_v0.py")
    assert code == 0
    assert "e.s.target - e.s.pos[i]" in out
    code, out, _ = run("bench", "my_env", "--num-envs", "3", "--seconds", "0.01", "--device", "cpu")
    assert code == 0
    assert "mine/my_env_v0" in out


def test_train(run: Any, folder: Path) -> None:
    pytest.importorskip("torch")
    code, out, err = run(
        "train", "my_env/my_env_v0.py", "--total-steps", "20000", "--no-progress", "--device", "cpu"
    )
    assert (code, err) == (0, "")
    assert "last mean return: walker -" in out
    assert "gpu-zoo play" not in out  # there is nothing to see
    (checkpoint,) = Path("runs/my_env_v0").glob("*/checkpoint.pt")
    code, out, _ = run("train", "my_env", "--resume", str(checkpoint))
    assert code == 0


# In a test of one's own ----------------------------------------------------------------------


def test_check_env_raises_what_the_first_failed_check_found(folder: Path) -> None:
    edit(folder / "my_env_rules.py", "reward = -distance", "reward = distance")
    rules = load_rules("my_env/my_env_rules.py")
    with pytest.raises(CheckFailed, match="check_reference"):
        check_env(load("my_env/my_env_v0.py"), only=["determinism", "reference"], rules=rules)
    assert "mine/my_env_v0" in gpu_zoo.list_ids()
