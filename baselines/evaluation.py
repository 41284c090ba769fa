"""Trained policies: load them, let them act anywhere, measure them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor

import gpu_zoo
from gpu_zoo.baselines import checkpoint, checks
from gpu_zoo.baselines.groups import split
from gpu_zoo.baselines.masks import checked_mask
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.players import Player, act_randomly, choose, frozen_copy
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
    networks = {
        name: make(
            group.obs_size, group.actions.space(), hidden, generator,
            normalize=normalize, state_size=state_size,
        )
        for group in layout
        for name in (group.agents if separate else (group.name,))
    }  # fmt: skip
    if options.get("bfloat16", False):
        for network in networks.values():
            network.actor.in_bfloat16 = network.critic.in_bfloat16 = True
    return networks


def _describe(group: GroupLayout, by_agent: bool) -> str:
    """What a network for the group, or for each of its agents, must be made for."""
    who = ", ".join(group.agents) if by_agent else group.name
    return f"{who} with {group.obs_size} numbers and {group.actions}"


def _layout(env_id: str, env_params: Mapping[str, Any]) -> tuple[GroupLayout, ...]:
    spec = gpu_zoo.spec(env_id)
    return spec.layout(spec.resolve(env_params))


class Policy:
    """What training gives: a network for each group or each agent, and the game they are made for.

    Attributes:
        env_id: the environment.
        env_params: its parameters.
        networks: by group of agents, or by agent where each has its own. A group that was frozen as
            random in training has none: it acts at random.
        groups: the environment's groups of agents, with these parameters.
    """

    def __init__(
        self,
        env_id: str,
        env_params: Mapping[str, Any],
        networks: Mapping[str, ActorCritic],
        seed: int = 0,
    ) -> None:
        self.env_id = env_id
        self.env_params: dict[str, Any] = checks.plain(env_params)
        self.networks = dict(networks)
        self.device = next(next(iter(self.networks.values())).parameters()).device
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._memories: dict[str, Tensor | None] = {}
        self.groups = _layout(env_id, env_params)
        self._network_of = {
            agent: agent if agent in self.networks else group.name
            for group in self.groups
            for agent in group.agents
        }
        self._size_of = {agent: group.obs_size for group in self.groups for agent in group.agents}
        self._counts_of = {
            agent: group.actions.counts if group.action_mask else ()
            for group in self.groups
            for agent in group.agents
        }

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu", seed: int = 0) -> Policy:
        """The policy in a checkpoint; ``seed`` is for the actions it will sample.

        Raises:
            CheckpointError: the file is missing, broken or no checkpoint.
        """
        content = checkpoint.load(path)
        # Imported here: it knows the policies of all algorithms, and they are made from this one.
        from gpu_zoo.baselines.policies import KINDS, networks_in

        if (algorithm := content.get("algorithm")) in KINDS:
            name = algorithm.upper()
            raise checkpoint.CheckpointError(f"{path}: a checkpoint of {name}, see load_policy")
        with checkpoint.fitting(path):
            networks = networks_in(content)
        for network in networks.values():
            network.to(device)
        return cls(content["env_id"], content["env_params"], networks, seed)

    def networks_for(self, group: GroupLayout) -> dict[str, ActorCritic | None]:
        """What plays a group, maybe with other parameters: by its name, or by its agents' names.

        None stands for chance, which played a group that was frozen as random in training.

        Raises:
            ValueError: made for other agents, observations or actions.
        """
        made = next((own for own in self.groups if own.name == group.name), None)
        if made is None:
            raise ValueError(f"made for {self.env_id}, expected a policy with a group {group.name}")
        separate = made.agents[0] in self.networks
        names, wanted = (_describe(g, separate) for g in (made, group))
        if names != wanted:
            raise ValueError(f"made for {names}, expected {wanted}")
        parts = group.agents if separate else (group.name,)
        return {name: self.networks.get(name) for name in parts}

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
            ValueError: there is no such agent, or an observation has another shape; a mask is
                missing, has the wrong shape or values, allows nothing, or is of an agent whose
                actions are not masked. Nothing was forgotten then.
        """
        seen = {agent: self._seen(agent, given) for agent, given in observations.items()}
        allowed = {
            agent: self._mask(agent, x.shape[:-1], action_masks) for agent, x in seen.items()
        }
        actions: dict[str, Any] = {}
        before, self._memories = self._memories, {}
        for agent, tensor in seen.items():
            lanes, masks = tensor.shape[:-1], allowed[agent]
            network = self.networks.get(self._network_of[agent])
            if network is None:
                action = self._at_random(agent, lanes, masks).numpy()
            else:
                memory = before.get(agent)
                if memory is None or memory.shape[:-2] != lanes:
                    memory = network.new_memory(*lanes)
                self._memories[agent] = memory
                chosen = choose(network, tensor, self._generator, deterministic, memory, masks)
                action = chosen.cpu().numpy()
            actions[agent] = int(action) if action.ndim == 0 else action
        return actions

    def _seen(self, agent: str, given: Any) -> Tensor:
        """What an agent sees, checked: the networks would take any length for rows of their own."""
        if agent not in self._size_of:
            known = ", ".join(self._size_of)
            raise ValueError(f"observations[{agent!r}]: no such agent, expected one of {known}")
        size = self._size_of[agent]
        tensor = torch.as_tensor(given, dtype=torch.float32, device=self.device)
        if tensor.shape[-1:] != (size,):
            shape = tuple(tensor.shape)
            raise ValueError(
                f"observations[{agent!r}]: shape {shape}, expected ({size},) or (batch, {size})"
            )
        return tensor

    def _at_random(self, agent: str, lanes: torch.Size, masks: Tensor | None) -> Tensor:
        """Actions for an agent whose group has no network."""
        space = next(g.actions.space() for g in self.groups if agent in g.agents)
        dtype = torch.float32 if isinstance(space, spaces.Box) else torch.int64
        shape = (*lanes, *(space.shape or ()))
        actions = torch.empty(shape, dtype=dtype, device=self.device)
        act_randomly(space, actions, self._generator, masks)
        return actions.cpu()

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


Opponent = Policy | Literal["random"]


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
    opponents: Mapping[str, Opponent] = MappingProxyType({}),
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
        opponents: who plays a group instead, by the group's name: another policy, of which only
            what it does for this group matters, or ``"random"``, uniformly random actions.
        seed: environment i is seeded with ``seed + i``. The default is far from training's seeds.

    Raises:
        ValueError: a value out of range, no such group, or a policy made for other agents.
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
    players = _players(env, policy, opponents)
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
    env: gpu_zoo.VectorEnv, policy: Policy | None, opponents: Mapping[str, Opponent]
) -> list[Player]:
    """Who acts for every group, or for each of its agents."""
    check_groups("opponents", opponents, env.group)
    players: list[Player] = []
    for layout in env.spec.layout(env.params):
        name, group = layout.name, env.group[layout.name]
        who = opponents.get(name, policy)
        if name in opponents and not (isinstance(who, Policy) or who == "random"):
            raise ValueError(f"opponents[{name!r}]={who!r}: expected a policy or 'random'")
        networks: Mapping[str, ActorCritic | None] = {name: None}
        if isinstance(who, Policy):
            argument = f"opponents[{name!r}]" if name in opponents else "env_params"
            with played_by(f"{argument}: the policy"):
                networks = who.networks_for(layout)
        groups = {name: group} if name in networks else split({name: group})
        for part, buffers in groups.items():
            network = networks[part]
            if network is not None:
                network = frozen_copy(network).to(group.rewards.device)
            players.append(Player(buffers, network))
    return players


@contextmanager
def played_by(who: str) -> Iterator[None]:
    """Around the use of a policy for a group: what does not fit is said of ``who``.

    Raises:
        ValueError: the policy was made for other agents, observations or actions.
    """
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{who} was {error}") from None


def check_groups(argument: str, given: object, groups: Collection[str]) -> None:
    """Check that an argument is a dict by group.

    Raises:
        ValueError: it is none, or names a group that there is not.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{argument}={given!r}: expected a dict by group")
    for name in given:
        if name not in groups:
            raise ValueError(f"{argument}: {name!r} is no group, expected {' or '.join(groups)}")


def others_of(
    argument: str, env_id: str, env_params: Mapping[str, Any], given: Mapping[str, str]
) -> dict[str, GroupLayout]:
    """The groups that others are given for, one of them at least being left to learn.

    Raises:
        ValueError: no such group, or none left.
    """
    layout = {group.name: group for group in _layout(env_id, env_params)}
    check_groups(argument, given, layout)
    if set(given) == set(layout):
        raise ValueError(f"{argument}={given!r}: expected a group to be left that learns")
    return {name: layout[name] for name in given}


def _play(
    env: gpu_zoo.VectorEnv, players: Sequence[Player], episodes: int, deterministic: bool, seed: int
) -> Tensor:
    """Returns of ``episodes`` episodes, ``(episodes, agents)``."""
    groups = list(env.group.values())
    device = groups[0].rewards.device
    generator = torch.Generator(device).manual_seed(seed)
    num_envs, rounds = env.num_envs, -(-episodes // env.num_envs)
    environment = torch.arange(num_envs, device=device)
    # Environment i plays episodes i, i + num_envs, i + 2 * num_envs, ...
    quota = rounds - (environment + (rounds - 1) * num_envs >= episodes).long()
    played = torch.zeros_like(quota)
    returns = torch.zeros(rounds, num_envs, len(env.agents), dtype=torch.float64, device=device)
    env.reset(seed=seed)
    while bool((played < quota).any()):
        for player in players:
            player.act(generator, deterministic)
        _, _, _, _, infos = env.step()
        counted = infos["_episode"] & (played < quota)
        ended = torch.cat([group.last_returns for group in groups], 1)
        row = played.clamp(max=rounds - 1)
        returns[row, environment] = torch.where(
            counted.unsqueeze(1), ended.double(), returns[row, environment]
        )
        played += counted
        for player in players:
            player.forget(infos["_episode"])
    return returns.reshape(-1, len(env.agents))[:episodes]
