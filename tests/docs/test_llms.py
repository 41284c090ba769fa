"""The plain text for language models is current and whole."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "_scripts" / "llms.py"


@pytest.fixture(scope="module")
def llms() -> ModuleType:
    spec = importlib.util.spec_from_file_location("llms", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nav_pages() -> list[str]:
    """The pages as mkdocs.yml names them, whatever the nesting."""
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    return re.findall(r"([\w./-]+\.md)", nav)


def test_index_is_current() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_index_has_every_page_of_the_navigation() -> None:
    links = re.findall(r"\]\(([^)]+\.md)\)", (ROOT / "docs" / "llms.txt").read_text())
    assert sorted(links) == sorted(nav_pages())


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("# Title\n\nFirst sentence, of `a.b`. Second.\n", "First sentence, of `a.b`."),
        ("# Title\n\n![a](b.png)\n\n| a |\n|---|\n\n- item\n\nProse [here](x.md).", "Prose here."),
        ("<!-- begin -->\n# Title\n\nWrapped\nover lines", "Wrapped over lines"),
        ("# Title\n\n```python\nx = 1\n```\n\nruns it. Then\n\nThis is it.", "This is it."),
        ("---\na: b\n---\n# Title\n\n```\nx\n\nY\n```\n\nText", "Text"),
        ('# Title\n\n!!! note "Title"\n    Text.\n\n`make` makes.', "`make` makes."),
        ("# Title\n\n::: gpu_zoo.spec\n", ""),
    ],
)
def test_summary_is_the_first_sentence_of_prose(llms: ModuleType, page: str, expected: str) -> None:
    assert llms.summary(page) == expected


def test_sections_follow_the_navigation(llms: ModuleType) -> None:
    nav = ["index.md", {"A": ["a/index.md", {"Other": "a/b.md"}, {"B": ["c.md"]}]}, "d.md"]
    assert list(llms.sections(nav)) == [
        ("Pages", [("", "index.md"), ("", "d.md")]),
        ("A", [("", "a/index.md"), ("Other", "a/b.md")]),
        ("A: B", [("", "c.md")]),
    ]


def test_links_lead_to_texts_in_the_site(site: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text())
    assert links
    assert [link for link in links if not (site / link).is_file()] == []


def test_texts_are_whole(site: Path) -> None:
    full = (site / "llms-full.txt").read_text()
    for page in nav_pages():
        text = (site / page).read_text()
        assert text in full, page
        left = re.search(r"^(?:::: |.*--8<--| *<!-- |<svg|<div|.*\)\{ \.).*$", text, re.MULTILINE)
        assert left is None, f"{page}: {left and left[0]}"
    assert "Drawing: reset with seed 7" in full
    assert "#### `make_vec(env_id: str, num_envs: int = 1" in full  # of a docstring
