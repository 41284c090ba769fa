"""Agents that leave the game before its end: what comes after teaches nothing.

The toy, stay_or_go.cu, shows agents that have left what others would be glad to see.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toys import STAY_OR_GO, STAY_STEPS

import gpu_zoo
from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines import loop, ppo
from gpu_zoo.baselines.gae import advantages
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.ppo import PPOConfig, evaluate, resume, train
from gpu_zoo.baselines.rollout import normalise
from gpu_zoo.registry import ENVIRONMENTS


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 32, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (16,),
        "device": "cpu", "progress": False, "total_steps": 960,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(ENVIRONMENTS, STAY_OR_GO.id, STAY_OR_GO)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_advantages_worked_by_hand() -> None:
    """One lane, gamma 1/2, lambda 1/2: the agent leaves in step 1, the next episode is step 3 on.

    deltas: 0: 1 + 4/2 - 2 = 1     1: 3 - 4 = -1 (nothing follows)     2: out of the game
            3: 2 + 8/2 - 6 = 0     4: 5 + 6/2 - 8 = 0
    """
    rewards = torch.tensor([1.0, 3.0, 0.0, 2.0, 5.0])
    values = torch.tensor([2.0, 4.0, 77.0, 6.0, 8.0])
    following = torch.tensor([4.0, torch.nan, torch.nan, 8.0, 6.0])
    terminated = torch.tensor([False, True, True, False, False])
    found = advantages(rewards, values, following, terminated, terminated, 0.5, 0.5)
    active = torch.tensor([True, True, False, True, True])
    assert found[active].tolist() == [1 + 0.25 * -1, -1.0, 0.0, 0.0]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_only_active_samples_are_normalised(share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    advantage = torch.randn(20, 7, 3, generator=generator) * 3 + 2
    active = torch.rand(20, 7, 3, generator=generator) < share
    found = normalise(torch.where(active, advantage, torch.nan), active)
    chosen = advantage[active]
    wanted = (chosen - chosen.mean()) / (chosen.std() + 1e-8) if len(chosen) else chosen
    torch.testing.assert_close(found[active], wanted)
    assert bool((found[~active] == 0).all())


def test_the_loss_is_that_of_the_active_samples_alone() -> None:
    generator = torch.Generator().manual_seed(3)
    network = ActorCritic(5, STAY_OR_GO.groups[0].actions[0].space(), (8,), generator)
    n = 100
    actions = torch.stack([torch.randint(0, k, (n,), generator=generator) for k in (2, 3)], -1)
    numbers = [torch.randn(n, generator=generator) for _ in range(4)]
    weights = (torch.arange(n) % 3 > 0).float()
    batch = learning.Batch(torch.randn(n, 5, generator=generator), actions, *numbers, weights)
    rows = weights.nonzero().squeeze(1)
    garbage = batch[torch.arange(n)]  # a copy
    for name, tensor in vars(garbage).items():
        if tensor is not None and name != "weights":
            tensor[weights == 0] = 1
    config = small(value_clip=0.3)
    results = [gradient(network, b, config) for b in (batch, garbage, batch[rows])]
    assert torch.equal(results[0], results[1])
    torch.testing.assert_close(results[0], results[2])
    nobody = gradient(network, dataclasses.replace(batch, weights=weights * 0), config)
    assert bool((nobody == 0).all())


def test_masks_are_not_read_by_the_host() -> None:
    """Meta tensors hold no numbers: what needs one, such as the length of a selection, fails."""
    space = STAY_OR_GO.groups[0].actions[0].space()
    network = ActorCritic(5, space, (8,), torch.Generator().manual_seed(0)).to("meta")
    one = torch.zeros(100, device="meta")
    actions = torch.zeros(100, 2, dtype=torch.int64, device="meta")
    normalised = normalise(one, one > 0)
    batch = learning.Batch(one[:, None].expand(-1, 5), actions, one, one, normalised, one, one)
    total, _ = learning.loss(network, batch, small())
    total.backward()  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError):
        one[one > 0]


def gradient(network: ActorCritic, batch: learning.Batch, config: PPOConfig) -> torch.Tensor:
    """Loss, metrics and the gradient in one."""
    network.zero_grad()
    total, metrics = learning.loss(network, batch, config)
    total.backward()  # type: ignore[no-untyped-call]
    parts = [p.grad.flatten() for p in network.parameters() if p.grad is not None]
    return torch.cat([total.detach()[None], metrics, *parts])


def test_rollouts_note_who_was_in_the_game() -> None:
    """Played again from the noted actions, by hand."""
    trainer = ppo.Trainer(STAY_OR_GO.id, small(stagger=False, gamma=0.9, gae_lambda=1.0), {})
    moods = trainer.env.get_state()["mood"].clone()
    trainer.collect()
    learner = trainer.learners["agent"]
    rollout = learner.rollout
    with torch.no_grad():
        batch = learner.prepare()
    shape = (10, 32, 2)
    returns, weights = (x.reshape(shape) for x in (batch.returns, batch.weights))
    left_early = 0
    for env, agent in np.ndindex(32, 2):
        left = [t for t in range(STAY_STEPS) if rollout.actions[t, env, agent, 0] == 1]
        over = int(rollout.done[:, env].long().argmax())  # the first episode's last step
        last = min([*left, over])
        wanted = [float(t <= last) for t in range(over + 1)]
        assert weights[: over + 1, env, agent].tolist() == wanted
        assert weights[over + 1, env, agent] == 1  # the next episode has everyone again
        left_early += last < over
        if rollout.terminated[last, env, agent]:  # then returns are sums of rewards alone
            total = 0.0
            for t in reversed(range(last + 1)):
                total = float(rollout.rewards[t, env, agent]) + 0.9 * total
                assert float(returns[t, env, agent]) == pytest.approx(total, abs=1e-5)
                assert rollout.observations[t, env, agent, 0] == moods[env, agent]
        assert bool((rollout.observations[last + 1 : over + 1, env, agent] == 0).all())
    assert left_early > 10


def test_only_those_in_the_game_are_measured() -> None:
    trainer = ppo.Trainer(STAY_OR_GO.id, small(normalize_observations=True), {})
    trainer.iterate()
    learner = trainer.learners["agent"]
    active, moments = learner.rollout.active, learner.network.moments
    assert moments is not None
    rows = learner.rollout.observations[:-1][active].double()
    torch.testing.assert_close(moments.mean, rows.mean(0))
    torch.testing.assert_close(moments.variance(), rows.var(0, correction=0))
    assert float(moments.count) == int(active.sum()) < active.numel()


def test_those_who_left_are_zeros_in_the_global_state() -> None:
    trainer = ppo.Trainer(STAY_OR_GO.id, small(central_critic=True), {})
    trainer.collect()
    assert trainer.states is not None
    rollout, done = trainer.learners["agent"].rollout, trainer.learners["agent"].rollout.done
    states = trainer.states.states[:-1].reshape(10, 32, 2, 5)
    assert torch.equal(states, rollout.observations[:-1])
    assert bool((states[~rollout.active] == 0).all())
    final, gone = trainer.states.final_states.reshape(10, 32, 2, 5)[done], rollout.terminated[done]
    assert bool((final[gone] == 0).all())
    assert torch.equal(final[~gone], rollout.final_observations[done][~gone])
    assert int((gone.sum(1) == 1).sum()) > 0


EVERYTHING = dict.fromkeys(
    ("normalize_observations", "scale_rewards", "central_critic", "separate", "recurrent"), True
)
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"normalize_observations": True, "scale_rewards": True}, {"central_critic": True},
    {"separate": True}, {"recurrent": True}, {"recurrent": True, "central_critic": True},
    EVERYTHING,
)  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_what_those_who_left_see_and_do_changes_nothing(options: dict[str, Any]) -> None:
    """The same weights, to the bit, if their observations are not numbers."""
    runs = []
    for spoil in (False, True):
        trainer = ppo.Trainer(STAY_OR_GO.id, small(**options), {})
        group, step = trainer.env.group["agent"], trainer.env.step
        spoiled = 0

        def spy(group: Any = group, step: Any = step, spoil: bool = spoil) -> Any:
            nonlocal spoiled
            result = step()
            if spoil:
                group.observations[~group.active] = torch.nan
                stale = group.terminations & ~result[4]["_episode"].unsqueeze(-1)
                group.final_observations[stale] = torch.nan
                spoiled += int((~group.active).sum())
            return result

        trainer.env.step = spy  # type: ignore[method-assign, assignment]
        result = loop.run(trainer)
        runs.append((result.curve, torch.nn.ModuleDict(result.policy.networks).state_dict()))
        assert (spoiled > 100) is spoil
    (curve, weights), (other_curve, other_weights) = runs
    assert curve == other_curve
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)


def test_it_learns_when_to_leave() -> None:
    """A good mood is worth a point a step, a bad one none: 3 on average, of 6 steps."""
    config = small(
        total_steps=60_000, num_envs=128, horizon=12, minibatches=4, epochs=4,
        learning_rate=5e-3, gamma=0.5, entropy_coef=0.0, hidden=(32,),
    )  # fmt: skip
    policy = train(STAY_OR_GO.id, config).policy
    played = evaluate(policy, episodes=2000, deterministic=True)
    assert played.mean.mean == pytest.approx(STAY_STEPS / 2, abs=0.2)
    observations = {  # mood, time, colour
        "agent_0": np.array([[1, 0, 0, 0, 1], [1, 0.5, 1, 0, 0], [-1, 0, 1, 0, 0]], np.float32)
    }
    actions = policy.act(observations, deterministic=True)["agent_0"]
    assert actions[:, 0].tolist() == [0, 0, 1]
    assert actions[:2, 1].tolist() == [2, 0]
    with torch.no_grad():
        value = policy.networks["agent"].value(torch.tensor(observations["agent_0"]))
    # 1 + 1/2 + 1/4 + ... The decoy is worth nothing, and looks like the first row.
    torch.testing.assert_close(value, torch.tensor([2.0, 2.0, 0.0]), atol=0.2, rtol=0)


def test_a_policy_acts_for_those_who_are_left() -> None:
    """In a drop-in: whoever has left is neither asked nor missed."""
    policy = train(STAY_OR_GO.id, small()).policy
    env = gpu_zoo.make(STAY_OR_GO.id)
    alone = 0
    for episode in range(20):
        observations, _ = env.reset(seed=episode)
        while env.agents:
            actions = policy.act(observations)
            assert set(actions) == set(env.agents)
            assert all(env.action_space(agent).contains(a) for agent, a in actions.items())
            observations, *_ = env.step(actions)
            observations = {agent: observations[agent] for agent in env.agents}
            alone += len(env.agents) == 1
    assert alone > 5


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["plain", "everything"])
def test_resume_is_exact_with_agents_out_of_the_game(
    options: dict[str, Any], tmp_path: Path
) -> None:
    path = str(tmp_path / "run.pt")
    whole = train(STAY_OR_GO.id, small(total_steps=1280, **options))

    def stop(update: ppo.Update) -> None:
        if update.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            STAY_OR_GO.id,
            small(total_steps=1280, checkpoint=path, checkpoint_interval=1, **options),
            on_update=stop,
        )
    state = ppo.checkpoint.load(path)["env"]
    assert not bool(state["active/agent"].all())
    assert resume(path).curve == whole.curve
    played = evaluate(whole.policy, episodes=50)
    assert evaluate(ppo.Policy.load(path), episodes=50) == played


def test_random_play_is_uniform() -> None:
    """An agent that leaves with 1/2 a step stays 1/2 + 1/4 + ... = 63/64 steps."""
    stayed = 63 / 64
    wanted = 0.5 * stayed / 3 - 0.5 * stayed
    found = evaluate(None, STAY_OR_GO.id, 20_000).mean
    assert found.mean == pytest.approx(wanted, abs=5 * found.stderr)
    assert found.stderr < 0.02
    assert gpu_zoo.spec(STAY_OR_GO.id) is STAY_OR_GO
