"""Pictures of WarpDrive's environments, in the particle environments' colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.render.screen import Scene
from gpu_zoo.render.stage import (
    BLACK,
    GREEN,
    LINE,
    RED,
    TEXT,
    WHITE,
    Color,
    Frame,
    Point,
    border,
    caption,
    disc,
    outline,
    stage,
)
from gpu_zoo.spec import EnvSpec, Value

TAGGER, RUNNER = RED, GREEN
REACH = (245, 214, 214)  # where a tagger tags
GONE, GONE_BORDER = (226, 238, 226), (186, 206, 186)
TAGGERS_LARGER = 1.25


def draw(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """Tag in the plane: taggers over a disc as wide as they reach, runners, those tagged faint.

    Agents point where they are heading. Who is tagged in this step is crossed out.
    """
    import pygame

    frame = stage(surface, float(_number(params, "grid_length")))
    taggers = int(_number(params, "num_taggers"))
    places = [frame.at(x, y) for x, y in zip(scene["x"].tolist(), scene["y"].tolist(), strict=True)]
    here = _in_game(scene, len(places))
    runner_radius = _agent_radius(frame, len(places))
    reach = float(_number(params, "tagging_distance")) * frame.side
    surface.set_clip(frame.rect())
    for place in places[:taggers]:
        pygame.draw.circle(surface, REACH, place, reach)
    surface.set_clip(None)
    # Those that left lie below the others, and taggers above runners.
    order = sorted(range(len(places)), key=lambda i: (bool(here[i]), i < taggers))
    for i in order:
        color = TAGGER if i < taggers else RUNNER
        radius = runner_radius * (TAGGERS_LARGER if i < taggers else 1)
        if not here[i]:
            disc(surface, places[i], 0.8 * radius, GONE, GONE_BORDER)
            if scene["seen"][i]:
                _cross(surface, places[i], radius)
            continue
        _dart(surface, places[i], float(scene["direction"][i]), radius, color)
        if i < taggers and 0 < reach < radius:
            pygame.draw.circle(surface, REACH, places[i], reach, 1)
    runners = len(places) - taggers
    caption(
        surface, frame, spec, scene, params, f"{int(here[taggers:].sum())} of {runners} runners"
    )


def draw_gridworld(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """Tag on a grid: agents of a cell lie side by side; the runner's cell is green, or red with a
    tagger on it.
    """
    import pygame

    cells = int(_number(params, "grid_length")) + 1
    frame = stage(surface, cells)
    taggers = int(_number(params, "num_taggers"))
    size = frame.side / cells
    x, y = scene["x"].tolist(), scene["y"].tolist()
    tagged = (x[-1], y[-1]) in set(zip(x[:-1], y[:-1], strict=True))
    left, top = frame.at(x[-1], y[-1] + 1)
    pygame.draw.rect(surface, REACH if tagged else (214, 240, 214), (left, top, size + 1, size + 1))
    if size >= 12:
        _lines(surface, frame, cells)
    together: dict[tuple[int, int], list[int]] = {}
    for i, cell in enumerate(zip(x, y, strict=True)):
        together.setdefault(cell, []).append(i)
    for (column, row), agents in together.items():
        across = math.ceil(math.sqrt(len(agents)))  # so many side by side
        down = math.ceil(len(agents) / across)
        for k, i in enumerate(agents):
            place = frame.at(
                column + 0.5 + (k % across + 0.5 - across / 2) / across,
                row + 0.5 + (down / 2 - k // across - 0.5) / across,
            )
            color = TAGGER if i < taggers else RUNNER
            disc(surface, place, max(0.38 * size / across, 3.5), color, BLACK)
    border(surface, frame)
    caption(surface, frame, spec, scene, params, "tagged" if tagged else "")


def draw_catalyst(
    surface: Any, spec: EnvSpec, scene: Scene, start: Scene, params: Mapping[str, Value]
) -> None:
    """Atoms over a slab, seen from above: each where it is, a ring where it began, and at the end
    of a line a square where it should go.

    The height is a bar beside each atom. Where the environment has a table of the energy of one
    atom's places, its layer is the background: the darker, the higher.
    """
    import pygame

    across, along = (int(_number(params, name)) for name in ("nx", "ny"))
    frame = stage(surface, max(across, along))
    atoms = scene["position"].reshape(-1, 3).tolist()
    begin, goal = (_triples(params[name]) for name in ("initial_state", "final_state"))
    low, high = (int(_number(params, f"z_slab_{side}")) for side in ("lower", "upper"))
    size = frame.side / frame.units
    _heat(surface, frame, _layer(spec, params, atoms, low))
    radius = max(0.45 * size, 7.0)
    for (from_x, from_y, _), (to_x, to_y, _) in zip(begin, goal, strict=True):
        first, last = frame.at(from_x + 0.5, from_y + 0.5), frame.at(to_x + 0.5, to_y + 0.5)
        pygame.draw.line(surface, LINE, first, last, 2)
        pygame.draw.circle(surface, TEXT, first, radius, 3)
        square = (last[0] - radius, last[1] - radius, 2 * radius, 2 * radius)
        pygame.draw.rect(surface, RUNNER, square, 4)
    for x, y, z in atoms:
        place = frame.at(x + 0.5, y + 0.5)
        disc(surface, place, 0.8 * radius, TAGGER, BLACK)
        _bar(surface, place, radius, (z - low) / max(high - 1 - low, 1))
    border(surface, frame)
    heights = ", ".join(f"{z:g}" for _, _, z in atoms)
    caption(surface, frame, spec, scene, params, f"height {heights}")


# What the pictures share ---------------------------------------------------------------------


def _number(params: Mapping[str, Value], name: str) -> float:
    value = params[name]
    assert isinstance(value, (int, float))
    return value


def _in_game(scene: Scene, count: int) -> npt.NDArray[np.bool_]:
    """Who is in the game: taggers, then runners. Without the batch's own flags, who was seen."""
    flags = [scene[name] for name in ("active/tagger", "active/runner") if name in scene]
    joined = np.concatenate([np.ravel(f) for f in flags]) if flags else np.zeros(0)
    return (joined if len(joined) == count else scene["seen"]).astype(np.bool_)


def _lines(surface: Any, frame: Frame, cells: int) -> None:
    import pygame

    for k in range(1, cells):
        pygame.draw.line(surface, LINE, frame.at(k, 0), frame.at(k, cells))
        pygame.draw.line(surface, LINE, frame.at(0, k), frame.at(cells, k))


def _agent_radius(frame: Frame, count: int) -> float:
    """Discs of all agents together cover at most an eighth of the square."""
    return float(np.clip(frame.side * math.sqrt(1 / (8 * math.pi * count)), 4, 14))


def _dart(surface: Any, place: Point, heading: float, radius: float, color: Color) -> None:
    """A disc with a nose."""
    import pygame

    for size, paint in ((radius, BLACK), (radius - outline(radius), color)):
        # The nose's edges touch the disc; its tip is two radii away.
        corners = [(0.87 * size, -math.pi / 3), (2 * size, 0.0), (0.87 * size, math.pi / 3)]
        shape = [
            (place[0] + r * math.cos(heading + a), place[1] - r * math.sin(heading + a))
            for r, a in corners
        ]
        pygame.draw.circle(surface, paint, place, size)
        pygame.draw.polygon(surface, paint, shape)


def _cross(surface: Any, place: Point, radius: float) -> None:
    import pygame

    x, y = place
    for side in (-1, 1):
        ends = (x - radius, y - side * radius), (x + radius, y + side * radius)
        pygame.draw.line(surface, TAGGER, *ends, 4)


def _bar(surface: Any, place: Point, radius: float, share: float) -> None:
    """How high in the slab: a bar to the right of an atom."""
    import pygame

    left, height = place[0] + 1.2 * radius, 2 * radius
    full = share * height
    pygame.draw.rect(surface, WHITE, (left, place[1] - radius, 6, height))
    pygame.draw.rect(surface, TAGGER, (left, place[1] + radius - full, 6, full))
    pygame.draw.rect(surface, TEXT, (left, place[1] - radius, 6, height), 1)


def _triples(state: Any) -> list[list[int]]:
    rows: list[list[int]] = np.asarray(state).reshape(-1, 3).tolist()
    return rows


def _layer(
    spec: EnvSpec, params: Mapping[str, Value], atoms: Sequence[Sequence[int]], low: int
) -> npt.NDArray[np.float64] | None:
    """The energies of one atom's layer ``(nx, ny)``, if there is a table of them."""
    given = tuple((name, value) for name, value in sorted(params.items()))
    table = _energies(spec, given) if len(atoms) == 1 else None
    if table is None:
        return None
    return table[:, :, int(np.clip(atoms[0][2] - low, 0, table.shape[2] - 1))]


@lru_cache(maxsize=4)
def _energies(
    spec: EnvSpec, given: tuple[tuple[str, Value], ...]
) -> npt.NDArray[np.float64] | None:
    """The table ``(nx, ny, layers)``; read once and not for each picture."""
    params, table = dict(given), spec.tables.get("energy")
    if table is None:
        return None
    nx, ny = (int(str(params[name])) for name in ("nx", "ny"))
    return np.asarray(table.load(params), np.float64).reshape(nx, ny, -1)


def _heat(surface: Any, frame: Frame, layer: npt.NDArray[np.float64] | None) -> None:
    """Shades of grey-blue by rank, so that a single peak does not leave all else white."""
    if layer is None:
        return
    rank = np.searchsorted(np.unique(layer), layer) / max(len(np.unique(layer)) - 1, 1)
    size = frame.side / frame.units
    for (i, j), share in np.ndenumerate(rank):
        left, top = frame.at(i, j + 1)
        color = tuple(int(255 - share * depth) for depth in (150, 110, 50))
        surface.fill(color, (round(left), round(top), math.ceil(size), math.ceil(size)))
