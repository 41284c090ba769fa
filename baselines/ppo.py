"""Proximal policy optimisation for groups of agents, on the device from start to end.

Every group of agents with the same spaces shares one policy and one value function, both of which
see an agent's own observation only (independent PPO), unless the value function is made to see
what all agents see (``central_critic``, MAPPO), or every agent is a group of its own
(``separate``). All groups learn at once.

    result = train("mpe/simple_spread_v3")
    evaluate(result.policy)

The loss and one group's learner are in learner.py, hyper-parameters in config.py, storage and
advantages in rollout.py; here is the loop over all groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import gpu_zoo
from gpu_zoo.backends import resolve_device
from gpu_zoo.baselines import checkpoint, checks, distributed, loop, profile, sapg
from gpu_zoo.baselines.config import PPOConfig, default_config
from gpu_zoo.baselines.evaluation import Evaluation, Policy, Score, evaluate, make_networks
from gpu_zoo.baselines.frozen import FrozenGroup, Source, load_frozen
from gpu_zoo.baselines.graph import Graphed
from gpu_zoo.baselines.groups import split
from gpu_zoo.baselines.learner import METRICS, Learner
from gpu_zoo.baselines.loop import TrainResult, Update
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.players import Player
from gpu_zoo.baselines.pool import Pool, environments_each
from gpu_zoo.baselines.profile import part
from gpu_zoo.baselines.rollout import States
from gpu_zoo.baselines.runs import Runs
from gpu_zoo.results import GroupBuffers

__all__ = [
    "Evaluation", "PPOConfig", "Policy", "Score", "TrainResult", "Update",
    "default_config", "evaluate", "resume", "train",
]  # fmt: skip


class Trainer:
    """All that a run consists of, and that a checkpoint holds.

    ``sources`` say who plays the frozen groups; by default they are read as the configuration says.
    """

    def __init__(
        self,
        env_id: str,
        config: PPOConfig,
        env_params: Mapping[str, Any],
        sources: Mapping[str, Source] | None = None,
    ) -> None:
        self.env_id, self.config, self.env_params = env_id, config, checks.plain(env_params)
        if sources is None:
            sources = load_frozen(env_id, env_params, config.frozen)
        num_envs = distributed.share(config.num_envs, "num_envs")
        self.device = resolve_device(config.device)
        own_device = distributed.local_device(self.device)
        self.env = gpu_zoo.make_vec(
            env_id, num_envs, device=own_device, array="torch", **env_params
        )
        networks = make_networks(env_id, env_params, config.hidden, config.seed, vars(config))
        sides: dict[str, dict[str, Learner]] = {}  # those who learn, by group
        self.learners: dict[str, Learner] = {}
        self.frozen: dict[str, FrozenGroup] = {}
        for layout in self.env.spec.layout(self.env.params):
            name = layout.name
            group = {name: self.env.group[name]}
            if name in sources:
                self.frozen[name] = FrozenGroup(group[name], layout, sources[name])
                continue
            parts = split(group) if config.separate else group
            sides[name] = {p: self.make_learner(g, networks[p]) for p, g in parts.items()}
            self.learners |= sides[name]
        self.players: list[Player] = [p for group in self.frozen.values() for p in group.players]
        self.pool: Pool | None = None
        if config.pool:
            self.pool = Pool(sides, config)
            self.players += [seat.player for seat in self.pool.seats]
        self.states: States | None = None
        if config.central_critic:
            size = sum(g.observations[0].numel() for g in self.env.group.values())
            self.states = States([learner.rollout for learner in self.learners.values()], size)
        device = next(iter(self.env.group.values())).rewards.device
        rank = distributed.rank()
        self.generator = torch.Generator(device).manual_seed(distributed.own_seed(config.seed))
        # No two seeds share an environment, nor do two processes.
        self.env.reset(seed=config.seed * config.num_envs + rank * num_envs)
        self.whole = torch.full((num_envs,), not config.stagger, device=device)
        if config.stagger:
            self._stagger()
        self.curve: list[Update] = []
        self.now = config
        self.graphed: Callable[[], Tensor] = self.work
        if self._may_be_a_graph():
            self.graphed = Graphed(self.work, device, [self.generator])

    def make_learner(self, group: GroupBuffers, network: ActorCritic) -> Learner:
        """A group's learner, or an agent's."""
        return Learner(group, network, self.config)

    def _stagger(self) -> None:
        """Only the clock moves: environments start their first episode, but late in its time.

        To play random steps instead would cost up to a whole episode. The returns of these
        shortened episodes are not counted.
        """
        steps = self.env.get_state()["steps"]
        limit = int(self.env.params[self.env.spec.time_limit] or 1)
        number = torch.arange(len(steps), device=steps.device) + distributed.rank() * len(steps)
        spread = number * limit // self.config.num_envs
        self.env.set_state({"steps": spread.to(steps.dtype)})

    def everybody(self) -> Iterator[Learner | FrozenGroup]:
        """All groups, or agents with networks of their own, in the environment's order."""
        for name, group in self.env.group.items():
            if name in self.frozen:
                yield self.frozen[name]
            else:
                parts = group.agents if self.config.separate else (name,)
                yield from (self.learners[part] for part in parts)

    def look(self, t: int) -> None:
        """Note what everybody sees before step ``t``."""
        for learner in self.learners.values():
            learner.look(t)
        if self.states is not None:
            self.states.note(t, [part.seen(t) for part in self.everybody()])

    def record(self, t: int, done: Tensor, counted: Tensor) -> None:
        """Note what step ``t`` gave everybody."""
        for learner in self.learners.values():
            learner.record(t, done, counted)
        if self.states is not None:
            self.states.note_final(t, [part.finally_seen(t) for part in self.everybody()])
        for learner in self.learners.values():
            learner.settle(t)

    @torch.inference_mode()
    def collect(self) -> Tensor:
        """Fill every group's rollout; how many whole episodes ended in each block."""
        blocks = self.config.blocks
        episodes = torch.zeros(blocks, dtype=torch.float64, device=self.whole.device)
        for learner in self.learners.values():
            learner.return_sum.zero_()
        for t in range(self.config.horizon):
            self.look(t)
            with part("acting"):
                for learner in self.learners.values():
                    learner.act(t, self.generator)
                for player in self.players:  # after the learners: the pool's take their place
                    player.act(self.generator)
            with part("environment steps"):
                _, _, _, _, infos = self.env.step()
            done = infos["_episode"]
            counted = done & self.whole
            if self.pool is not None:
                counted &= self.pool.current
            self.record(t, done, counted)
            for player in self.players:
                player.forget(done)
            episodes += sapg.by_block(counted, blocks)
            self.whole |= done
        self.look(self.config.horizon)
        if self.pool is not None:
            self.pool.exclude()
        for learner in self.learners.values():
            learner.measure_rewards()
        return episodes

    def work(self) -> Tensor:
        """One iteration on the device: counts and sums of returns by block, then ``METRICS``."""
        config = self.now
        episodes = self.collect()
        returns, metrics = [episodes], []
        for learner in self.learners.values():
            with torch.no_grad(), part("values and advantages"):
                batch = learner.prepare()
                if config.blocks > 1:
                    batch = sapg.with_followers(learner, batch, self.generator)
            losses = learner.learn(batch, config, self.generator)
            learner.measure_observations()
            returns.append(learner.return_sum)
            metrics.append(losses.double())
        return torch.cat([distributed.total(torch.stack(returns)).flatten(), *metrics])

    def iterate(self) -> tuple[int, dict[str, float], dict[str, float]]:
        """One iteration: episodes, returns and losses, read in one go."""
        done = len(self.curve) / loop.iterations(self.config)
        self.now = config = self.config.after(done)
        for learner in self.learners.values():
            learner.adapt(config)
        numbers = self.graphed().tolist()
        if self.pool is not None and (len(self.curve) + 1) % self.config.pool_interval == 0:
            self.pool.grow()
        names = [f"{group}/{metric}" for group in self.learners for metric in METRICS]
        sums, metrics = numbers[: -len(names)], numbers[-len(names) :]
        values = dict(zip(names, metrics, strict=True))
        blocks = config.blocks
        counts, *by_group = (sums[i : i + blocks] for i in range(0, len(sums), blocks))
        means = {
            (group, block): total / count
            for group, totals in zip(self.learners, by_group, strict=True)
            for block, (total, count) in enumerate(zip(totals, counts, strict=True))
            if count
        }
        values |= {f"{g}/return_{b}": mean for (g, b), mean in means.items() if b != sapg.LEADER}
        led = {group: mean for (group, block), mean in means.items() if block == sapg.LEADER}
        return int(counts[sapg.LEADER]), led, values

    def _may_be_a_graph(self) -> bool:
        """Whether an iteration is always the same work, but for what :meth:`Learner.adapt` sets."""
        config = self.config
        plain = config.target_kl is None and config.optimizer == "adam" and not config.pool
        alone = distributed.size() == 1 and not profile.is_recording()
        return config.cuda_graph and plain and alone

    def policy(self) -> Policy:
        """What has been learned so far; its networks are those that learn."""
        networks = {name: learner.network for name, learner in self.learners.items()}
        for group in self.frozen.values():
            networks |= group.networks
        return Policy(self.env_id, self.env_params, networks, self.config.seed)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        own, *others = distributed.gathered(self._own_state()) or [{}]
        return {
            "env_id": self.env_id,
            "env_params": self.env_params,
            "device": self.device,
            "config": asdict(self.config),
            "curve": [asdict(update) for update in self.curve],
            "learners": {
                name: {
                    "network": learner.network.state_dict(),
                    "optimizer": learner.optimizer.state_dict(),
                }
                for name, learner in self.learners.items()
            },
            "frozen": {name: group.source for name, group in self.frozen.items()},
            "pool": None if self.pool is None else self.pool.state_dict(),
            **own,
            "others": others,
        }

    def _own_state(self) -> dict[str, Any]:
        """Of all that, what differs between processes."""
        return {
            "env": self.env.get_state(),
            "whole": self.whole,
            "generator": self.generator.get_state(),
            "memories": {name: learner.memory for name, learner in self.learners.items()},
            "reward_scales": {
                name: learner.reward_scale.state_dict()
                for name, learner in self.learners.items()
                if learner.reward_scale is not None
            },
            "players": [player.memory for player in self.players],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`state_dict` gave.

        Raises:
            CheckpointError: it is the state of another number of processes.
        """
        everyone = [state, *state["others"]]
        if len(everyone) != distributed.size():
            raise checkpoint.CheckpointError(
                f"a run of {len(everyone)} processes: expected as many, not {distributed.size()}"
            )
        own = everyone[distributed.rank()]
        self.curve = [Update(**update) for update in state["curve"]]
        device = self.whole.device
        self.env.set_state({name: value.to(device) for name, value in own["env"].items()})
        self.whole.copy_(own["whole"])
        self.generator.set_state(own["generator"])
        for name, learner in self.learners.items():
            learner.network.load_state_dict(state["learners"][name]["network"])
            learner.optimizer.load_state_dict(state["learners"][name]["optimizer"])
            if learner.memory is not None:
                learner.memory.copy_(own["memories"][name])
            if learner.reward_scale is not None:
                learner.reward_scale.load_state_dict(own["reward_scales"][name])
        if self.pool is not None:
            self.pool.load_state_dict(state["pool"])
        for player, saved in zip(self.players, own.get("players", []), strict=True):
            if player.memory is not None:
                player.memory.copy_(saved)


def check(env_id: str, config: PPOConfig, env_params: Mapping[str, Any]) -> None:
    """Check, before anything runs, what the configuration says of the environment's groups.

    Raises:
        ValueError: no such group to be frozen, a policy made for others, or no place for a pool.
        CheckpointError: a file is missing, broken or no checkpoint.
    """
    frozen = load_frozen(env_id, env_params, config.frozen)
    if config.pool:
        spec = gpu_zoo.spec(env_id)
        groups = [group.name for group in spec.layout(spec.resolve(env_params))]
        learning = [name for name in groups if name not in frozen]
        environments_each(config, learning, config.num_envs)


def _restored(state: Mapping[str, Any], config: PPOConfig) -> Trainer:
    """The run that a checkpoint is of, at its beginning, with the players that are frozen in it."""
    return Trainer(state["env_id"], config, state["env_params"], state.get("frozen", {}))


PPO = Runs("ppo", PPOConfig, default_config, Trainer, _restored, several=True)


def train(
    env_id: str,
    config: PPOConfig | None = None,
    env_params: Mapping[str, Any] | None = None,
    *,
    on_update: Callable[[Update], None] | None = None,
) -> TrainResult:
    """Train one policy for each group of agents of an environment, or for each agent.

    On the CPU the same configuration gives the same curve, bit for bit.

    Args:
        env_id: such as ``"mpe/simple_spread_v3"``.
        config: hyper-parameters; by default those of :func:`default_config`.
        env_params: parameters of the environment.
        on_update: called after every iteration.

    Raises:
        KeyError: no such environment.
        ValueError: a parameter out of range.
    """
    return PPO.train(env_id, config, env_params, on_update)


def resume(path: str | Path, *, on_update: Callable[[Update], None] | None = None) -> TrainResult:
    """Go on with a run from its checkpoint, exactly as if it had never stopped.

    It goes on saving to ``path``, and computes on the same device, whose random numbers differ
    from another's.

    Raises:
        CheckpointError: the file is missing, broken or no checkpoint of PPO.
    """
    return PPO.resume(path, on_update)


if __name__ == "__main__":  # as torchrun calls it
    import sys

    from gpu_zoo.cli import main

    sys.exit(main(["train", *sys.argv[1:]]))
