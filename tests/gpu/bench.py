"""What tests/gpu/check.sh measures: python tests/gpu/bench.py FOLDER [DEVICE]

The particle environments by batch size, and tag in the plane by batch size and number of agents,
up to the 2,000 environments of 1,000 agents of which WarpDrive's paper reports 2.9 million steps a
second (arXiv:2108.13976; neither its GPU nor which of its two tag games that was is said there).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gpu_zoo.bench import bench_family, bench_sweep

WARPDRIVE = 2.9e6  # environment steps a second at 2,000 environments of 1,000 agents
# WarpDrive's own configuration but for the number of runners.
TAG: dict[str, Any] = {
    "num_taggers": 5, "grid_length": 20.0, "episode_length": 100, "max_acceleration": 0.1,
    "min_acceleration": -0.1, "max_turn": 2.356, "min_turn": -2.356,
    "num_acceleration_levels": 20, "num_turn_levels": 20, "use_full_observation": False,
    "num_other_agents_observed": 10, "tagging_distance": 0.02,
}  # fmt: skip
RUNNERS = (5, 45, 105, 495, 995)


def main(folder: Path, device: str = "cuda") -> None:
    """Measure, and write JSON files into the folder."""
    bench_family("mpe", seconds=0.5, device=device, json=folder / "bench-mpe.json")
    tag = folder / "bench-tag_continuous.json"
    bench_sweep(
        "warpdrive/tag_continuous_v0", "num_runners", RUNNERS,
        num_envs=(1, 64, 2000), seconds=0.5, device=device, json=tag, params=TAG,
    )  # fmt: skip
    rate = json.loads(tag.read_text())[-1]["rows"][-1]["env_steps_per_s"]
    print(
        f"tag_continuous, 2,000 environments of 1,000 agents: {rate:,.0f} environment steps a "
        f"second, {rate / WARPDRIVE:.2f} times the {WARPDRIVE:,.0f} that WarpDrive's paper reports"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
