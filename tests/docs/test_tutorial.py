"""The tutorial's environment keeps all promises, and its page shows all of its code."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpu_zoo.authoring import load, load_rules
from gpu_zoo.compile import CompileError
from gpu_zoo.testing import CHECKS, CheckFailed, check_contract, check_env, check_reference

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "tutorials" / "predator_prey"
PAGE = DOCS / "tutorials" / "own-environment.md"
SNIPPET = re.compile(r'^--8<-- "([^":]+):(\w+)"$', re.MULTILINE)
SECTION = re.compile(r"--8<-- \[start:(\w+)\]")
CROWDED = {"num_predators": 3, "num_prey": 4, "num_food": 2, "size": 3, "regrow": 2}

pytestmark = pytest.mark.usefixtures("own_registry")


def rules() -> type[Any]:
    return load_rules(FOLDER / "predator_prey_rules.py")


@pytest.mark.parametrize("params", [{}, CROWDED], ids=["default", "crowded"])
def test_quick_checks(params: dict[str, int]) -> None:
    spec = load(FOLDER / "predator_prey_v0.py")
    only = ("contract", "determinism", "reference", "bounds")
    settings = {"contract": {"steps": 300}, "bounds": {"shapes": ("lane",)}}
    report = check_env(spec, params, only, settings, rules())
    assert {name for name, found in report.items() if found == "ok"} >= set(only[:3])


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, CROWDED], ids=["default", "crowded"])
def test_all_checks(params: dict[str, int]) -> None:
    report = check_env(load(FOLDER / "predator_prey_v0.py"), params, rules=rules())
    assert set(report) == set(CHECKS)


def test_all_that_the_rules_say_happens() -> None:
    """Random play catches, eats, waits for food and ends: else the checks would say little."""
    seen: Counter[str] = Counter()
    base = rules()

    class Watching(base):  # type: ignore[misc]
        def step(self, actions: Any) -> Any:
            answer = super().step(actions)
            _, rewards, terminations = answer
            seen["caught"] += rewards["predator_0"] > 0
            seen["two at once"] += rewards["predator_0"] > 1
            seen["eaten"] += any(rewards[prey] > 0 for prey in self.prey)
            seen["waiting"] += any(wait > 0 for wait in self.wait)
            seen["over"] += all(terminations.values())
            return answer

    spec = load(FOLDER / "predator_prey_v0.py")
    check_reference(spec, {}, rules=Watching)
    assert all(seen[what] >= 5 for what in ("caught", "eaten", "waiting", "over")), seen
    check_reference(spec, CROWDED, rules=Watching)
    assert seen["two at once"] >= 5, seen
    assert check_contract(spec, {}, steps=300).terminated > 0


@pytest.mark.parametrize(
    ("old", "new"),
    [("? e.p.regrow :", "? e.p.regrow - 1 :"), ("== FREE) move(e, i);", "== FREE) mover(e, i);")],
    ids=["a failed check", "an error of the compiler"],
)
def test_the_page_quotes_what_is_said(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(FOLDER, tmp_path / FOLDER.name)
    monkeypatch.chdir(tmp_path)
    kernel = Path(FOLDER.name) / "predator_prey_v0.cu"
    text = kernel.read_text()
    assert text.count(old) == 1
    kernel.write_text(text.replace(old, new))
    with pytest.raises((CheckFailed, CompileError)) as said:
        check_reference(load(kernel.with_suffix(".py")), rules=rules())
    quoted = str(said.value).splitlines()[0].split("error: ")[0]
    assert quoted in PAGE.read_text()


def test_the_page_shows_every_section_once_and_in_order() -> None:
    shown = SNIPPET.findall(PAGE.read_text())
    assert {file for file, _ in shown} == {
        f"tutorials/predator_prey/{path.name}" for path in FOLDER.iterdir() if path.is_file()
    }
    for file in {file for file, _ in shown}:
        text = (DOCS / file).read_text()
        sections = SECTION.findall(text)
        assert [section for name, section in shown if name == file] == sections
        for section in sections:
            assert text.count(f"--8<-- [end:{section}]") == 1


def test_the_site_includes_snippets() -> None:
    site = (DOCS.parent / "mkdocs.yml").read_text()
    assert re.search(r"pymdownx.snippets:.*\n +base_path: \[docs, \.\]\n +check_paths: true", site)
    assert "tutorials/own-environment.md" in site
