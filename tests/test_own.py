"""What each environment may have of its own: its parameters, and the states that it starts in."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import gpu_zoo
from gpu_zoo.spec import Param
from gpu_zoo.starts import check_each
from gpu_zoo.testing.play import put_actions, random_actions, record

SHAPES = ["lane", "block"]
TAG = "mpe/simple_tag_v3"


# Parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_each_environment_is_as_one_with_its_parameters_alone(shape: str) -> None:
    """Also where the time limit is among them, so that episodes end at different times."""
    count = 35
    own = {
        "local_ratio": np.linspace(0, 1, count),
        "max_cycles": np.arange(count) % 5 + 2,
        "terminate_on_success": np.arange(count) % 2 == 0,
    }
    env = gpu_zoo.make_vec("mpe/simple_spread_v3", count, shape=shape, N=1, **own)
    actions = random_actions(env, 15)
    together = record(env, actions, seed=3)
    for index in (0, 1, 17, 34):
        alone = {name: values[index].item() for name, values in own.items()}
        one = gpu_zoo.make_vec("mpe/simple_spread_v3", 1, shape=shape, N=1, **alone)
        mine = {name: array[:, index : index + 1] for name, array in actions.items()}
        for name, array in record(one, mine, seed=3 + index).items():
            np.testing.assert_array_equal(array[:, 0], together[name][:, index], name)


def test_parameters_change_during_a_run() -> None:
    env = gpu_zoo.make_vec("classic/pendulum_v1", 4, array="torch")
    env.reset(seed=0)
    upright = {"theta": torch.zeros(4) + 0.1, "theta_dot": torch.zeros(4)}
    speeds = []
    for g in (10.0, torch.tensor([0.0, 5.0, 10.0, 20.0]), [1.0, 2.0, 3.0, 4.0], 10.0):
        env.set_param("g", g)
        env.set_state(upright)
        env.group["agent"].actions[...] = 0
        env.step()
        speeds.append(env.get_state()["theta_dot"].numpy())
    fall = 1.5 * np.sin(0.1) * 0.05  # of one step, for g 1
    np.testing.assert_allclose(speeds[0], 10 * fall, rtol=1e-5)
    np.testing.assert_allclose(speeds[1], np.array([0, 5, 10, 20]) * fall, rtol=1e-5)
    np.testing.assert_allclose(speeds[2], np.array([1, 2, 3, 4]) * fall, rtol=1e-5)
    np.testing.assert_array_equal(speeds[3], speeds[0])


def test_a_change_compiles_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    env = gpu_zoo.make_vec("classic/pendulum_v1", 3, g=[9.0, 10.0, 11.0])
    pool = {"theta": np.zeros(1, np.float32)}
    env.set_reset_pool(pool)

    def never(*_: Any) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(env.engine.backend, "load", never)
    env.set_param("g", [1.0, 2.0, 3.0])
    env.set_param("g", 4.0)
    env.set_reset_pool({"theta_dot": np.ones(5, np.float32)})


def test_what_is_given_is_copied() -> None:
    g = np.array([1.0, 2.0])
    env = gpu_zoo.make_vec("classic/pendulum_v1", 2, g=g)
    g[0] = 99
    assert env.params["g"].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        env.params["g"][0] = 5


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("g", [1.0], ValueError, r"g: shape \(1,\), expected \(2,\) or one value"),
        ("g", [[1.0, 2.0]], ValueError, r"g: shape \(1, 2\), expected \(2,\) or one value"),
        ("g", [True, False], TypeError, "g: dtype bool, expected floats"),
        ("max_cycles", [1.0, 2.0], TypeError, "max_cycles: dtype float64, expected ints"),
        ("max_cycles", [5, 0], ValueError, r"max_cycles\[1\]=0: expected int of at least 1"),
        ("max_cycles", 0, ValueError, "max_cycles=0: expected int of at least 1"),
    ],
)
def test_bad_values(name: str, value: Any, error: type[Exception], message: str) -> None:
    env = gpu_zoo.make_vec("classic/pendulum_v1", 2)
    with pytest.raises(error, match=message):
        env.set_param(name, value)
    with pytest.raises(error, match=message):
        gpu_zoo.make_vec("classic/pendulum_v1", 2, **{name: value})
    assert env.params[name] == env.spec.params[name].default


@pytest.mark.parametrize(
    "value",
    [[[1.0], [2.0, 3.0]], ["a", "b"], torch.tensor([1j, 2j])],
    ids=["ragged", "text", "complex"],
)
def test_what_is_no_array_of_numbers_is_refused_by_name(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^g: "):
        gpu_zoo.make_vec("classic/pendulum_v1", 2, g=value)


def test_a_gradient_is_no_obstacle_and_too_large_is_said_as_it_is() -> None:
    env = gpu_zoo.make_vec("classic/pendulum_v1", 2)
    env.set_param("g", torch.tensor([1.0, 2.0], requires_grad=True))
    assert env.params["g"].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"max_cycles\[1\]=9223372036854775808: "):
        env.set_param("max_cycles", np.array([1, 2**63], np.uint64))


def test_nan_is_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"local_ratio\[1\]=nan: expected float from 0 to 1"):
        gpu_zoo.make_vec("mpe/simple_spread_v3", 3, local_ratio=[0.5, float("nan"), 0.5])


def test_what_is_compiled_in_cannot_differ() -> None:
    with pytest.raises(TypeError, match="N=\\[1, 2\\]: expected int"):
        gpu_zoo.make_vec("mpe/simple_spread_v3", 2, N=[1, 2])


# Starts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("numerics", ["fast", "reference"])
def test_episodes_start_in_states_of_the_pool(shape: str, numerics: str) -> None:
    """All fields of a row together, each row about as often as another, and seen at once."""
    rng = np.random.default_rng(0)
    settings: dict[str, Any] = {"shape": shape, "numerics": numerics, "max_cycles": 3}
    env = gpu_zoo.make_vec(TAG, 600, **settings)
    real = np.float64 if numerics == "reference" else np.float32
    pool = {"pos": rng.uniform(-1, 1, (5, 4, 2)), "landmark": rng.uniform(-1, 1, (5, 2, 2))}
    pool = {name: values.astype(real) for name, values in pool.items()}
    env.set_reset_pool(pool)
    observations, _ = env.reset(seed=1)
    for _ in range(2):  # the first episode, and one after an automatic reset
        state = env.get_state()
        rows = (state["pos"][:, None] == pool["pos"]).all(axis=(2, 3)).argmax(axis=1)
        np.testing.assert_array_equal(state["pos"], pool["pos"][rows])
        np.testing.assert_array_equal(state["landmark"], pool["landmark"][rows])
        assert np.bincount(rows, minlength=5).min() > 80  # of 120, give or take 10
        position = observations["agent_0"][:, 2:4]
        np.testing.assert_array_equal(position, pool["pos"][rows, 3].astype(np.float32))
        for _ in range(3):
            observations, *_ = env.step()


def test_what_the_pool_leaves_open_is_drawn_as_ever() -> None:
    plain, pooled = (gpu_zoo.make_vec(TAG, 50) for _ in range(2))
    pooled.set_reset_pool({"landmark": np.zeros((1, 2, 2), np.float32)})
    plain.reset(seed=5)
    pooled.reset(seed=5)
    np.testing.assert_array_equal(plain.get_state()["pos"], pooled.get_state()["pos"])
    assert not pooled.get_state()["landmark"].any()
    pooled.set_reset_pool(None)
    pooled.reset(seed=5)
    np.testing.assert_array_equal(plain.get_state()["landmark"], pooled.get_state()["landmark"])


def test_the_row_is_the_environments_own_chance() -> None:
    pool = {"theta": np.arange(100, dtype=np.float32)}

    def play(seed: int, count: int) -> Any:
        env = gpu_zoo.make_vec("classic/pendulum_v1", count, reset_pool=pool, max_cycles=2)
        return record(env, random_actions(env, 7), seed)["state/theta"]

    np.testing.assert_array_equal(play(3, 8), play(3, 8))
    assert (play(3, 8)[0] != play(4, 8)[0]).any()
    np.testing.assert_array_equal(play(3, 8)[0, 2:6], play(5, 4)[0])  # whatever the batch


def test_a_reset_by_mask_draws_from_the_pool_too() -> None:
    env = gpu_zoo.make_vec("classic/pendulum_v1", 6)
    env.reset(seed=0)
    before = env.get_state()["theta"]
    env.set_reset_pool({"theta": np.full(1, 0.25, np.float32)})
    np.testing.assert_array_equal(env.get_state()["theta"], before)  # not before the next reset
    mask = np.array([True, False] * 3)
    env.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(env.get_state()["theta"], np.where(mask, 0.25, before))


def test_pools_may_be_of_torch() -> None:
    env = gpu_zoo.make_vec("classic/pendulum_v1", 2, array="torch")
    env.set_reset_pool({"theta": torch.tensor([0.5])})
    env.reset(seed=0)
    assert env.get_state()["theta"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("pool", "error", "message"),
    [
        ([1], TypeError, "reset_pool: list, expected a dict by field"),
        ({}, ValueError, "reset_pool: no states, expected at least one field and one row"),
        ({"x": np.zeros(1)}, KeyError, "reset_pool\\['x'\\]: expected one of theta"),
        ({"theta": np.zeros(3)}, ValueError, "'theta'\\]: dtype float64, expected float32"),
        (
            {"theta": np.zeros((3, 1), np.float32)},
            ValueError,
            r"'theta'\]: shape \(3, 1\), expected \(3,\)",
        ),
        (
            {"theta": np.zeros(3, np.float32), "theta_dot": np.zeros(2, np.float32)},
            ValueError,
            r"'theta_dot'\]: shape \(2,\), expected \(3,\)",
        ),
    ],
)
def test_bad_pools(pool: Any, error: type[Exception], message: str) -> None:
    env = gpu_zoo.make_vec("classic/pendulum_v1", 2)
    with pytest.raises(error, match=message):
        env.set_reset_pool(pool)
    with pytest.raises(error, match=message):
        gpu_zoo.make_vec("classic/pendulum_v1", 2, reset_pool=pool)


def test_both_at_once_and_a_play_goes_on_after_them() -> None:
    """The state stays where it is while another kernel takes over."""
    env = gpu_zoo.make_vec("classic/pendulum_v1", 40)
    actions = random_actions(env, 10)
    env.reset(seed=2)
    put_actions(env, actions, 0)
    env.step()
    state = env.get_state()
    env.set_param("g", np.full(40, 10.0))
    env.set_reset_pool({"theta": np.zeros(1, np.float32)})
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, state[name], name)
    twin = gpu_zoo.make_vec("classic/pendulum_v1", 40)
    twin.reset(seed=2)
    twin.set_state(state)
    for step in range(1, 10):
        for one in (env, twin):
            put_actions(one, actions, step)
            one.step()
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, twin.get_state()[name], name)


@pytest.mark.parametrize("change", ["pool", "parameter"])
def test_a_failed_compilation_changes_nothing(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = gpu_zoo.make_vec("classic/pendulum_v1", 2)

    def own() -> None:
        if change == "pool":
            env.set_reset_pool({"theta": np.full(1, 0.5, np.float32)})
        else:
            env.set_param("g", [1.0, 2.0])

    def fail(*_: Any) -> None:
        raise OSError("no room")

    with monkeypatch.context() as broken, pytest.raises(OSError, match="no room"):
        broken.setattr(env.engine.backend, "load", fail)
        own()
    assert env.params["g"] == 10.0
    env.reset(seed=0)
    assert len(np.unique(env.get_state()["theta"])) == 2
    own()  # and now it does what it says
    env.reset(seed=0)
    if change == "pool":
        assert env.get_state()["theta"].tolist() == [0.5, 0.5]
    else:
        assert env.params["g"].tolist() == [1.0, 2.0]


# Starts that parameters ask for ------------------------------------------------------------------

PLANE = "warpdrive/tag_continuous_v0"


def test_seeded_starts_follow_the_size_of_the_square() -> None:
    env = gpu_zoo.make_vec(PLANE, 2, seed=1)
    env.reset()
    x = env.get_state()["x"]
    env.set_param("grid_length", 2.0)
    env.reset()
    np.testing.assert_allclose(env.get_state()["x"], x / 5, rtol=1e-6)


def test_seeded_starts_have_squares_of_one_size() -> None:
    message = "grid_length: one value an environment, expected one for all"
    with pytest.raises(ValueError, match=message):
        gpu_zoo.make_vec(PLANE, 11, seed=1, grid_length=np.linspace(1, 30, 11))
    env = gpu_zoo.make_vec(PLANE, 3, seed=1)
    with pytest.raises(ValueError, match=message):
        env.set_param("grid_length", [1.0, 2.0, 3.0])
    assert env.params["grid_length"] == 10.0
    env.reset(seed=0)
    env.step()  # with the kernel it had
    env.set_reset_pool(None)  # without them it may differ
    env.set_param("grid_length", [1.0, 2.0, 3.0])
    env.reset(seed=0)
    assert (env.get_state()["x"].max(axis=1) <= [1, 2, 3]).all()


def test_a_pool_that_is_refused_changes_nothing() -> None:
    env = gpu_zoo.make_vec(PLANE, 2, seed=1)
    env.reset()
    x = env.get_state()["x"]
    with pytest.raises(KeyError, match="nope"):
        env.set_reset_pool({"nope": np.zeros(3)})
    env.set_param("grid_length", 2.0)
    env.reset()
    np.testing.assert_allclose(env.get_state()["x"], x / 5, rtol=1e-6)


def test_a_copy_whose_own_starts_were_given_up_draws_them() -> None:
    where = {"starting_location_x": (1.0, 2.0), "starting_location_y": (1.0, 2.0)}
    env = gpu_zoo.make(PLANE, num_taggers=1, num_runners=1, **where)
    env.game.vector.set_reset_pool(None)
    twin = copy.deepcopy(env)
    for one in (env, twin):
        one.reset(seed=5)
    x = [one.game.vector.get_state()["x"] for one in (env, twin)]
    np.testing.assert_array_equal(*x)
    assert x[0].tolist() != [[1.0, 2.0]]


def test_parameters_that_do_not_go_together_are_refused_later_too() -> None:
    where = {"starting_location_x": (9.0, 1.0), "starting_location_y": (9.0, 1.0)}
    env = gpu_zoo.make_vec(PLANE, 2, num_taggers=1, num_runners=1, **where)
    with pytest.raises(ValueError, match="starting_location_x: 9, expected numbers from 0 to 2"):
        env.set_param("grid_length", 2.0)
    assert env.params["grid_length"] == 10.0
    stage = "curriculum_stage=2: expected 0 unless curriculum=True"
    with pytest.raises(ValueError, match=stage):
        gpu_zoo.make_vec(TAG, 3, curriculum_stage=[0, 2, 1])
    mixed = gpu_zoo.make_vec(TAG, 3, curriculum_stage=[0, 2, 1], curriculum=[False, True, True])
    with pytest.raises(ValueError, match=stage):
        mixed.set_param("curriculum", [True, False, True])
    assert mixed.params["curriculum"].tolist() == [False, True, True]


def test_of_few_choices_each_is_looked_at() -> None:
    few = Param(4, "length", choices=(1, 4))
    np.testing.assert_array_equal(check_each("length", few, [1, 4, 1], 3), [1, 4, 1])
    with pytest.raises(ValueError, match=r"^length\[1\]=2: expected one of 1, 4$"):
        check_each("length", few, [1, 2, 4], 3)
    with pytest.raises(ValueError, match=r"^length=True: expected one of 1, 4$"):
        few.check("length", True)
    with pytest.raises(TypeError, match=r"^name: one value an environment, expected one for all"):
        check_each("name", Param("a", "text"), ["a", "b"], 2)


@pytest.mark.parametrize("value", [-0.1, 10.5, float("nan"), 1e12])
def test_starts_lie_in_the_square(value: float) -> None:
    where = {"starting_location_x": (1.0, value), "starting_location_y": (1.0, 2.0)}
    with pytest.raises(ValueError, match=r"starting_location_x: .*, expected numbers from 0 to 10"):
        gpu_zoo.make_vec(PLANE, 2, num_runners=1, **where)


def test_a_copy_has_the_pool_too() -> None:
    env = gpu_zoo.make(PLANE, num_runners=1)
    env.game.vector.set_reset_pool({"x": np.full((1, 2), 3.0)})
    twin = copy.deepcopy(env)
    twin.reset(seed=5)
    assert twin.game.vector.get_state()["x"].tolist() == [[3.0, 3.0]]


def test_who_cannot_leave_cannot_be_made_to() -> None:
    env = gpu_zoo.make_vec("classic/pendulum_v1", 1)
    env.reset(seed=0)
    with pytest.raises(KeyError, match="state\\['active/agent'\\]: expected one of"):
        env.set_state({"active/agent": np.zeros((1, 1), np.bool_)})
