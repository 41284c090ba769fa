"""Pictures of the particle environments, pixel for pixel as mpe2 draws them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

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


def draw(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """Draw agents, then landmarks; the camera shows all of them whatever their positions."""
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
    )


def draw_bodies(
    surface: Any,
    positions: npt.NDArray[np.float64],
    sizes: npt.NDArray[np.float64],
    colors: npt.NDArray[np.float64],
    camera: float,
    zoom: float,
) -> None:
    """Draw discs with a thin black border, later ones over earlier ones, on white.

    Args:
        surface: the pygame surface to draw on.
        positions: centres (x, y) in world units.
        sizes: radii in world units, one a body.
        colors: red, green, blue from 0 to 1, one row a body.
        camera: the world coordinate that is shown near the window's edge.
        zoom: factor on the radii.
    """
    import pygame

    width, height = surface.get_size()
    surface.fill(WHITE)
    for (x, y), size, color in zip(positions, sizes, colors, strict=True):
        if not np.isfinite([x, y]).all():
            continue
        # Whole pixels before the margin is applied, y upwards: mpe2's own order of rounding.
        centre = (
            (x / camera) * width // 2 * MARGIN + width // 2,
            (-y / camera) * height // 2 * MARGIN + height // 2,
        )
        radius = min(size * PIXELS_A_UNIT * zoom, MAX_RADIUS)
        pygame.draw.circle(surface, color * BRIGHTNESS, centre, radius)
        pygame.draw.circle(surface, BLACK, centre, radius, 1)


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
