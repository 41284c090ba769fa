"""skrl trains on a batch: what it is told of ends, what it bootstraps from, whether it learns."""

from __future__ import annotations

import copy
from typing import Any

import hazard
import pytest
import torch

pytest.importorskip("skrl")

from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model
from skrl.multi_agents.torch.ippo import IPPO, IPPO_CFG
from skrl.multi_agents.torch.mappo import MAPPO, MAPPO_CFG
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed

import gpu_zoo
from gpu_zoo.errors import InvalidAction, ResetNeeded
from gpu_zoo.wrappers.lanes import chance
from gpu_zoo.wrappers.skrl import LastObservations, LivingMemory, SkrlEnv, SkrlMultiAgentEnv

NOTHING_WRITTEN = {"write_interval": 0, "checkpoint_interval": 0}


def perceptron(inputs: int, outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, 64), torch.nn.Tanh(), torch.nn.Linear(64, outputs)
    )


class Policy(CategoricalMixin, Model):
    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        self.net = perceptron(self.num_observations, self.num_actions)

    def compute(self, inputs: Any, role: str) -> Any:
        return self.net(inputs["observations"]), {}


class Gaussian(GaussianMixin, Model):
    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_actions=True)
        self.net = perceptron(self.num_observations, self.num_actions)
        self.log_std = torch.nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs: Any, role: str) -> Any:
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Value(DeterministicMixin, Model):
    """Sees the state where there is one."""

    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = perceptron(self.num_states or self.num_observations, 1)

    def compute(self, inputs: Any, role: str) -> Any:
        return self.net(inputs["states" if self.num_states else "observations"]), {}


class TruePPO(LastObservations, PPO):
    pass


class TrueMAPPO(LastObservations, MAPPO):
    pass


class TrueIPPO(LastObservations, IPPO):
    pass


def batch_of(env_id: str, num_envs: int, **kwargs: Any) -> gpu_zoo.VectorEnv:
    return gpu_zoo.make_vec(env_id, num_envs, array="torch", **kwargs)


def hazards(num_envs: int = 2, spec: Any = hazard.HAZARD, **params: Any) -> gpu_zoo.VectorEnv:
    return gpu_zoo.VectorEnv(spec, num_envs, array="torch", **params)


def joint(env: SkrlMultiAgentEnv, kind: Any, rollouts: int, memory: Any = None, **cfg: Any) -> Any:
    """An algorithm that trains every agent of ``env``."""
    agents = env.possible_agents
    central = issubclass(kind, MAPPO)
    nothing = {agent: {} for agent in agents}
    settings = (MAPPO_CFG if central else IPPO_CFG)(
        rollouts=rollouts, learning_rate_scheduler_kwargs=nothing,
        observation_preprocessor_kwargs=nothing, state_preprocessor_kwargs=nothing,
        value_preprocessor_kwargs=nothing, experiment=NOTHING_WRITTEN, **cfg,
    )  # fmt: skip
    models, memories = {}, {}
    for agent in agents:
        spaces = {
            "observation_space": env.observation_space(agent),
            "state_space": env.state_space(agent) if central else None,
            "action_space": env.action_space(agent),
        }
        models[agent] = {"policy": Policy(**spaces), "value": Value(**spaces)}
        sizes = {"memory_size": rollouts, "num_envs": env.num_envs}
        memories[agent] = memory(agent, sizes) if memory else RandomMemory(**sizes)
    return kind(
        possible_agents=agents, models=models, memories=memories,
        observation_spaces=env.observation_spaces, state_spaces=env.state_spaces,
        action_spaces=env.action_spaces, device=env.device, cfg=settings,
    )  # fmt: skip


def single(
    env: SkrlEnv, rollouts: int, memory: Any = None, policy: Any = Policy, **cfg: Any
) -> Any:
    spaces = {
        "observation_space": env.observation_space,
        "state_space": env.state_space,
        "action_space": env.action_space,
    }
    return TruePPO(
        models={"policy": policy(**spaces), "value": Value(**spaces)},
        memory=RandomMemory(memory_size=rollouts, num_envs=env.num_envs)
        if memory is None  # an empty one is false
        else memory,
        device=env.device,
        cfg=PPO_CFG(rollouts=rollouts, experiment=NOTHING_WRITTEN, **cfg),
        **spaces,
    )


def train(env: Any, algorithm: Any, timesteps: int) -> None:
    cfg = {
        "timesteps": timesteps, "headless": True, "disable_progressbar": True,
        "close_environment_at_exit": False,
    }  # fmt: skip
    SequentialTrainer(env=env, agents=algorithm, cfg=cfg).train()


# What it is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_every_agent_ends_once_and_with_its_own_last_step(params: dict[str, Any]) -> None:
    env, ends = SkrlMultiAgentEnv(hazards(**params)), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    env.reset()
    for t in range(2 * length):
        now, episode = t % length + 1, t // length + 1
        actions = {agent: torch.ones(2, 1, dtype=torch.int64) for agent in env.agents}
        observations, rewards, terminated, truncated, infos = env.step(actions)
        last = infos.get("last_observations", observations)
        assert ("last_observations" in infos) == (now == length)
        for i, agent in enumerate(env.agents):
            step, by_rules, by_limit = ends[i]
            assert terminated[agent].tolist() == [[by_rules and now == step]] * 2
            assert truncated[agent].tolist() == [[by_limit and not by_rules and now == step]] * 2
            assert rewards[agent].tolist() == [[100 * i + now if now <= step else 0]] * 2
            assert env.acting[agent].tolist() == [now <= step] * 2
            if now == step:
                assert last[agent].tolist() == [[i, now, episode, 1]] * 2
            if now == length:
                assert observations[agent].tolist() == [[i, 0, episode + 1, 0]] * 2


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
@pytest.mark.parametrize("kind", [TrueIPPO, TrueMAPPO])
def test_values_are_bootstrapped_exactly_where_an_episode_was_cut(
    kind: Any, params: dict[str, Any]
) -> None:
    env, ends = SkrlMultiAgentEnv(hazards(**params)), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    agent_by_name = joint(env, kind, length, time_limit_bootstrap=True)
    before = copy.deepcopy(agent_by_name.values)
    train(env, agent_by_name, length)
    times = torch.arange(1, length + 1)
    for i, agent in enumerate(env.agents):
        step, by_rules, by_limit = ends[i]
        stored = agent_by_name.memories[agent].tensors
        seen, acted = stored["observations"], times <= step
        assert seen[acted, :, 1].tolist() == [[t - 1.0, t - 1.0] for t in times[acted].tolist()]
        raw = torch.where(acted, 100.0 * i + times, 0.0)
        added = stored["rewards"][:, :, 0] - raw[:, None]
        expected = torch.zeros(length, 2)
        if by_limit and not by_rules:
            # Who was cut off was there to the end, so all actions of the last step are stored.
            last = [
                torch.tensor([[j, length, 1, a] for a in taken[-1, :, 0]])
                if ends[j][0] == length
                else torch.full((2, 4), -1.0)
                for j, other in enumerate(env.agents)
                for taken in [agent_by_name.memories[other].tensors["actions"]]
            ]
            inputs = {"observations": last[i], "states": torch.cat(last, 1)}
            value = before[agent].act(inputs, role="value")[0][:, 0].detach()
            expected[step - 1] = 0.99 * value
            assert value.abs().min() > 1e-3
        torch.testing.assert_close(added, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("params", hazard.CASES.values(), ids=hazard.CASES)
def test_lanes_are_bootstrapped_likewise(params: dict[str, Any]) -> None:
    env, ends = SkrlEnv(hazards(**params), states=True), hazard.ends(params)
    length = max(step for step, _, _ in ends)
    ppo = single(env, length, time_limit_bootstrap=True)
    before = copy.deepcopy(ppo.value)
    train(env, ppo, length)
    stored = ppo.memory.tensors
    last = torch.full((6, 4), -1.0)
    for lane in range(6):
        if ends[lane % 3][0] == length:
            last[lane] = torch.tensor([lane % 3, length, 1, stored["actions"][-1, lane, 0]])
    states = last.reshape(2, 12).repeat_interleave(3, 0)
    values = before.act({"observations": last, "states": states}, role="value")[0].detach()[:, 0]
    for lane in range(6):
        step, by_rules, by_limit = ends[lane % 3]
        raw = [100.0 * (lane % 3) + t if t <= step else 0.0 for t in range(1, length + 1)]
        expected = torch.zeros(length)
        if by_limit and not by_rules:
            expected[step - 1] = 0.99 * values[lane]
        added = stored["rewards"][:, lane, 0] - torch.tensor(raw)
        torch.testing.assert_close(added, expected, atol=1e-4, rtol=1e-4)
        # Who left is over once more with its environment.
        flagged = torch.nonzero(stored["terminated"][:, lane, 0]).flatten().tolist()
        cut = torch.nonzero(stored["truncated"][:, lane, 0]).flatten().tolist()
        assert cut == ([step - 1] if by_limit and not by_rules else [])
        assert flagged == sorted(({step - 1} if by_rules else set()) | ({length - 1} - {*cut}))


@pytest.mark.parametrize("face", [SkrlEnv, SkrlMultiAgentEnv])
def test_steps_of_those_who_left_are_not_learned_from(face: Any) -> None:
    env = face(hazards())
    if face is SkrlEnv:
        memory = LivingMemory(memory_size=10, num_envs=6, acting=env.acting)
        algorithm, memories = single(env, 10, memory), [memory]
    else:
        living = lambda agent, sizes: LivingMemory(acting=env.acting[agent], **sizes)  # noqa: E731
        algorithm = joint(env, TrueIPPO, 10, living)
        memories = list(algorithm.memories.values())
    train(env, algorithm, 10)
    names = ["observations", "advantages"]
    batches = [m.sample(names, batch_size=len(m), mini_batches=2) for m in memories]
    seen = torch.cat([observations for batch in batches for observations, _ in batch])
    assert len(seen) == 2 * (5 + 8 + 10)
    assert (seen >= 0).all()
    assert len(seen[:, :2].unique(dim=0)) == 5 + 8 + 10
    for batch in batches:
        advantages = torch.cat([part for _, part in batch])
        assert advantages.mean().abs() < 1e-5 and advantages.std() == pytest.approx(1, abs=1e-4)
    with pytest.raises(ValueError, match="sequence_length=2: expected 1"):
        memories[0].sample(names, batch_size=4, sequence_length=2)


def test_all_groups_by_name_and_the_state_of_all() -> None:
    set_seed(5)
    env = SkrlMultiAgentEnv(batch_of("mpe/simple_tag_v3", 3))
    batch = batch_of("mpe/simple_tag_v3", 3)
    observations, _ = env.reset()
    expected, _ = batch.reset(seed=5)
    actions = {agent: torch.tensor([[1], [2], [3]]) for agent in env.agents}
    for _ in range(26):
        for agent in env.agents:
            torch.testing.assert_close(observations[agent], expected[agent], rtol=0, atol=0)
            assert env.state()[agent].data_ptr() == observations["adversary_0"].data_ptr()
        torch.testing.assert_close(env.state()["agent_0"], batch.state(), rtol=0, atol=0)
        kept = observations["agent_0"].clone()
        old = observations["agent_0"]
        observations, rewards, *_ = env.step(actions)
        assert torch.equal(old, kept)  # skrl stores it only now
        expected, earned, *_ = batch.step({a: x[:, 0] for a, x in actions.items()})
        for agent in env.agents:
            assert rewards[agent][:, 0].tolist() == earned[agent].tolist()
    assert env.num_envs == 3 and env.num_agents == 4 and env.state_space("agent_0").shape == (62,)
    assert env.render() is None
    env.close()


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(
        TypeError, match=r"arrays are ndarray, expected make_vec\(..., array='torch'"
    ):
        SkrlMultiAgentEnv(gpu_zoo.make_vec("mpe/simple_v3", 2))
    with pytest.raises(ValueError, match="autoreset_mode=NEXT_STEP, expected SAME_STEP"):
        SkrlMultiAgentEnv(batch_of("mpe/simple_v3", 2, autoreset_mode="next_step"))
    for face in (SkrlEnv, SkrlMultiAgentEnv):
        with pytest.raises(ValueError, match="actions of 'agent' are masked"):
            face(hazards(spec=hazard.MASKED))
        with pytest.raises(TypeError, match="batch=3: int, expected what make_vec made"):
            face(3)
    env = SkrlMultiAgentEnv(batch_of("mpe/simple_v3", 2))
    with pytest.raises(ResetNeeded):
        env.step({"agent_0": torch.zeros(2, 1, dtype=torch.int64)})
    env.reset()
    with pytest.raises(InvalidAction, match=r"actions\['agent_0'\]\[1\]: 5"):
        env.step({"agent_0": torch.tensor([[0], [5]])})


# With the real algorithms ------------------------------------------------------------------------


def mean_return(batch: gpu_zoo.VectorEnv) -> float:
    """Of each environment's last episode."""
    return float(next(iter(batch.group.values())).last_returns.mean())


LEARNING = {
    "learning_epochs": 4, "mini_batches": 2, "learning_rate": 3e-3, "discount_factor": 0.95,
    "time_limit_bootstrap": True,
}  # fmt: skip


def test_mappo_learns_to_cover_landmarks() -> None:
    set_seed(0)
    env = SkrlMultiAgentEnv(batch_of("mpe/simple_spread_v3", 128))
    algorithm = joint(env, TrueMAPPO, 25, **LEARNING)
    train(env, algorithm, 25)
    before = mean_return(env.batch)
    train(env, algorithm, 300)
    assert mean_return(env.batch) > before + 2  # about -24 at random


def test_ppo_learns_to_balance() -> None:
    set_seed(0)
    env = SkrlEnv(batch_of("classic/cartpole_v1", 64))
    ppo = single(env, 32, **LEARNING | {"discount_factor": 0.99, "learning_epochs": 8})
    train(env, ppo, 100)
    before = mean_return(env.batch)
    assert before < 60  # about 22 at random
    train(env, ppo, 500)
    assert mean_return(env.batch) > 80


def test_one_group_trains_with_continuous_actions_against_chance() -> None:
    set_seed(0)
    batch = batch_of("mpe/simple_tag_v3", 64, continuous_actions=True)
    env = SkrlEnv(batch, "adversary", {"agent": chance(0)}, states=True)
    ppo = single(env, 25, policy=Gaussian, **LEARNING)
    before = [p.clone() for p in ppo.value.parameters()]
    train(env, ppo, 25)
    assert any((a != b).any() for a, b in zip(before, ppo.value.parameters(), strict=True))
    assert ppo.memory.tensors["actions"].shape == (25, 192, 5)


# In full -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TrueIPPO, TrueMAPPO])
def test_every_agent_learns_well(kind: Any) -> None:
    set_seed(0)
    env = SkrlMultiAgentEnv(batch_of("mpe/simple_spread_v3", 256))
    algorithm = joint(env, kind, 25, **LEARNING)
    train(env, algorithm, 25)
    before = mean_return(env.batch)
    train(env, algorithm, 2000)
    assert mean_return(env.batch) > before + 4
