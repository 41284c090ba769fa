"""Pictures of the particle environments, pixel for pixel as mpe2 draws them, text aside.

The text has mpe2's words and places; its letters are those of pygame's own font.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe.params import ALPHABET
from gpu_zoo.mpe.world import ParticleSpec
from gpu_zoo.render.screen import Scene
from gpu_zoo.spec import EnvSpec, Value

WHITE = (255, 255, 255)
BLACK = (0, 0, 0)
PIXELS_A_UNIT = 350  # of a radius, before rescaling
MARGIN = 0.9  # the outermost centre lies at this share of the half window
BRIGHTNESS = 200  # of a colour's 1
# Beyond this a disc around any point of the window covers all of it; pygame's time grows with it.
MAX_RADIUS = 1000.0
TEXT_SIZE = 24
TEXT_COLOR = (96, 96, 96)  # pygame's font is bold where mpe2's is thin: together as dark as that
TEXT_LEFT, TEXT_BOTTOM, TEXT_LINE = 0.05, 0.95, 0.05  # shares of the window


def draw(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """Draw agents, then landmarks; the camera shows all of them whatever their positions.

    What agents say stands at the lower left.
    """
    assert isinstance(spec, ParticleSpec)
    scope = spec.scope(params)
    agents, landmarks = spec.world.bodies(scope)
    positions = _positions(scene)
    shown = _shown(scene)
    camera = _camera(positions[shown])
    zoom = MARGIN * _camera(_positions(start)) / camera if params["dynamic_rescaling"] else 1.0
    draw_bodies(
        surface,
        positions[shown],
        np.array([body.size for body in (*agents, *landmarks)])[shown],
        spec.world.colors(scope, scene)[shown],
        camera,
        zoom,
        _messages(spec, scene, params),
    )


def draw_bodies(
    surface: Any,
    positions: npt.NDArray[np.float64],
    sizes: npt.NDArray[np.float64],
    colors: npt.NDArray[np.float64],
    camera: float,
    zoom: float,
    messages: Sequence[str],
) -> None:
    """Draw discs with a thin black border, later ones over earlier ones, on white.

    A message is written after the body it belongs to, so later discs may cover it, as in mpe2.

    Args:
        surface: the pygame surface to draw on.
        positions: centres (x, y) in world units.
        sizes: radii in world units, one a body.
        colors: red, green, blue from 0 to 1, one row a body.
        camera: the world coordinate that is shown near the window's edge.
        zoom: factor on the radii.
        messages: what the first bodies say.
    """
    import pygame

    width, height = surface.get_size()
    surface.fill(WHITE)
    lines = [*messages, *[""] * (len(positions) - len(messages))]
    bodies = zip(positions, sizes, colors, lines, strict=True)
    for number, ((x, y), size, color, line) in enumerate(bodies):
        if np.isfinite([x, y]).all():
            # Whole pixels before the margin is applied, y upwards: mpe2's own order of rounding.
            centre = (
                (x / camera) * width // 2 * MARGIN + width // 2,
                (-y / camera) * height // 2 * MARGIN + height // 2,
            )
            radius = min(size * PIXELS_A_UNIT * zoom, MAX_RADIUS)
            pygame.draw.circle(surface, color * BRIGHTNESS, centre, radius)
            pygame.draw.circle(surface, BLACK, centre, radius, 1)
        if line:
            _write(surface, line, number)


def _write(surface: Any, line: str, number: int) -> None:
    """Write a line above the ones before it."""
    # Fonts are started by the first word that is ever said, and again if others stopped them.
    freetype = importlib.import_module("pygame.freetype")
    freetype.init()
    width, height = surface.get_size()
    corner = width * TEXT_LEFT, height * TEXT_BOTTOM - height * TEXT_LINE * number
    freetype.Font(None, TEXT_SIZE).render_to(surface, corner, line, TEXT_COLOR)


def _messages(spec: ParticleSpec, scene: Scene, params: Mapping[str, Value]) -> list[str]:
    """What each speaker says, in mpe2's words."""
    names = [agent for group in spec.layout(params) for agent in group.agents]
    said = scene["utterance"]
    continuous = bool(params["continuous_actions"])
    return [
        f"{name} sends {_word(loudness, continuous)}"
        for name, loudness in zip(names, said, strict=False)
    ]


def _word(loudness: npt.NDArray[Any], continuous: bool) -> str:
    if not loudness.any():
        return "_"
    if continuous:
        return "[" + ",".join(f"{value:.2f}" for value in loudness) + "]"
    return ALPHABET[int(np.argmax(loudness))]


def _positions(scene: Scene) -> npt.NDArray[np.float64]:
    return np.concatenate([scene["pos"], scene["landmark"]]).astype(np.float64)


def _shown(scene: Scene) -> npt.NDArray[np.bool_]:
    """Which bodies are there to be seen; a landmark may be away until it respawns."""
    shown = np.ones(len(_positions(scene)), np.bool_)
    if "alive" in scene:
        shown[len(scene["pos"]) :] = scene["alive"]
    return shown


def _camera(positions: npt.NDArray[np.float64]) -> float:
    """The largest coordinate; 1 where there is none to go by."""
    finite = np.abs(positions[np.isfinite(positions)])
    return float(finite.max(initial=0.0)) or 1.0
