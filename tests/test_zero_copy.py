"""Nothing is copied, leaked or imported without need; threads and processes get on."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import importlib
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import gpu_zoo
from gpu_zoo import VectorEnv
from gpu_zoo.backends import cpu
from gpu_zoo.buffers import GROUP_BUFFERS, OPTIONAL

IDS = gpu_zoo.list_ids()
MPE = [env_id for env_id in IDS if env_id.startswith("mpe/")]
# What holds memory is the same code for all: one group of agents, several, random draws in a step.
FEW = ["mpe/simple_spread_v3", "mpe/simple_tag_v3", "mpe/collect_treasure_v1"]


def slow(env_id: str) -> Any:
    return pytest.param(env_id, marks=pytest.mark.slow)


PYTHON = sys.executable


def arrays_of(env: VectorEnv) -> Iterator[tuple[str, str, Any]]:
    """Every whole array of the batch: name of the buffer, group, array."""
    for group, buffers in env.group.items():
        for field in dataclasses.fields(buffers):
            array = getattr(buffers, field.name)
            others = ("agents", "observation_space", "action_space")
            if field.name not in others and array is not None:  # None: actions are not masked
                yield field.name, group, array


def address(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data)


def kernels_address(env: VectorEnv, name: str, group: str) -> int:
    """Where the kernel reads or writes a group's buffer: a pointer in its Io struct."""
    at = list(env.groups).index(group)
    return int(env.engine.backend._io[name][at])  # type: ignore[attr-defined]


@pytest.fixture(params=["numpy", "torch"])
def kind(request: pytest.FixtureRequest) -> Any:
    if request.param == "torch":
        pytest.importorskip("torch")
    return request.param


def actions_of(env: VectorEnv) -> dict[str, Any]:
    actions = {}
    for agent in env.agents:
        space = env.single_action_space(agent)
        kind = np.float32 if isinstance(space, spaces.Box) else np.int32
        actions[agent] = np.ones((env.num_envs, *(space.shape or ())), kind)
    return actions


@pytest.mark.parametrize("env_id", IDS)
def test_arrays_are_the_kernels_memory(env_id: str, kind: Any) -> None:
    env = gpu_zoo.make_vec(env_id, 5, array=kind)
    names = {name for name, _, _ in arrays_of(env)}
    assert names == {name for name, _, _ in GROUP_BUFFERS if name not in OPTIONAL}
    for name, group, array in arrays_of(env):
        assert address(array) == kernels_address(env, name, group), name
        assert address(array) % 64 == 0, name


@pytest.mark.parametrize("env_id", IDS)
def test_torch_and_numpy_see_the_same_memory(env_id: str) -> None:
    torch = pytest.importorskip("torch")
    env = gpu_zoo.make_vec(env_id, 5, array="torch")
    env.reset(seed=0)
    for name, _, array in arrays_of(env):
        assert isinstance(array, torch.Tensor)
        if array.dtype == torch.bool:
            array = array.view(torch.uint8)  # NumPy takes no bools by DLPack before 2.0
        there = np.from_dlpack(array)
        assert there.ctypes.data == array.data_ptr(), name
        assert there.shape == tuple(array.shape), name
    actions = env.group[next(iter(env.groups))].actions
    np.from_dlpack(actions)[...] = 3
    assert bool((actions == 3).all())


@pytest.mark.parametrize("env_id", IDS)
def test_an_agents_arrays_are_slices(env_id: str, kind: Any) -> None:
    env = gpu_zoo.make_vec(env_id, 4, array=kind)
    observations, _ = env.reset(seed=0)
    results = env.step()
    names = ("observations", "rewards", "terminations", "truncations")
    rows = [("observations", observations)]
    rows += zip(names, results[:4], strict=True)
    rows += [("final_observations", results[4]["final_obs"])]
    rows += [("last_returns", results[4]["episode"]["r"])]
    for name, by_agent in rows:
        assert list(by_agent) == list(env.agents)
        for buffers in env.group.values():
            whole = getattr(buffers, name)
            for i, agent in enumerate(buffers.agents):
                part, expected = by_agent[agent], whole[:, i]
                assert part.shape == expected.shape
                for k in range(env.num_envs):  # k: keeps it an array, with the same strides
                    assert address(part[k:]) == address(expected[k:]), (name, agent)


@pytest.mark.parametrize("env_id", IDS)
def test_pointers_stay(env_id: str, kind: Any) -> None:
    limit = gpu_zoo.spec(env_id).time_limit
    env = gpu_zoo.make_vec(env_id, 5, array=kind, **{limit: 3})
    before = [address(array) for _, _, array in arrays_of(env)]
    observations, _ = env.reset(seed=0)
    where = {agent: address(value) for agent, value in observations.items()}
    state = env.get_state()
    for k in range(10):
        results = env.step(actions_of(env) if k % 2 else None)
        assert {agent: address(value) for agent, value in results[0].items()} == where
    env.set_state(state)
    env.set_param(limit, 7)
    mask = np.array([True, False, True, False, False])
    assert {a: address(v) for a, v in env.reset(options={"reset_mask": mask})[0].items()} == where
    assert {a: address(v) for a, v in env.reset(seed=1)[0].items()} == where
    assert [address(array) for _, _, array in arrays_of(env)] == before
    for name, group, array in arrays_of(env):
        assert address(array) == kernels_address(env, name, group), name


@pytest.mark.parametrize("env_id", IDS)
def test_actions_are_read_from_the_buffer(env_id: str, kind: Any) -> None:
    """What stands in the action buffers is what step() steps on, and step(actions) writes there."""
    one: Any = gpu_zoo.make_vec(env_id, 6, array=kind)
    two = gpu_zoo.make_vec(env_id, 6, array=kind)
    one.reset(seed=3)
    two.reset(seed=3)
    spaces = {agent: one.action_space(agent) for agent in one.agents}
    for number, space in enumerate(spaces.values()):
        space.seed(number)
    for _ in range(5):
        actions = {agent: space.sample() for agent, space in spaces.items()}
        for buffers in two.group.values():
            for i, agent in enumerate(buffers.agents):
                np.asarray(buffers.actions)[:, i] = actions[agent]
        ours, theirs = one.step(actions), two.step()
        for agent in one.agents:
            np.testing.assert_array_equal(ours[0][agent], theirs[0][agent])
        for name in one.groups:
            np.testing.assert_array_equal(one.group[name].actions, two.group[name].actions)


def test_given_actions_are_copied_once(kind: Any) -> None:
    """Into the buffers, and nowhere else on the way."""
    env = gpu_zoo.make_vec(IDS[0], 6, array=kind)
    given: Any = np.zeros(6, np.int32)
    if kind == "torch":
        given = importlib.import_module("torch").from_numpy(given)
    assert address(env.engine.backend.native(given)) == address(given)


@pytest.mark.parametrize("env_id", IDS)
def test_views_change_and_copies_do_not(env_id: str, kind: Any) -> None:
    """Without copy an array shows the newest step; with copy=True it stays as it was given."""
    for copy in (False, True):
        limit = {gpu_zoo.spec(env_id).time_limit: 4}
        env = gpu_zoo.make_vec(env_id, 5, array=kind, copy=copy, **limit)
        given = [env.reset(seed=0), env.step(actions_of(env)), env.step(actions_of(env))]
        states = [env.state()]
        leaves = [dict(flat(results)) for results in given]
        kept = [{k: np.asarray(v).copy() for k, v in one.items()} for one in leaves]
        buffers = {address(array) for _, _, array in arrays_of(env)}
        for _ in range(3):
            env.step(actions_of(env))
        states.append(env.state())
        changed = any(
            not np.array_equal(np.asarray(now[k]), then[k])
            for now, then in zip(leaves, kept, strict=True)
            for k in now
        )
        assert changed is not copy
        if copy:
            starts = [address(value) for one in leaves for value in one.values()]
            # "final_info" holds "episode" a second time, and may share its arrays.
            assert len(set(starts)) >= len(leaves[0]) + 2 * len({k[0] for k in leaves[1]})
            assert not buffers & set(starts)
            assert address(states[0]) != address(states[1])
            assert not np.array_equal(np.asarray(states[0]), np.asarray(states[1]))


def flat(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The arrays in nested dicts and tuples."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, (*path, key))
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from flat(inner, (*path, number))
    else:
        yield path, value


@pytest.mark.parametrize("env_id", IDS)
def test_results_are_dicts_of_the_users_own(env_id: str) -> None:
    env = gpu_zoo.make_vec(env_id, 2)
    env.reset(seed=0)
    results = env.step()
    for part in results:
        part.clear()
    assert all(list(part) for part in env.step())


# Memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["buffers", "dict", "copy", "drop-in", "AEC"])
@pytest.mark.parametrize("env_id", [*FEW, *(slow(env_id) for env_id in MPE if env_id not in FEW)])
def test_steps_leak_no_memory(env_id: str, how: str) -> None:
    """10,000 steps, some hundred episodes among them."""
    step = stepper(env_id, how)
    for _ in range(200):
        step()
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(50):
            step()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10_000):
            step()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 10_000, f"{grown} bytes in 10,000 steps"  # a byte a step would be more


def stepper(env_id: str, how: str) -> Any:
    if how in ("buffers", "dict", "copy"):
        env = gpu_zoo.make_vec(env_id, 4, copy=how == "copy")
        env.reset(seed=0)
        actions = actions_of(env)
        return env.step if how == "buffers" else lambda: env.step(actions)
    module = importlib.import_module(f"gpu_zoo.{env_id.replace('/', '.')}")
    if how == "drop-in":
        single = module.parallel_env()
        one = dict.fromkeys(single.possible_agents, 1)

        def step() -> None:
            if not single.agents:
                single.reset()
            single.step(one)

        return step
    aec = module.env(max_cycles=25)
    aec.reset()

    def turn() -> None:
        if not aec.agents:
            aec.reset()
        agent = aec.agent_selection
        aec.step(None if aec.terminations[agent] or aec.truncations[agent] else 1)
        if aec.agents:
            aec.last()

    return turn


# Imports ------------------------------------------------------------------------------------

HEAVY = ("torch", "cupy", "pygame", "ray", "jax", "tensorflow", "mpe2", "supersuit", "matplotlib")


@pytest.mark.parametrize(
    "code",
    [
        "import gpu_zoo",
        "import gpu_zoo; gpu_zoo.list_ids(); [gpu_zoo.spec(i) for i in gpu_zoo.list_ids()]",
        "import gpu_zoo; e = gpu_zoo.make_vec('mpe/simple_spread_v3'); e.reset(); e.step()",
        "from gpu_zoo.mpe import simple_spread_v3 as m; e = m.parallel_env(); e.reset()",
    ],
)
def test_imports_nothing_heavy(code: str) -> None:
    script = f"{code}\nimport sys\nprint(*(m for m in {HEAVY} if m in sys.modules))"
    assert run(script).strip() == ""


def run(script: str, **environment: str) -> str:
    """What a new process prints; it must end well."""
    done = subprocess.run(
        [PYTHON, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Threads and processes ------------------------------------------------------------------------


@pytest.mark.parametrize("hold", [False, True], ids=["as it is", "holding the GIL"])
def test_step_releases_the_gil(hold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Python thread runs during a step; and does not if a step holds the GIL.

    With an endless switch interval no thread loses the GIL unless it gives it away.
    """
    env = gpu_zoo.make_vec("mpe/simple_spread_v3", 20_000)
    env.reset(seed=0)
    if hold:
        library = ctypes.PyDLL(cpu.pool()._name)
        library.zoo_pool_run.argtypes = cpu.pool().zoo_pool_run.argtypes
        library.zoo_pool_run.restype = None
        monkeypatch.setattr(env.engine.backend, "_run", library.zoo_pool_run)
    progress, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            progress[0] += 1
            time.sleep(0)  # gives the GIL away

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    thread = threading.Thread(target=count)
    thread.start()
    try:
        made = 0
        for _ in range(200 if hold else 5000):
            before = progress[0]
            env.engine.backend.launch("step")  # nothing else, so that nothing else gives it away
            made += progress[0] - before
            if made and not hold:
                break
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert (made == 0) if hold else (made > 0)


def test_threads_step_environments_of_their_own() -> None:
    """Several Python threads at once, each with an environment, share the pool of threads."""
    expected = total_reward(0), total_reward(1)
    found: dict[int, float] = {}
    threads = [
        threading.Thread(target=lambda k=k: found.__setitem__(k, total_reward(k % 2)))
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[k] for k in range(4)] == [*expected, *expected]


def total_reward(seed: int) -> float:
    env = gpu_zoo.make_vec("mpe/simple_spread_v3", 4096)
    env.reset(seed=seed)
    total = 0.0
    for _ in range(30):
        total += float(env.step()[1]["agent_0"].sum(dtype=np.float64))
    return total


MAKE = """
import gpu_zoo
env = gpu_zoo.make_vec("mpe/simple_spread_v3", 3)
env.reset(seed=0)
print(env.step()[1]["agent_0"].tolist())
"""
# Two processes that get here go on at the same moment.
MEET = """
import pathlib, sys, time
import gpu_zoo
meeting = pathlib.Path(sys.argv[1])
(meeting / sys.argv[2]).touch()
while len(list(meeting.iterdir())) < 2:
    time.sleep(0.001)
"""


def start(script: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A new process that goes on by itself."""
    return subprocess.Popen(
        [PYTHON, "-c", script, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_compile_the_same_kernel_at_once(tmp_path: Path) -> None:
    """Into one empty cache; both get a whole library, and nothing half built is left."""
    cache, meeting = tmp_path / "cache", tmp_path / "meeting"
    meeting.mkdir()
    processes = [
        start(MEET + MAKE, str(meeting), name, GPU_ZOO_CACHE_DIR=str(cache)) for name in "ab"
    ]
    results = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    assert results[0][0] == results[1][0] != ""
    left = sorted(path.name.rsplit("-", 1)[0] for path in cache.iterdir())
    assert left == ["pool", "simple_spread_v3"]
    assert all(path.suffix == ".so" for path in cache.iterdir())


# The first of these to write a library stops half way until the other process is through.
SLOW_COMPILER = """#!/bin/sh
for output; do :; done
c++ "$@" || exit 1
case "$output" in *.so) mkdir "{folder}/half" 2>/dev/null || exit 0 ;; *) exit 0 ;; esac
mv "$output" "{folder}/whole"
head -c 5000 "{folder}/whole" > "$output"
touch "{folder}/half/written"
while [ ! -e "{folder}/through" ]; do sleep 0.01; done
cat "{folder}/whole" > "$output"
"""


def test_half_built_library_is_not_loaded(tmp_path: Path) -> None:
    """A process that comes while another one's compiler is still writing."""
    compiler = tmp_path / "compiler"
    compiler.write_text(SLOW_COMPILER.format(folder=tmp_path))
    compiler.chmod(0o755)
    environment = {"GPU_ZOO_CACHE_DIR": str(tmp_path / "cache"), "CXX": str(compiler)}
    first = start(MAKE, **environment)
    while not (tmp_path / "half" / "written").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    try:
        printed = run(MAKE, **environment)
    finally:
        (tmp_path / "through").touch()
    out, error = first.communicate(timeout=300)
    assert first.returncode == 0, error
    assert out == printed != ""


FORK = """
import os, sys
import numpy as np
import gpu_zoo

env = gpu_zoo.make_vec("mpe/simple_spread_v3", 4096)
env.reset(seed=0)
for _ in range(10):
    env.step()
if os.path.isdir("/proc/self/task"):
    assert len(os.listdir("/proc/self/task")) >= 3, "the pool has no threads"

def play():
    return np.concatenate([env.step()[0]["agent_0"].copy() for _ in range(10)])

children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        np.save(sys.argv[1] + str(len(children)), play())
        fresh = gpu_zoo.make_vec("mpe/simple_spread_v3", 4096)
        fresh.reset(seed=1)
        fresh.step()
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
mine = play()
for number in range(2):
    np.testing.assert_array_equal(np.load(sys.argv[1] + str(number) + ".npy"), mine)
print("same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_after_stepping_with_threads(tmp_path: Path) -> None:
    """Threads do not survive a fork: the children start their own and go on alike."""
    script = FORK.replace("sys.argv[1]", repr(str(tmp_path / "child")))
    assert run(script, GPU_ZOO_NUM_THREADS="4").strip() == "same"


@pytest.mark.parametrize("array", ["numpy", "torch"])
@pytest.mark.parametrize("continuous", [False, True])
def test_actions_may_be_views_of_the_buffers(array: Any, continuous: bool) -> None:
    """Two agents that swap their last actions, which lie where the new ones are written."""
    env = gpu_zoo.make_vec(
        "mpe/simple_spread_v3", 2, N=2, continuous_actions=continuous, array=array
    )
    env.reset(seed=0)
    actions = env.group["agent"].actions
    actions[:, 0], actions[:, 1] = 0, 1
    env.step({"agent_0": actions[:, 1], "agent_1": actions[:, 0]})
    assert (actions[:, 0] == 1).all()
    assert (actions[:, 1] == 0).all()


def test_infos_within_infos_are_the_callers_own() -> None:
    env = gpu_zoo.make_vec("mpe/simple_spread_v3", 2, N=2, max_cycles=1)
    env.reset(seed=0)
    *_, infos = env.step()
    arrays = dict(infos["final_obs"])
    infos["episode"].clear()
    infos["final_obs"].pop("agent_0")
    *_, infos = env.step()
    assert {"r", "l"} <= infos["episode"].keys()
    assert all(infos["final_obs"][agent] is arrays[agent] for agent in env.agents)
