"""Action masks of a batch: against the toy's rules, in every mode, shape and build."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from masks.ferry import (
    BOX,
    DISCRETE,
    FERRY,
    LEAVING,
    MULTI,
    STEPS,
    Rules,
    driven_now,
    masks_by_the_rules,
)  # fmt: skip

import gpu_zoo
from gpu_zoo import VectorEnv
from gpu_zoo.compile import CompileError
from gpu_zoo.errors import InvalidAction
from gpu_zoo.prelude import Features
from gpu_zoo.spec import Actions, EnvSpec, Group, Slice
from gpu_zoo.testing import (
    CheckFailed,
    CheckSkipped,
    check_bounds,
    check_builds,
    check_contract,
    check_determinism,
    check_nvrtc,
    check_races,
    check_reference,
)
from gpu_zoo.testing.play import put_actions, random_actions

SPACES = {"discrete": DISCRETE, "multi": MULTI}
each_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
each_mode = pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
each_spec = pytest.mark.parametrize("spec", [FERRY, LEAVING], ids=["staying", "leaving"])


# What masks say ---------------------------------------------------------------------------------


@each_mode
@each_space
@each_spec
def test_masks_are_the_rules(spec: EnvSpec, space: int, mode: str) -> None:
    """Of those who act, by the coin of the step to come; of all others, everything is allowed."""
    env = VectorEnv(
        spec, 40, autoreset_mode=mode, SPACE=space, may_quit=spec.leaving, validate_actions=False
    )
    masks, active = env.group["walker"].action_masks, env.group["walker"].active
    actions = random_actions(env, 3 * STEPS)
    env.reset(seed=0)
    waiting = forbidden = 0
    for step in range(len(actions["walker"]) + 1):
        over = env.engine.views["done"] if mode != "same_step" else np.zeros(40, np.bool_)
        acts = active & ~over[:, None]
        want = masks_by_the_rules(driven_now(env), space)
        np.testing.assert_array_equal(masks, want | ~acts[..., None])
        waiting += int((~acts).sum())
        forbidden += int((~masks).sum())
        if step < len(actions["walker"]):
            put_actions(env, actions, step)
            env.step()
    assert forbidden > 300
    assert (waiting > 50) is (mode != "same_step" or spec.leaving)


def test_masks_follow_a_state_that_is_put_back() -> None:
    env = VectorEnv(FERRY, 9)
    env.reset(seed=0)
    masks = env.group["walker"].action_masks
    state, before = env.get_state(), masks.copy()
    assert "action_masks/walker" not in state
    env.reset(seed=1)
    assert (masks != before).any()
    env.set_state(state)
    np.testing.assert_array_equal(masks, before)
    env.set_state({"coins": 1 - state["coins"]})
    np.testing.assert_array_equal(masks, masks_by_the_rules(1 - driven_now_of(state)))


def driven_now_of(state: Any) -> Any:
    return state["coins"][np.arange(len(state["steps"])), state["steps"] % state["coins"].shape[1]]


def test_there_are_masks_only_of_discrete_actions() -> None:
    box = VectorEnv(FERRY, 3, SPACE=BOX)
    assert box.group["walker"].action_masks is None
    assert box.reset(seed=0)[1] == {}
    assert "action_mask" not in box.step()[4]
    discrete = VectorEnv(FERRY, 3)
    assert discrete.group["watcher"].action_masks is None
    assert discrete.group["walker"].action_masks.shape == (3, 2, 3)
    assert VectorEnv(FERRY, 3, SPACE=MULTI).group["walker"].action_masks.shape == (3, 2, 5)


@pytest.mark.parametrize("array", ["numpy", "torch"])
def test_masks_are_the_kernels_memory(array: Any) -> None:
    """Bools by group, and the same bytes as int8 in infos, from the first reset to the last."""
    if array == "torch":
        pytest.importorskip("torch")
    env = VectorEnv(FERRY, 7, array=array)
    group = env.group["walker"]
    pointer = int(env.engine.backend._io["action_masks"][0])  # type: ignore[attr-defined]
    state: Any = None
    for _ in range(2):
        _, infos = env.reset(seed=0)
        assert list(infos) == ["action_mask"]
        for _ in range(2 * STEPS):
            for i, agent in enumerate(group.agents):
                mask = infos["action_mask"][agent]
                assert str(mask.dtype).removeprefix("torch.") == "int8"
                assert tuple(mask.shape) == (7, 3)
                assert address(mask) == pointer + 3 * i
                assert bool(((mask == 1) == group.action_masks[:, i]).all())
            assert list(infos["action_mask"]) == list(group.agents)  # and not the watcher
            assert address(group.action_masks) == pointer
            group.actions[...] = 0
            infos = env.step()[4]
        state = state or env.get_state()
        env.set_state(state)
        env.set_param("bonus", 0.5)


def address(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data)


def test_copies_are_kept() -> None:
    env = VectorEnv(FERRY, 30, copy=True)
    _, infos = env.reset(seed=0)
    kept = {agent: mask.copy() for agent, mask in infos["action_mask"].items()}
    for _ in range(3):
        env.step()
    now = env.group["walker"].action_masks
    for i, (agent, mask) in enumerate(kept.items()):
        np.testing.assert_array_equal(infos["action_mask"][agent], mask)
        assert (mask != now[:, i]).any()


# All promises -----------------------------------------------------------------------------------


@each_space
@each_spec
def test_the_contract(spec: EnvSpec, space: int) -> None:
    params = {"SPACE": space, "may_quit": spec.leaving}
    covered = check_contract(spec, params, steps=150)
    assert covered.episodes > 100
    check_determinism(spec, params)


@each_spec
def test_the_rules_in_python(spec: EnvSpec) -> None:
    """They assert that no action they are given is forbidden."""
    check_reference(spec, {"may_quit": spec.leaving}, rules=Rules)


# What follows compiles for long; several components are the harder case.
HARD: dict[str, Any] = {"SPACE": MULTI, "may_quit": True}


def test_all_builds_give_the_same_bits() -> None:
    shapes = ("lane", "block", "spread")
    check_builds(LEAVING, {**HARD, "N": 3}, numerics=["fast"], shapes=shapes)


def test_builds_with_own_parameters_and_starts() -> None:
    check_builds(
        LEAVING, HARD, numerics=["reference"], shapes=["block"], builds=["emulated"],
        block_sizes=(1, 3), features=Features(pool=True, varied=True),
    )  # fmt: skip


def test_no_race_and_no_index_out_of_bounds() -> None:
    try:
        check_races(LEAVING, HARD)
        check_bounds(LEAVING, HARD)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("shape", ["lane", "block", "spread"])
def test_it_compiles_for_gpus(shape: str) -> None:
    try:
        found = check_nvrtc(LEAVING, HARD, numerics=["fast"], architectures=["sm_90"], shape=shape)
    except CheckSkipped as reason:
        pytest.skip(str(reason))
    assert len(found) == 3


def broken(tmp_path: Any, old: str, new: str, spec: EnvSpec = FERRY) -> EnvSpec:
    """The toy with a mistake in its kernel."""
    text = spec.kernel_path.read_text()
    assert old in text
    kernel = tmp_path / "ferry.cu"
    kernel.write_text(text.replace(old, new))
    return replace(spec, kernel=str(kernel))


def test_a_mask_that_allows_nothing_is_found(tmp_path: Any) -> None:
    spec = broken(tmp_path, "mask[2] = false;", "mask[2] = mask[0] = false;")
    with pytest.raises(CheckFailed, match=r"action_masks/walker.*: False, expected some"):
        check_contract(spec, steps=5)


def test_a_mask_of_what_is_not_kept_is_found(tmp_path: Any) -> None:
    """It depends on more than the state: on what was observed."""
    old, new = "!driven(e, i);\n    mask[2]", "e.action(i) != 1;\n    mask[2]"
    with pytest.raises(CheckFailed, match="action_masks/walker"):
        check_contract(broken(tmp_path, old, new), steps=50)


def test_a_mask_unlike_the_rules_is_found(tmp_path: Any) -> None:
    spec = broken(tmp_path, "mask[2] = false;", "mask[2] = e.time == 3;")
    problem = r"step 3, action_masks\['walker_0'\]\[2\]: True, expected False by the rules"
    with pytest.raises(CheckFailed, match=problem):
        check_reference(spec, rules=Rules)


def test_a_kernel_without_the_hook_is_told(tmp_path: Any) -> None:
    spec = broken(tmp_path, "ZOO_FN void env_mask", "ZOO_FN void my_mask")
    with pytest.raises(CompileError, match="expected a function ZOO_FN void env_mask"):
        VectorEnv(spec, 1)
    VectorEnv(spec, 1, SPACE=BOX).reset(seed=0)  # which needs none


# Errors -----------------------------------------------------------------------------------------


def batch(space: int = DISCRETE, **settings: Any) -> VectorEnv:
    """Five environments in which walker_1 is driven in the fourth, and nobody else."""
    env = VectorEnv(FERRY, 5, SPACE=space, **settings)
    env.reset(seed=0)
    coins = np.zeros((5, 8, 2), np.int32)
    coins[3, :, 1] = 1
    env.set_state({"coins": coins})
    return env


def given(env: VectorEnv, agent: str, row: int, action: Any) -> dict[str, Any]:
    """Allowed actions, but for one agent in one environment."""
    shape = env.single_action_space("walker_0").shape or ()
    actions = {name: np.zeros((5, *shape), np.int64) for name in ("walker_0", "walker_1")}
    if shape:
        actions["walker_1"][3] = [0, 1]
    actions[agent][row] = action
    return {**actions, "watcher_0": np.zeros(5, np.int64)}


CASES = [
    (DISCRETE, "walker_1", 3, 1, "actions['walker_1'][3]: 1 is masked, expected one of [0]"),
    (DISCRETE, "walker_0", 2, 2, "actions['walker_0'][2]: 2 is masked, expected one of [0, 1]"),
    (
        MULTI, "walker_1", 3, [0, 0],
        "actions['walker_1'][3]: [0, 0] is masked, expected one of [1] in component 1",
    ),
    (
        MULTI, "walker_1", 3, [1, 1],
        "actions['walker_1'][3]: [1, 1] is masked, expected one of [0] in component 0",
    ),
]  # fmt: skip


@pytest.mark.parametrize("array", ["numpy", "torch"])
@pytest.mark.parametrize(("space", "agent", "row", "action", "message"), CASES)
def test_a_forbidden_action_is_named(
    space: int, agent: str, row: int, action: Any, message: str, array: Any
) -> None:
    """Given by agent or written to the group's array; and nothing moves."""
    if array == "torch":
        pytest.importorskip("torch")
    env = batch(space, array=array)
    env.step(given(env, agent, 0, 0))
    bad = given(env, agent, row, action)
    before = env.get_state()
    with pytest.raises(InvalidAction) as caught:
        env.step(bad)
    assert str(caught.value) == message
    for name, agents in env.groups.items():
        for i, other in enumerate(agents):
            env.group[name].actions[:, i] = env.engine.backend.public(bad[other].astype(np.int32))
    with pytest.raises(InvalidAction) as caught:
        env.step()
    assert str(caught.value) == message
    assert all(bool((env.get_state()[name] == before[name]).all()) for name in before)


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint64, np.int64])
def test_any_integers_are_looked_up(kind: Any) -> None:
    env = batch()
    actions = {agent: np.zeros(5, kind) for agent in env.agents}
    env.step(actions)
    actions["walker_1"][3] = 1
    with pytest.raises(InvalidAction, match="1 is masked"):
        env.step(actions)


def test_unchecked_actions_are_the_callers_business() -> None:
    env = batch(validate_actions=False)
    env.step(given(env, "walker_0", 0, 2))


def test_who_does_not_act_may_do_anything() -> None:
    env = VectorEnv(FERRY, 2, autoreset_mode="next_step")
    env.reset(seed=0)
    for _ in range(STEPS):
        env.group["walker"].actions[...] = 0
        env.step()
    env.group["walker"].actions[...] = 2
    env.step()
    with pytest.raises(InvalidAction, match="2 is masked"):
        env.step()


def test_a_masked_box_is_refused() -> None:
    box = Actions(("force",), box=(-1.0, 1.0))
    see = {"x": Slice(1, "something")}
    with pytest.raises(ValueError) as caught:
        Group("agent", 1, see, (box,), action_mask=True)
    assert str(caught.value) == (
        "group 'agent': action_mask=True with Box(-1, 1, (1,), float32), "
        "expected a discrete action space"
    )
    with pytest.raises(TypeError, match="group 'agent': action_mask=1, expected a bool"):
        Group("agent", 1, see, (Actions(("a",)),), action_mask=1)  # type: ignore[arg-type]
    Group("agent", 1, see, (box, Actions(("a", "b"))), action_mask=True)


def test_info_says_that_actions_are_masked(
    own_registry: None, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    from gpu_zoo.describe import show_info

    show_info(FERRY, FERRY.resolve({}), "fast")
    said = capsys.readouterr().out
    assert "Actions of walker, Discrete(3), masked" in said
    assert "Actions of watcher, Discrete(2)\n" in said
    assert gpu_zoo.list_ids()
