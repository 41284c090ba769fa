"""How many threads simulate an environment, and that whatever their number the play is the same."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_zoo
from gpu_zoo.prelude import Program
from gpu_zoo.team import BLOCK_THREADS, MAX_SLOTS, SHARED_BYTES, choose_team
from gpu_zoo.testing import check_nvrtc, check_races
from gpu_zoo.testing.play import CheckSkipped, random_actions, record

TAG = gpu_zoo.spec("warpdrive/tag_continuous_v0")


@pytest.mark.parametrize(
    ("agents", "threads", "per_block", "blocks"),
    [
        (1, 2, 64, 1),
        (9, 16, 8, 1),
        (16, 16, 8, 1),
        (17, 32, 4, 1),
        (32, 32, 4, 1),
        (33, 64, 1, 1),
        (110, 128, 1, 1),
        (1000, 256, 1, 1),
        (1024, 256, 1, 1),
        (1025, 256, 1, 2),
        (5000, 256, 1, 8),
        (100_000, 256, 1, 16),
    ],
)
def test_teams_by_the_number_of_agents(
    agents: int, threads: int, per_block: int, blocks: int
) -> None:
    team = choose_team(agents, 1000 if agents > 32 else 100)
    assert (team.threads, team.per_block, team.blocks) == (threads, per_block, blocks)
    assert team.block_threads <= BLOCK_THREADS
    assert team.in_memory == (blocks > 1)


def test_workspaces_fit_the_shared_memory() -> None:
    """Fewer environments share a block where each needs much; what does not fit lies in memory."""
    assert choose_team(9, 10_000).per_block == 4
    assert choose_team(9, SHARED_BYTES + 1).per_block == 1
    assert choose_team(9, SHARED_BYTES + 1).in_memory
    assert not choose_team(1000, SHARED_BYTES).in_memory
    assert MAX_SLOTS >= 1


def test_a_few_agents_can_be_made_to_take_several_blocks() -> None:
    team = choose_team(12, 100, spread=True)
    assert (team.threads, team.per_block, team.blocks) == (32, 1, 2)


def test_warpdrives_own_size_leaves_room_for_others() -> None:
    """A thousand agents: eight blocks of 256 threads share a multiprocessor's 228 KB, an H100's."""
    params = {"num_taggers": 100, "num_runners": 900, "use_full_observation": False}
    team = Program(TAG, TAG.resolve(params)).team
    assert (team.threads, team.blocks) == (256, 1)
    assert 8 * (team.workspace + 1024) <= 228 * 1024


@pytest.mark.slow
def test_thousands_of_agents_play_alike_in_one_thread_and_in_blocks_of_threads() -> None:
    params = {
        "num_taggers": 40, "num_runners": 1100, "grid_length": 20.0, "tagging_distance": 0.02,
        "use_full_observation": False, "num_other_agents_observed": 5, "episode_length": 4,
    }  # fmt: skip
    env = gpu_zoo.make_vec(TAG.id, 2, **params)
    assert env.engine.program.team.blocks == 2
    actions = random_actions(env, 6)
    want = record(env, actions, seed=1)
    assert not want["active/runner"].all()
    for threads in (1, 3):
        other = gpu_zoo.make_vec(TAG.id, 2, build="emulated", **params)
        other.engine.backend.set_block_size(threads)  # type: ignore[attr-defined]
        for name, array in record(other, actions, seed=1).items():
            np.testing.assert_array_equal(array, want[name], f"{name}, {threads} threads")
    try:
        check_races(TAG, {**params, "num_runners": 1000}, shapes=["block", "spread"], timeout=500)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("agents", [12, 40, 1500])
def test_teams_of_all_sizes_compile_for_gpus(agents: int) -> None:
    """Part of a warp, a block, several blocks; searching the nearest stays in registers."""
    params = {
        "num_taggers": agents // 4, "num_runners": agents - agents // 4,
        "use_full_observation": False, "num_other_agents_observed": 10,
    }  # fmt: skip
    try:
        check_nvrtc(TAG, params, numerics=["fast"], architectures=["sm_75"])
    except CheckSkipped as reason:
        pytest.skip(str(reason))
