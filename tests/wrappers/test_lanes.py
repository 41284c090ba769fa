"""Agents as rows, and what a step did to each of them."""

from __future__ import annotations

from typing import Any

import hazard
import numpy as np
import pytest
import torch
from gymnasium import spaces

import gpu_zoo
from gpu_zoo.errors import InvalidAction, ResetNeeded
from gpu_zoo.wrappers.gymnasium import LaneView
from gpu_zoo.wrappers.lanes import Lanes, chance


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_each_lane_is_told_of_its_own_end(params: dict[str, Any]) -> None:
    batch = gpu_zoo.VectorEnv(hazard.HAZARD, 2, **params)
    lanes, ends = Lanes(batch), hazard.ends(params)
    batch.reset(seed=0)
    length = max(step for step, _, _ in ends)
    for t in [*range(1, length + 1)] * 2:
        outcome = lanes.step(np.ones(6, np.int64))
        acted = [t <= step for step, _, _ in ends] * 2
        assert outcome.acted.tolist() == acted
        assert outcome.ended.tolist() == [t == step for step, _, _ in ends] * 2
        for k, flags in ((1, outcome.terminated), (2, outcome.truncated)):
            assert flags.tolist() == [t == end[0] and end[k] for end in ends] * 2
        assert outcome.over.tolist() == [t == length] * 6
        rewards = [100 * i + t if acted[i] else 0 for i in range(3)]
        assert lanes.rewards.tolist() == rewards * 2
        ended = np.flatnonzero(outcome.ended)
        last = lanes.last_observations(outcome.over)[ended]
        assert last[:, :2].tolist() == [[lane % 3, t] for lane in ended]
        returns, lengths = (array[ended] for array in lanes.statistics(outcome.over))
        assert lengths.tolist() == [t] * len(ended)
        assert returns.tolist() == [t * 100 * (lane % 3) + t * (t + 1) / 2 for lane in ended]


def test_arrays_are_the_batchs_own_memory() -> None:
    batch = gpu_zoo.make_vec("mpe/simple_spread_v3", 4, array="torch")
    lanes = Lanes(batch)
    batch.reset(seed=0)
    group = batch.group["agent"]
    assert lanes.observations.data_ptr() == group.observations.data_ptr()
    assert lanes.rewards.data_ptr() == group.rewards.data_ptr()
    actions = torch.arange(12) % 5
    outcome = lanes.step(actions)
    assert group.actions.tolist() == actions.reshape(4, 3).tolist()
    assert isinstance(outcome.ended, torch.Tensor)
    assert lanes.observations[5].tolist() == group.observations[1, 2].tolist()


def test_lanes_step_as_the_batch_does() -> None:
    whole, batch = (gpu_zoo.make_vec("mpe/simple_spread_v3", 3) for _ in range(2))
    lanes = Lanes(batch)
    whole.reset(seed=5)
    batch.reset(seed=5)
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = rng.integers(5, size=(3, 3))
        observations, rewards, *_ = whole.step(
            {agent: actions[:, i] for i, agent in enumerate(whole.agents)}
        )
        lanes.step(actions.reshape(-1))
        for i, agent in enumerate(whole.agents):
            np.testing.assert_array_equal(lanes.observations[i::3], observations[agent])
            np.testing.assert_array_equal(lanes.rewards[i::3], rewards[agent])


def test_other_groups_follow_their_policies() -> None:
    batch = gpu_zoo.make_vec("mpe/simple_tag_v3", 3)
    seen = []

    def prey(group: Any) -> Any:
        seen.append(group.observations.copy())
        return np.full((3, 1), 2)

    lanes = Lanes(batch, "adversary", {"agent": prey})
    batch.reset(seed=0)
    before = batch.group["agent"].observations.copy()
    lanes.step(np.zeros(9, np.int32))
    np.testing.assert_array_equal(seen[0], before)
    assert batch.group["agent"].actions.tolist() == [[2], [2], [2]]


@pytest.mark.parametrize(
    ("env_id", "params"),
    [
        ("mpe/simple_v3", {}),
        ("mpe/simple_v3", {"continuous_actions": True}),
        ("warpdrive/tag_continuous_v0", {}),
    ],
)
def test_chance_draws_from_the_whole_space(env_id: str, params: dict[str, Any]) -> None:
    batch = gpu_zoo.make_vec(env_id, 300, **params)
    group = next(iter(batch.group.values()))
    drawn = chance(0)(group)
    assert drawn.shape == group.actions.shape and drawn.dtype == group.actions.dtype
    flat = drawn.reshape(-1, *group.action_space.shape)
    assert all(action in group.action_space for action in flat[:50])
    space = group.action_space
    if isinstance(space, spaces.Box):
        assert drawn.max() > 0.9 * space.high.max() and drawn.min() < 0.1
    else:
        sizes = np.atleast_1d(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n)
        columns = flat.reshape(len(flat), -1).T
        assert [len(set(column)) for column in columns.tolist()] == sizes.tolist()
    assert (chance(0)(group) == drawn).all() and (chance(1)(group) != drawn).any()


def test_chance_keeps_to_the_mask() -> None:
    batch = gpu_zoo.VectorEnv(hazard.MASKED, 200)
    batch.reset(seed=0)
    drawn = chance(0)(batch.group["agent"])
    assert set(drawn[:, 0].tolist()) == set(drawn[:, 2].tolist()) == {0, 1, 2}
    assert set(drawn[:, 1].tolist()) == {0, 1}


def test_what_is_wrong_is_said() -> None:
    tag = gpu_zoo.make_vec("mpe/simple_tag_v3", 2)
    with pytest.raises(ValueError, match=r"group=None.* has several, expected one of 'adversary'"):
        Lanes(tag)
    with pytest.raises(ValueError, match="group='wolf': expected one of 'adversary', 'agent'"):
        Lanes(tag, "wolf")
    with pytest.raises(ValueError, match="others: nothing for 'agent', expected a policy"):
        Lanes(tag, "adversary")
    with pytest.raises(ValueError, match=r"others\['adversary'\]: expected agent"):
        Lanes(tag, "adversary", {"adversary": chance(0), "agent": chance(0)})
    with pytest.raises(TypeError, match=r"others\['agent'\]=3: expected a function"):
        Lanes(tag, "adversary", {"agent": 3})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="batch='tag': str, expected what make_vec made"):
        Lanes("tag")  # type: ignore[arg-type]
    later = gpu_zoo.make_vec("mpe/simple_v3", 2, autoreset_mode="next_step")
    with pytest.raises(ValueError, match="autoreset_mode=NEXT_STEP, expected SAME_STEP"):
        Lanes(later)
    lanes = Lanes(gpu_zoo.make_vec("mpe/simple_v3", 2))
    with pytest.raises(ResetNeeded, match="call reset"):
        lanes.step(np.zeros(2, int))
    lanes.batch.reset(seed=0)
    with pytest.raises(InvalidAction, match=r"actions: shape \(3,\), expected \(2,\)"):
        lanes.step(np.zeros(3, int))
    with pytest.raises(InvalidAction, match="actions: dtype float64, expected integers"):
        lanes.step(np.zeros(2))
    with pytest.raises(InvalidAction, match=r"actions\['agent_0'\]\[1\]: 5, expected 0 <= action"):
        lanes.step(np.array([0, 5]))
    box = Lanes(gpu_zoo.make_vec("mpe/simple_v3", 2, continuous_actions=True))
    box.batch.reset(seed=0)
    with pytest.raises(InvalidAction, match="actions: dtype float64, expected float32"):
        box.step(np.zeros((2, 5)))


def started(**params: Any) -> Lanes:
    lanes = Lanes(gpu_zoo.make_vec("mpe/simple_v3", 2, **params))
    lanes.batch.reset(seed=0)
    return lanes


@pytest.mark.parametrize("array", ["numpy", "torch"])
def test_actions_may_be_of_any_kind_of_array(array: Any) -> None:
    lanes = started(array=array)
    for given in (
        [3, 4],
        np.array([4, 3, 9])[1::-1],
        np.array([3, 4], np.uint64),
        torch.tensor([3, 4]),
        torch.tensor([3, 4], dtype=torch.uint8),
    ):
        lanes.step(given)
        assert sorted(lanes.buffers.actions[:, 0].tolist()) == [3, 4]
    box = started(array=array, continuous_actions=True)
    box.step(torch.full((2, 5), 0.5, requires_grad=True))
    assert box.buffers.actions.tolist() == [[[0.5] * 5]] * 2


def test_a_device_is_not_waited_for_where_values_are_not_checked() -> None:
    """torch's device without data, which can be neither read nor copied to the host."""
    lanes = started(array="torch", validate_actions=False)
    lanes._actions = lanes._actions.to("meta")
    lanes.step(torch.zeros(2, dtype=torch.int64, device="meta"))
    with pytest.raises(InvalidAction, match="actions: dtype float32, expected integers"):
        lanes.step(torch.zeros(2, device="meta"))


@pytest.mark.parametrize("array", ["numpy", "torch"])
def test_what_cannot_be_taken_is_told_in_a_line(array: Any) -> None:
    lanes, box = started(array=array), started(array=array, continuous_actions=True)
    kind = "ndarray" if array == "numpy" else "Tensor"
    for env, actions, message in (
        (
            lanes,
            torch.zeros(2, dtype=torch.int64, device="meta"),
            f"actions: Tensor of int64 on meta, expected what {kind} takes",
        ),
        (box, torch.zeros(2, 5).bfloat16(), "actions: dtype bfloat16, expected float32; conv"),
        (lanes, [[1], [1, 2]], "actions: [[1], [1, 2]], expected an array of numbers"),
        (lanes, torch.ones(2, dtype=torch.bool), "actions: dtype bool, expected integers"),
        (lanes, np.array([1, 2**32 + 1]), "actions[1]: 4294967297, expected an int32"),
        (lanes, torch.tensor([-(2**32), 1]), "actions[0]: -4294967296, expected an int32"),
        (lanes, np.array([2**32, 1], np.uint64), "actions[0]: 4294967296, expected an int32"),
        (lanes, np.array([2**64 - 1, 1], np.uint64), "actions['agent_0'][0]: -1, expected 0 <="),
    ):
        with pytest.raises(InvalidAction) as caught:
            env.step(actions)
        assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert lanes.batch.get_state()["steps"].tolist() == [0, 0]


def test_the_faces_say_the_same() -> None:
    view = LaneView(gpu_zoo.make_vec("mpe/simple_v3", 4))
    view.reset(seed=0)
    with pytest.raises(InvalidAction, match=r"actions\[0\]: 4294967297, expected an int32"):
        view.step(np.full(4, 2**32 + 1))


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (np.array([1.7, 2.2, 3.9]), r"shape \(3,\), expected \(3, 1\)"),
        (np.array([[1.7], [2.2], [3.9]]), "dtype float64, expected integers"),
        (np.full((3, 1), 2**32 + 1), ""),
    ],
)
def test_actions_of_other_groups_are_checked_as_well(gives: Any, message: str) -> None:
    batch = gpu_zoo.make_vec("mpe/simple_tag_v3", 3)
    lanes = Lanes(batch, "adversary", {"agent": lambda group: gives})
    batch.reset(seed=0)
    with pytest.raises(InvalidAction, match=rf"^actions of others\['agent'\].*{message}"):
        lanes.step(np.zeros(9, int))
    assert batch.get_state()["steps"].tolist() == [0, 0, 0]
