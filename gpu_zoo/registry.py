"""The table of environments. Ids, tests, pages, gallery and benchmarks all derive from it."""

from __future__ import annotations

import difflib
import importlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import pettingzoo
from gymnasium.vector import AutoresetMode

from gpu_zoo.prelude import Program
from gpu_zoo.spec import EnvSpec
from gpu_zoo.vector import VectorEnv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_zoo.wrappers.gymnasium import LaneView, VectorView
    from gpu_zoo.wrappers.lanes import Policy

ENVIRONMENTS: dict[str, str | EnvSpec] = {
    "classic/acrobot_v1": "gpu_zoo.classic.acrobot_v1:SPEC",
    "classic/cartpole_v1": "gpu_zoo.classic.cartpole_v1:SPEC",
    "classic/mountain_car_continuous_v0": "gpu_zoo.classic.mountain_car_continuous_v0:SPEC",
    "classic/mountain_car_v0": "gpu_zoo.classic.mountain_car_v0:SPEC",
    "classic/pendulum_v1": "gpu_zoo.classic.pendulum_v1:SPEC",
    "mpe/collect_treasure_v1": "gpu_zoo.mpe.collect_treasure_v1:SPEC",
    "mpe/simple_adversary_v3": "gpu_zoo.mpe.simple_adversary_v3:SPEC",
    "mpe/simple_crypto_v3": "gpu_zoo.mpe.simple_crypto_v3:SPEC",
    "mpe/simple_formation_v1": "gpu_zoo.mpe.simple_formation_v1:SPEC",
    "mpe/simple_line_v1": "gpu_zoo.mpe.simple_line_v1:SPEC",
    "mpe/simple_push_v3": "gpu_zoo.mpe.simple_push_v3:SPEC",
    "mpe/simple_reference_v3": "gpu_zoo.mpe.simple_reference_v3:SPEC",
    "mpe/simple_speaker_listener_v4": "gpu_zoo.mpe.simple_speaker_listener_v4:SPEC",
    "mpe/simple_spread_v3": "gpu_zoo.mpe.simple_spread_v3:SPEC",
    "mpe/simple_tag_v3": "gpu_zoo.mpe.simple_tag_v3:SPEC",
    "mpe/simple_v3": "gpu_zoo.mpe.simple_v3:SPEC",
    "mpe/simple_world_comm_v3": "gpu_zoo.mpe.simple_world_comm_v3:SPEC",
    "warpdrive/catalyst_search_v0": "gpu_zoo.warpdrive.catalyst_search_v0:SPEC",
    "warpdrive/tag_continuous_v0": "gpu_zoo.warpdrive.tag_continuous_v0:SPEC",
    "warpdrive/tag_gridworld_v0": "gpu_zoo.warpdrive.tag_gridworld_v0:SPEC",
}
# Gymnasium's own names of environments that follow it. Its make_vec finds ours behind "gpu_zoo/".
GYMNASIUM_NAMES = {
    "classic/acrobot_v1": "Acrobot-v1",
    "classic/cartpole_v1": "CartPole-v1",
    "classic/mountain_car_continuous_v0": "MountainCarContinuous-v0",
    "classic/mountain_car_v0": "MountainCar-v0",
    "classic/pendulum_v1": "Pendulum-v1",
}


def list_ids() -> list[str]:
    """The ids of all environments, sorted."""
    return sorted(ENVIRONMENTS)


def spec(env_id: str) -> EnvSpec:
    """The :class:`~gpu_zoo.spec.EnvSpec` of an environment.

    Args:
        env_id: ``"mpe/simple_spread_v3"``, or the name alone where it is unambiguous.

    Raises:
        KeyError: no such environment; the message names the nearest.
    """
    full = [i for i in ENVIRONMENTS if env_id in (i, i.rsplit("/", 1)[-1])]
    if len(full) != 1:
        near = difflib.get_close_matches(str(env_id), list_ids(), n=3, cutoff=0.3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise UnknownEnvironment(f"no environment {env_id!r}{hint} gpu_zoo.list_ids() names all.")
    entry = ENVIRONMENTS[full[0]]
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = getattr(importlib.import_module(module), name)
    assert isinstance(entry, EnvSpec)
    return entry


class UnknownEnvironment(KeyError):
    """No environment has this id."""

    def __str__(self) -> str:  # KeyError shows its argument quoted
        return str(self.args[0])


def register(new: EnvSpec) -> None:
    """Add an environment of your own; its kernel file may lie anywhere on disk.

    A spec with the id and the kernel file of an earlier one takes its place, so that the file that
    registers it can be run again, say in a notebook.

    Raises:
        TypeError: it is no spec.
        ValueError: the id is taken, the kernel file does not exist, or a size in the spec does not
            work out with default parameters.
    """
    if not isinstance(new, EnvSpec):
        raise TypeError(f"new={new!r}: {type(new).__name__}, expected an EnvSpec")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+_v\d+", new.id):
        raise ValueError(f"id={new.id!r}: expected 'family/name_v0'")
    known = ENVIRONMENTS.get(new.id)
    if known is not None and not (
        isinstance(known, EnvSpec) and known.kernel_path == new.kernel_path
    ):
        raise ValueError(f"id={new.id!r}: already registered")
    if not new.kernel_path.is_file():
        raise ValueError(f"kernel={str(new.kernel)!r}: no such file ({new.kernel_path})")
    Program(new, new.resolve({}))
    ENVIRONMENTS[new.id] = new
    _tell_pettingzoo(new.id)


def _tell_pettingzoo(env_id: str) -> None:
    """Let ``pettingzoo.make`` find an environment, by our id and as ``gpu_zoo/<name>``."""
    if not hasattr(pettingzoo, "make"):
        return  # before 1.27 PettingZoo had no registry
    from pettingzoo.env_registry.registration import aec_registry, parallel_registry

    for alias in (env_id, f"gpu_zoo/{env_id.rsplit('/', 1)[-1]}"):
        # PettingZoo spells versions with a dash. An id of its own stays its own.
        if alias.replace("_v", "-v") not in parallel_registry | aec_registry:
            pettingzoo.register("parallel", alias, partial(_make_face, env_id, "parallel_env"))
            pettingzoo.register("aec", alias, partial(_make_face, env_id, "env"))


def _tell_gymnasium(env_id: str, name: str, maker: str = "make_gym_vec") -> None:
    """Let ``gymnasium.make_vec`` find an environment, as ``gpu_zoo/<Gymnasium's name>``."""
    alias = f"gpu_zoo/{name}"
    if alias not in gymnasium.registry:
        gymnasium.register(
            alias,
            vector_entry_point=f"gpu_zoo.registry:{maker}",
            kwargs={"env_id": env_id},
        )


def _make_face(env_id: str, face: str, **params: Any) -> Any:
    from gpu_zoo.wrappers.pettingzoo import drop_in

    return getattr(drop_in(spec(env_id)), face)(**params)


def make_vec(env_id: str, num_envs: int = 1, **kwargs: Any) -> VectorEnv:
    """Make ``num_envs`` copies of an environment that are stepped by one kernel.

    Args:
        env_id: such as ``"mpe/simple_spread_v3"``.
        num_envs: number of environments.
        **kwargs: ``device`` (``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"auto"``; default ``"cpu"``);
            ``array`` (``"numpy"``, ``"cupy"``, ``"torch"``; default numpy on the CPU and cupy on
            CUDA), all views of the same memory; ``autoreset_mode`` (Gymnasium's ``AutoresetMode``
            or its name; default SAME_STEP); ``numerics`` (``"fast"``: float32 and counter-based
            random numbers; ``"reference"``: the reference package's numbers, bit for bit);
            ``copy`` (return fresh arrays); ``validate_actions`` (check action values each step;
            default only on the CPU, since on CUDA it waits for the device); and the
            environment's own parameters.

    Returns:
        A :class:`~gpu_zoo.vector.VectorEnv`.

    Raises:
        KeyError: no such environment.
        TypeError: an unknown parameter, or one of the wrong type.
        ValueError: a value out of range.
        MissingDependency: the device or array kind needs something that is not installed.
    """
    return VectorEnv(spec(env_id), num_envs, **kwargs)


def make_gym_vec(
    env_id: str,
    num_envs: int = 1,
    *,
    copy: bool = True,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    max_episode_steps: int | None = None,
    **kwargs: Any,
) -> VectorView:
    """Make a ``gymnasium.vector.VectorEnv`` of an environment that has one agent.

    ``gymnasium.make_vec("gpu_zoo/CartPole-v1", num_envs=4096)`` makes the same. For several agents
    that share a policy see :func:`make_gym_lanes`.

    Args:
        env_id: such as ``"classic/cartpole_v1"``.
        num_envs: number of environments.
        copy: return fresh observation arrays, as Gymnasium does; False returns the kernel's memory.
        autoreset_mode: as for :func:`make_vec`, but Gymnasium's default.
        max_episode_steps: Gymnasium's name of the time limit; the environment's own goes before it.
        **kwargs: as for :func:`make_vec`.

    Returns:
        A :class:`~gpu_zoo.wrappers.gymnasium.VectorView`.

    Raises:
        KeyError: no such environment.
        TypeError: an unknown parameter, or one of the wrong type.
        ValueError: a value out of range, or an environment with several agents.
        MissingDependency: the device or array kind needs something that is not installed.
    """
    from gpu_zoo.wrappers.gymnasium import VectorView

    if max_episode_steps is not None:
        kwargs.setdefault(spec(env_id).time_limit, max_episode_steps)
    batch = make_vec(env_id, num_envs, autoreset_mode=autoreset_mode, **kwargs)
    return VectorView(batch, copy=copy)


def make_gym_lanes(
    env_id: str,
    num_envs: int = 1,
    *,
    group: str | None = None,
    others: Mapping[str, Policy] | None = None,
    max_episode_steps: int | None = None,
    **kwargs: Any,
) -> LaneView:
    """Make a ``gymnasium.vector.VectorEnv`` in which every agent is an environment.

    ``gymnasium.make_vec("gpu_zoo/simple_spread-v3", num_envs=64)`` makes the same: 64 environments
    with three agents each, whose 192 lanes are the vector's environments.

    Args:
        env_id: such as ``"mpe/simple_spread_v3"``.
        num_envs: number of environments, not of lanes.
        group: whose lanes; may be left out if there is one group.
        others: a policy for each other group, by name, such as ``lanes.chance(seed)``.
        max_episode_steps: Gymnasium's name of the time limit; the environment's own goes before it.
        **kwargs: as for :func:`make_vec`.

    Returns:
        A :class:`~gpu_zoo.wrappers.gymnasium.LaneView`, in SAME_STEP mode.

    Raises:
        KeyError: no such environment.
        TypeError: an unknown parameter, or one of the wrong type.
        ValueError: a value out of range; a group missing or unknown.
        MissingDependency: the device or array kind needs something that is not installed.
    """
    from gpu_zoo.wrappers.gymnasium import LaneView

    if max_episode_steps is not None:
        kwargs.setdefault(spec(env_id).time_limit, max_episode_steps)
    return LaneView(make_vec(env_id, num_envs, **kwargs), group, others)


def make(env_id: str, **params: Any) -> Any:
    """Make one environment with PettingZoo's parallel API; see :mod:`gpu_zoo.wrappers.pettingzoo`.

    Args:
        env_id: such as ``"mpe/simple_spread_v3"``.
        **params: the environment's own parameters; ``numerics`` (default ``"reference"``).

    Raises:
        KeyError: no such environment.
        TypeError: an unknown parameter, or one of the wrong type.
        ValueError: a value out of range.
    """
    return _make_face(env_id, "parallel_env", **params)


for _env_id in ENVIRONMENTS:
    _tell_pettingzoo(_env_id)
    if _env_id in GYMNASIUM_NAMES:
        _tell_gymnasium(_env_id, GYMNASIUM_NAMES[_env_id])
    else:
        _tell_gymnasium(_env_id, _env_id.rsplit("/", 1)[-1].replace("_v", "-v"), "make_gym_lanes")
