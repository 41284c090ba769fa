"""Parallel Q-learning for groups of agents (PQL; Li et al. 2023, arXiv:2307.12983).

DDPG in three parts that work at the same time: the explorer steps thousands of environments, the
value learner makes several gradient steps of the critics for each of these steps, and the policy
learner one of the actor for some of those. Each uses the latest that the others have sent, without
waiting for it; only when one gets ahead of the agreed ratio does it wait, see turns.py.

    result = train("classic/pendulum_v1")
    evaluate(result.policy)

The parts are in pql_parts.py, hyper-parameters in pql_config.py, distributions of returns (PQL-D)
in distribution.py. Here stand the run as a whole, and its checkpoints.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import gpu_zoo
from gpu_zoo.backends import resolve_device
from gpu_zoo.baselines import checks
from gpu_zoo.baselines.deterministic import DeterministicPolicy, make_actors
from gpu_zoo.baselines.evaluation import Policy, evaluate
from gpu_zoo.baselines.loop import TrainResult, Update
from gpu_zoo.baselines.parcel import Sent
from gpu_zoo.baselines.pql_config import PQLConfig, default_config
from gpu_zoo.baselines.pql_parts import Explorer, Place, PolicyLearner, ValueLearner
from gpu_zoo.baselines.runs import Runs
from gpu_zoo.baselines.turns import Turns, one_by_one, side_by_side
from gpu_zoo.errors import MissingDependency

__all__ = [
    "DeterministicPolicy", "PQLConfig", "TrainResult", "Update", "default_config", "evaluate",
    "resume", "train",
]  # fmt: skip

PARTS = ("explorer", "values", "policy")


class Trainer:
    """All that a run consists of, and that a checkpoint holds."""

    def __init__(self, env_id: str, config: PQLConfig, env_params: Mapping[str, Any]) -> None:
        self.env_id, self.config, self.env_params = env_id, config, checks.plain(env_params)
        devices = chosen_devices(config)
        actors = make_actors(
            env_id, env_params, config.hidden, config.seed, config.normalize_observations
        )
        self.env = gpu_zoo.make_vec(
            env_id, config.num_envs, device=config.device, array="torch", **env_params
        )
        # Three streams of random numbers, or who draws first would matter.
        self.places = {
            name: Place(device, config.seed + (number << 32))
            for number, (name, device) in enumerate(zip(PARTS, devices, strict=True))
        }
        self._make_parts(actors)
        self.env.reset(seed=config.seed * config.num_envs)  # no two seeds share an environment
        # An update of the actor costs as much as the updates of the critics that it waits for.
        costs = {"explorer": config.updates, "values": 1, "policy": config.actor_delay}
        self.turns = Turns(costs, lead=2 * max(costs.values()))
        self.curve: list[Update] = []

    def _make_parts(self, actors: Mapping[str, Any]) -> None:
        config, places = self.config, self.places
        weights = torch.Generator().manual_seed(config.seed + 2**31)  # not those of the actors
        policies = {name: Sent() for name in actors}
        copies = [
            {name: copy.deepcopy(actor).to(place.device) for name, actor in actors.items()}
            for place in places.values()
        ]
        self.explorer = Explorer(self.env, copies[0], policies, config, places["explorer"])
        self.values: dict[str, ValueLearner] = {}
        self.policies: dict[str, PolicyLearner] = {}
        for name, group in self.env.group.items():
            lanes = (config.num_envs, len(group.agents))
            self.values[name] = values = ValueLearner(
                lanes, copies[1][name], policies[name], self.explorer.to_values[name], config,
                places["values"], weights,
            )  # fmt: skip
            self.policies[name] = PolicyLearner(
                copies[2][name], copy.deepcopy(values.critics), values.sent, policies[name],
                self.explorer.to_policies[name], config, places["policy"],
            )  # fmt: skip

    # One iteration ----------------------------------------------------------------------------

    def _explore(self) -> None:
        with self.places["explorer"].here():
            self.explorer.turn()

    def _learn_values(self) -> None:
        with self.places["values"].here():
            for learner in self.values.values():
                learner.turn()

    def _learn_policies(self) -> None:
        with self.places["policy"].here():
            for learner in self.policies.values():
                learner.turn()

    def _receive(self) -> None:
        """Have the learners store what is still on its way."""
        learners: Any = (*self.values.values(), *self.policies.values())
        for learner in learners:
            with learner.place.here():
                learner.receive()

    def advance(self, steps: int) -> None:
        """Go on until the environments have made ``steps`` steps, and everybody's work is done."""
        config, parts = self.config, (self._explore, self._learn_values, self._learn_policies)
        for place in self.places.values():
            place.begin()
        warmup = max(config.warmup, config.n_step)  # before that nothing is stored
        while self.explorer.steps < min(warmup, steps):
            self._explore()
        self.turns.limit = max(0, steps - warmup) * config.updates
        work = side_by_side if config.concurrent else one_by_one
        work(self.turns, dict(zip(PARTS, parts, strict=True)))
        self._receive()
        for place in self.places.values():
            place.end()

    def iterate(self) -> tuple[int, dict[str, float], dict[str, float]]:
        """One iteration: episodes, returns and losses, read in one go."""
        explorer = self.explorer
        explorer.forget()
        self.advance((len(self.curve) + 1) * self.config.horizon)
        losses = self._take_losses()
        sums = explorer.return_sums
        device = explorer.place.device
        numbers = [explorer.episodes, *sums.values(), *(v.to(device) for v in losses.values())]
        count, *rest = torch.stack([number.double() for number in numbers]).tolist()
        returns = {group: s / count for group, s in zip(sums, rest, strict=False) if count}
        return int(count), returns, dict(zip(losses, rest[len(sums) :], strict=True))

    def _take_losses(self) -> dict[str, Tensor]:
        """Means since the last call, without those of which there are none."""
        means: dict[str, Tensor] = {}
        for group in self.values:
            for learner in (self.values[group], self.policies[group]):
                for name, values in learner.measured.items():
                    if values:
                        means[f"{group}/{name}"] = torch.stack(values).mean()
                        values.clear()
        return means

    def policy(self) -> Policy:
        """What has been learned so far; its networks are those that learn."""
        actors: Any = {name: learner.actor for name, learner in self.policies.items()}
        return DeterministicPolicy(self.env_id, self.env_params, actors, self.config.seed)

    # Checkpoints, between two iterations, when nothing is on its way ----------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        return {
            "algorithm": "pql",
            "env_id": self.env_id,
            "env_params": self.env_params,
            "device": self.env.device,
            "config": asdict(self.config),
            "curve": [asdict(update) for update in self.curve],
            "env": self.env.get_state(),
            "generators": {n: place.generator.get_state() for n, place in self.places.items()},
            "steps": self.explorer.steps,
            "turns": self.turns.counts,
            "learners": {
                name: {part: one.state_dict() for part, one in self._parts(name).items()}
                for name in self.values
            },
        }

    def _parts(self, group: str) -> dict[str, Any]:
        """What a group's learners consist of; copies of it, which lag, are renewed from it."""
        values, policy = self.values[group], self.policies[group]
        return {
            "actor": policy.actor,
            "actor_optimizer": policy.optimizer,
            "seen": policy.seen,
            "critics": values.critics,
            "target_critics": values.target_critics,
            "critic_optimizer": values.optimizer,
            "replay": values.replay,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave."""
        device = self.places["explorer"].device
        self.curve = [Update(**update) for update in state["curve"]]
        self.env.set_state({name: value.to(device) for name, value in state["env"].items()})
        for name, generator in state["generators"].items():
            self.places[name].generator.set_state(generator)
        self.explorer.steps = state["steps"]
        self.turns.counts.update(state["turns"])
        for group, saved in state["learners"].items():
            for name, part in self._parts(group).items():
                part.load_state_dict(saved[name])
            self.values[group].sent.send(self.values[group].weights)
            self.policies[group].sent.send(self.policies[group].weights)
            moments = self.policies[group].actor.moments
            explored = self.explorer.actors[group].moments
            if moments is not None and explored is not None:
                explored.load_state_dict(moments.state_dict())


def chosen_devices(config: PQLConfig) -> list[torch.device]:
    """Where the three parts work.

    Raises:
        ValueError: no device.
        MissingDependency: CUDA was asked for and is not usable.
    """
    devices = []
    for name in ("device", "value_device", "policy_device"):
        try:
            chosen = resolve_device(getattr(config, name) or config.device)
        except (ValueError, MissingDependency) as error:
            raise type(error)(str(error).replace("device", name, 1)) from error
        devices.append(torch.device(chosen))
    return devices


PQL = Runs("pql", PQLConfig, default_config, Trainer)


def train(
    env_id: str,
    config: PQLConfig | None = None,
    env_params: Mapping[str, Any] | None = None,
    *,
    on_update: Callable[[Update], None] | None = None,
) -> TrainResult:
    """Train one policy for each group of agents of an environment with continuous actions.

    How far the three parts lag behind each other depends on how fast each is, so two runs differ
    unless ``concurrent`` is off. Returns in the curve are those of exploring agents;
    :func:`evaluate` plays without noise.

    Args:
        env_id: such as ``"classic/pendulum_v1"``.
        config: hyper-parameters; by default those of :func:`default_config`.
        env_params: parameters of the environment, such as ``{"continuous_actions": True}``.
        on_update: called after every iteration, when all parts rest.

    Raises:
        KeyError: no such environment.
        TypeError: the actions of a group are not continuous.
        ValueError: a parameter out of range, or a replay too small for one step.
    """
    return PQL.train(env_id, config, env_params, on_update)


def resume(path: str | Path, *, on_update: Callable[[Update], None] | None = None) -> TrainResult:
    """Go on with a run from its checkpoint; exactly as if it had never stopped, if that run was not
    ``concurrent``.

    It goes on saving to ``path``, and computes on the same devices.

    Raises:
        CheckpointError: the file is missing, broken or no checkpoint of PQL.
    """
    return PQL.resume(path, on_update)
