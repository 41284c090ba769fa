"""rsl_rl's face of a batch: a ``VecEnv`` of one group of agents with continuous actions.

Source of the interface: rsl_rl 5.5, ``env/vec_env.py``, ``runners/on_policy_runner.py`` and
``algorithms/ppo.py``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from gymnasium import spaces

from gpu_zoo.errors import MissingDependency
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.lanes import Lanes, Policy, require_torch

try:
    import torch
    from rsl_rl.algorithms import PPO
    from rsl_rl.env import VecEnv
    from rsl_rl.storage import RolloutStorage
    from tensordict import TensorDict
except ImportError as error:
    raise MissingDependency(
        "rsl_rl is missing; install it with: pip install 'gpu-zoo[rsl-rl]'"
    ) from error


class RslRlVecEnv(VecEnv):
    """A group of agents in all environments of a batch, as rsl_rl trains on them.

    Every agent of every environment is an environment to rsl_rl, and all share its policy:
    :class:`~gpu_zoo.wrappers.lanes.Lanes`. Observations are a TensorDict with ``policy``, float32
    ``(lanes, n)``, and with states ``state``, float32 ``(lanes, size)``; both are fresh with every
    step, for rsl_rl stores them only after the next one.

    Args:
        batch: the environments, in SAME_STEP mode, with ``array="torch"``.
        group: whose lanes; may be left out if there is one group.
        others: a policy for each other group, by name, such as ``lanes.chance(seed)``.
        clip_actions: whether actions outside of the action space are moved to its bounds. rsl_rl's
            Gaussian policies have no bounds; without clipping, such an action is an error.
        states: whether critics may see the global state.
        seed: of the first reset, which takes place here, as rsl_rl never resets.

    Attributes:
        batch: the same.
        num_envs: number of lanes.
        num_actions: size of an action.
        max_episode_length: the time limit, in steps.
        device: torch's.
        cfg: the environment's id and parameters, which rsl_rl logs.
        acting: which lanes acted in the last step; bool ``(lanes,)``, written in place, for
            :class:`LivingPPO`.

    Raises:
        ValueError: actions that are not continuous; as for :class:`~gpu_zoo.wrappers.lanes.Lanes`.
        TypeError: likewise; other arrays than torch's.
    """

    def __init__(
        self,
        batch: VectorEnv,
        group: str | None = None,
        others: Mapping[str, Policy] | None = None,
        *,
        clip_actions: bool,
        states: bool = False,
        seed: int | None = None,
    ) -> None:
        self._lanes = Lanes(batch, group, others)
        require_torch(batch)
        space = self._lanes.action_space
        if not isinstance(space, spaces.Box):
            raise ValueError(f"batch: actions are {space}, expected a Box; rsl_rl has no others")
        self.batch = batch
        self.num_envs = self._lanes.count
        self.num_actions = int(space.low.size)
        self.max_episode_length = int(max(_each(batch.params[batch.spec.time_limit])))
        self.device = torch.device(batch.device)
        self.cfg = {"env_id": batch.spec.id, **batch.params}
        self.acting = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self._bounds = (
            tuple(torch.as_tensor(side, device=self.device) for side in (space.low, space.high))
            if clip_actions
            else None
        )
        self._states = states
        batch.reset(seed=seed)

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """Steps of each lane's episode so far, int64 ``(lanes,)``.

        Setting it sets the clock of each environment to that of its first lane, so that time limits
        fall in different steps: rsl_rl's ``init_at_random_ep_len``.
        """
        steps: torch.Tensor = self.batch.engine.arrays["steps"]
        return steps.long().repeat_interleave(self._lanes.agents)

    @episode_length_buf.setter
    def episode_length_buf(self, steps: torch.Tensor) -> None:
        first = steps.reshape(self.batch.num_envs, self._lanes.agents)[:, 0]
        self.batch.set_state({"steps": first.to(torch.int32)})

    def get_observations(self) -> TensorDict:
        """What lanes observe now."""
        arrays = {"policy": self._lanes.observations.clone()}
        if self._states:
            arrays["state"] = self._lanes.states().clone()
        return TensorDict(arrays, batch_size=[self.num_envs], device=self.device)

    def step(
        self, actions: torch.Tensor
    ) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Advance every environment by one step.

        Args:
            actions: float32 ``(lanes, num_actions)``.

        Returns:
            Observations; rewards float32 ``(lanes,)``, which are the kernel's memory; whether a
            lane's episode or its environment's ended, bool ``(lanes,)``; and extras with
            ``time_outs``, bool ``(lanes,)``: cut off and not terminated.

        Raises:
            InvalidAction: a wrong shape, dtype or value; nothing moved.
        """
        if self._bounds is not None:
            actions = actions.clamp(*self._bounds)
        outcome = self._lanes.step(actions)
        self.acting.copy_(outcome.acted)
        cut = outcome.cut
        dones = outcome.done
        rewards = self._lanes.rewards.float()
        return self.get_observations(), rewards, dones, {"time_outs": cut}

    def close(self) -> None:
        """Release the batch; closing twice does nothing."""
        self.batch.close()


class LivingPPO(PPO):
    """rsl_rl's PPO, which learns from no step of an agent that has left.

    ``"algorithm": {"class_name": "gpu_zoo.wrappers.rsl_rl:LivingPPO", ...}``
    """

    @staticmethod
    def construct_algorithm(
        obs: TensorDict, env: RslRlVecEnv, cfg: dict[str, Any], device: str
    ) -> Any:
        """As rsl_rl's, with :class:`LivingStorage`."""
        algorithm = PPO.construct_algorithm(obs, env, cfg, device)
        steps = cfg["num_steps_per_env"]
        algorithm.storage = LivingStorage(
            "rl", env.num_envs, steps, obs, [env.num_actions], device, acting=env.acting
        )
        return algorithm

    def compute_returns(self, obs: TensorDict) -> None:
        """Returns and advantages, which are normalised over the steps that were taken."""
        super().compute_returns(obs)
        if not self.normalize_advantage_per_mini_batch:
            advantages = self.storage.advantages
            taken = advantages[self.storage.acted]
            self.storage.advantages = (advantages - taken.mean()) / (taken.std() + 1e-8)


class LivingStorage(RolloutStorage):
    """A rollout that gives out no step of agents that have left.

    Args:
        *args: as for rsl_rl's ``RolloutStorage``.
        acting: which lanes acted: :attr:`RslRlVecEnv.acting`.
    """

    def __init__(self, *args: Any, acting: torch.Tensor) -> None:
        super().__init__(*args)
        self._acting = acting
        self.acted = torch.zeros_like(self.dones, dtype=torch.bool)

    def add_transition(self, transition: Any) -> None:
        """Store the step just taken."""
        self.acted[self.step, :, 0] = self._acting
        super().add_transition(transition)

    def mini_batch_generator(
        self, num_mini_batches: int, num_epochs: int = 8
    ) -> Generator[Any, None, None]:
        """Minibatches of the steps that agents took, in random order, the same in every epoch."""
        steps = self.acted.flatten().nonzero().squeeze(-1)
        steps = steps[torch.randperm(len(steps), device=steps.device)]
        flat = {
            name: getattr(self, name).flatten(0, 1)
            for name in ("observations", "actions", "values", "advantages", "returns")
        }
        log_prob = self.actions_log_prob.flatten(0, 1)
        params = tuple(array.flatten(0, 1) for array in self.distribution_params)
        for _ in range(num_epochs):
            for rows in steps.tensor_split(num_mini_batches):
                yield RolloutStorage.Batch(
                    **{name: array[rows] for name, array in flat.items()},
                    old_actions_log_prob=log_prob[rows],
                    old_distribution_params=tuple(array[rows] for array in params),
                )

    def recurrent_mini_batch_generator(self, *args: Any, **kwargs: Any) -> Any:
        """Not possible: sequences have steps of agents that have left.

        Raises:
            ValueError: always.
        """
        raise ValueError("actor: has a memory, so steps of agents that left cannot be left out")


def _each(value: Any) -> list[int]:
    """A parameter's values, be it one or one an environment."""
    return value.tolist() if hasattr(value, "tolist") else [value]
