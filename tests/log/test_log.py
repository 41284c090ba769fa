"""Logged episodes hold what a user would have seen who looked after every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import STAY_OR_GO

import gpu_zoo
from gpu_zoo import EpisodeLog, Trajectory, VectorEnv
from gpu_zoo.errors import ClosedEnvironmentError, MissingDependency, ResetNeeded
from gpu_zoo.testing.play import put_actions, random_actions, to_numpy

TAG, PLANE = "mpe/simple_tag_v3", "warpdrive/tag_continuous_v0"
# Runners are tagged one by one, and some episodes end before the time limit.
CROWD = {
    "num_taggers": 4, "num_runners": 3, "grid_length": 3.0, "tagging_distance": 0.15,
    "skill_level_tagger": 1.5, "episode_length": 20,
}  # fmt: skip
CAUGHT = {"terminate_on_success": True, "curriculum": True, "curriculum_stage": 0}
CASES = {
    "lane": (TAG, {"max_cycles": 9}, {}),
    "lane, ends early": (TAG, {"num_adversaries": 6, **CAUGHT, "max_cycles": 20}, {}),
    "lane, reference": (TAG, {"max_cycles": 9}, {"numerics": "reference"}),
    "block": (TAG, {"max_cycles": 9}, {"shape": "block"}),
    "block, leaving": (PLANE, CROWD, {}),
}  # fmt: skip
MODES = ["same_step", "next_step", "disabled"]
NUM_ENVS, CHOSEN = 37, [36, 0, 17, 5]  # of several tiles, in no order
BY_GROUP = ("actions", "rewards", "terminations", "truncations", "active", "observations")


def make(case: str, mode: str = "same_step", array: str = "numpy", **more: Any) -> VectorEnv:
    env_id, params, settings = CASES[case]
    return gpu_zoo.make_vec(
        env_id, NUM_ENVS, autoreset_mode=mode, array=array, **{**params, **settings, **more}
    )


def looked_at(env: VectorEnv) -> dict[str, Any]:
    """All that a user may look at, copied."""
    arrays = {name: np.array(to_numpy(value)) for name, value in env.get_state().items()}
    for group, buffers in env.group.items():
        for name in (*BY_GROUP, "final_observations"):
            arrays[f"{name}/{group}"] = np.array(to_numpy(getattr(buffers, name)))
    return arrays


def play(env: VectorEnv, steps: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Random play; in DISABLED mode a finished environment is reset before the next step."""
    actions = random_actions(env, steps, seed)
    for step in range(steps):
        done = np.array(to_numpy(env.get_state()["done"]))
        if done.any() and env.autoreset_mode.name == "DISABLED":
            env.reset(options={"reset_mask": done})
            yield looked_at(env)
        put_actions(env, actions, step)
        env.step()
        yield looked_at(env)


def wanted(seen: list[dict[str, Any]], e: int, same_step: bool) -> dict[str, Any]:
    """Environment ``e``'s first whole episode, out of what was seen after each call."""
    begin = next(k for k, now in enumerate(seen) if now["steps"][e] == 0)
    end = next(k for k in range(begin + 1, len(seen)) if seen[k]["done"][e])
    steps: list[dict[str, Any]] = []
    for now in seen[begin + 1 : end + 1]:
        # A reset of other environments is no step of this one.
        if now["done"][e] or now["steps"][e] > len(steps):
            steps.append(now)
    frames = [seen[begin], *steps][: len(steps) + (not same_step)]
    arrays: dict[str, Any] = {"length": len(steps), "frames": len(frames)}
    for name in seen[0]:
        kind = name.partition("/")[0]
        of = steps if kind in BY_GROUP[:4] else frames
        arrays[name] = np.array([now[name][e] for now in of])
        if kind == "observations" and same_step:
            last = steps[-1][f"final_{name}"][e]
            arrays[name] = np.concatenate([arrays[name], last[None]])
    return arrays


def require_same(got: Trajectory, env: VectorEnv, seen: list[dict[str, Any]]) -> None:
    same_step = env.autoreset_mode.name == "SAME_STEP"
    assert got.environments == tuple(CHOSEN) and got.ended.all()
    for k, e in enumerate(CHOSEN):
        episode = wanted(seen, e, same_step)
        assert (got.lengths[k], got.frames[k]) == (episode["length"], episode["frames"])
        pairs = {name: (value, episode[name]) for name, value in got.state.items()}
        for kind in BY_GROUP:
            for group, value in getattr(got, kind).items():
                pairs[f"{kind}/{group}"] = value, episode[f"{kind}/{group}"]
        for name, (value, want) in pairs.items():
            np.testing.assert_array_equal(value[: len(want), k], want, f"{name} of {e}")
            assert value.dtype == want.dtype
            assert not value[len(want) :, k].any(), f"{name} of {e}: something after the end"


# What is logged ------------------------------------------------------------------------------


@pytest.mark.parametrize("array", ["numpy", "torch"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_what_a_user_sees_who_looks_after_each_call(case: str, mode: str, array: str) -> None:
    if array == "torch":
        pytest.importorskip("torch")
    env = make(case, mode, array)
    log = EpisodeLog(env, CHOSEN, observations=True)
    env.reset(seed=3)
    seen = [looked_at(env), *play(env, 30)]
    got = log.fetch()
    require_same(got, env, seen)
    limit = env.params[env.spec.time_limit]
    for group, agents in env.groups.items():
        assert got.rewards[group].shape == (limit, len(CHOSEN), len(agents))
        assert got.observations[group].shape[:3] == (limit + 1, len(CHOSEN), len(agents))
    if "ends early" in case or "leaving" in case:
        assert len(set(got.lengths.tolist())) > 1, "all episodes are of one length"
    if "leaving" in case:
        assert not got.active["runner"][1 : got.frames.min()].all(), "nobody left"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ["lane", "block, leaving"])
def test_made_within_an_episode_it_waits_for_the_next(case: str, mode: str) -> None:
    env = make(case, mode)
    env.reset(seed=3)
    for _ in play(env, 4):
        pass
    log = EpisodeLog(env, CHOSEN, observations=True)
    with pytest.raises(ResetNeeded, match="no episode has begun"):
        log.fetch()
    seen = [looked_at(env), *play(env, 50, seed=1)]
    require_same(log.fetch(), env, seen)


@pytest.mark.parametrize("mode", MODES)
def test_made_right_after_a_reset_it_has_that_episode(mode: str) -> None:
    env = make("lane", mode)
    env.reset(seed=3)
    log = EpisodeLog(env, CHOSEN, observations=True)
    seen = [looked_at(env), *play(env, 12)]
    require_same(log.fetch(), env, seen)


def test_a_reset_within_the_episode_begins_it_anew() -> None:
    env = make("lane")
    log = EpisodeLog(env, CHOSEN, observations=True)
    env.reset(seed=1)
    for _ in play(env, 7):
        pass
    mask = np.arange(NUM_ENVS) == 17
    env.reset(options={"reset_mask": mask})
    fetched = log.fetch()
    assert fetched.lengths.tolist() == [7, 7, 0, 7] and fetched.frames.tolist() == [8, 8, 1, 8]
    assert not fetched.ended.any()
    for arrays, rows in ((fetched.state["pos"], 1), (fetched.observations["agent"], 1)):
        assert arrays[:rows, 2].any() and not arrays[rows:, 2].any(), "of the one cut short"
    assert not fetched.actions["adversary"][:, 2].any()
    assert fetched.actions["adversary"][:7, 3].any()
    env.reset(seed=2)
    seen = [looked_at(env), *play(env, 12)]
    require_same(log.fetch(), env, seen)
    env.reset(seed=5)  # all episodes have ended: nothing is begun anew
    require_same(log.fetch(), env, seen)


def test_a_state_that_is_set_is_logged() -> None:
    env = make("lane", "next_step")
    log = EpisodeLog(env, CHOSEN, observations=True)
    env.reset(seed=1)
    env.set_state({"pos": env.get_state()["pos"] + 1})
    seen = [looked_at(env), *play(env, 3)]
    kept = env.get_state()
    for _ in play(env, 3, seed=1):
        pass
    env.set_state(kept)  # back, and another way forward
    seen += play(env, 9, seed=2)
    require_same(log.fetch(), env, seen)


def test_clocks_that_are_set_forward_begin_no_episode() -> None:
    """As the bundled trainer does before it begins."""
    env = make("lane")
    log = EpisodeLog(env, CHOSEN, observations=True)
    env.reset(seed=1)
    env.set_state({"steps": np.arange(NUM_ENVS, dtype=np.int32) % 8})
    assert log.fetch().frames.tolist() == [0, 1, 0, 0]
    seen = [looked_at(env), *play(env, 30)]
    require_same(log.fetch(), env, seen)


def test_fewer_steps_than_an_episode_has() -> None:
    env = make("lane", "next_step")
    log = EpisodeLog(env, CHOSEN, steps=4, observations=True)
    whole = EpisodeLog(env, CHOSEN, observations=True)
    env.reset(seed=1)
    for step, _ in enumerate(play(env, 12)):
        assert log.complete == (step >= 3) and whole.complete == (step >= 8), step
    got, want = log.fetch(), whole.fetch()
    assert got.lengths.tolist() == [4] * 4 and got.frames.tolist() == [5] * 4
    assert not got.ended.any() and want.ended.all()
    np.testing.assert_array_equal(got.state["pos"], want.state["pos"][:5])
    np.testing.assert_array_equal(got.rewards["agent"], want.rewards["agent"][:4])
    assert got.state["pos"].any() and want.lengths.tolist() == [9] * 4


def test_logging_changes_nothing_and_ends_with_close() -> None:
    env, alone = make("lane"), make("lane")
    with EpisodeLog(env, CHOSEN) as log:
        for each in (env, alone):
            each.reset(seed=1)
        for mine, other in zip(play(env, 5), play(alone, 5), strict=True):
            assert all(np.array_equal(mine[name], other[name]) for name in mine)
    before = log.fetch()
    for _ in play(env, 3):
        pass
    log.close()
    assert log.fetch().lengths.tolist() == before.lengths.tolist() == [5] * 4
    assert env.engine.watchers == []
    assert before.observations == {}, "observations are logged only if asked for"


def test_several_logs_of_one_batch() -> None:
    env = make("lane")
    logs = [EpisodeLog(env, [e]) for e in CHOSEN]
    both = EpisodeLog(env, CHOSEN)
    env.reset(seed=1)
    for _ in play(env, 9):
        pass
    want = both.fetch()
    for k, log in enumerate(logs):
        np.testing.assert_array_equal(log.fetch().state["pos"][:, 0], want.state["pos"][:, k])


def test_parameters_of_each_environment() -> None:
    limits = np.full(NUM_ENVS, 6)
    limits[CHOSEN] = [3, 4, 5, 9]
    env = make("lane", max_cycles=limits)
    log = EpisodeLog(env, CHOSEN)
    env.reset(seed=1)
    for _ in play(env, 9):
        pass
    got = log.fetch()
    assert got.lengths.tolist() == got.params["max_cycles"].tolist() == [3, 4, 5, 9]
    assert got.state["pos"].shape[0] == 10


# On the device ---------------------------------------------------------------------------------


def test_it_waits_for_the_device_only_to_fetch_and_then_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    env = make("lane", array="torch")
    log = EpisodeLog(env, CHOSEN, observations=True)
    env.reset(seed=1)
    waits: list[str] = []
    for name in ("__bool__", "__int__", "item", "tolist", "numpy", "nonzero", "cpu"):
        real = getattr(torch.Tensor, name)

        def counted(tensor: Any, *args: Any, _real: Any = real, _name: str = name) -> Any:
            waits.append(_name)
            return _real(tensor, *args)

        monkeypatch.setattr(torch.Tensor, name, counted)
    for _ in range(12):
        env.step()
    env.reset()
    assert waits == []
    log.fetch()
    assert waits == ["cpu", "numpy"]  # the copy, and NumPy's view of it


@pytest.mark.parametrize("array", ["numpy", "torch"])
def test_memory_is_taken_once_and_is_of_the_batchs_kind(array: str) -> None:
    if array == "torch":
        pytest.importorskip("torch")
    env = make("lane", array=array)
    log = EpisodeLog(env, CHOSEN)
    env.reset(seed=1)
    kind = type(env.group["agent"].rewards)

    def places() -> list[int]:
        buffers = [log._arena, log._length, log._going, log._over, *log._logged.values()]
        assert {type(buffer) for buffer in buffers} == {kind}
        views = [np.asarray(buffer) for buffer in buffers]
        return [view.ctypes.data for view in views if view.size]

    first = places()
    env.step()
    fetched = log.fetch().state["pos"]
    kept = fetched.copy()
    for _ in play(env, 12):
        pass
    np.testing.assert_array_equal(fetched, kept, "what was fetched changes with the log")
    assert places() == first and len(first) > 10


# Mistakes --------------------------------------------------------------------------------------


def _closed(env: VectorEnv) -> None:
    env.close()
    EpisodeLog(env)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda env: EpisodeLog(env, [0, NUM_ENVS]), IndexError, "37, expected 0 <= index < 37"),
        (lambda env: EpisodeLog(env, [-1]), IndexError, "-1"),
        (lambda env: EpisodeLog(env, [4, 2, 4]), ValueError, "4 is named twice"),
        (lambda env: EpisodeLog(env, []), ValueError, "none is named"),
        (lambda env: EpisodeLog(env, [1.0]), TypeError, "1.0"),
        (lambda env: EpisodeLog(env, 1), TypeError, "environments=1"),
        (lambda env: EpisodeLog(env, steps=0), ValueError, "steps=0: expected at least 1"),
        (lambda env: EpisodeLog(env, steps=2.5), TypeError, "steps: 2.5"),
        (lambda env: EpisodeLog("env"), TypeError, "str, expected a gpu_zoo.VectorEnv"),
        (_closed, ClosedEnvironmentError, "was closed"),
        (lambda env: EpisodeLog(env).fetch(), ResetNeeded, "no episode has begun"),
    ],
)
def test_a_mistake_is_one_line(
    call: Callable[[VectorEnv], Any], error: type[Exception], says: str
) -> None:
    env = make("lane")
    with pytest.raises(error) as caught:
        call(env)
    message = str(caught.value)
    assert says in message and "\n" not in message
    if "begun" not in says:
        assert env.engine.watchers == []


# Trajectories ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trajectory() -> Trajectory:
    env = make("block, leaving", "next_step", edge_hit_penalty=np.linspace(-1, 0, NUM_ENVS))
    log = EpisodeLog(env, CHOSEN, observations=True)
    env.reset(seed=3)
    for _ in play(env, 20):
        pass
    return log.fetch()


def require_equal(one: Trajectory, other: Trajectory) -> None:
    for name, value in vars(one).items():
        pairs = {"": (value, getattr(other, name))}
        if isinstance(value, dict):
            assert list(value) == list(getattr(other, name)) or name == "params"
            assert value.keys() == getattr(other, name).keys()
            pairs = {key: (value[key], getattr(other, name)[key]) for key in value}
        for key, (mine, theirs) in pairs.items():
            assert type(mine) is type(theirs), f"{name} {key}"
            if isinstance(mine, np.ndarray):
                assert mine.dtype == theirs.dtype
                np.testing.assert_array_equal(mine, theirs, f"{name} {key}")
            else:
                assert mine == theirs, f"{name} {key}"


def test_a_file_holds_all_of_it(trajectory: Trajectory, tmp_path: Path) -> None:
    path = tmp_path / "new" / "episode"  # its name is kept as it is
    trajectory.save(path)
    require_equal(Trajectory.load(path), trajectory)
    assert list(path.parent.iterdir()) == [path]


def test_a_save_that_fails_leaves_the_old_file(
    trajectory: Trajectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "episode.npz"
    trajectory.save(path)
    before = path.read_bytes()

    def half(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", half)
    with pytest.raises(OSError, match="disk full"):
        trajectory.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_are_no_trajectories(trajectory: Trajectory, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(FileNotFoundError, match=r"x\.npz"):
        Trajectory.load(path)
    trajectory.save(path)
    whole = path.read_bytes()

    def written(write: Callable[[Any], Any]) -> bytes:
        with path.open("wb") as file:
            write(file)
        return path.read_bytes()

    others = [
        b"", b"text", whole[:-100], whole[: len(whole) // 2],
        written(lambda file: np.save(file, np.zeros(3))),
        written(lambda file: np.savez(file, a=np.zeros(3))),
        written(lambda file: np.savez(file, header=np.array('{"format": "else"}'))),
        written(lambda file: np.savez(file, header=np.array("[1]"))),
    ]  # fmt: skip
    for content in others:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.npz: broken, or no trajectory") as caught:
            Trajectory.load(path)
        assert "\n" not in str(caught.value)


# Animations ------------------------------------------------------------------------------------


def test_pictures_are_those_of_the_batch(trajectory: Trajectory) -> None:
    pytest.importorskip("pygame")
    env = make("block, leaving", "next_step", edge_hit_penalty=np.linspace(-1, 0, NUM_ENVS))
    env.reset(seed=3)
    want = [env.render(5), *(env.render(5) for _ in play(env, 20))]
    got = list(trajectory.pictures(5))
    assert len(got) == trajectory.frames[CHOSEN.index(5)]
    np.testing.assert_array_equal(got, want[: len(got)])


@pytest.mark.parametrize("name", ["a.gif", "a.png"])
def test_an_animation_has_a_picture_a_frame(
    trajectory: Trajectory, tmp_path: Path, name: str
) -> None:
    pytest.importorskip("pygame")
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / name
    trajectory.save(tmp_path / "x.npz")
    Trajectory.load(tmp_path / "x.npz").animate(path, 17, fps=20)
    movie = image.open(path)
    frames = []
    for index in range(movie.n_frames):
        movie.seek(index)
        assert movie.info["duration"] == 50
        frames.append(np.asarray(movie.convert("RGB")).astype(int))
    k = CHOSEN.index(17)
    assert len(frames) == trajectory.frames[k] > 2
    assert frames[0].shape == (350, 350, 3)
    want = [picture[::2, ::2].astype(int) for picture in trajectory.pictures(17)]
    for t, frame in enumerate(frames):
        assert np.abs(frame - want[t]).mean() < 3, f"frame {t}"
        assert t == 0 or (frame != frames[t - 1]).any(), f"frames {t - 1} and {t} are the same"
    assert np.abs(frames[0] - want[-1]).mean() > 3


def test_an_animation_is_as_fast_as_the_environment_says(tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    image = pytest.importorskip("PIL.Image")
    env = gpu_zoo.make_vec("classic/cartpole_v1", 2)
    log = EpisodeLog(env)
    env.reset(seed=0)
    env.step({"agent_0": np.zeros(2, np.int32)})
    log.fetch().animate(tmp_path / "a.gif")
    assert image.open(tmp_path / "a.gif").info["duration"] == 1000 / 50


def test_animations_that_cannot_be(
    trajectory: Trajectory, tmp_path: Path, own_registry: None
) -> None:
    pytest.importorskip("pygame")
    for call, error, says in (
        (lambda: trajectory.animate(tmp_path / "a.gif", 1), IndexError, "36, 0, 17, 5"),
        (lambda: trajectory.animate(tmp_path / "a.avi"), ValueError, "ends in .gif, .png, .mp4"),
        (lambda: trajectory.animate(tmp_path / "a.gif", fps=0), ValueError, "fps=0"),
    ):
        with pytest.raises(error, match=says):
            call()
    gpu_zoo.register(STAY_OR_GO)
    env = gpu_zoo.make_vec(STAY_OR_GO.id, 2)
    log = EpisodeLog(env)
    env.reset(seed=0)
    with pytest.raises(NotImplementedError, match="cannot be drawn"):
        log.fetch().animate(tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_an_episode_that_has_not_begun_cannot_be_drawn(tmp_path: Path) -> None:
    env = make("lane")
    log = EpisodeLog(env, CHOSEN)
    env.reset(seed=1)
    env.set_state({"steps": np.arange(NUM_ENVS, dtype=np.int32) % 8})
    with pytest.raises(ValueError, match="environment=36: no episode of it has begun"):
        next(log.fetch().pictures())


def test_without_imageio_the_error_says_what_to_install(
    trajectory: Trajectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"pip install 'gpu-zoo\[render\]'"):
        trajectory.animate(tmp_path / "a.gif")
