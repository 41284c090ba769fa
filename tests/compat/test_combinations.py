"""Every combination of libraries, in a fresh virtual environment."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import run as compat


@pytest.mark.slow
@pytest.mark.parametrize("name", compat.COMBINATIONS)
def test_combination(name: str, tmp_path: Path) -> None:
    result = compat.run(name, tmp_path, full=False, measure=False, args=argparse.Namespace())
    assert result["tests"]["ok"], result["tests"].get("said", "every test was skipped")
    wanted = dict(p.split("==") for p in compat.COMBINATIONS[name].packages if "==" in p)
    for package, version in wanted.items():
        assert result["versions"][package.partition("[")[0]] == version
