"""TorchRL's face of a batch: an ``EnvBase`` with a tensordict a group, as its PettingZooEnv has."""

from __future__ import annotations

from functools import reduce
from typing import Any

from gpu_zoo.errors import InvalidAction, MissingDependency
from gpu_zoo.registry import make_vec
from gpu_zoo.results import GroupBuffers
from gpu_zoo.seeds import seed_rows

try:
    import torch
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Bounded, Categorical, Composite, MultiCategorical, Unbounded
    from torchrl.envs import EnvBase
except ImportError as error:
    raise MissingDependency(
        "gpu_zoo.wrappers.torchrl: torchrl is not installed: pip install 'gpu-zoo[torchrl]'"
    ) from error


class TorchRLEnv(EnvBase):
    """``num_envs`` environments as one TorchRL environment whose batch size is ``(num_envs,)``.

    Each group of agents has a tensordict of batch size ``(num_envs, agents)``. At a reset and under
    ``"next"`` it holds ``observation`` float32 ``(..., n)``, and ``done``, ``terminated`` and
    ``truncated`` bool ``(..., 1)``; under ``"next"`` also ``reward`` float32 ``(..., 1)``, rounded
    from float64 in reference numerics. Two more are there where they mean something: ``mask`` bool
    ``(num_envs, agents)``, true for agents that act next, if agents may leave; ``action_mask`` bool
    ``(..., n)``, true for actions that are allowed next. ``action`` is int64 ``(num_envs, agents)``
    if discrete, int64 ``(num_envs, agents, components)`` if multi-discrete, else float32.

    At the root ``done`` says that an environment's episode is over, which it is when every agent's
    is. Then ``terminated`` says that all of them terminated, and ``truncated`` that the time limit
    ended it. Who has left stays terminated and done, with mask false, until then.

    No environment starts anew inside a step: TorchRL resets those that are done through
    ``"_reset"``. All tensors are fresh, so that a collector may keep them: observations, rewards
    and flags are copied once from the kernel's memory, actions once into it.

    Args:
        env_id: such as ``"mpe/simple_spread_v3"``.
        num_envs: number of environments.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"``. Another one than the policy's
            works too, if the collector is told (``env_device``, ``policy_device``).
        return_state: whether the root has ``state``, float32 ``(num_envs, size)``: all agents'
            observations, in order.
        seed: environment i is seeded with ``seed + i``; from the operating system with None.
        **kwargs: ``numerics``, ``validate_actions``, ``reset_pool`` and the environment's own
            parameters, see :func:`gpu_zoo.make_vec`.

    Attributes:
        batch: the environments as a :class:`~gpu_zoo.vector.VectorEnv`, over the same memory; for
            ``render(index)``, ``set_param``, ``get_state`` and the like.
        group_map: group to the names of its agents.

    Raises:
        KeyError: no such environment.
        TypeError: an unknown parameter, or one of the wrong type.
        ValueError: a value out of range.
        MissingDependency: TorchRL, or what the device needs, is not installed.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        *,
        device: str = "cpu",
        return_state: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        batch = make_vec(
            env_id, num_envs, device=device, array="torch", autoreset_mode="disabled", **kwargs
        )
        where = next(iter(batch.group.values())).observations.device
        super().__init__(device=where, batch_size=torch.Size([batch.num_envs]))
        self.batch = batch
        self.group_map = {name: list(agents) for name, agents in batch.groups.items()}
        self._return_state = return_state
        self._make_specs()
        if seed is not None:
            self.set_seed(seed)

    # Specs -------------------------------------------------------------------------------------

    def _make_specs(self) -> None:
        groups = self.batch.group.items()
        observations = {name: self._observation_spec(group) for name, group in groups}
        if self._return_state:
            size = sum(group.observations[0].numel() for _, group in groups)
            observations["state"] = Unbounded((*self.batch_size, size), device=self.device)
        self.observation_spec = self._composite(observations)
        self.action_spec = self._composite(
            {name: self._of_group(group, action=self._action_spec(group)) for name, group in groups}
        )
        self.reward_spec = self._composite(
            {
                name: self._of_group(
                    group, reward=Unbounded((*group.rewards.shape, 1), device=self.device)
                )
                for name, group in groups
            }
        )
        self.done_spec = self._composite(
            {
                **self._flag_specs(self.batch_size),
                **{
                    name: self._of_group(group, **self._flag_specs(group.rewards.shape))
                    for name, group in groups
                },
            }
        )

    def _composite(self, specs: dict[str, Any]) -> Any:
        return Composite(specs, shape=self.batch_size, device=self.device)

    def _of_group(self, group: GroupBuffers, **specs: Any) -> Any:
        return Composite(specs, shape=group.rewards.shape, device=self.device)

    def _flags(self, *shape: int) -> Any:
        return Categorical(2, shape=torch.Size(shape), dtype=torch.bool, device=self.device)

    def _flag_specs(self, shape: tuple[int, ...]) -> dict[str, Any]:
        return {name: self._flags(*shape, 1) for name in ("done", "terminated", "truncated")}

    def _observation_spec(self, group: GroupBuffers) -> Any:
        space, shape = group.observation_space, group.observations.shape
        specs = {"observation": self._box(space, shape)}
        if self.batch.spec.leaving:
            specs["mask"] = self._flags(*group.active.shape)
        if group.action_masks is not None:
            specs["action_mask"] = self._flags(*group.action_masks.shape)
        return self._of_group(group, **specs)

    def _action_spec(self, group: GroupBuffers) -> Any:
        space: Any = group.action_space
        shape = group.actions.shape
        if group.actions.is_floating_point():
            return self._box(space, shape)
        counts = {int(space.n)} if group.actions.ndim == 2 else set(space.nvec.tolist())
        if len(counts) == 1:
            return Categorical(*counts, shape=shape, device=self.device)
        return MultiCategorical(torch.as_tensor(space.nvec), shape=shape, device=self.device)

    def _box(self, space: Any, shape: torch.Size) -> Any:
        if not space.is_bounded("both"):
            return Unbounded(shape, device=self.device)
        low, high = (torch.as_tensor(side, device=self.device) for side in (space.low, space.high))
        return Bounded(low.expand(shape), high.expand(shape), shape, device=self.device)

    # Episodes ----------------------------------------------------------------------------------

    def _reset(
        self, tensordict: TensorDictBase | None = None, *, seed: int | None = None
    ) -> TensorDictBase:
        mask = self._reset_mask(tensordict)
        if mask is None:
            self.batch.reset(seed=seed)
        elif mask.any():
            self.batch.reset(seed=seed, options={"reset_mask": mask})
        return self._results()

    def _reset_mask(self, tensordict: TensorDictBase | None) -> Any:
        """Bool ``(num_envs,)``, or None for all of them."""
        if tensordict is None:
            return None
        for name in self.group_map:
            if (name, "_reset") in tensordict.keys(True):
                raise ValueError(
                    f"({name!r}, '_reset'): expected '_reset' at the root, as all agents of an "
                    "environment start together"
                )
        mask = tensordict.get("_reset", None)
        return None if mask is None or mask.all() else mask.reshape(self.batch_size)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        wanted = tensordict.get("_step", None)
        if wanted is not None and not wanted.all():
            raise ValueError("_step: leaves out environments, expected all; one kernel steps them")
        for name, group in self.batch.group.items():
            self._write(name, group, tensordict.get((name, "action")))
        self.batch.step()
        results = self._results()
        for name, group in self.batch.group.items():
            reward = group.rewards.to(torch.float32, copy=True)
            results.get(name).set("reward", reward.unsqueeze(-1))
        return results

    def _write(self, name: str, group: GroupBuffers, action: torch.Tensor) -> None:
        """Copy a group's actions into the kernel's memory."""
        wanted = self._action_dtype(group)
        if action.shape != group.actions.shape or action.dtype != wanted:
            raise InvalidAction(
                f"({name!r}, 'action'): {action.dtype} {tuple(action.shape)}, "
                f"expected {wanted} {tuple(group.actions.shape)}"
            )
        # detach, or the kernel's memory would become part of the policy's graph.
        group.actions.copy_(action.detach())
        # What int32 has no room for would come out as another action.
        if self.batch.validate_actions and (group.actions != action).any():
            raise InvalidAction(f"({name!r}, 'action'): {action.max()}, expected an action")

    @staticmethod
    def _action_dtype(group: GroupBuffers) -> torch.dtype:
        return torch.float32 if group.actions.is_floating_point() else torch.int64

    def _results(self) -> TensorDictBase:
        groups = {
            name: self._group_results(name, group) for name, group in self.batch.group.items()
        }
        results = TensorDict(
            {**groups, **self._root_flags(list(groups.values()))},
            batch_size=self.batch_size,
            device=self.device,
        )
        if self._return_state:
            parts = [group.observations.flatten(1) for group in self.batch.group.values()]
            results.set("state", torch.cat(parts, 1))
        return results

    def _group_results(self, name: str, group: GroupBuffers) -> Any:
        terminated = group.terminations.clone().unsqueeze(-1)
        truncated = group.truncations.clone().unsqueeze(-1)
        done = terminated | truncated
        results = {
            "observation": group.observations.clone(),
            "terminated": terminated,
            "truncated": truncated,
            "done": done,
        }
        if self.batch.spec.leaving:
            results["mask"] = ~done.squeeze(-1)  # who has left stays terminated
        if group.action_masks is not None:
            results["action_mask"] = group.action_masks.clone()
            self._mask_random_actions(name, results["action_mask"])
        return TensorDict(results, batch_size=group.rewards.shape, device=self.device)

    def _mask_random_actions(self, name: str, mask: torch.Tensor) -> None:
        spec = self.full_action_spec[name, "action"]
        flat = isinstance(spec, MultiCategorical)  # else the components have an axis of their own
        spec.update_mask(mask if flat else mask.view(*spec.shape, -1))

    @staticmethod
    def _root_flags(groups: list[Any]) -> dict[str, torch.Tensor]:
        done = reduce(torch.logical_and, [group.get("done").all(1) for group in groups])
        terminated = reduce(torch.logical_and, [group.get("terminated").all(1) for group in groups])
        truncated = reduce(torch.logical_or, [group.get("truncated").any(1) for group in groups])
        return {"done": done, "terminated": terminated, "truncated": done & truncated}

    def _set_seed(self, seed: int | None) -> None:
        """Seed each environment's stream; its next episode is that of ``reset(seed=...)``."""
        if not self.batch.engine.is_reset:
            self.batch.reset(seed=seed)
        rows = seed_rows(seed, self.batch.num_envs, self.batch.numerics)
        self.batch.set_state({"rng": rows})

    # The rest ----------------------------------------------------------------------------------

    def to(self, device: Any) -> TorchRLEnv:
        """The same, if ``device`` is where the environments live.

        Raises:
            ValueError: it is another one.
        """
        wanted = torch.device(device)
        if wanted.type != self.device.type or wanted.index not in (None, self.device.index):
            raise ValueError(
                f"device={str(wanted)!r}: the environments live on {self.device}; make them with "
                "device=..., or tell the collector env_device and policy_device apart"
            )
        return self

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Release the batch; closing twice does nothing."""
        self.is_closed = True
        self.batch.close()
