"""Views of a drop-in's bodies and of their world, under mpe2's names; see :mod:`gpu_zoo.mpe.view`.

Positions, velocities and utterances are the kernel's own memory: what is written there, the next
observation and the next step see. All else can only be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe import extras
from gpu_zoo.mpe.params import MOVES
from gpu_zoo.mpe.world import DEFAULT_ACCEL, Body, ParticleSpec
from gpu_zoo.wrappers.game import Game

Array = npt.NDArray[Any]
Getters = Mapping[str, Callable[[], Any]]
# Where an array of a body's state lies: a field of the state and a row of it, or so many zeros.
Place = tuple[str, int] | int


class View:
    """Something whose attributes are read; only those with a setter can be written."""

    label: str

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(getattr(type(self), name, None), "fset", None) is None:
            raise AttributeError(
                f"{self.label}.{name} cannot be written; a body's state.p_pos, an agent's "
                "state.p_vel and a speaker's state.c can"
            )
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self.label} is part of an environment: copy or pickle that")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"


class StateView(View):
    """Where a body is, how fast it moves and, of an agent, what it says.

    float64 in reference numerics, else float32. Assigned values are copied into the state.

    Raises:
        ValueError: an assigned array has another shape than the one that it replaces.
        AttributeError: anything but 0 is assigned to what is always 0.
    """

    _game: Game
    _places: Mapping[str, Place]

    def __init__(self, game: Game, label: str, places: Mapping[str, Place]) -> None:
        self.__dict__.update(label=label, _game=game, _places=places)

    @property
    def p_pos(self) -> Array:
        """Position (x, y): a live view."""
        return self._array("p_pos")

    @p_pos.setter
    def p_pos(self, value: npt.ArrayLike) -> None:
        self._write("p_pos", value)

    @property
    def p_vel(self) -> Array:
        """Velocity (x, y), units a second: a live view; of landmarks read-only zeros."""
        return self._array("p_vel")

    @p_vel.setter
    def p_vel(self, value: npt.ArrayLike) -> None:
        self._write("p_vel", value)

    def _array(self, name: str) -> Array:
        place = self._places[name]
        if not isinstance(place, int):
            field, row = place
            there: Array = self._game.memory(field, writable=True)[row]
            return there
        return read_only(np.zeros(place))

    def _write(self, name: str, value: npt.ArrayLike) -> None:
        there, given = self._array(name), np.asarray(value)
        where = f"{self.label}.{name}"
        if given.shape != there.shape or given.dtype.kind not in "fiub":
            raise ValueError(f"{where}: {given.dtype} {given.shape}, expected float {there.shape}")
        if there.flags.writeable:
            there[...] = given
        elif given.any():
            raise AttributeError(f"{where} is always 0 and cannot be written")


class AgentStateView(StateView):
    """A :class:`StateView` with an utterance."""

    @property
    def c(self) -> Array:
        """What the agent said last, ``(dim_c,)``: a live view; of silent ones read-only zeros."""
        return self._array("c")

    @c.setter
    def c(self, value: npt.ArrayLike) -> None:
        self._write("c", value)


class EntityView(View):
    """A body: mpe2's ``Entity``. Beside the attributes below it has its scenario's own."""

    name: str
    size: float
    movable: bool
    collide: bool
    max_speed: float | None
    accel: float | None
    initial_mass: float
    mass: float
    density: float
    state: StateView
    _world: WorldView
    _number: int
    _extras: Getters

    def __init__(
        self, world: WorldView, number: int, name: str, body: Body, own: Getters, **values: Any
    ) -> None:
        common = {
            "name": name,
            "size": body.size,
            "collide": body.collide,
            "max_speed": body.max_speed,
            "accel": body.accel,
            "initial_mass": body.mass,
            "mass": body.mass,
            "density": 25.0,  # mpe2's; nothing depends on it
        }
        fixed = {name: value for name, value in {**common, **values}.items() if name not in own}
        self.__dict__.update(label=name, _world=world, _number=number, _extras=own, **fixed)

    @property
    def color(self) -> npt.NDArray[np.float64]:
        """Red, green and blue from 0 to 1 in the present scene."""
        own = self._extras.get("color", lambda: self._world.colors()[self._number])
        return read_only(own())

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("_extras", {}):
            raise AttributeError(f"{self.label} has no attribute {name!r}")
        return self._extras[name]()


class LandmarkView(EntityView):
    """A landmark; ``number`` counts all bodies, ``index`` landmarks."""

    def __init__(self, world: WorldView, index: int, name: str, body: Body) -> None:
        places: dict[str, Place] = {"p_pos": ("landmark", index), "p_vel": world.dim_p}
        super().__init__(
            world,
            len(world.agents) + index,
            name,
            body,
            extras.of_landmark(world, index),
            movable=False,
            state=StateView(world._game, f"{name}.state", places),
        )


class AgentView(EntityView):
    """An agent."""

    silent: bool
    blind: bool
    u_noise: None
    c_noise: None
    u_range: float
    action_callback: None
    action: ActionView
    state: AgentStateView

    def __init__(self, world: WorldView, index: int, name: str, body: Body) -> None:
        places: dict[str, Place] = {
            "p_pos": ("pos", index),
            "p_vel": ("vel", index),
            "c": world.dim_c if body.silent else ("utterance", index),
        }
        super().__init__(
            world,
            index,
            name,
            body,
            extras.of_agent(world, index),
            movable=body.movable,
            silent=body.silent,
            blind=False,
            u_noise=None,
            c_noise=None,
            u_range=1.0,
            action_callback=None,
            action=ActionView(f"{name}.action", world, self),
            state=AgentStateView(world._game, f"{name}.state", places),
        )


class ActionView(View):
    """The action that the agent was given last, in mpe2's terms."""

    _world: WorldView
    _agent: AgentView

    def __init__(self, label: str, world: WorldView, agent: AgentView) -> None:
        self.__dict__.update(label=label, _world=world, _agent=agent)

    @property
    def u(self) -> npt.NDArray[np.float64]:
        """Force of the agent's own motor (x, y); before the first action 0."""
        force = np.zeros(2)
        if self._agent.movable:
            given = self._world._game.given_action(self._agent.name)
            pushes = given if given.ndim else np.eye(len(MOVES))[given % len(MOVES)]
            force[:] = pushes[2] - pushes[1], pushes[4] - pushes[3]
            force *= DEFAULT_ACCEL if self._agent.accel is None else self._agent.accel
        return read_only(force)

    @property
    def c(self) -> Array:
        """What the agent says, ``(dim_c,)``."""
        dim_c = self._world.dim_c
        if self._agent.silent:
            return read_only(np.zeros(dim_c))
        given = self._world._game.given_action(self._agent.name)
        moves = len(MOVES) if self._agent.movable else 0
        if given.ndim:
            return read_only(given[moves:])
        return read_only(np.eye(dim_c)[given // max(1, moves)])


class WorldView(View):
    """mpe2's ``World``: bodies and constants of the physics. Beside these its scenario's own."""

    label = "world"
    agents: list[AgentView]
    landmarks: list[LandmarkView]
    dim_c: int
    dim_p = 2
    dim_color = 3
    # As in kernels/mpe/world.cuh.
    dt = 0.1
    damping = 0.25
    contact_force = 1e2
    contact_margin = 1e-3
    _game: Game
    _spec: ParticleSpec
    _extras: Getters

    def __init__(self, game: Game) -> None:
        spec = game.spec
        assert isinstance(spec, ParticleSpec)
        self.__dict__.update(_game=game, _spec=spec, dim_c=spec.world.dim_c)
        scope = spec.scope(game.params)
        agents, landmarks = spec.world.bodies(scope)
        self.__dict__["agents"] = [
            AgentView(self, i, name, body)
            for i, (name, body) in enumerate(zip(game.agents, agents, strict=True))
        ]
        names = spec.world.landmark_names(scope)
        self.__dict__["landmarks"] = [
            LandmarkView(self, i, name, body)
            for i, (name, body) in enumerate(zip(names, landmarks, strict=True))
        ]
        self.__dict__["_extras"] = extras.of_world(self)

    @property
    def entities(self) -> list[EntityView]:
        """All bodies: agents, then landmarks."""
        return [*self.agents, *self.landmarks]

    @property
    def policy_agents(self) -> list[AgentView]:
        """The agents that are given actions: all."""
        return list(self.agents)

    @property
    def scripted_agents(self) -> list[AgentView]:
        """The agents that follow a script: none."""
        return []

    @property
    def shares_reward(self) -> bool:
        """Whether all agents get one reward and nobody one of its own."""
        return self._spec.world.shares_reward

    def colors(self) -> npt.NDArray[np.float64]:
        """Every body's colour in the present scene: ``(bodies, 3)``."""
        scope = self._spec.scope(self._game.params)
        return self._spec.world.colors(scope, self._game.scene())

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("_extras", {}):
            raise AttributeError(f"world has no attribute {name!r}")
        return self._extras[name]()


def read_only(array: Array) -> Array:
    """The same array, which now refuses to be written: nobody would see it."""
    array.flags.writeable = False
    return array
