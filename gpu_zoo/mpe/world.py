"""What a particle world is made of: the bodies of mpe2's ``World``, as data.

One description serves the kernel (sizes, speeds, who collides), the pictures (sizes, colours) and
the view of the world that code written against mpe2 expects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe import params as mpe
from gpu_zoo.spec import EnvSpec, Expr, Field, Group, Param, Run, Value, evaluate

Color = tuple[float, float, float]
Scene = Mapping[str, npt.NDArray[Any]]
NO_LIMIT = -1.0
DEFAULT_ACCEL = 5.0


@dataclass(frozen=True)
class Body:
    """A kind of agents or landmarks; what mpe2's ``Entity`` knows of it.

    Attributes:
        name: an agent's is its group's; a landmark's holds ``%d`` for its number.
        count: how many; an expression over the parameters.
        color: red, green, blue from 0 to 1, unless the world's ``paint`` changes it.
        size: radius in world units.
        collide: whether it pushes others that collide.
        movable: whether its actions move it.
        silent: whether it never speaks.
        accel: acceleration of its motor in units a second squared; None for mpe2's 5.
        max_speed: in units a second; None for no limit.
        mass: in units of a default body's.
    """

    name: str
    count: Expr
    color: Color
    size: float = 0.05
    collide: bool = False
    movable: bool = True
    silent: bool = True
    accel: float | None = None
    max_speed: float | None = None
    mass: float = 1.0


@dataclass(frozen=True)
class World:
    """The bodies of a particle world, in the order in which the kernel numbers them.

    Attributes:
        agents: kinds of agents; those that speak come first.
        landmarks: kinds of landmarks, which never move.
        dim_c: length of an utterance.
        shares_reward: whether all agents get one reward and nobody one of its own.
        paint: changes the bodies' colours (float64, agents then landmarks, red green blue) by the
            scene, in place.
    """

    agents: tuple[Body, ...]
    landmarks: tuple[Body, ...]
    dim_c: int = 0
    shares_reward: bool = False
    paint: Callable[[npt.NDArray[np.float64], Scene], None] | None = None

    @property
    def n_agents(self) -> str:
        """How many agents, as an expression over the parameters."""
        return _total(self.agents)

    @property
    def n_landmarks(self) -> str:
        """How many landmarks, as an expression over the parameters."""
        return _total(self.landmarks)

    @property
    def n_speakers(self) -> str:
        """How many agents speak, as an expression over the parameters."""
        return _total(tuple(body for body in self.agents if not body.silent))

    def bodies(self, scope: Mapping[str, Any]) -> tuple[list[Body], list[Body]]:
        """Each agent's body and each landmark's, one entry a number."""
        agents, landmarks = (
            [body for body in kinds for _ in range(evaluate(body.count, scope))]
            for kinds in (self.agents, self.landmarks)
        )
        return agents, landmarks

    def landmark_names(self, scope: Mapping[str, Any]) -> list[str]:
        """The landmarks' names; kinds with the same name are numbered on."""
        numbers: Counter[str] = Counter()
        names = []
        for body in self.bodies(scope)[1]:
            names.append(body.name % numbers[body.name])
            numbers[body.name] += 1
        return names

    def colors(self, scope: Mapping[str, Any], scene: Scene) -> npt.NDArray[np.float64]:
        """Every body's colour in a scene, agents then landmarks: ``(bodies, 3)``, 0 to 1."""
        agents, landmarks = self.bodies(scope)
        colors = np.array([body.color for body in (*agents, *landmarks)], np.float64)
        if self.paint is not None:
            self.paint(colors, scene)
        return colors

    def constants(self) -> dict[str, Expr]:
        """Integers that ``kernels/mpe/world.cuh`` needs."""
        return {
            "N_LANDMARKS": self.n_landmarks,
            "N_SPEAKERS": self.n_speakers,
            "DIM_C": self.dim_c,
        }

    def traits(self) -> dict[str, tuple[Run, ...]]:
        """What is constant about a body, by number."""
        agent: dict[str, Callable[[Body], bool | float]] = {
            "size": lambda body: body.size,
            "accel": lambda body: DEFAULT_ACCEL if body.accel is None else body.accel,
            "max_speed": lambda body: NO_LIMIT if body.max_speed is None else body.max_speed,
            "mass": lambda body: body.mass,
            "movable": lambda body: body.movable,
            "collides": lambda body: body.collide,
        }
        landmark = {name: agent[name] for name in ("size", "collides")}
        return {
            **dict(_runs("agent", self.agents, agent)),
            **dict(_runs("landmark", self.landmarks, landmark)),
        }

    def state(self) -> dict[str, Field]:
        """The fields of the state that every particle world has."""
        words = self.dim_c if self.n_speakers != "0" else 0
        return {
            "pos": Field("real", (self.n_agents, 2), "agents' positions"),
            "vel": Field("real", (self.n_agents, 2), "agents' velocities, units a second"),
            "landmark": Field("real", (self.n_landmarks, 2), "landmarks' positions", at_reset=True),
            "utterance": Field("real", (self.n_speakers, words), "what each speaker said last"),
        }

    def scratch(self) -> dict[str, Field]:
        """The scratch that the physics needs."""
        return {"force": Field("real", (self.n_agents, 2), "force on each agent")}


def _total(kinds: tuple[Body, ...]) -> str:
    return " + ".join(str(body.count) for body in kinds) or "0"


def _runs(
    prefix: str, kinds: tuple[Body, ...], traits: Mapping[str, Callable[[Body], bool | float]]
) -> Iterator[tuple[str, tuple[Run, ...]]]:
    for name, value in traits.items():
        yield f"{prefix}_{name}", tuple((body.count, value(body)) for body in kinds)


@dataclass(frozen=True, eq=False)
class ParticleSpec(EnvSpec):
    """An :class:`~gpu_zoo.spec.EnvSpec` that knows its world's bodies."""

    world: World = field(default=World((), ()), kw_only=True)


def particle_spec(
    name: str,
    *,
    summary: str,
    world: World,
    params: Mapping[str, Param],
    groups: tuple[Group, ...],
    state: Mapping[str, Field] | None = None,
    scratch: Mapping[str, Field] | None = None,
    constants: Mapping[str, Expr] | None = None,
    check: Callable[[Mapping[str, Value]], None] | None = None,
    reward: str,
    ends: str = "",
    notes: tuple[str, ...] = (),
) -> ParticleSpec:
    """The spec of a particle environment; what all of them share is filled in.

    Args:
        name: as in mpe2, such as ``"simple_spread_v3"``; also the kernel file's.
        summary: one sentence.
        world: the bodies.
        params: the constructor's parameters in mpe2's order.
        groups: the agents, in the order of ``world.agents``.
        state: more fields of the state than every particle world has.
        scratch: likewise of the scratch.
        constants: likewise integers that the kernel needs.
        check: raises ValueError for parameter values that do not go together.
        reward: the reward in words.
        ends: when an episode terminates, in words.
        notes: differences from mpe2 and oddities kept from it.
    """
    version = name.rsplit("_", 1)[-1]
    return ParticleSpec(
        id=f"mpe/{name}",
        kernel=f"mpe/{name}.cu",
        summary=summary,
        params=params,
        groups=groups,
        state={**world.state(), **(state or {})},
        scratch={**world.scratch(), **(scratch or {})},
        constants={**world.constants(), **(constants or {})},
        traits=world.traits(),
        check=check,
        reward=reward,
        ends=ends,
        reference=mpe.REFERENCE,
        notes=notes,
        render="gpu_zoo.render.mpe:draw",
        inside="gpu_zoo.mpe.view:attributes",
        history=(f"{version}: first version here; follows {mpe.REFERENCE}",),
        world=world,
    )
