"""The check against rules in plain Python: passes where they agree, and says where they do not."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from authoring.edits import edit

import gpu_zoo
from gpu_zoo.authoring import load, load_rules
from gpu_zoo.testing import CheckFailed, CheckSkipped, check_env, check_reference

KERNEL, RULES = "my_env_v0.cu", "my_env_rules.py"
EPISODES = "mine/my_env_v0(), reference: environment "


def run(folder: Path, params: Mapping[str, Any] | None = None, **settings: Any) -> None:
    rules = settings.pop("rules", None) or load_rules(folder / RULES)
    check_reference(load(folder / "my_env_v0.py"), params, rules=rules, **settings)


@pytest.mark.parametrize("numerics", ["reference", "fast"])
@pytest.mark.parametrize("timeout_wins", [True, False])
@pytest.mark.parametrize(
    "params", [{}, {"N": 1, "length": 2}, {"N": 1, "length": 2, "max_cycles": 1}], ids=str
)
def test_the_same_rules_pass(
    folder: Path, numerics: Any, timeout_wins: bool, params: dict[str, Any]
) -> None:
    """Also where episodes terminate on the very step of the time limit."""
    spec = dataclasses.replace(load(folder / "my_env_v0.py"), timeout_wins=timeout_wins)
    check_reference(spec, params, rules=load_rules(folder / RULES), numerics=numerics)


def test_many_episodes_are_played(folder: Path) -> None:
    base = load_rules(folder / RULES)
    calls: Counter[str] = Counter()
    given: list[dict[str, Any]] = []

    class Counting(base):  # type: ignore[misc]
        def __init__(self, **params: Any) -> None:
            given.append(params)
            super().__init__(**params)

        def reset(self, state: Any) -> Any:
            calls["reset"] += 1
            assert set(state) == {"pos", "target"}
            assert state["pos"].shape == (3,) and state["target"].shape == ()
            answer = super().reset(state)
            state["pos"][...] = 99  # the rules' own copy: nothing comes of it
            return answer

        def step(self, actions: Any) -> Any:
            calls["step"] += 1
            assert {type(action) for action in actions.values()} == {int}
            return super().step(actions)

    run(folder, rules=Counting, num_envs=4, steps=100)
    assert len(given) == 2 * 4
    assert given[0] == {"N": 3, "length": 10, "max_cycles": 50}
    assert given[-1] == {"N": 3, "length": 10, "max_cycles": 25}
    assert calls["reset"] >= 4 * (100 // 51 + 1) + 4 * (100 // 26 + 1)
    assert calls["step"] + calls["reset"] - 8 == 2 * 4 * 100  # a reset takes a step


def test_without_rules_it_is_skipped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = load(folder / "my_env_v0.py")
    with pytest.raises(CheckSkipped, match="no rules"):
        check_reference(spec)
    report = check_env(spec, only=["reference"])
    assert report["reference"].startswith("skipped: no rules")
    report = check_env(spec, only=["reference"], rules=load_rules(folder / RULES))
    assert report == {"reference": "ok"}
    assert capsys.readouterr().out.splitlines()[-1].endswith("ok")


BROKEN = [
    (KERNEL, "o[0] = (float)(real(e.s.target", "o[0] = (float)(real(1 + e.s.target",
     "0, step 0, observations['walker_0'][0]: "),
    (KERNEL, "o[k++] = (float)(real(e.s.pos[j]", "o[k++] = (float)(real(1e-4 + e.s.pos[j]",
     "0, step 0, observations['walker_0'][1]: "),
    (KERNEL, "e.p.length - 1);", "e.p.length - 2);", "observations['walker_"),
    (KERNEL, "-real(distance)", "-real(1e-7) - real(distance)", "0, step 1, rewards['walker_0']: "),
    (KERNEL, "distance == 0;", "distance <= 1;", "]: True, expected False by the rules"),
    (RULES, "distance == 0)", "distance < 0)", "]: True, expected False by the rules"),
    (RULES, "MOVES = (0, -1, 1)", "MOVES = (0, 1, -1)", ", step 1, observations['walker_"),
    (RULES, "self.target = int(state", "self.target = getattr(self, 'target', 0) or int(state",
     "observations['walker_0'][0]"),  # remembers the first episode's
    (RULES, "return self.observations(), rewards, terminations",
     "return self.observations(), rewards", "step() must return (observations, rewards, termin"),
    (RULES, "rewards = dict.fromkeys(self.agents, reward)",
     "rewards = dict.fromkeys(self.agents[1:], reward)",
     "0, step 1, the rules' rewards: nothing for 'walker_0'"),
    (RULES, "for there in (self.target, *others)]", "for there in (self.target,)]",
     "the rules' observations['walker_0']: shape (1,), expected (3,)"),
    (RULES, "        return seen", "        return list(seen)",
     "the rules' observations: list, expected a dict"),
    (RULES, "MOVES[action]", "MOVES[3]", "0, step 1, the rules raised IndexError: tuple index out"),
    (RULES, "length: int, max_cycles: int)", "length: int)", "the rules raised TypeError: "),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "says"), BROKEN, ids=[row[2] for row in BROKEN])
def test_a_difference_is_one_line_with_its_place(
    folder: Path, file: str, old: str, new: str, says: str
) -> None:
    line = edit(folder / file, old, new)
    with pytest.raises(CheckFailed) as caught:
        run(folder, {"length": 4} if "distance" in old and "==" in old else None)
    message = str(caught.value)
    assert message.startswith("check_reference: mine/my_env_v0(")
    assert says in message
    assert "\n" not in message
    if "raised IndexError" in says:
        assert message.endswith(f"({RULES}:{line})")


def test_tolerances(folder: Path) -> None:
    edit(folder / RULES, "reward = -distance /", "reward = -1e-5 - distance /")
    with pytest.raises(CheckFailed, match=r"rewards\['walker_0'\]"):
        run(folder)
    run(folder, reward_tolerance=1e-4)
    run(folder, numerics="fast")
    edit(folder / RULES, "(there - cell) / self.length", "(there - cell + 0.01) / self.length")
    with pytest.raises(CheckFailed, match=r"observations\['walker_0'\]\[0\]"):
        run(folder, reward_tolerance=1e-4)
    run(folder, reward_tolerance=1e-4, observation_tolerance=0.01)


ALONE = """
from my_env_rules import Rules as Together

class Rules(Together):
    \"\"\"Each walker plays for itself and has done with it once it is there.\"\"\"

    def reset(self, state):
        self.out = set()
        return super().reset(state)

    def step(self, actions):
        assert not self.out & set(actions), "who has left acts no more"
        assert actions
        observations, _, _ = super().step(actions)
        for agent in self.agents:
            observations[agent][1:] = [0] * (len(self.agents) - 1)
        distances = {agent: abs(self.pos[agent] - self.target) for agent in actions}
        rewards = {agent: -d / (len(self.agents) * self.length) for agent, d in distances.items()}
        ends = {agent: d == 0 for agent, d in distances.items()}
        self.out |= {agent for agent, over in ends.items() if over}
        return {agent: observations[agent] for agent in actions}, rewards, ends

    def observations(self):
        seen = super().observations()
        return {agent: row[:1] + [0] * (len(row) - 1) for agent, row in seen.items()}
"""


def test_who_has_terminated_is_out_until_the_next_episode(folder: Path) -> None:
    """Its kernel's values mean nothing then, and the rules hear nothing of it."""
    edit(folder / KERNEL, "if (j != i) o[k++] = (float)(real(e.s.pos[j] - e.s.pos[i]) / scale);",
         "if (j != i) o[k++] = 0;")  # fmt: skip
    edit(folder / KERNEL, "for (int j = 0; j < N; ++j) distance +=", "for (int j = i; j <= i; ++j) "
         "distance +=")  # fmt: skip
    (folder / "alone_rules.py").write_text(ALONE)
    run(folder, rules=load_rules(folder / "alone_rules.py"))
    # All of it is compared as long as it plays.
    edit(folder / KERNEL, "e.terminated(i) = distance == 0;",
         "e.terminated(i) = distance == 0 && i != 1;")  # fmt: skip
    with pytest.raises(CheckFailed, match=r"terminations\['walker_1'\]: False, expected True"):
        run(folder, rules=load_rules(folder / "alone_rules.py"))


class Pendulum:
    """Gymnasium's own, as rules: another author's, with a box of actions."""

    def __init__(self, **params: Any) -> None:
        assert set(params) == {"max_cycles", "g", "render_mode"}
        self.env: Any = gymnasium.make("Pendulum-v1", g=params["g"]).unwrapped
        self.env.reset(seed=0)

    def reset(self, state: Mapping[str, Any]) -> dict[str, Any]:
        self.env.state = np.array([state["theta"], state["theta_dot"]])
        return {"agent_0": self.env._get_obs()}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        action = actions["agent_0"]
        assert action.shape == (1,) and action.dtype == np.float32
        observation, reward, terminated, *_ = self.env.step(action)
        return tuple({"agent_0": value} for value in (observation, reward, terminated))


def test_rules_with_continuous_actions() -> None:
    spec = gpu_zoo.spec("classic/pendulum_v1")
    check_reference(spec, {"g": 9.5}, rules=Pendulum)
    with pytest.raises(CheckFailed, match="the rules raised TypeError"):
        check_reference(spec, {"g": 9.5}, rules=functools.partial(Pendulum, 1))
    with pytest.raises(CheckFailed, match=r"step \d+, (observations|rewards)\['agent_0'\]"):
        check_reference(spec, {"g": 9.5}, rules=lambda **params: Pendulum(**{**params, "g": 10.0}))
