"""Action masks as users of PettingZoo and Gymnasium have them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from masks.ferry import BOX, DISCRETE, FERRY, LEAVING, MULTI, STEPS, driven_now, masks_by_the_rules
from pettingzoo.test import api_test, parallel_api_test, seed_test
from pettingzoo.utils.conversions import aec_to_parallel, parallel_to_aec

from gpu_zoo import VectorEnv, registry
from gpu_zoo.errors import InvalidAction
from gpu_zoo.spec import EnvSpec
from gpu_zoo.testing import CheckFailed, check_pettingzoo
from gpu_zoo.testing.faces import _drawing_allowed
from gpu_zoo.wrappers.gymnasium import VectorView
from gpu_zoo.wrappers.pettingzoo import drop_in

WALKERS = ["walker_0", "walker_1"]
each_space = pytest.mark.parametrize("space", [DISCRETE, MULTI], ids=["discrete", "multi"])
each_spec = pytest.mark.parametrize("spec", [FERRY, LEAVING], ids=["staying", "leaving"])


def draw(env: Any, infos: Any) -> dict[str, Any]:
    """Random allowed actions, as PettingZoo's own documentation draws them."""
    return {
        agent: env.action_space(agent).sample(infos[agent].get("action_mask"))
        for agent in env.agents
    }


def wanted(env: Any, space: int) -> dict[str, Any]:
    """The masks by the rules, of those who act next."""
    rows = masks_by_the_rules(driven_now(env.game.vector)[0], space).astype(np.int8)
    masks = zip(WALKERS, rows, strict=True)
    return {agent: row if space == DISCRETE else (row[:3], row[3:]) for agent, row in masks}


@each_space
@each_spec
def test_infos_of_a_parallel_environment(spec: EnvSpec, space: int) -> None:
    env = drop_in(spec).parallel_env(SPACE=space, may_quit=spec.leaving)
    gone = 0
    for seed in range(20):
        _, infos = env.reset(seed=seed)
        kept = infos["walker_0"]["action_mask"]
        before = data_of(kept)
        while env.agents:
            assert set(infos) >= set(env.agents)
            assert infos["watcher_0"] == {}
            for agent, mask in wanted(env, space).items():
                if agent in env.agents:
                    assert data_equivalence(infos[agent]["action_mask"], mask)
            _, _, terminations, _, infos = env.step(draw(env, infos))
            gone += sum(terminations.values())
        # Their last ones: nobody acts on them, and everything is allowed.
        assert all(part.all() for a in infos if a in WALKERS for part in parts(infos[a]))
        assert data_of(kept) == before, "a mask that was handed out has changed"
    assert (gone > 10) is spec.leaving


def parts(info: Any) -> Any:
    mask = info["action_mask"]
    return mask if isinstance(mask, tuple) else (mask,)


def data_of(mask: Any) -> Any:
    return [part.tolist() for part in parts({"action_mask": mask})]


@each_space
def test_infos_of_an_aec_environment(space: int) -> None:
    """Each agent finds its mask when its turn comes, from the first on."""
    env = drop_in(FERRY).env(SPACE=space)
    env.reset(seed=3)
    turns = 0
    for agent in env.agent_iter():
        _, _, terminated, truncated, info = env.last()
        over = terminated or truncated
        if agent in WALKERS and not over:
            assert data_equivalence(info["action_mask"], wanted(env.unwrapped, space)[agent])
            turns += 1
        env.step(None if over else env.action_space(agent).sample(info.get("action_mask")))
    assert turns == 2 * STEPS


@each_space
@each_spec
def test_pettingzoos_own_tests(spec: EnvSpec, space: int) -> None:
    """As they are, where they read masks from infos; its parallel tests do not."""
    params = {"SPACE": space, "may_quit": spec.leaving}
    faces = drop_in(spec)
    api_test(faces.env(**params), num_cycles=100)
    api_test(parallel_to_aec(faces.parallel_env(**params)), num_cycles=100)
    seed_test(lambda: faces.env(**params), num_cycles=50)
    drawing = _drawing_allowed(lambda: faces.parallel_env(**params))
    parallel_api_test(drawing, num_cycles=200)
    with pytest.raises(InvalidAction, match="is masked"):
        parallel_api_test(faces.parallel_env(**params), num_cycles=200)
    check_pettingzoo(spec, params)


def test_a_mask_that_is_not_what_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If infos had other masks than actions are held against."""
    monkeypatch.setattr(
        "gpu_zoo.wrappers.game.Game.action_mask",
        lambda self, agent: np.ones(3, np.int8) if agent in WALKERS else None,
    )
    with pytest.raises(CheckFailed, match="is masked"):
        check_pettingzoo(FERRY)


def test_a_converted_environment_has_them_too() -> None:
    env = aec_to_parallel(drop_in(FERRY).raw_env())
    _, infos = env.reset(seed=0)
    while env.agents:
        _, _, _, _, infos = env.step(draw(env, infos))
    assert set(infos["walker_0"]) == {"action_mask"}


def driven(env: Any, coins: list[int]) -> None:
    """Who is driven from now on."""
    vector = env.unwrapped.game.vector
    vector.set_state({"coins": np.tile(np.array(coins, np.int32), (1, 8, 1))})


FORBIDDEN = [
    (DISCRETE, 1, "actions['walker_1']: 1 is masked, expected one of [0]"),
    (DISCRETE, 2, "actions['walker_1']: 2 is masked, expected one of [0]"),
    (MULTI, [0, 0], "actions['walker_1']: [0, 0] is masked, expected one of [1] in component 1"),
    (MULTI, (2, 1), "actions['walker_1']: [2, 1] is masked, expected one of [0] in component 0"),
]


@pytest.mark.parametrize(("space", "action", "message"), FORBIDDEN)
def test_a_forbidden_action_is_named(space: int, action: Any, message: str) -> None:
    nothing: Any = 0 if space == DISCRETE else [0, 0]
    env = drop_in(FERRY).parallel_env(SPACE=space)
    env.reset(seed=0)
    driven(env, [0, 1])
    with pytest.raises(InvalidAction) as caught:
        env.step({"walker_0": nothing, "walker_1": action, "watcher_0": 0})
    assert str(caught.value) == message
    assert int(env.game.vector.get_state()["steps"][0]) == 0
    turns = drop_in(FERRY).env(SPACE=space)
    turns.reset(seed=0)
    driven(turns, [0, 1])
    turns.step(np.array(nothing) if space == MULTI else nothing)
    with pytest.raises(InvalidAction) as caught:
        turns.step(np.array(action) if space == MULTI else action)
    assert str(caught.value) == message
    assert turns.agent_selection == "walker_1"


def test_a_box_has_no_mask() -> None:
    env = drop_in(FERRY).parallel_env(SPACE=BOX)
    assert env.reset(seed=0)[1] == {agent: {} for agent in env.agents}
    api_test(drop_in(FERRY).env(SPACE=BOX), num_cycles=30)


def test_a_pickled_environment_goes_on_with_its_masks(own_registry: None) -> None:
    registry.ENVIRONMENTS[FERRY.id] = FERRY
    env = drop_in(FERRY).parallel_env()
    _, infos = env.reset(seed=1)
    env.step(draw(env, infos))
    copy = pickle.loads(pickle.dumps(env))
    driven(env, [0, 1])
    for agent in WALKERS:
        assert data_equivalence(copy.game.action_mask(agent), wanted(copy, DISCRETE)[agent])
    assert data_equivalence(env.game.action_mask("walker_1"), np.array([1, 0, 0], np.int8))


# Gymnasium --------------------------------------------------------------------------------------

ALONE = replace(FERRY, id="toy/ferry_alone_v0", groups=FERRY.groups[:1])
MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]


class OfGymnasium(gymnasium.Env[Any, Any]):
    """The lone walker as an environment of Gymnasium's own, from the drop-in."""

    def __init__(self, space: int) -> None:
        self.env = drop_in(ALONE).parallel_env(N=1, SPACE=space)
        self.observation_space = self.env.observation_space("walker_0")
        self.action_space = self.env.action_space("walker_0")

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return tuple(part["walker_0"] for part in self.env.reset(seed=seed))

    def step(self, action: Any) -> Any:
        return tuple(part["walker_0"] for part in self.env.step({"walker_0": action}))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_vector_view_has_the_masks_of_sync_vector_env(mode: AutoresetMode) -> None:
    """Step by step the same array under the same name, of those who act."""
    own = VectorView(VectorEnv(ALONE, 3, N=1, numerics="reference", autoreset_mode=mode))
    theirs = SyncVectorEnv([lambda: OfGymnasium(DISCRETE)] * 3, autoreset_mode=mode)
    rng = np.random.default_rng(0)
    results, others = own.reset(seed=0), theirs.reset(seed=0)
    ends = 0
    for _ in range(3 * STEPS):
        mask, other = results[-1]["action_mask"], others[-1]["action_mask"]
        assert mask.dtype == other.dtype == np.int8 and mask.shape == other.shape == (3, 3)
        np.testing.assert_array_equal(mask, other)
        np.testing.assert_array_equal(
            results[-1]["_action_mask"], others[-1]["_action_mask"], strict=True
        )
        ends += int("final_obs" in results[-1])
        actions = (rng.random(mask.shape) * mask).argmax(1)
        results, others = own.step(actions), theirs.step(actions)
        np.testing.assert_array_equal(results[0], others[0])
        np.testing.assert_array_equal(results[1], others[1])
    assert ends == (2 if mode == AutoresetMode.SAME_STEP else 0)


@pytest.mark.parametrize("array", ["numpy", "torch"])
def test_a_vector_view_with_several_components(array: Any) -> None:
    """Side by side; fresh, or the kernel's memory."""
    if array == "torch":
        pytest.importorskip("torch")
    for copy in (True, False):
        batch = VectorEnv(ALONE, 4, N=1, SPACE=MULTI, array=array)
        view = VectorView(batch, copy=copy)
        _, infos = view.reset(seed=0)
        masks = batch.group["walker"].action_masks
        assert tuple(infos["action_mask"].shape) == (4, 5)
        assert bool((infos["action_mask"] == masks[:, 0]).all())
        masks[...] = True
        assert bool(infos["action_mask"].all()) is not copy
        assert isinstance(view.single_action_space, spaces.MultiDiscrete)


def test_unmasked_views_say_nothing() -> None:
    view = VectorView(VectorEnv(ALONE, 2, N=1, SPACE=BOX))
    assert view.reset(seed=0)[1] == {}
    assert view.step(np.zeros((2, 1), np.float32))[4] == {}
