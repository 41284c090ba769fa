"""Tianshou trains on a batch of single agents, and on our AEC environments as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import hazard
import numpy as np
import pytest
import torch
from elsewhere import as_if_on_a_gpu

pytest.importorskip("tianshou")

from tianshou.algorithm import DQN, PPO
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, PettingZooEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

import gpu_zoo
from gpu_zoo.errors import InvalidAction, InvalidSeed, ResetNeeded
from gpu_zoo.spec import Actions
from gpu_zoo.wrappers.pettingzoo import drop_in
from gpu_zoo.wrappers.tianshou import TianshouVectorEnv

ALONE = replace(
    hazard.HAZARD, id="test/hazard_alone_v0", groups=(replace(hazard.HAZARD.groups[0], count=1),)
)


def alone(num_envs: int = 3, **params: Any) -> TianshouVectorEnv:
    return TianshouVectorEnv(
        gpu_zoo.VectorEnv(ALONE, num_envs, autoreset_mode="disabled", **params)
    )


def cartpole(num_envs: int) -> TianshouVectorEnv:
    return TianshouVectorEnv(
        gpu_zoo.make_vec("classic/cartpole_v1", num_envs, autoreset_mode="disabled")
    )


def test_ends_are_told_apart_and_last_observations_are_the_episodes_own() -> None:
    for params, expected in (
        ({"first_end": 4, "max_cycles": 9}, (True, False)),
        ({"first_end": 0, "max_cycles": 4}, (False, True)),
        ({"first_end": 4, "max_cycles": 4}, (True, True)),
    ):
        env = alone(2, **params)
        observations, _ = env.reset()
        assert observations.tolist() == [[0, 0, 1, 0]] * 2
        for t in range(1, 5):
            observations, rewards, terminated, truncated, infos = env.step(np.ones(2, int))
            assert observations.tolist() == [[0, t, 1, 1]] * 2 and rewards.tolist() == [t, t]
            flags = expected if t == 4 else (False, False)
            assert [terminated.tolist(), truncated.tolist()] == [[f] * 2 for f in flags]
            assert [info["env_id"] for info in infos] == [0, 1]
        with pytest.raises(ResetNeeded):
            env.step(np.ones(2, int))
        env.reset([1])
        with pytest.raises(ResetNeeded):
            env.step(np.ones(2, int))
        with pytest.raises(ResetNeeded, match="environment 0 is over"):
            env.step(np.ones(1, int), [0])
        observations, *_ = env.step(np.ones(1, int), [1])
        assert observations.tolist() == [[0, 1, 2, 1]]


def test_only_those_that_are_named_move_and_in_their_order() -> None:
    env = alone(first_end=0, max_cycles=5)
    env.reset()
    env.step(np.zeros(3, int))
    observations, *_, infos = env.step(np.array([2, 1]), [2, 0])
    assert observations.tolist() == [[0, 2, 1, 2], [0, 2, 1, 1]]
    assert [info["env_id"] for info in infos] == [2, 0]
    observations, *_ = env.step(np.zeros(3, int))
    assert observations[:, 1].tolist() == [3, 2, 3]
    observations, _ = env.reset(1)
    assert observations.tolist() == [[0, 0, 2, 0]]


def test_seeds_attributes_and_what_is_wrong() -> None:
    env, batch = cartpole(3), gpu_zoo.make_vec("classic/cartpole_v1", 3)
    env.seed(5)
    observations, _ = env.reset()
    np.testing.assert_array_equal(observations, batch.reset(seed=5)[0][batch.agents[0]])
    assert (env.reset()[0] != observations).any(1).all()
    assert len(env) == 3 and env.action_space == [batch.single_action_space(batch.agents[0])] * 3
    (name, *_) = (n for n, p in batch.spec.params.items() if p.at == "launch")
    assert env.get_env_attr(name, [0, 1]) == [batch.params[name]] * 2
    with pytest.raises(AttributeError, match="no attribute 'wheels'"):
        env.get_env_attr("wheels")
    with pytest.raises(InvalidAction, match=r"shape \(2,\), expected \(3,\)"):
        env.step(np.zeros(2, int))
    with pytest.raises(ValueError, match="batch: 3 agents, expected one"):
        TianshouVectorEnv(gpu_zoo.make_vec("mpe/simple_spread_v3", 2, autoreset_mode="disabled"))
    with pytest.raises(ValueError, match="autoreset_mode=SAME_STEP, expected DISABLED"):
        TianshouVectorEnv(gpu_zoo.make_vec("mpe/simple_v3", 2))
    env.close()
    env.close()


def test_numbers_of_environments_are_checked() -> None:
    env = alone()
    env.reset()
    for ids, error, message in (
        ([0, 0, 0], ValueError, "expected each environment once"),
        ([-1], IndexError, "expected numbers from 0 to 2"),
        (3, IndexError, "id=3: expected numbers from 0 to 2"),
        ([0.0], TypeError, "expected numbers of environments"),
        ([True, False, True], TypeError, "expected numbers of environments"),
    ):
        with pytest.raises(error, match=message):
            env.step(np.ones(np.size(ids), int), ids)
        with pytest.raises(error, match=message):
            env.reset(ids)
        with pytest.raises(error, match=message):
            env.set_env_attr("max_cycles", 5, ids)
    with pytest.raises(InvalidAction, match=r"action: shape \(3,\), expected \(1,\)"):
        env.step(np.ones(3, int), [0])
    observations, *_ = env.step(np.ones(3, int))
    assert observations.tolist() == [[0, 1, 1, 1]] * 3
    assert len(env.step(np.zeros(0, int), [])[0]) == 0


def alone_with(actions: Actions, entry: str, mask: str, folder: Path) -> TianshouVectorEnv:
    """:data:`ALONE` with other actions, of which it observes one entry, and another mask."""
    text = Path(ALONE.kernel).read_text().replace("e.action(i)", entry)
    kernel = folder / "alone_with.cu"
    kernel.write_text(text.replace("mask[2] = (e.time + i) % 2 == 0;", mask))
    group = replace(ALONE.groups[0], action_mask=bool(mask), actions=(actions,))
    spec = replace(ALONE, id="test/alone_with_v0", kernel=str(kernel), groups=(group,))
    return TianshouVectorEnv(gpu_zoo.VectorEnv(spec, 3, autoreset_mode="disabled"))


PAIR = Actions(("turn", "go"), choices=(2, 3))
ONE_TO_TWO = Actions(("go",), box=(1.0, 2.0))


@pytest.mark.parametrize(
    ("actions", "entry", "mask", "good", "bad"),
    [
        (ALONE.groups[0].actions[0], "e.action(i)", "mask[0] = false;", 2, 0),
        (PAIR, "e.action(i, 1)", "mask[0] = mask[2] = mask[3] = false;", [1, 2], [1, 0]),
        (ONE_TO_TWO, "(int)e.control(i, 0)", "", [2.0], [0.0]),
    ],
)
def test_who_is_not_asked_is_given_an_action_that_is_allowed(
    actions: Actions, entry: str, mask: str, good: Any, bad: Any, tmp_path: Path
) -> None:
    env = alone_with(actions, entry, mask, tmp_path)
    env.reset()
    observations, *_ = env.step([good], [1])
    assert observations.tolist() == [[0, 1, 1, 2]]
    assert env.batch.get_state()["steps"].tolist() == [0, 1, 0]
    with pytest.raises(InvalidAction, match=r"\['agent_0'\]\[1\]: .*0.*, expected"):
        env.step([bad], [1])


def test_seeds_may_be_numpys_and_are_checked() -> None:
    env = cartpole(3)
    first = []
    for seed in (3, np.int64(3), [3, 4, 5], np.arange(3, 6)):
        assert env.seed(seed) == [[3], [4], [5]]
        first.append(env.reset()[0])
        np.testing.assert_array_equal(first[0], first[-1])
    assert env.seed() == [None] * 3
    for seed in (True, 2.5, [1, 2], "3"):
        with pytest.raises(InvalidSeed, match=r"^seed"):
            env.seed(seed)


def test_actions_of_any_kind_of_number_and_no_other_thing() -> None:
    box = TianshouVectorEnv(
        gpu_zoo.make_vec("mpe/simple_v3", 2, autoreset_mode="disabled", continuous_actions=True)
    )
    box.reset()
    actions = torch.full((2, 5), 0.5)
    for given in (actions, actions.requires_grad_(), actions.bfloat16(), actions.tolist()):
        box.step(given)
        assert box.batch.group["agent"].actions.tolist() == [[[0.5] * 5]] * 2
    for wrong in (np.zeros((2, 5), bool), np.zeros((2, 5), complex)):
        with pytest.raises(InvalidAction, match=f"action: dtype {wrong.dtype}, expected floats"):
            box.step(wrong)
    with pytest.raises(InvalidAction, match="action: dtype float64, expected integers"):
        cartpole(2).step([0.0, 1.0])
    with pytest.raises(InvalidAction, match="Tensor of float32 on meta, expected an array of num"):
        box.step(torch.zeros(2, 5, device="meta"))


def test_actions_are_sent_to_the_batchs_device() -> None:
    env = alone()
    env.reset()
    as_if_on_a_gpu(env.batch)
    with pytest.raises(InvalidAction, match="on another device"):
        env.batch.step({"agent_0": np.ones(3, int)})
    for actions in (np.ones(3, int), torch.ones(3, dtype=torch.int64)):
        observations, *_ = env.step(actions)
        assert observations[:, 3].tolist() == [1, 1, 1]


def test_a_parameter_of_some_is_checked_as_one_of_all() -> None:
    env = alone()
    for value in (30.9, "30", True):
        with pytest.raises(TypeError, match=f"max_cycles={value!r}: expected int of at least 1"):
            env.set_env_attr("max_cycles", value, [0])
    env.set_env_attr("max_cycles", 30, [0])
    assert env.get_env_attr("max_cycles") == [30, 10, 10]
    with pytest.raises(KeyError, match="'wheels': expected one of max_cycles"):
        env.set_env_attr("wheels", 4, [0])


def test_a_collector_stores_whole_episodes() -> None:
    env = alone(first_end=0, max_cycles=4)
    buffer = VectorReplayBuffer(300, 3)
    net = Net(state_shape=(4,), action_shape=3, hidden_sizes=[8])
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space[0])
    collector = Collector(policy, env, buffer)
    collector.reset()
    assert collector.collect(n_episode=7).n_collected_episodes == 7
    stored, _ = buffer.sample(0)
    np.testing.assert_array_equal(stored.obs_next[:, 1], stored.obs[:, 1] + 1)
    np.testing.assert_array_equal(stored.truncated, stored.obs[:, 1] == 3)
    assert not stored.terminated.any() and len(stored) == 28


def test_ppo_learns_to_balance() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    env = cartpole(32)
    net = Net(state_shape=(4,), hidden_sizes=[64, 64])
    actor = DiscreteActor(preprocess_net=net, action_shape=2)
    critic = DiscreteCritic(preprocess_net=Net(state_shape=(4,), hidden_sizes=[64, 64]))
    policy = ProbabilisticActorPolicy(
        actor=actor, dist_fn=lambda logits: torch.distributions.Categorical(logits=logits),
        action_space=env.action_space[0], action_scaling=False,
    )  # fmt: skip
    algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=2e-3))
    collector = Collector(policy, env, VectorReplayBuffer(1024, 32))
    collector.reset()
    before = collector.collect(n_episode=64).returns_stat.mean
    assert before < 60
    collector.reset()
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector, test_collector=None, max_epochs=1,
            epoch_num_steps=24_000, update_step_num_repetitions=4, batch_size=256,
            collection_step_num_env_steps=1024, show_progress=False,
        )
    )  # fmt: skip
    collector.reset()
    assert collector.collect(n_episode=64).returns_stat.mean > before + 40


def test_several_agents_train_on_the_aec_environment() -> None:
    """Tianshou's own wrapper and manager, over our drop-in, unchanged."""
    torch.manual_seed(0)
    face = drop_in(gpu_zoo.spec("mpe/simple_spread_v3"))
    envs = DummyVectorEnv([lambda: PettingZooEnv(face.env(max_cycles=5)) for _ in range(2)])
    env = PettingZooEnv(face.env(max_cycles=5))
    size, count = env.observation_space.shape, int(env.action_space.n)
    algorithms = [
        DQN(
            policy=DiscreteQLearningPolicy(
                model=Net(state_shape=size, action_shape=count, hidden_sizes=[16]),
                action_space=env.action_space,
            ),
            optim=AdamOptimizerFactory(lr=1e-2),
        )
        for _ in env.agents
    ]
    manager = MultiAgentOffPolicyAlgorithm(algorithms=algorithms, env=env)
    before = [p.detach().clone() for p in manager.parameters()]
    collector = Collector(manager.policy, envs, VectorReplayBuffer(600, 2))
    collector.reset()
    manager.run_training(
        OffPolicyTrainerParams(
            training_collector=collector, test_collector=None, max_epochs=1, epoch_num_steps=120,
            collection_step_num_env_steps=30, batch_size=16, show_progress=False,
        )
    )  # fmt: skip
    assert any((a != b).any() for a, b in zip(before, manager.parameters(), strict=True))
