"""Two processes learn what one would learn from the samples of both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gpu_zoo.baselines import distributed, ppo
from gpu_zoo.baselines import learner as learning
from gpu_zoo.baselines.checkpoint import CheckpointError
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.flat import FlatAdam, flatten

sys.path.append(str(Path(__file__).parent))
import workers

HERE = Path(__file__).parent


def torchrun(*arguments: str, code: int = 0) -> str:
    """Both processes' output."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert (done.returncode == 0) is (code == 0), output
    return output


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes saw, did and became."""
    folder = tmp_path_factory.mktemp("two")
    torchrun(str(HERE / "workers.py"), "record", str(folder))
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def test_they_play_in_the_environments_that_one_would(recorded: list[dict[str, Any]]) -> None:
    """Late in their first episodes to the same degree."""
    env = ppo.Trainer(workers.ENV, workers.config(), workers.PARAMS).env
    for name, group in env.group.items():
        both = torch.cat([one["first"][name] for one in recorded])
        assert torch.equal(both, group.observations)


def test_they_stay_the_same(recorded: list[dict[str, Any]]) -> None:
    assert recorded[0]["curve"] == recorded[1]["curve"]
    assert recorded[0]["curve"][-1][0] > 0
    for name, weights in recorded[0]["networks"].items():
        for key, value in weights.items():
            assert torch.equal(value, recorded[1]["networks"][name][key])


def test_they_do_different_things(recorded: list[dict[str, Any]]) -> None:
    mine, theirs = (one["steps"][0][1][0]["actions"] for one in recorded)
    assert not torch.equal(mine, theirs)


@pytest.mark.parametrize("group", [0, 1])
def test_they_learn_what_one_would_from_the_samples_of_both(
    recorded: list[dict[str, Any]], group: int
) -> None:
    """The loss itself, of both batches put together, descended by one process."""
    name = recorded[0]["steps"][group][0]
    config = workers.config()
    network = ppo.make_networks(
        workers.ENV, workers.PARAMS, config.hidden, config.seed, vars(config)
    )[name]
    whole = flatten(network)
    optimizer = FlatAdam(whole, config.learning_rate, config.max_grad_norm)
    batches, rows = ([one["steps"][group][part] for one in recorded] for part in (1, 2))
    iterations = len(batches[0])
    assert iterations == 4
    for number in range(iterations):
        mine, theirs = (learning.Batch(**own[number]) for own in batches)
        check_normalised(mine, theirs)
        step_config = config.after(number / iterations)
        optimizer.param_groups[0]["lr"] = step_config.learning_rate
        for a, b in zip(*(own[number] for own in rows), strict=True):
            step(network, optimizer, joined(mine[a], theirs[b]), step_config)
        merge_moments(network, mine, theirs)
    trained = recorded[0]["networks"][name]
    start = ppo.make_networks(
        workers.ENV, workers.PARAMS, config.hidden, config.seed, vars(config)
    )[name].state_dict()
    for key, value in network.state_dict().items():
        torch.testing.assert_close(trained[key], value, rtol=2e-3, atol=2e-4)
    moved = trained["actor.0.weight"] - start["actor.0.weight"]
    assert float(moved.abs().max()) > 2e-3  # far beyond the tolerance


def check_normalised(mine: learning.Batch, theirs: learning.Batch) -> None:
    """Over the samples of both, not over those of each."""
    both = torch.cat([b.advantages[b.weights > 0] for b in (mine, theirs)])
    assert float(both.mean()) == pytest.approx(0, abs=1e-5)
    assert float(both.std()) == pytest.approx(1, abs=1e-4)
    assert abs(float(mine.advantages[mine.weights > 0].mean())) > 1e-4


def joined(mine: learning.Batch, theirs: learning.Batch) -> learning.Batch:
    return learning.Batch(
        **{
            name: torch.cat([value, getattr(theirs, name)])
            for name, value in vars(mine).items()
            if value is not None
        }
    )


def step(network: Any, optimizer: FlatAdam, batch: learning.Batch, config: PPOConfig) -> None:
    gradient = optimizer.whole.grad
    assert gradient is not None
    gradient.zero_()
    learning.loss(network, batch, config)[0].backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def merge_moments(network: Any, mine: learning.Batch, theirs: learning.Batch) -> None:
    for batch in (mine, theirs):
        network.moments.merge(batch.observations, batch.weights > 0)


@pytest.mark.slow
def test_a_killed_process_ends_the_run_and_it_can_be_resumed(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    script = str(HERE / "workers.py")
    torchrun(script, "train", str(whole), "0")
    output = torchrun(script, "train", str(broken), "2", code=1)
    assert "process 0 of 2: another process of this run is gone" in output
    assert "resume from the last checkpoint" in output
    with pytest.raises(CheckpointError, match="a run of 2 processes: expected as many, not 1"):
        ppo.resume(broken / "run.pt")
    torchrun(script, "train", str(broken), "0")
    curves = [json.loads((folder / "curve.json").read_text()) for folder in (whole, broken)]
    assert len(curves[0]) == 4
    assert curves[0] == curves[1]


def test_torchrun_starts_the_trainer(tmp_path: Path) -> None:
    options = (
        "mpe/simple_spread_v3", "--total-steps", "320", "--num-envs", "8", "--horizon", "10",
        "--minibatches", "2", "--device", "cpu", "--no-progress", "--hidden", "8",
        "--run-dir", str(tmp_path),
    )  # fmt: skip
    output = torchrun("-m", "gpu_zoo.baselines.ppo", *options)
    assert output.count("320 steps in") == 1  # said by one of them only
    names = sorted(path.name.split(".")[0] for path in tmp_path.iterdir())
    assert names == ["checkpoint", "config", "events", "progress"]
    assert len((tmp_path / "progress.csv").read_text().splitlines()) == 1 + 4
    assert len(torch.load(tmp_path / "checkpoint.pt", weights_only=True)["others"]) == 1


def test_environments_must_be_shared_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "size", lambda: 2)
    with pytest.raises(ValueError, match=r"^num_envs=7: expected a multiple of the 2 processes$"):
        distributed.share(7, "num_envs")
    assert distributed.share(8, "num_envs") == 4


def test_alone_nothing_is_sent() -> None:
    value = torch.tensor([1.0, 2.0])
    result: Tensor = distributed.total(value)
    assert result is value
    assert (distributed.size(), distributed.rank(), distributed.gathered("x")) == (1, 0, ["x"])
