"""What pictures of one square scene share: the place of the square, discs, and a line of text."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpu_zoo.render.screen import Scene
from gpu_zoo.spec import EnvSpec, Value

Color = tuple[int, int, int]
Point = tuple[float, float]

WHITE, BLACK = (255, 255, 255), (0, 0, 0)
RED, GREEN = (170, 70, 70), (70, 170, 70)  # the particle environments'
FLOOR, LINE, WALL = (250, 250, 250), (224, 224, 224), (96, 96, 96)
TEXT = (64, 64, 64)
TEXT_SIZE = 26
MARGIN = 30  # pixels around the scene, and above it room for a line of text
CAPTION = 30


class Frame(NamedTuple):
    """The square of the window that shows the scene, and how many units it is wide."""

    left: float
    top: float
    side: float
    units: float

    @classmethod
    def of(cls, surface: Any, units: float) -> Frame:
        """As large as the window allows, below the caption."""
        width, height = surface.get_size()
        side = min(width - 2 * MARGIN, height - 2 * MARGIN - CAPTION)
        return cls((width - side) / 2, MARGIN + CAPTION, side, units)

    @property
    def scale(self) -> float:
        """Pixels a unit."""
        return self.side / self.units

    def at(self, x: float, y: float) -> Point:
        """The pixel of a place; y points upwards."""
        return self.left + x * self.scale, self.top + self.side - y * self.scale

    def rect(self) -> tuple[int, int, int, int]:
        """The square, in whole pixels."""
        return round(self.left), round(self.top), round(self.side), round(self.side)


def stage(surface: Any, units: float) -> Frame:
    """The empty square, so many units wide, on white."""
    surface.fill(WHITE)
    frame = Frame.of(surface, units)
    surface.fill(FLOOR, frame.rect())
    border(surface, frame)
    return frame


def border(surface: Any, frame: Frame) -> None:
    """The square's wall, outside of it."""
    import pygame

    left, top, width, height = frame.rect()
    pygame.draw.rect(surface, WALL, (left - 3, top - 3, width + 6, height + 6), 3)


def outline(radius: float) -> float:
    """Thin enough for the colour of a small disc to be seen."""
    return min(2.0, 0.2 * radius)


def disc(surface: Any, place: Point, radius: float, color: Color, edge: Color = BLACK) -> None:
    """A disc with an edge of another colour."""
    import pygame

    pygame.draw.circle(surface, edge, place, radius)
    pygame.draw.circle(surface, color, place, radius - outline(radius))


def caption(
    surface: Any,
    frame: Frame,
    spec: EnvSpec,
    scene: Scene,
    params: Mapping[str, Value],
    more: str = "",
) -> None:
    """On the left the step, where the scene has it; on the right what else there is to say."""
    limit = params[spec.time_limit]
    step = f"step {int(scene['steps'])} of {limit}" if "steps" in scene else ""
    left, _, width, _ = frame.rect()
    for text, to_the_right in ((step, False), (more, True)):
        if text:
            # Fonts are started by the first word, and again if others stopped them.
            freetype = importlib.import_module("pygame.freetype")
            freetype.init()
            font = freetype.Font(None, TEXT_SIZE)
            indent = width - font.get_rect(text).width if to_the_right else 0
            font.render_to(surface, (left + indent, MARGIN - 8), text, TEXT)
