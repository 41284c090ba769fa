"""One or two atoms on a periodic grid of energies: the rules of WarpDrive's "rlchemists".

SingleAgentOneAtomChemSearch and SingleAgentTwoAtomChemSearch, in double precision. There is no
autoreset and no time limit: the caller stops after ``episode_length`` steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.warpdrive.catalyst_search_v0 import synthetic_energy

Array = npt.NDArray[Any]

AGENT = "agent_0"


def distance(cell: Sequence[int], other: Sequence[int]) -> float:
    """The length of the straight line between two cells, in cells."""
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(cell, other, strict=True)))


class Rules:
    """A search for a cheap way from ``initial_state`` to ``final_state``.

    Positions are grid cells: x, y and z of each atom in turn. ``en_array`` holds energies, in the
    unit of ``ienergy``, by x, y and z - ``z_slab_lower`` of each atom in turn. A single atom whose
    ``initial_state`` is at its goal's height may leave the slab; else a move out of it does not
    happen. Two atoms may share a cell. No atom's ``initial_state`` is its goal. The length of an
    episode is in no observation and no reward. Without ``en_array``, ``energy`` is a file that
    holds it, or None for the package's made-up energies.
    """

    def __init__(
        self,
        *,
        en_array: Array | None = None,
        energy: str | None = None,
        nx: int,
        ny: int,
        nz: int,
        z_slab_lower: int,
        z_slab_upper: int,
        initial_state: Sequence[int],
        final_state: Sequence[int],
        ienergy: float = 0.0,
        max_denergy: float = 20.0,
        min_reward: float = -1.0,
        terminate_reward: float = 10.0,
        episode_length: int = 500,
        num_atoms: int = 1,
    ) -> None:
        shape = (nx, ny, z_slab_upper - z_slab_lower) * num_atoms
        if en_array is None and energy is None:
            en_array = synthetic_energy(*shape[:3], atoms=num_atoms)
        elif en_array is None:
            en_array = np.load(energy)
        if np.shape(en_array) != shape:
            raise ValueError(f"en_array has shape {np.shape(en_array)}, not {shape}")
        self.en_array = np.asarray(en_array, np.float64)
        self.size = (nx, ny, nz)
        self.slab = range(z_slab_lower, z_slab_upper)
        self.initial_state = [int(p) for p in initial_state]
        self.final_state = [int(p) for p in final_state]
        self.ienergy = ienergy
        self.max_denergy = max_denergy
        self.min_reward = min_reward
        self.terminate_reward = terminate_reward
        self.num_atoms = num_atoms
        self.may_leave_slab = num_atoms == 1 and self.initial_state[2] == self.final_state[2]

    def reset(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """Begin at ``position``; return the observation."""
        self.position = [int(p) for p in state["position"]]
        return {AGENT: self._observe()}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, bool]]:
        """Move one atom by one cell; moves are +x, -x, +y, -y, +z, -z.

        With one atom the action is the move, with two it is (atom, move). The reward is never
        above 0, except for reaching the goal.
        """
        atom, move = actions[AGENT] if self.num_atoms == 2 else (0, actions[AGENT])
        axis = int(move) // 2
        moved = self.position.copy()
        moved[3 * int(atom) + axis] += 1 if int(move) % 2 == 0 else -1
        moved[3 * int(atom) + axis] %= self.size[axis]
        outside = any(z not in self.slab for z in moved[2::3])
        if not outside or self.may_leave_slab:
            self.position = moved
        denergy = -self.max_denergy if outside else self.ienergy - self._energy()
        reward = min(max(denergy / self.max_denergy, self.min_reward), 0.0)
        reached = self.position == self.final_state
        if reached:
            reward += self.terminate_reward
        return {AGENT: self._observe()}, {AGENT: reward}, {AGENT: reached}

    def _energy(self) -> float:
        index = [p - (self.slab.start if k % 3 == 2 else 0) for k, p in enumerate(self.position)]
        return float(self.en_array[tuple(index)])

    def _observe(self) -> Array:
        """Each coordinate over the grid's size, then each atom's distance from its goal.

        The distance is a straight line, not round the periodic grid, and in units of that from
        ``initial_state``.
        """
        places = [p / self.size[k % 3] for k, p in enumerate(self.position)]
        distances = []
        for k in range(0, 3 * self.num_atoms, 3):
            goal = self.final_state[k : k + 3]
            left = distance(self.position[k : k + 3], goal)
            distances.append(left / distance(self.initial_state[k : k + 3], goal))
        return np.array(places + distances)
