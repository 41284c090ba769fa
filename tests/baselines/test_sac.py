"""The bundled SAC: densities by integration, losses by hand, exact resume, and that it learns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gpu_zoo.baselines import checkpoint, sac
from gpu_zoo.baselines.checkpoint import CheckpointError
from gpu_zoo.baselines.deterministic import Critics, DeterministicPolicy
from gpu_zoo.baselines.policies import load_policy
from gpu_zoo.baselines.replay import Transitions
from gpu_zoo.baselines.sac import SACConfig, SquashedPolicy, evaluate, resume, train
from gpu_zoo.baselines.squashed import SquashedActor, log_slope

PENDULUM, TAG, SPREAD = "classic/pendulum_v1", "mpe/simple_tag_v3", "mpe/simple_spread_v3"
BOX = {"continuous_actions": True}


def small(**changes: Any) -> SACConfig:
    settings: dict[str, Any] = {
        "total_steps": 800, "num_envs": 8, "horizon": 10, "warmup": 5, "updates": 1,
        "batch_size": 16, "capacity": 500, "hidden": (16,), "device": "cpu", "progress": False,
    }  # fmt: skip
    return SACConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def actor_of(mean: float, log_std: float, size: int = 1) -> SquashedActor:
    """One whose distribution is the same everywhere."""
    box = spaces.Box(-1, 1, (size,))
    actor = SquashedActor(1, box, (), torch.Generator().manual_seed(0))
    with torch.no_grad():
        actor.net[0].weight.zero_()
        actor.net[0].bias.copy_(torch.tensor([mean] * size + [log_std] * size))
    return actor


# Actions and their densities ---------------------------------------------------------------------


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5)])
def test_densities_are_those_of_what_is_drawn(mean: float, log_std: float) -> None:
    """A histogram of actions against the densities that came with them, and these add up to 1."""
    actor = actor_of(mean, log_std)
    count, bins = 400_000, 40
    with torch.no_grad():
        actions, log_probs = actor.act(torch.zeros(count, 1), torch.Generator().manual_seed(1))
    assert actions.shape == (count, 1) and log_probs.shape == (count,)
    edges = np.linspace(-1, 1, bins + 1)
    x = actions.flatten().double().numpy()
    share = np.histogram(x, edges)[0] / count
    # The mean over samples in a bin of 1 / density is the bin's width over its probability.
    inverse = np.histogram(x, edges, weights=np.exp(-log_probs.double().numpy()))[0] / count
    filled = share > 0.002
    assert filled.sum() > 10
    np.testing.assert_allclose(inverse[filled], 2 / bins, rtol=0.05)


def test_the_density_adds_up_to_one_over_two_components() -> None:
    """Importance sampling from the uniform distribution, of a density by the formula alone."""
    actor = actor_of(0.3, -0.5, 2)
    axis = torch.linspace(-1, 1, 2002, dtype=torch.float64)[1:-1]
    number = axis.atanh()
    normal = -0.5 * (((number - 0.3) / math.exp(-0.5)) ** 2 + math.log(2 * math.pi)) + 0.5
    one = (normal - log_slope(number)).exp()
    assert float(torch.trapezoid(one, axis)) == pytest.approx(1, abs=1e-3)
    actions, log_probs = actor.act(torch.zeros(5, 1), torch.Generator().manual_seed(0))
    at = actions.detach().double()
    number = at.atanh()
    normal = -0.5 * (((number - 0.3) / math.exp(-0.5)) ** 2 + math.log(2 * math.pi)) + 0.5
    wanted = (normal - (1 - at**2).log()).sum(1)
    torch.testing.assert_close(log_probs.detach().double(), wanted, atol=1e-4, rtol=1e-4)


def test_the_slope_of_tanh_by_finite_differences_and_far_out() -> None:
    x = torch.linspace(-4, 4, 81, dtype=torch.float64)
    slope = ((x + 1e-6).tanh() - (x - 1e-6).tanh()) / 2e-6
    torch.testing.assert_close(log_slope(x), slope.log(), atol=1e-6, rtol=1e-6)
    # 4 e^-2x far out, where 1 - tanh^2 is 0 in float32
    far = torch.tensor([50.0, -50.0])
    torch.testing.assert_close(log_slope(far), torch.full((2,), math.log(4) - 100))


def test_deviations_have_limits_and_the_best_action_is_the_middle() -> None:
    for log_std, wanted in ((5.0, 2.0), (-20.0, -10.0), (1.0, 1.0)):
        actor = actor_of(0.4, log_std)
        mean, found = actor.mean_and_log_std(torch.zeros(1, 1))
        assert (mean.item(), found.item()) == pytest.approx((0.4, wanted))
        assert actor.best(torch.zeros(1, 1)).item() == pytest.approx(math.tanh(0.4))


# Targets and losses ------------------------------------------------------------------------------


def critics_by_hand() -> Critics:
    """q1 = s + 2 a, q2 = 3 s - a."""
    critics = Critics(2, 1, 1, (), torch.Generator().manual_seed(0))
    nets: Any = critics.nets
    with torch.no_grad():
        nets[0][0].weight.copy_(torch.tensor([[1.0, 2.0]]))
        nets[1][0].weight.copy_(torch.tensor([[3.0, -1.0]]))
    return critics


def test_targets_count_value_and_entropy_of_what_follows() -> None:
    actor, critics = actor_of(0.2, -0.3), critics_by_hand()
    following = torch.tensor([[1.0], [-1.0], [2.0]])
    batch = Transitions(
        following, following, torch.tensor([1.0, 2.0, 3.0]), following,
        torch.tensor([0.9, 0.5, 0.0]),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    actions, log_probs = actor.act(following, torch.Generator().manual_seed(3))
    found = sac.targets(actor, critics, batch, torch.tensor(0.25), generator)
    wanted = []
    for i, (r, d) in enumerate(((1.0, 0.9), (2.0, 0.5), (3.0, 0.0))):
        s, a, density = following[i].item(), actions[i].item(), log_probs[i].item()
        wanted.append(r + d * (min(s + 2 * a, 3 * s - a) - 0.25 * density))
    assert found.tolist() == pytest.approx(wanted, rel=1e-5)
    assert not found.requires_grad


def test_the_actor_s_gradient_by_finite_differences() -> None:
    """Of value and entropy, through the drawn action: the same noise each time."""
    actor, critics = actor_of(0.2, -0.3).double(), critics_by_hand().double()
    seen = torch.linspace(-1, 1, 7, dtype=torch.float64)[:, None]
    temperature = torch.tensor(0.25, dtype=torch.float64)

    def loss() -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        return sac.actor_loss(actor, critics, seen, temperature, generator)[0]

    loss().backward()  # type: ignore[no-untyped-call]
    bias: Any = actor.net[0].bias
    for i in range(2):
        values = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                bias[i] += step
                values.append(loss().item())
                bias[i] -= step
        slope = (values[0] - values[1]) / 2e-5
        assert bias.grad[i].item() == pytest.approx(slope, rel=1e-5)
    with torch.no_grad():
        actions, log_probs = actor.act(seen, torch.Generator().manual_seed(3))
    terms = [
        0.25 * p - min(s + 2 * a, 3 * s - a)
        for s, a, p in zip(seen[:, 0].tolist(), actions[:, 0].tolist(), log_probs, strict=True)
    ]
    assert loss().item() == pytest.approx(float(sum(terms)) / 7, rel=1e-6)


@pytest.mark.parametrize(("wanted", "rises"), [(5.0, True), (-20.0, False)])
def test_the_temperature_rises_when_entropy_is_missing(wanted: float, rises: bool) -> None:
    trainer = sac.Trainer(PENDULUM, small(target_entropy=wanted), {})
    learner: Any = trainer.learners["agent"]
    for _ in range(6):
        trainer.step()
    before = learner.log_temperature.item()
    learner.learn(trainer.generator)
    # Adam's first steps are as long as its rate.
    assert (learner.log_temperature.item() - before > 0.0005) is rises
    assert sac.Trainer(TAG, small(), BOX).learners["agent"].target_entropy == -5  # type: ignore[attr-defined]


def test_entropy_comes_to_what_was_asked_for() -> None:
    """The log-density has a mean of minus the target, once the temperature has settled."""
    config = small(
        total_steps=3200, horizon=50, updates=2, temperature_lr=0.04, target_entropy=-0.5, gamma=0.5
    )
    curve = train(PENDULUM, config).curve
    assert curve[-1].losses["agent/entropy"] == pytest.approx(-0.5, abs=0.4)
    assert abs(curve[0].losses["agent/entropy"] + 0.5) > 0.8


def test_exploration_is_the_policy_and_only_the_critics_have_targets() -> None:
    trainer = sac.Trainer(PENDULUM, small(num_envs=2000, capacity=20_000, warmup=0, tau=0.25), {})
    learner: Any = trainer.learners["agent"]
    trainer.step()
    drawn = (learner.group.actions.flatten() / 2).atanh()  # the box is from -2 to 2
    assert float(drawn.mean()) == pytest.approx(0, abs=0.15)
    assert float(drawn.std()) == pytest.approx(1, abs=0.1)
    before = torch.cat([p.flatten() for p in learner.target_critics.parameters()]).clone()
    learner.learn(trainer.generator)
    after = torch.cat([p.flatten() for p in learner.target_critics.parameters()])
    critics = torch.cat([p.detach().flatten() for p in learner.critics.parameters()])
    torch.testing.assert_close(after, 0.75 * before + 0.25 * critics)


# Runs ------------------------------------------------------------------------------------------


class Stop(Exception):
    """A run cut short."""


@pytest.mark.parametrize(
    ("env_id", "params"), [(PENDULUM, {}), pytest.param(TAG, BOX, marks=pytest.mark.slow)]
)
def test_resume_is_exact(env_id: str, params: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    whole = train(env_id, small(), params)

    def stop(update: sac.Update) -> None:
        if update.index == 5:
            raise Stop

    with pytest.raises(Stop):
        saving = small(checkpoint=str(path), checkpoint_interval=3)
        train(env_id, saving, params, on_update=stop)
    assert len(checkpoint.load(path)["curve"]) == 3
    torch.manual_seed(99)  # the global generator plays no part
    resumed = resume(path)
    assert resumed.curve == whole.curve
    loaded = load_policy(path)
    assert isinstance(loaded, SquashedPolicy)
    for group, network in whole.policy.networks.items():
        theirs = network.state_dict()
        for ours in (resumed.policy.networks[group], loaded.networks[group]):
            assert all(torch.equal(value, theirs[key]) for key, value in ours.state_dict().items())
    with pytest.raises(CheckpointError, match="another algorithm than DDPG or PQL"):
        DeterministicPolicy.load(path)


def test_all_groups_learn_and_act_at_random_or_at_their_best() -> None:
    result = train(TAG, small(), BOX)
    policy = result.policy
    assert set(policy.networks) == {"adversary", "agent"}
    metrics = {"critic_loss", "value", "actor_loss", "temperature", "entropy"}
    assert set(result.curve[-1].losses) == {f"{g}/{m}" for g in policy.networks for m in metrics}
    seen = {"agent_0": np.zeros((4, 14), np.float32)}
    actions = policy.act(seen)["agent_0"]
    assert actions.shape == (4, 5) and bool(((actions >= 0) & (actions <= 1)).all())
    assert not np.array_equal(policy.act(seen)["agent_0"], actions)
    best = policy.act(seen, deterministic=True)["agent_0"]
    assert np.array_equal(policy.act(seen, deterministic=True)["agent_0"], best)
    assert evaluate(policy, episodes=20).episodes == 20


def test_other_actions_are_refused_in_one_line() -> None:
    with pytest.raises(TypeError, match=r"^action_space=.*: expected continuous actions[^\n]*$"):
        train(SPREAD, small())


@pytest.mark.parametrize(
    "changes",
    [
        {"total_steps": 0}, {"warmup": -1}, {"batch_size": 0}, {"n_step": 0}, {"critics": 0},
        {"temperature": 0.0}, {"temperature_lr": -1.0}, {"target_entropy": math.nan},
        {"actor_lr": 0}, {"tau": 2}, {"hidden": (0,)}, {"seed": -1}, {"progress": 1},
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


@pytest.mark.slow
def test_it_learns_to_swing_up() -> None:
    """Random play makes -1200; to swing the pendulum up and hold it costs 140 on average."""
    config = SACConfig(
        total_steps=25_600, hidden=(64, 64), gamma=0.95, temperature=1.0, actor_lr=2e-3,
        critic_lr=2e-3, temperature_lr=5e-3, device="cpu", progress=False,
    )  # fmt: skip
    policy = train(PENDULUM, config).policy
    assert evaluate(policy, episodes=500, deterministic=True).mean.mean > -250
