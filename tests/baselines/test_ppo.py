"""The bundled PPO: estimates against textbook loops, exact resume, and that it learns."""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import gpu_zoo
from gpu_zoo.baselines import checkpoint, evaluation, loop, ppo
from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines.checkpoint import CheckpointError
from gpu_zoo.baselines.gae import advantages
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.ppo import Policy, PPOConfig, default_config, evaluate, resume, train

SPREAD, TAG = "mpe/simple_spread_v3", "mpe/simple_tag_v3"
SMALL: dict[str, Any] = {
    "num_envs": 16, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (16,),
    "device": "cpu", "progress": False,
}  # fmt: skip


def small(**changes: Any) -> PPOConfig:
    return PPOConfig(**{"total_steps": 800, **SMALL, **changes})


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Threads that wait for each other on a busy machine are slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {
        f"{group}/{name}": tensor
        for group, network in policy.networks.items()
        for name, tensor in network.state_dict().items()
    }


# Advantages ------------------------------------------------------------------------------------


def textbook_gae(
    rewards: Any, values: Any, next_values: Any, terminated: Any, truncated: Any,
    gamma: float, lam: float,
) -> Any:  # fmt: skip
    """The defining sum, for one lane, in float64: no recursion to share a mistake with."""
    steps = len(rewards)
    delta = [
        rewards[t] + (0.0 if terminated[t] else gamma * next_values[t]) - values[t]
        for t in range(steps)
    ]
    result = np.zeros(steps)
    for t in range(steps):
        for k in range(t, steps):
            result[t] += (gamma * lam) ** (k - t) * delta[k]
            if terminated[k] or truncated[k]:
                break
    return result


@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_the_textbook_sum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (23, 4, 3)
    rewards, values, following = (rng.normal(size=shape) for _ in range(3))
    terminated, truncated = (rng.random(shape) < 0.15 for _ in range(2))
    wanted = np.zeros(shape)
    for lane in np.ndindex(shape[1:]):
        at = (slice(None), *lane)
        wanted[at] = textbook_gae(
            rewards[at], values[at], following[at], terminated[at], truncated[at], 0.97, 0.9
        )
    for dtype, error in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
        tensors = [torch.tensor(a, dtype=dtype) for a in (rewards, values, following)]
        ours = advantages(
            *tensors, torch.tensor(terminated), torch.tensor(terminated | truncated), 0.97, 0.9
        )
        np.testing.assert_allclose(ours, wanted, atol=error, rtol=error)


def filled(env_params: dict[str, Any], **changes: Any) -> tuple[ppo.Trainer, learning.Batch]:
    """A trainer that has collected one rollout, and the samples made from it."""
    trainer = ppo.Trainer(SPREAD, small(**changes), env_params)
    trainer.collect()
    with torch.no_grad():
        return trainer, trainer.learners["agent"].prepare()


def test_truncation_bootstraps_from_the_final_observation() -> None:
    """The final observation is found a second time, by an environment that does not reset."""
    trainer, batch = filled({"max_cycles": 4}, stagger=False, gamma=0.9, horizon=4, num_envs=5)
    learner = trainer.learners["agent"]
    rollout, network = learner.rollout, learner.network
    env = gpu_zoo.make_vec(SPREAD, 5, array="torch", autoreset_mode="disabled", max_cycles=4)
    env.reset(seed=trainer.config.seed)
    for t in range(4):
        env.group["agent"].actions.copy_(rollout.actions[t])
        env.step()
    assert bool(env.group["agent"].truncations.all())
    assert bool(rollout.truncated[-1].all()) and not bool(rollout.truncated[:-1].any())
    final = env.group["agent"].observations
    assert not torch.equal(final, rollout.observations[-1])  # that is the next episode's first
    with torch.no_grad():
        wanted = rollout.rewards[-1] + 0.9 * network.value(final)
        wrong = rollout.rewards[-1] + 0.9 * rollout.values[-1]
    returns = batch.returns.reshape(4, 5, 3)[-1]
    torch.testing.assert_close(returns, wanted, atol=1e-5, rtol=1e-5)
    assert float((wrong - wanted).abs().max()) > 1e-2  # so the case tells them apart


def test_nothing_flows_over_the_border_between_episodes() -> None:
    """Samples of the first episode do not change when the second one's rewards do."""
    trainer, before = filled({"max_cycles": 4}, stagger=False, horizon=8, num_envs=5)
    learner = trainer.learners["agent"]
    learner.rollout.rewards[4:] += 100.0
    with torch.no_grad():
        after = learner.prepare()
    old, new = (b.returns.reshape(8, 5, 3) for b in (before, after))
    assert torch.equal(old[:4], new[:4])
    assert not torch.equal(old[4:], new[4:])


def test_nothing_follows_termination() -> None:
    """An agent set onto its landmark terminates the episode: the return is the reward alone."""
    trainer = ppo.Trainer(SPREAD, small(horizon=1), {"N": 1, "terminate_on_success": True})
    trainer.env.set_state({"pos": trainer.env.get_state()["landmark"]})
    trainer.collect()
    learner = trainer.learners["agent"]
    assert bool(learner.rollout.terminated.all())
    with torch.no_grad():
        returns = learner.prepare().returns
    torch.testing.assert_close(returns, learner.rollout.rewards.flatten(), atol=1e-6, rtol=0)


def test_an_agent_that_ends_before_the_others_keeps_its_own_future() -> None:
    """Truncated, but its environment goes on: the next observation is still its own."""
    trainer, _ = filled({}, stagger=False, horizon=3, gamma=0.9)
    learner = trainer.learners["agent"]
    rollout = learner.rollout
    rollout.truncated[1, :, 0] = True
    with torch.no_grad():
        returns = learner.prepare().returns.reshape(3, 16, 3)
    wanted = rollout.rewards[1, :, 0] + 0.9 * rollout.values[2, :, 0]
    torch.testing.assert_close(returns[1, :, 0], wanted, atol=1e-5, rtol=1e-5)


def test_samples_line_up() -> None:
    """Row by row, log-probabilities and values are those of the row's own observation."""
    trainer, batch = filled({})
    network = trainer.learners["agent"].network
    assert len(batch.returns) == 10 * 16 * 3
    with torch.no_grad():
        log_probs, _ = network.log_prob_and_entropy(batch.observations, batch.actions)
        values = network.value(batch.observations)
    torch.testing.assert_close(log_probs, batch.log_probs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(values, batch.values, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        following = network.value(trainer.env.group["agent"].observations)
    rewards, done = (getattr(trainer.learners["agent"].rollout, n)[-1] for n in ("rewards", "done"))
    last = batch.returns.reshape(10, 16, 3)[-1]
    wanted = rewards + trainer.config.gamma * following
    torch.testing.assert_close(last[~done], wanted[~done], atol=1e-5, rtol=1e-5)
    assert abs(float(batch.advantages.mean())) < 1e-5
    assert float(batch.advantages.std()) == pytest.approx(1, abs=1e-4)


# Distributions and loss ------------------------------------------------------------------------


def network_for(space: spaces.Space[Any]) -> ActorCritic:
    network = ActorCritic(6, space, (8,), torch.Generator().manual_seed(0))
    with torch.no_grad():  # far from the uniform start
        for parameter in network.actor.parameters():
            parameter.mul_(3).add_(0.1)
        network.actor[-1].weight.mul_(50)
    return network


def test_discrete_actions_are_drawn_from_the_softmax() -> None:
    network = network_for(spaces.Discrete(5))
    observation = torch.linspace(-1, 1, 6)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        actions, log_probs = network.act(observation.expand(200_000, 6), generator)
        reference = torch.distributions.Categorical(logits=network.actor(observation))
        entropy = network.log_prob_and_entropy(observation[None], actions[:1])[1]
    drawn = torch.bincount(actions, minlength=5) / len(actions)
    assert float(reference.probs.max()) > 0.3  # not uniform, or the test shows little
    torch.testing.assert_close(drawn, reference.probs, atol=0.005, rtol=0)
    torch.testing.assert_close(log_probs, reference.log_prob(actions))
    torch.testing.assert_close(entropy[0], reference.entropy())
    assert int(network.best(observation)) == int(reference.probs.argmax())


def test_actions_of_several_components_are_drawn_independently() -> None:
    counts = [2, 5, 3]
    network = network_for(spaces.MultiDiscrete(counts))
    observation, n = torch.linspace(-1, 1, 6), 200_000
    with torch.no_grad():
        observations = observation.expand(n, 6)
        actions, log_probs = network.act(observations, torch.Generator().manual_seed(1))
        evaluated, entropy = network.log_prob_and_entropy(observations, actions)
        logits = network.actor(observation).split(counts)
    references = [torch.distributions.Categorical(logits=own) for own in logits]
    assert (actions.shape, actions.dtype) == ((n, 3), torch.int64)
    assert any(float(reference.probs.max()) > 0.5 for reference in references)
    wanted = sum(ref.log_prob(actions[:, k]) for k, ref in enumerate(references))
    torch.testing.assert_close(log_probs, wanted)
    torch.testing.assert_close(evaluated, wanted)
    torch.testing.assert_close(entropy[0], torch.stack([r.entropy() for r in references]).sum())
    first, second, third = (reference.probs for reference in references)
    joint = n * torch.einsum("i,j,k->ijk", first, second, third).flatten()
    drawn = torch.bincount(actions @ torch.tensor([15, 3, 1]), minlength=30)
    assert float(((drawn - joint).square() / joint).sum()) < 58  # chi-square, 29: p = 0.001
    assert network.best(observation).tolist() == [int(r.probs.argmax()) for r in references]
    assert network.head.to_env(actions) is actions


def test_other_action_spaces_are_refused() -> None:
    for space in (spaces.MultiDiscrete([[2, 3]]), spaces.Box(0, 1, (2, 2)), spaces.MultiBinary(3)):
        with pytest.raises(TypeError, match="expected Discrete, or MultiDiscrete or Box with one"):
            network_for(space)


def test_continuous_actions_are_a_clipped_gaussian() -> None:
    network = network_for(spaces.Box(0.0, 1.0, (5,), np.float32))
    observations = torch.linspace(-1, 1, 6).expand(50_000, 6)
    with torch.no_grad():
        actions, log_probs = network.act(observations, torch.Generator().manual_seed(1))
        mean = network.actor(observations[0]) + 0.5
        reference = torch.distributions.Normal(mean, torch.full((5,), 0.5))
        evaluated, entropy = network.log_prob_and_entropy(observations, actions)
    torch.testing.assert_close(actions.mean(0), mean, atol=0.02, rtol=0)
    torch.testing.assert_close(actions.std(0), torch.full((5,), 0.5), atol=0.02, rtol=0)
    torch.testing.assert_close(log_probs, reference.log_prob(actions).sum(-1))
    torch.testing.assert_close(evaluated, log_probs, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(entropy[0], reference.entropy().sum())
    assert bool(((actions < 0) | (actions > 1)).any())
    assert torch.equal(network.head.to_env(actions), actions.clamp(0, 1))
    torch.testing.assert_close(network.best(observations)[0], mean)


def test_loss_is_the_paper_s() -> None:
    network = network_for(spaces.Discrete(5))
    g = torch.Generator().manual_seed(2)
    n = 400
    observations = torch.randn(n, 6, generator=g)
    actions = torch.randint(0, 5, (n,), generator=g)
    old, values, advantage, returns = (torch.randn(n, generator=g) for _ in range(4))
    old = -1.6 + 0.3 * old
    batch = learning.Batch(observations, actions, old, values, advantage, returns, torch.ones(n))
    config = small(clip=0.1, value_clip=0.2, entropy_coef=0.05, value_coef=0.7)
    total, metrics = learning.loss(network, batch, config)
    reference = torch.distributions.Categorical(logits=network.actor(observations))
    policy, value = 0.0, 0.0
    new, now = reference.log_prob(actions).detach(), network.value(observations).detach()
    for i in range(n):
        r = math.exp(float(new[i] - old[i]))
        a, cut = float(advantage[i]), min(max(r, 0.9), 1.1)
        policy -= min(r * a, cut * a) / n
        v, v0, target = float(now[i]), float(values[i]), float(returns[i])
        near = v0 + min(max(v - v0, -0.2), 0.2)
        value += max((v - target) ** 2, (near - target) ** 2) / n
    entropy = float(reference.entropy().mean().detach())
    assert total.item() == pytest.approx(policy + 0.7 * value - 0.05 * entropy, abs=1e-4)
    assert metrics.tolist()[:3] == pytest.approx([policy, value, entropy], abs=1e-4)
    free, _ = learning.loss(network, batch, dataclasses.replace(config, value_clip=None))
    assert free.item() < total.item()


def test_continuous_actions_train() -> None:
    trainer = ppo.Trainer(SPREAD, small(total_steps=320), {"continuous_actions": True})
    seen: list[torch.Tensor] = []
    step = trainer.env.step
    buffer = trainer.env.group["agent"].actions

    def spy() -> Any:
        seen.append(buffer.clone())
        return step()

    trainer.env.step = spy  # type: ignore[method-assign, assignment]
    before = {k: v.clone() for k, v in trainer.learners["agent"].network.state_dict().items()}
    result = loop.run(trainer)
    given, kept = torch.stack(seen[-10:]), trainer.learners["agent"].rollout.actions
    assert bool(((kept < 0) | (kept > 1)).any())
    assert torch.equal(given, kept.clamp(0, 1))
    after = result.policy.networks["agent"].state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before)
    assert any(name.endswith("log_std") for name in before)


# Runs ------------------------------------------------------------------------------------------


def test_the_seed_decides_everything() -> None:
    first, second = (train(SPREAD, small()) for _ in range(2))
    assert first.curve == second.curve
    assert any(update.returns for update in first.curve)
    ours, theirs = weights(first.policy), weights(second.policy)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    other = train(SPREAD, small(seed=1))
    assert other.curve != first.curve
    starts = [ppo.Trainer(SPREAD, small(seed=s), {}).env.get_state()["landmark"] for s in (0, 1)]
    common = (starts[0][:, None] == starts[1][None]).flatten(2).all(-1)
    assert not bool(common.any()), "two seeds share environments"


class Stop(Exception):
    """A run cut short."""


def stop_at_5(update: ppo.Update) -> None:
    if update.index == 5:
        raise Stop


@pytest.mark.parametrize("env_id", [SPREAD, TAG])
def test_resume_is_exact(env_id: str, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    whole = train(env_id, small(total_steps=1120))
    assert len(whole.curve) == 7

    saving = small(total_steps=1120, checkpoint=str(path), checkpoint_interval=3)
    with pytest.raises(Stop):
        train(env_id, saving, on_update=stop_at_5)
    assert len(checkpoint.load(path)["curve"]) == 3
    torch.manual_seed(99)  # the global generator plays no part
    resumed = resume(path)
    assert resumed.curve == whole.curve
    ours, theirs = weights(resumed.policy), weights(whole.policy)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert len(checkpoint.load(path)["curve"]) == 7  # the end is saved, interval or not
    loaded = weights(Policy.load(path))
    assert all(torch.equal(loaded[name], theirs[name]) for name in theirs)
    assert resume(path).curve == whole.curve  # nothing left to do


def test_all_groups_learn_at_once() -> None:
    trainer = ppo.Trainer(TAG, small(total_steps=800), {})
    before = {g: [p.clone() for p in x.network.parameters()] for g, x in trainer.learners.items()}
    result = loop.run(trainer)
    assert set(before) == {"adversary", "agent"}
    for group, old in before.items():
        new = list(result.policy.networks[group].parameters())
        assert all(not torch.equal(a, b) for a, b in zip(old, new, strict=True)), group
        assert f"{group}/policy_loss" in result.curve[-1].losses
    assert set(result.curve[-1].returns) == {"adversary", "agent"}
    sizes = {g: n.actor[0].in_features for g, n in result.policy.networks.items()}
    assert sizes == {"adversary": 16, "agent": 14}


def test_returns_are_those_of_whole_episodes() -> None:
    """Counted again from the rewards in the rollouts, two iterations of them."""
    trainer = ppo.Trainer(TAG, small(horizon=13, num_envs=6), {"max_cycles": 5})
    steps = trainer.env.get_state()["steps"]
    assert steps.tolist() == [0, 0, 1, 2, 3, 4]
    running = {g: np.zeros((6, x.rollout.rewards.shape[2])) for g, x in trainer.learners.items()}
    started = steps.numpy() < 0  # none: the first episodes are short
    for _ in range(2):
        episodes, returns, _ = trainer.iterate()
        counted: dict[str, list[float]] = {g: [] for g in running}
        for group, learner in trainer.learners.items():
            whole = started.copy()
            for t in range(13):
                running[group] += learner.rollout.rewards[t].numpy()
                for env in np.flatnonzero(learner.rollout.done[t].numpy()):
                    if whole[env]:
                        counted[group].append(running[group][env].mean())
                    running[group][env] = 0
                    whole[env] = True
        started = whole
        assert episodes == len(counted["agent"]) > 0
        for group, values in counted.items():
            assert returns[group] == pytest.approx(np.mean(values), rel=1e-5, abs=1e-5)
    assert bool(started.all())


def test_no_episode_no_return() -> None:
    update = train(SPREAD, small(total_steps=160)).curve[0]
    assert (update.episodes, update.returns) == (0, {})


def test_threads_are_the_configuration_s_and_put_back() -> None:
    seen: list[int] = []
    torch.set_num_threads(2)
    train(
        SPREAD,
        small(total_steps=160, threads=1),
        on_update=lambda _: seen.append(torch.get_num_threads()),
    )
    assert (seen, torch.get_num_threads()) == ([1], 2)


@pytest.mark.parametrize("anneal", [True, False])
def test_learning_rate(anneal: bool) -> None:
    trainer = ppo.Trainer(SPREAD, small(anneal=anneal, learning_rate=0.008), {})
    seen: list[float] = []
    optimizer = trainer.learners["agent"].optimizer
    loop.run(trainer, lambda _: seen.append(optimizer.param_groups[0]["lr"]))
    left = [1, 0.8, 0.6, 0.4, 0.2] if anneal else [1] * 5
    assert seen == pytest.approx([0.008 * x for x in left])


@pytest.mark.parametrize("end", [None, 0.0, 0.02])
def test_entropy_coefficient(end: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the loss is called with, and that it weighs the entropy by it."""
    seen: list[float] = []
    real = learning.Learner.gradient

    def spy(learner: learning.Learner, batch: Any, rows: Any, config: PPOConfig) -> Any:
        total, metrics = learning.loss(learner.network, batch[rows], config)
        policy, value, entropy = metrics[:3].tolist()
        seen.append((policy + 0.5 * value - total.item()) / entropy)
        return real(learner, batch, rows, config)

    monkeypatch.setattr(learning.Learner, "gradient", spy)
    config = small(entropy_coef=0.1, entropy_coef_end=end, epochs=1, minibatches=1)
    curve = train(SPREAD, config).curve
    aim = 0.1 if end is None else end
    wanted = [0.1 + (aim - 0.1) * share for share in (0, 0.2, 0.4, 0.6, 0.8)]
    assert seen == pytest.approx(wanted, abs=1e-5)
    if end is None:
        assert curve == train(SPREAD, dataclasses.replace(config, entropy_coef_end=0.1)).curve


def test_target_kl_ends_the_passes_early() -> None:
    def gradient_steps(target_kl: float | None) -> int:
        config = small(total_steps=160, epochs=6, target_kl=target_kl, learning_rate=0.01)
        trainer = ppo.Trainer(SPREAD, config, {})
        loop.run(trainer)
        state = trainer.learners["agent"].optimizer.state_dict()["state"]
        return int(state[0]["step"])

    assert gradient_steps(None) == 12
    assert gradient_steps(1e-9) == 2


def test_it_learns() -> None:
    """Random play makes -26.3 on average; 100 episodes' mean is off by 0.8 (one deviation)."""
    config = small(
        total_steps=100_000, num_envs=64, horizon=25, minibatches=4, epochs=4, hidden=(64, 64),
        learning_rate=3e-3, gamma=0.95, entropy_coef=0.0,
    )  # fmt: skip
    policy = train(SPREAD, config).policy
    trained, random = evaluate(policy, episodes=1000), evaluate(None, SPREAD, 1000)
    assert random.mean.mean == pytest.approx(-26.3, abs=1.2)
    assert trained.mean.mean > random.mean.mean + 5


@pytest.mark.slow
def test_tuned_spread_reaches_its_level() -> None:
    policy = train(SPREAD, default_config(SPREAD, device="cpu", progress=False)).policy
    assert evaluate(policy, episodes=1000).mean.mean > -10.5


@pytest.mark.slow
def test_tuned_adversaries_learn_to_catch() -> None:
    policy = train(TAG, default_config(TAG, device="cpu", progress=False)).policy
    caught = evaluate(policy, episodes=1000).groups["adversary"].mean
    assert caught > evaluate(None, TAG, 1000).groups["adversary"].mean + 10


# Checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["writing", "replacing"])
def test_a_crash_while_saving_leaves_the_old_file(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.pt"
    checkpoint.save(path, {"value": torch.arange(3)})
    real = torch.save

    def half(content: Any, file: Any) -> None:
        real(content, file)
        file.seek(0)
        file.truncate(100)
        raise OSError("disk full")

    def refuse(source: Any, target: Any) -> None:
        raise OSError("disk full")

    if where == "writing":
        monkeypatch.setattr(torch, "save", half)
    else:
        monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(path, {"value": torch.arange(4)})
    assert checkpoint.load(path)["value"].tolist() == [0, 1, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


class Malicious:
    """Would run code when unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        return (Path.touch, (self.proof,))


def test_a_broken_or_foreign_file_is_one_line(tmp_path: Path) -> None:
    good = tmp_path / "good.pt"
    train(SPREAD, small(total_steps=160, checkpoint=str(good)))
    whole = good.read_bytes()
    files = {
        "cut.pt": whole[: len(whole) // 2],
        "flipped.pt": whole[:300] + bytes(64) + whole[364:],
        "empty.pt": b"",
        "text.pt": b"hello",
        "pickle.pt": pickle.dumps(Malicious(tmp_path / "proof")),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    torch.save({"format": "something else"}, tmp_path / "other.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    for name in (*files, "other.pt", "list.pt", "missing.pt"):
        for read in (resume, Policy.load):
            with pytest.raises(CheckpointError) as caught:
                read(tmp_path / name)
            message = str(caught.value)
            assert name in message and "\n" not in message and len(message) < 250
    assert not (tmp_path / "proof").exists()


# Evaluation and acting -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tag_policy() -> Policy:
    torch.set_num_threads(1)
    return train(TAG, small(total_steps=1600, learning_rate=0.01)).policy


def test_evaluation_is_a_hand_count(tag_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_PARALLEL", 3)
    params = {"terminate_on_success": True, "max_cycles": 60}  # episodes of unequal length
    ours = evaluate(tag_policy, TAG, 8, env_params=params, deterministic=True, seed=18)
    episodes, lengths = [], set()
    for i, count in enumerate((3, 3, 2)):
        env = gpu_zoo.make_vec(TAG, 1, **params)
        observations, _ = env.reset(seed=18 + i)
        for _ in range(count):
            total, steps, over = dict.fromkeys(env.agents, 0.0), 0, False
            while not over:
                single = {agent: o[0] for agent, o in observations.items()}
                actions = tag_policy.act(single, deterministic=True)
                batched = {agent: np.array([a]) for agent, a in actions.items()}
                observations, rewards, terminated, truncated, _ = env.step(batched)
                for agent, reward in rewards.items():
                    total[agent] += float(reward[0])
                steps += 1
                over = bool(terminated["agent_0"][0] or truncated["agent_0"][0])
            episodes.append(total)
            lengths.add(steps)
    assert ours.episodes == len(episodes) == 8
    assert len(lengths) > 1
    for agent, score in ours.agents.items():
        returns = [e[agent] for e in episodes]
        assert score.mean == pytest.approx(np.mean(returns), rel=1e-5, abs=1e-5)
        error = np.std(returns, ddof=1) / math.sqrt(8)
        assert score.stderr == pytest.approx(error, rel=1e-5, abs=1e-5)
    adversaries = [np.mean([e[f"adversary_{i}"] for i in range(3)]) for e in episodes]
    assert ours.groups["adversary"].mean == pytest.approx(np.mean(adversaries), abs=1e-5)
    assert ours.mean.mean == pytest.approx(np.mean([list(e.values()) for e in episodes]), abs=1e-5)


def test_evaluation_repeats_by_seed(tag_policy: Policy) -> None:
    first, again, other = (evaluate(tag_policy, episodes=20, seed=s) for s in (1, 1, 2))
    assert first == again != other
    with pytest.raises(ValueError, match="episodes=0: expected"):
        evaluate(tag_policy, episodes=0)


def test_random_play_in_a_box() -> None:
    params = {"continuous_actions": True}
    assert evaluate(None, SPREAD, 50, env_params=params).mean.mean < -10


def test_a_policy_plays_in_mpe2(tag_policy: Policy) -> None:
    simple_spread_v3 = pytest.importorskip("mpe2.simple_spread_v3")
    simple_tag_v3 = pytest.importorskip("mpe2.simple_tag_v3")
    env = simple_tag_v3.parallel_env()
    observations, _ = env.reset(seed=0)
    steps = 0
    while env.agents:
        actions = tag_policy.act(observations)
        assert all(env.action_space(a).contains(action) for a, action in actions.items())
        observations, _, _, _, _ = env.step(actions)
        steps += 1
    assert steps == 25
    continuous = train(SPREAD, small(total_steps=160), {"continuous_actions": True}).policy
    env = simple_spread_v3.parallel_env(continuous_actions=True)
    observations, _ = env.reset(seed=0)
    for _ in range(5):
        actions = continuous.act(observations)
        assert all(env.action_space(a).contains(action) for a, action in actions.items())
        observations, _, _, _, _ = env.step(actions)


def test_equal_seeds_are_equal_episodes_in_mpe2(tag_policy: Policy) -> None:
    simple_tag_v3 = pytest.importorskip("mpe2.simple_tag_v3")
    env = simple_tag_v3.parallel_env()
    totals = dict.fromkeys(env.possible_agents, 0.0)
    for episode in range(10):
        observations, _ = env.reset(seed=100 + episode)
        while env.agents:
            actions = tag_policy.act(observations, deterministic=True)
            observations, rewards, _, _, _ = env.step(actions)
            for agent, reward in rewards.items():
                totals[agent] += float(reward) / 10
    reference = {"numerics": "reference"}
    ours = evaluate(tag_policy, TAG, 10, env_params=reference, deterministic=True, seed=100)
    assert {agent: score.mean for agent, score in ours.agents.items()} == pytest.approx(totals)
    assert len(set(totals.values())) > 1


def test_acting_on_a_batch_is_acting_on_each(tag_policy: Policy) -> None:
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(30, 16)).astype(np.float32)
    together = tag_policy.act({"adversary_1": batch}, deterministic=True)["adversary_1"]
    each = [tag_policy.act({"adversary_1": o}, deterministic=True)["adversary_1"] for o in batch]
    assert together.tolist() == each
    assert len(set(each)) > 1


# Configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"total_steps": 0}, {"num_envs": 2.5}, {"horizon": "8"}, {"epochs": True},
        {"minibatches": 161}, {"learning_rate": 0.0}, {"learning_rate": math.nan},
        {"clip": -0.1}, {"gamma": 1.01}, {"gae_lambda": -0.1}, {"entropy_coef": -1},
        {"value_coef": math.inf}, {"max_grad_norm": 0}, {"target_kl": 0}, {"value_clip": -1},
        {"hidden": (64, 0)}, {"hidden": ("64",)}, {"hidden": 64}, {"seed": -1},
        {"checkpoint_interval": 0}, {"threads": 0},
        {"anneal": 1}, {"progress": "no"}, {"entropy_coef_end": -0.1},
        {"entropy_coef_end": math.nan}, {"normalize_observations": 1}, {"scale_rewards": None},
        {"central_critic": "yes"}, {"separate": 0}, {"recurrent": 1}, {"device": None},
        {"checkpoint": Path("here.pt")}, {"log_dir": 1}, {"optimizer": "sgd"},
        {"learning_rate_batch": 0}, {"warmup": 1.5},
        {"frozen": "agent"}, {"frozen": {"agent": None}}, {"frozen": {1: "random"}},
        {"pool": -1}, {"pool": True}, {"pool_interval": 0}, {"pool_share": 0.0},
        {"pool_share": 1.0}, {"pool_share": math.nan},
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


def test_what_a_memory_needs_is_named() -> None:
    for changes, name in (({"hidden": ()}, "hidden"), ({"minibatches": 17}, "minibatches")):
        small(**changes)
        with pytest.raises(ValueError, match=f"^{name}=.*: expected .*recurrent"):
            small(recurrent=True, **changes)


def test_tensorboard_gets_the_curve_without_gaps(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path, logs = tmp_path / "run.pt", tmp_path / "logs"
    config = small(total_steps=1120, checkpoint=str(path), checkpoint_interval=3, log_dir=str(logs))
    with pytest.raises(Stop):
        train(SPREAD, config, on_update=stop_at_5)
    moved = path.rename(tmp_path / "moved.pt")
    curve = resume(moved).curve
    assert len(checkpoint.load(moved)["curve"]) == len(curve) == 7
    assert not path.exists()
    events = EventAccumulator(str(logs)).Reload()
    logged = [(e.step, e.value) for e in events.Scalars("agent/return")]
    assert [step for step, _ in logged] == [u.env_steps for u in curve if u.returns]
    assert [v for _, v in logged] == pytest.approx([u.returns["agent"] for u in curve if u.returns])
    assert len(events.Scalars("agent/value_loss")) == 7


@pytest.mark.parametrize("rows", [(10, 1, False), (6, 3, True)])
def test_there_are_as_many_gradient_steps_as_minibatches(
    rows: tuple[int, int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they do not divide the rows."""
    num_envs, horizon, recurrent = rows
    sizes: list[int] = []
    real = learning.Learner.gradient

    def spy(learner: learning.Learner, batch: Any, rows: Any, config: PPOConfig) -> Any:
        sizes.append(len(rows))
        return real(learner, batch, rows, config)

    monkeypatch.setattr(learning.Learner, "gradient", spy)
    train("mpe/simple_v3", small(
        num_envs=num_envs, horizon=horizon, total_steps=num_envs * horizon, epochs=1,
        minibatches=4, recurrent=recurrent,
    ))  # fmt: skip
    assert sizes == ([2, 2, 1, 1] if recurrent else [3, 3, 2, 2])
