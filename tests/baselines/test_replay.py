"""The replay against a list that is filled in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gpu_zoo
from gpu_zoo.baselines.replay import Replay, Transitions, next_observations

ENVS, AGENTS, OBS = 3, 2, 2
PLANE = "warpdrive/tag_continuous_v0"


def episodes(steps: int, seed: int) -> list[dict[str, Any]]:
    """Steps of random episodes: environments that end for good or for lack of time, and agents
    that leave before. Every observation is a number of its own, so that none is mistaken."""
    rng = np.random.default_rng(seed)
    shape = (ENVS, AGENTS)
    fresh = iter(range(10**9))

    def observe() -> Any:
        return np.array([[[next(fresh), -1] for _ in range(AGENTS)] for _ in range(ENVS)], float)

    active, observation, result = np.ones(shape, bool), observe(), []
    for _ in range(steps):
        leaving = active & (rng.random(shape) < 0.1)
        over, time_up = rng.random(ENVS) < 0.1, rng.random(ENVS) < 0.1
        done = over | time_up
        following, first = observe(), observe()
        step = {
            "observations": observation,
            "actions": rng.normal(size=(*shape, 1)),
            "active": active,
            "rewards": np.where(active, rng.normal(size=shape), 0.0),
            "next_observations": following,
            "terminated": leaving | ~active | over[:, None],
            "ended": leaving | ~active | done[:, None],
        }
        # What those who have left will see is not a number.
        gone = step["terminated"]
        step["next_observations"] = np.where(gone[..., None], np.nan, following)
        active = np.where(done[:, None], True, active & ~leaving)
        observation = np.where(done[:, None, None], first, following)
        observation = np.where(active[..., None], observation, np.nan)
        result.append(step)
    return result


def by_hand(steps: list[dict[str, Any]], n: int, gamma: float) -> list[tuple[Any, ...]]:
    """The transitions in the order in which they are complete."""
    rows = []
    for start in range(len(steps) - n + 1):
        for lane in np.ndindex(ENVS, AGENTS):
            if not steps[start]["active"][lane]:
                continue
            total = 0.0
            for k in range(n):
                step = steps[start + k]
                total += gamma**k * step["rewards"][lane]
                discount, following = gamma ** (k + 1), step["next_observations"][lane]
                if step["terminated"][lane]:
                    discount, following = 0.0, np.zeros(OBS)
                if step["ended"][lane]:
                    break
            first = steps[start]
            rows.append(
                (first["observations"][lane], first["actions"][lane], total, following, discount)
            )
    return rows


def fill(replay: Replay, steps: list[dict[str, Any]]) -> None:
    for step in steps:
        tensors = {k: torch.tensor(v) for k, v in step.items()}
        replay.before(*(tensors[k] for k in ("observations", "actions", "active")))
        after = ("rewards", "next_observations", "terminated", "ended")
        replay.after(*(tensors[k] for k in after))


def make(capacity: int, n: int, gamma: float = 0.9) -> Replay:
    return Replay(capacity, (ENVS, AGENTS), OBS, (1,), n, gamma, "cpu")


def same(found: Transitions, rows: list[tuple[Any, ...]]) -> None:
    for column, value in zip(zip(*rows, strict=True), vars(found).values(), strict=True):
        np.testing.assert_allclose(value, np.array(column), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_transitions_are_those_of_plain_python(n: int, seed: int) -> None:
    steps = episodes(60, seed)
    rows = by_hand(steps, n, 0.9)
    assert {0.0} < {row[4] for row in rows}
    assert len({row[4] for row in rows}) == n + 1  # sums of all lengths, and ends
    replay = make(1000, n)
    fill(replay, steps)
    assert int(replay.ring.size) == int(replay.ring.head) == len(rows) < 60 * ENVS * AGENTS
    same(Transitions(*(v[: len(rows)] for v in vars(replay.rows).values())), rows)


def test_the_latest_are_kept() -> None:
    """A capacity that no step's transitions divide: the ring wraps within a step."""
    capacity, steps = 31, episodes(50, 9)
    rows = by_hand(steps, 3, 0.9)
    replay = make(capacity, 3)
    fill(replay, steps)
    head = len(rows) % capacity
    assert (int(replay.ring.size), int(replay.ring.head)) == (capacity, head)
    order = torch.arange(head, head + capacity) % capacity
    same(Transitions(*(v[order] for v in vars(replay.rows).values())), rows[-capacity:])


def test_all_are_drawn_equally_often() -> None:
    replay = make(1000, 3)
    fill(replay, episodes(30, 1))
    size = int(replay.ring.size)
    replay.rows.returns[:] = torch.arange(1001)
    drawn = replay.sample(200_000, torch.Generator().manual_seed(0))
    counts = torch.bincount(drawn.returns.long(), minlength=size)
    assert len(counts) == size  # what was never written is never drawn
    wanted = 200_000 / size
    chi2 = float(((counts - wanted) ** 2 / wanted).sum())
    assert abs(chi2 - size) < 5 * (2 * size) ** 0.5
    again = replay.sample(200_000, torch.Generator().manual_seed(0))
    assert torch.equal(drawn.returns, again.returns)
    assert bool((replay.rows.returns[drawn.returns.long()] == drawn.returns).all())


def test_an_empty_replay_gives_zeros() -> None:
    drawn = make(100, 3).sample(5, torch.Generator().manual_seed(0))
    assert all(bool((value == 0).all()) and len(value) == 5 for value in vars(drawn).values())


def test_nothing_is_read_by_the_host() -> None:
    """Meta tensors hold no numbers: what needs one fails."""
    replay = Replay(100, (ENVS, AGENTS), OBS, (1,), 2, 0.9, "meta")
    for step in episodes(4, 0):
        tensors = {k: torch.tensor(v).to("meta") for k, v in step.items()}
        replay.before(*(tensors[k] for k in ("observations", "actions", "active")))
        after = ("rewards", "next_observations", "terminated", "ended")
        replay.after(*(tensors[k] for k in after))
    with pytest.raises(RuntimeError):
        int(replay.ring.size)


def test_it_goes_on_from_its_state() -> None:
    steps = episodes(40, 2)
    whole, half, rest = make(50, 3), make(50, 3), make(50, 3)
    fill(whole, steps)
    fill(half, steps[:7])  # neither full nor at the window's border
    rest.load_state_dict(half.state_dict())
    fill(half, steps[7:20])
    fill(rest, steps[7:])
    assert int(rest.ring.size) == 50
    for name, value in vars(whole.rows).items():
        assert torch.equal(value[:50], getattr(rest.rows, name)[:50])
    drawn = [r.sample(9, torch.Generator().manual_seed(1)).returns for r in (whole, rest)]
    assert torch.equal(*drawn)


def test_bad_sizes_are_named() -> None:
    with pytest.raises(ValueError, match=r"^capacity=5: expected at least num_envs \* agents = 6$"):
        make(5, 3)
    with pytest.raises(ValueError, match=r"^n_step=0: expected at least 1$"):
        make(10, 0)


def test_in_an_environment_that_agents_leave() -> None:
    """Runners that are caught leave; environments reset by themselves. Sums over whole episodes:
    with gamma 1 and more steps than an episode has, the return of its first step is the whole."""
    params = {"num_taggers": 4, "grid_length": 3.0, "tagging_distance": 0.2, "episode_length": 6}
    env = gpu_zoo.make_vec(PLANE, 5, device="cpu", array="torch", **params)
    env.reset(seed=0)
    group = env.group["runner"]
    agents, size = len(group.agents), group.observations.shape[-1]
    replay = Replay(5 * agents * 40, (5, agents), size, (2,), 8, 1.0, "cpu", torch.int64)
    generator = torch.Generator().manual_seed(0)
    wanted: list[tuple[int, float]] = []  # the row of an episode's first step, and its return
    started, stored, left = torch.ones(5, dtype=torch.bool), 0, 0
    first = torch.zeros(5, agents, dtype=torch.int64)
    for _ in range(30):
        for one in env.group.values():
            one.actions.random_(0, 5, generator=generator)
        row = (stored + group.active.flatten().cumsum(0) - 1).reshape(5, agents)
        first = torch.where(started[:, None], row, first)
        stored += int(group.active.sum())
        left += int((~group.active).sum())
        replay.before(group.observations, group.actions, group.active)
        started = env.step()[4]["_episode"].clone()
        ended = group.terminations | group.truncations | started.unsqueeze(-1)
        following = next_observations(group, started)
        replay.after(group.rewards, following, group.terminations, ended)
        for i in started.nonzero().flatten().tolist():
            wanted += zip(first[i].tolist(), group.last_returns[i].tolist(), strict=True)
    known = [(row, total) for row, total in wanted if row < int(replay.ring.size)]
    assert left > 20 and len(known) > 100
    rows = torch.tensor([row for row, _ in known])
    totals = torch.tensor([total for _, total in known])
    torch.testing.assert_close(replay.rows.returns[rows], totals)
    assert len(totals.unique()) > 1
