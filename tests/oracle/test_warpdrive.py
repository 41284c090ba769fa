"""WarpDrive's environments beside their rules in plain Python, and WarpDrive's own fixed starts.

The rules are those of WarpDrive's Python classes (warpdrive_rules/), in float64; so are reference
numerics. Fast numerics are held against reference numerics, from the same states.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import ROWS, Case, over, over_broken
from oracle.mutants import mutated

import gpu_zoo
from gpu_zoo import EnvSpec
from gpu_zoo.testing import CheckFailed, check_reference
from gpu_zoo.testing.play import put_actions, random_actions

FAMILY = [env_id for env_id in gpu_zoo.list_ids() if env_id.startswith("warpdrive/")]
CASES = [Case(env_id, params) for env_id in FAMILY for params in ({}, *ROWS[env_id].variants)]
TAG = "warpdrive/tag_continuous_v0"
# One tagger in a crowd of eight.
CROWD = {"num_runners": 8, "tagging_distance": 0.1, "tag_reward_for_tagger": 3.0}


def rules_of(spec: EnvSpec) -> Callable[..., Any]:
    """The environment's rules; those of its parameters that they know nothing of are left out."""
    name = spec.name.rsplit("_", 1)[0]
    rules = importlib.import_module(f"oracle.warpdrive_rules.{name}").Rules
    known = set(inspect.signature(rules).parameters)
    return lambda **params: rules(**{n: v for n, v in params.items() if n in known})


@over(CASES)
def test_all_is_as_the_rules_say(case: Case) -> None:
    check_reference(case.spec, case.params, rules=rules_of(case.spec), steps=120)


@over_broken(FAMILY)
def test_broken_rules_are_caught(env_id: str, old: str, new: str) -> None:
    spec = mutated(gpu_zoo.spec(env_id), old, new, world=False)
    with pytest.raises(CheckFailed, match="check_reference"):
        for params in (*ROWS[env_id].variants, {}):  # the first is the quickest to notice
            check_reference(spec, params, rules=rules_of(spec), num_envs=4, steps=60)


@over(CASES)
def test_fast_numerics_stay_close(case: Case) -> None:
    """One step from the same state, which float32 holds; a few fall on the other side of a border.

    Such as whether a speed is at its limit, who is nearer, or whether an angle is 0 or a turn.
    """
    fast, reference = (
        gpu_zoo.make_vec(case.id, 64, numerics=numerics, autoreset_mode="disabled", **case.params)
        for numerics in ("fast", "reference")
    )
    fast.reset(seed=0)
    reference.reset(seed=0)
    actions = random_actions(fast, 30)
    odd = total = 0
    for step in range(30):
        state = fast.get_state()
        reference.set_state(_as_in(reference, state))
        for env in (fast, reference):
            put_actions(env, actions, step)
        ours, theirs = fast.step(), reference.step()
        for agent in fast.agents:
            for part in (0, 1, 2):
                error = np.abs(ours[part][agent] * 1.0 - theirs[part][agent])
                odd += (error.reshape(64, -1) > 2e-5).any(axis=1).sum()
                total += 64
        if fast.engine.views["done"].any():
            fast.reset(options={"reset_mask": fast.engine.views["done"].copy()})
            reference.reset(seed=0)
    assert odd / total < 0.03


def _as_in(env: gpu_zoo.VectorEnv, state: dict[str, Any]) -> dict[str, Any]:
    """What both numerics have, in ``env``'s own precision."""
    mine = env.get_state()
    return {n: a.astype(mine[n].dtype) for n, a in state.items() if n != "rng"}


@pytest.mark.parametrize("numerics", ["fast", "reference"])
@pytest.mark.parametrize("build", ["plain", "emulated"])
def test_all_tags_of_one_step_count(numerics: str, build: str) -> None:
    """WarpDrive's kernels lose some: threads that add to one number at a time."""
    env = gpu_zoo.make_vec(
        TAG, 3, numerics=numerics, build=build, autoreset_mode="disabled", **CROWD
    )
    if build == "emulated":
        env.engine.backend.set_block_size(4)  # type: ignore[attr-defined]
    env.reset(seed=0)
    together = {"x": np.full_like(env.get_state()["x"], 5.0)}
    together["y"] = together["x"].copy()
    together["x"][1, 4] = 9.0  # but for one runner of environment 1
    env.set_state(together)
    for group in env.group.values():
        group.actions[...] = 0
    env.step()
    assert env.group["tagger"].rewards[:, 0].tolist() == [24.0, 21.0, 24.0]
    assert (env.group["runner"].rewards == -1).sum(axis=1).tolist() == [8, 7, 8]
    assert env.engine.views["done"].tolist() == [True, False, True]
    assert env.group["runner"].active.sum(axis=1).tolist() == [0, 1, 0]


def test_a_seed_gives_warpdrives_start() -> None:
    """Drawn by hand with NumPy's old generator, in WarpDrive's order."""
    random = np.random.RandomState(274880)
    taggers = random.choice(np.arange(7), 2, replace=False)
    x, y = 10.0 * random.rand(7), 10.0 * random.rand(7)
    direction = random.choice([0, np.pi / 2, np.pi, np.pi * 3 / 2], 7, replace=True)
    order = [*sorted(taggers), *(i for i in range(7) if i not in taggers)]
    env = gpu_zoo.make_vec(TAG, 4, num_taggers=2, num_runners=5, seed=274880, episode_length=3)
    env.reset(seed=1)
    for _ in range(4):  # in every environment, and in every episode
        state = env.get_state()
        for name, drawn in (("x", x), ("y", y), ("direction", direction)):
            np.testing.assert_array_equal(state[name], [drawn[order].astype(np.float32)] * 4)
        assert not state["speed"].any()
        for _ in range(3):
            env.step()


def test_starts_may_be_given() -> None:
    here = {"starting_location_x": (1.0, 2.0), "starting_location_y": [3, 4]}
    env = gpu_zoo.make_vec(TAG, 8, num_runners=1, **here)
    env.reset(seed=1)
    state = env.get_state()
    assert state["x"].tolist() == [[1, 2]] * 8 and state["y"].tolist() == [[3, 4]] * 8
    assert len(np.unique(state["direction"])) > 1  # which were not given


def test_starts_differ_unless_asked_for() -> None:
    env = gpu_zoo.make_vec(TAG, 500)
    env.reset(seed=1)
    state = env.get_state()
    assert len(np.unique(state["x"])) > 5400 and len(np.unique(state["y"])) > 5400
    assert state["x"].min() >= 0 and state["x"].max() <= 10
    assert abs(state["x"].mean() - 5) < 0.15  # five standard errors
    quarters, counts = np.unique(state["direction"], return_counts=True)
    np.testing.assert_allclose(quarters, [0, np.pi / 2, np.pi, np.pi * 3 / 2], rtol=1e-6)
    assert (np.abs(counts - 5500 / 4) < 5 * (5500 * 3 / 16) ** 0.5).all()
