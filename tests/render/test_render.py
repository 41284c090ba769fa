"""Pictures: the same pixels as the original's, and no harm to the rest of the process."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import render_test
from toys import STAY_OR_GO

import gpu_zoo
from gpu_zoo.errors import MissingDependency, ResetNeeded
from gpu_zoo.render.screen import SIZE, Screen, picture, require_display
from gpu_zoo.spec import evaluate
from gpu_zoo.vector import VectorEnv

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
pygame = pytest.importorskip("pygame")

SPREAD_AGENT, SPREAD_LANDMARK = (70, 70, 170), (50, 50, 50)
SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"
CRYPTO, TREASURE = "mpe/simple_crypto_v3", "mpe/collect_treasure_v1"
MPE = [env_id for env_id in gpu_zoo.list_ids() if env_id.startswith("mpe/")]
SPEAKING = [env_id for env_id in MPE if gpu_zoo.spec(env_id).world.n_speakers != "0"]
SEEDS = range(4)
# Mean difference of a whole picture of 255 levels: mpe2 has its own font, which is not copied.
TEXT_DIFFERENCE = 5.0
CASES: list[tuple[str, dict[str, Any]]] = [
    *((env_id, {}) for env_id in MPE),
    *((env_id, {"dynamic_rescaling": False}) for env_id in MPE),
    *((env_id, {"continuous_actions": True}) for env_id in SPEAKING),
    (SPREAD, {"N": 1}),
    (SPREAD, {"N": 7, "continuous_actions": True}),
    (TAG, {"num_good": 3, "num_adversaries": 2, "num_obstacles": 0}),
    (TAG, {"num_good": 0, "num_adversaries": 2, "num_obstacles": 5}),
]


@pytest.fixture
def dummy_display(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame.display.quit()
    yield
    pygame.display.quit()


def _pair(env_id: str, **params: Any) -> tuple[Any, Any]:
    name = env_id.rsplit("/", 1)[-1]
    ours = importlib.import_module(f"gpu_zoo.mpe.{name}")
    theirs = pytest.importorskip(f"mpe2.{name}")
    return ours.parallel_env(**params), theirs.parallel_env(**params)


def _action(space: Any, rng: np.random.Generator) -> Any:
    if hasattr(space, "n"):
        return int(rng.integers(space.n))
    return rng.uniform(space.low, space.high).astype(np.float32)


def _scene(pos: Any, landmark: Any) -> dict[str, Any]:
    return {
        "pos": np.asarray(pos, np.float64).reshape(-1, 2),
        "landmark": np.asarray(landmark, np.float64).reshape(-1, 2),
        "utterance": np.zeros((0, 0)),
    }


def _without_text(image: Any, spec: gpu_zoo.EnvSpec) -> Any:
    """The picture with the speakers' lines blanked out, each 35 pixels high from (35, 665) up."""
    blank = image.copy()
    blank[700 - 35 * evaluate(spec.world.n_speakers, {}) :, 35:] = 255
    return blank


def _count(image: Any, color: tuple[int, int, int]) -> int:
    return int((image == np.array(color, np.uint8)).all(axis=2).sum())


def _draw(scene: Any, start: Any = None, env_id: str = SPREAD, **params: Any) -> Any:
    spec = gpu_zoo.spec(env_id)
    if env_id == SPREAD:
        params["N"] = len(scene["pos"])
    screen = Screen(spec, "rgb_array", 10)
    image = screen.show(scene, scene if start is None else start, spec.resolve(params))
    screen.close()
    return image


@pytest.mark.parametrize(("env_id", "params"), CASES, ids=lambda value: str(value)[-50:])
def test_pixels_are_the_originals(env_id: str, params: dict[str, Any]) -> None:
    ours, theirs = _pair(env_id, render_mode="rgb_array", **params)
    compared = 0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        ours.reset(seed=seed)
        theirs.reset(seed=seed)
        for step in range(26):
            if step % 5:
                actions = {a: _action(theirs.action_space(a), rng) for a in theirs.agents}
                ours.step(actions)
                theirs.step(actions)
                continue
            got, wanted = ours.render(), theirs.render()
            assert got.shape == wanted.shape == (700, 700, 3)
            assert got.dtype == wanted.dtype == np.uint8
            # Exact: a landmark in a wrong colour moves the mean by only 0.2.
            spec = gpu_zoo.spec(env_id)
            np.testing.assert_array_equal(_without_text(got, spec), _without_text(wanted, spec))
            difference = np.abs(got.astype(int) - wanted).mean()
            assert difference <= (TEXT_DIFFERENCE if env_id in SPEAKING else 0)
            compared += 1
    assert compared == 6 * len(SEEDS)


class Recorder:
    """In place of mpe2's font: keeps what would be written, and where."""

    def __init__(self) -> None:
        self.written: list[tuple[float, float, str]] = []

    def render_to(self, surface: Any, corner: tuple[float, float], text: str, color: Any) -> None:
        self.written.append((*corner, text.rstrip()))


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("env_id", SPEAKING)
def test_text_is_the_originals(
    env_id: str, continuous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = _pair(env_id, render_mode="rgb_array", continuous_actions=continuous)
    recorders = Recorder(), Recorder()
    monkeypatch.setattr(pygame.freetype, "Font", lambda *_: recorders[0])
    theirs.unwrapped.game_font = recorders[1]
    rng, words = np.random.default_rng(0), set()
    ours.reset(seed=0)
    theirs.reset(seed=0)
    for _ in range(25):
        ours.render()
        theirs.render()
        words.update(text for _, _, text in recorders[1].written)
        assert recorders[0].written == recorders[1].written
        for recorder in recorders:
            recorder.written.clear()
        actions = {a: _action(theirs.action_space(a), rng) for a in theirs.agents}
        ours.step(actions)
        theirs.step(actions)
    assert len(words) >= 4 and any(word.endswith(" _") for word in words)


def test_text_shows_who_says_what() -> None:
    scene = {
        "pos": np.array([[-1.0, 1.0], [0.0, 0.0], [1.0, 0.5]]),
        "landmark": np.array([[0.5, 1.0], [-0.5, 0.5]]),
        "utterance": np.zeros((3, 4)),
        "goal": np.array(0),
    }
    silence = _draw(scene, env_id=CRYPTO)
    seen = [silence]
    for speaker in range(3):
        for word in range(4):
            said = {**scene, "utterance": np.zeros((3, 4))}
            said["utterance"][speaker, word] = 1
            image = _draw(said, env_id=CRYPTO)
            rows = np.flatnonzero((image != silence).any(axis=(1, 2)))
            # Only in the speaker's own line, of which the first is the lowest.
            assert len(rows) and 700 - 35 * (speaker + 1) <= rows[0], rows
            assert rows[-1] < 700 - 35 * speaker, rows
            assert all((image != other).any() for other in seen)
            seen.append(image)
            loud = _draw(said, env_id=CRYPTO, continuous_actions=True)
            assert (loud != image).any()


def test_fonts_start_only_where_somebody_speaks() -> None:
    program = """
import sys, gpu_zoo
import pygame
for env_id, spoken in (("mpe/simple_tag_v3", False), ("mpe/simple_crypto_v3", True)):
    env = gpu_zoo.make(env_id, render_mode="rgb_array")
    env.reset(seed=0)
    env.render()
    freetype = sys.modules.get("pygame.freetype")
    assert (freetype is not None and freetype.get_init()) is spoken, env_id
    assert not pygame.display.get_init() and not pygame.font.get_init()
    assert pygame.mixer.get_init() is None and not pygame.joystick.get_init()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_text_after_others_have_stopped_the_fonts() -> None:
    env, _ = _pair(CRYPTO, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    pygame.quit()
    np.testing.assert_array_equal(env.render(), before)


def test_treasure_that_is_away_is_not_drawn() -> None:
    envs = _pair(TREASURE, render_mode="rgb_array")
    before = []
    for env in envs:
        env.reset(seed=0)
        before.append(env.render())
        world = env.unwrapped.world
        world.agents[0].state.p_pos = world.landmarks[0].state.p_pos.copy()
        env.step(dict.fromkeys(env.agents, 0))
        assert not world.landmarks[0].alive
    after = [env.render() for env in envs]
    np.testing.assert_array_equal(*after)
    assert (after[0] != before[0]).any()


def test_a_picture_stays_as_it_was() -> None:
    env, _ = _pair(SPREAD, render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    kept = first.copy()
    for _ in range(5):
        env.step(dict.fromkeys(env.agents, 1))
    assert (env.render() != kept).any()
    np.testing.assert_array_equal(first, kept)


def test_rescaling_changes_radii_and_only_radii() -> None:
    start, later = _scene([[0, 0]], [[1, 0]]), _scene([[0, 0]], [[4, 0]])
    # The border takes a pixel off the radius.
    for rescale, radius in ((False, int(52.5) - 1), (True, int(52.5 * 0.9 / 4) - 1)):
        image = _draw(later, start, dynamic_rescaling=rescale)
        assert _count(image, SPREAD_AGENT) == pytest.approx(np.pi * radius**2, rel=0.1)
        assert tuple(image[350, 350]) == SPREAD_AGENT
        assert tuple(image[350, 350 + 315 - 1]) == SPREAD_LANDMARK


@pytest.mark.parametrize(
    "scene",
    [
        _scene(np.zeros((3, 2)), np.zeros((3, 2))),
        _scene([[1e30, 0], [0, 0]], [[0, -1e30], [0, 0]]),
        _scene([[1e-30, 0], [0, 0]], [[0, 0], [0, 0]]),
        _scene([[np.nan, 0], [0.5, 0.5]], [[np.inf, 0], [0, 0]]),
    ],
    ids=["origin", "far", "near", "not finite"],
)
def test_any_scene_draws(scene: Any) -> None:
    for start in (scene, _scene([[1, 0]], [[0, 1]])):
        for rescale in (True, False):
            image = _draw(scene, start, dynamic_rescaling=rescale)
            assert image.shape == (700, 700, 3)
            # Seen from very far a body is smaller than a pixel; from anywhere else it is there.
            if 0 < np.abs(scene["pos"]).max(initial=0.0) < 1e6:
                # Seen from very near, the last body covers all others.
                assert any(_count(image, color) for color in (SPREAD_AGENT, SPREAD_LANDMARK))


def test_render_without_a_mode_warns_as_the_original() -> None:
    ours, theirs = _pair(SPREAD)
    messages = []
    for env in (ours, theirs):
        env.reset(seed=0)
        with pytest.warns(UserWarning) as caught:
            assert env.render() is None
        messages.append([str(w.message) for w in caught])
    assert messages[0] == messages[1]


def test_window_shows_the_same_picture(dummy_display: None) -> None:
    shown, _ = _pair(SPREAD, render_mode="human")
    drawn, _ = _pair(SPREAD, render_mode="rgb_array")
    for env in (shown, drawn):
        env.reset(seed=3)
        env.step(dict.fromkeys(env.agents, 2))
    # The step itself has shown the scene.
    window = pygame.surfarray.array3d(pygame.display.get_surface()).transpose(1, 0, 2)
    np.testing.assert_array_equal(window, drawn.render())
    assert pygame.display.get_surface().get_size() == SIZE
    assert shown.render() is None
    shown.close()
    assert not pygame.display.get_init()
    shown.close()


def test_window_keeps_its_frame_rate(dummy_display: None) -> None:
    ticks: list[float] = []
    spec, scene = gpu_zoo.spec(SPREAD), _scene([[1, 0]], [[0, 1]])
    params = spec.resolve({"N": 1})
    screen = Screen(spec, "human", 50)
    for _ in range(6):
        screen.show(scene, scene, params)
        ticks.append(pygame.time.get_ticks())
    screen.close()
    # Five pauses of 20 ms; a machine under load may take longer, never less.
    assert ticks[-1] - ticks[0] >= 90


def test_screens_do_not_disturb_each_other(dummy_display: None) -> None:
    spec, scene = gpu_zoo.spec(SPREAD), _scene([[1, 0], [0, 0.5]], [[0, 1], [1, 1]])
    params = spec.resolve({"N": 2})
    first, second = Screen(spec, "human", 1000), Screen(spec, "human", 1000)
    array = Screen(spec, "rgb_array", 10)
    before = array.show(scene, scene, params)
    first.show(scene, scene, params)
    second.show(scene, scene, params)
    first.close()
    assert pygame.display.get_init(), "the second screen lost its window"
    second.show(scene, scene, params)
    second.close()
    assert not pygame.display.get_init()
    np.testing.assert_array_equal(array.show(scene, scene, params), before)
    # mpe2 quits all of pygame when one of its environments closes.
    first.show(scene, scene, params)
    pygame.quit()
    np.testing.assert_array_equal(array.show(scene, scene, params), before)
    first.show(scene, scene, params)
    first.close()


def test_closing_leaves_the_rest_of_pygame_alone(dummy_display: None) -> None:
    pygame.font.init()
    spec, scene = gpu_zoo.spec(SPREAD), _scene([[1, 0]], [[0, 1]])
    params = spec.resolve({"N": 1})
    for mode in ("human", "rgb_array"):
        screen = Screen(spec, mode, 1000)
        screen.show(scene, scene, params)
        assert pygame.mixer.get_init() is None, "audio was started"
        screen.close()
    assert pygame.font.get_init()


@pytest.mark.parametrize("env_id", MPE)
def test_pettingzoos_own_render_test(env_id: str, dummy_display: None) -> None:
    module = importlib.import_module(f"gpu_zoo.mpe.{env_id.rsplit('/', 1)[-1]}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render_test(module.env)


def test_no_picture() -> None:
    env = VectorEnv(STAY_OR_GO, 1)
    env.reset(seed=0)
    assert env.metadata["render_modes"] == []
    with pytest.raises(NotImplementedError, match=f"{STAY_OR_GO.id} cannot be drawn"):
        env.render()


def test_every_environment_has_a_picture() -> None:
    for env_id in gpu_zoo.list_ids():
        env = gpu_zoo.make_vec(env_id)
        assert env.metadata["render_modes"] == ["human", "rgb_array"]
        assert env.metadata["render_fps"] == gpu_zoo.spec(env_id).render_fps


@pytest.mark.parametrize("env_id", MPE)
def test_picture_of_a_batch(env_id: str) -> None:
    env = gpu_zoo.make_vec(env_id, num_envs=3)
    with pytest.raises(ResetNeeded):
        picture(env, 0)
    env.reset(seed=1)
    state = env.get_state()
    for index in range(3):
        scene = {name: value[index] for name, value in state.items()}
        np.testing.assert_array_equal(picture(env, index), _draw(scene, env_id=env_id))
    assert (picture(env, 0) != picture(env, 1)).any()
    for index in (-1, 3):
        with pytest.raises(IndexError, match=f"index={index}"):
            picture(env, index)


def test_picture_of_torch_arrays() -> None:
    pytest.importorskip("torch")
    pictures = []
    for array in ("numpy", "torch"):
        env = gpu_zoo.make_vec(SPREAD, num_envs=2, array=array)
        env.reset(seed=1)
        pictures.append(picture(env, 1))
    np.testing.assert_array_equal(*pictures)


def test_without_pygame_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(MissingDependency, match=r"pip install 'gpu-zoo\[render\]'"):
        Screen(gpu_zoo.spec(SPREAD), "rgb_array", 10)


def test_without_a_draw_function_the_error_says_so() -> None:
    spec = dataclasses.replace(gpu_zoo.spec(SPREAD), render=None)
    with pytest.raises(NotImplementedError, match=spec.id):
        Screen(spec, "rgb_array", 10)


def test_require_display(monkeypatch: pytest.MonkeyPatch, dummy_display: None) -> None:
    require_display()
    pygame.display.quit()
    monkeypatch.setenv("SDL_VIDEODRIVER", "no_such_driver")
    with pytest.raises(MissingDependency, match="no display"):
        require_display()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others always have a display")
@pytest.mark.parametrize("display", [None, ":987654"])
def test_a_display_that_is_not_there(monkeypatch: pytest.MonkeyPatch, display: str | None) -> None:
    pygame.display.quit()
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    if display is not None:
        monkeypatch.setenv("DISPLAY", display)
    with pytest.raises(MissingDependency, match="no display"):
        require_display()
    assert not pygame.display.get_init()
