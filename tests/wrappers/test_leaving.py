"""Agents that leave before the episode is over, and actions of several components, as PettingZoo
has them: in tag in the plane.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.utils.conversions import aec_to_parallel

import gpu_zoo
from gpu_zoo.errors import InvalidAction
from gpu_zoo.warpdrive import tag_continuous_v0 as tag

# One tagger; runner_1 starts beside it and the others too far for it to reach.
LINE = {
    "num_runners": 3,
    "starting_location_x": (1.0, 9.0, 1.05, 9.0),
    "starting_location_y": (1.0, 1.0, 1.0, 9.0),
    "episode_length": 4,
}
STAY = np.zeros(2, np.int64)
OTHERS = ["tagger_0", "runner_0", "runner_2"]


def act(env: Any) -> dict[str, Any]:
    return dict.fromkeys(env.agents, STAY)


def test_a_tagged_runner_leaves() -> None:
    env = tag.parallel_env(**LINE)
    observations, _ = env.reset(seed=0)
    assert list(observations) == env.agents == ["tagger_0", "runner_0", "runner_1", "runner_2"]
    observations, rewards, terminations, truncations, infos = env.step(act(env))
    assert rewards == {"tagger_0": 1.0, "runner_0": 0.0, "runner_1": -1.0, "runner_2": 0.0}
    assert [agent for agent, over in terminations.items() if over] == ["runner_1"]
    assert not any(truncations.values())
    assert "runner_1" in observations and "runner_1" in infos  # its last ones
    assert env.agents == OTHERS
    for results in (env.step(act(env)), env.step(act(env))):
        assert all(list(by_agent) == OTHERS for by_agent in results)
        assert not any(results[2].values())
    observations, rewards, terminations, truncations, _ = env.step(act(env))
    assert rewards == {"tagger_0": 0.0, "runner_0": 1.0, "runner_2": 1.0}
    assert all(truncations.values()) and not any(terminations.values())
    assert env.agents == []
    env.reset()
    assert len(env.agents) == 4


def test_who_has_left_must_not_act() -> None:
    env = tag.parallel_env(**LINE)
    env.reset(seed=0)
    everybody = act(env)
    env.step(everybody)
    with pytest.raises(InvalidAction, match="unknown agent 'runner_1'"):
        env.step(everybody)


def test_in_turn_who_leaves_steps_a_last_time_first() -> None:
    """PettingZoo's order: those that are over take their empty step before the next round."""
    env = tag.env(**LINE)
    env.reset(seed=0)
    order = []
    for agent in env.agent_iter():
        _, reward, termination, truncation, _ = env.last()
        order.append((agent, reward, termination, truncation))
        env.step(None if termination or truncation else STAY)
    everyone = ["tagger_0", "runner_0", "runner_1", "runner_2"]
    assert [agent for agent, *_ in order[:4]] == everyone
    assert order[4] == ("runner_1", -1.0, True, False)
    assert order[5] == ("tagger_0", 1.0, False, False)
    assert [agent for agent, *_ in order[5:]] == OTHERS * 4
    assert order[-3:] == [
        ("tagger_0", 0.0, False, True),
        ("runner_0", 1.0, False, True),
        ("runner_2", 1.0, False, True),
    ]


def test_both_faces_tell_the_same() -> None:
    one, two = tag.parallel_env(**LINE), aec_to_parallel(tag.env(**LINE))
    results = [one.reset(seed=3), two.reset(seed=3)]
    while one.agents:
        assert one.agents == two.agents
        actions = {agent: one.action_space(agent).sample() for agent in one.agents}
        results = [env.step(actions) for env in (one, two)]
        for mine, other in zip(*results, strict=True):
            assert mine.keys() == other.keys()
            for agent in mine:
                np.testing.assert_array_equal(mine[agent], other[agent])
    assert two.agents == []


def test_a_copy_goes_on_with_those_who_are_left() -> None:
    env = tag.parallel_env(**LINE)
    env.reset(seed=0)
    env.step(act(env))
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert twin.agents == OTHERS
        assert list(twin.step(act(twin))[0]) == OTHERS


@pytest.mark.filterwarnings("ignore")
def test_pettingzoos_own_tests(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"num_taggers": 2, "num_runners": 4, "tagging_distance": 0.3, "episode_length": 20}
    parallel_api_test(tag.parallel_env(**settings), num_cycles=200)
    api_test(tag.env(**settings), num_cycles=300)
    parallel_seed_test(lambda: tag.parallel_env(**settings))
    seed_test(lambda: tag.env(**settings))


def test_the_action_space() -> None:
    env = tag.parallel_env(num_acceleration_levels=3, num_turn_levels=5)
    space = env.action_space("runner_9")
    assert space == spaces.MultiDiscrete([4, 6])
    assert space is env.action_space("runner_9") is not env.action_space("runner_8")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([0, 11], r"\[0, 11\], expected 2 integers, 0 <= action < \[11, 11\]"),
        ([-1, 0], r"\[-1, 0\], expected 2 integers"),
        ([0.0, 0.0], r"\[0.0, 0.0\], expected 2 integers"),
        ([0], r"\[0\], expected 2 integers"),
        (3, "3, expected 2 integers"),
    ],
)
def test_bad_actions(action: Any, message: str) -> None:
    env = tag.parallel_env(**LINE)
    env.reset(seed=0)
    before = env.state()
    with pytest.raises(InvalidAction, match=r"actions\['runner_0'\]: " + message):
        env.step({**act(env), "runner_0": action})
    np.testing.assert_array_equal(env.state(), before)


@pytest.mark.parametrize("array", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.__setitem__((3, 1), 11), r"\[3\]: 11, expected 0 <= action < \[11, 11\]"),
        (lambda a: a.__setitem__((0, 0), -1), r"\[0\]: -1, expected 0 <= action < \[11, 11\]"),
    ],
)
def test_bad_actions_of_a_batch(array: Any, change: Any, message: str) -> None:
    env: Any = gpu_zoo.make_vec("warpdrive/tag_continuous_v0", 5, array=array)
    env.reset(seed=0)
    actions = {agent: np.zeros((5, 2), np.int32) for agent in env.agents}
    change(actions["runner_2"])
    if array == "torch":
        torch = pytest.importorskip("torch")
        actions = {agent: torch.from_numpy(values) for agent, values in actions.items()}
    with pytest.raises(InvalidAction, match=r"actions\['runner_2'\]" + message):
        env.step(actions)
    change(env.group["runner"].actions[:, 4])
    with pytest.raises(InvalidAction, match=r"actions\['runner_4'\]" + message):
        env.step()
    with pytest.raises(InvalidAction, match=r"'runner_2'\]: shape \(5, 3\), expected \(5, 2\)"):
        env.step({**actions, "runner_2": np.zeros((5, 3), np.int32)})
