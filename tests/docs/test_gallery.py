"""The gallery: what is animated, and that every environment has a card that says what is seen."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_zoo

pytest.importorskip("pygame")
Image = pytest.importorskip("PIL.Image")
DOCS = Path(__file__).resolve().parents[2] / "docs"
ASSETS = DOCS / "assets" / "environments"
CARTPOLE = "classic/cartpole_v1"
WIDTH, MOST_FRAMES, MOST_BYTES = 240, 250, 250_000
SIZES = re.compile(r"\.(?:moving|still) width=(\d+) height=(\d+) loading=lazy")


def frames(path: Path) -> tuple[list[Any], list[int]]:
    """Frames as uint8 ``(height, width, 3)``, and how many milliseconds each stays."""
    with Image.open(path) as image:
        shown, stays = [], []
        for k in range(getattr(image, "n_frames", 1)):
            image.seek(k)
            shown.append(np.asarray(image.convert("RGB")))
            stays.append(image.info.get("duration", 0))
    return shown, stays


# What is there -------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", gpu_zoo.list_ids())
def test_every_environment_is_animated(env_id: str) -> None:
    path = ASSETS / f"{gpu_zoo.spec(env_id).name}.gif"
    shown, stays = frames(path)
    entry = json.loads((ASSETS / "gallery.json").read_text())[env_id]
    assert 10 < len(shown) <= min(MOST_FRAMES, entry["frames"]), "GIFs join frames that are alike"
    assert path.stat().st_size < MOST_BYTES
    assert {frame.shape for frame in shown} == {(entry["height"], entry["width"], 3)}
    assert entry["width"] == WIDTH
    assert any((frame != shown[0]).any() for frame in shown)
    assert min(stays) >= 20
    (still,), _ = frames(path.with_suffix(".png"))
    np.testing.assert_array_equal(still, shown[0])


@pytest.mark.parametrize("env_id", gpu_zoo.list_ids())
def test_every_environment_has_a_card_and_its_picture(env_id: str) -> None:
    spec = gpu_zoo.spec(env_id)
    index = (DOCS / "environments" / "index.md").read_text()
    card = next(part for part in index.split("-   [") if part.count(f"({spec.name}.md)"))
    page = (DOCS / "environments" / f"{spec.name}.md").read_text()
    assert spec.summary in card
    assert re.search(r"\d+ agents?[;:].* actions\n", card)
    entry = json.loads((ASSETS / "gallery.json").read_text())[env_id]
    for text in (card, page.split("|", 1)[0]):
        for ending in ("gif", "png"):
            alt = re.search(rf"!\[(.*?)\]\(\S+/{spec.name}\.{ending}\)", text)
            assert alt and len(alt[1]) > 20
        sizes = [tuple(map(int, found)) for found in SIZES.findall(text)]
        assert sizes == [(entry["width"], entry["height"])] * 2


def test_less_motion_shows_stills() -> None:
    style = (DOCS / "assets" / "site.css").read_text()
    before, _, after = style.partition("@media (prefers-reduced-motion: reduce)")
    assert re.search(r"\.still \{\s*display: none", before)
    assert re.search(r"\.moving \{\s*display: none", after)
    assert re.search(r"\.still \{\s*display: inline", after)
    # A rule for the gallery's pictures would outweigh these.
    shown = [selector.split()[-1] for selector in re.findall(r"([^{}]+)\{[^{}]*display:", style)]
    assert set(shown) == {".still", ".moving", "ul", "strong"}
    assert "assets/site.css" in (DOCS.parent / "mkdocs.yml").read_text()


# How they are made ---------------------------------------------------------------------------


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(DOCS / "_scripts"))
    return importlib.import_module("gallery")


@pytest.fixture
def runs(gallery: Any, tmp_path: Path) -> Path:
    """Two runs of cartpole that differ in their seed."""
    from gpu_zoo.baselines import run_folder
    from gpu_zoo.baselines.config import PPOConfig

    for seed in (0, 1):
        config = PPOConfig(
            total_steps=4096, num_envs=32, horizon=32, hidden=(8,), seed=seed, progress=False
        )
        run_folder.train(tmp_path / "runs" / f"seed_{seed}", CARTPOLE, "ppo", config)
    return tmp_path / "runs"


def rewrite(progress: Path, returns: float) -> None:
    """Make a run's returns what is wanted."""
    header, *rows = (line.split(",") for line in progress.read_text().split())
    k = header.index("agent/return")
    rows = [[*row[:k], str(returns), *row[k + 1 :]] for row in rows]
    progress.write_text("\n".join(",".join(row) for row in (header, *rows)) + "\n")


def test_the_same_run_gives_the_same_files(gallery: Any, runs: Path, tmp_path: Path) -> None:
    outs = [tmp_path / "a", tmp_path / "b"]
    for out in outs:
        assert gallery.main(["--runs", str(runs), "--out", str(out)]) == 0
    names = {"cartpole_v1.gif", "cartpole_v1.png", "gallery.json"}
    assert {path.name for path in outs[0].iterdir()} == names
    for name in names:
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()
    entry = json.loads((outs[0] / "gallery.json").read_text())[CARTPOLE]
    episodes = entry["episodes"]
    assert [episode["seed"] for episode in episodes] == list(range(len(episodes)))
    # A step of cartpole is worth 1, and an episode has a frame more than steps.
    assert all(episode["returns"] == {"agent": episode["steps"]} for episode in episodes)
    assert entry["frames"] == sum(episode["steps"] + 1 for episode in episodes)
    # 50 frames a second, and the last one of an episode stays.
    stays = frames(outs[0] / "cartpole_v1.gif")[1]
    assert stays.count(gallery.PAUSE) == len(episodes) and stays[-1] == gallery.PAUSE
    assert sum(stays) == 20 * (entry["frames"] - len(episodes)) + gallery.PAUSE * len(episodes)


def test_which_run_is_shown(gallery: Any, runs: Path) -> None:
    def shown() -> str:
        return str(gallery.chosen(gallery.curves.find([runs]))[CARTPOLE].folder.relative_to(runs))

    for seed in (0, 1):
        rewrite(runs / f"seed_{seed}" / "progress.csv", 10.0 + seed)
    assert shown() == "seed_1", "the better one"
    # A newer run is taken though it is worse, as long as it is finished.
    shutil.copytree(runs / "seed_0", runs / "new")
    config = runs / "new" / "config.yaml"
    config.write_text(config.read_text().replace("gamma: 0.99", "gamma: 0.5"))
    now = (runs / "new" / "checkpoint.pt").stat().st_mtime
    os.utime(runs / "new" / "checkpoint.pt", (now + 60, now + 60))
    assert shown() == "new"
    progress = runs / "new" / "progress.csv"
    progress.write_text("\n".join(progress.read_text().split()[:-1]) + "\n")
    assert shown() == "seed_1"


def test_groups_at_odds_show_the_first_seed(gallery: Any) -> None:
    def run(seed: int, *names: str) -> Any:
        rows = [{"env_steps": 10.0, **{f"{name}/return": float(seed) for name in names}}]
        return gallery.curves.Run(Path(), "mpe/simple_tag_v3", "ppo", seed, {}, rows)

    assert gallery.best([run(2, "agent"), run(1, "agent")]).seed == 2
    assert gallery.best([run(2, "agent", "adversary"), run(1, "agent", "adversary")]).seed == 1


def test_how_many_episodes_and_frames(gallery: Any) -> None:
    def played(length: int) -> int:
        return len(gallery.enough((([0] * length), {}) for _ in range(100)))

    most = gallery.MOST
    assert [played(n) for n in (5, most // 3, most // 2, most // 2 + 1, 5 * most)] == [
        4,
        3,
        2,
        1,
        1,
    ]
    assert gallery.thinned(list(range(10)), 3) == [0, 3, 6, 9]
    assert gallery.thinned(list(range(11)), 4) == [0, 4, 8, 10]
    assert gallery.thinned([0, 1], 1) == [0, 1]


def test_small_things_keep_their_colour(gallery: Any) -> None:
    shades = {(shade, shade, shade): 1000 - shade for shade in range(256)}
    found = Counter({**shades, (170, 70, 70): 5})
    palette = gallery.palette_of(found)
    assert (0, 0, 0) in palette and (170, 70, 70) in palette
    assert len(palette) <= gallery.COLORS
    assert gallery.palette_of(Counter({(0, 0, 0): 2, (0, 0, 5): 1})) == [(0, 0, 0)]
