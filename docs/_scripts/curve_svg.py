"""Learning curves as a small SVG that is the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 28, 40
# Told apart by people who see no red or green, and readable on white and on black.
COLOURS = ("#3b82c4", "#d97706", "#7c9a3b", "#a855b5")
GREY = "#8a8a8a"
Floats = npt.NDArray[np.float64]


def svg(curves: Sequence[Mapping[str, Any]]) -> str:
    """Medians over seeds, in bands from the worst to the best seed.

    Args:
        curves: of each seed, as ``returns.curve`` makes them: ``env_steps`` and returns by group.
    """
    groups = [name for name in curves[0] if name != "env_steps"]
    steps = np.array(curves[0]["env_steps"], float)
    returns = {g: np.array([c[g] for c in curves], float) for g in groups}
    low = min(float(np.nanmin(r)) for r in returns.values())
    high = max(float(np.nanmax(r)) for r in returns.values())
    scale = Scale(steps[-1], low, high)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="{GREY}">',
        *axes(scale),
    ]
    for k, (group, seeds) in enumerate(returns.items()):
        colour = COLOURS[k % len(COLOURS)]
        lines += drawn(scale, steps, seeds, colour)
        lines.append(f'<text x="{LEFT + 8 + 130 * k}" y="18" fill="{colour}">{group}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


class Scale:
    """From steps and returns to places in the picture."""

    def __init__(self, steps: float, low: float, high: float) -> None:
        self.steps, self.low, self.high = steps, low, max(high, low + 1e-9)

    def x(self, step: float) -> float:
        """Pixels from the left."""
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.steps

    def y(self, value: float) -> float:
        """Pixels from the top."""
        part = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part


def axes(scale: Scale) -> Iterator[str]:
    """Lines and numbers at round returns, and the steps."""
    for value in ticks(scale.low, scale.high):
        y = f"{scale.y(value):.1f}"
        yield (
            f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-opacity="0.3"/>'
            f'<text x="{LEFT - 8}" y="{y}" text-anchor="end" dy="4">{value:g}</text>'
        )
    for value in ticks(0, scale.steps):
        x = f"{scale.x(value):.1f}"
        yield f'<text x="{x}" y="{HEIGHT - 22}" text-anchor="middle">{value / 1e6:g}</text>'
    yield (
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 4}" text-anchor="middle">million environment steps'
        "</text>"
    )
    yield f'<text x="{WIDTH - RIGHT}" y="18" text-anchor="end">return of an episode</text>'


def ticks(low: float, high: float) -> list[float]:
    """Four to nine round numbers in a range."""
    raw = (high - low) / 4
    power = 10.0 ** np.floor(np.log10(raw))
    step = max(power * m for m in (1, 2, 5) if power * m <= raw)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [round(i * step, 10) for i in range(first, last + 1)]


def drawn(scale: Scale, steps: Floats, seeds: Floats, colour: str) -> Iterator[str]:
    """One group's band and median; points at which no episode had ended are left out."""
    here = ~np.isnan(seeds).any(0)
    steps, seeds = steps[here], seeds[:, here]

    def places(values: Floats) -> list[str]:
        pairs = zip(steps, values, strict=True)
        return [f"{scale.x(s):.1f} {scale.y(v):.1f}" for s, v in pairs]

    band = places(seeds.max(0)) + places(seeds.min(0))[::-1]
    yield f'<path d="M{"L".join(band)}Z" fill="{colour}" fill-opacity="0.2"/>'
    median = places(np.median(seeds, 0))
    yield f'<path d="M{"L".join(median)}" fill="none" stroke="{colour}" stroke-width="2"/>'
