"""Which libraries are tested at which versions, each in a virtual environment of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Combination:
    """Packages to install beside gpu_zoo, and what to run with them.

    Attributes:
        library: what is tested, as the documentation names it.
        works: what of it, in a few words.
        packages: for pip, exact.
        tests: files under tests/wrappers, each without ``test_`` and ``.py``.
        bench: a module of ``tests/compat/bench``, if speed is measured with this combination.
        collects: whether that module can measure collecting without training as well.
    """

    library: str
    works: str
    packages: tuple[str, ...]
    tests: tuple[str, ...]
    bench: str | None = None
    collects: bool = False


MPE = ("mpe2==1.1.1", "supersuit==3.11.0")
COMBINATIONS = {
    "sb3": Combination(
        "Stable-Baselines3, sb3-contrib",
        "PPO, A2C, DQN, SAC, TD3, MaskablePPO, RecurrentPPO",
        ("stable-baselines3==2.9.2", "sb3-contrib==2.9.2", "gymnasium==1.4.0", "moviepy", *MPE),
        ("lanes", "sb3"),
        bench="sb3",
    ),
    "sb3-oldest": Combination(
        "Stable-Baselines3, sb3-contrib",
        "the same",
        ("stable-baselines3==2.7.0", "sb3-contrib==2.7.0", "gymnasium==1.2.2"),
        ("lanes", "sb3"),
    ),
    "rllib": Combination(
        "RLlib",
        "PPO, new API stack: a batch in an env runner, MultiAgentEnv, make_vec",
        ("ray[rllib]==2.60.0", "gymnasium==1.2.2", *MPE),
        ("rllib",),
        bench="rllib",
    ),
    "gymnasium": Combination(
        "Gymnasium",
        "make_vec, vector wrappers",
        ("gymnasium[array-api]==1.4.0",),
        ("gymnasium", "lanes"),
    ),
    "gymnasium-oldest": Combination(
        "Gymnasium", "the same", ("gymnasium==1.2.2",), ("gymnasium", "lanes")
    ),
    "torchrl": Combination(
        "TorchRL",
        "collectors, PPO, transforms, masks",
        ("torchrl==0.14.1", "tensordict==0.14.3", "gymnasium==1.4.0", *MPE),
        ("torchrl",),
        bench="torchrl",
        collects=True,
    ),
    "torchrl-oldest": Combination(
        "TorchRL",
        "the same",
        ("torchrl==0.11.1", "tensordict==0.11.0", "gymnasium==1.2.2", *MPE),
        ("torchrl",),
    ),
    "benchmarl": Combination(
        "BenchMARL",
        "a task for each environment, experiments",
        ("benchmarl==1.5.2", "torchrl==0.11.1", *MPE),
        ("benchmarl",),
    ),
    "jax": Combination(
        "JAX", "a jitted policy on a batch", ("jax==0.10.2", "jaxlib==0.10.2"), ("jax",)
    ),
    "skrl": Combination(
        "skrl",
        "IPPO, MAPPO, PPO",
        ("skrl==2.1.1", "gymnasium==1.4.0", *MPE),
        ("skrl",),
        bench="skrl",
    ),
    "rl_games": Combination(
        "rl_games",
        "PPO, masks, central value",
        ("rl-games==1.6.5", "gymnasium==1.4.0"),
        ("rl_games",),
    ),
    "rsl_rl": Combination(
        "rsl_rl",
        "PPO, continuous actions",
        ("rsl-rl-lib==5.5.1", "tensordict==0.14.3", "gymnasium==1.4.0"),
        ("rsl_rl",),
    ),
    "agilerl": Combination(
        "AgileRL",
        "IPPO, MADDPG, MATD3",
        ("agilerl==2.58.0", "peft==0.21.0", "transformers==5.14.1"),
        ("agilerl",),
    ),
    "tianshou": Combination(
        "Tianshou",
        "PPO on a batch, its PettingZooEnv around our env",
        ("tianshou==2.0.1", "gymnasium==1.4.0"),
        ("tianshou",),
    ),
}
