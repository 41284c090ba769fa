"""The bundled DDPG: targets, losses and gradients by hand, exact resume, and that it learns."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gpu_zoo.baselines import checkpoint, ddpg, ppo
from gpu_zoo.baselines.checkpoint import CheckpointError
from gpu_zoo.baselines.ddpg import DDPGConfig, DeterministicPolicy, evaluate, resume, train
from gpu_zoo.baselines.deterministic import Actor, Critics
from gpu_zoo.baselines.replay import Transitions

PENDULUM, TAG, SPREAD = "classic/pendulum_v1", "mpe/simple_tag_v3", "mpe/simple_spread_v3"
BOX = {"continuous_actions": True}
PLAIN = {"critics": 1, "target_noise": 0.0, "actor_delay": 1}  # DDPG without TD3's additions


def small(**changes: Any) -> DDPGConfig:
    settings: dict[str, Any] = {
        "total_steps": 800, "num_envs": 8, "horizon": 10, "warmup": 5, "updates": 1,
        "batch_size": 16, "capacity": 500, "hidden": (16,), "device": "cpu", "progress": False,
    }  # fmt: skip
    return DDPGConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Targets and losses ----------------------------------------------------------------------------


def linear(layer: Any, *weights: float) -> None:
    """Without hidden layers networks are linear: the last weight given is the bias."""
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([weights[:-1]]))
        layer.bias.fill_(weights[-1])


def tiny() -> tuple[Actor, Critics]:
    """One observation s, one action a: a = tanh(s / 2), q1 = s + 2 a, q2 = 3 s - a + 1."""
    generator = torch.Generator().manual_seed(0)
    actor = Actor(1, spaces.Box(-2, 2, (1,)), (), generator)
    critics = Critics(2, 1, 1, (), generator)
    nets: Any = critics.nets
    linear(actor.net[0], 0.5, 0.0)
    linear(nets[0][0], 1.0, 2.0, 0.0)
    linear(nets[1][0], 3.0, -1.0, 1.0)
    return actor, critics


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def test_targets_worked_by_hand() -> None:
    actor, critics = tiny()
    batch = Transitions(
        column(0, 0, 0), column(0, 0, 0), torch.tensor([1.0, 2.0, 3.0]),
        column(2, -2, 1), torch.tensor([0.5, 0.9, 0.0]),
    )  # fmt: skip
    # s = 2: tanh(1) = 0.76159, noise 0.1: 0.86159; q1 = 3.72319, q2 = 6.13841
    # s = -2: -0.76159, noise -0.9, cut to -0.3, cut to the box: -1; q1 = -4, q2 = -4
    # the third is over
    found = ddpg.targets(actor, critics, batch, column(0.1, -0.9, 0.2), 0.3)
    assert found.tolist() == pytest.approx([1 + 0.5 * 3.72319, 2 + 0.9 * -4, 3], abs=1e-4)
    alone = Critics(1, 1, 1, (), torch.Generator().manual_seed(0))
    alone.nets[0] = critics.nets[1]
    found = ddpg.targets(actor, alone, batch, column(0, 0, 0), 0.3)
    assert found.tolist() == pytest.approx(
        [1 + 0.5 * (7 - math.tanh(1)), 2 + 0.9 * (-5 + math.tanh(1)), 3], abs=1e-4
    )
    assert not found.requires_grad


def test_the_critics_loss_and_gradient_by_hand() -> None:
    """q1 = 1 + 2 / 2 = 2 and 3 s - a + 1 = 3.5 against 4; q1 = -2 and q2 = 2 against 0."""
    _, critics = tiny()
    batch = Transitions(column(1, 0), column(0.5, -1), torch.zeros(2), column(0, 0), torch.zeros(2))
    loss, value = ddpg.critic_loss(critics, batch, torch.tensor([4.0, 0.0]))
    assert loss.item() == pytest.approx(((2 - 4) ** 2 + 2**2) / 2 + (0.5**2 + 2**2) / 2)
    assert value.item() == pytest.approx((2 - 2 + 3.5 + 2) / 4)
    loss.backward()  # type: ignore[no-untyped-call]
    first: Any = critics.nets[0]
    # Mean of 2 (q - target) (s, a): errors -2 and -2.
    assert first[0].weight.grad.flatten().tolist() == pytest.approx([-2, -2 * 0.5 - 2 * -1])


def test_the_actor_s_loss_and_gradient_by_hand() -> None:
    """-q1 = -(s + 2 tanh(w s + b)): its slope in w is -2 s (1 - tanh^2)."""
    actor, critics = tiny()
    observations = column(2, -1)
    loss = ddpg.actor_loss(actor, critics, observations)
    one, two = math.tanh(1), math.tanh(-0.5)
    assert loss.item() == pytest.approx(-(2 + 2 * one - 1 + 2 * two) / 2)
    optimizer = torch.optim.SGD(actor.parameters(), lr=0.1)
    ddpg.descend(loss, actor, optimizer)
    slope = -(2 * 2 * (1 - one**2) + 2 * -1 * (1 - two**2)) / 2
    assert actor.net[0].weight.item() == pytest.approx(0.5 - 0.1 * slope)


def test_the_actor_s_loss_gives_the_critics_no_gradient() -> None:
    """Nor what was left of it at their next step: a learner's critics move as if alone."""
    actor, critics = tiny()
    ddpg.descend(
        ddpg.actor_loss(actor, critics, column(2, -1)), actor,
        torch.optim.SGD(actor.parameters(), lr=0.1),
    )  # fmt: skip
    assert all(p.grad is None for p in critics.parameters())

    weights = []
    for delay in (1, 10**6):  # the actor learns after each step, or never
        trainer = ddpg.Trainer(PENDULUM, small(actor_delay=delay, tau=0.0), {})
        learner = trainer.learners["agent"]
        for _ in range(5):
            trainer.step()  # warm-up alone, so that both have the same replay
        before = [p.clone() for p in learner.actor.parameters()]
        for _ in range(3):
            learner.learn(torch.Generator().manual_seed(0))
        moved = [
            bool((a != b).any()) for a, b in zip(before, learner.actor.parameters(), strict=True)
        ]
        assert any(moved) is (delay == 1)
        weights.append(torch.cat([p.detach().flatten() for p in learner.critics.parameters()]))
    assert torch.equal(*weights)


def test_target_networks_follow_slowly_and_with_the_actor() -> None:
    trainer = ddpg.Trainer(PENDULUM, small(actor_delay=2, tau=0.25), {})
    learner = trainer.learners["agent"]
    for _ in range(5):
        trainer.step()
    generator = torch.Generator().manual_seed(0)
    pairs = [
        (learner.target_critics, learner.critics),
        (learner.target_actor, learner.actor),
    ]

    def flat(network: Any) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in network.parameters()])

    start = [flat(slow) for slow, _ in pairs]
    learner.learn(generator)
    assert all(torch.equal(flat(slow), old) for (slow, _), old in zip(pairs, start, strict=True))
    learner.learn(generator)
    for (slow, fast), old in zip(pairs, start, strict=True):
        torch.testing.assert_close(flat(slow), 0.75 * old + 0.25 * flat(fast))
        assert not torch.equal(flat(slow), old)
        assert not any(p.requires_grad for p in slow.parameters())


# Exploration -----------------------------------------------------------------------------------


def test_noise_grows_from_one_environment_to_the_next() -> None:
    """Around what the actor would do, clipped, and scaled to the box, here -2 to 2."""
    config = small(num_envs=5, warmup=0, noise_min=0.0, noise_max=0.4, capacity=5000, horizon=1)
    trainer = ddpg.Trainer(PENDULUM, config, {})
    learner = trainer.learners["agent"]
    group = learner.group
    seen = torch.stack(
        [(learner.act(trainer.generator), group.actions.clone())[1] for _ in range(4000)]
    )
    with torch.no_grad():
        wanted = 2 * learner.actor(group.observations)
    assert float(wanted.abs().max()) < 0.2
    seen = seen.squeeze(-1).squeeze(-1)
    deviation = seen.std(0)
    torch.testing.assert_close(deviation, torch.tensor([0, 0.2, 0.4, 0.6, 0.8]), atol=0.03, rtol=0)
    torch.testing.assert_close(seen.mean(0), wanted.flatten(), atol=0.05, rtol=0)
    bold = ddpg.Trainer(PENDULUM, dataclasses.replace(config, noise_min=9.0, noise_max=9.0), {})
    bold.learners["agent"].act(bold.generator)
    assert bool((bold.learners["agent"].group.actions.abs() == 2).any())


def test_warmup_is_uniform_and_learns_nothing() -> None:
    trainer = ddpg.Trainer(PENDULUM, small(num_envs=1000, warmup=4, capacity=8000, n_step=2), {})
    learner = trainer.learners["agent"]
    seen = []
    for _ in range(4):
        trainer.step()
        seen.append(learner.group.actions.flatten().clone())
    actions = torch.cat(seen).numpy()
    assert np.histogram(actions, 4, (-2, 2))[0] == pytest.approx(1000, abs=5 * 1000**0.5)
    assert learner.critic_updates == 0
    trainer.step()
    assert learner.critic_updates == 1
    kept = learner.replay.rows.actions[: int(learner.replay.ring.size)]
    assert len(kept) == 4000 and float(kept.abs().max()) <= 1
    torch.testing.assert_close(kept[:1000, 0] * 2, torch.tensor(actions[:1000]))


# Runs ------------------------------------------------------------------------------------------


class Stop(Exception):
    """A run cut short."""


@pytest.mark.parametrize(("env_id", "params"), [(PENDULUM, {}), (TAG, BOX)])
def test_resume_is_exact(env_id: str, params: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    whole = train(env_id, small(), params)
    assert len(whole.curve) == 10

    def stop(update: ddpg.Update) -> None:
        if update.index == 5:
            raise Stop

    saving = small(checkpoint=str(path), checkpoint_interval=3)
    with pytest.raises(Stop):
        train(env_id, saving, params, on_update=stop)
    assert len(checkpoint.load(path)["curve"]) == 3
    torch.manual_seed(99)  # the global generator plays no part
    resumed = resume(path)
    assert resumed.curve == whole.curve
    loaded = DeterministicPolicy.load(path)
    for group, network in whole.policy.networks.items():
        theirs = network.state_dict()
        for ours in (resumed.policy.networks[group], loaded.networks[group]):
            assert all(torch.equal(value, theirs[key]) for key, value in ours.state_dict().items())
    assert train(env_id, small(seed=1), params).curve != whole.curve


def test_returns_are_those_of_whole_episodes() -> None:
    update = train(PENDULUM, small(total_steps=3200, horizon=200, num_envs=8, updates=1)).curve[0]
    assert update.episodes == 8
    assert -2000 < update.returns["agent"] < -700
    assert set(update.losses) == {"agent/critic_loss", "agent/value", "agent/actor_loss"}
    first = train(PENDULUM, small(total_steps=80, warmup=50)).curve[0]
    assert (first.episodes, first.returns, first.losses) == (0, {}, {})


def test_all_groups_learn_at_once_and_act_anywhere() -> None:
    policy = train(TAG, small(), BOX).policy
    assert set(policy.networks) == {"adversary", "agent"}
    observations = {
        "agent_0": np.zeros(14, np.float32),
        "adversary_1": np.zeros((3, 16), np.float32),
    }
    actions = policy.act(observations)
    assert (actions["agent_0"].shape, actions["adversary_1"].shape) == ((5,), (3, 5))
    assert all(bool(((a >= 0) & (a <= 1)).all()) for a in actions.values())
    again = policy.act(observations, deterministic=True)
    assert all(bool((actions[a] == again[a]).all()) for a in actions)
    played = evaluate(policy, episodes=20)
    assert played == evaluate(policy, episodes=20, deterministic=True)
    assert played.episodes == 20


def test_other_actions_are_refused_in_one_line() -> None:
    with pytest.raises(TypeError) as caught:
        train(SPREAD, small())
    message = str(caught.value)
    assert "expected continuous actions" in message and "\n" not in message


def test_a_replay_that_cannot_hold_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^capacity=7: expected at least num_envs \* agents = 8$"):
        train(PENDULUM, small(capacity=7))


def test_a_checkpoint_of_ppo_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ppo.pt"
    config = ppo.PPOConfig(
        total_steps=160, num_envs=16, horizon=10, minibatches=1, hidden=(8,), device="cpu",
        progress=False, checkpoint=str(path),
    )  # fmt: skip
    ppo.train(PENDULUM, config)
    for read in (resume, DeterministicPolicy.load):
        with pytest.raises(CheckpointError, match=r"another algorithm than DDPG( or PQL)?$"):
            read(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"total_steps": 0}, {"num_envs": 2.5}, {"horizon": "8"}, {"updates": True},
        {"warmup": -1}, {"batch_size": 0}, {"capacity": 0}, {"n_step": 0}, {"critics": 0},
        {"actor_delay": 0}, {"actor_lr": 0.0}, {"critic_lr": math.nan}, {"gamma": 1.01},
        {"tau": -0.1}, {"target_noise": -1}, {"target_noise_clip": math.inf}, {"noise_min": -1},
        {"noise_max": "1"}, {"hidden": (64, 0)}, {"hidden": 64}, {"seed": -1}, {"threads": 0},
        {"checkpoint_interval": 0}, {"progress": "no"},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_a_bad_value_is_named(changes: dict[str, Any]) -> None:
    ((name, value),) = changes.items()
    with pytest.raises(ValueError) as caught:
        small(**changes)
    message = str(caught.value)
    assert message.startswith(f"{name}={value!r}: expected ")
    assert "\n" not in message


def held_up(max_cycles: int, **changes: Any) -> float:
    """The return of episodes of 200 steps after training in episodes of ``max_cycles``. Random play
    makes -1200; to swing the pendulum up and hold it costs 140 on average.
    """
    config = DDPGConfig(total_steps=30_000, device="cpu", progress=False, **changes)
    policy = train(PENDULUM, config, {"max_cycles": max_cycles}).policy
    return evaluate(policy, episodes=500, env_params={"max_cycles": 200}).mean.mean


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True])
def test_it_learns_to_swing_up(plain: bool) -> None:
    assert held_up(200, **(dict(PLAIN) if plain else {})) > -250


@pytest.mark.slow
def test_it_does_not_learn_without_its_target_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the threshold above says something."""
    monkeypatch.setattr(ddpg, "follow", lambda target, source, tau: None)
    assert held_up(200) < -250


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["", "a time limit ends the game", "the next episode follows"])
def test_time_limits_teach_nothing_wrong(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 25 steps hardly anyone gets up: what follows the time limit is most of the value."""
    record = ddpg.Learner.record

    def forget(learner: ddpg.Learner, done: torch.Tensor) -> None:
        learner.group.terminations.copy_(learner.group.truncations)
        record(learner, done)

    if broken == "a time limit ends the game":
        monkeypatch.setattr(ddpg.Learner, "record", forget)
    elif broken:
        monkeypatch.setattr(ddpg, "next_observations", lambda group, done: group.observations)
    assert (held_up(25) > -190) is not bool(broken)
