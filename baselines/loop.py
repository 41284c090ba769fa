"""The loop around a trainer's iterations: progress, curve and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from gpu_zoo.baselines import distributed
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.ddpg_config import DDPGConfig
from gpu_zoo.baselines.logger import Logger
from gpu_zoo.baselines.pql_config import PQLConfig

Config = PPOConfig | DDPGConfig | PQLConfig


@dataclass(frozen=True)
class Update:
    """One iteration: ``horizon`` steps of all environments, then learning from them.

    Attributes:
        index: iterations so far, this one included.
        env_steps: environment steps so far.
        episodes: how many ended in this iteration, those with a staggered start not counted.
        returns: by group, their mean return, itself a mean over the group's agents; empty if no
            episode ended. By agent, if each has a network of its own.
        losses: means over the gradient steps, named ``<group>/<metric>``, or by agent.
        seconds: since the run began, stops not counted.
    """

    index: int
    env_steps: int
    episodes: int
    returns: dict[str, float]
    losses: dict[str, float]
    seconds: float = field(compare=False)


def iterations(config: Config) -> int:
    """How many a run has."""
    return math.ceil(config.total_steps / (config.num_envs * config.horizon))


def run(
    config: Config,
    curve: list[Update],
    iterate: Callable[[], tuple[int, dict[str, float], dict[str, float]]],
    save: Callable[[str], None],
    on_update: Callable[[Update], None] | None,
) -> None:
    """Iterate to the end of the run, saving now and then.

    Args:
        config: the run's hyper-parameters.
        curve: one entry for each iteration made so far; the others are appended.
        iterate: makes an iteration, ``horizon`` steps of all environments, and gives episodes,
            returns and losses as :class:`Update` has them.
        save: writes a checkpoint to a path.
        on_update: called after every iteration.
    """
    a_step = config.num_envs * config.horizon
    updates = iterations(config)
    before = curve[-1].seconds if curve else 0.0
    begun = time.perf_counter()
    start = len(curve) * a_step
    first = distributed.rank() == 0
    progress, log_dir = config.progress and first, config.log_dir if first else None
    with Logger(updates * a_step, start, progress, log_dir) as logger:
        while len(curve) < updates:
            index = len(curve) + 1
            episodes, returns, losses = iterate()
            seconds = before + time.perf_counter() - begun
            update = Update(index, index * a_step, episodes, returns, losses, seconds)
            curve.append(update)
            logger.log(update.env_steps, seconds, update.returns, update.losses)
            due = index % config.checkpoint_interval == 0 or index == updates
            if config.checkpoint and due:
                save(config.checkpoint)
            if on_update is not None:
                on_update(update)


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Within the block torch computes with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
