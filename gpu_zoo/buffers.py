"""The arrays of a batch: which there are, in the order in which the kernel's struct has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Buffers with one array a group, in the order of the C struct: name, dtype, entries an agent.
# "real" is the numerics' float; "action" is int32 or float32 by the group's action space.
GROUP_BUFFERS = (
    ("observations", "f4", "obs_size"),
    ("final_observations", "f4", "obs_size"),
    ("rewards", "real", None),
    ("terminations", "?", None),
    ("truncations", "?", None),
    ("actions", "action", "action_size"),
    ("active", "?", None),
    ("episode_returns", "real", None),
    ("last_returns", "real", None),
    ("infos", "real", "info_size"),
    ("action_masks", "?", "mask_size"),
)
# Those that a group has only if their entries are more than none.
OPTIONAL = ("infos", "action_masks")
# Buffers with one entry an environment.
ENV_BUFFERS = (("steps", "i4"), ("last_lengths", "i4"), ("done", "?"), ("reset_mask", "?"))


@dataclass(frozen=True)
class Buffer:
    """An array of the batch: ``(num_envs, *shape)``."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
