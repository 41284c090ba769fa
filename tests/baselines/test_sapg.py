"""SAPG: the leader's and followers' samples and losses against plain loops, and that it learns."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from toys import STAY_OR_GO

import gpu_zoo
from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines import ppo, sapg
from gpu_zoo.baselines.export import Acting
from gpu_zoo.baselines.ppo import Policy, PPOConfig, evaluate, resume, train
from gpu_zoo.registry import ENVIRONMENTS

SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"
BOX = {"continuous_actions": True, "max_cycles": 7}
GAMES: dict[str, tuple[str, dict[str, Any], str]] = {
    "Discrete": (TAG, {"max_cycles": 7}, "adversary"),
    "MultiDiscrete": (STAY_OR_GO.id, {}, "agent"),
    "Box": (SPREAD, BOX, "agent"),
}
SPACES: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(5),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "Box": spaces.Box(-1.0, 2.0, (3,), np.float32),
}


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 12, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (16,),
        "device": "cpu", "progress": False, "total_steps": 480, "blocks": 3, "block_embedding": 4,
        "learning_rate": 0.02, "gamma": 0.9, "entropy_coef": 0.1,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(ENVIRONMENTS, STAY_OR_GO.id, STAY_OR_GO)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Blocks and networks ---------------------------------------------------------------------------


def test_followers_lend_as_many_environments_as_the_leader_has() -> None:
    generator = torch.Generator().manual_seed(0)
    lent = np.zeros(12)
    for _ in range(3000):
        envs = sapg.draw(12, 3, generator).tolist()
        assert len(set(envs)) == 4
        lent[envs] += 1
    assert (lent[::3] == 0).all()  # the leader's own
    followers = np.delete(lent, [0, 3, 6, 9])
    np.testing.assert_allclose(followers, 1500, atol=5 * math.sqrt(3000 / 4))
    assert sorted(sapg.draw(8, 2, generator).tolist()) == [1, 3, 5, 7]


def test_sums_are_by_block() -> None:
    assert sapg.by_block(torch.tensor([1.0, 2, 3, 10, 20, 30]), 3).tolist() == [11, 22, 33]
    assert sapg.by_block(torch.tensor([True, False, True]), 1).tolist() == [2]


def spread_out(space: spaces.Space[Any], **options: Any) -> sapg.BlockActorCritic:
    """A network of three blocks whose policies differ."""
    generator = torch.Generator().manual_seed(0)
    network = sapg.BlockActorCritic(6, space, (8,), generator, blocks=3, embedding=4, **options)
    with torch.no_grad():
        network.actor[-1].weight.mul_(100)
        if isinstance(network.head, sapg.BlockGaussianHead):
            network.head.log_std.normal_(0, 0.5, generator=generator)
    return network


def density(network: sapg.BlockActorCritic, row: Any, block: int, action: Any) -> tuple[Any, Any]:
    """Log-probability of one action and entropy, from torch.distributions."""
    outputs = network.actor(torch.cat([row, network.rows[block]]))
    if action.dtype == torch.float32:
        head: Any = network.head
        middle = (head.low + head.high) / 2
        normal = torch.distributions.Normal(outputs + middle, head.log_std[block].exp())
        return normal.log_prob(action).sum(), normal.entropy().sum()
    counts = getattr(network.head, "counts", [len(outputs)])
    log_prob, entropy = torch.zeros(()), torch.zeros(())
    for logits, part in zip(outputs.split(counts), action.reshape(-1), strict=True):
        categorical = torch.distributions.Categorical(logits=logits)
        log_prob, entropy = log_prob + categorical.log_prob(part), entropy + categorical.entropy()
    return log_prob, entropy


@pytest.mark.parametrize("kind", SPACES)
def test_each_block_has_its_own_policy_and_value(kind: str) -> None:
    network, generator = spread_out(SPACES[kind]), torch.Generator().manual_seed(1)
    rows = torch.randn(9, 6, generator=generator)
    labelled = torch.cat([rows, torch.arange(9.0).remainder(3).unsqueeze(1)], 1)
    with torch.no_grad():
        actions, log_probs = network.act(labelled, generator)
        again, entropy = network.log_prob_and_entropy(labelled, actions)
        values = network.value(labelled)
        for i in range(9):
            wanted = density(network, rows[i], i % 3, actions[i])
            torch.testing.assert_close((again[i], entropy[i]), wanted, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(log_probs[i], wanted[0], atol=1e-5, rtol=1e-5)
            own = network.critic(torch.cat([rows[i], network.rows[i % 3]]))[0]
            torch.testing.assert_close(values[i], own)
        leader = torch.cat([rows, torch.zeros(9, 1)], 1)
        assert torch.equal(network.best(rows), network.best(leader))
        assert torch.equal(network.value(rows), network.value(leader))
        follower = torch.cat([rows, torch.ones(9, 1)], 1)
        assert not torch.equal(network.best(rows), network.best(follower))


def test_labels_are_not_read_by_the_host() -> None:
    """Meta tensors hold no numbers: whoever wants one fails."""
    for space in SPACES.values():
        network = spread_out(space).to("meta")
        rows = torch.zeros(5, 7, device="meta")
        head = network.head
        actions = torch.zeros(5, *head.action_shape, dtype=head.action_dtype, device="meta")
        log_probs, _ = network.log_prob_and_entropy(rows, actions)
        (log_probs.sum() + network.value(rows).sum()).backward()
    with pytest.raises(RuntimeError):
        float(rows.sum())


# Samples ---------------------------------------------------------------------------------------


def filled(kind: str, **changes: Any) -> tuple[ppo.Trainer, learning.Learner]:
    """A trainer with blocks that differ, after its second rollout."""
    env_id, params, group = GAMES[kind]
    trainer = ppo.Trainer(env_id, small(**changes), params)
    trainer.iterate()
    network: Any = trainer.learners[group].network
    with torch.no_grad():
        network.actor[-1].weight.mul_(20)
    trainer.collect()
    return trainer, trainer.learners[group]


@pytest.mark.parametrize("central", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("clip", ["mu", "one"])
@pytest.mark.parametrize("kind", GAMES)
def test_what_followers_lend_is_a_plain_loop(kind: str, clip: str, central: bool) -> None:
    """Every sample of the leader's off-policy data, from what was noted of its step."""
    trainer, learner = filled(kind, off_policy_clip=clip, central_critic=central)
    rollout, envs = learner.rollout, torch.tensor([7, 1, 11, 2])
    network: Any = learner.network
    with torch.no_grad():
        learner.prepare()
        batch, mu = sapg.from_followers(learner, envs)
    shape = (10, 4, rollout.rewards.shape[2])
    values, returns, log_probs, mus, weights = (
        x.reshape(shape) for x in (batch.values, batch.returns, batch.log_probs, mu, batch.weights)
    )
    n, states = rollout.obs_size, trainer.states

    def value(row: Any, state: Any) -> float:
        """The leader's critic."""
        return float(network.critic(torch.cat([row[:n], network.rows[0], *state]))[0].detach())

    ends = 0
    for t, k, agent in np.ndindex(*shape):
        env = int(envs[k])
        if not rollout.active[t, env, agent]:
            assert weights[t, k, agent] == 0
            continue
        row, action = rollout.observations[t, env, agent], rollout.actions[t, env, agent]
        assert row[n] == env % 3
        before = [] if states is None else [states.states[t, env]]
        own = value(row, before)
        if rollout.terminated[t, env, agent]:
            following = 0.0
        elif rollout.done[t, env]:
            after = [] if states is None else [states.final_states[t, env]]
            following = value(rollout.final_observations[t, env, agent], after)
        else:
            after = [] if states is None else [states.states[t + 1, env]]
            following = value(rollout.observations[t + 1, env, agent], after)
        ends += int(rollout.done[t, env])
        target = float(rollout.rewards[t, env, agent]) + 0.9 * following
        assert float(values[t, k, agent]) == pytest.approx(own, abs=1e-4)
        assert float(returns[t, k, agent]) == pytest.approx(target, abs=1e-4)
        leader = float(density(network, row[:n], 0, action)[0].detach())
        acted = float(rollout.log_probs[t, env, agent])
        follower = float(density(network, row[:n], env % 3, action)[0].detach())
        assert follower == pytest.approx(acted, abs=1e-3)
        ratio = math.exp(leader - acted) if clip == "mu" else 1.0
        assert float(mus[t, k, agent]) == pytest.approx(ratio, rel=1e-3)
        kept = leader if clip == "mu" else acted
        assert float(log_probs[t, k, agent]) == pytest.approx(kept, abs=1e-3)
    assert ends > 0
    assert float((mus - 1).abs().max()) > 0.05 or clip == "one"  # so the case tells them apart
    assert bool((batch.observations[..., -1] == 0).all())


@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize("clip", ["mu", "one"])
@pytest.mark.parametrize("kind", GAMES)
def test_the_loss_is_the_paper_s(kind: str, clip: str, central: bool) -> None:
    """After a gradient step: each policy's surrogate, value loss and entropy, summed up by hand."""
    trainer, learner = filled(
        kind, off_policy_clip=clip, off_policy_coef=0.6, central_critic=central
    )
    network, config, rollout = learner.network, learner.config, learner.rollout
    envs = sapg.draw(12, 3, torch.Generator().set_state(trainer.generator.get_state()))
    with torch.no_grad():
        own = learner.prepare()
        batch = sapg.with_followers(learner, own, trainer.generator)
        before = network.log_prob_and_entropy(batch.observations, batch.actions)[0].flatten()
    acted = torch.cat([rollout.log_probs.flatten(), rollout.log_probs[:, envs].flatten()])
    mu = (before - acted).exp()
    first_lent = rollout.log_probs.numel()
    assert first_lent * 4 == acted.numel() * 3
    torch.testing.assert_close(mu[:first_lent], torch.ones(first_lent), atol=1e-4, rtol=0)
    assert float((mu - 1).abs().max()) > 0.05
    raw = batch.returns - batch.values
    active = batch.weights > 0
    mean, std = float(raw[active].mean()), float(raw[active].std())
    for parameter in network.actor.parameters():  # away from where the ratio is 1
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=trainer.generator))
    total, metrics = learning.loss(network, batch, config)
    with torch.no_grad():
        log_probs, entropy, values = learning.review(network, batch)

    surrogate, value_loss, bonus, weight, cut = 0.0, 0.0, 0.0, 0.0, 0
    flat = [x.flatten().tolist() for x in (log_probs, acted, entropy, values, batch.returns, raw,
            batch.observations[..., -1], active, mu)]  # fmt: skip
    for i, (new, old, h, v, target, a, block, counts, m) in enumerate(zip(*flat, strict=True)):
        if not counts:
            continue
        a = (a - mean) / std
        share = 0.6 if i >= first_lent else 1.0
        centre = m if i >= first_lent and clip == "mu" else 1.0
        low, high = centre * 0.8, centre * 1.2
        r = math.exp(new - old)
        cut += not low < r < high
        surrogate += share * min(r * a, min(max(r, low), high) * a)
        value_loss += share * (v - target) ** 2
        bonus += share * h * block / 2
        weight += share
    wanted = (-surrogate + 0.5 * value_loss - 0.1 * bonus) / weight
    assert cut > 10
    assert total.item() == pytest.approx(wanted, rel=2e-3, abs=2e-3)
    assert float(metrics[0]) == pytest.approx(-surrogate / weight, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("clip", ["mu", "one"])
@pytest.mark.parametrize("kind", SPACES)
def test_the_gradient_off_policy_is_that_of_the_surrogate(kind: str, clip: str) -> None:
    """Central differences in float64 of the paper's surrogate for one follower's samples."""
    generator = torch.Generator().manual_seed(3)
    network = spread_out(SPACES[kind])
    rows = torch.randn(40, 6, generator=generator)
    follower = torch.cat([rows, torch.full((40, 1), 2.0)], 1)
    leader = torch.cat([rows, torch.zeros(40, 1)], 1).double()
    with torch.no_grad():
        actions, acted = network.act(follower, generator)
        acted = (acted + 0.1 * torch.randn(40, generator=generator)).double()
    network = network.double()
    if kind == "Box":
        actions = actions.double()
    advantages, zeros = torch.randn(40, generator=generator).double(), torch.zeros(40).double()
    with torch.no_grad():
        before = network.log_prob_and_entropy(leader, actions)[0]
        mu = (before - acted).exp()
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    centre = mu if clip == "mu" else torch.ones_like(mu)

    def surrogate() -> torch.Tensor:
        with torch.no_grad():
            r = (network.log_prob_and_entropy(leader, actions)[0] - acted).exp()
            clipped = torch.maximum(torch.minimum(r, 1.2 * centre), 0.8 * centre)
            return -torch.minimum(r * advantages, clipped * advantages).mean()

    old = before if clip == "mu" else acted
    batch = learning.Batch(
        leader, actions, old, zeros, advantages * centre, zeros, zeros + 1, bonus=zeros
    )
    config = small(clip=0.2, value_coef=0.0, off_policy_clip=clip)
    total, _ = learning.loss(network, batch, config)
    assert total.item() == pytest.approx(surrogate().item(), rel=1e-9)
    total.backward()  # type: ignore[no-untyped-call]
    checked = 0
    for name, parameter in network.named_parameters():
        if name.startswith("critic"):
            continue
        assert parameter.grad is not None, name
        for i in range(parameter.numel()):
            flat = parameter.data.view(-1)
            kept, step = flat[i].item(), 1e-6
            flat[i] = kept + step
            above = surrogate()
            flat[i] = kept - step
            slope = (above - surrogate()) / (2 * step)
            flat[i] = kept
            found = float(parameter.grad.view(-1)[i])
            assert found == pytest.approx(slope.item(), rel=1e-4, abs=1e-7), name
            checked += found != 0
    assert checked > 50
    assert bool((network.rows.grad is not None) and (network.rows.grad[1:] == 0).all())


def test_advantages_are_normalised_over_all() -> None:
    trainer, learner = filled("Discrete", off_policy_clip="one")
    with torch.no_grad():
        batch = sapg.with_followers(learner, learner.prepare(), trainer.generator)
    assert len(batch.advantages) == 10 * (12 + 4) * 3
    assert abs(float(batch.advantages.mean())) < 1e-5
    assert float(batch.advantages.std()) == pytest.approx(1, abs=1e-4)
    own = batch.observations[: 10 * 12 * 3, -1].reshape(10, 12, 3)
    assert own[4, :, 1].tolist() == [0, 1, 2] * 4
    assert batch.bonus is not None
    assert batch.bonus.tolist() == (batch.observations[:, -1] / 2).tolist()


def test_without_weight_nothing_is_lent() -> None:
    trainer, learner = filled("Discrete", off_policy_coef=0)
    with torch.no_grad():
        own = learner.prepare()
        batch = sapg.with_followers(learner, own, trainer.generator)
    assert len(batch.returns) == 10 * 12 * 3
    for name, tensor in vars(own).items():
        if tensor is not None:
            assert getattr(batch, name) is tensor


# Runs ------------------------------------------------------------------------------------------


def test_one_block_is_ppo_to_the_bit() -> None:
    plain = {"num_envs": 8, "horizon": 10, "hidden": (16,), "total_steps": 320, "seed": 3}
    runs = [
        train(TAG, PPOConfig(**plain, **options, device="cpu", progress=False))  # type: ignore[arg-type]
        for options in (
            {},
            {"blocks": 1, "block_embedding": 5, "off_policy_coef": 3, "off_policy_clip": "one"},
        )
    ]
    assert runs[0].curve == runs[1].curve
    for name, network in runs[0].policy.networks.items():
        assert type(network) is ppo.ActorCritic
        other = runs[1].policy.networks[name].state_dict()
        assert all(torch.equal(x, other[n]) for n, x in network.state_dict().items())


def test_returns_are_the_leader_s_and_the_followers_beside_them() -> None:
    """Counted again from the rewards in the rollouts."""
    trainer = ppo.Trainer(TAG, small(horizon=13, stagger=False), {"max_cycles": 5})
    running = {g: np.zeros((12, x.rollout.rewards.shape[2])) for g, x in trainer.learners.items()}
    for _ in range(2):
        episodes, returns, losses = trainer.iterate()
        for group, learner in trainer.learners.items():
            counted: list[list[float]] = [[], [], []]
            for t in range(13):
                running[group] += learner.rollout.rewards[t].numpy()
                for env in np.flatnonzero(learner.rollout.done[t].numpy()):
                    counted[env % 3].append(running[group][env].mean())
                    running[group][env] = 0
            means = [np.mean(block) for block in counted]
            assert episodes == len(counted[0])
            assert returns[group] == pytest.approx(means[0], rel=1e-5, abs=1e-5)
            for block in (1, 2):
                found = losses[f"{group}/return_{block}"]
                assert found == pytest.approx(means[block], rel=1e-5, abs=1e-5)
            assert f"{group}/return_0" not in losses


OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"off_policy_clip": "one"}, {"off_policy_coef": 0}, {"normalize_observations": True},
    {"central_critic": True, "scale_rewards": True, "value_clip": 0.2}, {"separate": True},
    {"optimizer": "lamb", "target_kl": 0.1},
    {"normalize_observations": True, "central_critic": True, "separate": True},
)  # fmt: skip


@pytest.mark.parametrize("kind", GAMES)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_resume_is_exact(options: dict[str, Any], kind: str, tmp_path: Path) -> None:
    env_id, params, _ = GAMES[kind]
    path = str(tmp_path / "run.pt")
    whole = train(env_id, small(**options), params)
    assert len(whole.curve) == 4

    def stop(update: ppo.Update) -> None:
        if update.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        config = small(checkpoint=path, checkpoint_interval=1, **options)
        train(env_id, config, params, on_update=stop)
    assert resume(path).curve == whole.curve
    played = evaluate(whole.policy, episodes=20)
    assert evaluate(Policy.load(path), episodes=20) == played


def test_observations_are_normalised_without_their_labels() -> None:
    trainer = ppo.Trainer(TAG, small(normalize_observations=True, central_critic=True), {})
    trainer.iterate()
    for learner in trainer.learners.values():
        moments, n = learner.network.moments, learner.rollout.obs_size
        assert moments is not None
        rows = learner.rollout.observations[:-1, ..., :n].flatten(0, 2).double()
        torch.testing.assert_close(moments.mean, rows.mean(0))
        torch.testing.assert_close(moments.variance(), rows.var(0, correction=0))
    trainer.collect()
    assert trainer.states is not None
    assert trainer.states.states.shape == (11, 12, 3 * 16 + 14)
    seen = [x.network.see(x.rollout.observations).flatten(2) for x in trainer.learners.values()]
    assert torch.equal(trainer.states.states, torch.cat(seen, 2))


@pytest.mark.parametrize("kind", GAMES)
def test_the_policy_is_the_leader_s(kind: str, tmp_path: Path) -> None:
    env_id, params, group = GAMES[kind]
    path = tmp_path / "run.pt"
    trained = train(env_id, small(checkpoint=str(path), total_steps=960), params).policy
    policy = Policy.load(path)
    network: Any = policy.networks[group]
    assert torch.equal(network.rows, trained.networks[group].rows)  # type: ignore[arg-type]
    agent = gpu_zoo.make_vec(env_id, 1, **params).group[group].agents[0]
    rows = np.random.default_rng(0).normal(size=(100, network.obs_size)).astype(np.float32)
    found = policy.act({agent: rows}, deterministic=True)[agent]
    by_block = [
        network.head.to_env(network.best(torch.tensor(np.c_[rows, np.full(100, b, np.float32)])))
        for b in range(3)
    ]
    assert np.array_equal(found, by_block[0].detach().numpy())
    assert not np.array_equal(found, by_block[2].detach().numpy())
    with torch.no_grad():
        exported = Acting(network)(torch.tensor(rows))
    np.testing.assert_allclose(exported[0], found, atol=1e-6)
    if kind == "Box":
        std = network.head.log_std[0].exp().expand(100, -1)
        torch.testing.assert_close(exported[2], std)


def test_what_blocks_need_is_named() -> None:
    for changes, message in (
        ({"num_envs": 13}, "num_envs=13: expected a multiple of blocks = 3"),
        ({"recurrent": True}, "recurrent=True: expected False, as there are blocks"),
        (
            {"off_policy_clip": "one", "target_kl": 0.1},
            "target_kl=0.1: expected None, as off_policy_clip is 'one', or None",
        ),
        ({"off_policy_clip": "two"}, "off_policy_clip='two': expected 'mu' or 'one'"),
        ({"pool": 2}, "pool=2: expected 0, as there are blocks"),
        ({"blocks": 0}, "blocks=0: expected an int of at least 1"),
    ):
        with pytest.raises(ValueError) as caught:
            small(**changes)
        assert str(caught.value) == message
    replace(small(num_envs=13, blocks=1, recurrent=True), target_kl=0.1)
    rollout = ppo.Trainer(TAG, small(), {}).learners["agent"].rollout  # as if of one process of two
    with pytest.raises(ValueError, match="num_envs: 12 a process, expected a multiple of"):
        sapg.label(rollout, 5)


@pytest.mark.slow
@pytest.mark.parametrize("clip", ["mu", "one"])
@pytest.mark.parametrize("continuous", [False, True])
def test_the_leader_learns(clip: str, continuous: bool) -> None:
    """Random play makes -26.3 on average, see test_ppo.py."""
    config = small(
        total_steps=200_000, num_envs=64, horizon=25, minibatches=4, epochs=4, hidden=(64, 64),
        learning_rate=3e-3, gamma=0.95, entropy_coef=0.01, blocks=4, off_policy_clip=clip,
    )  # fmt: skip
    params = {"continuous_actions": continuous}
    policy = train(SPREAD, config, params).policy
    trained, random = evaluate(policy, episodes=1000), evaluate(None, SPREAD, 1000)
    assert trained.mean.mean > random.mean.mean + 5
