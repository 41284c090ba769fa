"""The three parts of PQL: who explores, who learns values and who learns to act.

Each has data of its own and its own copies of the others' networks, and tells the others what they
need in parcels, see parcel.py. None waits for another here: when each works is for turns.py.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

import gpu_zoo
from gpu_zoo.baselines import ddpg, distribution
from gpu_zoo.baselines.deterministic import Actor, Critics
from gpu_zoo.baselines.distribution import DistributionalCritics
from gpu_zoo.baselines.flat import FlatAdam, flatten
from gpu_zoo.baselines.parcel import Lagged, Parcel, Sent
from gpu_zoo.baselines.pql_config import PQLConfig
from gpu_zoo.baselines.replay import Replay, next_observations
from gpu_zoo.baselines.ring import Ring
from gpu_zoo.baselines.running import RunningMoments
from gpu_zoo.results import GroupBuffers


class Place:
    """Where a part works: a device, on CUDA a stream of its own, and random numbers of its own.

    Args:
        device: the device.
        seed: of the random numbers.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def here(self) -> Iterator[None]:
        """Within the block the calling thread's work on CUDA goes to this place's stream."""
        with torch.cuda.stream(self.stream):  # None changes nothing
            yield

    def begin(self) -> None:
        """Let the stream wait for what the calling thread has the device do."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def end(self) -> None:
        """Let what the calling thread will have the device do wait for the stream."""
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)


class Explorer:
    """Steps all environments with the policies sent last and noise, and tells the learners.

    Args:
        env: the environments.
        actors: by group; their moments grow here.
        policies: where each group's policy is sent.
        config: the run's.
        place: where the environments are.
    """

    def __init__(
        self,
        env: gpu_zoo.VectorEnv,
        actors: Mapping[str, Actor],
        policies: Mapping[str, Sent],
        config: PQLConfig,
        place: Place,
    ) -> None:
        self.env, self.actors, self.config, self.place = env, dict(actors), config, place
        device = place.device
        self.lagged = [Lagged(actor, policies[name], device) for name, actor in actors.items()]
        # From careful to bold: who explores how much need not be tuned, nor fall over time.
        spread = torch.linspace(config.noise_min, config.noise_max, config.num_envs, device=device)
        self.noise = spread.reshape(-1, 1, 1)
        self.steps = 0
        self.zero = torch.zeros((), device=device)
        self.to_values: dict[str, deque[Parcel]] = {name: deque() for name in actors}
        self.to_policies: dict[str, deque[Parcel]] = {name: deque() for name in actors}
        self.forget()

    def forget(self) -> None:
        """Begin to count episodes anew."""
        zero = torch.zeros((), dtype=torch.float64, device=self.place.device)
        self.episodes = zero.clone()
        self.return_sums = {name: zero.clone() for name in self.actors}

    @torch.no_grad()
    def turn(self) -> None:
        """One step of all environments."""
        for lagged in self.lagged:
            lagged.renew()
        groups = self.env.group
        before = {name: self._act(actor, groups[name]) for name, actor in self.actors.items()}
        done: Tensor = self.env.step()[4]["_episode"]
        for name, step in before.items():
            self._tell(name, {**step, **self._outcome(groups[name], done)})
            returns = groups[name].last_returns.mean(1, dtype=torch.float64)
            self.return_sums[name] += torch.where(done, returns, 0.0).sum()
        self.episodes += done.sum()
        self.steps += 1

    def _act(self, actor: Actor, group: GroupBuffers) -> dict[str, Tensor]:
        """Write a group's actions where the environment reads them; what is to be stored."""
        # Zeros where an agent has left and its row means nothing.
        seen = torch.where(group.active.unsqueeze(-1), group.observations, self.zero)
        actions, generator = actor(seen), self.place.generator
        if self.steps < self.config.warmup:
            actions.uniform_(-1, 1, generator=generator)
        else:
            noise = torch.empty_like(actions).normal_(generator=generator)
            actions = (actions + self.noise * noise).clamp(-1, 1)
        group.actions.copy_(actor.head.to_env(actions))
        return {"observations": seen, "actions": actions, "active": group.active.clone()}

    def _outcome(self, group: GroupBuffers, done: Tensor) -> dict[str, Tensor]:
        return {
            "rewards": group.rewards * self.config.reward_scale,
            "next_observations": next_observations(group, done),
            "terminated": group.terminations.clone(),
            "ended": group.terminations | group.truncations | done.unsqueeze(-1),
        }

    def _tell(self, name: str, step: dict[str, Tensor]) -> None:
        moments, seen = self.actors[name].moments, dict[str, Tensor]()
        if moments is not None:
            moments.merge(step["observations"], step["active"])
            seen = {key: value.clone() for key, value in moments.state_dict().items()}
        self.to_values[name].append(Parcel({**step, **seen}))
        states = {key: step[key] for key in ("observations", "active")}
        self.to_policies[name].append(Parcel({**states, **seen}))


class ValueLearner:
    """One group's critics, which learn from all that happened.

    Args:
        lanes: environments and agents.
        actor: a copy of the group's, to lag behind it.
        policy: where the group's policy is sent.
        inbox: of steps.
        config: the run's.
        place: where to learn.
        weights: draws the initial weights.
    """

    def __init__(
        self,
        lanes: tuple[int, int],
        actor: Actor,
        policy: Sent,
        inbox: deque[Parcel],
        config: PQLConfig,
        place: Place,
        weights: torch.Generator,
    ) -> None:
        self.config, self.place, self.inbox, self.actor = config, place, inbox, actor
        self.lagged = Lagged(actor, policy, place.device)
        obs_size, shape = actor.obs_size, actor.head.action_shape
        self.critics = make_critics(actor, config, weights).to(place.device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.target_critics.moments = actor.moments
        self.weights, self.target_weights = flatten(self.critics), flatten(self.target_critics)
        self.optimizer = FlatAdam(self.weights, config.critic_lr, config.max_grad_norm)
        self.replay = Replay(
            config.capacity, lanes, obs_size, shape, config.n_step, config.gamma, place.device
        )
        self.sent = Sent()
        self.sent.send(self.weights)
        self.measured: dict[str, list[Tensor]] = {"critic_loss": [], "value": []}

    def receive(self) -> None:
        """Store the steps that came."""
        while self.inbox:
            step = self.inbox.popleft().open(self.place.device)
            renew_moments(self.actor.moments, step)
            self.replay.before(step["observations"], step["actions"], step["active"])
            self.replay.after(
                step["rewards"], step["next_observations"], step["terminated"], step["ended"]
            )

    def turn(self) -> None:
        """One gradient step of the critics."""
        config, generator = self.config, self.place.generator
        self.receive()
        self.lagged.renew()
        batch = self.replay.sample(config.batch_size, generator)
        noise = torch.empty_like(batch.actions).normal_(generator=generator) * config.target_noise
        critics, target_critics, clip = self.critics, self.target_critics, config.target_noise_clip
        if isinstance(critics, DistributionalCritics):
            assert isinstance(target_critics, DistributionalCritics)
            wanted = distribution.target_distribution(
                self.actor, target_critics, batch, noise, clip
            )
            loss, value = distribution.distribution_loss(critics, batch, wanted)
        else:
            wanted = ddpg.targets(self.actor, target_critics, batch, noise, clip)
            loss, value = ddpg.critic_loss(critics, batch, wanted)
        descend(loss, critics, self.optimizer)
        self.target_weights.data.lerp_(self.weights.data, config.tau)
        self.sent.send(self.weights)
        self.measured["critic_loss"].append(loss.detach())
        self.measured["value"].append(value)


class PolicyLearner:
    """One group's actor, which learns from what was seen, and from critics that lag behind.

    Args:
        actor: the group's, with its initial weights.
        critics: a copy of the group's.
        values: where the critics are sent.
        policy: where to send the actor.
        inbox: of what was seen.
        config: the run's.
        place: where to learn.
    """

    def __init__(
        self,
        actor: Actor,
        critics: Critics,
        values: Sent,
        policy: Sent,
        inbox: deque[Parcel],
        config: PQLConfig,
        place: Place,
    ) -> None:
        self.config, self.place, self.inbox = config, place, inbox
        self.actor = actor.to(place.device)
        self.critics = critics
        self.critics.moments = self.actor.moments
        self.lagged = Lagged(critics, values, place.device)
        self.weights = flatten(self.actor)
        self.optimizer = FlatAdam(self.weights, config.actor_lr, config.max_grad_norm)
        self.seen = Ring(
            config.capacity, place.device, {"observations": ((actor.obs_size,), torch.float32)}
        )
        self.sent = policy
        self.sent.send(self.weights)
        self.measured: dict[str, list[Tensor]] = {"actor_loss": []}

    def receive(self) -> None:
        """Store the observations that came."""
        while self.inbox:
            step = self.inbox.popleft().open(self.place.device)
            renew_moments(self.actor.moments, step)
            rows = step["observations"].flatten(0, 1)
            self.seen.put({"observations": rows}, step["active"].flatten())

    def turn(self) -> None:
        """One gradient step of the actor."""
        self.receive()
        self.lagged.renew()
        drawn = self.seen.draw(self.config.batch_size, self.place.generator)["observations"]
        loss = actor_loss(self.actor, self.critics, drawn)
        descend(loss, self.actor, self.optimizer)
        self.sent.send(self.weights)
        self.measured["actor_loss"].append(loss.detach())


def actor_loss(actor: Actor, critics: Critics, observations: Tensor) -> Tensor:
    """Minus the least value, of all critics, of what the actor does."""
    values: Tensor = critics(observations, actor(observations))
    return -values.amin(0).mean()


def make_critics(actor: Actor, config: PQLConfig, weights: torch.Generator) -> Critics:
    """Two fresh critics of a group's actions, with the moments of its actor, on the CPU."""
    sizes = (actor.obs_size, actor.head.action_shape[0], config.hidden)
    if not config.distributional:
        return Critics(2, *sizes, weights, actor.moments)
    atoms = torch.linspace(config.v_min, config.v_max, config.atoms)
    return DistributionalCritics(2, *sizes, weights, atoms, actor.moments)


def descend(loss: Tensor, network: torch.nn.Module, optimizer: FlatAdam) -> None:
    """A gradient step of ``network`` alone: what else the loss went through gets no gradient."""
    optimizer.zero_grad(set_to_none=False)
    loss.backward(inputs=list(network.parameters()))  # type: ignore[no-untyped-call]
    optimizer.step()


def renew_moments(moments: RunningMoments | None, step: Mapping[str, Any]) -> None:
    """Take over the moments that came with a step."""
    if moments is not None:
        moments.load_state_dict({name: step[name] for name in moments.state_dict()})
