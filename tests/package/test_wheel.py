"""What a built wheel holds, and what it does where nothing but the wheel is on the path."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Built from a copy: setuptools writes its build folder beside the sources.
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    for name in names:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_wheel_holds_all_kernels_under_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    kernels = [p.relative_to(ROOT) for p in (ROOT / "kernels").rglob("*") if p.is_file()]
    sources = [p for p in kernels if p.suffix in (".cu", ".cuh", ".cpp")]
    assert len(sources) > 5
    for source in sources:
        assert f"gpu_zoo/{source}" in names
    assert "gpu_zoo/py.typed" in names
    for template in (ROOT / "gpu_zoo" / "templates").glob("*.*"):
        assert f"gpu_zoo/templates/{template.name}" in names
    for config in (ROOT / "baselines" / "configs").rglob("*.yaml"):
        assert f"gpu_zoo/{config.relative_to(ROOT)}" in names
    # The repository's top folders must not land in site-packages under their own names.
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"gpu_zoo"}


def test_wheel_steps_an_environment(wheel: Path, tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import gpu_zoo, gpu_zoo.wrappers.pettingzoo, gpu_zoo.baselines\n"
        f"assert gpu_zoo.__file__.startswith({str(tmp_path)!r}), gpu_zoo.__file__\n"
        "env = gpu_zoo.make_vec('mpe/simple_tag_v3', num_envs=3)\n"
        "env.reset(seed=0); env.step(); print(env.state().shape)\n"
        "from gpu_zoo.authoring import load\n"
        "from gpu_zoo.scaffold import write_environment\n"
        "write_environment('own'); print(load('own/own_v0.py').id)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["(3, 62)", "mine/own_v0"]
