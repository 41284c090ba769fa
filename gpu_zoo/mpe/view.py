"""What scripts find inside mpe2's environments: ``env.unwrapped.world`` and ``.scenario``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.mpe.bodies import AgentView, EntityView, View, WorldView
from gpu_zoo.wrappers.game import Game, Verdict

NO_TIME_LIMIT = 2**31 - 1


def attributes(game: Game) -> Mapping[str, Callable[[], Any]]:
    """Functions that get, by name, what mpe2's ``SimpleEnv`` has beside its parameters."""
    world = WorldView(game)
    scenario = ScenarioView(game, world)
    return {
        "world": lambda: world,
        "scenario": lambda: scenario,
        "steps": lambda: int(game.vector.engine.views["steps"][0]),
        # Where there is a parameter of this name, the environment itself has it.
        "local_ratio": lambda: 0 if world.shares_reward else None,
    }


class ScenarioView(View):
    """mpe2's ``Scenario``: what the rules say of the world as it is now, moved by hand or not.

    ``world`` arguments are there because mpe2's have them; the world is always the environment's.
    """

    label = "scenario"
    _game: Game
    _world: WorldView

    def __init__(self, game: Game, world: WorldView) -> None:
        self.__dict__.update(_game=game, _world=world)

    def observation(self, agent: AgentView, world: WorldView) -> npt.NDArray[np.float64]:
        """What the agent sees; rounded to float32, which mpe2's is not before ``observe()``."""
        self._game.vector.engine.require_reset("scenario.observation")
        self._game.refresh()
        seen: npt.NDArray[np.float64] = self._game.observe(agent.name).astype(np.float64)
        return seen

    def reward(self, agent: AgentView, world: WorldView) -> float:
        """The agent's own reward, without the share in the global one."""
        return 0.0 if self._world.shares_reward else self._judge(local_ratio=1.0)[0][agent.name]

    def global_reward(self, world: WorldView) -> float:
        """The reward that all agents share; 0 where they share none."""
        if "local_ratio" not in self._game.params and not self._world.shares_reward:
            return 0.0
        return self._judge(local_ratio=0.0)[0][self._game.agents[0]]

    def benchmark_data(self, agent: AgentView, world: WorldView) -> Any:
        """The agent's benchmark data, of mpe2's own types.

        Raises:
            ValueError: the environment was made without ``benchmark_data=True``.
        """
        if not self._game.params["benchmark_data"] and any(g.info for g in self._game.spec.groups):
            raise ValueError(
                "scenario.benchmark_data: make the environment with benchmark_data=True"
            )
        return self._judge().infos[agent.name].get("benchmark_data", {})

    def is_terminal(self, world: WorldView) -> bool:
        """Whether the rules end the episode now; the time limit aside."""
        return all(self._judge().terminations.values())

    def good_agents(self, world: WorldView) -> list[AgentView]:
        """The agents that are no adversaries."""
        return [agent for agent in self._world.agents if not agent.adversary]

    def adversaries(self, world: WorldView) -> list[AgentView]:
        """The adversaries."""
        return [agent for agent in self._world.agents if agent.adversary]

    def is_collision(self, agent1: EntityView, agent2: EntityView) -> bool:
        """Whether two bodies overlap."""
        gap = agent1.state.p_pos - agent2.state.p_pos
        return bool(np.sqrt(np.sum(np.square(gap))) < agent1.size + agent2.size)

    def _judge(self, **ratio: float) -> Verdict:
        self._game.vector.engine.require_reset("scenario")
        known = {name: value for name, value in ratio.items() if name in self._game.params}
        return self._game.judge(max_cycles=NO_TIME_LIMIT, **known)
