"""The documentation says what is so: generated parts are current and every Python block runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_zoo

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
OWN = [ROOT / "docs" / "tutorials" / name for name in ("predator_prey", "hands")]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    """Every Python block as (where, text); the ones of a page run in turn, in one namespace."""
    return [
        (str(page.relative_to(ROOT)), "\n".join(BLOCK.findall(page.read_text())))
        for page in PAGES
        if BLOCK.search(page.read_text())
    ]


def test_generated_pages_are_current() -> None:
    script = ROOT / "docs" / "_scripts" / "build_pages.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_environment_has_a_page_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    for env_id in gpu_zoo.list_ids():
        page = f"environments/{gpu_zoo.spec(env_id).name}.md"
        assert (ROOT / "docs" / page).is_file()
        assert page in nav


@pytest.mark.parametrize(("where", "text"), blocks(), ids=lambda value: value[:40])
def test_python_blocks_run(
    where: str, text: str, own_registry: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    for folder in OWN:  # whose reader stands in that folder
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, f"{folder.name}_v0", raising=False)
    code = compile(text, where, "exec")
    try:
        exec(code, {"__name__": "__docs__"})
    except ImportError as error:  # a trainer's library that is not installed
        if "integrations" not in where:
            raise
        pytest.skip(str(error))


def test_relative_links_resolve() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
