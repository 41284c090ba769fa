"""PPO's options together: what must hold whichever are set, for each kind of action."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from toys import AIM, AIM_STEPS, STAY_OR_GO, STAY_STEPS

from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines import loop, ppo
from gpu_zoo.baselines.ppo import PPOConfig, evaluate, train
from gpu_zoo.registry import ENVIRONMENTS

GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "Discrete": ("mpe/simple_tag_v3", {"max_cycles": 7}),
    "MultiDiscrete": (STAY_OR_GO.id, {}),
    "Box": ("mpe/simple_spread_v3", {"max_cycles": 7, "continuous_actions": True}),
}
NORMALIZE = {"normalize_observations": True, "scale_rewards": True}
CENTRAL, RECURRENT, SEPARATE = {"central_critic": True}, {"recurrent": True}, {"separate": True}
COMBINATIONS: dict[str, dict[str, Any]] = {
    "recurrent": RECURRENT,
    "separate-central": {**SEPARATE, **CENTRAL},
    "recurrent-central-normalize": {**RECURRENT, **CENTRAL, **NORMALIZE},
    "recurrent-separate-target_kl": {**RECURRENT, **SEPARATE, "target_kl": 0.02},
    "recurrent-value_clip": {**RECURRENT, "value_clip": 0.2},
    "central-entropy_schedule": {**CENTRAL, "entropy_coef": 0.1, "entropy_coef_end": 0.0},
    "normalize-value_clip-target_kl": {**NORMALIZE, "value_clip": 0.2, "target_kl": 0.02},
    "lamb-recurrent-separate": {**RECURRENT, **SEPARATE, "optimizer": "lamb", "warmup": 0.5},
    "blocks-central-normalize": {**CENTRAL, **NORMALIZE, "blocks": 4, "value_clip": 0.2},
    "blocks-separate-entropy_schedule": {
        **SEPARATE, "blocks": 4, "entropy_coef": 0.1, "entropy_coef_end": 0.0,
    },
    "everything": {
        **RECURRENT, **CENTRAL, **NORMALIZE, **SEPARATE, "value_clip": 0.2, "target_kl": 0.02,
        "entropy_coef": 0.1, "entropy_coef_end": 0.0, "optimizer": "lamb",
        "learning_rate_batch": 20,
    },
}  # fmt: skip


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 8, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (12,),
        "device": "cpu", "progress": False, "total_steps": 320, "learning_rate": 0.02,
        "gamma": 0.9, "block_embedding": 4,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Any:
    for toy in (STAY_OR_GO, AIM):
        monkeypatch.setitem(ENVIRONMENTS, toy.id, toy)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def last_batches(
    kind: str, options: dict[str, Any]
) -> list[tuple[learning.Learner, learning.Batch, float]]:
    """Of a run's last iteration: who learns, from what, before the first gradient step, and the
    entropy bonus' coefficient.
    """
    found: list[tuple[learning.Learner, learning.Batch, float]] = []

    class Spy(learning.Learner):
        def learn(self, batch: learning.Batch, config: PPOConfig, generator: Any) -> Any:
            still = copy.copy(self)
            still.network = copy.deepcopy(self.network)
            found.append((still, batch, config.entropy_coef))
            return super().learn(batch, config, generator)

    env_id, params = GAMES[kind]
    trainer = ppo.Trainer(env_id, small(**options), params)
    for learner in trainer.learners.values():
        learner.__class__ = Spy
    loop.run(trainer)
    assert len(trainer.curve) == 4
    return found[-len(trainer.learners) :]


# What holds before a step ----------------------------------------------------------------------


@pytest.mark.parametrize("options", COMBINATIONS.values(), ids=COMBINATIONS)
@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.slow] * (k == "Discrete")) for k in GAMES],
)
def test_before_the_first_step_the_policy_is_the_one_that_acted(
    kind: str, options: dict[str, Any]
) -> None:
    """Log-probabilities and values are found again from the samples, so every ratio is 1, nothing
    is clipped, and the loss is minus the mean advantage, plus the value loss, minus the bonus.
    """
    for learner, batch, coef in last_batches(kind, options):
        config = replace(learner.config, entropy_coef=coef)
        with torch.no_grad():
            log_probs, entropy, values = learning.review(learner.network, batch)
            total, metrics = learning.loss(learner.network, batch, config)
        counts = batch.weights > 0
        torch.testing.assert_close(log_probs[counts], batch.log_probs[counts], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(values[counts], batch.values[counts], atol=1e-4, rtol=1e-4)
        assert metrics[3:].tolist() == pytest.approx([0, 0], abs=1e-6)
        weights = batch.weights.double()

        def mean(numbers: torch.Tensor, weights: Any = weights) -> float:
            return float((numbers * weights).sum() / weights.sum())

        policy, value = -mean(batch.advantages), mean((values - batch.returns).square())
        assert metrics[:3].tolist() == pytest.approx([policy, value, mean(entropy)], abs=1e-3)
        share = 1 if batch.bonus is None else batch.bonus
        wanted = policy + 0.5 * value - coef * mean(entropy * share)
        assert total.item() == pytest.approx(wanted, abs=1e-3)
        schedule = options.get("entropy_coef_end") is not None
        assert coef == pytest.approx(0.1 * (1 - 3 / 4) if schedule else 0.01)
        shown = {"states": "central_critic", "memory": "recurrent", "bonus": "blocks"}
        for name, option in shown.items():
            assert (getattr(batch, name) is not None) is (option in options)


@pytest.mark.parametrize("options", COMBINATIONS.values(), ids=COMBINATIONS)
def test_what_those_who_left_see_has_no_gradient(options: dict[str, Any]) -> None:
    """And what everybody else sees has one, the global state left aside."""
    for learner, batch, _ in last_batches("MultiDiscrete", options):
        seen = batch.observations.clone().requires_grad_()
        total, _ = learning.loss(learner.network, replace(batch, observations=seen), learner.config)
        total.backward()  # type: ignore[no-untyped-call]
        assert seen.grad is not None
        touched = (seen.grad[..., : learner.rollout.obs_size] != 0).any(-1)
        gone = batch.weights == 0
        assert 10 < int(gone.sum()) < gone.numel() / 2
        assert not bool(touched[gone].any())
        assert float(touched[~gone].double().mean()) > 0.95


# The gradient ----------------------------------------------------------------------------------


def in_float64(learner: learning.Learner, batch: learning.Batch) -> tuple[Any, learning.Batch]:
    network = copy.deepcopy(learner.network).double()
    tensors = {n: x for n, x in vars(batch).items() if x is not None}
    return network, learning.Batch(
        **{n: x.double() if x.is_floating_point() else x for n, x in tensors.items()}
    )


def plain_loss(network: Any, batch: learning.Batch, config: PPOConfig) -> float:
    """PPO's loss in NumPy, from log-probabilities, entropies and values."""
    with torch.no_grad():
        log_probs, entropy, values = (x.numpy() for x in learning.review(network, batch))
    old, advantage, before, target, weights = (
        getattr(batch, name).numpy()
        for name in ("log_probs", "advantages", "values", "returns", "weights")
    )
    ratio = np.exp(log_probs - old)
    surrogate = np.minimum(
        ratio * advantage, np.clip(ratio, 1 - config.clip, 1 + config.clip) * advantage
    )
    value = (values - target) ** 2
    if config.value_clip is not None:
        near = before + np.clip(values - before, -config.value_clip, config.value_clip)
        value = np.maximum(value, (near - target) ** 2)
    bonus = entropy if batch.bonus is None else entropy * batch.bonus.numpy()
    each = -surrogate + config.value_coef * value - config.entropy_coef * bonus
    return float((each * weights).sum() / weights.sum())


def without_corners(network: Any, batch: learning.Batch, config: PPOConfig) -> learning.Batch:
    """The batch without the samples at which the loss has one within reach of a small step."""
    with torch.no_grad():
        log_probs, _, values = learning.review(network, batch)
    off = ((log_probs - batch.log_probs).exp() - 1).abs() - config.clip
    near = off.abs() < 1e-4
    if config.value_clip is not None:
        moved = (values - batch.values).clamp(-config.value_clip, config.value_clip)
        cut = batch.values + moved
        both = (values - batch.returns).square() - (cut - batch.returns).square()
        near |= ((values - batch.values).abs() - config.value_clip).abs() < 1e-4
        near |= (both.abs() < 1e-4) & (cut != values)
    return replace(batch, weights=batch.weights * ~near)


@pytest.mark.parametrize(
    "name",
    ["recurrent-value_clip", "recurrent-central-normalize", "separate-central",
     "normalize-value_clip-target_kl", "blocks-central-normalize"],
)  # fmt: skip
@pytest.mark.parametrize("kind", GAMES)
def test_the_gradient_is_the_slope_of_the_loss(kind: str, name: str) -> None:
    """Central differences in float64, where some ratios and values are clipped."""
    learner, batch, _ = last_batches(kind, COMBINATIONS[name])[0]
    network, batch = in_float64(learner, batch)
    config = replace(learner.config, clip=0.1, entropy_coef=0.05)
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():  # away from where the ratio is 1
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.add_(0.1 * noise)
    batch = without_corners(network, batch, config)
    total, metrics = learning.loss(network, batch, config)
    assert total.item() == pytest.approx(plain_loss(network, batch, config), rel=1e-9)
    assert 0.02 < float(metrics[4]) < 0.98
    total.backward()  # type: ignore[no-untyped-call]
    slopes, found, step = [], [], 1e-6
    for parameter in network.parameters():
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        for i in torch.randperm(len(flat), generator=generator)[:5].tolist():
            kept = flat[i].item()
            flat[i] = kept + step
            above = plain_loss(network, batch, config)
            flat[i] = kept - step
            slopes.append((above - plain_loss(network, batch, config)) / (2 * step))
            flat[i] = kept
            found.append(float(gradient[i]))
    assert found == pytest.approx(slopes, rel=1e-4, abs=1e-7)
    assert np.count_nonzero(found) > 20


# What is learned -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", COMBINATIONS.values(), ids=COMBINATIONS)
def test_it_learns_when_to_leave(options: dict[str, Any]) -> None:
    """A good mood is worth a point a step, a bad one none: half the steps on average."""
    config = small(
        total_steps=120_000, num_envs=128, horizon=12, minibatches=4, epochs=4,
        learning_rate=5e-3, gamma=0.5, hidden=(32,), entropy_coef=0.0,
    )  # fmt: skip
    config = replace(config, **{k: v for k, v in options.items() if k != "learning_rate_batch"})
    if config.optimizer == "lamb":  # whose rate is a share of the weights
        config = replace(config, learning_rate=1e-2, warmup=0.0)
    policy = train(STAY_OR_GO.id, config).policy
    played = evaluate(policy, episodes=2000, deterministic=True)
    assert played.mean.mean == pytest.approx(STAY_STEPS / 2, abs=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("recurrent", [False, True])
def test_a_memory_aims_where_nothing_else_can(recurrent: bool) -> None:
    """Without one, the best after the first step is the middle, 1 away from either target."""
    config = small(
        recurrent=recurrent, num_envs=128, horizon=2 * AIM_STEPS, total_steps=120_000, epochs=4,
        minibatches=4, learning_rate=5e-3, hidden=(16,), entropy_coef=0.0, gamma=0.0,
    )  # fmt: skip
    policy = train(AIM.id, config).policy
    found = evaluate(policy, episodes=2000, deterministic=True).mean.mean
    assert found == pytest.approx(0 if recurrent else 1 - AIM_STEPS, abs=0.15)
