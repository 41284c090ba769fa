"""The bundled PQL: what its parts know of each other, ratios, exact resume, and that it learns."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gpu_zoo.baselines import checkpoint, loop, parcel, pql, pql_parts
from gpu_zoo.baselines.checkpoint import CheckpointError
from gpu_zoo.baselines.ddpg import DDPGConfig
from gpu_zoo.baselines.ddpg import train as train_ddpg
from gpu_zoo.baselines.deterministic import Actor, Critics, DeterministicPolicy
from gpu_zoo.baselines.policies import load_policy
from gpu_zoo.baselines.pql import PQLConfig, evaluate, resume, train
from gpu_zoo.baselines.running import RunningMoments

PENDULUM, TAG, SPREAD = "classic/pendulum_v1", "mpe/simple_tag_v3", "mpe/simple_spread_v3"
BOX = {"continuous_actions": True}


def small(**changes: Any) -> PQLConfig:
    settings: dict[str, Any] = {
        "total_steps": 800, "num_envs": 8, "horizon": 10, "warmup": 5, "updates": 4,
        "batch_size": 16, "capacity": 500, "hidden": (16,), "device": "cpu", "progress": False,
        "concurrent": False,
    }  # fmt: skip
    return PQLConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def one_thread(left: Callable[[], set[threading.Thread]]) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    assert not left()


def flat(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


# Losses and observations -----------------------------------------------------------------------


def test_the_actor_s_loss_and_gradient_by_hand() -> None:
    """a = tanh(s w), q1 = s + 2 a, q2 = 3 s - a + 1; the least counts, row by row."""
    generator = torch.Generator().manual_seed(0)
    actor = Actor(1, spaces.Box(-1, 1, (1,)), (), generator)
    critics = Critics(2, 1, 1, (), generator)
    nets: Any = critics.nets
    with torch.no_grad():
        actor.net[0].weight.fill_(0.5)
        nets[0][0].weight.copy_(torch.tensor([[1.0, 2.0]]))
        nets[1][0].weight.copy_(torch.tensor([[3.0, -1.0]]))
        nets[1][0].bias.fill_(1.0)
    one, two = math.tanh(1), math.tanh(-1)
    # s = 2: 2 + 2 one < 7 - one; s = -2: -5 - two < -2 + 2 two
    loss = pql_parts.actor_loss(actor, critics, torch.tensor([[2.0], [-2.0]]))
    assert loss.item() == pytest.approx(-(2 + 2 * one - 5 - two) / 2, rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    slope = -(2 * 2 * (1 - one**2) - -2 * (1 - two**2)) / 2
    assert actor.net[0].weight.grad.item() == pytest.approx(slope, rel=1e-5)


def test_actor_and_critics_cut_observations_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    actor = Actor(2, spaces.Box(-1, 1, (1,)), (8,), generator, normalize=True)
    critics = Critics(2, 2, 1, (8,), generator, actor.moments)
    assert actor.moments is not None
    seen = 3 + 2 * torch.randn(1000, 2, generator=generator)
    actor.moments.merge(seen, torch.ones(1000, dtype=torch.bool))
    mean, std = seen.mean(0), seen.std(0, correction=0)
    action = torch.tensor([[0.3]])
    plain = actor.net((torch.tensor([[5.0, 4.0]]) - mean) / std).tanh()
    torch.testing.assert_close(actor(torch.tensor([[5.0, 4.0]])), plain)
    far, limit = torch.tensor([[1e6, -1e6]]), torch.tensor([[10.0, -10.0]])
    torch.testing.assert_close(actor(far), actor.net(limit).tanh())
    inputs = torch.cat([limit, action], 1)
    wanted = torch.stack([net(inputs).squeeze(-1) for net in critics.nets])
    torch.testing.assert_close(critics(far, action), wanted)
    torch.testing.assert_close(critics.first(far, action), wanted[0])


# What the parts know of each other ---------------------------------------------------------------


def explored(trainer: pql.Trainer, steps: int) -> list[dict[str, torch.Tensor]]:
    """Have the explorer make some steps; what it told the value learner of ``agent``."""
    told = []
    for _ in range(steps):
        trainer._explore()
        told.append(trainer.explorer.to_values["agent"][-1].open(torch.device("cpu")))
    return told


def test_learners_get_what_happened_each_its_own() -> None:
    trainer = pql.Trainer(PENDULUM, small(n_step=1, reward_scale=0.5), {})
    group = trainer.env.group["agent"]
    observations, actions, rewards, following = [], [], [], []
    for _ in range(7):
        observations.append(group.observations.flatten(0, 1).clone())
        trainer._explore()
        actions.append(group.actions.flatten(0, 1) / 2)  # the box is from -2 to 2
        rewards.append(group.rewards.flatten() * 0.5)
        following.append(group.observations.flatten(0, 1).clone())
    values, policy = trainer.values["agent"], trainer.policies["agent"]
    assert int(values.replay.ring.size) == int(policy.seen.size) == 0
    trainer._receive()
    assert int(values.replay.ring.size) == int(policy.seen.size) == 7 * 8
    rows = values.replay.rows
    for kept, wanted in (
        (rows.observations, observations), (rows.actions, actions), (rows.returns, rewards),
        (rows.next_observations, following), (policy.seen.columns["observations"], observations),
    ):  # fmt: skip
        torch.testing.assert_close(kept[: 7 * 8], torch.cat(wanted))
    assert set(policy.seen.columns) == {"observations"}


def test_all_three_standardise_with_what_the_explorer_saw() -> None:
    trainer = pql.Trainer(TAG, small(), BOX)
    told = explored(trainer, 12)
    trainer._receive()
    seen = torch.cat([step["observations"].flatten(0, 1) for step in told]).double()
    everybody: list[Any] = [
        trainer.explorer.actors["agent"].moments,
        trainer.values["agent"].actor.moments,
        trainer.values["agent"].critics.moments,
        trainer.values["agent"].target_critics.moments,
        trainer.policies["agent"].actor.moments,
        trainer.policies["agent"].critics.moments,
    ]
    for moments in everybody:
        assert isinstance(moments, RunningMoments)
        torch.testing.assert_close(moments.mean, seen.mean(0))
        torch.testing.assert_close(moments.variance(), seen.var(0, correction=0))
    # Each of the three has its own: the explorer's move on before the learners hear of it.
    trainer._explore()
    assert len({id(moments) for moments in everybody}) == 3
    assert not torch.equal(everybody[0].mean, everybody[1].mean)


def test_copies_lag_behind_until_they_are_renewed() -> None:
    trainer = pql.Trainer(PENDULUM, small(), {})
    explored(trainer, 6)
    explorer, values = trainer.explorer.actors["agent"], trainer.values["agent"]
    policy = trainer.policies["agent"]
    first = flat(policy.actor).clone()
    assert torch.equal(flat(explorer), first)
    trainer._learn_policies()
    now = flat(policy.actor).clone()
    assert not torch.equal(now, first)
    assert torch.equal(flat(explorer), first)  # until its turn
    trainer._explore()
    assert torch.equal(flat(explorer), now)
    trainer._learn_values()
    assert torch.equal(flat(values.actor), now)
    trainer._learn_values()
    assert not torch.equal(flat(policy.critics), flat(values.critics))
    critics = flat(values.critics).clone()
    trainer._learn_policies()
    assert torch.equal(flat(policy.critics), critics)
    # What a copy is made of does not change with its owner's next step.
    trainer._learn_values()
    assert torch.equal(flat(policy.critics), critics)
    assert not torch.equal(flat(values.critics), critics)
    copies: Any = (explorer, values.actor, values.target_critics, policy.critics)
    assert not any(p.requires_grad for network in copies for p in network.parameters())


def test_target_critics_follow_at_each_update() -> None:
    trainer = pql.Trainer(PENDULUM, small(tau=0.25), {})
    explored(trainer, 6)
    values = trainer.values["agent"]
    for _ in range(3):
        before = flat(values.target_critics).clone()
        trainer._learn_values()
        torch.testing.assert_close(
            flat(values.target_critics), 0.75 * before + 0.25 * flat(values.critics)
        )


def test_targets_are_of_the_lagged_actor_and_the_target_critics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No target actor, noise of the standard deviation asked for."""
    trainer = pql.Trainer(PENDULUM, small(target_noise=0.7, batch_size=4000), {})
    explored(trainer, 6)
    values, given = trainer.values["agent"], []
    targets = pql_parts.ddpg.targets

    def note(*args: Any) -> Any:
        given.append(args)
        return targets(*args)

    monkeypatch.setattr(pql_parts.ddpg, "targets", note)
    trainer._learn_values()
    ((actor, critics, _, noise, clip),) = given
    assert actor is values.actor and critics is values.target_critics and clip == 0.2
    assert float(noise.std()) == pytest.approx(0.7, abs=0.05)


def test_gradients_are_scaled_down() -> None:
    """As Adam's first moment shows, which is a tenth of the first gradient."""
    trainer = pql.Trainer(PENDULUM, small(max_grad_norm=0.001), {})
    explored(trainer, 6)
    trainer._learn_values()
    trainer._learn_policies()
    for learner in (trainer.values["agent"], trainer.policies["agent"]):
        (state,) = learner.optimizer.state.values()  # type: ignore[attr-defined]
        assert float(state["exp_avg"].norm()) == pytest.approx(0.0001, rel=1e-3)


def test_a_parcel_is_opened_by_several_and_older_ones_are_forgotten() -> None:
    weights, sent = torch.zeros(3), parcel.Sent()
    copies = [torch.nn.Linear(2, 1) for _ in range(2)]
    lagged = [parcel.Lagged(copy, sent, torch.device("cpu")) for copy in copies]
    for value in (1.0, 2.0):
        sent.send(weights.fill_(value))
    for one in lagged:
        one.renew()
    weights.fill_(3.0)  # what was sent does not change
    lagged[0].renew()
    for copy in copies:
        assert copy.weight.tolist() == [[2.0, 2.0]] and copy.bias.tolist() == [2.0]


# Exploration -----------------------------------------------------------------------------------


def test_noise_grows_from_one_environment_to_the_next() -> None:
    config = small(num_envs=5, warmup=0, noise_min=0.0, noise_max=0.4, horizon=1)
    trainer = pql.Trainer(PENDULUM, config, {})
    explorer, group = trainer.explorer, trainer.env.group["agent"]
    actor = explorer.actors["agent"]
    with torch.no_grad():
        wanted = 2 * actor(group.observations)
        seen = torch.stack(
            [(explorer._act(actor, group), group.actions.clone())[1] for _ in range(4000)]
        )
    deviation = seen.std(0).flatten()
    torch.testing.assert_close(deviation, torch.tensor([0, 0.2, 0.4, 0.6, 0.8]), atol=0.03, rtol=0)
    torch.testing.assert_close(seen.mean(0), wanted, atol=0.05, rtol=0)


def test_warmup_is_uniform() -> None:
    trainer = pql.Trainer(PENDULUM, small(num_envs=1000, warmup=4, capacity=8000), {})
    actions = torch.cat([step["actions"].flatten() for step in explored(trainer, 4)])
    assert np.histogram(actions, 4, (-1, 1))[0] == pytest.approx(1000, abs=5 * 1000**0.5)
    trainer._explore()
    later = trainer.env.group["agent"].actions.flatten()
    assert np.histogram(later, 4, (-2, 2))[0] != pytest.approx(250, abs=5 * 250**0.5)


# Ratios ----------------------------------------------------------------------------------------


def gradient_steps(optimizer: Any) -> int:
    return int(next(iter(optimizer.state.values()))["step"])


@pytest.mark.parametrize("slow", [None, "Explorer", "ValueLearner", "PolicyLearner"])
def test_ratios_are_kept_whoever_is_slow(slow: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if slow:
        part: Any = getattr(pql_parts, slow)
        turn = part.turn

        def take_long(self: Any) -> None:
            time.sleep(0.004)
            turn(self)

        monkeypatch.setattr(part, "turn", take_long)
    config = small(total_steps=480, warmup=7, updates=8, concurrent=True)
    trainer = pql.Trainer(PENDULUM, config, {})
    loop.run(trainer)
    values, policy = trainer.values["agent"], trainer.policies["agent"]
    assert trainer.explorer.steps == 60
    assert gradient_steps(values.optimizer) == 8 * (60 - 7)
    assert gradient_steps(policy.optimizer) == 4 * (60 - 7)
    assert values.replay.steps == 60
    assert int(policy.seen.size) == 480  # nothing was lost on the way


def test_the_three_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits once, in the middle of a turn, until all others are in the middle of one."""
    gate, waited = threading.Barrier(3), set[str]()
    for name in ("Explorer", "ValueLearner", "PolicyLearner"):
        part: Any = getattr(pql_parts, name)

        def take(self: Any, name: str = name, turn: Any = part.turn) -> None:
            learning = threading.current_thread() is not threading.main_thread()
            if learning and name not in waited:
                waited.add(name)
                gate.wait(60)
            turn(self)

        monkeypatch.setattr(part, "turn", take)
    train(PENDULUM, small(concurrent=True))
    assert len(waited) == 3


def test_a_part_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(pql_parts.PolicyLearner, "turn", fail)
    for concurrent in (True, False):
        with pytest.raises(RuntimeError, match=r"^out of memory$"):
            train(PENDULUM, small(concurrent=concurrent))


# Runs ------------------------------------------------------------------------------------------


class Stop(Exception):
    """A run cut short."""


def stop(update: pql.Update) -> None:
    if update.index == 5:
        raise Stop


@pytest.mark.parametrize(
    ("env_id", "params", "changes"),
    [
        (PENDULUM, {}, {}),
        pytest.param(
            PENDULUM,
            {},
            {"distributional": True, "normalize_observations": False},
            marks=pytest.mark.slow,
        ),
        # No iteration ends where a turn of the actor does.
        pytest.param(TAG, BOX, {"actor_delay": 3}, marks=pytest.mark.slow),
        # The checkpoint is from before learning begins.
        pytest.param(PENDULUM, {}, {"warmup": 37}, marks=pytest.mark.slow),
    ],
)
def test_resume_is_exact(
    env_id: str, params: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "run.pt"
    whole = train(env_id, small(**changes), params)
    assert len(whole.curve) == 10
    saving = small(checkpoint=str(path), checkpoint_interval=3, **changes)
    with pytest.raises(Stop):
        train(env_id, saving, params, on_update=stop)
    assert len(checkpoint.load(path)["curve"]) == 3
    torch.manual_seed(99)  # the global generator plays no part
    resumed = resume(path)
    assert resumed.curve == whole.curve
    loaded = load_policy(path)
    assert isinstance(loaded, DeterministicPolicy)
    for group, network in whole.policy.networks.items():
        theirs = network.state_dict()
        for ours in (resumed.policy.networks[group], loaded.networks[group]):
            assert all(torch.equal(value, theirs[key]) for key, value in ours.state_dict().items())
    assert train(env_id, small(seed=1, **changes), params).curve != whole.curve


def test_a_concurrent_run_goes_on_with_all_it_had(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    saving = small(checkpoint=str(path), checkpoint_interval=3, concurrent=True)
    with pytest.raises(Stop):
        train(PENDULUM, saving, on_update=stop)
    state = checkpoint.load(path)
    learner = state["learners"]["agent"]
    assert state["turns"] == {"explorer": 25, "values": 100, "policy": 50}
    assert len(learner["seen"]["rows"]["observations"]) == 240
    assert len(learner["replay"]["rows"]["returns"]) == 240 - 2 * 8  # two steps are still summed
    curve = resume(path).curve
    assert [update.index for update in curve] == list(range(1, 11))
    assert checkpoint.load(path)["turns"] == {"explorer": 95, "values": 380, "policy": 190}


def test_all_copies_are_those_of_the_checkpoint_whoever_goes_first() -> None:
    trainer = pql.Trainer(PENDULUM, small(), {})
    trainer.iterate()
    fresh = pql.Trainer(PENDULUM, small(seed=1), {})
    fresh.load_state_dict(trainer.state_dict())
    values, policy = fresh.values["agent"], fresh.policies["agent"]
    for lagged in (*fresh.explorer.lagged, values.lagged, policy.lagged):
        lagged.renew()
    actor, critics = flat(trainer.policies["agent"].actor), flat(trainer.values["agent"].critics)
    for copy in (fresh.explorer.actors["agent"], values.actor, policy.actor):
        assert torch.equal(flat(copy), actor)
    for copied in (values.critics, policy.critics):
        assert torch.equal(flat(copied), critics)


def test_returns_are_those_of_whole_episodes() -> None:
    config = small(total_steps=3200, horizon=200, updates=1, reward_scale=0.01)
    update = train(PENDULUM, config).curve[0]
    assert update.episodes == 8
    assert -2000 < update.returns["agent"] < -700  # not scaled
    assert set(update.losses) == {"agent/critic_loss", "agent/value", "agent/actor_loss"}
    first = train(PENDULUM, small(total_steps=80, warmup=50)).curve[0]
    assert (first.episodes, first.returns, first.losses) == (0, {}, {})


@pytest.mark.parametrize("distributional", [False, True])
def test_all_groups_learn_at_once_and_act_anywhere(distributional: bool) -> None:
    config = small(concurrent=True, distributional=distributional)
    result = train(TAG, config, BOX)
    policy = result.policy
    assert set(policy.networks) == {"adversary", "agent"}
    assert {name.partition("/")[0] for name in result.curve[-1].losses} == {"adversary", "agent"}
    observations = {"agent_0": np.zeros(14, np.float32), "adversary_1": np.zeros((3, 16))}
    actions = policy.act(observations)
    assert (actions["agent_0"].shape, actions["adversary_1"].shape) == ((5,), (3, 5))
    assert all(bool(((a >= 0) & (a <= 1)).all()) for a in actions.values())
    assert evaluate(policy, episodes=20).episodes == 20


def test_other_actions_are_refused_in_one_line() -> None:
    with pytest.raises(TypeError) as caught:
        train(SPREAD, small())
    message = str(caught.value)
    assert "expected continuous actions" in message and "\n" not in message


def test_a_replay_that_cannot_hold_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^capacity=7: expected at least num_envs \* agents = 8$"):
        train(PENDULUM, small(capacity=7))


def test_devices_that_are_none_are_refused() -> None:
    for name in ("device", "value_device", "policy_device"):
        with pytest.raises(ValueError, match=f"^{name}='gpu': expected 'cpu', 'cuda'"):
            train(PENDULUM, small(**{name: "gpu"}))


def test_a_checkpoint_of_ddpg_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ddpg.pt"
    config = DDPGConfig(
        total_steps=80, num_envs=8, horizon=10, warmup=5, updates=1, batch_size=16, capacity=500,
        hidden=(8,), device="cpu", progress=False, checkpoint=str(path),
    )  # fmt: skip
    train_ddpg(PENDULUM, config)
    with pytest.raises(CheckpointError, match="another algorithm than PQL"):
        resume(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"total_steps": 0}, {"num_envs": 2.5}, {"horizon": "8"}, {"updates": True},
        {"warmup": -1}, {"batch_size": 0}, {"capacity": 0}, {"n_step": 0}, {"actor_delay": 0},
        {"actor_lr": 0.0}, {"critic_lr": math.nan}, {"gamma": 1.01}, {"tau": -0.1},
        {"target_noise": -1}, {"target_noise_clip": math.inf}, {"noise_min": -1},
        {"noise_max": "1"}, {"hidden": (64, 0)}, {"seed": -1}, {"threads": 0},
        {"checkpoint_interval": 0}, {"progress": "no"}, {"concurrent": 1}, {"reward_scale": 0},
        {"normalize_observations": None}, {"max_grad_norm": 0},
        {"distributional": "yes"}, {"atoms": 1}, {"v_min": math.inf}, {"v_max": -10.0},
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


# Learning --------------------------------------------------------------------------------------


def held_up(**changes: Any) -> float:
    """The mean return after some 750 updates of the critics. Random play makes -1200; to swing the
    pendulum up and hold it costs 130 on average.
    """
    config = PQLConfig(
        total_steps=18_000, num_envs=128, horizon=10, hidden=(64, 64), gamma=0.95, reward_scale=0.1,
        actor_lr=2e-3, critic_lr=2e-3, device="cpu", progress=False, **changes,
    )  # fmt: skip
    return evaluate(train(PENDULUM, config).policy, episodes=500).mean.mean


@pytest.mark.slow
@pytest.mark.parametrize("concurrent", [True, False])
@pytest.mark.parametrize(
    "changes", [{}, {"distributional": True, "v_min": -32.0, "v_max": 0.0}], ids=["mean", "c51"]
)
def test_it_learns_to_swing_up(concurrent: bool, changes: dict[str, Any]) -> None:
    assert held_up(concurrent=concurrent, **changes) > -250


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken", ["policies are not renewed", "critics are not", "targets stand still"]
)
def test_it_does_not_learn_from_parts_that_do_not_talk(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the threshold above says something."""
    changes: dict[str, Any] = {}
    if broken == "targets stand still":
        changes["tau"] = 0.0
    else:
        kind = Actor if broken.startswith("policies") else Critics
        renew = parcel.Lagged.renew

        def skip(self: Any) -> None:
            if not isinstance(self._network, kind):
                renew(self)

        monkeypatch.setattr(parcel.Lagged, "renew", skip)
    assert held_up(concurrent=False, **changes) < -250
