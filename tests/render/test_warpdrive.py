"""Pictures of WarpDrive's environments: who is where, heading where, and still in the game."""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import render_test

import gpu_zoo
from gpu_zoo.spec import Table
from gpu_zoo.warpdrive import tag_continuous_v0

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
pygame = pytest.importorskip("pygame")
from gpu_zoo.render import stage, warpdrive  # noqa: E402
from gpu_zoo.render.stage import Frame  # noqa: E402
from gpu_zoo.render.warpdrive import GONE, REACH, RUNNER, TAGGER  # noqa: E402

PLANE = "warpdrive/tag_continuous_v0"
FLOOR = stage.FLOOR


def drawn(
    draw: Callable[..., None], scene: dict[str, Any], params: dict[str, Any], spec: Any = None
) -> Any:
    """The picture as uint8 ``(700, 700, 3)``."""
    surface = pygame.Surface((700, 700), 0, 32)
    arrays = {name: np.asarray(value) for name, value in scene.items()}
    draw(surface, spec or gpu_zoo.spec(PLANE), arrays, arrays, params)
    return pygame.surfarray.array3d(surface).transpose(1, 0, 2)


def frame(units: float) -> Frame:
    return Frame.of(pygame.Surface((700, 700), 0, 32), units)


def pixel(image: Any, units: float, x: float, y: float) -> tuple[int, ...]:
    column, row = frame(units).at(x, y)
    return tuple(int(v) for v in image[round(row), round(column)])


def plane(x: Any, y: Any, seen: Any = None, taggers: int = 1, **more: Any) -> Any:
    """Agents at places of a square of side 10; ``more`` is the scene's, or the parameters'."""
    spec = gpu_zoo.spec(PLANE)
    values = {n: more.pop(n) for n in list(more) if n in spec.params}
    params = spec.resolve({"num_taggers": taggers, "num_runners": len(x) - taggers, **values})
    n = len(x)
    scene = {
        "x": np.array(x, np.float32),
        "y": np.array(y, np.float32),
        "direction": np.zeros(n, np.float32),
        "seen": np.ones(n, np.uint8) if seen is None else np.array(seen, np.uint8),
        **more,
    }
    return drawn(warpdrive.draw, scene, dict(params), spec)


def test_each_agent_has_its_groups_colour_where_it_is() -> None:
    x, y = [1.0, 8.0, 2.5, 9.0, 5.0], [1.0, 2.0, 8.0, 9.5, 5.0]
    image = plane(x, y, taggers=2)
    for i in range(5):
        assert pixel(image, 10, x[i], y[i]) == (TAGGER if i < 2 else RUNNER), i
    assert pixel(image, 10, 7, 7) == FLOOR
    assert not np.array_equal(image, plane([1.5, *x[1:]], y, taggers=2))


@pytest.mark.parametrize("quarter", range(4))
def test_an_agent_points_where_it_is_heading(quarter: int) -> None:
    heading = quarter * math.pi / 2
    image = plane([2, 6], [2, 6], direction=np.array([0, heading], np.float32))
    for other in range(4):
        angle = other * math.pi / 2
        nose = pixel(image, 10, 6 + 0.3 * math.cos(angle), 6 + 0.3 * math.sin(angle))
        assert (nose == RUNNER) == (other == quarter), other


def test_how_far_a_tagger_reaches() -> None:
    image = plane([5, 1], [5, 1], tagging_distance=0.2)
    # The distance is a fraction of the square's side.
    assert pixel(image, 10, 5, 6.9) == REACH and pixel(image, 10, 3.1, 5) == REACH
    assert pixel(image, 10, 5, 7.1) == FLOOR
    assert pixel(image, 10, 1, 2) == FLOOR, "runners do not tag"
    corner = plane([0, 5], [0, 5], tagging_distance=0.2)
    assert tuple(corner[-1, 0]) == (255, 255, 255), "beyond the wall"


def test_who_has_left_is_faint_and_who_leaves_now_is_crossed_out() -> None:
    x, y = [1, 3, 5, 7], [5, 5, 5, 5]
    flags = {"active/tagger": np.array([True]), "active/runner": np.array([True, False, False])}
    image = plane(x, y, seen=[1, 1, 1, 0], **flags)
    assert pixel(image, 10, 3, 5) == RUNNER
    assert pixel(image, 10, 5, 5) == TAGGER  # the cross
    assert pixel(image, 10, 7, 5) == GONE
    # Of those that have left, only a scene of the state alone says less.
    assert pixel(plane(x, y, seen=[1, 1, 1, 0]), 10, 5, 5) == RUNNER
    assert pixel(plane(x, y, seen=[1, 1, 1, 0]), 10, 7, 5) == GONE


def test_the_step_is_shown() -> None:
    above = slice(0, 50)
    images = [plane([1, 5], [1, 5], steps=np.array(t)) for t in (3, 4)]
    silent = plane([1, 5], [1, 5])
    assert (images[0][above] != images[1][above]).any()
    np.testing.assert_array_equal(images[0][60:], silent[60:])
    # Without a step there is still the number of runners.
    assert (silent[above, :350] == 255).all() and (silent[above, 350:] != 255).any()


@pytest.mark.parametrize("agents", [2, 11, 300, 2000])
def test_a_crowd_can_be_told_apart(agents: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 10, (2, agents))
    image = plane(x, y, taggers=max(agents // 10, 1))
    for color in (TAGGER, RUNNER):
        assert (image[::2, ::2] == color).all(axis=2).any()


# All faces that show it ----------------------------------------------------------------------


def test_batch_and_drop_in_show_the_same() -> None:
    pictures = []
    parallel = gpu_zoo.make(PLANE, render_mode="rgb_array", numerics="fast")
    env = tag_continuous_v0.env(render_mode="rgb_array", numerics="fast")
    batch = gpu_zoo.make_vec(PLANE, 3, autoreset_mode="disabled")
    batch.reset(seed=3)
    parallel.reset(seed=5)
    env.reset(seed=5)
    rng = np.random.default_rng(0)
    for _ in range(6):
        actions = {a: rng.integers(0, 11, 2).astype(np.int32) for a in parallel.agents}
        parallel.step(actions)
        for agent in list(env.agents):
            env.step(actions[agent])
        batch.step({a: np.tile(action, (3, 1)) for a, action in actions.items()})
        pictures.append(batch.render(2))
        np.testing.assert_array_equal(parallel.render(), pictures[-1])
        np.testing.assert_array_equal(env.render(), pictures[-1])
    assert all((a != b).any() for a, b in pairwise(pictures))


@pytest.mark.parametrize("face", ["parallel_env", "env"])
def test_drop_ins_draw_to_the_end_though_agents_leave(face: str) -> None:
    few = {"num_taggers": 3, "num_runners": 3, "grid_length": 2.0, "tagging_distance": 0.2}
    env = getattr(tag_continuous_v0, face)(render_mode="rgb_array", **few)
    env.reset(seed=1)
    pictures, left = [env.render()], False
    while env.agents:
        for space in map(env.action_space, env.agents):
            space.seed(len(pictures))
        if face == "parallel_env":
            env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        else:
            agent = env.agent_selection
            over = env.terminations[agent] or env.truncations[agent]
            env.step(None if over else env.action_space(agent).sample())
        left |= 0 < len(env.agents) < 6
        pictures.append(env.render())
    assert left and {picture.shape for picture in pictures} == {(700, 700, 3)}
    assert (pictures[-1] != pictures[0]).any()


def test_pettingzoos_own_render_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render_test(tag_continuous_v0.env)
    pygame.display.quit()


# The grid --------------------------------------------------------------------------------------

GRID = {"grid_length": 10, "num_taggers": 2, "episode_length": 100}  # 11 by 11 cells


def test_agents_of_the_grid() -> None:
    image = drawn(warpdrive.draw_gridworld, {"x": [0, 10, 4], "y": [0, 10, 7]}, GRID)
    for x, y, color in ((0, 0, TAGGER), (10, 10, TAGGER), (4, 7, RUNNER)):
        assert pixel(image, 11, x + 0.5, y + 0.5) == color
    assert pixel(image, 11, 4.06, 7.06) not in (FLOOR, REACH), "the runner's cell stands out"
    assert pixel(image, 11, 0.06, 0.06) == pixel(image, 11, 6.06, 6.06) == FLOOR


def test_agents_of_one_cell_are_all_seen() -> None:
    image = drawn(warpdrive.draw_gridworld, {"x": [4, 4, 4], "y": [7, 7, 7]}, GRID)
    # Two by two: the taggers above, the runner below.
    for x, y, color in ((0.25, 0.75, TAGGER), (0.75, 0.75, TAGGER), (0.25, 0.25, RUNNER)):
        assert pixel(image, 11, 4 + x, 7 + y) == color
    assert pixel(image, 11, 4.8, 7.2) == REACH, "tagged"


# The catalyst ----------------------------------------------------------------------------------

SLAB = {
    "nx": 10, "ny": 8, "z_slab_lower": 4, "z_slab_upper": 7, "episode_length": 50,
    "initial_state": (1.0, 2.0, 4.0), "final_state": (8.0, 6.0, 5.0),
}  # fmt: skip


def test_atoms_begin_and_goal() -> None:
    scene = {"position": np.array([3, 3, 5], np.int32)}
    image = drawn(warpdrive.draw_catalyst, scene, SLAB)
    assert pixel(image, 10, 3.5, 3.5) == TAGGER
    half = 0.45 - 0.02  # a little within the square's edge
    assert pixel(image, 10, 8.5 - half, 6.5) == pixel(image, 10, 8.5, 6.5 + half) == RUNNER
    assert pixel(image, 10, 1.5, 2.5 + half) == stage.TEXT
    both = {**SLAB, "initial_state": (1, 2, 4, 6, 1, 4), "final_state": (8, 6, 5, 2, 6, 5)}
    image = drawn(warpdrive.draw_catalyst, {"position": np.array([3, 3, 5, 7, 1, 6])}, both)
    assert pixel(image, 10, 3.5, 3.5) == pixel(image, 10, 7.5, 1.5) == TAGGER


def test_the_height_is_a_bar() -> None:
    full = []
    for z in (4, 5, 6):
        image = drawn(warpdrive.draw_catalyst, {"position": np.array([3, 3, z])}, SLAB)
        left, top = frame(10).at(3.5, 3.5)
        radius = 0.45 * frame(10).side / 10
        bar = image[round(top - radius) : round(top + radius), round(left + 1.2 * radius) + 3]
        full.append((bar == TAGGER).all(axis=1).mean())
    assert full[0] < 0.1 < 0.4 < full[1] < 0.6 < 0.9 < full[2]


def test_energies_are_the_background_and_read_once() -> None:
    reads = []

    def load(params: Any) -> Any:
        reads.append(params)
        energy = np.zeros((10, 8, 3))
        energy[5:, :, 1] = 2.0
        return energy

    spec = dataclasses.replace(
        gpu_zoo.spec(PLANE), tables={"energy": Table("real", (10, 8, 3), "eV", load)}
    )
    for z, differs in ((5, True), (6, False), (5, True)):
        image = drawn(warpdrive.draw_catalyst, {"position": np.array([3, 3, z])}, SLAB, spec)
        low, high = pixel(image, 10, 4.2, 7.2), pixel(image, 10, 5.8, 7.2)
        assert (low != high) == differs and sum(high) <= sum(low)
    assert len(reads) == 1
