"""skrl's faces of a batch: one for its multi-agent algorithms, one for its others, agents as lanes.

Source of the interface: skrl 2.1, ``envs/wrappers/torch/base.py`` and ``trainers/torch/base.py``.

skrl's trainer stores what an agent observed only after the next step was taken, and adds to rewards
in place. So both are fresh arrays with every step, and written by nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from gpu_zoo.errors import MissingDependency
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.incoming import require_batch, require_mode
from gpu_zoo.wrappers.lanes import Lanes, Policy, require_torch

try:
    import torch
    from skrl import config
    from skrl.envs.wrappers.torch import MultiAgentEnvWrapper, Wrapper
    from skrl.memories.torch import RandomMemory
except ImportError as error:
    raise MissingDependency(
        "skrl is missing; install it with: pip install 'gpu-zoo[skrl]'"
    ) from error

ByAgent = dict[str, torch.Tensor]


class SkrlMultiAgentEnv(MultiAgentEnvWrapper):
    """All agents of a batch by name, for IPPO and MAPPO.

    Observations and the state are one fresh array: an agent's observations are columns of it.

    Where an episode ended, ``infos["last_observations"]`` and ``infos["last_states"]`` are the
    dicts that ``step`` and ``state`` return, but with what the episode ended with in place of the
    next one's beginning. :class:`LastObservations` has an algorithm bootstrap from them.

    Args:
        batch: the environments, in SAME_STEP mode, with ``array="torch"``.

    Attributes:
        batch: the same.
        acting: by agent, which environments it acted in with the last step; bool ``(num_envs,)``,
            written in place, for :class:`LivingMemory`.

    Raises:
        TypeError: arrays of another kind.
        ValueError: another autoreset mode; masked actions, of which skrl knows nothing.
    """

    def __init__(self, batch: VectorEnv) -> None:
        _check(batch, getattr(batch, "group", ()))
        super().__init__(batch)
        self.batch = batch
        self._seed: int | None = config.torch.key
        self._acted = {
            name: torch.zeros_like(group.active, memory_format=torch.contiguous_format)
            for name, group in batch.group.items()
        }
        self.acting: ByAgent = {
            agent: self._acted[name][:, i]
            for name, group in batch.group.items()
            for i, agent in enumerate(group.agents)
        }
        spaces_of = [batch.single_observation_space(agent) for agent in batch.agents]
        self._ends = np.cumsum([space.low.size for space in spaces_of]).tolist()

    def reset(self) -> tuple[ByAgent, dict[str, Any]]:
        """Begin an episode everywhere; the first time by the seed of ``skrl.utils.set_seed``.

        Returns:
            Observations by agent, float32 ``(num_envs, n)``, and nothing.
        """
        self.batch.reset(seed=self._seed)
        self._seed = None
        self._state = _state(self.batch, "observations")
        return self._by_agent(self._state), {}

    def step(
        self, actions: Mapping[str, torch.Tensor]
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, dict[str, Any]]:
        """Advance every environment by one step.

        Args:
            actions: by agent, integers ``(num_envs, components)`` or float32 ``(num_envs, size)``;
                those of agents that have left mean nothing, but must be in the action space.

        Returns:
            Observations float32 ``(num_envs, n)``, rewards, terminations and truncations
            ``(num_envs, 1)``, by agent. Flags are true in the one step that ended the agent's
            episode; it is truncated only if it was not terminated as well.

        Raises:
            InvalidAction: a wrong shape, dtype or value; nothing moved.
            ResetNeeded: no reset yet.
        """
        for name, group in self.batch.group.items():
            self._acted[name].copy_(group.active)
        self.batch.step({agent: self._as_action(agent, a) for agent, a in actions.items()})
        rewards, terminated, truncated = {}, {}, {}
        for name, group in self.batch.group.items():
            earned, by_rules = group.rewards.clone(), self._acted[name] & group.terminations
            cut = self._acted[name] & group.truncations & ~by_rules
            for i, agent in enumerate(group.agents):
                rewards[agent] = earned[:, i : i + 1]
                terminated[agent] = by_rules[:, i : i + 1]
                truncated[agent] = cut[:, i : i + 1]
        self._state = _state(self.batch, "observations")
        return self._by_agent(self._state), rewards, terminated, truncated, self._infos()

    def _as_action(self, agent: str, action: torch.Tensor) -> torch.Tensor:
        discrete = isinstance(self.action_spaces[agent], spaces.Discrete)
        return action.squeeze(-1) if discrete else action

    def _by_agent(self, state: torch.Tensor) -> ByAgent:
        columns = state.tensor_split(self._ends[:-1], dim=1)
        return dict(zip(self.agents, columns, strict=True))

    def _infos(self) -> dict[str, Any]:
        last = _last_state(self.batch, self._state)
        if last is None:
            return {}
        return {
            "last_observations": self._by_agent(last),
            "last_states": dict.fromkeys(self.agents, last),
        }

    def state(self) -> dict[str, torch.Tensor | None]:
        """All agents' observations, float32 ``(num_envs, size)``, the same for each agent."""
        return dict.fromkeys(self.agents, self._state)

    def render(self, index: int | None = None) -> Any:
        """A picture of one environment; none by default, as trainers call this in every step."""
        return None if index is None else self.batch.render(index)

    def close(self) -> None:
        """Release the batch; closing twice does nothing."""
        self.batch.close()

    @property
    def agents(self) -> list[str]:
        """Names of all agents. Environments begin anew by themselves, so it is never empty."""
        return list(self.batch.agents)

    @property
    def possible_agents(self) -> list[str]:
        """The same."""
        return list(self.batch.agents)

    @property
    def observation_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Of one environment, by agent."""
        return {agent: self.batch.single_observation_space(agent) for agent in self.agents}

    @property
    def action_spaces(self) -> dict[str, spaces.Space[Any]]:
        """Of one environment, by agent."""
        return {agent: self.batch.single_action_space(agent) for agent in self.agents}


class SkrlEnv(Wrapper):
    """A group's agents as environments of their own, all of one policy, for PPO and its like.

    :class:`~gpu_zoo.wrappers.lanes.Lanes`; infos are as :class:`SkrlMultiAgentEnv` has them, but
    for one array. A lane whose agent has left is terminated once more when its environment's
    episode is over, so that networks with a memory forget it.

    Args:
        batch: the environments, in SAME_STEP mode, with ``array="torch"``.
        group: whose lanes; may be left out if there is one group.
        others: a policy for each other group, by name, such as ``lanes.chance(seed)``.
        states: whether critics may see the global state: MAPPO with shared parameters.

    Attributes:
        batch: the same.
        acting: which lanes acted in the last step; bool ``(lanes,)``, written in place, for
            :class:`LivingMemory`.

    Raises:
        ValueError, TypeError: as for :class:`SkrlMultiAgentEnv` and
            :class:`~gpu_zoo.wrappers.lanes.Lanes`.
    """

    def __init__(
        self,
        batch: VectorEnv,
        group: str | None = None,
        others: Mapping[str, Policy] | None = None,
        *,
        states: bool = False,
    ) -> None:
        self._lanes = Lanes(batch, group, others)
        _check(batch, [self._lanes.name])
        super().__init__(batch)
        self.batch = batch
        self._states = states
        self._seed: int | None = config.torch.key
        self.acting = torch.zeros(self._lanes.count, dtype=torch.bool, device=self.device)

    def reset(self) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begin an episode everywhere; the first time by the seed of ``skrl.utils.set_seed``.

        Returns:
            Observations float32 ``(lanes, n)``, and nothing.
        """
        self.batch.reset(seed=self._seed)
        self._seed = None
        return self._lanes.observations.clone(), {}

    def step(
        self, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Advance every environment by one step.

        Args:
            actions: integers ``(lanes, components)`` or float32 ``(lanes, size)``.

        Returns:
            Observations float32 ``(lanes, n)``; rewards, terminations and truncations
            ``(lanes, 1)``; a lane is truncated only if it was not terminated as well.

        Raises:
            InvalidAction: a wrong shape, dtype or value; nothing moved.
            ResetNeeded: no reset yet.
        """
        discrete = isinstance(self.action_space, spaces.Discrete)
        outcome = self._lanes.step(actions.squeeze(-1) if discrete else actions)
        self.acting.copy_(outcome.acted)
        terminated = outcome.terminated | (outcome.over & ~outcome.acted)
        cut = outcome.cut
        rewards = self._lanes.rewards.clone()
        infos: dict[str, Any] = {}
        if outcome.over.any():
            infos["last_observations"] = self._lanes.last_observations(outcome.over)
            infos["last_states"] = self._last_states()
        shaped = (array.unsqueeze(-1) for array in (rewards, terminated, cut))
        return self._lanes.observations.clone(), *shaped, infos

    def _last_states(self) -> torch.Tensor | None:
        if not self._states:
            return None
        last = _last_state(self.batch, _state(self.batch, "observations"))
        assert last is not None
        return last.repeat_interleave(self._lanes.agents, dim=0)

    def state(self) -> torch.Tensor | None:
        """The state of each lane's environment, float32 ``(lanes, size)``, if they are wanted."""
        return self._lanes.states() if self._states else None

    def render(self, index: int | None = None) -> Any:
        """A picture of one environment; none by default, as trainers call this in every step."""
        return None if index is None else self.batch.render(index)

    def close(self) -> None:
        """Release the batch; closing twice does nothing."""
        self.batch.close()

    @property
    def num_envs(self) -> int:
        """Number of lanes."""
        return self._lanes.count

    @property
    def num_agents(self) -> int:
        """One, of each lane."""
        return 1

    @property
    def state_space(self) -> spaces.Box | None:
        """Of one lane, if states are wanted."""
        return self.batch.state_space if self._states else None

    @property
    def observation_space(self) -> spaces.Box:
        """Of one lane."""
        return self._lanes.observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Of one lane."""
        return self._lanes.action_space


class LastObservations:
    """Before an algorithm's name, has it learn from what episodes ended with.

    ``class TruePPO(LastObservations, PPO): pass``

    With ``time_limit_bootstrap`` skrl adds the value of the observation that the step returned
    where an episode was cut off. In environments that begin anew by themselves, that is the next
    episode's first. With this class it is the last one, of the episode that was cut off.
    """

    def record_transition(
        self, *, next_observations: Any, next_states: Any, infos: dict[str, Any], **others: Any
    ) -> None:
        """Record a step, with ``infos["last_observations"]`` and ``["last_states"]`` if present."""
        super().record_transition(  # type: ignore[misc]
            next_observations=infos.get("last_observations", next_observations),
            next_states=infos.get("last_states", next_states),
            infos=infos,
            **others,
        )


class LivingMemory(RandomMemory):
    """A memory that gives out no step of agents that have left.

    Advantages have mean 0 and deviation 1 over the steps that are given out. Moments kept by
    a ``value_preprocessor`` are still of all steps.

    Args:
        acting: who acts: ``env.acting`` of :class:`SkrlEnv`, ``env.acting[agent]`` of
            :class:`SkrlMultiAgentEnv`.
        **kwargs: as for skrl's ``RandomMemory``.
    """

    def __init__(self, *, acting: torch.Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._acting = acting
        self.create_tensor(name="acted", size=1, dtype=torch.bool)

    def add_samples(self, **tensors: torch.Tensor) -> None:
        """Store the step just taken."""
        super().add_samples(acted=self._acting.unsqueeze(-1), **tensors)

    def set_tensor_by_name(self, name: str, tensor: torch.Tensor) -> None:
        """Set a tensor; advantages are normalised anew."""
        if name == "advantages":
            taken = tensor[self.tensors["acted"]]
            tensor = (tensor - taken.mean()) / (taken.std() + 1e-8)
        super().set_tensor_by_name(name, tensor)

    def sample(
        self, names: list[str], *, batch_size: int, mini_batches: int = 1, sequence_length: int = 1
    ) -> list[list[torch.Tensor]]:
        """Steps that agents took, each once, in random order; at most ``batch_size``.

        Raises:
            ValueError: sequences, which would have steps of agents that have left.
        """
        if sequence_length != 1:
            raise ValueError(f"sequence_length={sequence_length}: expected 1")
        steps = self.tensors_view["acted"][: len(self), 0].nonzero().squeeze(-1).cpu()
        self.sampling_indexes = steps[torch.randperm(len(steps))[:batch_size]]
        return self.sample_by_index(  # type: ignore[no-any-return]
            names, indexes=self.sampling_indexes, mini_batches=mini_batches
        )


def _check(batch: VectorEnv, groups: Iterable[str]) -> None:
    require_batch(batch)
    require_mode(batch, AutoresetMode.SAME_STEP)
    require_torch(batch)
    for name in groups:
        if batch.group[name].action_masks is not None:
            raise ValueError(f"batch: actions of {name!r} are masked, and skrl knows no masks")


def _state(batch: VectorEnv, name: str) -> torch.Tensor:
    """An array of all groups side by side, ``(num_envs, size)``, fresh."""
    return torch.cat([getattr(group, name).flatten(1) for group in batch.group.values()], dim=1)


def _last_state(batch: VectorEnv, state: torch.Tensor) -> torch.Tensor | None:
    """The state with which episodes ended, if they just did, else the state; None if none did."""
    done = batch.engine.arrays["done"]
    if not done.any():
        return None
    return torch.where(done.unsqueeze(-1), _state(batch, "final_observations"), state)
