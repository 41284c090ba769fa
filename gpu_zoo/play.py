"""Episodes to look at: one environment, a policy, and a window or a recording."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.errors import MissingDependency
from gpu_zoo.registry import make
from gpu_zoo.spec import EnvSpec, Value

Frame = npt.NDArray[np.uint8]
# Observations and the action masks there are to actions, by agent.
Policy = Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]]
RECORDED = (".gif", ".png", ".mp4")
SHRINK = 2  # a recording has half the window's width: 350 pixels


def open_env(entry: EnvSpec, render_mode: str, params: Mapping[str, Value], reference: bool) -> Any:
    """One environment with PettingZoo's parallel API, ours or the original.

    Raises:
        MissingDependency: the original package is not installed.
    """
    if not reference:
        return make(entry.id, render_mode=render_mode, **params)
    package = entry.reference.partition(" ")[0]
    try:
        module = importlib.import_module(f"{package}.{entry.name}")
    except ImportError as error:
        pinned = entry.reference.replace(" ", "==")
        raise MissingDependency(
            f"--reference needs {package} ({error}): pip install '{pinned}'"
        ) from error
    return module.parallel_env(render_mode=render_mode, **params)


def random_policy(env: Any, seed: int) -> Policy:
    """Uniformly random actions among those allowed, the same ones for the same seed."""
    for index, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(seed + index)

    def draw(observations: Mapping[str, Any], masks: Mapping[str, Any]) -> Mapping[str, Any]:
        return {agent: env.action_space(agent).sample(masks.get(agent)) for agent in observations}

    return draw


def load_policy(
    entry: EnvSpec,
    checkpoint: Path,
    params: Mapping[str, Value],
    seed: int,
    deterministic: bool,
) -> tuple[Policy, dict[str, Any]]:
    """A trained policy, and the environment parameters that it was trained with.

    Raises:
        ValueError: no checkpoint, one of another environment, or ``params`` make agents that the
            policy does not know.
        MissingDependency: torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingDependency("--checkpoint needs torch: pip install 'gpu-zoo[train]'")
    policies = importlib.import_module("gpu_zoo.baselines.policies")
    policy = policies.load_policy(checkpoint, seed=seed)
    if policy.env_id != entry.id:
        raise ValueError(f"{checkpoint}: trained in {policy.env_id}, not in {entry.id}")
    trained = {name: value for name, value in policy.env_params.items() if name != "render_mode"}
    layouts = [entry.layout(entry.resolve(p)) for p in (trained, {**trained, **params})]
    shapes = [[(g.agents, g.obs_size, g.actions) for g in layout] for layout in layouts]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{checkpoint}: with these parameters agents differ from the trained ones")
    return Trained(policy, deterministic), trained


class Trained:
    """A trained policy that acts, and forgets at the start of an episode."""

    def __init__(self, policy: Any, deterministic: bool) -> None:
        self.reset: Callable[[], None] = policy.reset
        self._act = partial(policy.act, deterministic=deterministic)

    def __call__(
        self, observations: Mapping[str, Any], masks: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Actions by agent."""
        actions: Mapping[str, Any] = self._act(observations, action_masks=masks)
        return actions


def episode(env: Any, policy: Policy, seed: int) -> Iterator[dict[str, float]]:
    """Play an episode, and give each agent's return so far after the reset and after each step."""
    observations, infos = env.reset(seed=seed)
    if isinstance(policy, Trained):
        policy.reset()
    returns = dict.fromkeys(env.possible_agents, 0.0)
    yield returns
    while env.agents:
        # Those that ended with the last step were observed once more, but act no longer.
        acting = {agent: observations[agent] for agent in env.agents}
        masks = {a: info["action_mask"] for a, info in infos.items() if "action_mask" in info}
        observations, rewards, _, _, infos = env.step(policy(acting, masks))
        returns = {agent: total + rewards.get(agent, 0.0) for agent, total in returns.items()}
        yield returns


def mean_by_group(entry: EnvSpec, returns: Mapping[str, float]) -> str:
    """Returns averaged over the agents of each group, in words."""
    parts = []
    for group in entry.groups:
        of_group = [r for agent, r in returns.items() if agent.rpartition("_")[0] == group.name]
        if of_group:
            parts.append(f"{group.name} {np.mean(of_group):.2f}")
    return ", ".join(parts)


def window_was_closed() -> bool:
    """Whether the user has asked to close the window."""
    pygame = importlib.import_module("pygame")
    return bool(pygame.display.get_init() and pygame.event.peek(pygame.QUIT))


def check_recording(path: Path) -> None:
    """Check, before anything is played, that a file of this name can be written.

    Raises:
        ValueError: the name's ending is none we write.
        MissingDependency: a package is not installed.
    """
    if path.suffix.lower() not in RECORDED:
        raise ValueError(f"{path}: expected a name that ends in {', '.join(RECORDED)}")
    for module in ("imageio", "PIL"):
        if importlib.util.find_spec(module) is None:
            raise MissingDependency(f"{path}: needs {module}: pip install 'gpu-zoo[render]'")
    if path.suffix.lower() == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise MissingDependency(f"{path}: needs imageio-ffmpeg: pip install imageio-ffmpeg")


def shrink(frame: Frame) -> Frame:
    """The frame at half its size; means over 2 x 2 pixels keep edges smooth."""
    height, width, _ = frame.shape
    blocks = frame.reshape(height // SHRINK, SHRINK, width // SHRINK, SHRINK, 3)
    small: Frame = np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8)
    return small


def save_recording(path: Path, frames: list[Frame], fps: float) -> None:
    """Write an animated GIF, an animated PNG or an MP4, by the name's ending."""
    imageio = importlib.import_module("imageio.v3")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".mp4":
        # Dimensions need only be even; imageio would stretch to multiples of 16.
        imageio.imwrite(path, frames, plugin="FFMPEG", fps=fps, macro_block_size=2)
    else:
        imageio.imwrite(path, frames, plugin="pillow", duration=1000 / fps, loop=0)


def save_picture(path: Path, frame: Frame) -> None:
    """Write one frame at full size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    importlib.import_module("imageio.v3").imwrite(path, frame)
