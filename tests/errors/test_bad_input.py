"""Bad input: one line that names the argument, what came and what was expected; nothing changes."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium.error
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

import gpu_zoo
from gpu_zoo import VectorEnv, nvrtc, registry
from gpu_zoo import compile as compiler
from gpu_zoo.backends import why_no_cuda
from gpu_zoo.compile import CompileError
from gpu_zoo.errors import (
    ClosedEnvironmentError,
    InvalidAction,
    InvalidSeed,
    MissingDependency,
    ResetNeeded,
)
from gpu_zoo.mpe import simple_spread_v3
from gpu_zoo.prelude import Program
from gpu_zoo.spec import Field

SPREAD = "mpe/simple_spread_v3"
TAG = "mpe/simple_tag_v3"
N = 3  # environments, and agents
F32 = np.float32


def refused(error: type[BaseException], call: Callable[[], Any], *parts: str) -> None:
    """``call`` raises exactly ``error``; its message is one line with all ``parts``."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error, f"{type(caught.value).__name__}: {message}"
    assert "\n" not in message
    for part in parts:
        assert part in message, f"{part!r} is not in {message!r}"


# Making -------------------------------------------------------------------------------------

# What is given to make_vec for simple_spread, the error, and what its message holds.
PARAMETERS: dict[str, tuple[dict[str, Any], type[BaseException], tuple[str, ...]]] = {
    "N too small": ({"N": 0}, ValueError, ("N=0", "int of at least 1")),
    "N a float": ({"N": 2.5}, TypeError, ("N=2.5", "int")),
    "N a string": ({"N": "3"}, TypeError, ("N='3'", "int")),
    "N a bool": ({"N": True}, TypeError, ("N=True", "int")),
    "N None": ({"N": None}, TypeError, ("N=None", "int")),
    "N beyond an int32": ({"N": 2**40}, ValueError, ("N=1099511627776", "2**31")),
    "ratio too large": ({"local_ratio": 2}, ValueError, ("local_ratio=2", "float from 0 to 1")),
    "ratio a string": ({"local_ratio": "x"}, TypeError, ("local_ratio='x'", "float")),
    "ratio a bool": ({"local_ratio": True}, TypeError, ("local_ratio=True", "float")),
    "ratio NaN": ({"local_ratio": float("nan")}, ValueError, ("local_ratio=nan", "from 0 to 1")),
    "ratio infinite": ({"local_ratio": float("inf")}, ValueError, ("local_ratio=inf", "0 to 1")),
    "no cycles": ({"max_cycles": 0}, ValueError, ("max_cycles=0", "at least 1")),
    "cycles a float": ({"max_cycles": 3.0}, TypeError, ("max_cycles=3.0", "int")),
    "switch an int": ({"continuous_actions": 1}, TypeError, ("continuous_actions=1", "bool")),
    "switch a string": ({"curriculum": "yes"}, TypeError, ("curriculum='yes'", "bool")),
    "render mode": ({"render_mode": "rgb"}, ValueError, ("render_mode='rgb'", "'rgb_array'")),
    "neighbours 0": (
        {"num_agent_neighbors": 0},
        ValueError,
        ("num_agent_neighbors=0", "at least 1", "or None"),
    ),
    "neighbours a float": (
        {"num_landmark_neighbors": 1.5},
        TypeError,
        ("num_landmark_neighbors=1.5", "int"),
    ),
    "stage without curriculum": (
        {"curriculum_stage": 1},
        ValueError,
        ("curriculum_stage=1", "curriculum=True"),
    ),
    "unknown, near": (
        {"local_ration": 0.5},
        TypeError,
        ("'local_ration'", "did you mean local_ratio"),
    ),
    "unknown, far": ({"zzz": 1}, TypeError, ("no parameter 'zzz'. It takes N, local_ratio",)),
    "device": ({"device": "gpu"}, ValueError, ("device='gpu'", "'cpu', 'cuda'")),
    "device a number": ({"device": 0}, ValueError, ("device=0", "'cpu', 'cuda'")),
    "device index": ({"device": "cuda:x"}, ValueError, ("device='cuda:x'", "'cuda:<index>'")),
    "array": ({"array": "jax"}, ValueError, ("array='jax'", "'numpy' or 'torch'")),
    "array of another device": ({"array": "cupy"}, ValueError, ("array='cupy'", "device='cpu'")),
    "numerics": ({"numerics": "exact"}, ValueError, ("numerics='exact'", "'fast' or 'reference'")),
    "autoreset": (
        {"autoreset_mode": "always"},
        ValueError,
        ("autoreset_mode='always'", "'same_step'"),
    ),
    "autoreset None": ({"autoreset_mode": None}, ValueError, ("autoreset_mode=None", "'disabled'")),
    "shape": ({"shape": "warp"}, ValueError, ("shape='warp'", "'lane'", "'block'")),
    "build": ({"build": "debug"}, ValueError, ("build='debug'", "'plain'")),
    "copy a string": ({"copy": "no"}, TypeError, ("copy='no'", "True or False")),
    "checks an int": ({"validate_actions": 0}, TypeError, ("validate_actions=0", "or None")),
    "num_envs 0": ({"num_envs": 0}, ValueError, ("num_envs=0", "at least 1")),
    "num_envs negative": ({"num_envs": -1}, ValueError, ("num_envs=-1", "at least 1")),
    "num_envs a float": ({"num_envs": 2.0}, TypeError, ("num_envs=2.0", "int")),
    "num_envs a bool": ({"num_envs": True}, TypeError, ("num_envs=True", "int")),
    "num_envs a string": ({"num_envs": "4"}, TypeError, ("num_envs='4'", "int")),
    "num_envs too many": ({"num_envs": 2**31}, ValueError, ("num_envs=2147483648", "2**30")),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_make_vec(name: str) -> None:
    given, error, parts = PARAMETERS[name]
    refused(error, lambda: gpu_zoo.make_vec(SPREAD, **{"num_envs": N, **given}), *parts)


OF_BATCHES = {
    "device", "array", "autoreset_mode", "shape", "build", "num_envs", "copy", "validate_actions",
}  # fmt: skip


@pytest.mark.parametrize("face", ["parallel_env", "env", "raw_env"])
@pytest.mark.parametrize(
    "name", [n for n, (g, _, _) in PARAMETERS.items() if not g.keys() & OF_BATCHES]
)
def test_drop_in_constructor(name: str, face: str) -> None:
    given, error, parts = PARAMETERS[name]
    refused(error, lambda: getattr(simple_spread_v3, face)(**given), *parts)


def test_parameters_that_do_not_go_together() -> None:
    zero = {"num_good": 0, "num_adversaries": 0}
    refused(ValueError, lambda: gpu_zoo.make_vec(TAG, **zero), "num_good=0", "num_adversaries=0")


def test_raw_env_arguments() -> None:
    refused(TypeError, lambda: simple_spread_v3.raw_env(*range(20)), "12", "20")
    refused(TypeError, lambda: simple_spread_v3.raw_env(3, N=4), "N")  # twice


@pytest.mark.parametrize("what", ["make", "make_vec", "spec"])
def test_unknown_environment(what: str) -> None:
    call = getattr(gpu_zoo, what)
    error = registry.UnknownEnvironment
    refused(error, lambda: call("mpe/simple_spraed_v3"), "'mpe/simple_spraed_v3'", f"mean {SPREAD}")
    refused(error, lambda: call("simple_tag_v2"), "'simple_tag_v2'", TAG)
    refused(error, lambda: call("zzz"), "'zzz'", "gpu_zoo.list_ids()")
    refused(error, lambda: call(3), "3", "gpu_zoo.list_ids()")
    assert issubclass(error, KeyError)


def test_a_name_that_two_environments_have(own_registry: None) -> None:
    spec = dataclasses.replace(gpu_zoo.spec(SPREAD), id="mine/simple_spread_v3")
    gpu_zoo.register(spec)
    error = registry.UnknownEnvironment
    call: Callable[[], Any] = lambda: gpu_zoo.spec("simple_spread_v3")  # noqa: E731
    refused(error, call, "'simple_spread_v3'", SPREAD, "mine/simple_spread_v3")


@pytest.mark.skipif(not why_no_cuda(), reason="CUDA works here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_no_cuda(device: str) -> None:
    parts = [f"device='{device}'"]
    if "CuPy is not installed" in why_no_cuda():
        parts.append("pip install 'gpu-zoo[cuda13]'")
    refused(MissingDependency, lambda: gpu_zoo.make_vec(SPREAD, device=device), *parts)


def test_no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    call: Callable[[], Any] = lambda: gpu_zoo.make_vec(SPREAD, device="cuda")  # noqa: E731
    refused(MissingDependency, call, "device='cuda'", "CuPy", "pip install 'gpu-zoo[cuda13]'")
    assert gpu_zoo.make_vec(SPREAD, device="auto").device == "cpu"


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    call: Callable[[], Any] = lambda: gpu_zoo.make_vec(SPREAD, array="torch")  # noqa: E731
    refused(MissingDependency, call, "array='torch'", "pip install 'gpu-zoo[train]'")


# A batch that was reset ---------------------------------------------------------------------


def batch(**given: Any) -> VectorEnv:
    """A batch three steps into its first episode."""
    env = gpu_zoo.make_vec(SPREAD, **{"num_envs": N, **given})
    env.reset(seed=5)
    for k in range(3):
        env.step(good(env, k))
    return env


def good(env: VectorEnv, k: int = 0) -> dict[str, Any]:
    """Valid actions."""
    if env.params["continuous_actions"]:
        return {agent: np.full((N, 5), 0.25 * i, F32) for i, agent in enumerate(env.agents)}
    return {agent: np.full(N, (k + i) % 5) for i, agent in enumerate(env.agents)}


def acting(value: Any) -> Callable[[VectorEnv], Any]:
    """A step in which the last agent acts ``value``, the others well but otherwise than before."""
    return lambda env: env.step({**good(env, 4), "agent_2": value})


def buffered(value: Any) -> Callable[[VectorEnv], Any]:
    """A step on the action buffers, one entry of which is ``value``; then as it was."""

    def call(env: VectorEnv) -> Any:
        actions = env.group["agent"].actions
        before = actions.copy()
        actions[1, 2] = value
        try:
            return env.step()
        finally:
            actions[...] = before

    return call


def grad(*shape: int) -> Any:
    torch = pytest.importorskip("torch")
    return torch.zeros(shape, requires_grad=True)


BOX = {"continuous_actions": True}
BOX_TORCH = {"continuous_actions": True, "array": "torch"}
Row = tuple[dict[str, Any], Callable[[Any], Any], type[BaseException], tuple[str, ...]]
AGENT = "actions['agent_2']"
CALLS: dict[str, Row] = {
    # Actions.
    "a list": (
        {},
        lambda e: e.step(list(good(e).values())),
        InvalidAction,
        ("actions: list", "dict"),
    ),
    "an array": ({}, lambda e: e.step(np.zeros((N, 3), int)), InvalidAction, ("ndarray", "dict")),
    "an int": ({}, lambda e: e.step(3), InvalidAction, ("actions: int", "dict")),
    "an agent missing": (
        {},
        lambda e: e.step({"agent_0": np.ones(N, int)}),
        InvalidAction,
        ("nothing for agent_1",),
    ),
    "an unknown agent": (
        {},
        lambda e: e.step({**good(e), "agent_9": np.ones(N, int)}),
        InvalidAction,
        ("'agent_9'", "expected agent_0, agent_1, agent_2"),
    ),
    "a group's name": (
        {},
        lambda e: e.step({"agent": np.ones((N, 3), int)}),
        InvalidAction,
        ("unknown agent 'agent'", "expected agent_0, agent_1, agent_2"),
    ),
    "a name that is no string": (
        {},
        lambda e: e.step(dict([*good(e).items(), (3, np.ones(N, int))])),
        InvalidAction,
        ("agent 3", "agent_0"),
    ),
    "wrong shape": ({}, acting(np.zeros((N, 1), int)), InvalidAction, (AGENT, "(3, 1)", "(3,)")),
    "wrong length": ({}, acting(np.zeros(N + 1, int)), InvalidAction, (AGENT, "(4,)", "(3,)")),
    "a scalar": ({}, acting(1), InvalidAction, (AGENT, "shape ()", "(3,)")),
    "None": ({}, acting(None), InvalidAction, (AGENT, "(3,)")),
    "ragged": ({}, acting([[1], [2, 3], 4]), InvalidAction, (AGENT, "inhomogeneous")),
    "floats for discrete": ({}, acting(np.zeros(N)), InvalidAction, (AGENT, "float64", "integers")),
    "bools for discrete": (
        {},
        acting(np.zeros(N, bool)),
        InvalidAction,
        (AGENT, "bool", "integers"),
    ),
    "objects": ({}, acting(np.array([0, None, 1])), InvalidAction, (AGENT, "object", "integers")),
    "too large": ({}, acting(np.array([0, 5, 0])), InvalidAction, (f"{AGENT}[1]: 5", "action < 5")),
    "negative": ({}, acting(np.array([0, 0, -1])), InvalidAction, (f"{AGENT}[2]: -1", "0 <= ")),
    "int64 that wraps to 0": (
        {},
        acting(np.array([0, 2**32, 0])),
        InvalidAction,
        (f"{AGENT}[1]: 4294967296", "< 5"),
    ),
    "uint64": (
        {},
        acting(np.array([0, 0, 2**63], np.uint64)),
        InvalidAction,
        (f"{AGENT}[2]: 92233720", "< 5"),
    ),
    "uint8": (
        {},
        acting(np.array([0, 255, 0], np.uint8)),
        InvalidAction,
        (f"{AGENT}[1]: 255", "< 5"),
    ),
    "in the buffer": ({}, buffered(7), InvalidAction, (f"{AGENT}[1]: 7", "action < 5")),
    "float64 for box": (
        BOX,
        acting(np.zeros((N, 5))),
        InvalidAction,
        (AGENT, "float64", "float32"),
    ),
    "ints for box": (
        BOX,
        acting(np.zeros((N, 5), int)),
        InvalidAction,
        (AGENT, "int64", "float32"),
    ),
    "box shape": (BOX, acting(np.zeros((N, 4), F32)), InvalidAction, (AGENT, "(3, 4)", "(3, 5)")),
    "NaN": (BOX, acting(np.full((N, 5), np.nan, F32)), InvalidAction, (f"{AGENT}[0]: nan", "<= 1")),
    "infinite": (
        BOX,
        acting(np.full((N, 5), np.inf, F32)),
        InvalidAction,
        (f"{AGENT}[0]: inf", "<= 1"),
    ),
    "above the box": (
        BOX,
        acting(np.full((N, 5), 1.01, F32)),
        InvalidAction,
        (AGENT, "1.0", "<= 1"),
    ),
    "below the box": (
        BOX,
        acting(np.full((N, 5), -0.1, F32)),
        InvalidAction,
        (AGENT, "-0.1", "0 <="),
    ),
    "NaN in the buffer": (BOX, buffered(np.nan), InvalidAction, (f"{AGENT}[1]: nan", "<= 1")),
    "tensor with grad": (BOX, lambda e: acting(grad(N, 5))(e), InvalidAction, (AGENT, "grad")),
    "tensor with grad, torch": (
        BOX_TORCH,
        lambda e: acting(grad(N, 5))(e),
        InvalidAction,
        (AGENT, "grad", "detach"),
    ),
    # Seeds.
    "seed negative": ({}, lambda e: e.reset(seed=-1), InvalidSeed, ("seed=-1", "0 <= seed")),
    "seed a float": ({}, lambda e: e.reset(seed=1.5), InvalidSeed, ("seed=1.5", "int")),
    "seed a bool": ({}, lambda e: e.reset(seed=True), InvalidSeed, ("seed=True", "int")),
    "seed a string": ({}, lambda e: e.reset(seed="1"), InvalidSeed, ("seed='1'", "int")),
    "seed a set": ({}, lambda e: e.reset(seed={1, 2, 3}), InvalidSeed, ("seed={1, 2, 3}", "int")),
    "seed 0-dimensional": (
        {},
        lambda e: e.reset(seed=np.array(1.5)),
        InvalidSeed,
        ("seed=", "int"),
    ),
    "too many seeds": ({}, lambda e: e.reset(seed=[1] * 4), InvalidSeed, ("seed: 4 seeds for 3",)),
    "too few seeds": ({}, lambda e: e.reset(seed=[1]), InvalidSeed, ("seed: 1 seeds for 3",)),
    "a float among seeds": ({}, lambda e: e.reset(seed=[1, 2, 3.5]), InvalidSeed, ("3.5", "ints")),
    "None among seeds": ({}, lambda e: e.reset(seed=[1, None, 2]), InvalidSeed, ("None", "ints")),
    "a negative seed among them": (
        {},
        lambda e: e.reset(seed=[1, 2, -3]),
        InvalidSeed,
        ("-3", "0 <="),
    ),
    "seeds beyond int64": (
        {},
        lambda e: e.reset(seed=2**63 - 2),
        InvalidSeed,
        (f"seed={2**63 - 2}", "2**63 - 1"),
    ),
    # Options.
    "mask of ints": (
        {},
        lambda e: e.reset(options={"reset_mask": np.ones(N, int)}),
        ValueError,
        ("options['reset_mask']: int64 (3,)", "bool (3,)"),
    ),
    "mask too long": (
        {},
        lambda e: e.reset(options={"reset_mask": np.ones(N + 1, bool)}),
        ValueError,
        ("options['reset_mask']: bool (4,)", "bool (3,)"),
    ),
    "mask all false": (
        {},
        lambda e: e.reset(options={"reset_mask": np.zeros(N, bool)}),
        ValueError,
        ("options['reset_mask']", "no entry is true"),
    ),
    "mask all false, with a seed": (
        {},
        lambda e: e.reset(seed=1, options={"reset_mask": np.zeros(N, bool)}),
        ValueError,
        ("options['reset_mask']", "no entry is true"),
    ),
    "mask and a bad seed": (
        {},
        lambda e: e.reset(seed=-1, options={"reset_mask": np.ones(N, bool)}),
        InvalidSeed,
        ("seed=-1", "0 <= seed"),
    ),
    "mask None": (
        {},
        lambda e: e.reset(options={"reset_mask": None}),
        ValueError,
        ("options['reset_mask']", "bool (3,)"),
    ),
    "unknown option": (
        {},
        lambda e: e.reset(options={"mask": np.ones(N, bool)}),
        ValueError,
        ("options['mask']", "'reset_mask'"),
    ),
    "options a number": ({}, lambda e: e.reset(options=3), TypeError, ("options=3", "dict")),
    # State.
    "unknown field": (
        {},
        lambda e: e.set_state({"posx": np.zeros(N)}),
        KeyError,
        ("state['posx']", "pos, vel"),
    ),
    "state of another batch": (
        {},
        lambda e: e.set_state({"pos": np.zeros((2, 3, 2), F32)}),
        ValueError,
        ("state['pos']", "(2, 3, 2)", "(3, 3, 2)"),
    ),
    "state of other numerics": (
        {},
        lambda e: e.set_state({"pos": np.zeros((3, 3, 2))}),
        ValueError,
        ("state['pos']", "float64", "float32"),
    ),
    "the second field wrong": (
        {},
        lambda e: e.set_state({"vel": np.ones((3, 3, 2), F32), "pos": np.zeros((3, 3, 2))}),
        ValueError,
        ("state['pos']", "float64", "float32"),
    ),
    "state a list": ({}, lambda e: e.set_state([1]), TypeError, ("state", "list", "dict")),
    # Parameters.
    "fixed parameter": (
        {},
        lambda e: e.set_param("N", 4),
        KeyError,
        ("name='N'", "expected one of local_ratio"),
    ),
    "unknown parameter": (
        {},
        lambda e: e.set_param("local_ration", 0.4),
        KeyError,
        ("name='local_ration'", "local_ratio"),
    ),
    "parameter out of range": (
        {},
        lambda e: e.set_param("local_ratio", 3),
        ValueError,
        ("local_ratio=3", "0 to 1"),
    ),
    "parameter of a wrong type": (
        {},
        lambda e: e.set_param("local_ratio", "a"),
        TypeError,
        ("local_ratio='a'", "float"),
    ),
    # The rest.
    "picture of no environment": (
        {},
        lambda e: e.render(N),
        IndexError,
        ("index=3", "0 <= index < 3"),
    ),
    "picture number 1.5": ({}, lambda e: e.render(1.5), TypeError, ("index=1.5", "int")),
    "unknown agent's space": (
        {},
        lambda e: e.action_space("agent_7"),
        KeyError,
        ("agent='agent_7'", "agent_0, agent_1"),
    ),
}


@pytest.mark.parametrize("numerics", ["fast", "reference"])
@pytest.mark.parametrize("name", CALLS)
def test_batch(name: str, numerics: str) -> None:
    given, call, error, parts = CALLS[name]
    if name == "state of other numerics" or name == "the second field wrong":
        numerics = "fast"
    if name == "seeds beyond int64" and numerics == "reference":
        pytest.skip("NumPy's seed sequence takes any size")
    if "torch" in given.values():
        pytest.importorskip("torch")
    env, twin = (batch(numerics=numerics, **given) for _ in range(2))
    refused(error, lambda: call(env), *parts)
    unchanged(env, twin)


def unchanged(env: VectorEnv, twin: VectorEnv) -> None:
    """``env`` stands and goes on as its untouched twin."""
    assert env.params == twin.params
    same(env.get_state(), twin.get_state())
    for name, group in twin.group.items():
        for field in dataclasses.fields(group):
            if field.name not in ("agents", "observation_space", "action_space"):
                same(getattr(env.group[name], field.name), getattr(group, field.name))
    same(env.step(), twin.step())
    same(env.step(good(env, 2)), twin.step(good(twin, 2)))
    same(env.reset(), twin.reset())


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, tuple):
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("what", ["step", "state", "get_state", "set_state", "render"])
def test_before_reset(what: str) -> None:
    env = gpu_zoo.make_vec(SPREAD, N)
    arguments: Any = ({},) if what == "set_state" else ()
    refused(ResetNeeded, lambda: getattr(env, what)(*arguments), what, "reset()")
    refused(ResetNeeded, lambda: env.step(good(env)), "step", "reset()")
    twin = gpu_zoo.make_vec(SPREAD, N)
    same(env.reset(seed=1), twin.reset(seed=1))


def test_mask_before_reset() -> None:
    env = gpu_zoo.make_vec(SPREAD, N)
    options = {"reset_mask": np.ones(N, bool)}
    refused(ResetNeeded, lambda: env.reset(options=options), "options['reset_mask']", "reset all")
    same(env.reset(seed=1), gpu_zoo.make_vec(SPREAD, N).reset(seed=1))


def test_after_close() -> None:
    env = batch()
    kept = env.state()
    before = kept.copy()
    env.close()
    env.close()
    for call in (
        env.step, env.state, env.get_state, env.reset, env.render,
        lambda: env.set_state({}), lambda: env.set_param("local_ratio", 0.1),
    ):  # fmt: skip
        refused(ClosedEnvironmentError, call, SPREAD, "closed")
    np.testing.assert_array_equal(kept, before)  # arrays handed out stay valid


def test_finished_environment_without_autoreset() -> None:
    env, twin = (batch(autoreset_mode="disabled", max_cycles=3) for _ in range(2))
    for call in (env.step, lambda: env.step(good(env))):
        refused(ResetNeeded, call, "environment 0", "reset_mask")
    same(env.get_state(), twin.get_state())
    mask = {"reset_mask": np.array([True, True, False])}
    same(env.reset(options=dict(mask)), twin.reset(options=dict(mask)))
    refused(ResetNeeded, env.step, "environment 2", "reset_mask")
    mask["reset_mask"] = np.array([False, False, True])
    same(env.reset(options=dict(mask)), twin.reset(options=dict(mask)))
    same(env.step(good(env)), twin.step(good(twin)))


# The drop-ins -------------------------------------------------------------------------------


def face(continuous: bool) -> Any:
    env = simple_spread_v3.parallel_env(continuous_actions=continuous)
    env.reset(seed=5)
    env.step(moves(continuous))
    return env


def moves(continuous: bool, **other: Any) -> dict[str, Any]:
    action: Any = np.full(5, 0.5, F32) if continuous else 1
    return {**{f"agent_{i}": action for i in range(3)}, **other}


PARALLEL: dict[str, tuple[bool, Any, tuple[str, ...]]] = {
    "a list": (False, [0, 0, 0], ("actions: list", "dict")),
    "None": (False, None, ("actions: NoneType", "dict")),
    "an agent missing": (False, {"agent_0": 0}, ("nothing for agent_1",)),
    "an unknown agent": (False, moves(False, agent_7=0), ("'agent_7'",)),
    "too large": (False, moves(False, agent_2=5), (f"{AGENT}: 5", "action < 5")),
    "negative": (False, moves(False, agent_2=-1), (f"{AGENT}: -1", "0 <= action")),
    "a float": (False, moves(False, agent_2=1.0), (f"{AGENT}: 1.0", "integer")),
    "a NumPy float": (False, moves(False, agent_2=F32(1)), (f"{AGENT}:", "integer")),
    "no action": (False, moves(False, agent_2=None), (f"{AGENT}: None", "integer")),
    "two": (False, moves(False, agent_2=np.array([1, 2])), (AGENT, "integer")),
    "NaN": (True, moves(True, agent_2=np.full(5, np.nan, F32)), (f"{AGENT}: NaN",)),
    "wrong shape": (True, moves(True, agent_2=np.zeros(4, F32)), (AGENT, "(4,)", "(5,)")),
    "a string": (True, moves(True, agent_2="up"), (AGENT, "(5,)")),
    "no box action": (True, moves(True, agent_2=None), (AGENT, "(5,)")),
    "ragged": (True, moves(True, agent_2=[[1], 2, 3, 4, 5]), (AGENT, "(5,)")),
}


@pytest.mark.parametrize("name", PARALLEL)
def test_parallel_face(name: str) -> None:
    continuous, actions, parts = PARALLEL[name]
    env, twin = face(continuous), face(continuous)
    refused(InvalidAction, lambda: env.step(actions), *parts)
    assert data_equivalence(env.state(), twin.state())
    assert env.agents == twin.agents
    for _ in range(3):
        assert data_equivalence(env.step(moves(continuous)), twin.step(moves(continuous)))


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize(
    ("continuous", "action"),
    [(False, 9), (False, -1), (False, None), (True, np.full(5, np.nan, F32))],
)
def test_aec_face(continuous: bool, action: Any, wrapped: bool) -> None:
    make = simple_spread_v3.env if wrapped else simple_spread_v3.raw_env
    env, twin = (make(continuous_actions=continuous) for _ in range(2))
    for one in (env, twin):
        one.reset(seed=5)
        one.step(moves(continuous)["agent_0"])
    # Around the original, PettingZoo's wrappers raise AssertionErrors; ours are those too.
    if wrapped:
        refused(AssertionError, lambda: env.step(action), "action")
    else:
        refused(InvalidAction, lambda: env.step(action), "actions['agent_1']")
    assert env.agent_selection == twin.agent_selection == "agent_1"
    for one in (env, twin):
        for _ in range(5):
            one.step(moves(continuous)["agent_0"])
    assert data_equivalence(env.state(), twin.state())
    assert data_equivalence(env.last(), twin.last())


def test_dead_agent_acts() -> None:
    env = simple_spread_v3.raw_env(max_cycles=1)
    env.reset(seed=5)
    for _ in range(3):
        env.step(0)
    refused(ValueError, lambda: env.step(0), "None")
    assert env.agents == env.possible_agents
    for _ in range(3):
        env.step(None)
    assert env.agents == []


@pytest.mark.parametrize("seed", [-1, 0.5, True, "1", [1], [1, 2]])
def test_seed_of_a_face(seed: Any) -> None:
    env, twin = face(False), face(False)
    refused(InvalidSeed, lambda: env.reset(seed=seed), "seed")
    assert issubclass(InvalidSeed, gymnasium.error.Error)  # what the original raises
    assert data_equivalence(env.step(moves(False)), twin.step(moves(False)))
    assert data_equivalence(env.reset(), twin.reset())


@pytest.mark.parametrize("make", [simple_spread_v3.parallel_env, simple_spread_v3.raw_env])
def test_face_before_reset(make: Callable[..., Any]) -> None:
    env = make(render_mode="rgb_array")
    for call in (env.state, env.render, lambda: env.step(moves(False))):
        refused(ResetNeeded, call, "reset()")
    env.reset(seed=0)
    assert env.state().shape == (54,)


def test_stage_of_a_wrong_type() -> None:
    env: Any = simple_spread_v3.parallel_env(curriculum=True)
    refused(TypeError, lambda: env.set_curriculum_stage("1"), "stage")
    refused(TypeError, lambda: env.set_curriculum_stage(0.5), "stage", "0.5")
    assert env.curriculum_stage == 0


def test_float64_actions_warn_once() -> None:
    env = face(True)
    with pytest.warns(UserWarning, match="float64.*rounded to the space's float32"):
        env.step(moves(True, agent_1=np.full(5, 0.3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.step(moves(True, agent_1=np.full(5, 0.3)))


def test_tensors_as_actions_of_a_face() -> None:
    torch = pytest.importorskip("torch")
    half = torch.full((5,), 0.5)
    plain = face(True).step(moves(True))
    for given in (half.clone().requires_grad_(), half.bfloat16()):
        same(face(True).step(moves(True, agent_2=given)), plain)
    same(face(False).step(moves(False, agent_2=torch.tensor(1))), face(False).step(moves(False)))
    tag: Any = gpu_zoo.make("warpdrive/tag_continuous_v0")
    tag.reset(seed=5)
    for env, empty, words in (
        (face(True), torch.zeros(5, device="meta"), "of float32 on meta"),
        (face(False), torch.zeros((), dtype=torch.int64, device="meta"), "no integer"),
        (tag, torch.zeros(2, dtype=torch.int64, device="meta"), "of int64 on meta"),
    ):
        agent = env.agents[-1]
        actions = {name: env.action_space(name).sample() for name in env.agents}
        step = partial(env.step, {**actions, agent: empty})
        refused(InvalidAction, step, f"actions['{agent}']", words, "expected")


@pytest.mark.parametrize("given", [[5], (5,), np.array([5])])
def test_a_face_has_one_value_of_a_parameter(given: Any) -> None:
    """A batch takes one for each environment, and the game of a face is a batch of one."""
    for make in (simple_spread_v3.parallel_env, simple_spread_v3.env):
        refused(TypeError, partial(make, max_cycles=given), "max_cycles=", "expected int")
    env = face(False)
    refused(TypeError, lambda: setattr(env, "max_cycles", given), "max_cycles=", "expected int")
    env.max_cycles = 7
    assert env.max_cycles == 7


# Specs, kernels, compilers ------------------------------------------------------------------


def own_spec(folder: Path, old: str = "", new: str = "", **changes: Any) -> gpu_zoo.EnvSpec:
    """simple_spread with a kernel file of one's own, one place of which may be changed."""
    spread = gpu_zoo.spec(SPREAD)
    text = spread.kernel_path.read_text()
    assert old in text
    kernel = folder / "mine.cu"
    kernel.write_text(text.replace(old, new) if old else text)
    return dataclasses.replace(spread, **{"id": "mine/mine_v0", "kernel": str(kernel), **changes})


def test_register(tmp_path: Path, own_registry: None) -> None:
    before = gpu_zoo.list_ids()
    refused(ValueError, lambda: gpu_zoo.register(gpu_zoo.spec(SPREAD)), f"id='{SPREAD}'", "already")
    missing = own_spec(tmp_path, kernel=str(tmp_path / "no.cu"))
    refused(ValueError, lambda: gpu_zoo.register(missing), "kernel=", "no.cu", "no such file")
    for bad in ("mine", "mine/with a space_v0", "mine/unversioned", ""):
        spec = own_spec(tmp_path, id=bad)
        refused(ValueError, lambda spec=spec: gpu_zoo.register(spec), f"id={bad!r}")  # type: ignore[misc]
    refused(TypeError, lambda: gpu_zoo.register("mine"), "str", "EnvSpec")  # type: ignore[arg-type]
    assert gpu_zoo.list_ids() == before
    gpu_zoo.register(own_spec(tmp_path))
    assert gpu_zoo.list_ids() == sorted([*before, "mine/mine_v0"])
    # The same kernel again is the author at work; another one is somebody else's environment.
    changed = own_spec(tmp_path, summary="Changed.")
    gpu_zoo.register(changed)
    assert gpu_zoo.spec("mine/mine_v0") is changed
    (tmp_path / "other").mkdir()
    other = own_spec(tmp_path / "other")
    refused(ValueError, lambda: gpu_zoo.register(other), "id='mine/mine_v0'", "already")
    assert gpu_zoo.spec("mine/mine_v0") is changed


def test_spec_is_no_spec() -> None:
    refused(TypeError, lambda: VectorEnv(SPREAD, N), "str", "EnvSpec")  # type: ignore[arg-type]


def test_kernel_is_not_there(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, kernel=str(tmp_path / "no.cu"))
    refused(FileNotFoundError, lambda: VectorEnv(spec, N), str(tmp_path / "no.cu"))


def make_own(folder: Path, **changes: Any) -> Callable[[], Any]:
    """To build a spec and to make its environment: a bad one may be refused in either."""
    return lambda: VectorEnv(own_spec(folder, **changes), N)


def test_size_names_no_parameter(tmp_path: Path) -> None:
    spread = gpu_zoo.spec(SPREAD)
    group = dataclasses.replace(spread.groups[0], count="2 * M")
    refused(ValueError, make_own(tmp_path, groups=(group,)), "'2 * M'", "'M'")
    state = {**spread.state, "x": Field("real", ("N +",), "")}
    refused(ValueError, make_own(tmp_path, state=state), "'N +'")


@pytest.mark.parametrize(
    ("name", "dtype", "parts"),
    [
        ("x", "f64", ("'f64'", "'real'")),
        ("steps", "i32", ()),  # get_state() has this besides the fields
        ("two words", "i32", ()),
    ],
)
def test_field_that_cannot_be(tmp_path: Path, name: str, dtype: Any, parts: tuple[str]) -> None:
    state = {**gpu_zoo.spec(SPREAD).state, name: Field(dtype, (3,), "")}
    refused(ValueError, make_own(tmp_path, state=state), f"'{name}'", *parts)


def test_two_groups_of_one_name(tmp_path: Path) -> None:
    group = gpu_zoo.spec(SPREAD).groups[0]
    refused(ValueError, make_own(tmp_path, groups=(group, group)), "'agent'", "twice")


COMPILERS = {
    "host": lambda program: compiler.build_host(compiler.flatten(program), "mine"),
    "nvrtc": lambda program: nvrtc.compile_cubin(compiler.flatten(program), "mine", "sm_90"),
}


def compile_error(spec: gpu_zoo.EnvSpec, who: str) -> list[str]:
    """The lines of what a compiler says of a kernel that is broken."""
    if who == "nvrtc":
        try:
            nvrtc.library()
        except ImportError as error:
            pytest.skip(str(error))
    with pytest.raises(CompileError) as caught:
        COMPILERS[who](Program(spec, spec.resolve({})))
    return str(caught.value).splitlines()


@pytest.fixture(params=["host", pytest.param("clang", marks=pytest.mark.slow), "nvrtc"])
def who(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "clang":
        return str(request.param)
    pytest.importorskip("ziglang")
    monkeypatch.setattr(compiler, "find_compiler", lambda: (sys.executable, "-m", "ziglang", "c++"))
    return "host"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("zoo_sqrt(nearest)", "zoo_sqroot(nearest)", "zoo_sqroot"),
        ("e.t.cover[l] = zoo", "e.t.covr[l] = zoo", "covr"),
        ("real nearest = ", "struct Point nearest = ", "Point"),
        ("constexpr real COVER_RADIUS", "#include <no_such>\nconstexpr real RADIUS", "no_such"),
    ],
    ids=["name", "member", "type", "include"],
)
def test_compile_error_begins_with_the_authors_line(
    tmp_path: Path, who: str, old: str, new: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = own_spec(tmp_path, old, new)
    lines = Path(spec.kernel).read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if new.splitlines()[0] in text)
    first, *rest = compile_error(spec, who)
    assert first.startswith(f"{spec.kernel}:{line}: error: ")
    assert says in first
    assert len(rest) > 2  # all that the compiler said
    monkeypatch.chdir(tmp_path)
    assert compile_error(spec, who)[0].startswith(f"mine.cu:{line}: error: ")


def test_a_function_that_is_not_there(tmp_path: Path, who: str) -> None:
    spec = own_spec(tmp_path, "env_score(Env& e)", "env_scores(Env& e)")
    wanted = "expected a function ZOO_FN void env_score(Env& e)"
    assert compile_error(spec, who)[0] == f"{spec.kernel}: error: {wanted}"


def test_a_kernel_without_its_last_line(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, '#include "zoo/entry.cuh"', "")
    expected = f'{spec.kernel}: error: no #include "zoo/entry.cuh" at its end'
    assert compile_error(spec, "host") == [expected]


def test_compile_error_in_an_included_file(tmp_path: Path) -> None:
    (tmp_path / "mpe").mkdir()
    world = (gpu_zoo.spec(SPREAD).kernel_path.parent / "world.cuh").read_text()
    line = 1 + next(i for i, t in enumerate(world.splitlines()) if "s.vel[i][1] = v.y;" in t)
    broken = world.replace("s.vel[i][1] = v.y;", "s.vel[i][1] = v.z;")
    (tmp_path / "mpe" / "world.cuh").write_text(broken)
    with pytest.raises(CompileError) as caught:
        VectorEnv(own_spec(tmp_path), N)
    assert f"world.cuh:{line}:" in str(caught.value)


def test_include_is_not_there(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, '"mpe/world.cuh"', '"mpe/wurld.cuh"')
    lines = Path(spec.kernel).read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "wurld" in text)
    refused(
        FileNotFoundError, lambda: VectorEnv(spec, N), f"{spec.kernel}:{line}:", "mpe/wurld.cuh"
    )


MAKE = f"""
import gpu_zoo
try:
    gpu_zoo.make_vec({SPREAD!r}).reset(seed=0)
except Exception as error:
    print(type(error).__name__, error)
else:
    print("no error")
"""


def in_subprocess(before: str = "", **environment: str) -> str:
    """What a new process prints that makes an environment, after running the code ``before``."""
    done = subprocess.run(
        [sys.executable, "-c", before + MAKE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_compiler_is_not_there(tmp_path: Path) -> None:
    printed = in_subprocess(GPU_ZOO_CACHE_DIR=str(tmp_path), CXX="/nonexistent/c++")
    assert printed.startswith("MissingDependency $CXX='/nonexistent/c++'")
    assert "unset CXX or install it" in printed
    assert "\n" not in printed
    assert list(tmp_path.iterdir()) == []


def test_no_compiler_at_all(tmp_path: Path) -> None:
    # The ziglang wheel is a compiler too, and the tests have it: None hides a module.
    hide = "import sys; sys.modules['ziglang'] = None\n"
    printed = in_subprocess(hide, GPU_ZOO_CACHE_DIR=str(tmp_path), PATH=str(tmp_path), CXX="")
    assert printed.startswith("MissingDependency no C++ compiler found")
    for way in ("apt install g++", "xcode-select --install", "pip install ziglang"):
        assert way in printed
    assert "\n" not in printed


def test_compiler_that_fails(tmp_path: Path) -> None:
    printed = in_subprocess(GPU_ZOO_CACHE_DIR=str(tmp_path), CXX="false")
    assert printed.startswith("CompileError ")
    assert "false failed" in printed
    assert list(tmp_path.iterdir()) == []  # nothing half built


@pytest.mark.parametrize("wrong", ["0", "-1.5", "\u00b2", "1025", "99999999999"])
def test_number_of_threads(wrong: str) -> None:
    printed = in_subprocess(GPU_ZOO_NUM_THREADS=wrong)
    where = f"GPU_ZOO_NUM_THREADS='{wrong}'"
    assert printed == f"ValueError {where}: expected an integer from 1 to 1024"


@pytest.mark.parametrize("wrong", [" ", "g++ 'x", "nix"])
def test_a_compiler_that_is_none(wrong: str, tmp_path: Path) -> None:
    printed = in_subprocess(GPU_ZOO_CACHE_DIR=str(tmp_path), CXX=wrong)
    assert printed == (
        f"MissingDependency $CXX={wrong!r}: no such program; unset CXX or install it."
    )


def test_a_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    printed = in_subprocess(GPU_ZOO_CACHE_DIR=str(tmp_path / "file"))
    assert printed.startswith(f"CompileError {tmp_path / 'file'}: File exists; expected a folder ")
    assert printed.endswith("GPU_ZOO_CACHE_DIR may name")


def test_a_cache_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader takes a name without a slash for one of its own libraries."""
    monkeypatch.chdir(tmp_path)
    assert in_subprocess(GPU_ZOO_CACHE_DIR=".") == "no error"
    assert list(tmp_path.glob("simple*.so"))
    assert in_subprocess(GPU_ZOO_CACHE_DIR="~/kernels", HOME=str(tmp_path)) == "no error"
    assert list((tmp_path / "kernels").glob("simple*.so"))


def test_there_are_many_rows() -> None:
    assert len(PARAMETERS) + len(CALLS) + len(PARALLEL) > 100
