"""A reward that is no number ends the run, and the checkpoint before it is kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpu_zoo.baselines import checkpoint, loop, ppo
from gpu_zoo.baselines.loop import NotFinite, Update


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize("kind", ["agent/value_loss", "agent"])
def test_the_run_ends_before_it_saves(
    number: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "run.pt")
    config = ppo.PPOConfig(
        total_steps=640, num_envs=16, horizon=10, hidden=(8,), device="cpu", progress=False,
        checkpoint=path, checkpoint_interval=1,
    )  # fmt: skip
    real = ppo.Trainer.iterate

    def iterate(self: ppo.Trainer) -> tuple[int, dict[str, float], dict[str, float]]:
        episodes, returns, losses = real(self)
        if len(self.curve) == 2:
            (losses if "/" in kind else returns)[kind] = float(number)
        return episodes, returns, losses

    seen: list[Update] = []
    monkeypatch.setattr(ppo.Trainer, "iterate", iterate)
    message = f"iteration 3: {kind}={number}, expected finite numbers; {path} is as it was"
    with pytest.raises(NotFinite, match=f"^{re.escape(message)}$"):
        ppo.train("mpe/simple_v3", config, {"max_cycles": 5}, on_update=seen.append)
    assert len(checkpoint.load(path)["curve"]) == len(seen) == 2
    monkeypatch.undo()
    assert len(ppo.resume(path).curve) == loop.iterations(config) == 4
