"""PQL on CUDA: three streams, and no thread waits for the device. Run by tests/gpu/check.sh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpu_zoo.backends import why_no_cuda

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _cuda() -> Iterator[None]:
    reason = why_no_cuda()
    torch = pytest.importorskip("torch")
    if reason or not torch.cuda.is_available():
        pytest.skip(reason or "this torch has no CUDA")
    yield
    torch.cuda.synchronize()  # a fault shows in the test that caused it


def config(**changes: Any) -> Any:
    from gpu_zoo.baselines.pql import PQLConfig

    settings: dict[str, Any] = {
        "total_steps": 60_000, "num_envs": 128, "horizon": 40, "hidden": (64, 64), "gamma": 0.95,
        "reward_scale": 0.1, "actor_lr": 2e-3, "critic_lr": 2e-3, "device": "cuda",
        "progress": False,
    }  # fmt: skip
    return PQLConfig(**{**settings, **changes})


@pytest.mark.parametrize("distributional", [False, True])
def test_no_turn_waits_for_the_device(distributional: bool) -> None:
    import torch

    from gpu_zoo.baselines.pql import Trainer

    changes = {"distributional": distributional, "v_min": -32.0, "v_max": 0.0}
    trainer = Trainer("classic/pendulum_v1", config(**changes), {})
    for _ in range(40):
        trainer._explore()
    trainer._learn_values()
    trainer._learn_policies()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(10):
            trainer._explore()
            trainer._learn_values()
            trainer._learn_policies()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("learner", ["cuda", "cpu"])
def test_it_learns_to_swing_up_from_three_threads(learner: str) -> None:
    """With the policy learner on the same device, or on another than the environments."""
    from gpu_zoo.baselines.pql import evaluate, train

    result = train("classic/pendulum_v1", config(policy_device=learner))
    assert evaluate(result.policy, episodes=500).mean.mean > -250
