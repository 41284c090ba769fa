"""Policies and actors at the edges: what they refuse to look at, and that bounds are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from toys import AIM

import gpu_zoo
from gpu_zoo.baselines import ddpg, pql, sac
from gpu_zoo.baselines.deterministic import Actor, BoxHead, DeterministicPolicy
from gpu_zoo.baselines.deterministic import make_actors as deterministic_actors
from gpu_zoo.baselines.evaluation import Policy, make_networks
from gpu_zoo.baselines.export import export
from gpu_zoo.baselines.fused import Perceptron
from gpu_zoo.baselines.squashed import SquashedPolicy
from gpu_zoo.baselines.squashed import make_actors as squashed_actors
from gpu_zoo.registry import ENVIRONMENTS

PENDULUM = "classic/pendulum_v1"  # observations of 3 numbers
# The middle and half the width, added in float32, are beyond the bound by its last bit.
AWKWARD = [(-1.9, 0.5), (-4.4, 0.9)]


def policies() -> dict[str, Policy]:
    """One of each kind, untrained."""
    hidden, seed = (8,), 0
    made: dict[str, Any] = {
        "ppo": Policy(PENDULUM, {}, make_networks(PENDULUM, {}, hidden, seed)),
        "recurrent": Policy(
            PENDULUM, {}, make_networks(PENDULUM, {}, hidden, seed, {"recurrent": True})
        ),
    }
    for name, kind, make in (
        ("ddpg", DeterministicPolicy, deterministic_actors),
        ("sac", SquashedPolicy, squashed_actors),
    ):
        actors: Any = make(PENDULUM, {}, hidden, seed)
        made[name] = kind(PENDULUM, {}, actors)
    return made


@pytest.mark.parametrize("kind", ["ppo", "recurrent", "ddpg", "sac"])
@pytest.mark.parametrize("shape", [(6,), (2, 6), (2,), (3, 2), (), (0,)], ids=str)
def test_observations_of_another_length_are_refused(kind: str, shape: tuple[int, ...]) -> None:
    """Twice the length would else be taken for two observations."""
    policy = policies()[kind]
    with pytest.raises(ValueError) as caught:
        policy.act({"agent_0": np.ones(shape, np.float32)})
    assert str(caught.value) == (
        f"observations['agent_0']: shape {shape}, expected (3,) or (batch, 3)"
    )


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_an_agent_that_is_none_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"^observations\['agent'\]: no such agent, .*agent_0$"):
        policies()[kind].act({"agent": np.ones(3, np.float32)})


def test_a_refused_call_changes_no_memory() -> None:
    policy, untouched = (policies()["recurrent"] for _ in range(2))
    seen = {"agent_0": np.ones(3, np.float32)}
    for one in (policy, untouched):
        one.act(seen, deterministic=True)
    with pytest.raises(ValueError):
        policy.act({**seen, "agent_7": np.ones(3, np.float32)})
    with pytest.raises(ValueError):
        policy.act(seen, action_masks={"agent_0": np.ones(3, bool)})
    again, right = (one.act(seen, deterministic=True)["agent_0"] for one in (policy, untouched))
    assert again == pytest.approx(right, abs=0)


def test_the_fused_layers_leave_a_wrong_length_to_torch() -> None:
    layers = Perceptron(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        layers(torch.ones(2, 6))


# Bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), AWKWARD)
def test_actions_end_where_the_box_does(low: float, high: float) -> None:
    box = spaces.Box(low, high, (1,), np.float32)
    ends = BoxHead(box).to_env(torch.tensor([[-1.0], [1.0]])).numpy()
    assert all(box.contains(end) for end in ends)
    assert ends.ravel() == pytest.approx([low, high], abs=1e-6)


def test_bounds_are_in_no_checkpoint() -> None:
    """Older ones have none, and must fit."""
    actor = Actor(3, spaces.Box(-1, 1, (1,)), (8,), torch.Generator().manual_seed(0))
    assert {name.split(".")[0] for name in actor.state_dict()} == {"net"}


@pytest.fixture
def awkward(monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of an environment whose actions have such bounds."""
    (group,) = AIM.groups
    (action,) = group.actions
    game = replace(
        AIM,
        id="toy/awkward_v0",
        groups=(replace(group, actions=(replace(action, box=AWKWARD[0]),)),),
    )
    monkeypatch.setitem(ENVIRONMENTS, game.id, game)
    return game.id


@pytest.mark.parametrize("trainer", [ddpg, pql, sac])
def test_extreme_actions_are_allowed(trainer: Any, awkward: str, tmp_path: Path) -> None:
    """Actors that always go to an end of the box can play, and so can their exported files."""
    kind = {ddpg: ddpg.DDPGConfig, pql: pql.PQLConfig, sac: sac.SACConfig}[trainer]
    small: dict[str, Any] = {"horizon": 3, "capacity": 500, "batch_size": 8, "num_envs": 4}
    config = kind(total_steps=12, hidden=(), device="cpu", progress=False, **small)
    policy: Policy = trainer.train(awkward, config).policy
    network: Any = policy.networks["agent"]
    for sign in (-1.0, 1.0):
        with torch.no_grad():
            network.net[-1].weight.zero_()
            network.net[-1].bias.fill_(100.0 * sign)
        seen = {f"agent_{i}": np.ones((5, 2), np.float32) for i in range(2)}
        env = gpu_zoo.make_vec(awkward, 5, device="cpu")
        env.reset(seed=0)
        env.step(policy.act(seen, deterministic=True))
        files = export(policy, tmp_path, "torchscript")
        (found,) = torch.jit.load(str(files[0]))(torch.ones(1, 2))
        assert env.single_action_space("agent_0").contains(found[0].numpy())
