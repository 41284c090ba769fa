"""Other people's scripts, downloaded when a test runs, and run with their environment exchanged.

Nothing of them is kept in this repository. A test says what it changes; that each change is still
there to be made is checked, so that a script that became another one is noticed.
"""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest

PETTINGZOO = "Farama-Foundation/PettingZoo", "761353e6a9d29cb3c6b88232e50ee036f94b08fd"
CLEANRL = "vwxyzjn/cleanrl", "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb"
SIDE = 48  # of a painted picture


def source(repository: tuple[str, str], path: str) -> str:
    """A script's text at its commit: from GitHub, or from a clone below ``$GPU_ZOO_CLONES``.

    The clone is in a folder of the repository's name, such as ``$GPU_ZOO_CLONES/PettingZoo``.
    """
    name, commit = repository
    clones = os.environ.get("GPU_ZOO_CLONES")
    if clones:
        folder = os.path.join(clones, name.split("/")[1])  # noqa: PTH118
        shown = ["git", "-C", folder, "show", f"{commit}:{path}"]
        return subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    url = f"https://raw.githubusercontent.com/{name}/{commit}/{path}"
    try:
        with urllib.request.urlopen(url) as answer:
            return str(answer.read().decode())
    except urllib.error.URLError as error:
        pytest.skip(f"{url}: {error.reason}; GPU_ZOO_CLONES names a folder with a clone instead")


def run(text: str, changes: Mapping[str, str], **names: Any) -> dict[str, Any]:
    """Run a script as ``python script.py`` would; returns its names.

    Args:
        text: the script.
        changes: what stands there, and what shall.
        **names: that the script finds defined.
    """
    for old, new in changes.items():
        assert old in text, f"the script has no {old!r} any more"
        text = text.replace(old, new)
    module = {"__name__": "__main__", "__file__": "script.py", **names}
    exec(compile(text, "script.py", "exec"), module)
    return module


def maker(env_id: str, change: Callable[[Any], Any] = lambda env: env, **own: Any) -> Any:
    """What stands for ``pettingzoo.make``: one environment in place of whichever is wanted.

    Of the parameters it takes those that the environment knows, ``continuous`` by its name.
    """

    def make(kind: str, _: str, **params: Any) -> Any:
        known = {"max_cycles", "render_mode"}
        taken = {name: value for name, value in params.items() if name in known}
        if "continuous" in params:
            taken["continuous_actions"] = params["continuous"]
        return change(pettingzoo.make(kind, env_id, **taken, **own))

    return make


def reference(name: str) -> Any:
    """What stands for ``pettingzoo.make`` if it knew mpe2, which it does not."""
    mpe2 = pytest.importorskip(f"mpe2.{name}")

    def make(kind: str, _: str, **params: Any) -> Any:
        return {"parallel": mpe2.parallel_env, "aec": mpe2.env}[kind](**params)

    return make


def paint(env: Any) -> Any:
    """An environment that shows its numbers as a picture, uint8 ``(SIDE, SIDE, 3)``.

    For scripts whose networks are for pictures: one grey tile a number, -2 black and 2 white.
    """
    supersuit: Any = pytest.importorskip("supersuit")
    picture = gymnasium.spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)

    def show(observation: Any, _: Any) -> Any:
        tiles = np.clip((observation + 2) * 63.75, 0, 255).astype(np.uint8)
        across = int(np.ceil(np.sqrt(len(tiles))))
        square = np.resize(tiles, (across, across))
        index = np.arange(SIDE) * across // SIDE
        return np.repeat(square[index][:, index, None], 3, axis=2)

    return supersuit.observation_lambda_v0(env, show, lambda _: picture)
