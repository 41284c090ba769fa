"""The bundled algorithms: ``gpu_zoo.baselines.<name>`` is the trainer of each."""

from __future__ import annotations

from typing import Literal

from gpu_zoo.baselines.a2c_config import A2CConfig
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.ddpg_config import DDPGConfig

Algorithm = Literal["ppo", "a2c", "ddpg"]
Config = PPOConfig | A2CConfig | DDPGConfig
ALGORITHMS: dict[str, type[Config]] = {"ppo": PPOConfig, "a2c": A2CConfig, "ddpg": DDPGConfig}
