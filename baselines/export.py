"""Trained policies as files for programs that have no gpu_zoo: ONNX or TorchScript, and a JSON.

    export(load_policy("checkpoint.pt"), "spread")

writes a file for each network, such as ``spread/agent.onnx``, and ``spread/policy.json``, which
says which agent acts by which network, and what goes in and out of each.

A network takes ``observation``, float32 ``(batch, n)``, as the environment gives it: normalisation
is part of the file. A recurrent one also takes ``memory``, float32 ``(batch, width)``, zeros at the
start of an episode. It gives, in the order that the JSON says:

``action``
    the likeliest action as the environment takes it: int64 ``(batch,)``, or
    ``(batch, components)`` for MultiDiscrete, or float32 ``(batch, n)`` for a box.
``logits``
    float32 ``(batch, choices)`` to draw a discrete action from, those of several components side by
    side.
``mean``, ``std``
    float32 ``(batch, n)``: the Gaussian to draw a continuous action from, which is then to be
    clipped to the box. DDPG, PQL and SAC have none.
``next_memory``
    the memory to give with the next observation, if the network has one.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from gymnasium import spaces
from torch import Tensor, nn

from gpu_zoo.baselines.deterministic import Actor
from gpu_zoo.baselines.evaluation import Policy
from gpu_zoo.baselines.networks import ActorCritic, GaussianHead
from gpu_zoo.baselines.players import frozen_copy
from gpu_zoo.baselines.recurrent import Recurrent
from gpu_zoo.baselines.squashed import SquashedActor
from gpu_zoo.errors import MissingDependency
from gpu_zoo.spec import GroupLayout

Format = Literal["onnx", "torchscript"]
FORMAT = "gpu_zoo policy 1"  # of the JSON
ENDINGS = {"onnx": ".onnx", "torchscript": ".pt"}


class Acting(nn.Module):
    """What of a network acts, on the CPU, from observations and maybe a memory to a tuple.

    Attributes:
        inputs: names of what goes in.
        outputs: names of what comes out.
        memory_size: numbers in a memory; 0 for none.
    """

    def __init__(self, network: ActorCritic | Actor | SquashedActor) -> None:
        super().__init__()
        self.network: Any = frozen_copy(network).cpu().eval()  # type: ignore[arg-type] # or an actor
        self.memory_size = 0
        self.inputs, self.outputs = ["observation"], ["action"]
        if isinstance(network, (Actor, SquashedActor)):
            return
        self.network.actor.in_bfloat16 = False  # ONNX Runtime has no such product on a CPU
        self.outputs += ["mean", "std"] if isinstance(network.head, GaussianHead) else ["logits"]
        if isinstance(network.actor, Recurrent):
            self.memory_size = network.actor.width
            self.inputs.append("memory")
            self.outputs.append("next_memory")

    def forward(self, observation: Tensor, memory: Tensor | None = None) -> tuple[Tensor, ...]:
        """Outputs for observations ``(batch, n)``."""
        network = self.network
        if isinstance(network, (Actor, SquashedActor)):
            return (network.head.to_env(network.best(observation)),)
        after: Any = ()
        if memory is None:
            raw = network.raw_outputs(observation)
        else:
            raw, *after = network.actor.step(network.see(observation), memory)
        best = network.head.mode(raw)
        if isinstance(network.head, GaussianHead):
            _, log_std = network.head.distribution(raw)
            return network.head.to_env(best), best, log_std.exp().expand(best.shape), *after
        return best, raw, *after


def export(policy: Policy, folder: str | Path, format: Format = "onnx") -> list[Path]:
    """Write a policy's networks, and ``policy.json``, into a folder.

    Args:
        policy: what to write, of any algorithm.
        folder: where; made if it is not there.
        format: ``"onnx"`` or ``"torchscript"``.

    Returns:
        The files, the JSON last.

    Raises:
        ValueError: another format, or a folder with something else in it.
        MissingDependency: ONNX needs packages that are not installed.
    """
    folder = Path(folder)
    check(folder, format)
    folder.mkdir(parents=True, exist_ok=True)
    described: dict[str, Any] = {
        "format": FORMAT,
        "env_id": policy.env_id,
        "env_params": policy.env_params,
        "agents": {},
        "networks": {},
    }
    written = []
    for group in policy.groups:
        for agent in group.agents:
            name = agent if agent in policy.networks else group.name
            described["agents"][agent] = name if name in policy.networks else None
            if name in policy.networks and name not in described["networks"]:
                acting = Acting(policy.networks[name])
                path = folder / f"{name}{ENDINGS[format]}"
                _write(acting, group.obs_size, path, format)
                described["networks"][name] = _describe(acting, group, path.name)
                written.append(path)
    path = folder / "policy.json"
    path.write_text(json.dumps(described, indent=2) + "\n")
    return [*written, path]


def check(folder: Path, format: str) -> None:
    """Check, before anything is loaded, that a policy can be written.

    Raises:
        ValueError: an unknown format, or a folder with something else in it.
        MissingDependency: a package is not installed.
    """
    if format not in get_args(Format):
        raise ValueError(f"format={format!r}: expected 'onnx' or 'torchscript'")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder, this is a file")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "policy.json").is_file():
        raise ValueError(f"{folder}: expected a new or empty folder, or one with a policy.json")
    for module in ("onnx", "onnxscript") if format == "onnx" else ():
        if importlib.util.find_spec(module) is None:
            raise MissingDependency(f"ONNX needs {module}: pip install 'gpu-zoo[onnx]'")


def _describe(acting: Acting, group: GroupLayout, file: str) -> dict[str, Any]:
    space = group.actions.space()
    action: dict[str, Any]
    if isinstance(space, spaces.Box):
        action = {"kind": "box", "low": space.low.tolist(), "high": space.high.tolist()}
    elif isinstance(space, spaces.MultiDiscrete):
        action = {"kind": "multi_discrete", "choices": space.nvec.tolist()}
    else:
        assert isinstance(space, spaces.Discrete)
        action = {"kind": "discrete", "choices": [int(space.n)]}
    return {
        "file": file,
        "inputs": acting.inputs,
        "outputs": acting.outputs,
        "observation_size": group.obs_size,
        "memory_size": acting.memory_size,
        "action": action,
    }


@torch.no_grad()
def _write(acting: Acting, obs_size: int, path: Path, format: Format) -> None:
    sizes = (obs_size, acting.memory_size)
    examples = tuple(torch.zeros(2, n) for n, _ in zip(sizes, acting.inputs, strict=False))
    with _quiet():
        if format == "torchscript":
            torch.jit.trace(acting, examples).save(str(path))  # type: ignore[no-untyped-call]
            return
        batch = torch.export.Dim("batch")
        torch.onnx.export(
            acting, examples, str(path), dynamo=True, external_data=False, verbose=False,
            input_names=acting.inputs, output_names=acting.outputs,
            dynamic_shapes={name: {0: batch} for name in acting.inputs},
        )  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says on the way: that TorchScript is old, that torchvision is not here."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
