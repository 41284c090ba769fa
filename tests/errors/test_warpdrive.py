"""Parameters of WarpDrive's environments that do not go together: one line, naming them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CATALYST_TWO

import gpu_zoo

GRIDWORLD = "warpdrive/tag_gridworld_v0"
CATALYST = "warpdrive/catalyst_search_v0"
PLACES = {"num_taggers": 1, "starting_location_x": (0, 1), "starting_location_y": (1, 1)}

# What is given, and what the message holds.
REFUSED: tuple[tuple[str, Mapping[str, Any], tuple[str, ...]], ...] = (
    (GRIDWORLD, {"grid_length": 1}, ("grid_length=1", "from 2 to 30000")),
    (GRIDWORLD, {"num_taggers": 0}, ("num_taggers=0", "at least 1")),
    (GRIDWORLD, {"starting_location_x": (0,) * 11}, ("starting_location_y", "both or neither")),
    (GRIDWORLD, {**PLACES, "starting_location_x": (0,)}, ("location_x: 1 numbers", "expected 2")),
    (GRIDWORLD, {**PLACES, "starting_location_y": (0, 11)}, ("location_y: 11", "grid_length=10")),
    (GRIDWORLD, {**PLACES, "starting_location_y": (0.5, 1)}, ("location_y: 0.5", "whole numbers")),
    (CATALYST, {"num_atoms": 3}, ("num_atoms=3", "from 1 to 2")),
    (CATALYST, {"num_atoms": 2}, ("initial_state: 3 numbers", "expected 6")),
    (CATALYST, {"max_denergy": 0.0}, ("max_denergy=0.0",)),
    (CATALYST, {"min_reward": 0.5}, ("min_reward=0.5", "float of at most 0")),
    (CATALYST, {"z_slab_lower": 12}, ("z_slab_lower=12", "z_slab_upper=12", "nz=16")),
    (CATALYST, {"z_slab_upper": 17}, ("z_slab_upper=17", "nz=16")),
    (CATALYST, {"initial_state": (6, 0, 12)}, ("initial_state: z=12", "from 4 to 11")),
    (CATALYST, {"initial_state": (6, 0, 3)}, ("initial_state: z=3", "from 4 to 11")),
    (CATALYST, {"final_state": (12, 0, 4)}, ("final_state: x=12", "from 0 to 11")),
    (CATALYST, {"final_state": (0, -1, 4)}, ("final_state: y=-1", "from 0 to 11")),
    (CATALYST, {"final_state": (0, 0.5, 4)}, ("final_state: y=0.5", "whole number")),
    (CATALYST, {"final_state": (6, 0, 7)}, ("initial_state, final_state", "atom 0")),
    (
        CATALYST,
        {**CATALYST_TWO, "final_state": (0, 0, 3, 1, 1, 3)},
        ("initial_state, final_state", "atom 1 starts at its goal"),
    ),
    (
        CATALYST,
        {**CATALYST_TWO, "nx": 100, "ny": 100},
        ("nx=100", "(100, 100, 2, 100, 100, 2)", "2**28"),
    ),
)


def refused(env_id: str, params: Mapping[str, Any], *parts: str) -> None:
    with pytest.raises(ValueError) as caught:
        gpu_zoo.make_vec(env_id, **params)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} is not in {message!r}"


@pytest.mark.parametrize(("env_id", "params", "parts"), REFUSED)
def test_parameters_refused(env_id: str, params: Mapping[str, Any], parts: tuple[str, ...]) -> None:
    refused(env_id, params, *parts)


def test_energies_are_a_path() -> None:
    with pytest.raises(TypeError, match="energy=3: expected str or None"):
        gpu_zoo.make_vec(CATALYST, energy=3)


@pytest.mark.parametrize("given", [5, "123", ("a", 0, 4), None])
def test_places_are_numbers(given: Any) -> None:
    with pytest.raises(TypeError, match=r"final_state=.*: expected numbers$"):
        gpu_zoo.make_vec(CATALYST, final_state=given)


def test_bad_energy_files(tmp_path: Path) -> None:
    def bad(write: Any, *parts: str) -> None:
        path = tmp_path / "energies.npy"
        path.unlink(missing_ok=True)
        write(path)
        refused(CATALYST, {"energy": str(path)}, f"energy='{path}'", *parts)

    good = np.ones((12, 12, 8))
    hole = good.copy()
    hole[1, 2, 3] = np.nan
    bad(lambda path: None, "No such file")
    bad(lambda path: path.write_bytes(b""), "expected a .npy file")
    bad(lambda path: path.write_text("1 2 3\n4 5 6\n"), "expected a .npy file")
    bad(lambda path: path.mkdir(), "expected a .npy file")
    (tmp_path / "energies.npy").rmdir()
    bad(lambda path: np.save(path, [{}], allow_pickle=True), "expected a .npy file")
    bad(lambda path: np.savez(path.open("wb"), good), "NpzFile", "expected an array")
    bad(lambda path: np.save(path, good.astype(complex)), "complex128", "real numbers")
    bad(lambda path: np.save(path, good[1:]), "(11, 12, 8)", "expected (12, 12, 8)")
    bad(lambda path: np.save(path, hole), "nan at (1, 2, 3)", "finite")
