"""Pictures of the classic control environments, to scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpu_zoo.render.screen import Scene
from gpu_zoo.render.stage import (
    BLACK,
    GREEN,
    LINE,
    RED,
    WALL,
    Color,
    Frame,
    Point,
    border,
    caption,
    disc,
    stage,
)
from gpu_zoo.spec import EnvSpec, Value

BLUE = (70, 70, 170)
GROUND = (214, 222, 214)
BAND = (226, 238, 226)  # how far a pole may lean

# The track, the pole and how far it may lean are those of kernels/classic/cartpole_v1.cu.
TRACK, POLE, LEAN = 2.4, 1.0, math.radians(12)
CART_WIDTH, CART_HEIGHT, CART_BOTTOM = 0.5, 0.3, 1.5
# Where the valley ends, and the two cars' goals.
LEFT, RIGHT = -1.2, 0.6
GOAL, GOAL_CONTINUOUS = 0.5, 0.45
SKY = 0.35  # how far the valley is above the picture's lower edge
CAR_LENGTH, CAR_HEIGHT, WHEEL = 0.14, 0.06, 0.025
# Both links of acrobot are 1 long, and so is the pendulum; the line is 1 above the joint.
LINK, THICK, REACH = 1.0, 0.16, 2.2
PENDULUM_REACH = 1.3


def draw_cartpole(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """The cart on its track, and the pole in the wedge that it must stay in."""
    import pygame

    frame = stage(surface, 2 * TRACK)
    middle, lean = TRACK + float(scene["x"]), float(scene["theta"])
    joint = (middle, CART_BOTTOM + CART_HEIGHT)
    surface.set_clip(frame.rect())
    wedge = [joint, *(_end(joint, POLE, side * LEAN) for side in (-1, 1))]
    pygame.draw.polygon(surface, BAND, [frame.at(*corner) for corner in wedge])
    pygame.draw.line(surface, WALL, frame.at(0, CART_BOTTOM), frame.at(2 * TRACK, CART_BOTTOM), 2)
    left, top = frame.at(middle - CART_WIDTH / 2, joint[1])
    size = CART_WIDTH * frame.scale, CART_HEIGHT * frame.scale
    pygame.draw.rect(surface, BLUE, (left, top, *size))
    _bar(surface, frame, joint, _end(joint, POLE, lean), 0.08, RED)
    surface.set_clip(None)
    border(surface, frame)
    caption(surface, frame, spec, scene, params)


def draw_mountain_car(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """A car on its wheels in the valley, and a flag at the goal."""
    _draw_valley(surface, spec, scene, params, GOAL)


def draw_mountain_car_continuous(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """As :func:`draw_mountain_car`; the goal is a little nearer."""
    _draw_valley(surface, spec, scene, params, GOAL_CONTINUOUS)


def draw_acrobot(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """Two links, the upper one's joint in the middle, and the line that the end must reach."""
    import pygame

    frame = stage(surface, 2 * REACH)
    joint = (REACH, REACH)
    pygame.draw.line(surface, GREEN, frame.at(0, REACH + 1), frame.at(2 * REACH, REACH + 1), 3)
    first, second = (float(angle) for angle in scene["theta"])
    # Angles count from hanging down, the way that leads to the right.
    elbow = _end(joint, LINK, math.pi - first)
    end = _end(elbow, LINK, math.pi - first - second)
    _bar(surface, frame, joint, elbow, THICK, BLUE)
    _bar(surface, frame, elbow, end, THICK, RED)
    for place in (joint, elbow):
        disc(surface, frame.at(*place), THICK / 2 * frame.scale, LINE)
    caption(surface, frame, spec, scene, params)


def draw_pendulum(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """The pendulum around the middle, a ring where its end should be, and what the step cost."""
    import pygame

    frame = stage(surface, 2 * PENDULUM_REACH)
    joint = (PENDULUM_REACH, PENDULUM_REACH)
    thick = 0.6 * THICK
    goal = frame.at(*_end(joint, LINK, 0))
    pygame.draw.circle(surface, GREEN, goal, thick * frame.scale, 3)
    # The angle counts from upright, anticlockwise.
    _bar(surface, frame, joint, _end(joint, LINK, -float(scene["theta"])), thick, RED)
    disc(surface, frame.at(*joint), thick / 2 * frame.scale, LINE)
    caption(surface, frame, spec, scene, params, f"cost {float(scene['cost']):.2f}")


def height(position: float) -> float:
    """How high the valley's ground is at a position along the track."""
    return 0.45 * math.sin(3 * position) + 0.55


# What the pictures share ---------------------------------------------------------------------


def _draw_valley(
    surface: Any, spec: EnvSpec, scene: Scene, params: Mapping[str, Value], goal: float
) -> None:
    import pygame

    frame = stage(surface, RIGHT - LEFT)

    def at(position: float, above: float) -> Point:
        return frame.at(position - LEFT, SKY + above)

    steps = [LEFT + k * (RIGHT - LEFT) / 100 for k in range(101)]
    ground = [at(x, height(x)) for x in steps]
    surface.set_clip(frame.rect())
    pygame.draw.polygon(surface, GROUND, [*ground, at(RIGHT, -SKY), at(LEFT, -SKY)])
    pygame.draw.lines(surface, WALL, False, ground, 3)
    foot, top = at(goal, height(goal)), at(goal, height(goal) + 0.2)
    pygame.draw.line(surface, BLACK, foot, top, 3)
    below, tip = at(goal, height(goal) + 0.13), at(goal + 0.09, height(goal) + 0.165)
    pygame.draw.polygon(surface, GREEN, [top, below, tip])
    _car(surface, frame, float(scene["position"]))
    surface.set_clip(None)
    border(surface, frame)
    caption(surface, frame, spec, scene, params)


def _car(surface: Any, frame: Frame, position: float) -> None:
    """A car that stands on the ground where the position says, as steep as the ground is there."""
    import pygame

    slope = math.atan(1.35 * math.cos(3 * position))  # height's derivative
    forward, up = (math.cos(slope), math.sin(slope)), (-math.sin(slope), math.cos(slope))

    def at(along: float, above: float) -> Point:
        x = position - LEFT + along * forward[0] + above * up[0]
        return frame.at(x, SKY + height(position) + along * forward[1] + above * up[1])

    half, roof = CAR_LENGTH / 2, WHEEL + CAR_HEIGHT
    body = [(-half, WHEEL), (half, WHEEL), (half, 0.7 * roof), (0.4 * half, roof), (-half, roof)]
    pygame.draw.polygon(surface, RED, [at(*corner) for corner in body])
    for along in (-0.55 * half, 0.55 * half):
        disc(surface, at(along, WHEEL), WHEEL * frame.scale, WALL)


def _end(start: Point, length: float, angle: float) -> Point:
    """The other end of a bar that leans to the right from upright by an angle."""
    return start[0] + length * math.sin(angle), start[1] + length * math.cos(angle)


def _bar(surface: Any, frame: Frame, start: Point, end: Point, thick: float, color: Color) -> None:
    """A bar with round ends; places and thickness in units."""
    import pygame

    radius = thick / 2 * frame.scale
    (from_x, from_y), (to_x, to_y) = frame.at(*start), frame.at(*end)
    length = math.hypot(to_x - from_x, to_y - from_y)
    across = -(to_y - from_y) / length * radius, (to_x - from_x) / length * radius
    corners = [
        (x + side * across[0], y + side * across[1])
        for x, y, side in (
            (from_x, from_y, 1),
            (to_x, to_y, 1),
            (to_x, to_y, -1),
            (from_x, from_y, -1),
        )
    ]
    pygame.draw.polygon(surface, color, corners)
    for place in ((from_x, from_y), (to_x, to_y)):
        pygame.draw.circle(surface, color, place, radius)
