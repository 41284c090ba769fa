"""What PettingZoo's two faces of an environment share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from gpu_zoo.errors import ResetNeeded
from gpu_zoo.spec import EnvSpec, Numerics
from gpu_zoo.wrappers.game import Game


class Face:
    """What the AEC and the parallel face share: the game, its spaces, curriculum and pictures."""

    _spec: EnvSpec
    _parallel: ClassVar[bool]  # or agents act in turn

    def _set_up(self, spec: EnvSpec, numerics: Numerics, params: Mapping[str, Any]) -> None:
        self._spec = spec
        self._given = {"numerics": numerics, **params}
        self.game = Game(spec, params, numerics)
        self.render_mode: Any = self.params.get("render_mode")
        # A dict of the instance's own: the original shares one between all classes.
        self.metadata: dict[str, Any] = {
            "name": spec.name,
            "render_modes": ["human", "rgb_array"] if spec.render else [],
            "is_parallelizable": True,
            "render_fps": spec.render_fps,
        }
        self.possible_agents = self.game.agents[:]
        self.agents: list[str] = []
        self.state_space = self.game.state_space
        self._picture: Any = None

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters' values, defaults included."""
        return self.game.params

    def observation_space(self, agent: str) -> spaces.Box:
        """The agent's observation space; always the same object."""
        return self.game.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The agent's action space; always the same object."""
        return self.game.action_spaces[agent]

    def state(self) -> npt.NDArray[np.float32]:
        """All observations in the agents' order, float32."""
        self._require_reset("state")
        self.game.refresh()
        return self.game.state()

    @property
    def np_random(self) -> np.random.Generator:
        """The environment's own random stream, for wrappers that draw from it.

        As in the original, the environment goes on behind what was drawn. Ask anew after each step
        and reset. In fast numerics it is a stream of its own, seeded by the environment's.

        Raises:
            ResetNeeded: no reset yet.
        """
        return self.game.random

    def __getattr__(self, name: str) -> Any:
        # Only for names that we have not. A copy in the making has no game yet.
        game = self.__dict__.get("game")
        if game is None or name.startswith("_") or name not in game.inside:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return game.inside[name]()

    def _of_those_here(self, by_agent: dict[str, Any]) -> dict[str, Any]:
        """The entries of the agents that were in the game until now."""
        if len(self.agents) == len(by_agent):
            return by_agent
        return {agent: by_agent[agent] for agent in self.agents}

    def _require_reset(self, what: str) -> None:
        if not self.game.vector.engine.is_reset:
            raise ResetNeeded(f"{what}: call reset() first")

    # The curriculum, where the environment has one.

    @property
    def curriculum_stage(self) -> int:
        """The current stage; it matters only with ``curriculum=True``."""
        return int(self.game.vector.params["curriculum_stage"])

    def advance_curriculum(self) -> None:
        """Go to the next stage, if there is one."""
        self.set_curriculum_stage(self.curriculum_stage + 1)

    def set_curriculum_stage(self, stage: int) -> None:
        """Go to a stage; the nearest one there is."""
        if isinstance(stage, bool) or not isinstance(stage, (int, np.integer)):
            raise TypeError(f"stage={stage!r}: expected an int")
        last = self._spec.params["curriculum_stage"].high
        nearest = max(0, min(int(stage), int(last or 0)))
        # As in the original, also while the curriculum is off.
        self.game.vector.engine.set_params({"curriculum_stage": nearest}, check_together=False)

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The scene as uint8 ``(height, width, 3)``, or None after showing it in a window.

        Raises:
            ResetNeeded: no reset yet.
            MissingDependency: pygame is not installed.
        """
        if self.render_mode is None:
            gymnasium.logger.warn(
                "You are calling render method without specifying any render mode."
            )
            return None
        self._require_reset("render")
        if self._picture is None:
            from gpu_zoo.render.screen import Screen

            self._picture = Screen(self._spec, self.render_mode, self.metadata["render_fps"])
        picture: npt.NDArray[np.uint8] | None = self._picture.show(
            self.game.scene(), self.game.start, self.params
        )
        return picture

    def close(self) -> None:
        """Close the window, if there is one; closing twice does nothing."""
        if self._picture is not None:
            self._picture.close()
            self._picture = None

    # Copies and pickles carry the whole state, so that an episode can go on in the copy.

    def __getstate__(self) -> dict[str, Any]:
        own = {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("game", "_picture", "_spec")
        }
        vector = self.game.vector
        self.game.take_back_random()
        return {
            "id": self._spec.id,
            "own": own,
            "params": dict(vector.params),
            "state": vector.get_state() if vector.engine.is_reset else None,
            # An AEC environment may be between two agents' turns.
            "actions": {name: group.actions.copy() for name, group in vector.group.items()},
            "start": getattr(self.game, "start", None),
            "pool": vector.engine.pool,
            "own_starts": vector.engine.own_starts,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._spec.id, self._parallel), self.__getstate__()

    def __setstate__(self, pickled: Mapping[str, Any]) -> None:
        from gpu_zoo.registry import spec

        given = dict(pickled["own"]["_given"])
        self._set_up(spec(pickled["id"]), given.pop("numerics"), given)
        self.__dict__.update(pickled["own"])
        vector = self.game.vector
        vector.engine.own_starts = pickled["own_starts"]
        changed = {n: v for n, v in pickled["params"].items() if v != vector.params[n]}
        if changed:
            vector.engine.set_params(changed, check_together=False)
        if pickled["pool"] is not None or vector.engine.pool is not None:
            vector.engine.use_pool(pickled["pool"], own_starts=pickled["own_starts"])
        if pickled["state"] is not None:
            vector.reset(seed=0)
            vector.set_state(pickled["state"])
            self.game.start = pickled["start"]
        for name, actions in pickled["actions"].items():
            vector.group[name].actions[...] = actions


def _unpickled(env_id: str, parallel: bool) -> Face:
    # The classes of registered environments are in no module: they are made when asked for.
    from gpu_zoo.registry import spec
    from gpu_zoo.wrappers.pettingzoo import faces

    face = faces(spec(env_id))[parallel]
    return face.__new__(face)
