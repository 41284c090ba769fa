"""Pictures of the particle environments, pixel for pixel as mpe2 draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.render.screen import Scene
from gpu_zoo.spec import Value

WHITE = (255, 255, 255)
BLACK = (0, 0, 0)
PIXELS_A_UNIT = 350  # of a radius, before rescaling
MARGIN = 0.9  # the outermost centre lies at this share of the half window
# Beyond this a disc around any point of the window covers all of it; pygame's time grows with it.
MAX_RADIUS = 1000.0


@dataclass(frozen=True)
class Look:
    """How a body looks: radius in world units, and colour."""

    size: float
    colour: tuple[int, int, int]


SPREAD_AGENT = Look(0.15, (70, 70, 170))
SPREAD_LANDMARK = Look(0.05, (50, 50, 50))
TAG_ADVERSARY = Look(0.075, (170, 70, 70))
TAG_AGENT = Look(0.05, (70, 170, 70))
TAG_OBSTACLE = Look(0.2, (50, 50, 50))


def draw_spread(surface: Any, scene: Scene, start: Scene, params: Mapping[str, Value]) -> None:
    """Draw simple_spread: blue agents and small dark landmarks."""
    looks = [SPREAD_AGENT] * len(scene["pos"]) + [SPREAD_LANDMARK] * len(scene["landmark"])
    _draw(surface, looks, scene, start, params)


def draw_tag(surface: Any, scene: Scene, start: Scene, params: Mapping[str, Value]) -> None:
    """Draw simple_tag: red adversaries, green good agents and large dark obstacles."""
    looks = [
        *[TAG_ADVERSARY] * int(params["num_adversaries"] or 0),
        *[TAG_AGENT] * int(params["num_good"] or 0),
        *[TAG_OBSTACLE] * len(scene["landmark"]),
    ]
    _draw(surface, looks, scene, start, params)


def _draw(
    surface: Any,
    looks: Sequence[Look],
    scene: Scene,
    start: Scene,
    params: Mapping[str, Value],
) -> None:
    """Draw agents, then landmarks; the camera shows all of them whatever their positions."""
    positions = _positions(scene)
    camera = _camera(positions)
    zoom = MARGIN * _camera(_positions(start)) / camera if params["dynamic_rescaling"] else 1.0
    draw_bodies(surface, positions, looks, camera, zoom)


def draw_bodies(
    surface: Any,
    positions: npt.NDArray[np.float64],
    looks: Sequence[Look],
    camera: float,
    zoom: float,
) -> None:
    """Draw discs with a thin black border, later ones over earlier ones, on white.

    Args:
        surface: the pygame surface to draw on.
        positions: centres (x, y) in world units.
        looks: one a body.
        camera: the world coordinate that is shown near the window's edge.
        zoom: factor on the radii.
    """
    import pygame

    width, height = surface.get_size()
    surface.fill(WHITE)
    for (x, y), look in zip(positions, looks, strict=True):
        if not np.isfinite([x, y]).all():
            continue
        # Whole pixels before the margin is applied, y upwards: mpe2's own order of rounding.
        centre = (
            (x / camera) * width // 2 * MARGIN + width // 2,
            (-y / camera) * height // 2 * MARGIN + height // 2,
        )
        radius = min(look.size * PIXELS_A_UNIT * zoom, MAX_RADIUS)
        pygame.draw.circle(surface, look.colour, centre, radius)
        pygame.draw.circle(surface, BLACK, centre, radius, 1)


def _positions(scene: Scene) -> npt.NDArray[np.float64]:
    return np.concatenate([scene["pos"], scene["landmark"]]).astype(np.float64)


def _camera(positions: npt.NDArray[np.float64]) -> float:
    """The largest coordinate; 1 where there is none to go by."""
    finite = np.abs(positions[np.isfinite(positions)])
    return float(finite.max(initial=0.0)) or 1.0
