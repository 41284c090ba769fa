"""rl_games' face of a batch: an ``IVecEnv`` of one group of agents.

Source of the interface: rl_games 1.6.5, ``common/ivecenv.py`` and ``common/a2c_common.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium import spaces

import gpu_zoo
from gpu_zoo.errors import MissingDependency
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.lanes import Lanes, Policy, require_torch

try:
    import torch
    from rl_games.algos_torch.a2c_continuous import A2CAgent
    from rl_games.algos_torch.a2c_discrete import DiscreteA2CAgent
    from rl_games.common import env_configurations, vecenv
    from rl_games.common.ivecenv import IVecEnv
except ImportError as error:
    raise MissingDependency(
        "rl_games is missing; install it with: pip install 'gpu-zoo[rl-games]'"
    ) from error


class RLGamesVecEnv(IVecEnv):
    """A group of agents in all environments of a batch, as rl_games trains on them.

    rl_games numbers agents as :class:`~gpu_zoo.wrappers.lanes.Lanes` does: ``num_actors`` is the
    number of environments, and all their agents share a policy.

    Args:
        batch: the environments, in SAME_STEP mode, with ``array="torch"``.
        group: whose lanes; may be left out if there is one group.
        others: a policy for each other group, by name, such as ``lanes.chance(seed)``.
        states: whether a central value network sees the global state.
        seed: of the first reset.
        copy: whether observations and states are fresh arrays. If not they are the kernel's memory,
            which PPO takes as it is; SAC stores observations only after the next step, and would
            store wrong ones.

    Attributes:
        batch: the same.
        acting: which lanes acted in the last step; bool ``(lanes,)``, written in place, for
            :class:`LivingDiscreteAgent`.

    Raises:
        ValueError, TypeError: as for :class:`~gpu_zoo.wrappers.lanes.Lanes`; other arrays.
    """

    def __init__(
        self,
        batch: VectorEnv,
        group: str | None = None,
        others: Mapping[str, Policy] | None = None,
        *,
        states: bool = False,
        seed: int | None = None,
        copy: bool = True,
    ) -> None:
        self._lanes = Lanes(batch, group, others)
        require_torch(batch)
        self.batch = batch
        self.acting = torch.zeros(self._lanes.count, dtype=torch.bool, device=batch.device)
        self._states = states
        self._seed = seed
        self._copy = copy

    def reset(self) -> Any:
        """Begin an episode everywhere; the first time by the seed.

        Returns:
            As :meth:`step`'s first.
        """
        self.batch.reset(seed=self._seed)
        self._seed = None
        return self._observed()

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Advance every environment by one step.

        Args:
            actions: integers ``(lanes,)`` or ``(lanes, components)``, or float32 ``(lanes, size)``.

        Returns:
            Observations float32 ``(lanes, n)``, or with states a dict of them as ``obs`` and
            ``states``, float32 ``(num_envs, size)``; rewards float32 ``(lanes,)``, which are the
            kernel's memory; whether a lane's episode or its environment's ended, bool ``(lanes,)``;
            and infos with ``time_outs``, bool ``(lanes,)``: cut off and not terminated.

        Raises:
            InvalidAction: a wrong shape, dtype or value; nothing moved.
            ResetNeeded: no reset yet.
        """
        outcome = self._lanes.step(actions)
        self.acting.copy_(outcome.acted)
        rewards = self._lanes.rewards.float()
        return self._observed(), rewards, outcome.done, {"time_outs": outcome.cut}

    def _observed(self) -> Any:
        arrays = {"obs": self._lanes.observations}
        if self._states:
            arrays["states"] = self.batch.state()
        if self._copy:
            arrays = {name: array.clone() for name, array in arrays.items()}
        return arrays if self._states else arrays["obs"]

    def has_action_masks(self) -> bool:
        """Whether actions are masked; ``use_action_masks`` has rl_games keep to them."""
        return self._lanes.action_masks is not None

    def get_action_masks(self) -> torch.Tensor:
        """Which actions each lane may take now, bool ``(lanes, n)``, on the CPU.

        Raises:
            AttributeError: actions are not masked.
        """
        if self._lanes.action_masks is None:
            raise AttributeError(f"action_masks: those of {self.batch.spec.id} are not masked")
        masks: torch.Tensor = self._lanes.action_masks.cpu()
        return masks

    def get_number_of_agents(self) -> int:
        """Lanes of an environment."""
        return self._lanes.agents

    def get_env_info(self) -> dict[str, Any]:
        """Spaces of one agent, the number of agents, and the state's space if there is one."""
        info = {
            "observation_space": self._lanes.observation_space,
            "action_space": _as_rl_games(self._lanes.action_space),
            "agents": self._lanes.agents,
            "value_size": 1,
        }
        return {**info, "state_space": self.batch.state_space} if self._states else info

    def seed(self, seed: int) -> None:
        """The seed of the next reset."""
        self._seed = seed

    def close(self) -> None:
        """Release the batch; closing twice does nothing."""
        self.batch.close()


def register(name: str, make: Callable[..., RLGamesVecEnv]) -> None:
    """Let a configuration name an environment: ``env_name: <name>``.

    ``"gpu_zoo"`` is there already, and takes in ``env_config`` what :func:`make_env` takes.

    Args:
        name: for ``env_name``.
        make: called with ``num_actors`` and with ``env_config`` as keywords.
    """
    vecenv.register(name, lambda _, num_actors, **config: make(num_actors, **config))
    env_configurations.register(
        name, {"vecenv_type": name, "env_creator": lambda **config: make(1, **config)}
    )


def make_env(
    num_actors: int,
    env_id: str,
    group: str | None = None,
    others: Mapping[str, Policy] | None = None,
    *,
    states: bool = False,
    seed: int | None = None,
    copy: bool = True,
    **params: Any,
) -> RLGamesVecEnv:
    """Make an :class:`RLGamesVecEnv` of a new batch.

    Args:
        num_actors: number of environments.
        env_id: such as ``"mpe/simple_spread_v3"``.
        group: as for :class:`RLGamesVecEnv`.
        others: likewise.
        states: likewise.
        seed: likewise; rl_games' Runner gives it ``params.seed``.
        copy: likewise.
        **params: as for :func:`gpu_zoo.make_vec`.
    """
    batch = gpu_zoo.make_vec(env_id, num_actors, array="torch", **params)
    return RLGamesVecEnv(batch, group, others, states=states, seed=seed, copy=copy)


register("gpu_zoo", make_env)


class _Living:
    """Before an agent's name, has no step of agents that have left among what is learned from.

    rl_games needs as many steps as there are in a rollout. So each that nobody took gives way to
    one drawn among those that were taken.
    """

    def env_step(self: Any, actions: Any) -> Any:
        result = super().env_step(actions)  # type: ignore[misc]
        self._acted.append(self.vec_env.acting.clone())
        return result

    def play_steps(self: Any) -> dict[str, Any]:
        if self.has_central_value:
            raise ValueError("central_value_config: its network learns from every step; leave it")
        self._acted: list[torch.Tensor] = []
        steps = super().play_steps()  # type: ignore[misc]
        acted = torch.stack(self._acted, dim=1).flatten()  # a lane's steps lie side by side
        taken = acted.nonzero().squeeze(-1)
        row = torch.arange(len(acted), device=acted.device)
        row[~acted] = taken[torch.randint(len(taken), (int((~acted).sum()),), device=acted.device)]
        return {
            name: value[row] if torch.is_tensor(value) else value for name, value in steps.items()
        }

    def play_steps_rnn(self) -> dict[str, Any]:
        raise ValueError("network: has a memory, so steps of agents that left cannot be left out")


class LivingDiscreteAgent(_Living, DiscreteA2CAgent):
    """rl_games' PPO for discrete actions, of whose steps none is of an agent that has left.

    ``runner.algo_factory.register_builder("a2c_discrete", LivingDiscreteAgent)``
    """


class LivingContinuousAgent(_Living, A2CAgent):
    """The same for continuous actions."""


def _as_rl_games(space: spaces.Space[Any]) -> gymnasium.Space[Any]:
    """A multi-discrete space is a tuple to rl_games."""
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.Tuple([spaces.Discrete(int(n)) for n in space.nvec])
    return space
