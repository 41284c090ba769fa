"""Masked policies: against torch's distributions, in the loss, in play, and that they learn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from masks.ferry import BONUS, BOX, DISCRETE, FERRY, LEAVING, MULTI, STEPS
from torch.distributions import Categorical

import gpu_zoo
from gpu_zoo import play
from gpu_zoo.baselines import a2c, ppo
from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines.flat import flatten
from gpu_zoo.baselines.fused_ppo import fuse
from gpu_zoo.baselines.masks import draw_allowed
from gpu_zoo.baselines.networks import (
    ActorCritic,
    CategoricalHead,
    MultiCategoricalHead,
    mask_logits,
)
from gpu_zoo.baselines.ppo import Policy, PPOConfig, evaluate, resume, train
from gpu_zoo.registry import ENVIRONMENTS

WALKERS = ["walker_0", "walker_1"]
COUNTS = {DISCRETE: (3,), MULTI: (3, 2)}
each_space = pytest.mark.parametrize("space", COUNTS, ids=["discrete", "multi"])


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 16, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (12,),
        "device": "cpu", "progress": False, "total_steps": 480, "learning_rate": 0.02,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Any:
    for toy in (FERRY, LEAVING):
        monkeypatch.setitem(ENVIRONMENTS, toy.id, toy)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Distributions ----------------------------------------------------------------------------------


@st.composite
def masked_logits(draw: Any) -> tuple[list[float], list[bool]]:
    n = draw(st.integers(1, 9))
    logits = draw(st.lists(st.floats(-80, 80, width=32), min_size=n, max_size=n))
    mask = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    mask[draw(st.integers(0, n - 1))] = True
    return logits, mask


@settings(max_examples=200, deadline=None)
@given(masked_logits())
def test_a_masked_head_is_a_categorical_over_what_is_allowed(
    drawn: tuple[list[float], list[bool]],
) -> None:
    """Log-probabilities, entropy and their gradients; what is forbidden has probability 0."""
    numbers, flags = drawn
    mask, actions = torch.tensor(flags), torch.arange(len(flags))
    head = CategoricalHead(spaces.Discrete(len(flags)))

    def ours(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = mask_logits(logits.expand(len(flags), -1), mask)
        log_probs, entropies = head.log_prob_and_entropy(rows, actions)
        return log_probs, entropies[0]

    def wanted(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        allowed = Categorical(logits=logits[mask])
        return allowed.log_prob(torch.arange(int(mask.sum()))), allowed.entropy()

    results = []
    for function in (ours, wanted):
        logits = torch.tensor(numbers, requires_grad=True)
        log_probs, entropy = function(logits)
        chosen = log_probs[mask] if function is ours else log_probs
        weights = torch.arange(1.0, len(chosen) + 1)
        (gradient,) = torch.autograd.grad((chosen * weights).sum() + 3 * entropy, logits)
        results.append((chosen.detach(), entropy.detach(), gradient))
        if function is ours:
            assert log_probs[~mask].exp().tolist() == [0.0] * int((~mask).sum())
            assert gradient[~mask].tolist() == [0.0] * int((~mask).sum())
    for found, want in zip(*results, strict=True):
        assert bool(found.isfinite().all())
        torch.testing.assert_close(found, want, atol=2e-4, rtol=1e-4)
    best = int(head.mode(mask_logits(torch.tensor(numbers), mask)))
    assert flags[best]
    assert numbers[best] == max(x for x, flag in zip(numbers, flags, strict=True) if flag)


def test_components_are_masked_each_for_itself() -> None:
    """The sum of two categoricals', whose masks lie side by side."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 5, generator=generator)
    mask = torch.rand(50, 5, generator=generator) < 0.5
    mask[:, 1] = mask[:, 4] = True
    actions = torch.tensor([1, 1]).expand(50, 2)
    head = MultiCategoricalHead(spaces.MultiDiscrete([3, 2]))
    found = head.log_prob_and_entropy(mask_logits(logits, mask), actions)
    for i in range(50):
        first, second = (
            Categorical(logits=logits[i, part][mask[i, part]])
            for part in (slice(0, 3), slice(3, 5))
        )
        at = [torch.tensor(int(mask[i, 0])), torch.tensor(int(mask[i, 3]))]  # of action 1
        log_prob = first.log_prob(at[0]) + second.log_prob(at[1])
        assert float(found[0][i]) == pytest.approx(float(log_prob), abs=1e-5)
        entropy = float(first.entropy() + second.entropy())
        assert float(found[1][i]) == pytest.approx(entropy, abs=1e-5)


def test_samples_are_the_renormalised_distribution() -> None:
    head = CategoricalHead(spaces.Discrete(4))
    logits = torch.tensor([3.0, 1.0, 0.0, -1.0])
    mask = torch.tensor([False, True, False, True])
    rows = mask_logits(logits.expand(100_000, 4), mask)
    actions, log_probs = head.sample(rows, torch.Generator().manual_seed(0))
    share = torch.bincount(actions, minlength=4) / 100_000
    likely = 1 / (1 + math.exp(-2))
    assert share[[0, 2]].tolist() == [0, 0]
    assert float(share[1]) == pytest.approx(likely, abs=5 * math.sqrt(likely * (1 - likely) / 1e5))
    wanted = torch.tensor([likely, 1 - likely]).log()[(actions == 3).long()]
    torch.testing.assert_close(log_probs, wanted)


def test_no_noise_draws_what_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exponential of 0, which float32 can give, would make its action the largest."""
    monkeypatch.setattr(
        torch.Tensor, "exponential_", lambda self, generator: self.fill_(1).index_fill_(-1, ZERO, 0)
    )
    head = CategoricalHead(spaces.Discrete(3))
    rows = mask_logits(torch.zeros(10, 3), torch.tensor([True, False, True]))
    actions, _ = head.sample(rows, torch.Generator())
    assert 1 not in actions.tolist()


ZERO = torch.tensor([1])


# What the CPU computes in one call ---------------------------------------------------------------


def fusable(space: int, agents: int = 0) -> ActorCritic:
    """A network whose probabilities differ; with agents, its critic sees the global state."""
    chosen: Any = spaces.Discrete(3) if space == DISCRETE else spaces.MultiDiscrete([3, 2])
    network = ActorCritic(
        4, chosen, (24,), torch.Generator().manual_seed(0), state_size=6 if agents else 0
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator())
    return network


def some_masks(space: int, *lanes: int) -> torch.Tensor:
    masks = torch.rand(*lanes, sum(COUNTS[space]), generator=torch.Generator().manual_seed(1)) < 0.5
    start = 0
    for count in COUNTS[space]:  # something is always allowed
        part = masks[..., start : start + count]
        part[..., -1] |= ~part.any(-1)
        start += count
    return masks


@each_space
def test_one_call_draws_as_the_masked_network_does(space: int) -> None:
    network, masks = fusable(space), some_masks(space, 700, 3)
    fused = fuse(network, flatten(network))
    assert fused is not None
    seen = torch.randn(700, 3, 4, generator=torch.Generator().manual_seed(2))
    mine = fused.act(seen, torch.Generator().manual_seed(3), masks)
    theirs = network.act(seen, torch.Generator().manual_seed(3), masks=masks)
    assert torch.equal(mine[0], theirs[0])
    torch.testing.assert_close(mine[1], theirs[1], rtol=1e-5, atol=1e-5)
    without = fused.act(seen, torch.Generator().manual_seed(3))
    assert float((without[0] != mine[0]).float().mean()) > 0.1


def test_one_call_draws_nothing_forbidden_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    network, masks = fusable(DISCRETE), some_masks(DISCRETE, 500)
    fused = fuse(network, flatten(network))
    assert fused is not None
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda self, generator: self.zero_())
    actions, _ = fused.act(torch.randn(500, 4), torch.Generator(), masks)
    assert bool(masks.gather(-1, actions.unsqueeze(-1)).all())


@each_space
@pytest.mark.parametrize("agents", [0, 3], ids=["own", "central"])
def test_one_call_has_the_gradient_of_the_masked_loss(space: int, agents: int) -> None:
    network, generator = fusable(space, agents), torch.Generator().manual_seed(4)
    lanes = (300, agents) if agents else (300,)
    masks = some_masks(space, *lanes)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    seen, states = drawn(*lanes, 4), drawn(300, 6) if agents else None
    with torch.no_grad():
        actions, log_probs = network.act(seen, generator, masks=masks)
    batch = learning.Batch(
        seen, actions, log_probs + 0.3 * drawn(*lanes), drawn(*lanes), drawn(*lanes),
        drawn(*lanes), (drawn(*lanes) > -1).float(), states=states, masks=masks,
    )  # fmt: skip
    config, rows = small(entropy_coef=0.1), torch.randperm(300, generator=generator)[:211]
    fused = fuse(network, flatten(network))
    assert fused is not None and fused.whole.grad is not None
    metrics = fused.gradient(batch, rows, config)
    found = fused.whole.grad.clone()
    fused.whole.grad.zero_()
    total, expected = learning.loss(network, batch[rows], config)
    total.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found, fused.whole.grad, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(metrics, expected, rtol=1e-4, atol=2e-6)


@each_space
def test_random_play_is_uniform_over_what_is_allowed(space: int) -> None:
    masks = torch.tensor([[1, 0, 1, 1, 1], [0, 1, 0, 1, 0]]).bool()[:, : sum(COUNTS[space])]
    lanes = masks.unsqueeze(0).expand(30_000, -1, -1)
    single = space == DISCRETE
    into = torch.zeros(30_000, 2, *(() if single else (2,)), dtype=torch.int32)
    chosen: Any = spaces.Discrete(3) if single else spaces.MultiDiscrete([3, 2])
    draw_allowed(chosen, lanes, into, torch.Generator().manual_seed(0))
    columns = into.reshape(30_000, 2, -1)
    for row in range(2):
        start = 0
        for k, count in enumerate(COUNTS[space]):
            mask = masks[row, start : start + count].double()
            share = torch.bincount(columns[:, row, k], minlength=count) / 30_000
            torch.testing.assert_close(share.double(), mask / mask.sum(), atol=0.015, rtol=0)
            assert bool((share[mask == 0] == 0).all())
            start += count


def test_random_returns() -> None:
    """Driven half of the time, and walking half of the rest."""
    found = evaluate(None, FERRY.id, 4000).groups["walker"]
    assert found.mean == pytest.approx(STEPS * (0.5 + 0.25 * BONUS), abs=5 * found.stderr)


# Rollouts and loss ------------------------------------------------------------------------------

OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"separate": True}, {"recurrent": True}, {"central_critic": True},
    {"recurrent": True, "central_critic": True}, {"normalize_observations": True},
)  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
@each_space
def test_rollouts_keep_masks_and_the_loss_uses_them(space: int, options: dict[str, Any]) -> None:
    """Probabilities when acting and when learning are the same, and those of torch's categorical
    over what the state's coins allowed."""
    params = {"SPACE": space, "may_quit": True}
    trainer = ppo.Trainer(LEAVING.id, small(stagger=False, **options), params)
    trainer.iterate()
    seen: list[torch.Tensor] = []
    step = trainer.env.step

    def spy() -> Any:
        seen.append(trainer.env.group["walker"].action_masks.clone())
        return step()

    trainer.env.step = spy  # type: ignore[method-assign, assignment]
    trainer.collect()
    names = WALKERS if "separate" in options else ["walker"]
    unmasked = "watcher_0" if "separate" in options else "watcher"
    assert trainer.learners[unmasked].rollout.masks is None
    for name in names:
        learner = trainer.learners[name]
        rollout, network = learner.rollout, learner.network
        with torch.no_grad():
            batch = learner.prepare()
            log_probs, entropies, _ = learning.review(network, batch)
        assert rollout.masks is not None and batch.masks is not None
        who = slice(None) if name == "walker" else slice(int(name[-1]), int(name[-1]) + 1)
        assert torch.equal(rollout.masks, torch.stack(seen)[:, :, who])
        assert 0.2 < float(rollout.masks.float().mean()) < 0.9
        torch.testing.assert_close(log_probs, batch.log_probs, atol=1e-5, rtol=1e-5)
        parts = torch.split(batch.masks, list(COUNTS[space]), -1)
        actions = batch.actions if space == MULTI else batch.actions.unsqueeze(-1)
        for k, part in enumerate(parts):
            taken = part.gather(-1, actions[..., k : k + 1])
            assert bool(taken.all()), "a forbidden action was taken"
        if "recurrent" not in options:
            forced = sum((part.sum(-1) == 1).long() for part in parts) == len(parts)
            assert bool((log_probs[forced] == 0).all() and (entropies[forced] == 0).all())
            assert int(forced.sum()) > 30
            logits = network.actor(network.see(batch.observations)).detach()
            for at in [tuple(row) for row in np.ndindex(*log_probs.shape)][:100]:
                pieces = zip(torch.split(logits[at], list(COUNTS[space])), parts, strict=True)
                wanted = 0.0
                for k, (piece, part) in enumerate(pieces):
                    allowed = part[at]
                    index = allowed[: int(actions[at][k])].sum()
                    wanted += float(Categorical(logits=piece[allowed]).log_prob(index))
                assert float(log_probs[at]) == pytest.approx(wanted, abs=1e-4)


def test_the_gradient_is_that_of_the_renormalised_policy() -> None:
    """PPO's loss written out over torch's categoricals."""
    generator = torch.Generator().manual_seed(1)
    trainer = ppo.Trainer(FERRY.id, small(), {})
    network = trainer.learners["walker"].network
    n = 60
    observations = torch.rand(n, 2, generator=generator)
    mask = torch.rand(n, 3, generator=generator) < 0.5
    mask[:, 0] = True
    actions = torch.tensor([int(np.flatnonzero(row)[-1]) for row in mask.numpy()])
    old, values, advantages, returns = (torch.randn(n, generator=generator) for _ in range(4))
    batch = learning.Batch(
        observations, actions, 0.1 * old - 0.5, values, advantages, returns, torch.ones(n),
        masks=mask,
    )  # fmt: skip
    config = small(entropy_coef=0.3, value_coef=0.0)
    found = gradient(network, learning.loss(network, batch, config)[0])
    total = torch.zeros(())
    for i in range(n):
        policy = Categorical(logits=network.actor(observations[i])[mask[i]])
        ratio = (policy.log_prob(mask[i, : actions[i]].sum()) - batch.log_probs[i]).exp()
        clipped = ratio.clamp(0.8, 1.2)
        gain = torch.min(ratio * advantages[i], clipped * advantages[i])
        total = total - (gain + 0.3 * policy.entropy()) / n
    wanted = gradient(network, total)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    blind = learning.Batch(*(getattr(batch, name) for name in list(vars(batch))[:7]))
    other = gradient(network, learning.loss(network, blind, config)[0])
    assert float((other - wanted).norm()) > 0.3 * float(wanted.norm())


def test_masks_are_not_read_by_the_host() -> None:
    """Meta tensors hold no numbers: what needs one would fail."""
    network = ppo.Trainer(FERRY.id, small(), {}).learners["walker"].network.to("meta")
    one = torch.zeros(100, device="meta")
    seen, masks = one[:, None].expand(-1, 2), one[:, None].expand(-1, 3) > 0
    batch = learning.Batch(seen, one.long(), one, one, one, one, one, masks=masks)
    total, _ = learning.loss(network, batch, small())
    total.backward()  # type: ignore[no-untyped-call]


def gradient(network: Any, total: torch.Tensor) -> torch.Tensor:
    network.zero_grad()
    total.backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.flatten() for p in network.actor.parameters()])


def test_resume_is_exact(tmp_path: Path) -> None:
    path = str(tmp_path / "run.pt")
    whole = train(LEAVING.id, small(total_steps=960), {"may_quit": True})

    def stop(update: ppo.Update) -> None:
        if update.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            LEAVING.id, small(total_steps=960, checkpoint=path, checkpoint_interval=1),
            {"may_quit": True}, on_update=stop,
        )  # fmt: skip
    assert resume(path).curve == whole.curve


# Learning ---------------------------------------------------------------------------------------


def walks(policy: Policy) -> float:
    """The mean return when it does what is likeliest."""
    return evaluate(policy, episodes=2000, deterministic=True).groups["walker"].mean


WALKING = STEPS * (0.5 + 0.5 * BONUS)


@pytest.mark.parametrize("recurrent", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_learns_from_what_it_did_freely(recurrent: bool) -> None:
    """Riding earns most, but only who is driven rides for it, and has no choice. A loss without
    masks would learn to ride: then nothing is earned where there is one.
    """
    config = small(
        total_steps=20_000, num_envs=64, horizon=12, epochs=4, gamma=0.0, recurrent=recurrent
    )
    policy = train(FERRY.id, config, {"SPACE": MULTI}).policy
    assert walks(policy) == pytest.approx(WALKING, abs=0.15)
    assert WALKING - STEPS * 0.5 > 0.5


def test_a2c_learns_it_too() -> None:
    config = a2c.A2CConfig(
        total_steps=30_000, num_envs=64, horizon=6, hidden=(12,), device="cpu", progress=False,
        learning_rate=0.02, gamma=0.0,
    )  # fmt: skip
    policy = a2c.train(FERRY.id, config, {}).policy
    assert walks(policy) == pytest.approx(WALKING, abs=0.15)


# Policies at play -------------------------------------------------------------------------------


@each_space
@pytest.mark.parametrize("options", [{}, {"separate": True}, {"recurrent": True}], ids=str)
def test_a_policy_acts_with_the_infos_masks(space: int, options: dict[str, Any]) -> None:
    """In a drop-in, which refuses what is forbidden, and in a batch."""
    policy = train(FERRY.id, small(total_steps=160, **options), {"SPACE": space}).policy
    env = gpu_zoo.make(FERRY.id, SPACE=space)
    for episode in range(10):
        observations, infos = env.reset(seed=episode)
        policy.reset()
        while env.agents:
            masks = {a: infos[a]["action_mask"] for a in WALKERS}
            actions = policy.act(observations, bool(episode % 2), action_masks=masks)
            observations, _, _, _, infos = env.step(actions)
    envs = gpu_zoo.make_vec(FERRY.id, 50, SPACE=space)
    policy.reset()
    seen, infos = envs.reset(seed=0)
    for _ in range(2 * STEPS):
        actions = policy.act(seen, action_masks=infos["action_mask"])
        seen, _, _, _, infos = envs.step(actions)


def act(policy: Policy, mask: Any, **observations: Any) -> dict[str, Any]:
    return policy.act(observations or {"walker_0": np.zeros(2, np.float32)}, action_masks=mask)


def test_bad_masks_are_named() -> None:
    policies = {
        space: train(FERRY.id, small(total_steps=160), {"SPACE": space}).policy
        for space in (DISCRETE, MULTI)
    }
    policy = policies[DISCRETE]
    for mask, message in {
        "nothing": ({}, "action_masks: nothing for walker_0, whose actions are masked"),
        "short": (
            {"walker_0": np.ones(2, np.int8)},
            "action_masks['walker_0']: int8 (2,), expected bool or int8 (3,)",
        ),
        "float": (
            {"walker_0": np.ones(3)},
            "action_masks['walker_0']: float64 (3,), expected bool or int8 (3,)",
        ),
        "batch": (
            {"walker_0": np.ones((1, 3), np.int8)},
            "action_masks['walker_0']: int8 (1, 3), expected bool or int8 (3,)",
        ),
        "two": (
            {"walker_0": np.array([1, -1, 2])},
            "action_masks['walker_0']: -1 in it, expected 0 and 1 only",
        ),
        "zeros": (
            {"walker_0": np.zeros(3, np.int8)},
            "action_masks['walker_0']: no action of component 0 is allowed, expected one",
        ),
    }.values():
        with pytest.raises(ValueError) as caught:
            act(policy, mask)
        assert str(caught.value) == message
    with pytest.raises(ValueError, match="expected none, its actions have no masks"):
        act(policy, {"watcher_0": np.ones(2, np.int8)}, watcher_0=np.zeros(1, np.float32))
    assert act(policy, {"walker_0": np.array([0, 0, 1])}) == {"walker_0": 2}
    assert act(policy, {"walker_0": [False, True, False], "walker_1": None}) == {"walker_0": 1}
    multi = policies[MULTI]
    parts = (np.array([0, 0, 1], np.int8), np.array([0, 1], np.int8))
    assert act(multi, {"walker_0": parts})["walker_0"].tolist() == [2, 1]
    assert act(multi, {"walker_0": np.concatenate(parts)})["walker_0"].tolist() == [2, 1]
    with pytest.raises(ValueError, match="no action of component 1 is allowed"):
        act(multi, {"walker_0": (parts[0], parts[1] * 0)})
    box = train(FERRY.id, small(total_steps=160), {"SPACE": BOX}).policy
    assert act(box, {})["walker_0"].shape == (1,)


@each_space
def test_episodes_to_look_at_are_allowed(space: int, tmp_path: Path) -> None:
    """What gpu-zoo play does: at random, and with a checkpoint."""
    path = tmp_path / "run.pt"
    train(FERRY.id, small(checkpoint=str(path)), {"SPACE": space})
    env = gpu_zoo.make(FERRY.id, SPACE=space)
    trained, params = play.load_policy(FERRY, path, {}, 0, False)
    assert params["SPACE"] == space
    returns = []
    for policy in (play.random_policy(env, 0), trained):
        for seed in range(20):
            *_, last = play.episode(env, policy, seed)
            returns.append(last["walker_0"])
    assert 0 < np.mean(returns) < STEPS
