"""my_env keeps what gpu_zoo promises of every environment, and follows its rules in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpu_zoo
from gpu_zoo.authoring import load, load_rules
from gpu_zoo.testing import check_env

HERE = Path(__file__).parent
SPEC = load(HERE / "my_env_v0.py")
RULES = load_rules(HERE / "my_env_rules.py")


# Parameters that reach other parts of the rules belong here.
@pytest.mark.parametrize("params", [{}, {"N": 1, "length": 2}], ids=str)
def test_all_checks(params: dict[str, int]) -> None:
    check_env(SPEC, params, rules=RULES)


def test_a_step_worked_out_by_hand() -> None:
    env = gpu_zoo.make_vec(SPEC.id, num_envs=1, numerics="reference", N=2, length=4)
    env.reset(seed=0)
    env.set_state({"pos": np.array([[0, 3]], np.int32), "target": np.array([1], np.int32)})
    right, stay = np.array([2]), np.array([0])
    observations, rewards, *_ = env.step({"walker_0": right, "walker_1": stay})
    assert observations["walker_0"].tolist() == [[0.0, 0.5]]  # on the target; the other 2 cells on
    assert rewards["walker_0"].tolist() == [-0.25]  # a distance of 0 + 2 among 2, in lengths of 4
