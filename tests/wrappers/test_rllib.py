"""RLlib's faces: agents that end one by one, RLlib's own episodes, and training with RLlib."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hazard
import numpy as np
import pytest

import gpu_zoo
from gpu_zoo.errors import InvalidAction, ResetNeeded
from gpu_zoo.registry import ENVIRONMENTS, UnknownEnvironment

pytest.importorskip("ray.rllib")

import ray
import torch
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import (
    ActionMaskingTorchRLModule,
)
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from gpu_zoo.wrappers.rllib import (
    BatchedRunner,
    RLlibEnv,
    RLlibVectorEnv,
    register,
)

HAZARD, MASKED = hazard.HAZARD.id, hazard.MASKED.id
SPREAD = "mpe/simple_spread_v3"
AGENTS = ["agent_0", "agent_1", "agent_2"]
# Besides the usual ones: everybody terminates in the very step in which time runs out.
BOTH = {"first_end": 4, "second_end": 4, "third_end": 4, "max_cycles": 4}
CASES = {**hazard.CASES, "both": BOTH}
cases = pytest.mark.parametrize("params", CASES.values(), ids=CASES.keys())
runners = pytest.mark.parametrize("runner", [MultiAgentEnvRunner, BatchedRunner])


@pytest.fixture(autouse=True, scope="module")
def known() -> None:
    for spec in (hazard.HAZARD, hazard.MASKED):
        if spec.id not in ENVIRONMENTS:
            gpu_zoo.register(spec)
    register(HAZARD, MASKED, SPREAD)


def single(env_id: str = HAZARD, **params: Any) -> RLlibEnv:
    return RLlibEnv(gpu_zoo.make(env_id, **params))


def batched(env_id: str = HAZARD, num_envs: int = 3, **params: Any) -> RLlibVectorEnv:
    return RLlibVectorEnv(gpu_zoo.make_vec(env_id, num_envs, autoreset_mode="next_step", **params))


def expected(params: dict[str, Any], step: int, episode: int = 1) -> tuple[Any, ...]:
    """What the hazard environment's step ``step`` gives when everybody does 1."""
    ends = hazard.ends(params)
    here = [i for i in range(3) if ends[i][0] >= step]
    last = max(end for end, _, _ in ends) == step
    ending = [ends[i] for i in here if ends[i][0] == step]
    observations = {AGENTS[i]: [i, step, episode, 1] for i in here}
    rewards = {AGENTS[i]: 100.0 * i + step for i in here}
    terminateds = {AGENTS[i]: ends[i][0] == step and ends[i][1] for i in here}
    terminateds["__all__"] = last and all(terminated for _, terminated, _ in ending)
    truncateds = {"__all__": last and any(truncated for _, _, truncated in ending)}
    return observations, rewards, terminateds, truncateds


def plain(results: Any) -> tuple[Any, ...]:
    observations, *others = results[:4]
    return {agent: row.tolist() for agent, row in observations.items()}, *others


def acting(params: dict[str, Any], step: int) -> dict[str, int]:
    ends = hazard.ends(params)
    return {agent: 1 for agent, (end, _, _) in zip(AGENTS, ends, strict=True) if end >= step}


def length(params: dict[str, Any]) -> int:
    return max(end for end, _, _ in hazard.ends(params))


# What a step returns ------------------------------------------------------------------------------


@cases
def test_one_environment_reports_each_agent_until_it_ends(params: dict[str, Any]) -> None:
    env = single(**params)
    for episode in (1, 2):
        observations, infos = env.reset(seed=3 if episode == 1 else None)
        assert list(observations) == list(infos) == env.agents == AGENTS
        for step in range(1, length(params) + 1):
            assert env.agents == list(acting(params, step))
            results = env.step(acting(params, step))
            assert plain(results) == expected(params, step, episode)
            assert list(results[0]) == list(results[4]) == list(acting(params, step))
        assert env.agents == []
        with pytest.raises(ResetNeeded, match="call reset"):
            env.step({})


@cases
def test_a_batch_reports_the_same_in_every_environment(params: dict[str, Any]) -> None:
    env = batched(**params)
    observations, infos = env.reset(seed=3)
    for episode in (1, 2, 3):
        begin = {agent: [i, 0, episode, 0] for i, agent in enumerate(AGENTS)}
        for own, info in zip(observations, infos, strict=True):
            assert {agent: row.tolist() for agent, row in own.items()} == begin and info == {}
        for step in range(1, length(params) + 1):
            for results in zip(*env.step([acting(params, step)] * 3), strict=True):
                assert plain(results) == expected(params, step, episode)
                assert list(results[0]) == list(results[1]) == list(acting(params, step))
        nothing: tuple[Any, ...] = env.step([{}] * 3)
        observations, rewards, terminateds, truncateds, infos = nothing
        assert rewards == [dict.fromkeys(AGENTS, 0.0)] * 3
        assert terminateds == [dict.fromkeys([*AGENTS, "__all__"], False)] * 3
        assert truncateds == [{"__all__": False}] * 3


def test_a_reset_after_the_last_step_begins_an_episode_at_once() -> None:
    env = batched(**hazard.MIXED)
    env.reset(seed=0)
    for _ in range(5):
        env.step([dict.fromkeys(AGENTS, 1)] * 3)
    env.reset()
    for results in zip(*env.step([dict.fromkeys(AGENTS, 1)] * 3), strict=True):
        assert plain(results) == expected(hazard.MIXED, 1, episode=2)


def test_environments_of_a_batch_end_each_in_its_own_step() -> None:
    """The second is one step behind, as its first agent never ends and its limit is later."""
    limits = np.array([4, 6, 5], np.int32)
    env = batched(first_end=0, second_end=2, max_cycles=limits)
    env.reset(seed=0)
    done: list[list[bool]] = []
    seen: list[list[list[str]]] = []
    here = [AGENTS[:]] * 3
    for _ in range(8):
        observations, _, terminateds, truncateds, _ = env.step([dict.fromkeys(a, 1) for a in here])
        done.append([flags["__all__"] for flags in truncateds])
        seen.append([list(own) for own in observations])
        here = [
            [] if over["__all__"] else [a for a in own if not ended[a]]
            for own, ended, over in zip(observations, terminateds, truncateds, strict=True)
        ]
    # Environment 0 is over after steps 4 and, as one is the reset, 9; 1 after 6; 2 after 5.
    assert np.argwhere(done).tolist() == [[3, 0], [4, 2], [5, 1]]
    without = ["agent_0", "agent_2"]
    assert seen[2] == [without] * 3
    assert seen[4] == [AGENTS, without, without]  # the first one began anew


def test_what_was_returned_does_not_change_with_the_next_step() -> None:
    env = batched()
    observations, _ = env.reset(seed=0)
    env.step([dict.fromkeys(AGENTS, 1)] * 3)
    assert [row.tolist() for row in observations[1].values()] == [
        [0, 0, 1, 0],
        [1, 0, 1, 0],
        [2, 0, 1, 0],
    ]


@pytest.mark.parametrize("env_id", [SPREAD, "mpe/simple_tag_v3", "warpdrive/tag_continuous_v0"])
def test_a_batch_plays_what_as_many_single_environments_play(env_id: str) -> None:
    """Agents of one group and of two; in the last they leave one by one."""
    batch = batched(env_id, num_envs=4, numerics="reference")
    singles = [single(env_id) for _ in range(4)]
    observations, _ = batch.reset(seed=7)
    for i, env in enumerate(singles):
        assert_same(observations[i], env.reset(seed=7 + i)[0])
    left = 0
    for space in singles[0].action_spaces.values():
        space.seed(3)
    for _ in range(40):
        # RLlib gives nothing to an environment that is over.
        actions = [{a: singles[0].action_spaces[a].sample() for a in e.agents} for e in singles]
        left += sum(0 < len(env.agents) < len(env.possible_agents) for env in singles)
        results = batch.step(actions)
        for i, env in enumerate(singles):
            if not env.agents:
                assert_same(results[0][i], env.reset()[0])
                continue
            ours = env.step(actions[i])
            for part in range(4):
                assert_same(results[part][i], ours[part])
    assert (left > 0) == batch.batch.spec.leaving


def assert_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert list(left) == list(right)
    for name in left:
        np.testing.assert_array_equal(left[name], right[name])


def test_masks_come_with_observations() -> None:
    """Action 2 is allowed where step and number of the agent add up to something even."""
    one, many = single(MASKED), batched(MASKED)
    for env in (one, many.envs[0]):
        assert list(env.observation_spaces["agent_0"]) == ["action_mask", "observations"]
    ours, _ = one.reset(seed=0)
    theirs, _ = many.reset(seed=0)
    for step in range(1, 11):
        for observations in (ours, theirs[2]):
            for agent, own in observations.items():
                assert one.observation_spaces[agent].contains(own)
        acts = acting({}, step)
        ours, *_ = one.step(acts)
        theirs, *_ = many.step([acts] * 3)
        for observations in (ours, theirs[2]):
            for agent, own in observations.items():
                i = AGENTS.index(agent)
                ended = hazard.ends({})[i][0] == step
                allowed = 1.0 if ended or (step + i) % 2 == 0 else 0.0
                assert own["action_mask"].tolist() == [1, 1, allowed]
                assert own["observations"].tolist() == [i, step, 1, 1]


# Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actions", "problem"),
    [
        ([dict.fromkeys(AGENTS, 1)] * 2, "actions: 2 dicts, expected 3"),
        (
            [dict.fromkeys(AGENTS, 1)] * 2 + [{"agent_1": 1}],
            r"actions\[2\]: of agent_1, expected of agent_0, agent_1, agent_2",
        ),
        (
            [dict.fromkeys([*AGENTS, "agent_3"], 1)] + [dict.fromkeys(AGENTS, 1)] * 2,
            r"actions\[0\]: of agent_0, agent_1, agent_2, agent_3, expected of",
        ),
        ([dict.fromkeys(AGENTS, 3)] * 3, r"actions\['agent_0'\]\[0\]: 3, expected 0 <= action < 3"),
        ([dict.fromkeys(AGENTS, 1.0)] * 3, "dtype float64, expected integers"),
        ([dict.fromkeys(AGENTS, "up")] * 3, "actions of agent_0: "),
    ],
)
def test_a_wrong_action_is_refused_and_nothing_moves(actions: Any, problem: str) -> None:
    env = batched()
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=problem):
        env.step(actions)
    assert env.step([dict.fromkeys(AGENTS, 1)] * 3)[1] == [expected({}, 1)[1]] * 3


def test_who_has_left_may_not_act() -> None:
    one, many = single(), batched()
    one.reset(seed=0)
    many.reset(seed=0)
    for step in range(1, 6):
        one.step(acting({}, step))
        many.step([acting({}, step)] * 3)
    with pytest.raises(InvalidAction, match="unknown agent 'agent_0'"):
        one.step(dict.fromkeys(AGENTS, 1))
    with pytest.raises(InvalidAction, match=r"actions\[0\]: .* expected of agent_1, agent_2$"):
        many.step([dict.fromkeys(AGENTS, 1)] * 3)


def test_what_is_no_environment_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="autoreset_mode=SAME_STEP, expected NEXT_STEP"):
        RLlibVectorEnv(gpu_zoo.make_vec(HAZARD, 2))
    with pytest.raises(TypeError, match=r"env: VectorEnv, expected what gpu_zoo\.make returns"):
        RLlibEnv(gpu_zoo.make_vec(HAZARD))  # type: ignore[arg-type]
    with pytest.raises(UnknownEnvironment, match="no environment 'simple_spred_v3'"):
        register("simple_spred_v3")
    with pytest.raises(ValueError, match=r"options=\{'a': 1\}: expected none"):
        batched().reset(options={"a": 1})


# The rest of the interfaces -----------------------------------------------------------------------


def test_rllibs_own_check_passes() -> None:
    for env_id in (HAZARD, SPREAD, "mpe/simple_world_comm_v3"):
        check_multiagent_environments(single(env_id))


def test_an_environment_goes_on_as_it_was_after_a_pickle() -> None:
    env = single()
    env.reset(seed=0)
    for step in range(1, 6):
        env.step(acting({}, step))
    copy = pickle.loads(pickle.dumps(env))
    assert copy.agents == ["agent_1", "agent_2"]
    assert plain(copy.step(acting({}, 6))) == plain(env.step(acting({}, 6))) == expected({}, 6)


def test_both_draw_and_close() -> None:
    one = single(SPREAD, render_mode="rgb_array")
    one.reset(seed=0)
    many = batched(SPREAD, num_envs=2)
    many.reset(seed=0)
    first, second = many.render()
    assert one.render().shape == first.shape == (700, 700, 3)
    assert (first != second).any() and (many.envs[1].render() == second).all()
    one.close()
    many.close()
    assert many.batch.closed


def test_all_environments_are_registered_at_once() -> None:
    register()
    runner = BatchedRunner(config=config("classic/acrobot_v1", BatchedRunner), worker_index=0)
    assert runner.env.batch.spec.id == "classic/acrobot_v1"
    assert [len(episode) for episode in runner.sample(num_timesteps=8)] == [4, 4]


def test_the_runner_refuses_an_environment_that_is_not_ours() -> None:
    with pytest.raises(ValueError, match=r"config\.env='CartPole-v1': expected an id that"):
        BatchedRunner(config=config("CartPole-v1", BatchedRunner), worker_index=0)


def test_parameters_and_callbacks_reach_the_runner() -> None:
    created: list[dict[str, Any]] = []
    wanted = config(SPREAD, BatchedRunner, max_cycles=7, numerics="reference").callbacks(
        on_environment_created=lambda **given: created.append(given)
    )
    runner = BatchedRunner(config=wanted, worker_index=0)
    assert runner.env.batch.params["max_cycles"] == 7
    assert runner.env.batch.numerics == "reference"
    (given,) = created
    assert given["env_runner"] is runner and given["env"] is runner.env
    assert given["env_context"] == {"max_cycles": 7, "numerics": "reference"}
    assert {len(episode) for episode in runner.sample(num_episodes=2)} == {7}


# RLlib's episodes, fed by its env runner ----------------------------------------------------------


def config(env: str, runner: type[MultiAgentEnvRunner], num_envs: int = 2, **params: Any) -> Any:
    network = RLModuleSpec(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
    return (
        PPOConfig()
        # RLlib's check draws actions that a mask forbids.
        .environment(env, env_config=params, disable_env_checking=env == MASKED)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs, env_runner_cls=runner)
        .multi_agent(policies={"shared"}, policy_mapping_fn=lambda *_, **__: "shared")
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"shared": network}))
        .learners(num_learners=0)
        .debugging(seed=5, log_level="ERROR")
    )


def assert_whole(episode: MultiAgentEpisode, params: dict[str, Any]) -> None:
    """The episode holds every step of each agent until it ended, and nothing of anybody else."""
    assert len(episode) == length(params) and episode.is_done
    assert sorted(episode.agent_episodes) == AGENTS
    for i, (end, terminated, truncated) in enumerate(hazard.ends(params)):
        own = episode.agent_episodes[AGENTS[i]]
        assert (len(own), own.is_terminated) == (end, terminated)
        # Who is both is noted as terminated alone when RLlib joins two pieces.
        assert own.is_truncated == truncated or terminated
        observations = np.array(own.get_observations())
        assert observations[:, 0].tolist() == [i] * (end + 1)
        assert observations[:, 1].tolist() == list(range(end + 1))
        assert len(set(observations[:, 2])) == 1
        assert observations[1:, 3].tolist() == list(own.get_actions())
        assert list(own.get_rewards()) == [100 * i + step for step in range(1, end + 1)]


@cases
@runners
def test_episodes_are_whole(runner: Any, params: dict[str, Any]) -> None:
    made = runner(config=config(HAZARD, runner, 3, **params), worker_index=0)
    episodes = made.sample(num_episodes=7)
    assert len(episodes) >= 7
    for episode in episodes:
        assert_whole(episode, params)


@cases
@runners
def test_episodes_cut_by_the_rollout_are_whole_when_joined(
    runner: Any, params: dict[str, Any]
) -> None:
    made = runner(config=config(HAZARD, runner, 3, **params), worker_index=0)
    pieces: dict[str, MultiAgentEpisode] = {}
    for _ in range(12):
        for piece in made.sample(num_timesteps=12):
            known = pieces.get(piece.id_)
            if known is None:
                pieces[piece.id_] = piece
            else:
                known.concat_episode(piece)
    whole = [episode for episode in pieces.values() if episode.is_done]
    assert len(whole) >= 9
    for episode in whole:
        assert_whole(episode, params)


@cases
@runners
def test_values_are_bootstrapped_exactly_where_time_ran_out(
    runner: Any, params: dict[str, Any]
) -> None:
    """With lambda 0 a target is the reward and, but for a terminated agent, the next value."""
    wanted = config(HAZARD, runner, 2, **params).training(gamma=0.9, lambda_=0.0)
    made = runner(config=wanted, worker_index=0)
    learner = wanted.build_learner(spaces=made.get_spaces())
    batch = learner._learner_connector(
        rl_module=learner.module,
        batch={},
        episodes=made.sample(num_episodes=2),
        shared_data={},
    )["shared"]
    values = learner.module["shared"].compute_values(batch).detach().numpy()
    agents, steps = batch["obs"][:, :2].int().numpy().T
    ends = hazard.ends(params)
    real = np.flatnonzero(batch["loss_mask"])  # the others are last observations
    assert len(real) == 2 * sum(end for end, _, _ in ends)
    for row in real:
        end, terminated, _ = ends[agents[row]]
        assert (agents[row + 1], steps[row + 1]) == (agents[row], steps[row] + 1)
        reward = 100 * agents[row] + steps[row + 1]
        bootstrapped = not (terminated and steps[row + 1] == end)
        target = reward + 0.9 * bootstrapped * values[row + 1]
        np.testing.assert_allclose(batch["value_targets"][row], target, rtol=1e-5)


@runners
def test_steps_and_episodes_are_counted(runner: Any) -> None:
    """Each environment takes 24 steps, of two episodes of 10 and of a third one."""
    made = runner(config=config(HAZARD, runner, 3), worker_index=0)
    agents = dict(zip(AGENTS, (3 * (5 + 5 + 4), 3 * (8 + 8 + 4), 3 * 24), strict=True))
    expected_counts = {
        "num_env_steps_sampled": 72,
        "num_agent_steps_sampled": agents,
        "num_module_steps_sampled": {"shared": sum(agents.values())},
        "num_episodes": 6,
    }
    made.sample(num_timesteps=36)
    made.sample(num_timesteps=36)
    metrics = made.get_metrics()
    for name, count in expected_counts.items():
        for logged in (metrics[name], metrics[f"{name}_lifetime"]):
            if isinstance(count, dict):
                assert {key: stats.peek() for key, stats in logged.items()} == count
            else:
                assert logged.peek() == count
    made.sample(num_timesteps=3)
    assert made.get_metrics()["num_env_steps_sampled"].peek() == 3


@runners
def test_masked_actions_are_never_taken(runner: Any) -> None:
    """A forbidden one would be an error."""
    wanted = config(MASKED, runner, 8).rl_module(
        rl_module_spec=MultiRLModuleSpec(
            rl_module_specs={"shared": RLModuleSpec(module_class=ActionMaskingTorchRLModule)}
        )
    )
    episodes = runner(config=wanted, worker_index=0).sample(num_episodes=16)
    taken = [
        (np.arange(len(own)) + AGENTS.index(agent), np.array(own.get_actions()))
        for episode in episodes
        for agent, own in episode.agent_episodes.items()
    ]
    sums, actions = (np.concatenate(parts) for parts in zip(*taken, strict=True))
    assert (actions[sums % 2 == 0] == 2).any() and not (actions[sums % 2 == 1] == 2).any()


def test_continuous_actions_reach_the_kernel_as_the_episode_has_them() -> None:
    wanted = config(SPREAD, BatchedRunner, 3, continuous_actions=True)
    made = BatchedRunner(config=wanted, worker_index=0)
    made.sample(num_timesteps=30)
    space = made.env.single_action_spaces["agent_0"]
    for actions in made.env.batch.group["agent"].actions.reshape(-1, 5):
        assert space.contains(actions)
    assert len(np.unique(made.env.batch.group["agent"].actions)) > 30


@runners
def test_no_two_copies_begin_alike_in_any_runner(runner: Any) -> None:
    begins = []
    for worker in (0, 1, 2):
        made = runner(config=config(SPREAD, runner, 3), worker_index=worker)
        begins += [
            episode.agent_episodes["agent_0"].get_observations(0).tobytes()
            for episode in made.sample(num_timesteps=3)
        ]
    assert len(set(begins)) == len(begins) == 9


@runners
def test_a_seeded_runner_repeats_itself(runner: Any) -> None:
    first, second = (
        runner(config=config(SPREAD, runner, 2), worker_index=1).sample(num_timesteps=60)
        for _ in range(2)
    )
    assert len(first) == len(second) > 2
    for ours, theirs in zip(first, second, strict=True):
        assert_same(ours.get_observations(-1), theirs.get_observations(-1))


# One agent, by Gymnasium's own way ----------------------------------------------------------------


def test_cartpole_is_gymnasiums_through_the_vector_entry_point() -> None:
    """What an environment is called, and that it comes as one, is the whole difference."""

    def sampled(env: str, mode: str, **params: Any) -> list[SingleAgentEpisode]:
        wanted = (
            PPOConfig()
            .environment(env, env_config=params)
            .env_runners(num_env_runners=0, num_envs_per_env_runner=4, gym_env_vectorize_mode=mode)
            .debugging(seed=5)
        )
        episodes: list[SingleAgentEpisode] = SingleAgentEnvRunner(
            config=wanted, worker_index=0
        ).sample(num_timesteps=400)
        return episodes

    ours = sampled("gpu_zoo:gpu_zoo/CartPole-v1", "vector_entry_point", numerics="reference")
    theirs = sampled("CartPole-v1", "sync")
    assert len(ours) == len(theirs) > 8
    for own, gyms in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(own.get_observations(), gyms.get_observations())
        np.testing.assert_array_equal(own.get_rewards(), gyms.get_rewards())
        assert (own.is_terminated, own.is_truncated) == (gyms.is_terminated, gyms.is_truncated)


# Training -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def learning(runner: type[MultiAgentEnvRunner], num_envs: int, **params: Any) -> Any:
    network = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="relu")
    specs = {"shared": RLModuleSpec(model_config=network)}
    return (
        config(SPREAD, runner, num_envs, local_ratio=0.0, **params)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        .training(
            gamma=0.8,
            lambda_=0.9,
            lr=0.005,
            clip_param=0.3,
            use_kl_loss=False,
            vf_clip_param=1e6,
            grad_clip=0.5,
            num_epochs=12,
            minibatch_size=256,
            train_batch_size_per_learner=1600,
        )
    )


def returns(algorithm: PPO, iterations: int) -> list[float]:
    return [algorithm.train()["env_runners"]["episode_return_mean"] for _ in range(iterations)]


def test_return_rises_with_a_shared_policy_and_a_checkpoint_acts_as_it_did(
    cluster: None, tmp_path: Path
) -> None:
    """Two agents; about -89 by chance, and -56 in the end."""
    algorithm = learning(BatchedRunner, 64, N=2).build_algo()
    history = returns(algorithm, 6)
    assert np.mean(history[-2:]) > np.mean(history[:2]) + 15
    folder = algorithm.save_to_path(tmp_path / "checkpoint")
    restored = PPO.from_checkpoint(folder)
    assert isinstance(restored.env_runner, BatchedRunner)
    seen = torch.randn(50, 12)
    ours, theirs = (
        one.get_module("shared").forward_inference({"obs": seen})["action_dist_inputs"]
        for one in (algorithm, restored)
    )
    assert torch.equal(ours, theirs) and len(ours.argmax(-1).unique()) > 1
    algorithm.stop()
    restored.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("runner", "num_envs"), [(BatchedRunner, 64), (MultiAgentEnvRunner, 16)])
def test_three_agents_learn_as_well(cluster: None, runner: Any, num_envs: int) -> None:
    algorithm = learning(runner, num_envs).build_algo()
    history = returns(algorithm, 25)
    assert np.mean(history[-5:]) > np.mean(history[:5]) + 15
    algorithm.stop()


@pytest.mark.slow
@runners
def test_env_runners_on_ray_play_different_episodes(cluster: None, runner: Any) -> None:
    """Agents leave one by one, in an environment that the runners' processes do not know."""
    wanted = config(HAZARD, runner, 3).env_runners(num_env_runners=2)
    algorithm = wanted.training(train_batch_size_per_learner=120, minibatch_size=60).build_algo()
    assert algorithm.train()["env_runners"]["num_episodes"] >= 6
    algorithm.stop()
    spread = config(SPREAD, runner, 3).env_runners(num_env_runners=2)
    algorithm = spread.training(train_batch_size_per_learner=120, minibatch_size=60).build_algo()
    begins = algorithm.env_runner_group.foreach_env_runner(
        lambda one: [
            episode.agent_episodes["agent_0"].get_observations(0).tobytes()
            for episode in one.sample(num_timesteps=3)
        ],
        local_env_runner=False,
    )
    assert [len(set(own)) for own in begins] == [3, 3] and not set(begins[0]) & set(begins[1])
    algorithm.stop()


@pytest.mark.slow
def test_cartpole_is_learnt_on_rays_env_runners(cluster: None) -> None:
    algorithm = (
        PPOConfig()
        .environment("gpu_zoo:gpu_zoo/CartPole-v1")
        .env_runners(
            num_env_runners=2,
            num_envs_per_env_runner=16,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .training(lr=1e-3, train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=6)
        .debugging(seed=5)
        .build_algo()
    )
    history = returns(algorithm, 12)
    assert history[-1] > 3 * history[0]
    algorithm.stop()
