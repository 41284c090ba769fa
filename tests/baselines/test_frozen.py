"""Groups that are not trained: who plays them, what is kept of them, and exact resume."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gpu_zoo
from gpu_zoo.baselines import checkpoint, ddpg, ppo
from gpu_zoo.baselines.policies import load_policy
from gpu_zoo.baselines.ppo import Policy, PPOConfig, evaluate, resume, train

TAG, PLANE = "mpe/simple_tag_v3", "warpdrive/tag_continuous_v0"
BOX = {"continuous_actions": True}


def small(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "num_envs": 16, "horizon": 10, "epochs": 2, "minibatches": 2, "hidden": (16,),
        "device": "cpu", "progress": False, "total_steps": 800, "learning_rate": 0.01,
    }  # fmt: skip
    return PPOConfig(**{**settings, **changes})


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """Threads that wait for each other on a busy machine are slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checkpoints of policies for continuous tag."""
    folder = tmp_path_factory.mktemp("policies")
    for name, changes in {
        "shared": {}, "separate": {"separate": True}, "recurrent": {"recurrent": True},
        "normalized": {"normalize_observations": True},
    }.items():  # fmt: skip
        train(TAG, small(checkpoint=str(folder / name), **changes), BOX)
    config = ddpg.DDPGConfig(
        total_steps=64, num_envs=8, horizon=4, hidden=(8,), device="cpu", progress=False,
        capacity=500, batch_size=8, checkpoint=str(folder / "ddpg"),
    )  # fmt: skip
    ddpg.train(TAG, config, BOX)
    return {path.name: str(path) for path in folder.iterdir()}


def watched(trainer: ppo.Trainer, group: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a group sees and does in the steps to come."""
    step, seen, buffers = trainer.env.step, list[Any](), trainer.env.group[group]

    def spy() -> Any:
        seen.append((buffers.observations.clone(), buffers.actions.clone()))
        return step()

    trainer.env.step = spy  # type: ignore[method-assign, assignment]
    return seen


def quiet(trainer: ppo.Trainer) -> None:
    """Let frozen Gaussians draw their means."""
    for player in trainer.players:
        if (log_std := getattr(player.network.head, "log_std", None)) is not None:  # type: ignore[union-attr]
            log_std.fill_(-40)


@pytest.mark.parametrize("who", ["shared", "separate", "recurrent", "normalized", "ddpg"])
@pytest.mark.parametrize("group", ["adversary", "agent"])
def test_a_checkpoint_plays(files: dict[str, str], who: str, group: str) -> None:
    """Every action is that of the policy loaded from the file, and nothing of it changes."""
    trainer = ppo.Trainer(TAG, small(frozen={group: files[who]}), {**BOX, "max_cycles": 7})
    quiet(trainer)
    steps = watched(trainer, group)
    trainer.iterate()
    policy = load_policy(files[who])
    (learner,) = trainer.learners.values()
    done = learner.rollout.done
    assert 5 < int(done.sum()) < done.numel() / 2
    memories: dict[str, Any] = {}
    agents = trainer.env.groups[group]
    for t, (observations, actions) in enumerate(steps):
        for i, agent in enumerate(agents):
            network = policy.networks[agent if who == "separate" else group]
            memory = memories.setdefault(agent, network.new_memory(16))
            with torch.no_grad():
                own = None if memory is None else memory[:, 0]
                wanted = network.head.to_env(network.best(observations[:, i], own))
            torch.testing.assert_close(actions[:, i], wanted, atol=1e-6, rtol=0)
            if memory is not None:
                memory[done[t]] = 0
    assert len({tuple(a.flatten().tolist()) for _, a in steps}) == 10


def test_at_random_is_uniform() -> None:
    trainer = ppo.Trainer(TAG, small(frozen={"adversary": "random"}, horizon=100), {})
    steps = watched(trainer, "adversary")
    trainer.collect()
    counts = torch.stack([actions for _, actions in steps]).flatten().bincount(minlength=5)
    assert int(counts.sum()) == 4800 and len(counts) == 5
    assert float(((counts - 960).square() / 960).sum()) < 18.5  # chi-square, 4: p = 0.001


def test_only_the_others_learn_and_are_reported(files: dict[str, str]) -> None:
    result = train(TAG, small(frozen={"adversary": files["separate"]}), BOX)
    assert set(result.curve[-1].returns) == {"agent"}
    assert {name.split("/")[0] for name in result.curve[-1].losses} == {"agent"}
    names = ["agent", "adversary_0", "adversary_1", "adversary_2"]
    assert list(result.policy.networks) == names
    frozen = Policy.load(files["separate"])
    for name in names[1:]:
        ours, theirs = (p.networks[name].state_dict() for p in (result.policy, frozen))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("group", ["adversary", "agent"])
def test_central_critics_see_frozen_groups_too(separate: bool, group: str) -> None:
    config = small(frozen={group: "random"}, central_critic=True, separate=separate)
    trainer = ppo.Trainer(TAG, config, {"max_cycles": 4})
    step, seen = trainer.env.step, list[torch.Tensor]()

    def spy() -> Any:
        seen.append(trainer.env.state().clone())
        return step()

    trainer.env.step = spy  # type: ignore[method-assign, assignment]
    trainer.collect()
    assert trainer.states is not None
    assert torch.equal(trainer.states.states, torch.stack([*seen, trainer.env.state()]))
    done = next(iter(trainer.learners.values())).rollout.done
    assert int(done.sum()) > 20
    # Once in its last step, what an episode ends with is what an environment without resets shows.
    for t, env in done.nonzero().tolist()[:5]:
        first = 0 if group == "adversary" else 48
        own = slice(first, first + (48 if group == "adversary" else 14))
        final = trainer.states.final_states[t, env, own]
        assert not torch.equal(final, trainer.states.states[t + 1, env, own])
    last = done[-1]
    groups = trainer.env.group.values()
    final = torch.cat([g.final_observations.flatten(1) for g in groups], 1)
    assert bool(last.any())
    assert torch.equal(trainer.states.final_states[-1][last], final[last])


def test_agents_that_left_are_zeros_in_the_state() -> None:
    params = {
        "num_taggers": 4, "num_runners": 6, "grid_length": 3.0, "tagging_distance": 0.3,
        "episode_length": 30,
    }  # fmt: skip
    config = small(frozen={"runner": "random"}, central_critic=True, horizon=40)
    trainer = ppo.Trainer(PLANE, config, params)
    runners, states = trainer.env.group["runner"], []
    step = trainer.env.step

    def spy() -> Any:
        states.append(torch.where(runners.active.unsqueeze(-1), runners.observations, 0.0))
        return step()

    trainer.env.step = spy  # type: ignore[method-assign, assignment]
    trainer.collect()
    wanted = torch.stack(states).flatten(2)
    assert trainer.states is not None
    size = wanted.shape[-1]
    assert torch.equal(trainer.states.states[:-1, :, -size:], wanted)
    assert bool((wanted.unflatten(-1, (6, -1)) == 0).all(-1).any())  # some left


@pytest.mark.parametrize("who", ["random", "recurrent", "ddpg"])
def test_resume_is_exact_without_the_other_file(
    who: str, files: dict[str, str], tmp_path: Path
) -> None:
    other, path = tmp_path / "other", tmp_path / "run.pt"
    if who != "random":
        other.write_bytes(Path(files[who]).read_bytes())
    named = who if who == "random" else str(other)
    config = small(frozen={"adversary": named}, recurrent=True)
    whole = train(TAG, config, BOX)

    def stop(update: ppo.Update) -> None:
        if update.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        saving = dataclasses.replace(config, checkpoint=str(path), checkpoint_interval=1)
        train(TAG, saving, BOX, on_update=stop)
    other.unlink(missing_ok=True)
    assert resume(path).curve == whole.curve
    settings: dict[str, Any] = {"episodes": 20, "seed": 3}
    loaded = evaluate(Policy.load(path), **settings)
    assert loaded == evaluate(whole.policy, **settings)
    # What plays there is what was trained against.
    opponent: Any = "random" if who == "random" else load_policy(files[who])
    assert loaded == evaluate(whole.policy, opponents={"adversary": opponent}, **settings)


def test_a_run_against_a_run_against_a_checkpoint(files: dict[str, str], tmp_path: Path) -> None:
    first, second = str(tmp_path / "first.pt"), str(tmp_path / "second.pt")
    config = small(frozen={"adversary": files["ddpg"]}, checkpoint=first)
    train(TAG, config, BOX)
    config = small(frozen={"adversary": first}, checkpoint=second)
    train(TAG, config, BOX)
    ours = Policy.load(second).networks["adversary"].state_dict()
    theirs = load_policy(files["ddpg"]).networks["adversary"].state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert set(checkpoint.load(second)["frozen"]["adversary"]["learners"]["adversary"]) == {"actor"}
    against = train(TAG, small(frozen={"agent": first}), BOX).policy  # whom that run has trained
    agent = Policy.load(first).networks["agent"].state_dict()
    ours = against.networks["agent"].state_dict()
    assert all(torch.equal(ours[key], agent[key]) for key in agent)


def test_a_group_frozen_as_random_is_played_at_random(tmp_path: Path) -> None:
    path = str(tmp_path / "run.pt")
    for params, space in (({}, "Discrete"), (BOX, "Box")):
        train(TAG, small(frozen={"adversary": "random"}, checkpoint=path), params)
        policy = Policy.load(path)
        assert set(policy.networks) == {"agent"}
        env = gpu_zoo.make(TAG, **params)
        own = env.action_space("adversary_1")
        assert space in str(own)
        single = policy.act({"adversary_1": np.zeros(16)}, deterministic=True)["adversary_1"]
        assert own.contains(single)
        batch = policy.act({"adversary_1": np.zeros((3000, 16))})["adversary_1"]
        if params:
            assert batch.shape == (3000, 5) and batch.dtype == np.float32
            np.testing.assert_allclose(batch.mean(0), 0.5, atol=0.03)
            np.testing.assert_allclose(batch.std(0), 12**-0.5, atol=0.02)
        else:
            counts = np.bincount(batch, minlength=5)
            assert ((counts - 600) ** 2 / 600).sum() < 18.5  # chi-square, 4: p = 0.001


def test_what_does_not_fit_is_named(files: dict[str, str], tmp_path: Path) -> None:
    both = {"adversary": "random", "agent": "random"}
    for frozen, says in (
        ({"runner": "random"}, "frozen: 'runner' is no group, expected adversary or agent"),
        (both, f"frozen={both}: expected a group to be left that learns"),
        ({"agent": "nowhere.pt"}, "nowhere.pt: no such file"),
        ({"agent": files["shared"]}, "and Box(0, 1, (5,), float32), expected agent with 14 numb"),
    ):
        with pytest.raises(ValueError) as caught:
            train(TAG, small(frozen=frozen))
        assert says in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"frozen['agent']: {files['shared']} was made for agent")


@pytest.mark.slow
def test_it_learns() -> None:
    """Random adversaries catch random agents for 4.0 on average."""
    config = PPOConfig(
        total_steps=200_000, num_envs=128, horizon=25, learning_rate=3e-3, gamma=0.95, device="cpu",
        progress=False, frozen={"agent": "random"},
    )  # fmt: skip
    policy = train(TAG, config).policy
    random = evaluate(None, TAG, 1000).groups["adversary"].mean
    assert evaluate(policy, episodes=1000).groups["adversary"].mean > random + 8
