"""The check with PettingZoo's own tests: quiet where they pass, one line where they do not."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import pytest
from authoring.edits import edit

import gpu_zoo
from gpu_zoo.authoring import load
from gpu_zoo.compile import CompileError
from gpu_zoo.spec import EnvSpec, Slice
from gpu_zoo.testing import CheckFailed, check_pettingzoo


@pytest.mark.parametrize("env_id", ["mpe/simple_tag_v3", "classic/pendulum_v1"])
def test_it_passes_and_prints_nothing(env_id: str, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_pettingzoo(gpu_zoo.spec(env_id))
    assert capfd.readouterr() == ("", "")


def failure(spec: EnvSpec) -> str:
    with pytest.raises(CheckFailed) as caught:
        check_pettingzoo(spec, {"N": 2})
    message = str(caught.value)
    assert message.startswith("check_pettingzoo: mine/my_env_v0(N=2), reference: ")
    assert "\n" not in message
    return message


def test_an_observation_outside_its_space(folder: Path) -> None:
    spec = load(folder / "my_env_v0.py")
    group = spec.groups[0]
    narrow = {**group.observation, "target": Slice(1, "", low=-0.01, high=0.01)}
    groups = (dataclasses.replace(group, observation=narrow),)
    message = failure(dataclasses.replace(spec, groups=groups))
    assert "api_test: AssertionError: " in message
    assert "(api_test.py:" in message or "(parallel_test.py:" in message


def test_a_game_that_does_not_follow_from_its_seed(folder: Path) -> None:
    edit(folder / "my_env_v0.cu", "    e.s.target = rng_integers(e.rng, e.p.length);",
         "    static int games = 0;\n    e.s.target = ++games % e.p.length;")  # fmt: skip
    assert "parallel_seed_test: AssertionError: Incorrect" in failure(load("my_env/my_env_v0.py"))


def test_a_kernel_that_does_not_compile_is_no_finding_of_pettingzoo(folder: Path) -> None:
    edit(folder / "my_env_v0.cu", "real(distance)", "reel(distance)")
    with pytest.raises(CompileError, match=r"^my_env/my_env_v0.cu:\d+: error: "):
        check_pettingzoo(load("my_env/my_env_v0.py"))
