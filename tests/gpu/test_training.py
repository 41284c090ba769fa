"""PPO on CUDA: one graph an iteration, no waiting, and the advantages of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpu_zoo.backends import why_no_cuda

torch = pytest.importorskip("torch")

from gpu_zoo.baselines import gae, loop, ppo  # noqa: E402
from gpu_zoo.baselines.graph import Graphed  # noqa: E402
from gpu_zoo.baselines.ppo import PPOConfig  # noqa: E402

pytestmark = pytest.mark.gpu
SPREAD, TAG, PLANE = "mpe/simple_spread_v3", "mpe/simple_tag_v3", "warpdrive/tag_continuous_v0"


@pytest.fixture(autouse=True)
def _cuda() -> Iterator[None]:
    reason = why_no_cuda()
    if reason or not torch.cuda.is_available():
        pytest.skip(reason or "this torch has no CUDA")
    yield
    torch.cuda.synchronize()  # a fault shows in the test that caused it


def config(**changes: Any) -> PPOConfig:
    settings: dict[str, Any] = {
        "total_steps": 6 * 64 * 20, "num_envs": 64, "horizon": 20, "hidden": (32, 32),
        "minibatches": 4, "progress": False, "device": "cuda", **changes,
    }  # fmt: skip
    return PPOConfig(**settings)


@pytest.mark.parametrize(
    ("env_id", "params", "changes"),
    [
        (SPREAD, {}, {}),
        (SPREAD, {"continuous_actions": True}, {"central_critic": True}),
        (TAG, {}, {"normalize_observations": True, "scale_rewards": True}),
        (PLANE, {"episode_length": 8}, {"bfloat16": True}),
        (SPREAD, {}, {"recurrent": True}),
        (SPREAD, {}, {"blocks": 4}),
        (SPREAD, {}, {"entropy_coef": 0.1, "entropy_coef_end": 0.0}),
    ],
)
def test_a_graph_computes_what_single_launches_do(
    env_id: str, params: dict[str, Any], changes: dict[str, Any]
) -> None:
    graphed = ppo.train(env_id, config(**changes), params)
    plain = ppo.train(env_id, config(cuda_graph=False, **changes), params)
    assert len(plain.curve) == 6
    assert graphed.curve == plain.curve


def test_the_graph_is_used() -> None:
    trainer = ppo.Trainer(SPREAD, config(), {})
    loop.run(trainer)
    assert isinstance(trainer.graphed, Graphed)
    assert trainer.graphed.graph is not None


@pytest.mark.parametrize("changes", [{}, {"normalize_observations": True, "scale_rewards": True}])
def test_an_iteration_waits_for_nothing(changes: dict[str, Any]) -> None:
    trainer = ppo.Trainer(TAG, config(cuda_graph=False, **changes), {})
    trainer.work()  # compiles and allocates
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.work()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("lanes", [1, 127, 128, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_advantages_are_those_of_the_cpu(lanes: int, dtype: Any) -> None:
    generator = torch.Generator().manual_seed(lanes)
    numbers = torch.randn(3, 19, lanes, generator=generator, dtype=dtype)
    terminated, truncated = torch.rand(2, 19, lanes, generator=generator) < 0.1
    tensors = [*numbers, terminated, terminated | truncated]
    expected = gae.advantages(*tensors, 0.97, 0.9)
    found = gae.advantages(*(x.cuda() for x in tensors), 0.97, 0.9)
    assert torch.equal(found.cpu(), expected)


def test_it_learns() -> None:
    settings = {"progress": False, "device": "cuda", "total_steps": 1_000_000}
    result = ppo.train(SPREAD, ppo.default_config(SPREAD, **settings))
    assert ppo.evaluate(result.policy, episodes=500).groups["agent"].mean > -14
