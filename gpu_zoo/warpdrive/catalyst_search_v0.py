"""One or two atoms look for a cheap way over a table of energies, as on a catalyst.

``env``, ``raw_env`` and ``parallel_env`` have PettingZoo's interfaces; WarpDrive's own classes are
``SingleAgentOneAtomChemSearch`` and ``SingleAgentTwoAtomChemSearch``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpu_zoo.render import RENDER_MODE
from gpu_zoo.spec import Actions, EnvSpec, Field, Group, Param, Slice, Table, Value
from gpu_zoo.warpdrive import params as warpdrive
from gpu_zoo.wrappers.pettingzoo import drop_in

Array = npt.NDArray[Any]

ENDS = ("initial_state", "final_state")
MOST_ENTRIES = 2**28  # of an energy table: 2 GiB in double precision
MOVES = ("x_up", "x_down", "y_up", "y_down", "z_up", "z_down")

_DIFFUSION: Mapping[str, Value] = {
    "ienergy": -193.6023, "nx": 20, "ny": 18, "nz": 100, "z_slab_lower": 58, "z_slab_upper": 68,
    "initial_state": (5, 9, 60), "final_state": (10, 0, 60),
}  # fmt: skip
_REACTION: Mapping[str, Value] = {
    "ienergy": -227.689938, "nx": 20, "ny": 18, "nz": 50, "z_slab_lower": 28, "z_slab_upper": 48,
    "final_state": (5, 16, 38), "terminate_reward": 30.0,
}  # fmt: skip
_DOUBLE_GRIDS: Mapping[str, Value] = {
    **_REACTION, "nx": 39, "ny": 35, "nz": 99, "z_slab_lower": 56, "z_slab_upper": 95,
    "final_state": (10, 32, 76),
}  # fmt: skip
# WarpDrive's nine tasks without their energies: make_vec(id, energy="gas1.npy", **CONFIGS["gas1"]).
CONFIGS: Mapping[str, Mapping[str, Value]] = {
    "diffusion2d": _DIFFUSION,
    "diffusion2d_relaxed": {
        **_DIFFUSION, "ienergy": -193.69, "z_slab_lower": 60, "z_slab_upper": 61,
    },
    "diffusion3d": {**_DIFFUSION, "initial_state": (5, 9, 61), "terminate_reward": 30.0},
    "surface": {**_REACTION, "initial_state": (3, 6, 30)},
    "gas1": {**_REACTION, "initial_state": (3, 15, 43)},
    "gas2": {**_REACTION, "initial_state": (3, 12, 45)},
    "gas2_double_grids": {**_DOUBLE_GRIDS, "initial_state": (6, 24, 90)},
    "surface_double_grids": {
        **_DOUBLE_GRIDS, "initial_state": (6, 12, 60), "terminate_reward": 50.0,
    },
    "two_atom_diffusion": {
        "num_atoms": 2, "ienergy": -200.78, "nx": 8, "ny": 8, "nz": 15,
        "z_slab_lower": 9, "z_slab_upper": 14, "terminate_reward": 30.0,
        "initial_state": (4, 4, 10, 4, 4, 11), "final_state": (0, 4, 10, 0, 4, 11),
    },
}  # fmt: skip


def _whole(values: Mapping[str, Value], *names: str) -> tuple[int, ...]:
    return tuple(cast(int, values[name]) for name in names)


def energy_shape(values: Mapping[str, Value]) -> tuple[int, ...]:
    """The shape of the energy table under these parameters: x, y and height of each atom."""
    nx, ny, lower, upper, atoms = _whole(
        values, "nx", "ny", "z_slab_lower", "z_slab_upper", "num_atoms"
    )
    return (nx, ny, upper - lower) * atoms


def _check(values: Mapping[str, Value]) -> None:
    nx, ny, nz, lower, upper, atoms = _whole(
        values, "nx", "ny", "nz", "z_slab_lower", "z_slab_upper", "num_atoms"
    )
    if not lower < upper <= nz:
        raise ValueError(
            f"z_slab_lower={lower}, z_slab_upper={upper}: expected lower < upper <= nz={nz}"
        )
    if math.prod(energy_shape(values)) > MOST_ENTRIES:
        raise ValueError(
            f"nx={nx}, ny={ny}, z_slab_upper - z_slab_lower={upper - lower}, num_atoms={atoms}: "
            f"an energy table of shape {energy_shape(values)}, expected at most 2**28 entries"
        )
    for name in ENDS:
        places = cast("tuple[float, ...]", values[name])
        if len(places) != 3 * atoms:
            raise ValueError(
                f"{name}: {len(places)} numbers, expected {3 * atoms}, x, y and z of each atom"
            )
        for k, place in enumerate(places):
            cells = (range(nx), range(ny), range(lower, upper))[k % 3]
            if place not in cells:
                raise ValueError(
                    f"{name}: {'xyz'[k % 3]}={place:g}, expected a whole number "
                    f"from {cells.start} to {cells.stop - 1}"
                )
    start, goal = (cast("tuple[float, ...]", values[name]) for name in ENDS)
    for k in range(0, 3 * atoms, 3):
        if start[k : k + 3] == goal[k : k + 3]:
            raise ValueError(f"{', '.join(ENDS)}: atom {k // 3} starts at its goal")


def load_energy(values: Mapping[str, Value]) -> Array:
    """The energy table: what the file named by ``energy`` holds, or :func:`synthetic_energy`.

    Raises:
        ValueError: the file cannot be read, or holds something else than such a table.
    """
    shape, path = energy_shape(values), cast("str | None", values["energy"])
    if path is None:
        return synthetic_energy(*shape[:3], atoms=cast(int, values["num_atoms"]))
    try:
        table = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"energy={path!r}: expected a .npy file of numbers; {why}") from None
    if not isinstance(table, np.ndarray) or table.dtype.kind not in "fiu":
        kind = getattr(table, "dtype", type(table).__name__)
        raise ValueError(f"energy={path!r}: {kind}, expected an array of real numbers")
    if table.shape != shape:
        raise ValueError(
            f"energy={path!r}: shape {table.shape}, expected {shape}: (nx, ny, z_slab_upper - "
            "z_slab_lower) for each atom"
        )
    if not np.isfinite(table).all():
        at = tuple(int(k) for k in np.argwhere(~np.isfinite(table))[0])
        raise ValueError(f"energy={path!r}: {table[at]} at {at}, expected finite numbers")
    return table.astype(np.float64)


def synthetic_energy(nx: int, ny: int, height: int, *, atoms: int = 1) -> Array:
    """Energies made up by a formula, to try the environment with.

    The lowest lie in a valley along y at x = 0, at the bottom of the slab. Half a cell away in x
    is a plain, a little higher; between the two, on both sides, stands a ridge along y, with a
    pass in the middle, at y = ny / 2. Energy grows with height, and the ridge shrinks: what is
    cheapest, the straight way, the pass, or to climb, is to be found out. Two atoms repel one
    another within two cells or so, and for two in one cell that comes to 20.

    Returns:
        float64 ``(nx, ny, height)``, or that twice over for two atoms; from 1 to about 22 an atom.
    """
    x, y, z = np.ogrid[:nx, :ny, :height]
    along_x, along_y = np.cos(2 * np.pi * x / nx), np.cos(2 * np.pi * y / ny)
    up = z / max(1, height - 1)
    ridge = np.exp(-((2 * along_x) ** 2)) * (1 + along_y) / 2
    one = np.asarray(1 + (1 - along_x) + 20 * ridge * (1 - up / 2) + 8 * up**2)
    if atoms == 1:
        return one
    square: Any = 0.0
    for axis, size in enumerate((nx, ny, height)):
        apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
        if axis < 2:
            apart = np.minimum(apart, size - apart)
        square = square + (apart**2).reshape([size if k % 3 == axis else 1 for k in range(6)])
    return np.asarray(np.add.outer(one, one) + 20 * np.exp(-square / 2))


def _energy(values: Mapping[str, Value]) -> Array:
    return load_energy(values).reshape(-1)


def _end(name: str, values: Mapping[str, Value]) -> Any:
    return values[name]


OBSERVATION = {
    "places": Slice(
        "3 * num_atoms", "x over nx, y over ny and z over nz, atom by atom", low=0, high=1
    ),
    "distances": Slice(
        "num_atoms", "how far each atom is from its goal, over how far it was at the start", low=0
    ),
}

SPEC = EnvSpec(
    id="warpdrive/catalyst_search_v0",
    kernel="warpdrive/catalyst_search_v0.cu",
    summary="One or two atoms look for a cheap way over a table of energies.",
    params={
        "num_atoms": Param(1, "number of atoms", at="compile", low=1, high=2),
        "energy": Param(
            None, "a .npy file of energies by x, y and z - z_slab_lower of each atom; None takes "
            "`synthetic_energy`", at="host", kind=str, optional=True,
        ),
        "ienergy": Param(0.0, "the energy that costs nothing"),
        "max_denergy": Param(20.0, "how much more costs a reward of 1", low=1e-6),
        "nx": Param(12, "cells of the periodic grid along x", at="compile", low=1, high=30_000),
        "ny": Param(12, "along y", at="compile", low=1, high=30_000),
        "nz": Param(16, "along z", at="compile", low=1, high=30_000),
        "z_slab_lower": Param(4, "the lowest z with energies", at="compile", low=0),
        "z_slab_upper": Param(12, "the z above the highest with energies", at="compile", low=1),
        "initial_state": Param(
            (6, 0, 7), "where the atoms start: x, y and z of each", at="host", kind=tuple
        ),
        "final_state": Param((0, 0, 4), "their goals likewise", at="host", kind=tuple),
        "terminate_reward": Param(10.0, "reward for reaching the goal"),
        "min_reward": Param(-1.0, "the least reward of a step", high=0),
        "episode_length": Param(500, "steps after which the episode is truncated", low=1),
        "render_mode": RENDER_MODE,
    },
    groups=(
        Group(
            "agent", 1, OBSERVATION,
            (Actions(MOVES), Actions(("atom", "move"), choices=(2, len(MOVES)))),
            choice="num_atoms - 1",
        ),
    ),
    constants={
        "N_ENERGIES": "(nx * ny * (z_slab_upper - z_slab_lower)) ** num_atoms",
        "MAY_LEAVE": "num_atoms == 1 and initial_state[2] == final_state[2]",
    },
    state={
        "position": Field("i32", ("3 * num_atoms",), "x, y and z of each atom, cells"),
        "outside": Field("i32", (), "the last move led out of the slab, or stayed there"),
    },
    tables={
        "energy": Table("real", ("N_ENERGIES",), "the last atom's height varies fastest", _energy),
        "start": Table("i32", ("3 * num_atoms",), "initial_state", partial(_end, "initial_state")),
        "goal": Table("i32", ("3 * num_atoms",), "final_state", partial(_end, "final_state")),
    },
    check=_check,
    reward=(
        "what the new place's energy is above `ienergy`, over `max_denergy`, as a penalty of at "
        "most `-min_reward`; for a move out of the slab, as if that were `max_denergy`; "
        "`terminate_reward` more at the goal"
    ),
    ends="when all atoms are at their goals",
    time_limit="episode_length",
    timeout_wins=False,
    render="gpu_zoo.render.warpdrive:draw_catalyst",
    reference=warpdrive.REFERENCE,
    notes=(
        "WarpDrive's energies are not part of this package. `CONFIGS` has the numbers of its nine "
        "tasks, and `energy` takes its tables, saved as .npy files.",
        "WarpDrive has a class for one atom and one for two; here `num_atoms` tells them apart.",
        "Every episode starts in `initial_state`, as in WarpDrive. Give `reset_pool` other "
        "positions to start in.",
        "A move out of the slab does not happen. A single atom that starts at its goal's height "
        "leaves the slab, though; every move outside costs the most, and it may come back, "
        "also from the other side.",
        "The grid is periodic, but the distance in the observation is the straight line's.",
        "Two atoms may be in one cell, and change places: only energies speak against it.",
        "A reward is never above 0 except at the goal: energies below `ienergy` are as good as it.",
        "A move that is undone leaves the place as it was. In WarpDrive, undoing one out of a slab "
        "that ends where the grid does leads to a place outside the grid.",
        "Refused are what WarpDrive divides by zero with, or fails with later: `max_denergy` of 0, "
        "an atom that starts at its goal, and a start or goal outside the slab.",
    ),
    history=(f"v0: first version here; follows {warpdrive.REFERENCE}",),
)  # fmt: skip

raw_env, env, parallel_env = drop_in(SPEC)
