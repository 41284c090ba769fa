"""What a GPU does in one graph waits for nothing: watched here by the operations themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_zoo.baselines import graph, ppo, rollout
from gpu_zoo.baselines.graph import Graphed, shuffled
from gpu_zoo.baselines.ppo import PPOConfig
from gpu_zoo.baselines.rollout import next_values

SPREAD, TAG, PLANE = "mpe/simple_spread_v3", "mpe/simple_tag_v3", "warpdrive/tag_continuous_v0"
AHEAD = {"host_knows": lambda device: False}
# What reads a number on the device to know how to go on.
WAITING = {
    torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default, torch.ops.aten.equal.default,
    torch.ops.aten.randperm.generator,
}  # fmt: skip


class Watch(TorchDispatchMode):
    """Raises where torch would wait for a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        boolean = func.name().startswith("aten::index") and any(
            isinstance(x, torch.Tensor) and x.dtype == torch.bool
            for x in (args[1] if isinstance(args[1], (list, tuple)) else [])
        )
        assert func not in WAITING and not boolean, f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


def trainer(env_id: str, params: dict[str, Any] | None = None, **changes: Any) -> ppo.Trainer:
    settings: dict[str, Any] = {
        "total_steps": 400, "num_envs": 8, "horizon": 10, "hidden": (8,), "minibatches": 2,
        "progress": False, "device": "cpu",
    }  # fmt: skip
    made = ppo.Trainer(env_id, PPOConfig(**{**settings, **changes}), params or {})
    for learner in made.learners.values():
        learner.fused = None  # as on a GPU
    return made


OPTIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "plain": (SPREAD, {}, {}),
    "box": (SPREAD, {"continuous_actions": True}, {"value_clip": 0.2}),
    "groups": (TAG, {}, {"normalize_observations": True, "scale_rewards": True}),
    "leaving": (PLANE, {"episode_length": 6, "num_runners": 5}, {"central_critic": True}),
    "separate": (TAG, {}, {"separate": True, "recurrent": True}),
    "blocks": (SPREAD, {}, {"blocks": 4}),
    "frozen": (TAG, {}, {"frozen": {"agent": "random"}}),
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_an_iteration_waits_for_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env_id, params, changes = OPTIONS[kind]
    for module in (graph, rollout):
        monkeypatch.setattr(module, "host_knows", AHEAD["host_knows"])
    made = trainer(env_id, params, **changes)
    with Watch():
        numbers = made.work()
    assert bool(numbers.isfinite().all())


def test_the_watch_sees_who_waits() -> None:
    x, generator = torch.arange(3.0), torch.Generator()
    waits: list[tuple[str, Callable[[], object]]] = [
        ("index.Tensor", lambda: trainer(SPREAD).work()),  # final values, where episodes ended
        ("index.Tensor", lambda: x[x > 1]),
        ("randperm.generator", lambda: shuffled(3, generator)),
        ("_local_scalar_dense.default", lambda: float(x.sum())),
        ("_local_scalar_dense.default", lambda: bool(x[0] > 0)),
    ]
    for operation, wait in waits:
        with Watch(), pytest.raises(AssertionError, match=f"^aten.{operation} waits"):
            wait()


@pytest.mark.parametrize("changes", [{}, {"central_critic": True}])
def test_final_values_are_the_same_when_all_are_computed(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(SPREAD, {"max_cycles": 4}, **changes)
    made.collect()
    learner = made.learners["agent"]
    with torch.no_grad():
        learner.prepare()
        some = next_values(learner.rollout, learner.network)
        monkeypatch.setattr(rollout, "host_knows", AHEAD["host_knows"])
        everything = next_values(learner.rollout, learner.network)
    assert 0 < int(learner.rollout.done.sum()) < learner.rollout.done.numel()
    torch.testing.assert_close(everything, some)


def test_shuffling_without_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "host_knows", AHEAD["host_knows"])
    generator = torch.Generator().manual_seed(0)
    first, second = (shuffled(1000, generator) for _ in range(2))
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert not torch.equal(first, second)


def test_on_the_cpu_a_function_is_called() -> None:
    calls = []

    def work() -> torch.Tensor:
        calls.append(1)
        return torch.tensor(float(len(calls)))

    graphed = Graphed(work, torch.device("cpu"), [])
    assert [float(graphed()) for _ in range(3)] == [1, 2, 3]


def test_what_changes_from_iteration_to_iteration_is_no_graph() -> None:
    assert isinstance(trainer(SPREAD).graphed, Graphed)
    for changes in (
        {"target_kl": 0.1}, {"optimizer": "lamb"}, {"cuda_graph": False},
    ):  # fmt: skip
        assert not isinstance(trainer(SPREAD, **changes).graphed, Graphed)
    pooled = trainer(TAG, pool=1, pool_share=0.5)
    assert not isinstance(pooled.graphed, Graphed)


def test_a_graph_reads_the_learning_rate_and_the_bonus_anew() -> None:
    """Its Python runs once, so what changes must stand in tensors that are changed in place."""

    def trained(first: dict[str, float], then: dict[str, float]) -> torch.Tensor:
        made = trainer(SPREAD, epochs=1, minibatches=1)
        configs: list[Any] = [replace(made.config, **change) for change in (first, then)]
        learner = made.learners["agent"]
        made.collect()
        with torch.no_grad():
            batch = learner.prepare()
        for config in configs:
            learner.adapt(config)
        learner.gradient(batch, torch.arange(len(batch.returns)), configs[0])
        learner.optimizer.step()
        return learner.parameters.detach().clone()

    plain = {"learning_rate": 1e-3, "entropy_coef": 0.0}
    for change in ({"learning_rate": 1e-2}, {"entropy_coef": 0.5}):
        other = plain | change
        assert torch.equal(trained(plain, other), trained(other, other))
        assert not torch.equal(trained(plain, other), trained(plain, plain))
