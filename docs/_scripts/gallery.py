"""Animations of trained policies, for the gallery and the environments' pages.

python docs/_scripts/gallery.py --runs FOLDER ...                      every environment
python docs/_scripts/gallery.py --runs FOLDER ... --only cartpole_v1   this one alone, or several

In the folders are finished runs, as docs/_scripts/returns.py leaves them. Of each environment the
newest are taken, and of those that differ only in their seed the one with the highest return; where
there are several groups, whose returns may be at odds, the first. Its policy plays whole episodes
from seed 0 on, drawing its actions as in training. The same run gives the same files:
docs/assets/environments/NAME.gif, its first frame as NAME.png, and in gallery.json what is shown.
docs/_scripts/build_pages.py makes the pages of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import gpu_zoo
from gpu_zoo import play
from gpu_zoo.baselines import config_file, curves, run_folder
from gpu_zoo.baselines.algorithms import ALGORITHMS

ASSETS = Path(__file__).resolve().parents[1] / "assets" / "environments"
SHOWN = "gallery.json"
WIDTH = 240  # pixels
MOST_EPISODES = 4
MOST = 180  # frames; longer episodes leave some out
COLORS = 64
ALIKE = 12  # levels of 255; colours of the palette differ by more
PAUSE = 800  # milliseconds that an episode's last frame stays
SHORTEST = 20  # milliseconds; browsers show shorter frames for longer

Episode = tuple[list[Image.Image], dict[str, Any]]


# Which run -------------------------------------------------------------------------------------


def chosen(runs: Sequence[curves.Run]) -> dict[str, curves.Run]:
    """The run to show of each environment.

    Raises:
        ValueError: an environment has no finished run.
    """
    found = {}
    for env_id, pools in curves.pools(runs).items():
        finished = [done for pool in pools if (done := [r for r in pool.runs if is_finished(r)])]
        if not finished:
            raise ValueError(f"{env_id}: expected a finished run")
        newest = max(finished, key=lambda alike: max(map(written, alike)))
        found[env_id] = best(newest)
    return found


def is_finished(run: curves.Run) -> bool:
    """Whether all steps of its configuration were taken."""
    file = config_file.read(run.folder / run_folder.CONFIG)
    config = config_file.applied(file, ALGORITHMS[run.algorithm]())
    return bool(run.rows) and run.rows[-1]["env_steps"] >= config.total_steps


def written(run: curves.Run) -> float:
    """When its checkpoint was."""
    return (run.folder / run_folder.CHECKPOINT).stat().st_mtime


def best(alike: Sequence[curves.Run]) -> curves.Run:
    """Of runs that differ only in their seed, the one to show."""
    by_seed = sorted(alike, key=lambda run: run.seed)
    if len(by_seed[0].groups) > 1:
        return by_seed[0]
    return max(by_seed, key=lambda run: run.final(run.groups[0]))


# What is shown ---------------------------------------------------------------------------------


def episodes(run: curves.Run) -> Iterator[Episode]:
    """Episodes of a run's policy from seed 0 on: all frames, and what came of them."""
    entry = gpu_zoo.spec(run.env_id)
    checkpoint = run.folder / run_folder.CHECKPOINT
    policy, params = play.load_policy(entry, checkpoint, {}, seed=0, deterministic=False)
    env = play.open_env(entry, "rgb_array", params, reference=False)
    for seed in count():
        frames = []
        for returns in play.episode(env, policy, seed):  # noqa: B007
            frames.append(small(env.render()))
        groups: dict[str, list[float]] = {}
        for agent, total in returns.items():
            groups.setdefault(agent.rpartition("_")[0], []).append(total)
        means = {name: round(float(np.mean(totals)), 2) for name, totals in groups.items()}
        yield frames, {"seed": seed, "steps": len(frames) - 1, "returns": means}


def enough(played: Iterator[Episode]) -> list[Episode]:
    """As many episodes as fit if the next one is like the last, and at least one."""
    taken: list[Episode] = []
    for episode in islice(played, MOST_EPISODES):
        taken.append(episode)
        if sum(len(frames) for frames, _ in taken) + len(episode[0]) > MOST:
            break
    return taken


def thinned(frames: Sequence[Image.Image], stride: int) -> list[Image.Image]:
    """Every so many frames, and the last one in any case."""
    return [*frames[:-1:stride], frames[-1]]


def small(frame: npt.NDArray[np.uint8]) -> Image.Image:
    """The frame at the gallery's size."""
    height = round(WIDTH * frame.shape[0] / frame.shape[1])
    return Image.fromarray(frame).resize((WIDTH, height), Image.Resampling.BOX)


def with_few_colors(frames: Sequence[Image.Image]) -> list[Image.Image]:
    """The frames with one palette for all, so that only what moves is written anew."""
    found: Counter[tuple[int, ...]] = Counter()
    for frame in frames:
        found.update({color: number for number, color in frame.getcolors(WIDTH * frame.height)})
    palette = Image.new("P", (1, 1))
    palette.putpalette([level for color in palette_of(found) for level in color])
    return [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]


def palette_of(found: Counter[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The most frequent colours, without those that look much like a more frequent one: otherwise
    the shades at edges would crowd out what is small."""
    taken: list[tuple[int, ...]] = []
    for color, _ in found.most_common():
        if all(max(abs(a - b) for a, b in zip(color, t, strict=True)) > ALIKE for t in taken):
            taken.append(color)
        if len(taken) == COLORS:
            break
    return taken


def show(run: curves.Run, folder: Path) -> dict[str, Any]:
    """Write the animation and its first frame; what they show."""
    entry = gpu_zoo.spec(run.env_id)
    taken = enough(episodes(run))
    stride = -(-len(taken[0][0]) // MOST)
    tick = max(10 * round(100 * stride / entry.render_fps), SHORTEST)
    parts = [thinned(frames, stride) for frames, _ in taken]
    durations = [d for part in parts for d in [tick] * (len(part) - 1) + [PAUSE]]
    frames = with_few_colors([frame for part in parts for frame in part])
    folder.mkdir(parents=True, exist_ok=True)
    frames[0].save(folder / f"{entry.name}.png", optimize=True)
    frames[0].save(
        folder / f"{entry.name}.gif",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        disposal=1,
        optimize=False,
    )
    return {
        "run": f"{run.folder.parent.name}/{run.folder.name}",
        "algorithm": run.algorithm,
        "env_steps": int(run.rows[-1]["env_steps"]),
        "width": frames[0].width,
        "height": frames[0].height,
        "frames": len(frames),
        "episodes": [summary for _, summary in taken],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser(description="Animations of trained policies.")
    parser.add_argument("--runs", nargs="+", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--only", nargs="+", metavar="ENV", help="these environments alone")
    parser.add_argument("--out", type=Path, default=ASSETS, metavar="FOLDER")
    given = parser.parse_args(argv)
    try:
        only = [gpu_zoo.spec(name).id for name in given.only or ()]
        runs = [run for run in curves.find(given.runs) if not only or run.env_id in only]
        to_show = chosen(runs)
    except (KeyError, ValueError) as error:
        parser.error(str(error.args[0]))
    file = given.out / SHOWN
    shown = json.loads(file.read_text()) if file.is_file() else {}
    for env_id, run in sorted(to_show.items()):
        shown[env_id] = show(run, given.out)
        file.write_text(json.dumps(shown, indent=1, sort_keys=True) + "\n")
        size = (given.out / f"{gpu_zoo.spec(env_id).name}.gif").stat().st_size
        print(f"{env_id}: {run.folder}, {shown[env_id]['frames']} frames, {size / 1e3:.0f} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
