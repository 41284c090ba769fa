"""JAX's face: the kernel's memory or one copy of it, and a jitted policy that learns on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hazard
import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp

import gpu_zoo
from gpu_zoo.errors import InvalidAction, ResetNeeded
from gpu_zoo.wrappers.jax import JaxEnv

# ruff: noqa: E402 (without the library there is nothing to import)
ROOT = Path(__file__).resolve().parents[2]


def address(array: Any) -> int:
    pointer: int = array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data
    return pointer


@pytest.mark.parametrize("array", ["numpy", "torch"])
def test_without_copy_it_is_the_kernels_memory(array: str) -> None:
    if array == "torch":
        pytest.importorskip("torch")
    batch = gpu_zoo.make_vec("mpe/simple_tag_v3", 5, array=array)
    env = JaxEnv(batch, copy=False)
    for results in (env.reset(seed=0), env.step(zeros(batch))):
        for name, arrays in results.items():
            for field, view in arrays._asdict().items():
                theirs = getattr(batch.group[name], field)
                if field == "action_masks":
                    assert view is theirs is None
                    continue
                assert view.unsafe_buffer_pointer() == address(theirs), field
                assert view.shape == tuple(theirs.shape)
                assert str(view.dtype) == str(theirs.dtype).removeprefix("torch.")


def zeros(batch: Any) -> dict[str, Any]:
    return {
        name: jnp.zeros(tuple(group.actions.shape), str(group.actions.dtype).removeprefix("torch."))
        for name, group in batch.group.items()
    }


def test_a_copy_never_changes() -> None:
    env = JaxEnv(gpu_zoo.make_vec("mpe/simple_spread_v3", 64))
    kept = [env.reset(seed=0)["agent"]]
    then = [jax.tree.map(lambda x: np.array(x, copy=True), kept[0])]
    for _ in range(4):
        kept.append(env.step(zeros(env.batch))["agent"])
        then.append(jax.tree.map(lambda x: np.array(x, copy=True), kept[-1]))
    for now, before in zip(kept, then, strict=True):
        jax.tree.map(np.testing.assert_array_equal, now, before)
    assert not np.array_equal(kept[0].observations, kept[1].observations)


@pytest.mark.parametrize("copy", [True, False])
def test_a_jitted_policy_drives_a_batch_as_numpys_does(copy: bool) -> None:
    """Every environment ends several times on the way."""
    weights = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    jitted = jax.jit(lambda x: jnp.argmax(jnp.round(x, 3) @ weights, -1))
    env = JaxEnv(gpu_zoo.make_vec("classic/cartpole_v1", 50), copy=copy)
    plain = gpu_zoo.make_vec("classic/cartpole_v1", 50)
    now = env.reset(seed=0)["agent"]
    plain.reset(seed=0)
    group, ended = plain.group["agent"], 0
    for _ in range(100):
        actions = jitted(now.observations)
        group.actions[...] = np.argmax(group.observations.round(3) @ weights, -1)
        np.testing.assert_array_equal(actions, group.actions)
        now = env.step({"agent": actions})["agent"]
        plain.step()
        for field in ("observations", "rewards", "terminations", "truncations"):
            np.testing.assert_array_equal(getattr(now, field), getattr(group, field))
        over = np.asarray(now.terminations | now.truncations)
        np.testing.assert_array_equal(now.final_observations[over], group.final_observations[over])
        ended += over.sum()
    assert ended > 50


@pytest.mark.parametrize("case", hazard.CASES)
def test_every_step_is_what_the_rules_say(case: str, own_registry: None) -> None:
    gpu_zoo.register(hazard.HAZARD)
    params = hazard.CASES[case]
    ends = hazard.ends(params)
    last = max(end for end, _, _ in ends)
    env = JaxEnv(gpu_zoo.make_vec("test/hazard_v0", 2, **params))
    before, time, episode = env.reset()["agent"], 0, 1
    for _ in range(2 * last + 1):
        action = jnp.full((2, 3), time % 3, jnp.int32)
        now = env.step({"agent": action})["agent"]
        time += 1
        over = time == last
        seen = now.final_observations if over else now.observations
        for i, (end, terminates, truncates) in enumerate(ends):
            acted, ended = time <= end, time == end
            assert (before.active[:, i] == acted).all()
            assert (now.rewards[:, i] == (100 * i + time if acted else 0)).all()
            if acted:
                assert (seen[:, i] == jnp.array([i, time, episode, (time - 1) % 3])).all()
                assert (now.terminations[:, i] == (ended and terminates)).all()
                assert (now.truncations[:, i] == (ended and truncates)).all()
        if over:
            time, episode = 0, episode + 1
            assert (now.observations[..., 1:3] == jnp.array([time, episode])).all()
        before = now


def test_masks_and_several_groups(own_registry: None) -> None:
    gpu_zoo.register(hazard.MASKED)
    env = JaxEnv(gpu_zoo.make_vec("test/hazard_masked_v0", 2))
    masks = env.reset()["agent"].action_masks
    assert masks.tolist() == [[[True, True, i % 2 == 0] for i in range(3)]] * 2
    with pytest.raises(InvalidAction, match="2 is masked"):
        env.step({"agent": jnp.full((2, 3), 2)})
    env = JaxEnv(gpu_zoo.make_vec("mpe/simple_tag_v3", 2))
    assert list(env.reset()) == ["adversary", "agent"]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([1], r"actions: list, expected a dict by group"),
        ({}, r"actions: \[\], expected \['agent'\]"),
        (
            {"agent": np.zeros((2, 3), np.int32)},
            r"actions\['agent'\]: ndarray, expected a jax.Array",
        ),
        ({"agent": jnp.zeros((2, 3))}, r"float32 \(2, 3\), expected int32 \(2, 3\)"),
        ({"agent": jnp.zeros((2, 1), int)}, r"int32 \(2, 1\), expected int32 \(2, 3\)"),
        ({"agent": jnp.full((2, 3), 5)}, r"actions\['agent_0'\]\[0\]: 5, expected"),
    ],
)
def test_a_bad_action_is_an_error_and_nothing_moves(actions: Any, message: str) -> None:
    env = JaxEnv(gpu_zoo.make_vec("mpe/simple_spread_v3", 2))
    env.reset()
    with pytest.raises(InvalidAction, match=message):
        env.step(actions)
    assert env.batch.get_state()["steps"].tolist() == [0, 0]


def test_other_bad_input() -> None:
    with pytest.raises(TypeError, match="batch='x': str, expected what make_vec made"):
        JaxEnv("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="agent: rewards are float64, expected numerics='fast'"):
        JaxEnv(gpu_zoo.make_vec("mpe/simple_v3", numerics="reference"))
    env = JaxEnv(gpu_zoo.make_vec("mpe/simple_v3"))
    with pytest.raises(ResetNeeded):
        env.step(zeros(env.batch))


def test_float64_rewards_where_jax_has_them() -> None:
    with jax.enable_x64(True):
        batch = gpu_zoo.make_vec("mpe/simple_v3", numerics="reference")
        env = JaxEnv(batch)
        env.reset(seed=0)
        rewards = env.step(zeros(batch))["agent"].rewards
        assert rewards.dtype == "float64" and rewards == batch.group["agent"].rewards != 0


def test_the_pages_policy_learns() -> None:
    page = (ROOT / "docs" / "integrations" / "jax.md").read_text()
    script = re.search(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert script is not None
    names: dict[str, Any] = {}
    exec(script[1], names)
    returns = names["returns"]
    assert np.mean(returns[:3]) < 30 and np.mean(returns[-20:]) > 100
