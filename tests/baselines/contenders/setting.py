"""What all contenders have in common, JAX's too, so nothing but the standard library is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Note = Callable[[int, "float | None"], None]  # environment steps so far, return of the last ones


@dataclass(frozen=True)
class Setting:
    """mpe/simple_spread_v3 with 3 agents and 25 steps, and the PPO that all run on it.

    Attributes:
        num_envs: environments of those whose environments are a batch.
        few_envs: environments of those that step one after the other; they take as many more steps
            of each, so that an iteration has as many samples.
        total_steps: environment steps of a run; the learning rate falls to 0 over them.
        hidden: width of the two tanh layers of actor and critic each.
    """

    num_envs: int = 512
    few_envs: int = 16
    total_steps: int = 3_000_000
    agents: int = 3
    horizon: int = 25
    epochs: int = 4
    minibatches: int = 32
    learning_rate: float = 0.006
    gamma: float = 0.95
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.0
    max_grad_norm: float = 0.5
    adam_eps: float = 1e-5
    hidden: int = 64
    obs_size: int = 18
    actions: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_envs < 1 or self.num_envs % self.few_envs:
            raise ValueError(
                f"num_envs={self.num_envs}: expected a positive multiple of {self.few_envs}"
            )
        if self.samples % self.minibatches:
            raise ValueError(
                f"num_envs={self.num_envs}: expected num_envs * {self.horizon} * {self.agents} "
                f"samples to be a multiple of the {self.minibatches} minibatches"
            )

    @property
    def env_steps(self) -> int:
        """Environment steps of an iteration."""
        return self.num_envs * self.horizon

    @property
    def samples(self) -> int:
        """Agents' steps of an iteration."""
        return self.env_steps * self.agents

    @property
    def long_horizon(self) -> int:
        """Steps of each of the few environments in an iteration."""
        return self.env_steps // self.few_envs


@dataclass
class Contender:
    """What a contender's ``make`` returns.

    Attributes:
        method: how it does it, in words.
        modes: of ``"environment"``, ``"acting"`` and ``"training"`` those it has: environment steps
            of a call, and the call. Acting is all of an iteration but its gradient steps.
        learn: trains from new weights to the end of the run, or until ``note`` raises, which it
            calls after every iteration; None if it does not learn.
        facts: other things measured or counted, for the report.
    """

    method: str
    modes: dict[str, tuple[int, Callable[[], object]]]
    learn: Callable[[Note], None] | None = None
    facts: dict[str, object] = field(default_factory=dict)
