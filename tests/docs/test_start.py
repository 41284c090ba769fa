"""The first pages: what is installed, what the doctor says, drawings, commands as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gpu_zoo import doctor
from gpu_zoo.authoring import load
from gpu_zoo.cli import main
from gpu_zoo.testing import check_env

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INSTALL = (DOCS / "install.md").read_text()
DRAWN = [*sorted((DOCS / "assets" / "diagrams").glob("*.svg")), DOCS / "assets" / "speed.svg"]
COMMANDS = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
TINY = ["--total-steps", "640", "--num-envs", "16", "--horizon", "20", "--minibatches", "2"]


def test_the_chart_shows_what_was_measured() -> None:
    script = DOCS / "_scripts" / "speed_chart.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_drawings_are_described_and_used(path: Path) -> None:
    text = path.read_text()
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    assert len(root.get("aria-label", "")) > 60
    assert "\n\n" not in text  # an empty line would end the HTML block that a page puts it in
    # Text has the page's colour, whether that is dark or light.
    used = f'--8<-- "{path.relative_to(DOCS)}"'
    assert any(used in page.read_text() for page in DOCS.glob("*.md"))
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        assert element.get("fill", "currentColor") == "currentColor"


def test_install_has_each_line_of_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_step", lambda on: doctor.Finding(f"step on {on}", "ok", ""))
    shown = re.search(r"^```text\n(ok .*?)^```", INSTALL, re.DOTALL | re.MULTILINE)
    assert shown is not None
    for finding in doctor.examine():
        assert re.search(rf"^(ok    |-     ) {finding.what}: ", shown[1], re.MULTILINE), finding


def test_install_has_each_extra() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    extras = project.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    table = INSTALL[INSTALL.index("## Extras") : INSTALL.index("## Compilers")]
    named = set(re.findall(r"`([\w-]+)`", table))
    assert set(re.findall(r"^([\w-]+) = \[", extras, re.MULTILINE)) <= named


def test_the_quickstart_s_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "".join(COMMANDS.findall((DOCS / "quickstart.md").read_text())).splitlines()
    ours = [shlex.split(line)[1:] for line in lines if line.startswith("gpu-zoo ")]
    assert [words[0] for words in ours] == ["doctor", "train", "evaluate", "play"]
    for words in ours[1:]:  # the doctor has tests of its own
        assert main(words + TINY * (words[0] == "train")) == 0, capsys.readouterr().err
    assert (tmp_path / "spread.gif").stat().st_size > 1000


@pytest.mark.usefixtures("own_registry")
def test_the_game_of_hands_keeps_its_promises() -> None:
    spec = load(DOCS / "tutorials" / "hands" / "hands_v0.py")
    only = ("contract", "pettingzoo")
    report = check_env(spec, {}, only, {"contract": {"steps": 200}})
    assert {name for name, found in report.items() if found == "ok"} == set(only)
