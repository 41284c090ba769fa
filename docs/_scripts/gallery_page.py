"""What build_pages.py writes about the animations that gallery.py made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gpu_zoo
from gpu_zoo.spec import EnvSpec

ASSETS = Path(__file__).resolve().parents[1] / "assets" / "environments"
FROM_PAGE = "../assets/environments"
FAMILIES = {
    "classic": "Classic control",
    "mpe": "Particle environments",
    "warpdrive": "WarpDrive's environments",
}
EPISODES = {1: "An episode", 2: "Two episodes", 3: "Three episodes", 4: "Four episodes"}
# What is to be seen, for those who do not see it.
SEEN = {
    "acrobot_v1": "Two links hang from a joint, swing higher each time, and touch a line above.",
    "cartpole_v1": "A cart moves a little left and right on its track under an upright pole.",
    "mountain_car_continuous_v0": "A car rolls back up one side of a valley, then up the other to "
    "a flag on top.",
    "mountain_car_v0": "A car rolls to and fro in a valley until it reaches a flag on the right.",
    "pendulum_v1": "A rod swings up to a ring above its joint and stays there.",
    "collect_treasure_v1": "Grey collectors run to small coloured treasures and on to large discs, "
    "the deposits.",
    "simple_adversary_v3": "Two blue agents cover a green and a black landmark, and a red "
    "adversary follows them.",
    "simple_crypto_v3": "Five discs that do not move; below them the letters that Alice, Bob "
    "and Eve say.",
    "simple_formation_v1": "Four blue agents spread out into a circle around a black landmark.",
    "simple_line_v1": "Four small blue agents line up between two black landmarks.",
    "simple_push_v3": "A red adversary and a blue agent push each other about at a landmark.",
    "simple_reference_v3": "Two agents say letters to each other and go to landmarks of three "
    "colours.",
    "simple_speaker_listener_v4": "A grey speaker says a letter, and a listener goes to the "
    "landmark of its colour.",
    "simple_spread_v3": "Three blue agents move apart, each over a black landmark of its own.",
    "simple_tag_v3": "Three red adversaries chase a green agent around two black obstacles.",
    "simple_v3": "A disc goes straight to a landmark.",
    "simple_world_comm_v3": "Red adversaries chase green agents between large green forests and a "
    "black obstacle.",
    "catalyst_search_v0": "An atom goes over a map of energies, around the dark high places, to "
    "a green square.",
    "tag_continuous_v0": "A red tagger drives after ten green runners over a square, and they "
    "steer away.",
    "tag_gridworld_v0": "Red taggers close in on a green runner, cell by cell of a grid.",
}


@cache
def shown() -> dict[str, Any]:
    """What gallery.py says of each environment's animation, by id."""
    file = ASSETS / "gallery.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def image(spec: EnvSpec) -> str:
    """The animation, and the still picture that site.css puts in its place for who asks for less
    motion; nothing where there is none."""
    entry = shown().get(spec.id)
    if entry is None:
        return ""
    size = f"width={entry['width']} height={entry['height']} loading=lazy"
    return "".join(
        f"![{SEEN[spec.name]}]({FROM_PAGE}/{spec.name}.{ending}){{ .{kind} {size} }}"
        for ending, kind in (("gif", "moving"), ("png", "still"))
    )


def picture(spec: EnvSpec) -> Iterator[str]:
    """The animation on the environment's own page, and what it shows."""
    entry = shown().get(spec.id)
    if entry is None:
        return
    yield f"{image(spec)}\n"
    episodes = entry["episodes"]
    many = EPISODES.get(len(episodes), f"{len(episodes)} episodes")
    steps = f"{entry['env_steps'] / 1e6:.2g} million steps"
    groups = list(episodes[0]["returns"])
    means = [(g, sum(e["returns"][g] for e in episodes) / len(episodes)) for g in groups]
    returns = ", ".join(f"`{group}` {mean:.2f}" for group, mean in means)
    which = "mean returns" if len(episodes) > 1 or len(groups) > 1 else "return"
    trainer = entry["algorithm"].upper()
    yield f"{many} of a policy that {trainer} trained for {steps}; {which}: {returns}.\n"


def gallery() -> Iterator[str]:
    """A card for each environment, family by family."""
    specs = [gpu_zoo.spec(env_id) for env_id in gpu_zoo.list_ids()]
    for family in dict.fromkeys(spec.family for spec in specs):
        members = [spec for spec in specs if spec.family == family]
        yield f"## {FAMILIES[family]}\n"
        yield f"These follow {members[0].reference}. Ids begin with `{family}/`.\n"
        yield '<div class="gallery" markdown>\n'
        for spec in members:
            yield from card(spec)
        yield "</div>\n"


def card(spec: EnvSpec) -> Iterator[str]:
    """One item of the gallery."""
    yield f"-   [{image(spec)} **{spec.name}**]({spec.name}.md)\n"
    yield f"    {spec.summary}\n"
    yield f"    {who(spec, spec.resolve({}))}; {kinds(spec)}\n"


def who(spec: EnvSpec, params: Mapping[str, Any]) -> str:
    """How many agents there are, and of which groups where there are several."""
    groups = spec.layout(params)
    total = sum(group.count for group in groups)
    names = " + ".join(f"{group.count} {group.name}" for group in groups)
    return f"{total} agent{'s' * (total > 1)}{f': {names}' if len(groups) > 1 else ''}"


def kinds(spec: EnvSpec) -> str:
    """Kinds of actions, in words."""
    spaces = spec.groups[0].actions
    found = dict.fromkeys("continuous" if space.box else "discrete" for space in spaces)
    return f"{' or '.join(found)} actions"
