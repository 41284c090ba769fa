"""The built site: the folder that GPU_ZOO_SITE names, else one built here, once a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_zoo

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("GPU_ZOO_SITE"):
        return Path(given)
    pytest.importorskip("mkdocs", reason="the site is built by the docs extra: mkdocs is missing")
    if Path(gpu_zoo.__file__).parent == ROOT / "gpu_zoo":
        pytest.skip("mkdocstrings finds all parts of an installed gpu_zoo, not of an editable one")
    folder = tmp_path_factory.mktemp("site")
    mkdocs = Path(sys.executable).with_name("mkdocs")  # with -m it would see the folder gpu_zoo
    build = [mkdocs, "build", "-q", "--strict", "--site-dir", str(folder)]
    export = [sys.executable, "docs/_scripts/llms.py", "--site", str(folder)]
    for command in (build, export):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder
