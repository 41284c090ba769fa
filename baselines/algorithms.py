"""The bundled algorithms: ``gpu_zoo.baselines.<name>`` is the trainer of each."""

from __future__ import annotations

from typing import Literal

from gpu_zoo.baselines.a2c_config import A2CConfig
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.ddpg_config import DDPGConfig
from gpu_zoo.baselines.pql_config import PQLConfig
from gpu_zoo.baselines.sac_config import SACConfig

Algorithm = Literal["ppo", "a2c", "ddpg", "pql", "sac"]
Config = PPOConfig | A2CConfig | DDPGConfig | PQLConfig | SACConfig
ALGORITHMS: dict[str, type[Config]] = {
    "ppo": PPOConfig, "a2c": A2CConfig, "ddpg": DDPGConfig, "pql": PQLConfig, "sac": SACConfig
}  # fmt: skip
CONTINUOUS = ("ddpg", "pql", "sac")  # for continuous actions only
