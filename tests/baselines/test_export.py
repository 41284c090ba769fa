"""Exported policies: what the files compute is what the networks do, in both formats."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gpu_zoo.baselines import ddpg, pql, sac
from gpu_zoo.baselines.evaluation import Policy
from gpu_zoo.baselines.export import export
from gpu_zoo.baselines.ppo import PPOConfig, train
from gpu_zoo.errors import MissingDependency

TAG, SPREAD, PLANE = "mpe/simple_tag_v3", "mpe/simple_spread_v3", "warpdrive/tag_continuous_v0"
BOX = {"continuous_actions": True}
FORMATS = ["onnx", "torchscript"]
Network = Callable[..., list[np.ndarray[Any, Any]]]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """Threads that wait for each other on a busy machine are slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(env_id: str, params: dict[str, Any], **changes: Any) -> Policy:
    settings: dict[str, Any] = {
        "num_envs": 16, "horizon": 10, "hidden": (12, 16), "device": "cpu", "progress": False,
        "total_steps": 480, "learning_rate": 0.02,
    }  # fmt: skip
    return train(env_id, PPOConfig(**{**settings, **changes}), params).policy


def trained_by(algorithm: Any, kind: Any) -> Policy:
    config = kind(
        total_steps=64, num_envs=8, horizon=4, hidden=(8,), device="cpu", progress=False,
        capacity=500, batch_size=8,
    )  # fmt: skip
    policy: Policy = algorithm.train(TAG, config, BOX).policy
    return policy


POLICIES: dict[str, Callable[[], Policy]] = {
    "discrete": lambda: trained(TAG, {}, normalize_observations=True),
    "multi-discrete": lambda: trained(PLANE, {"num_runners": 6, "num_taggers": 2}),
    "box": lambda: trained(TAG, BOX, normalize_observations=True),
    "recurrent": lambda: trained(TAG, {}, recurrent=True, normalize_observations=True),
    "recurrent box": lambda: trained(TAG, BOX, recurrent=True),
    "central": lambda: trained(TAG, {}, central_critic=True, hidden=()),
    "blocks": lambda: trained(TAG, {}, blocks=2, normalize_observations=True),
    "blocks box": lambda: trained(TAG, BOX, blocks=2),
    "ddpg": lambda: trained_by(ddpg, ddpg.DDPGConfig),
    "pql": lambda: trained_by(pql, pql.PQLConfig),
    "sac": lambda: trained_by(sac, sac.SACConfig),
}


def open_network(path: Path) -> Network:
    """By the file's own runtime, from arrays to arrays."""
    if path.suffix == ".pt":
        module = torch.jit.load(str(path))
        return lambda *inputs: [out.numpy() for out in module(*map(torch.from_numpy, inputs))]
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    names = [given.name for given in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def wanted(network: Any, observations: np.ndarray[Any, Any], memory: Any) -> dict[str, Any]:
    """What the network itself makes of observations and a memory."""
    with torch.no_grad():
        seen, own = torch.from_numpy(observations), None
        if memory is not None:
            own = torch.from_numpy(memory.copy())
        best = network.best(seen, own)  # which changes the memory
        found = {"action": network.head.to_env(best)}
        if own is not None:
            found["next_memory"] = own
        if hasattr(network, "actor"):
            if memory is None:
                outputs = network.raw_outputs(seen)
            else:
                outputs, _ = network.actor.step(network.see(seen), torch.from_numpy(memory))
            if hasattr(network.head, "log_std"):
                found["mean"], log_std = network.head.distribution(outputs)
                found["std"] = log_std.exp().expand(found["mean"].shape)
            else:
                found["logits"] = outputs
    return {name: tensor.numpy() for name, tensor in found.items()}


QUICK = ("discrete", "recurrent box", "blocks box", "sac")  # ONNX takes seconds a network


@pytest.mark.parametrize(
    ("kind", "format"),
    [
        pytest.param(
            kind, format, marks=[pytest.mark.slow] * (format == "onnx" and kind not in QUICK)
        )
        for kind in POLICIES
        for format in FORMATS
    ],
)
def test_files_compute_what_the_networks_do(kind: str, format: Any, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript")
    policy = POLICIES[kind]()
    written = export(policy, tmp_path, format)
    described = json.loads((tmp_path / "policy.json").read_text())
    assert set(described["networks"]) == set(policy.networks)
    assert written[:-1] == [tmp_path / net["file"] for net in described["networks"].values()]
    rng = np.random.default_rng(0)
    for name, about in described["networks"].items():
        network, run = policy.networks[name], open_network(tmp_path / about["file"])
        for batch in (1, 2, 7, 500):
            beyond = [1, 30] if getattr(network, "moments", None) is not None else [1]
            scale = rng.choice(beyond, (batch, 1))  # beyond where normalised numbers are cut
            rows = (rng.normal(size=(batch, about["observation_size"])) * scale).astype(np.float32)
            inputs, memory = [rows], None
            if about["memory_size"]:
                memory = rng.uniform(-1, 1, (batch, about["memory_size"])).astype(np.float32)
                inputs.append(memory)
            assert len(inputs) == len(about["inputs"])
            found = dict(zip(about["outputs"], run(*inputs), strict=True))
            right = wanted(network, rows, memory)
            assert set(found) == set(right)
            for output, value in right.items():
                assert found[output].dtype == value.dtype
                if np.issubdtype(value.dtype, np.floating):
                    np.testing.assert_allclose(found[output], value, atol=1e-6, rtol=1e-6)
                else:
                    assert (found[output] == value).mean() > 0.99  # two logits may be the same
    if kind == "multi-discrete":
        assert found["action"].shape[1] == 2 and found["logits"].shape[1] > 2


def test_what_is_written_computes_in_float32(tmp_path: Path) -> None:
    """A runtime need not know bfloat16, in which the policy itself goes on computing."""
    policy = trained(TAG, {}, bfloat16=True)
    export(policy, tmp_path, "torchscript")
    network = policy.networks["adversary"]
    run = open_network(tmp_path / "adversary.pt")
    rows = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    found = dict(zip(("action", "logits"), run(rows), strict=True))["logits"]
    assert network.actor.in_bfloat16
    assert np.abs(found - wanted(network, rows, None)["logits"]).max() > 1e-5
    network.actor.in_bfloat16 = False
    np.testing.assert_allclose(found, wanted(network, rows, None)["logits"], atol=1e-6, rtol=1e-6)


def test_the_description_is_that_of_the_environment(tmp_path: Path) -> None:
    """Names, sizes and spaces of the original's agents."""
    simple_tag_v3 = pytest.importorskip("mpe2.simple_tag_v3")
    separate = trained(TAG, BOX, recurrent=True, separate=True)
    for policy in (separate, POLICIES["box"](), POLICIES["discrete"]()):
        export(policy, tmp_path, "torchscript")
        described = json.loads((tmp_path / "policy.json").read_text())
        assert (described["env_id"], described["format"]) == (TAG, "gpu_zoo policy 1")
        env = simple_tag_v3.parallel_env(**described["env_params"])
        assert list(described["agents"]) == env.possible_agents
        for agent, name in described["agents"].items():
            assert name == (agent if policy is separate else agent.rpartition("_")[0])
            about, space = described["networks"][name], env.action_space(agent)
            assert (about["observation_size"],) == env.observation_space(agent).shape
            assert about["memory_size"] == (16 if policy is separate else 0)
            if isinstance(space, spaces.Box):
                assert about["action"]["kind"] == "box"
                assert (
                    spaces.Box(*map(np.float32, map(about["action"].get, ("low", "high")))) == space
                )
            else:
                assert about["action"] == {"kind": "discrete", "choices": [space.n]}


def test_a_group_without_a_network_has_none(tmp_path: Path) -> None:
    export(trained(TAG, {}, frozen={"adversary": "random"}), tmp_path, "torchscript")
    described = json.loads((tmp_path / "policy.json").read_text())
    assert described["agents"] == {
        "adversary_0": None, "adversary_1": None, "adversary_2": None, "agent_0": "agent",
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.pt", "policy.json"]


def test_exporting_leaves_the_policy_alone(tmp_path: Path) -> None:
    policy = trained(SPREAD, {})
    before = {n: p.clone() for n, p in policy.networks["agent"].named_parameters()}
    export(policy, tmp_path, "torchscript")
    after = dict(policy.networks["agent"].named_parameters())
    assert all(torch.equal(before[n], p) and p.requires_grad for n, p in after.items())


def test_what_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy: Any = None  # none of this looks at it
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("")
    full.mkdir()
    (full / "thesis.tex").write_text("")
    for folder, format, says in (
        (tmp_path / "new", "tflite", "format='tflite': expected 'onnx' or 'torchscript'"),
        (file, "torchscript", f"{file}: expected a folder, this is a file"),
        (full, "torchscript", f"{full}: expected a new or empty folder, or one with a policy.json"),
    ):
        with pytest.raises(ValueError) as caught:
            export(policy, folder, format)  # type: ignore[arg-type]
        assert str(caught.value) == says
    real = importlib.util.find_spec
    for module in ("onnx", "onnxscript"):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda n, *a, m=module: None if n == m else real(n, *a)
        )
        with pytest.raises(MissingDependency, match=rf"{module}: pip install 'gpu-zoo\[onnx\]'"):
            export(policy, tmp_path / "new", "onnx")
    assert not (tmp_path / "new").exists()


def test_an_export_may_take_an_older_one_s_place(tmp_path: Path) -> None:
    export(trained(SPREAD, {}), tmp_path, "torchscript")
    first = (tmp_path / "agent.pt").read_bytes()
    export(trained(SPREAD, {}, seed=1), tmp_path, "torchscript")
    assert (tmp_path / "agent.pt").read_bytes() != first


def test_onnx_is_written_in_silence(tmp_path: Path) -> None:
    """In a process of its own: the exporter warns by three different ways, some once only."""
    pytest.importorskip("onnxscript")
    code = (
        "from gpu_zoo.baselines.evaluation import Policy, make_networks\n"
        "from gpu_zoo.baselines.export import export\n"
        f"networks = make_networks({SPREAD!r}, {{}}, (4,), 0)\n"
        f"export(Policy({SPREAD!r}, {{}}, networks), {str(tmp_path)!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "torch.onnx" not in done.stderr and "torchvision" not in done.stderr
