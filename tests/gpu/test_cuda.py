"""CUDA gives the CPU's bits, waits for nobody and shares its memory. Run by tests/gpu/check.sh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import BUILT, DEFAULTS, Case, over, over_shapes
from masks.ferry import LEAVING, MULTI

from gpu_zoo.backends import why_no_cuda
from gpu_zoo.errors import InvalidAction
from gpu_zoo.log import EpisodeLog
from gpu_zoo.testing.builds import shapes_of
from gpu_zoo.testing.play import (
    Arrays,
    Subject,
    difference_in,
    first_difference,
    put_actions,
    random_actions,
    record,
    snapshot,
    to_numpy,
)
from gpu_zoo.vector import VectorEnv

pytestmark = pytest.mark.gpu
SEED = 3
ARRAYS = pytest.mark.parametrize("array", ["cupy", "torch"])


@pytest.fixture(autouse=True)
def _cuda(request: pytest.FixtureRequest) -> Iterator[None]:
    reason = why_no_cuda()
    if reason:
        pytest.skip(reason)
    if getattr(request.node, "callspec", None) and (
        request.node.callspec.params.get("array") == "torch"
    ):
        _torch()
    yield
    import cupy

    cupy.cuda.Device().synchronize()  # a fault shows in the test that caused it


def _torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def make(case: Case, num_envs: int, device: str = "cuda", **settings: Any) -> VectorEnv:
    return Subject(case.spec, case.params, settings.pop("numerics", "fast")).make(
        num_envs, device=device, **settings
    )


def require_same_play(one: VectorEnv, other: VectorEnv, steps: int) -> None:
    """Both play the same; after every step all memory of the two holds the same bits."""
    actions = random_actions(one, steps)
    one.reset(seed=SEED)
    other.reset(seed=SEED)
    for step in range(steps):
        for env in (one, other):
            put_actions(env, actions, step)
            env.step()
        # The whole arena at once, since thousands of small copies would take minutes.
        if not np.array_equal(_memory(one), _memory(other)):
            everywhere = np.ones(one.num_envs, np.bool_)
            problem = difference_in(everywhere, snapshot(other), snapshot(one), step + 1)
            pytest.fail(f"{other!r}: {problem or 'unused memory differs'}")


def _memory(env: VectorEnv) -> Any:
    return to_numpy(env.engine.backend._arena)  # type: ignore[attr-defined]


@over_shapes(BUILT)
def test_the_bits_of_the_cpu(case: Case, shape: str) -> None:
    require_same_play(make(case, 65, "cpu", shape=shape), make(case, 65, shape=shape), 4096)


@over_shapes(DEFAULTS)
@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_the_bits_of_the_cpu_in_other_modes(case: Case, mode: str, shape: str) -> None:
    settings: dict[str, Any] = {"autoreset_mode": mode, "shape": shape, "validate_actions": False}
    require_same_play(make(case, 65, "cpu", **settings), make(case, 65, **settings), 256)


@over_shapes(DEFAULTS)
@pytest.mark.parametrize("num_envs", [1, 4099])
def test_the_bits_of_the_cpu_in_other_batches(case: Case, num_envs: int, shape: str) -> None:
    cpu = make(case, num_envs, "cpu", shape=shape)
    require_same_play(cpu, make(case, num_envs, shape=shape), 64)


# Part of a warp, a block, several blocks; small enough a square for many tags.
TAG = "warpdrive/tag_continuous_v0"
TEAMS = [
    Case(TAG, {
        "num_taggers": agents // 10, "num_runners": agents - agents // 10, "grid_length": 6.0,
        "tagging_distance": 0.01, "use_full_observation": False, "num_other_agents_observed": 10,
        "episode_length": 40,
    })
    for agents in (30, 110, 1000, 1100, 5000)
]  # fmt: skip


@over(TEAMS)
def test_the_bits_of_the_cpu_for_teams_of_all_sizes(case: Case) -> None:
    require_same_play(make(case, 33, "cpu"), make(case, 33), 60)


def test_two_batches_on_two_streams_do_not_meet() -> None:
    """Where an environment has several blocks, those of one batch wait for their own alone."""
    import cupy

    case = TEAMS[3]
    want = record(make(case, 9, "cpu"), random_actions(make(case, 9, "cpu"), 20), SEED)
    envs = [make(case, 9) for _ in range(2)]
    actions = random_actions(envs[0], 20)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in envs]
    for env in envs:
        env.reset(seed=SEED)
    cupy.cuda.Device().synchronize()
    for step in range(20):
        for env, stream in zip(envs, streams, strict=True):
            with stream:
                put_actions(env, actions, step)
                env.step()
    cupy.cuda.Device().synchronize()
    for env in envs:
        last = {name: array[-1:] for name, array in want.items()}
        assert not first_difference({n: a[None] for n, a in snapshot(env).items()}, last)


@over_shapes(DEFAULTS)
def test_own_parameters_and_starts(case: Case, shape: str) -> None:
    """A value of each launch parameter for each environment, and a pool of every field."""
    envs = []
    pool: Arrays = {}
    for device in ("cpu", "cuda"):
        env = make(case, 65, device, shape=shape)
        for name, param in env.spec.params.items():
            if param.at == "launch":
                env.set_param(name, np.full(65, env.params[name]))
        env.set_param(env.spec.time_limit, np.arange(65) % 9 + 1)
        env.reset(seed=1)
        pool = pool or {name: env.get_state()[name][:7] for name in env.engine.program.pooled}
        env.set_reset_pool(pool)
        envs.append(env)
    require_same_play(*envs, 64)


@over(DEFAULTS)
def test_the_shapes_agree(case: Case) -> None:
    recordings = []
    for shape in shapes_of(case.spec):
        env = make(case, 65, shape=shape)
        recordings.append(record(env, random_actions(env, 64), SEED))
    assert not first_difference(recordings[1], recordings[0])


@over(DEFAULTS)
@ARRAYS
def test_every_array_kind_gives_the_same(case: Case, array: str) -> None:
    cpu = make(case, 65, "cpu")
    actions = random_actions(cpu, 64)
    got = record(make(case, 65, array=array), actions, SEED)
    assert not first_difference(got, record(cpu, actions, SEED))


@over(DEFAULTS)
@ARRAYS
def test_results_stay_where_they_are(case: Case, array: str) -> None:
    env = make(case, 65, array=array)
    env.reset(seed=SEED)
    before = _pointers(env.step()[:4])
    assert _pointers(env.step()[:4]) == before
    for group, agents in env.groups.items():
        arrays = env.group[group]
        own = env.engine.memory.address(f"observations/{group}")
        assert _pointer(arrays.observations) == own == before[0][agents[0]]


def _pointers(results: Any) -> list[dict[str, int]]:
    return [{agent: _pointer(array) for agent, array in by.items()} for by in results]


def _pointer(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.data.ptr)


@over(DEFAULTS)
def test_cupy_to_torch_copies_nothing(case: Case) -> None:
    torch = _torch()
    env = make(case, 65, array="cupy")
    observations, _ = env.reset(seed=SEED)
    for observation in observations.values():
        assert torch.from_dlpack(observation).data_ptr() == _pointer(observation)


@over_shapes(DEFAULTS)
def test_torch_streams(case: Case, shape: str) -> None:
    """Everything on a stream of its own: actions written there are seen by the step."""
    torch = _torch()
    env = make(case, 65, array="torch", shape=shape)
    want = _last(make(case, 65, "cpu", shape=shape))
    torch.cuda.synchronize()
    for _ in range(2):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            got = _last(env)
        assert not first_difference(got, want)


@over_shapes(DEFAULTS)
def test_cupy_streams(case: Case, shape: str) -> None:
    import cupy

    env = make(case, 65, array="cupy", shape=shape)
    want = _last(make(case, 65, "cpu", shape=shape))
    cupy.cuda.Device().synchronize()
    for _ in range(2):
        with cupy.cuda.Stream(non_blocking=True):
            got = _last(env)
        assert not first_difference(got, want)


def _last(env: VectorEnv, steps: int = 40) -> Arrays:
    """What a play without a look in between ends with, a step's axis in front."""
    actions = random_actions(env, steps)
    env.reset(seed=SEED)
    for step in range(steps):
        put_actions(env, actions, step)
        env.step()
    # A second play on the same environment finds older last episodes: leave those out.
    return {n: a[None] for n, a in snapshot(env).items() if not n.startswith(("final_", "last_"))}


@over_shapes(DEFAULTS)
def test_a_step_in_a_cuda_graph_of_torch(case: Case, shape: str) -> None:
    torch = _torch()
    env = make(case, 65, array="torch", shape=shape)
    cpu = make(case, 65, "cpu", shape=shape)
    _start(env, cpu)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        env.step()
    _require_replayed(env, cpu, graph.replay)


@over_shapes(DEFAULTS)
def test_a_step_in_a_cuda_graph_of_cupy(case: Case, shape: str) -> None:
    """A capture allows neither waiting for the device nor copies to the host."""
    import cupy

    env = make(case, 65, array="cupy", shape=shape)
    cpu = make(case, 65, "cpu", shape=shape)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()  # this stream does not wait for the one env was made on
    with stream:
        _start(env, cpu)
        stream.synchronize()
        stream.begin_capture()
        env.step()
        graph = stream.end_capture()
        _require_replayed(env, cpu, lambda: graph.launch(stream))
        stream.synchronize()


def _start(env: VectorEnv, cpu: VectorEnv) -> None:
    actions = random_actions(cpu, 1)
    for each in (env, cpu):
        each.reset(seed=SEED)
        put_actions(each, actions, 0)
        each.step()


def _require_replayed(env: VectorEnv, cpu: VectorEnv, replay: Any) -> None:
    everywhere = np.ones(cpu.num_envs, np.bool_)
    actions = random_actions(cpu, 60, seed=1)
    for step in range(60):
        for each in (env, cpu):
            put_actions(each, actions, step)
        replay()
        cpu.step()
        problem = difference_in(everywhere, snapshot(env), snapshot(cpu), step)
        assert not problem, problem


@over(DEFAULTS)
@ARRAYS
def test_a_log_holds_what_the_cpus_does(case: Case, array: str) -> None:
    logs = []
    for settings in ({"device": "cpu"}, {"array": array}):
        env = make(case, 37, **settings)
        logs.append(EpisodeLog(env, [36, 0, 5], steps=20, observations=True))
        env.reset(seed=SEED)
        if array == "torch" and settings.get("device") != "cpu":
            _torch().cuda.set_sync_debug_mode("error")
        try:
            for _ in range(30):
                env.step()
        finally:
            if array == "torch":
                _torch().cuda.set_sync_debug_mode("default")
    cpu, cuda = (log.fetch() for log in logs)
    for kind in ("state", "observations", "actions", "rewards", "terminations", "active"):
        problem = first_difference(getattr(cuda, kind), getattr(cpu, kind))
        assert not problem, f"{kind}: {problem}"
    assert cuda.lengths.tolist() == cpu.lengths.tolist()


@over(DEFAULTS)
def test_a_step_never_waits_for_the_device(case: Case) -> None:
    torch = _torch()
    env = make(case, 65, array="torch")
    env.reset(seed=SEED)
    actions = {
        agent: torch.as_tensor(values[0][:, i], device="cuda")
        for group, values in random_actions(env, 1).items()
        for i, agent in enumerate(env.groups[group])
    }
    env.step(actions)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(30):
            env.step(actions)
            env.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@over_shapes(DEFAULTS)
def test_reference_numerics_within_ulps(case: Case, shape: str) -> None:
    """One step from the CPU's state, again and again: the error of a step, not its growth."""
    settings: dict[str, Any] = {"numerics": "reference", "shape": shape}
    cpu, gpu = make(case, 65, "cpu", **settings), make(case, 65, **settings)
    actions = random_actions(cpu, 200)
    cpu.reset(seed=SEED)
    gpu.reset(seed=SEED)
    for step in range(200):
        gpu.set_state(cpu.get_state())
        for env in (cpu, gpu):
            put_actions(env, actions, step)
            env.step()
        got = snapshot(gpu)
        for name, want in snapshot(cpu).items():
            if name.startswith("final_"):
                rows = to_numpy(cpu.engine.views["done"])
                _require_close(name, got[name][rows], want[rows], step)
            else:
                _require_close(name, got[name], want, step)


def _require_close(name: str, got: Any, want: Any, step: int) -> None:
    if want.dtype.kind != "f":
        assert np.array_equal(got, want), f"step {step}, {name}"
        return
    # Contacts magnify an error of one ulp of a distance by 100 / 0.001 * 0.001 * 0.1.
    allowed = 64 * np.finfo(want.dtype).eps * np.maximum(1, np.abs(want))
    error = np.abs(got - want)
    assert (error <= allowed).all(), f"step {step}, {name}: off by {error.max()}"


@over(DEFAULTS)
@ARRAYS
def test_state_goes_there_and_back(case: Case, array: str) -> None:
    env = make(case, 35, array=array)
    actions = random_actions(env, 30)
    record(env, actions, SEED)
    state = env.get_state()
    want = _play_on(env, actions)
    env.set_state(state)
    assert not first_difference(_play_on(env, actions), want)


def _play_on(env: VectorEnv, actions: Arrays) -> Arrays:
    for step in range(20):
        put_actions(env, actions, step)
        env.step()
    return {n: a[None] for n, a in snapshot(env).items() if not n.startswith("final_")}


@over(DEFAULTS)
@ARRAYS
def test_actions_on_the_host_are_refused(case: Case, array: str) -> None:
    env = make(case, 4, array=array)
    env.reset(seed=SEED)
    host = {
        agent: values[0][:, i]
        for group, values in random_actions(env, 1).items()
        for i, agent in enumerate(env.groups[group])
    }
    with pytest.raises(InvalidAction, match="on another device"):
        env.step(host)


MASKED = Subject(LEAVING, {"SPACE": MULTI, "may_quit": True})


@pytest.mark.parametrize("shape", ["lane", "block", "spread"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_masks_are_the_cpus(shape: str, mode: str) -> None:
    envs = [
        MASKED.make(65, device=device, shape=shape, autoreset_mode=mode)
        for device in ("cpu", "cuda")
    ]
    require_same_play(*envs, steps=100)


@ARRAYS
def test_forbidden_actions_are_named_if_that_is_wanted(array: str) -> None:
    env = MASKED.make(5, device="cuda", array=array, validate_actions=True)
    _, infos = env.reset(seed=SEED)
    assert to_numpy(infos["action_mask"]["walker_1"]).dtype == np.int8
    env.set_state({"coins": env.get_state()["coins"] * 0})
    env.group["walker"].actions[3, 1, 0] = 2
    problem = r"\['walker_1'\]\[3\]: \[2, 0\] is masked, expected one of \[0, 1\] in component 0"
    with pytest.raises(InvalidAction, match=problem):
        env.step()
