"""The loop around a trainer's iterations: progress, curve and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.ddpg_config import DDPGConfig
from gpu_zoo.baselines.logger import Logger
from gpu_zoo.baselines.ppo import Update


def run(
    config: PPOConfig | DDPGConfig,
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
            returns and losses as :class:`~gpu_zoo.baselines.ppo.Update` has them.
        save: writes a checkpoint to a path.
        on_update: called after every iteration.
    """
    a_step = config.num_envs * config.horizon
    updates = math.ceil(config.total_steps / a_step)
    before = curve[-1].seconds if curve else 0.0
    begun = time.perf_counter()
    start = len(curve) * a_step
    with Logger(updates * a_step, start, config.progress, config.log_dir) as logger:
        while len(curve) < updates:
            index = len(curve) + 1
            episodes, returns, losses = iterate()
            seconds = before + time.perf_counter() - begun
            update = Update(index, index * a_step, episodes, returns, losses, seconds)
            curve.append(update)
            logger.log(update.env_steps, update.returns, update.losses)
            due = index % config.checkpoint_interval == 0 or index == updates
            if config.checkpoint and due:
                save(config.checkpoint)
            if on_update is not None:
                on_update(update)
