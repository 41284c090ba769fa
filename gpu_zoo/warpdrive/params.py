"""Parameters that WarpDrive's environments share."""

from __future__ import annotations

from gpu_zoo.spec import Param

REFERENCE = "warp-drive 2.7.1"
EPISODE_LENGTH = Param(100, "steps after which the episode is truncated", low=1)
SEED = Param(
    None, "start all episodes as WarpDrive does with this seed; None draws each anew",
    at="host", kind=int, low=0, optional=True,
)  # fmt: skip
