"""Trained policies: load them, let them act anywhere, measure them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor

import gpu_zoo
from gpu_zoo.baselines import checkpoint
from gpu_zoo.baselines.groups import split
from gpu_zoo.baselines.masks import checked_mask, draw_allowed
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.sapg import BlockActorCritic
from gpu_zoo.spec import GroupLayout

MAX_PARALLEL = 4096  # environments an evaluation steps at once


def make_networks(
    env_id: str,
    env_params: Mapping[str, Any],
    hidden: tuple[int, ...],
    seed: int,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, ActorCritic]:
    """A fresh network for every group of agents of an environment, on the CPU.

    With the option ``separate``, one for every agent.

    Args:
        env_id: the environment.
        env_params: its parameters.
        hidden: widths of the hidden layers.
        seed: of the weights.
        options: a configuration, of which only what shapes the networks is read; whatever is
            missing in it, as in older checkpoints, is off.
    """
    generator = torch.Generator().manual_seed(seed)
    layout = _layout(env_id, env_params)
    normalize = options.get("normalize_observations", False)
    central = options.get("central_critic", False)
    state_size = sum(group.obs_size * group.count for group in layout) if central else 0
    separate = options.get("separate", False)
    recurrent = options.get("recurrent", False)
    make: Callable[..., ActorCritic] = partial(ActorCritic, recurrent=recurrent)
    if (blocks := options.get("blocks", 1)) > 1:
        width = options["block_embedding"]
        make = partial(BlockActorCritic, blocks=blocks, embedding=width)
    return {
        name: make(
            group.obs_size, group.actions.space(), hidden, generator,
            normalize=normalize, state_size=state_size,
        )
        for group in layout
        for name in (group.agents if separate else (group.name,))
    }  # fmt: skip


def _layout(env_id: str, env_params: Mapping[str, Any]) -> tuple[GroupLayout, ...]:
    spec = gpu_zoo.spec(env_id)
    return spec.layout(spec.resolve(env_params))


class Policy:
    """What training gives: a network for each group or each agent, and the game they are made for.

    Attributes:
        env_id: the environment.
        env_params: its parameters.
        networks: by group of agents, or by agent where each has its own.
    """

    def __init__(
        self,
        env_id: str,
        env_params: Mapping[str, Any],
        networks: Mapping[str, ActorCritic],
        seed: int = 0,
    ) -> None:
        self.env_id = env_id
        self.env_params = dict(env_params)
        self.networks = dict(networks)
        self.device = next(next(iter(self.networks.values())).parameters()).device
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._memories: dict[str, Tensor | None] = {}
        layout = _layout(env_id, env_params)
        self._network_of = {
            agent: agent if agent in self.networks else group.name
            for group in layout
            for agent in group.agents
        }
        self._counts_of = {
            agent: group.actions.counts if group.action_mask else ()
            for group in layout
            for agent in group.agents
        }

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu", seed: int = 0) -> Policy:
        """The policy in a checkpoint; ``seed`` is for the actions it will sample.

        Raises:
            CheckpointError: the file is missing, broken or no checkpoint.
        """
        content = checkpoint.load(path)
        env_id, env_params = content["env_id"], content["env_params"]
        config = content["config"]
        networks = make_networks(env_id, env_params, tuple(config["hidden"]), seed, config)
        for group, network in networks.items():
            network.load_state_dict(content["learners"][group]["network"])
            network.to(device)
        return cls(env_id, env_params, networks, seed)

    def reset(self) -> None:
        """Forget all, before an episode; only recurrent policies remember anything."""
        self._memories.clear()

    @torch.inference_mode()
    def act(
        self,
        observations: Mapping[str, npt.NDArray[Any]],
        deterministic: bool = False,
        *,
        action_masks: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Actions by agent, for one environment or a batch, from NumPy observations.

        A recurrent policy remembers what each agent has seen since :meth:`reset`, an agent that is
        not asked forgets it, and so do all in a batch of another size.

        Args:
            observations: agent to array ``(n,)`` or ``(batch, n)``; any subset of the agents.
            deterministic: the likeliest action instead of a sampled one.
            action_masks: for agents whose actions are masked, agent to array ``(m,)`` or
                ``(batch, m)`` of bools or of integers 0 and 1: which actions are allowed, a
                multi-discrete action's components side by side or each an array of its own in a
                tuple. That is what infos have under ``"action_mask"``. More agents than are asked
                may be in it.

        Returns:
            Agent to int, or to an array ``(components,)``, int64 for MultiDiscrete and float32 for
            a box; for a batch to an array ``(batch, ...)``.

        Raises:
            ValueError: a mask is missing, has the wrong shape or values, allows nothing, or is of
                an agent whose actions are not masked.
        """
        actions: dict[str, Any] = {}
        before, self._memories = self._memories, {}
        for agent, observation in observations.items():
            network = self.networks[self._network_of[agent]]
            tensor = torch.as_tensor(observation, dtype=torch.float32, device=self.device)
            memory = before.get(agent)
            if memory is None or memory.shape[:-2] != tensor.shape[:-1]:
                memory = network.new_memory(*tensor.shape[:-1])
            self._memories[agent] = memory
            masks = self._mask(agent, tensor.shape[:-1], action_masks)
            chosen = choose(network, tensor, self._generator, deterministic, memory, masks)
            action = chosen.cpu().numpy()
            actions[agent] = int(action) if action.ndim == 0 else action
        return actions

    def _mask(self, agent: str, lanes: tuple[int, ...], given: Mapping[str, Any]) -> Tensor | None:
        """The mask given for an agent, checked."""
        counts = self._counts_of[agent]
        if agent in given and not counts:
            raise ValueError(f"action_masks[{agent!r}]: expected none, its actions have no masks")
        if not counts:
            return None
        if agent not in given:
            raise ValueError(f"action_masks: nothing for {agent}, whose actions are masked")
        mask = checked_mask(f"action_masks[{agent!r}]", given[agent], lanes, counts)
        return torch.from_numpy(mask).to(self.device)


def choose(
    network: ActorCritic,
    observations: Tensor,
    generator: torch.Generator,
    deterministic: bool,
    memory: Tensor | None = None,
    masks: Tensor | None = None,
) -> Tensor:
    """Actions as the environment takes them; changes a recurrent network's whole ``memory``."""
    own = None if memory is None else memory[..., 0, :]
    if deterministic:
        return network.head.to_env(network.best(observations, own, masks))
    return network.head.to_env(network.act(observations, generator, own, masks)[0])


@dataclass(frozen=True)
class Score:
    """A mean over episodes and its standard error."""

    mean: float
    stderr: float

    @classmethod
    def of(cls, returns: Tensor) -> Score:
        """The score of one return an episode."""
        count = returns.numel()
        error = float(returns.std()) / count**0.5 if count > 1 else float("nan")
        return cls(float(returns.mean()), error)


@dataclass(frozen=True)
class Evaluation:
    """Returns of whole episodes.

    Attributes:
        episodes: how many were played.
        agents: by agent.
        groups: by group, each episode's return being the mean over the group's agents.
        mean: the same over all agents.
    """

    episodes: int
    agents: dict[str, Score]
    groups: dict[str, Score]
    mean: Score


@torch.inference_mode()
def evaluate(
    policy: Policy | None,
    env_id: str | None = None,
    episodes: int = 1000,
    *,
    env_params: Mapping[str, Any] | None = None,
    device: str = "auto",
    deterministic: bool = False,
    random_groups: Collection[str] = (),
    seed: int = 2**40,
) -> Evaluation:
    """Play whole episodes and average their returns.

    Every environment plays a number of episodes fixed beforehand, so that short episodes are not
    counted more often than long ones.

    Args:
        policy: what plays; None acts uniformly at random, among the actions allowed.
        env_id: the environment; by default the policy's own.
        episodes: how many to play.
        env_params: parameters of the environment; by default those the policy was trained with.
        device: where to play.
        deterministic: likeliest instead of sampled actions.
        random_groups: groups that act uniformly at random instead, such as ``("adversary",)``.
        seed: environment i is seeded with ``seed + i``. The default is far from training's seeds.
    """
    if not isinstance(episodes, int) or isinstance(episodes, bool) or episodes < 1:
        raise ValueError(f"episodes={episodes!r}: expected an int of at least 1")
    if env_id is None:
        if policy is None:
            raise ValueError("env_id=None: expected an id, as there is no policy to take it from")
        env_id = policy.env_id
    if env_params is None:
        env_params = policy.env_params if policy is not None else {}
    num_envs = min(episodes, MAX_PARALLEL)
    env = gpu_zoo.make_vec(env_id, num_envs, device=device, array="torch", **env_params)
    if isinstance(random_groups, str) or not set(random_groups) <= set(env.group):
        raise ValueError(
            f"random_groups={random_groups!r}: expected a tuple of names "
            f"out of {', '.join(env.group)}"
        )
    players = {} if policy is None else _players(policy, env, random_groups)
    returns = _play(env, players, episodes, deterministic, seed).cpu()
    names = [agent for group in env.group.values() for agent in group.agents]
    column = {agent: i for i, agent in enumerate(names)}
    groups = {
        name: Score.of(returns[:, [column[a] for a in group.agents]].mean(1))
        for name, group in env.group.items()
    }
    agents = {agent: Score.of(returns[:, i]) for agent, i in column.items()}
    return Evaluation(episodes, agents, groups, Score.of(returns.mean(1)))


def _players(
    policy: Policy, env: gpu_zoo.VectorEnv, random_groups: Collection[str]
) -> dict[str, ActorCritic]:
    """The policy's networks, those of some groups left out."""
    each = set(policy.networks) & set(env.agents)
    if each and each != set(env.agents):
        names = ", ".join(policy.networks)
        raise ValueError(f"env_params: expected agents the policy was made for, {names}")
    absent = {agent for group in random_groups for agent in env.groups[group]} | {*random_groups}
    return {name: net for name, net in policy.networks.items() if name not in absent}


def _play(
    env: gpu_zoo.VectorEnv,
    networks: Mapping[str, ActorCritic],
    episodes: int,
    deterministic: bool,
    seed: int,
) -> Tensor:
    """Returns of ``episodes`` episodes, ``(episodes, agents)``. Without a network: at random."""
    buffers = [
        part
        for name, group in env.group.items()
        for part in (split({name: group}) if group.agents[0] in networks else {name: group}).items()
    ]
    device = buffers[0][1].observations.device
    generator = torch.Generator(device).manual_seed(seed)
    networks = {name: copy.deepcopy(net) for name, net in networks.items()}  # .to() is in place
    for network in networks.values():
        network.to(device)
    memories = {
        name: networks[name].new_memory(*group.rewards.shape)
        for name, group in buffers
        if name in networks
    }
    num_envs, rounds = env.num_envs, -(-episodes // env.num_envs)
    environment = torch.arange(num_envs, device=device)
    # Environment i plays episodes i, i + num_envs, i + 2 * num_envs, ...
    quota = rounds - (environment + (rounds - 1) * num_envs >= episodes).long()
    played = torch.zeros_like(quota)
    returns = torch.zeros(rounds, num_envs, len(env.agents), dtype=torch.float64, device=device)
    env.reset(seed=seed)
    while bool((played < quota).any()):
        for name, group in buffers:
            if name in networks:
                action = choose(
                    networks[name], group.observations, generator, deterministic, memories[name],
                    group.action_masks,
                )  # fmt: skip
                group.actions.copy_(action)
            elif group.action_masks is not None:
                draw_allowed(group.action_space, group.action_masks, group.actions, generator)
            else:
                _act_randomly(group.action_space, group.actions, generator)
        _, _, _, _, infos = env.step()
        counted = infos["_episode"] & (played < quota)
        ended = torch.cat([group.last_returns for _, group in buffers], 1)
        row = played.clamp(max=rounds - 1)
        returns[row, environment] = torch.where(
            counted.unsqueeze(1), ended.double(), returns[row, environment]
        )
        played += counted
        for memory in memories.values():
            if memory is not None:
                memory.masked_fill_(infos["_episode"].reshape(-1, 1, 1, 1), 0)
    return returns.reshape(-1, len(env.agents))[:episodes]


def _act_randomly(space: spaces.Space[Any], into: Tensor, generator: torch.Generator) -> None:
    if isinstance(space, spaces.Discrete):
        into.random_(0, int(space.n), generator=generator)
    elif isinstance(space, spaces.MultiDiscrete):
        for k, count in enumerate(space.nvec.tolist()):
            into[..., k].random_(0, count, generator=generator)
    else:
        assert isinstance(space, spaces.Box)
        low, high = float(np.min(space.low)), float(np.max(space.high))
        into.uniform_(low, high, generator=generator)
