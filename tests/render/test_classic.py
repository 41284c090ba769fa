"""Pictures of classic control: everything is where the state says, to scale."""

from __future__ import annotations

import math
import os
import warnings
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from pettingzoo.test import render_test

import gpu_zoo
from gpu_zoo.registry import GYMNASIUM_NAMES
from gpu_zoo.wrappers.pettingzoo import drop_in

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
pygame = pytest.importorskip("pygame")
from gpu_zoo.render.classic import BAND, BLUE, GROUND  # noqa: E402
from gpu_zoo.render.screen import Screen  # noqa: E402
from gpu_zoo.render.stage import FLOOR, GREEN, LINE, RED, WALL, Frame  # noqa: E402

CLASSIC = sorted(GYMNASIUM_NAMES)
CARS = ["classic/mountain_car_v0", "classic/mountain_car_continuous_v0"]


def drawn(name: str, **state: Any) -> Any:
    """The picture of a state, uint8 ``(700, 700, 3)``."""
    spec = gpu_zoo.spec(name)
    scene = {field: np.array(value, np.float32) for field, value in state.items()}
    return Screen(spec, "rgb_array", 0).show(scene, scene, spec.resolve({}))


def pixel(image: Any, units: float, x: float, y: float) -> tuple[int, ...]:
    """The colour of a place in units from the square's lower left corner."""
    column, row = Frame.of(pygame.Surface((700, 700), 0, 32), units).at(x, y)
    return tuple(int(v) for v in image[round(row), round(column)])


def furthest(image: Any, units: float, color: Any, x: float, y: float) -> tuple[float, float]:
    """Of all places of one colour, the one that is furthest from a place, both in units."""
    frame = Frame.of(pygame.Surface((700, 700), 0, 32), units)
    rows, columns = np.nonzero((image == np.array(color, np.uint8)).all(axis=2))
    across = (columns - frame.left) / frame.scale
    above = (frame.top + frame.side - rows) / frame.scale
    k = np.argmax(np.hypot(across - x, above - y))
    return float(across[k]), float(above[k])


# Cart and pole: the track is from -2.4 to 2.4, and the pole 1 long ------------------------------


@pytest.mark.parametrize("x", [-2.0, 0.0, 1.3])
@pytest.mark.parametrize("degrees", [-12.0, -3.0, 0.0, 7.0, 12.0])
def test_the_poles_tip_is_where_the_angle_says(x: float, degrees: float) -> None:
    image = drawn("cartpole_v1", x=x, theta=math.radians(degrees))
    joint = (2.4 + x, 1.8)
    tip = furthest(image, 4.8, RED, *joint)
    lean = math.degrees(math.atan2(tip[0] - joint[0], tip[1] - joint[1]))
    # To the right if positive; the round end takes it up to 0.04 further.
    assert math.dist(joint, tip) == pytest.approx(1.04, abs=0.015)  # two pixels
    assert lean == pytest.approx(degrees, abs=1.5)
    assert pixel(image, 4.8, joint[0] - 0.2, 1.6) == pixel(image, 4.8, joint[0] + 0.2, 1.6) == BLUE
    assert pixel(image, 4.8, joint[0] + 0.3, 1.6) == FLOOR


def test_how_far_the_pole_may_lean() -> None:
    image = drawn("cartpole_v1", x=0, theta=0)
    for degrees, color in ((-11, BAND), (11, BAND), (-13, FLOOR), (13, FLOOR)):
        angle = math.radians(degrees)
        place = 2.4 + 0.9 * math.sin(angle), 1.8 + 0.9 * math.cos(angle)
        assert pixel(image, 4.8, *place) == color, degrees


def test_a_cart_that_leaves_stays_within_the_square() -> None:
    image = drawn("cartpole_v1", x=2.5, theta=0.1)
    assert pixel(image, 4.8, 4.75, 1.65) == BLUE
    assert (image[:, 670:] == 255).all()


# Acrobot: 4.4 wide, the upper joint in the middle ----------------------------------------------


@pytest.mark.parametrize("first", [-2.5, -0.4, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("second", [-1.5, 0.0, 0.7])
def test_acrobots_links(first: float, second: float) -> None:
    image = drawn("acrobot_v1", theta=[first, second])
    # As Gymnasium's: cosines point down, and the second angle counts from the first link.
    elbow = 2.2 + math.sin(first), 2.2 - math.cos(first)
    end = elbow[0] + math.sin(first + second), elbow[1] - math.cos(first + second)
    for share in (0.2, 0.8):
        upper = [2.2 + share * (place - 2.2) for place in elbow]
        lower = [a + share * (b - a) for a, b in zip(elbow, end, strict=True)]
        assert pixel(image, 4.4, *upper) == BLUE
        assert pixel(image, 4.4, *lower) == RED
    assert pixel(image, 4.4, *elbow) == pixel(image, 4.4, 2.2, 2.2) == LINE
    tip = furthest(image, 4.4, RED, *elbow)
    assert math.dist(tip, elbow) == pytest.approx(1.08, abs=0.02)
    assert math.dist(tip, end) == pytest.approx(0.08, abs=0.02)


def test_acrobots_line_is_1_above_the_joint() -> None:
    image = drawn("acrobot_v1", theta=[0, 0])
    assert pixel(image, 4.4, 0.5, 3.2) == GREEN
    assert pixel(image, 4.4, 0.5, 3.25) == pixel(image, 4.4, 0.5, 3.15) == FLOOR


# Pendulum: 2.6 wide --------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [-3.0, -1.0, 0.0, 0.5, 2.0, 0.5 + 2 * math.pi])
def test_the_pendulums_end(angle: float) -> None:
    image = drawn("pendulum_v1", theta=angle, cost=0)
    tip = furthest(image, 2.6, RED, 1.3, 1.3)
    # Upright is 0, and a positive angle is to the left.
    wanted = 1.3 - 1.048 * math.sin(angle), 1.3 + 1.048 * math.cos(angle)
    assert math.dist(tip, wanted) < 0.06
    assert math.dist(tip, (1.3, 1.3)) == pytest.approx(1.048, abs=0.01)


def test_where_the_pendulum_should_be_and_what_it_cost() -> None:
    images = [drawn("pendulum_v1", theta=math.pi, cost=cost) for cost in (1.0, 2.5)]
    for x, y in ((1.3 + 0.087, 2.3), (1.3, 2.3 + 0.087), (1.3, 2.3 - 0.087)):
        assert pixel(images[0], 2.6, x, y) == GREEN
    assert (images[0][:50] != images[1][:50]).any()
    np.testing.assert_array_equal(images[0][50:], images[1][50:])


# Mountain cars: from -1.2 to 0.6, and the ground of position 0 is 0.55 high ----------------------


def ground(position: float) -> tuple[float, float]:
    """Where Gymnasium's hill is, in units of our square, which begins 0.35 below height 0."""
    return position + 1.2, 0.35 + 0.45 * math.sin(3 * position) + 0.55


@pytest.mark.parametrize("name", CARS)
def test_the_hill(name: str) -> None:
    image = drawn(name, position=-1.1)
    for position in np.linspace(-0.85, 0.55, 15):
        x, y = ground(position)
        assert pixel(image, 1.8, x, y - 0.02) == GROUND
        assert pixel(image, 1.8, x, y + 0.02) in (FLOOR, (0, 0, 0)), "or the flag's pole"


@pytest.mark.parametrize("position", [-1.0, -0.7, -math.pi / 6, -0.2, 0.2, 0.4])
def test_the_car_stands_on_the_hill(position: float) -> None:
    image = drawn(CARS[0], position=position)
    x, y = ground(position)
    steps = 1e-4
    slope = math.atan2(ground(position + steps)[1] - ground(position - steps)[1], 2 * steps)
    along, up = (math.cos(slope), math.sin(slope)), (-math.sin(slope), math.cos(slope))
    for side in (-0.0385, 0.0385):  # a wheel, of radius 0.025
        wheel = [a + side * b + 0.025 * c for a, b, c in zip((x, y), along, up, strict=True)]
        assert pixel(image, 1.8, *wheel) == WALL
    roof = [a + 0.06 * b for a, b in zip((x, y), up, strict=True)]
    assert pixel(image, 1.8, *roof) == RED
    above = [a + 0.1 * b for a, b in zip((x, y), up, strict=True)]
    assert pixel(image, 1.8, *above) == FLOOR


@pytest.mark.parametrize(("name", "goal"), [(CARS[0], 0.5), (CARS[1], 0.45)])
def test_the_flag_is_at_the_goal(name: str, goal: float) -> None:
    image = drawn(name, position=-0.5)
    x, y = ground(goal)
    assert pixel(image, 1.8, x, y + 0.07) == (0, 0, 0)
    assert pixel(image, 1.8, x + 0.02, y + 0.165) == GREEN
    assert pixel(image, 1.8, x - 0.02, y + 0.165) == FLOOR


# All faces that show it ----------------------------------------------------------------------


@pytest.mark.parametrize("env_id", CLASSIC)
def test_all_faces_show_the_same(env_id: str) -> None:
    parallel = gpu_zoo.make(env_id, render_mode="rgb_array", numerics="fast")
    turns = drop_in(gpu_zoo.spec(env_id)).env(render_mode="rgb_array", numerics="fast")
    name = f"gpu_zoo/{GYMNASIUM_NAMES[env_id]}"
    view = gymnasium.make_vec(name, num_envs=3, render_mode="rgb_array")
    assert view.render_mode == "rgb_array"
    view.reset(seed=3)
    parallel.reset(seed=5)
    turns.reset(seed=5)
    view.action_space.seed(0)
    pictures = []
    for _ in range(4):
        actions = view.action_space.sample()
        view.step(actions)
        parallel.step({"agent_0": actions[2]})
        turns.step(actions[2])
        pictures.append(parallel.render())
        np.testing.assert_array_equal(turns.render(), pictures[-1])
        np.testing.assert_array_equal(view.render()[2], pictures[-1])
        assert (view.render()[0] != view.render()[2]).any()
    assert all((a != b).any() for a, b in pairwise(pictures))


@pytest.mark.parametrize("env_id", CLASSIC)
def test_metadata_are_gymnasiums(env_id: str) -> None:
    theirs = gymnasium.make(GYMNASIUM_NAMES[env_id]).metadata
    batch, parallel = gpu_zoo.make_vec(env_id), gpu_zoo.make(env_id)
    for env in (batch, parallel):
        assert set(env.metadata["render_modes"]) == set(theirs["render_modes"])
        assert env.metadata["render_fps"] == theirs["render_fps"]


@pytest.mark.parametrize("env_id", CLASSIC)
def test_pettingzoos_own_render_test(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render_test(drop_in(gpu_zoo.spec(env_id)).env)
    pygame.display.quit()


def test_a_batch_has_no_window() -> None:
    for make, name in (
        (gpu_zoo.make_gym_vec, "classic/cartpole_v1"),
        (gpu_zoo.make_gym_lanes, "mpe/simple_spread_v3"),
    ):
        assert make(name).render_mode is None
        with pytest.raises(ValueError, match="render_mode='human': expected None or 'rgb_array'"):
            make(name, render_mode="human")


def test_a_time_limit_for_each_environment() -> None:
    env = gpu_zoo.make_vec("classic/cartpole_v1", 2)
    env.reset(seed=[1, 1])
    same = env.render(0)
    np.testing.assert_array_equal(env.render(1), same)
    env.set_param("max_cycles", np.array([500, 20], np.int32))
    np.testing.assert_array_equal(env.render(0), same)
    assert (env.render(1)[:50] != same[:50]).any()
