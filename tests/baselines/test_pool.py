"""Self-play against earlier versions: who plays where, what is learned from, and exact resume."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines import ppo
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.ppo import PPOConfig, evaluate, resume, train

TAG, SPREAD = "mpe/simple_tag_v3", "mpe/simple_spread_v3"
# 16 of 20 environments, 4 for each of two groups and two versions. Who is frozen in which of them,
# and as which version:
PLACES = {
    "agent": [(slice(4, 8), 0), (slice(8, 12), 1)],
    "adversary": [(slice(12, 16), 0), (slice(16, 20), 1)],
}


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 20, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (16,),
        "device": "cpu", "progress": False, "total_steps": 1200, "learning_rate": 0.01,
        "pool": 2, "pool_interval": 2, "pool_share": 0.8,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Threads that wait for each other on a busy machine are slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shake(network: ActorCritic, seed: int) -> None:
    """Another network, so sure of itself that what it draws is its likeliest action."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.actor.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        last = network.actor.last if hasattr(network.actor, "last") else network.actor[-1]
        last.weight.mul_(1e5)


def two_versions(**changes: Any) -> ppo.Trainer:
    """A trainer whose pool holds two versions of each network, both unlike the present one."""
    trainer = ppo.Trainer(TAG, small(**changes), {"max_cycles": 7})
    assert trainer.pool is not None
    for seed in (10, 20):
        for i, learner in enumerate(trainer.learners.values()):
            shake(learner.network, seed + i)
        trainer.pool.grow()
    for i, learner in enumerate(trainer.learners.values()):
        shake(learner.network, 30 + i)
    return trainer


def watched(trainer: ppo.Trainer) -> list[dict[str, tuple[torch.Tensor, torch.Tensor]]]:
    """What each group sees and does in the steps to come."""
    step, seen = trainer.env.step, list[Any]()

    def spy() -> Any:
        groups = trainer.env.group.items()
        seen.append({n: (g.observations.clone(), g.actions.clone()) for n, g in groups})
        return step()

    trainer.env.step = spy  # type: ignore[method-assign, assignment]
    return seen


@pytest.mark.parametrize(
    "changes",
    [{}, {"separate": True}, {"normalize_observations": True}, {"central_critic": True}],
    ids=str,
)
def test_everybody_acts_as_the_network_of_its_place_says(changes: dict[str, Any]) -> None:
    trainer = two_versions(**changes)
    if "normalize_observations" in changes:  # as if each version had seen something else
        for i, member in enumerate(trainer.pool.members):  # type: ignore[union-attr]
            for network in member.values():
                rows = torch.randn(9, network.moments.mean.numel()) + i  # type: ignore[union-attr]
                network.moments.merge(rows, torch.ones(9, dtype=torch.bool))  # type: ignore[union-attr]
    steps = watched(trainer)
    trainer.collect()
    versions = trainer.pool.members  # type: ignore[union-attr]
    assert len(steps) == 10
    differ = 0
    for step in steps:
        for group, (observations, actions) in step.items():
            names = trainer.env.groups[group] if "separate" in changes else [group]
            for i, name in enumerate(names):
                column = slice(i, i + 1) if "separate" in changes else slice(None)
                seen = observations[:, column]
                with torch.no_grad():
                    present = trainer.learners[name].network.best(seen)
                    wanted = present.clone()
                    for rows, version in PLACES[group]:
                        wanted[rows] = versions[version][name].best(seen[rows])
                assert torch.equal(actions[:, column].long(), wanted), (group, name)
                differ += int((wanted != present).sum())
    assert differ > 100  # or it would not matter who acts


def test_versions_remember_their_own_games() -> None:
    trainer = two_versions(recurrent=True, stagger=True)
    steps = watched(trainer)
    trainer.collect()
    done = trainer.learners["agent"].rollout.done
    assert 10 < int(done.sum()) < done.numel() / 2
    for group, places in PLACES.items():
        for rows, version in places:
            network = trainer.pool.members[version][group]  # type: ignore[union-attr]
            memory = torch.zeros(4, steps[0][group][1].shape[1], 16)
            for t, step in enumerate(steps):
                observations, actions = (x[rows] for x in step[group])
                with torch.no_grad():
                    logits, memory = network.actor.step(observations, memory)  # type: ignore[operator]
                assert torch.equal(actions.long(), logits.argmax(-1))
                memory = memory * ~done[t, rows, None, None]


def test_the_pool_grows_and_then_gives_up_its_oldest() -> None:
    """Versions are told apart by a bias: the number of the iteration they are from."""
    config = small(pool=3, pool_interval=2, pool_share=0.9, total_steps=8 * 20 * 10)
    trainer = ppo.Trainer(TAG, config, {})
    pool, network = trainer.pool, trainer.learners["agent"].network
    assert pool is not None

    def met() -> list[float]:
        seats = [s for s in pool.seats if s.name == "agent"]
        return [
            float(s.player.network.critic[-1].bias) for s in sorted(seats, key=lambda s: s.slot)
        ]

    found = [met()]
    for iteration in range(1, 9):
        trainer.learners["agent"].learn = lambda *_: torch.zeros(5)  # type: ignore[method-assign]
        with torch.no_grad():
            network.critic[-1].bias.fill_(iteration)
        trainer.iterate()
        trainer.curve.append(ppo.Update(iteration, 0, 0, {}, {}, 0.0))
        found.append(met())
    start = [0.0, 0.0, 0.0]
    assert found == [
        start, start, [0, 2, 0], [0, 2, 0], [0, 2, 4], [0, 2, 4], [6, 2, 4], [6, 2, 4], [6, 8, 4],
    ]  # fmt: skip


def test_versions_do_not_learn() -> None:
    trainer = ppo.Trainer(TAG, small(), {})
    pool = trainer.pool
    assert pool is not None
    versions = pool.members[0].items()
    before = {n: {k: v.clone() for k, v in x.state_dict().items()} for n, x in versions}
    trainer.iterate()
    for name, network in versions:
        assert all(torch.equal(before[name][k], v) for k, v in network.state_dict().items())
        assert not any(p.requires_grad for p in network.parameters())
        own = trainer.learners[name].network.state_dict()
        assert all(not torch.equal(before[name][k], v) for k, v in own.items())


def gradient(trainer: ppo.Trainer, name: str) -> torch.Tensor:
    """Loss, metrics and gradient of all samples in one."""
    learner = trainer.learners[name]
    with torch.no_grad():
        batch = learner.prepare()
    learner.network.zero_grad()
    total, metrics = learning.loss(learner.network, batch, trainer.config)
    total.backward()  # type: ignore[no-untyped-call]
    parts = [p.grad.flatten() for p in learner.network.parameters() if p.grad is not None]
    return torch.cat([total.detach()[None], metrics, *parts])


@pytest.mark.parametrize("recurrent", [False, True])
def test_nothing_is_learned_from_what_versions_do(recurrent: bool) -> None:
    trainer = ppo.Trainer(TAG, small(recurrent=recurrent, entropy_coef=0.1), {"max_cycles": 7})
    trainer.collect()
    for name, places in PLACES.items():
        rollout = trainer.learners[name].rollout
        weights = torch.ones(10, 20, rollout.rewards.shape[2])
        for rows, _ in places:
            weights[:, rows] = 0
        assert torch.equal(rollout.active.float(), weights)
        before = gradient(trainer, name)
        for rows, _ in places:
            rollout.observations[:, rows] += 1
            rollout.actions[:, rows] = 0
            rollout.rewards[:, rows] = -77
            rollout.log_probs[:, rows] = -3
            if rollout.memory is not None:
                rollout.memory[rows] = 1
        assert torch.equal(gradient(trainer, name), before)
        rollout.rewards[:, :4] -= 1  # while what the present ones do matters
        assert not torch.equal(gradient(trainer, name), before)


def test_nothing_is_measured_of_what_versions_do() -> None:
    config = small(normalize_observations=True, scale_rewards=True)
    trainer = ppo.Trainer(TAG, config, {"max_cycles": 7})
    trainer.iterate()
    for name, places in PLACES.items():
        learner = trainer.learners[name]
        own = [i for i in range(20) if not any(rows.start <= i < rows.stop for rows, _ in places)]
        seen = learner.rollout.observations[:-1, own].double().flatten(0, 2)
        moments, scale = learner.network.moments, learner.reward_scale
        assert moments is not None and scale is not None
        torch.testing.assert_close(moments.mean, seen.mean(0))
        torch.testing.assert_close(moments.variance(), seen.var(0, correction=0))
        assert float(scale.moments.count) == seen.shape[0]


def test_returns_are_those_among_the_present_ones() -> None:
    """The first four environments, counted again from their rewards; the others play as much."""
    trainer = ppo.Trainer(TAG, small(stagger=False, horizon=21), {"max_cycles": 7})
    episodes, returns, _ = trainer.iterate()
    assert episodes == 4 * 3
    for name, learner in trainer.learners.items():
        rewards = learner.rollout.rewards
        assert returns[name] == pytest.approx(float(rewards[:, :4].sum() / rewards.shape[2] / 12))
        assert returns[name] != pytest.approx(float(rewards.sum() / rewards.shape[2] / 60))


@pytest.mark.parametrize(
    "changes",
    [{}, {"recurrent": True, "normalize_observations": True}, {"separate": True, "pool": 3}],
    ids=str,
)
def test_resume_is_exact(changes: dict[str, Any], tmp_path: Path) -> None:
    path = str(tmp_path / "run.pt")
    config = small(total_steps=1400, **changes)
    whole = train(TAG, config)
    assert len(whole.curve) == 7

    def stop(update: ppo.Update) -> None:
        if update.index == 5:  # two growths behind it, one before it
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        saving = dataclasses.replace(config, checkpoint=path, checkpoint_interval=1)
        train(TAG, saving, on_update=stop)
    assert resume(path).curve == whole.curve


def test_opponents_of_the_past_change_the_run() -> None:
    assert train(TAG, small()).curve != train(TAG, small(pool=0)).curve


def test_a_frozen_group_has_no_part_in_the_pool() -> None:
    config = small(frozen={"agent": "random"}, pool_share=0.5)
    trainer = ppo.Trainer("mpe/simple_world_comm_v3", config, {})
    assert trainer.pool is not None
    assert {seat.name for seat in trainer.pool.seats} == set(trainer.learners)
    with pytest.raises(ValueError, match="pool=2: expected 0, as only adversary learns"):
        ppo.Trainer(TAG, config, {})


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="pool=2: expected 0, as only agent learns"):
        train(SPREAD, small())
    wanted = "pool_share=0.1: expected 4 of 20 environments or more, one for each group and member"
    with pytest.raises(ValueError, match=wanted):
        train(TAG, small(pool_share=0.1))


@pytest.mark.slow
def test_it_learns() -> None:
    """Random adversaries catch for 4.0 on average; agents they chase here move at random."""
    config = PPOConfig(
        total_steps=300_000, num_envs=128, horizon=25, learning_rate=3e-3, gamma=0.95, device="cpu",
        progress=False, pool=4, pool_interval=5, pool_share=0.5,
    )  # fmt: skip
    policy = train(TAG, config).policy
    settings: dict[str, Any] = {"opponents": {"agent": "random"}, "episodes": 1000}
    random = evaluate(None, TAG, 1000).groups["adversary"].mean
    assert evaluate(policy, **settings).groups["adversary"].mean > random + 8
