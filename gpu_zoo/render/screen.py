"""Pictures of one environment: as an array, or in a window. Needs pygame, imported when used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from gpu_zoo.errors import MissingDependency
from gpu_zoo.memory import to_numpy
from gpu_zoo.spec import EnvSpec, Value

if TYPE_CHECKING:
    from gpu_zoo.vector import VectorEnv

SIZE = (700, 700)  # width and height in pixels, as mpe2 draws

Scene = Mapping[str, npt.NDArray[Any]]
Draw = Callable[[Any, EnvSpec, Scene, Scene, Mapping[str, Value]], None]

# Screens that show a window. SDL has one display for all of them, so the last one closes it.
_windows: WeakSet[Screen] = WeakSet()


class Screen:
    """Draws scenes with the spec's draw function.

    Nothing but the display is started in human mode and nothing at all in rgb_array mode, fonts
    aside where there is text to draw: audio and joysticks stay off. Human screens of one process
    share its one window.

    Args:
        spec: the environment; ``spec.render`` says what draws it.
        render_mode: ``"rgb_array"`` or ``"human"``.
        fps: the most frames a second that a window shows.

    Raises:
        MissingDependency: pygame is not installed.
        NotImplementedError: the spec names no draw function.
    """

    def __init__(self, spec: EnvSpec, render_mode: str, fps: float) -> None:
        if spec.render is None:
            raise NotImplementedError(f"{spec.id} cannot be drawn: its spec has no render function")
        self._pygame = _import_pygame()
        self._draw = _resolve(spec.render)
        self._spec = spec
        self._fps = fps
        self._window = render_mode == "human"
        self._clock: Any = None
        # 32 bits whatever the display has, or pixels could come back rounded.
        self._surface = self._pygame.Surface(SIZE, 0, 32)

    def show(
        self, scene: Scene, start: Scene, params: Mapping[str, Value]
    ) -> npt.NDArray[np.uint8] | None:
        """Draw a scene.

        Args:
            scene: the state's fields of one environment, and ``steps`` of its episode and
                ``active/<group>`` of its agents as in :meth:`VectorEnv.get_state`.
            start: the same at the start of the episode, which sets the scale.
            params: the environment's parameter values.

        Returns:
            uint8 ``(height, width, 3)`` in rgb_array mode; None in human mode.

        Raises:
            MissingDependency: human mode, and there is no display.
        """
        self._draw(self._surface, self._spec, scene, start, params)
        if self._window:
            self._show_window()
            return None
        pixels = self._pygame.surfarray.array3d(self._surface)
        return np.ascontiguousarray(pixels.transpose(1, 0, 2), dtype=np.uint8)

    def _show_window(self) -> None:
        pygame = self._pygame
        display = pygame.display.get_surface()
        if display is None:
            try:
                display = pygame.display.set_mode(SIZE)
            except pygame.error as error:
                raise MissingDependency(
                    f"render_mode='human': no display to open a window on ({error}); "
                    "use render_mode='rgb_array'"
                ) from error
        if self._clock is None:
            _windows.add(self)
            pygame.display.set_caption(self._spec.id)
            self._clock = pygame.time.Clock()
        display.blit(self._surface, (0, 0))
        # Answers the window manager; events stay in the queue for whoever wants them.
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        """Close the window once no other screen uses it; closing twice does nothing."""
        if self in _windows:
            _windows.remove(self)
            if not _windows:
                # Not pygame.quit(): what other code started with pygame goes on.
                self._pygame.display.quit()
        self._clock = None


def require_display() -> None:
    """Check that a window would be seen, before a program relies on one.

    Raises:
        MissingDependency: pygame is not installed, or there is no display.
    """
    pygame = _import_pygame()
    text, instead = "no display to open a window on", "record a file instead: --record episode.gif"
    displays = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in displays):
        raise MissingDependency(f"{text} ($DISPLAY is not set); {instead}")
    try:
        pygame.display.init()
    except pygame.error as error:
        raise MissingDependency(f"{text} ({error}); {instead}") from error
    # Without a display SDL falls back to drawing where nobody can look, and reports success.
    if pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ:
        pygame.display.quit()
        raise MissingDependency(f"{text} (SDL finds none); {instead}")


def picture(env: VectorEnv, index: int) -> npt.NDArray[np.uint8]:
    """Draw one environment of a batch: uint8 ``(700, 700, 3)``.

    The scale is as at the start of an episode, since a batch does not remember where its episodes
    began.

    Raises:
        IndexError: there is no such environment.
        ResetNeeded: no reset yet.
        MissingDependency: pygame is not installed.
    """
    if not 0 <= index < env.num_envs:
        raise IndexError(f"index={index}: expected 0 <= index < {env.num_envs}")
    state = env.get_state()
    scene = {name: to_numpy(value[index]) for name, value in state.items()}
    params = {n: v[index].item() if isinstance(v, np.ndarray) else v for n, v in env.params.items()}
    pixels = Screen(env.spec, "rgb_array", 0).show(scene, scene, params)
    assert pixels is not None
    return pixels


def _resolve(render: str) -> Draw:
    module, _, name = render.partition(":")
    draw: Draw = getattr(importlib.import_module(module), name)
    return draw


def _import_pygame() -> ModuleType:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        pygame = importlib.import_module("pygame")
        importlib.import_module("pygame.surfarray")
    except ImportError as error:
        raise MissingDependency(
            f"drawing needs pygame ({error}): pip install 'gpu-zoo[render]'"
        ) from error
    return pygame
