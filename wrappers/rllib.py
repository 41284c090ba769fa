"""RLlib's faces (its new API stack): one environment as a ``MultiAgentEnv``, and a batch.

RLlib's own env runner steps its copies of an environment one after the other.
:class:`BatchedRunner` has a batch in their place and steps all of them in one call.

Both report the time limit as ``truncateds["__all__"]`` alone, which ends every agent that is left.
If each were named there, RLlib's ``MultiAgentEpisode`` would note that it terminated too, and
nothing would be bootstrapped where the time ran out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from gpu_zoo import registry
from gpu_zoo.errors import InvalidAction, MissingDependency, ResetNeeded
from gpu_zoo.memory import to_numpy
from gpu_zoo.spec import EnvSpec
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.pettingzoo import ParallelFace

try:
    import torch
    from ray.rllib.callbacks.utils import make_callback
    from ray.rllib.env.env_context import EnvContext
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
    from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
    from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
    from ray.rllib.env.vector.vector_multi_agent_env import VectorMultiAgentEnv
    from ray.rllib.utils.metrics import (
        NUM_AGENT_STEPS_SAMPLED,
        NUM_ENV_STEPS_SAMPLED,
        NUM_EPISODES,
        NUM_MODULE_STEPS_SAMPLED,
    )
    from ray.tune.registry import ENV_CREATOR, _global_registry, register_env
except ImportError as error:
    raise MissingDependency(
        f"RLlib is missing ({error}); install it with: pip install 'gpu-zoo[rllib]'"
    ) from error

ByAgent = dict[str, Any]
# Between the seeds of two env runners: more than the copies that one has. RLlib's own differ by 1,
# as those of copies do, so that a runner's copies would play the episodes of the next one's.
SEED_STRIDE = 2**24


class RLlibEnv(MultiAgentEnv):
    """One environment, for RLlib's own env runner.

    Observations are float32 ``(n,)``. Where actions are masked they are dicts, as RLlib's
    ``ActionMaskingTorchRLModule`` takes them: ``"observations"``, and ``"action_mask"``, float32, 1
    for what the agent may do next; of a multi-discrete action the components' values lie side by
    side.

    Args:
        env: one environment; made by :func:`gpu_zoo.make`.
        seed_offset: is added to every seed.

    Attributes:
        env: the same.
        agents: who is in the game, in order; empty after the episode.
        possible_agents: all agents, in order.
        observation_spaces: by agent.
        action_spaces: by agent.
        render_mode: the environment's own.

    Raises:
        TypeError: no such environment was given.
    """

    def __init__(self, env: ParallelFace, *, seed_offset: int = 0) -> None:
        if not isinstance(env, ParallelFace):
            raise TypeError(f"env: {type(env).__name__}, expected what gpu_zoo.make returns")
        self.env = env
        self.seed_offset = seed_offset
        self.agents = list(env.possible_agents)
        self.possible_agents = list(env.possible_agents)
        self.observation_spaces, self.action_spaces = _spaces(env.game.vector)
        self.render_mode = env.render_mode
        self.metadata = env.metadata
        super().__init__()

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[ByAgent, ByAgent]:
        """Begin an episode; returns observations and infos by agent.

        Args:
            seed: of this episode and those after it; None goes on.
            options: accepted and mean nothing, as for PettingZoo's face.

        Raises:
            InvalidSeed: a seed that is no integer, or out of range.
        """
        observations, infos = self.env.reset(None if seed is None else seed + self.seed_offset)
        self.agents = list(self.env.agents)
        return _with_masks(observations, infos), infos

    def step(
        self, action_dict: Mapping[str, Any]
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Agents act, all that are in the game.

        Returns:
            Observations, rewards, terminations, truncations and infos of those agents. When the
            last of them has ended, ``"__all__"`` is true in truncations if the time limit was
            reached, and in terminations if all that were left terminated. Truncations hold nothing
            else.

        Raises:
            ResetNeeded: no reset yet, or the episode is over.
            InvalidAction: an agent without a valid action, or one that its mask forbids; nothing
                moved.
        """
        if not self.env.agents:
            raise ResetNeeded("step: call reset() first")
        observations, rewards, terminateds, truncateds, infos = self.env.step(action_dict)
        self.agents = list(self.env.agents)
        over = not self.agents
        all_terminated, any_truncated = all(terminateds.values()), any(truncateds.values())
        return (
            _with_masks(observations, infos),
            rewards,
            {**terminateds, "__all__": over and all_terminated},
            {"__all__": over and any_truncated},
            infos,
        )

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The scene as uint8 ``(height, width, 3)``, or None after showing it in a window.

        Raises:
            ResetNeeded: no reset yet.
            MissingDependency: pygame is not installed.
        """
        return self.env.render()

    def close(self) -> None:
        """Close the window, if there is one."""
        self.env.close()


class RLlibVectorEnv(VectorMultiAgentEnv):
    """A batch, for :class:`BatchedRunner`: what RLlib's ``SyncVectorMultiAgentEnv`` over as many
    :class:`RLlibEnv` would be, but for infos, which are empty.

    Args:
        batch: the environments; made by :func:`gpu_zoo.make_vec` with
            ``autoreset_mode="next_step"``.
        seed_offset: is added to every seed.

    Attributes:
        batch: the same; for ``set_param``, ``get_state`` and its arrays.
        num_envs: number of environments.
        envs: for each environment a :class:`Place`, which has its spaces.
        single_observation_spaces: of one environment, by agent.
        single_action_spaces: of one environment, by agent.
        single_observation_space: the same as a ``Dict`` space.
        single_action_space: the same as a ``Dict`` space.
        metadata: holds ``autoreset_mode``.

    Raises:
        ValueError: the batch has another autoreset mode.
    """

    def __init__(self, batch: VectorEnv, *, seed_offset: int = 0) -> None:
        self.closed = True  # until there is something to close
        if batch.autoreset_mode != AutoresetMode.NEXT_STEP:
            raise ValueError(
                f"batch: autoreset_mode={batch.autoreset_mode.name}, expected NEXT_STEP, "
                "which is the only one that RLlib knows"
            )
        super().__init__()
        self.batch = batch
        self.seed_offset = seed_offset
        self.num_envs = batch.num_envs
        self.metadata = {**batch.metadata, "autoreset_mode": "next_step"}
        self.render_mode = "rgb_array" if batch.metadata["render_modes"] else None
        self.single_observation_spaces, self.single_action_spaces = _spaces(batch)
        self.single_observation_space = spaces.Dict(self.single_observation_spaces)
        self.single_action_space = spaces.Dict(self.single_action_spaces)
        self.envs = [Place(self, index) for index in range(batch.num_envs)]
        self._agents = batch.agents
        self._groups = list(batch.group.values())
        self._resets = np.zeros(batch.num_envs, np.bool_)
        self.closed = False

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[list[ByAgent], list[ByAgent]]:
        """Start a new episode in every environment.

        Args:
            seed: environment i is seeded with ``seed + i``, or with ``seed[i]``; None goes on.
            options: None or empty.

        Returns:
            Observations and infos of each environment, by agent.

        Raises:
            InvalidSeed: a seed out of range, or not one for each environment.
            ValueError: an option.
        """
        if options:
            raise ValueError(f"options={options!r}: expected none")
        if isinstance(seed, Sequence):
            seed = [one + self.seed_offset for one in seed]
        elif seed is not None:
            seed += self.seed_offset
        self.batch.reset(seed=seed)
        self._resets = np.zeros(self.num_envs, np.bool_)
        return self._observations(), self._infos()

    def step(
        self, actions: Sequence[Mapping[str, Any]]
    ) -> tuple[list[ByAgent], list[ByAgent], list[ByAgent], list[ByAgent], list[ByAgent]]:
        """Advance every environment by one step; one whose episode is over begins the next.

        Args:
            actions: of each environment, by agent; of one whose episode is over they are ignored.

        Returns:
            Observations, rewards, terminations, truncations and infos of each environment, as from
            :meth:`RLlibEnv.step`. One that began an episode has observations of all agents, rewards
            of 0 and no flag that is true.

        Raises:
            ResetNeeded: no reset yet.
            InvalidAction: an agent that is in the game without a valid action, an action of one
                that is not, or one that its mask forbids; nothing moved.
        """
        resets = self._resets
        # Who was in the game before the step is whom it has results for.
        here = self._by_agent("active") | resets
        *_, infos = self.batch.step(self._columns(actions, here & ~resets))
        self._resets = over = to_numpy(infos["_episode"]).copy()
        terminations, truncations = self._by_agent("terminations"), self._by_agent("truncations")
        all_terminated = over & (terminations | ~here).all(0)
        any_truncated = over & (truncations & here).any(0)
        observations = self._observations()
        rewards = self._rows(self._by_agent("rewards").tolist())
        terminateds = self._rows([*terminations.tolist(), all_terminated.tolist()])
        truncateds = [{"__all__": flag} for flag in any_truncated.tolist()]
        self._drop_those_who_left(here, observations, rewards, terminateds)
        return observations, rewards, terminateds, truncateds, self._infos()

    def render(self) -> tuple[npt.NDArray[np.uint8], ...]:
        """A picture of each environment: uint8 ``(height, width, 3)``.

        Raises:
            ResetNeeded: no reset yet.
            NotImplementedError: the environment has no picture.
            MissingDependency: pygame is not installed.
        """
        return tuple(place.render() for place in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Release the batch; ``close()`` calls this once."""
        self.batch.close()

    def _by_agent(self, name: str) -> npt.NDArray[Any]:
        """An array of all groups, ``(agents, num_envs)``; a copy."""
        return np.concatenate([to_numpy(getattr(group, name)).T for group in self._groups])

    def _rows(self, columns: Sequence[Any]) -> list[ByAgent]:
        """Dicts by agent, one an environment, of each agent's values in all environments."""
        names = (*self._agents, "__all__")  # the last where there is a column more than agents
        return [dict(zip(names, row, strict=False)) for row in zip(*columns, strict=True)]

    def _observations(self) -> list[ByAgent]:
        columns: list[Any] = []
        for group in self._groups:
            # RLlib keeps what it is given, so it gets rows of a copy.
            arrays = to_numpy(group.observations).copy().swapaxes(0, 1)
            if group.action_masks is None:
                columns += list(arrays)
            else:
                masks = to_numpy(group.action_masks).astype(np.float32).swapaxes(0, 1)
                pairs = zip(arrays, masks, strict=True)
                columns += [list(map(_masked, *of_agent)) for of_agent in pairs]
        return self._rows(columns)

    def _infos(self) -> list[ByAgent]:
        return [{} for _ in range(self.num_envs)]

    def _drop_those_who_left(self, here: npt.NDArray[np.bool_], *results: list[ByAgent]) -> None:
        for agent, index in np.argwhere(~here).tolist():
            for by_environment in results:
                del by_environment[index][self._agents[agent]]

    def _columns(self, actions: Sequence[Mapping[str, Any]], act: npt.NDArray[np.bool_]) -> ByAgent:
        """The actions of each agent in all environments.

        Args:
            actions: of each environment, by agent.
            act: who has to act, ``(agents, num_envs)``.
        """
        if len(actions) != self.num_envs:
            raise InvalidAction(f"actions: {len(actions)} dicts, expected {self.num_envs}")
        given = [{} if over else own for own, over in zip(actions, self._resets, strict=True)]
        acted = np.array([[agent in own for own in given] for agent in self._agents])
        if (acted != act).any() or sum(map(len, given)) != acted.sum():
            self._raise_names(given, act)
        return {agent: self._column(agent, given) for agent in self._agents}

    def _column(self, agent: str, given: Sequence[Mapping[str, Any]]) -> Any:
        # Who does not act needs some valid action, which the kernel does not look at.
        nobodys = _any_action(self.single_action_spaces[agent])
        try:
            column = np.array([own.get(agent, nobodys) for own in given])
            return torch.as_tensor(column, device=self.batch.device)
        except (TypeError, ValueError) as error:
            raise InvalidAction(f"actions of {agent}: {error}") from None

    def _raise_names(self, given: Sequence[Mapping[str, Any]], act: npt.NDArray[np.bool_]) -> None:
        for index, (own, acts) in enumerate(zip(given, act.T, strict=True)):
            expected = [a for a, does in zip(self._agents, acts, strict=True) if does]
            if own.keys() != set(expected):
                raise InvalidAction(
                    f"actions[{index}]: of {', '.join(own) or 'nobody'}, "
                    f"expected of {', '.join(expected)}"
                )


class Place(MultiAgentEnv):
    """One environment of a batch as far as RLlib looks at it: its spaces, and its picture.

    Args:
        whole: the batch's face.
        index: which one of its environments this is.
    """

    def __init__(self, whole: RLlibVectorEnv, index: int) -> None:
        self.agents = list(whole.batch.agents)
        self.possible_agents = self.agents
        self.observation_spaces = whole.single_observation_spaces
        self.action_spaces = whole.single_action_spaces
        self.render_mode = whole.render_mode
        self.metadata = whole.metadata
        self._batch, self._index = whole.batch, index
        super().__init__()

    def render(self) -> npt.NDArray[np.uint8]:
        """A picture: uint8 ``(height, width, 3)``."""
        return self._batch.render(self._index)


@dataclass(frozen=True)
class Creator:
    """Makes environments in the processes where RLlib's env runners are.

    Attributes:
        spec: of the environment. It comes along, as those processes have none of your own.
    """

    spec: EnvSpec

    def __call__(self, context: Mapping[str, Any]) -> RLlibEnv:
        """One environment.

        Args:
            context: RLlib's ``EnvContext``; what :func:`gpu_zoo.make` takes.
        """
        env = registry.make(self._known(), **context)
        return RLlibEnv(env, seed_offset=_seed_offset(context))

    def batch(self, num_envs: int, context: Mapping[str, Any]) -> RLlibVectorEnv:
        """A batch.

        Args:
            num_envs: number of environments.
            context: RLlib's ``EnvContext``; what :func:`gpu_zoo.make_vec` takes.
        """
        made = registry.make_vec(
            self._known(), num_envs, autoreset_mode=AutoresetMode.NEXT_STEP, **context
        )
        return RLlibVectorEnv(made, seed_offset=_seed_offset(context))

    def _known(self) -> str:
        if self.spec.id not in registry.ENVIRONMENTS:
            registry.register(self.spec)
        return self.spec.id


def register(*env_ids: str) -> None:
    """Let RLlib find environments by id, with ``config.environment("mpe/simple_spread_v3")``.

    With RLlib's own env runner that is one :class:`RLlibEnv` after the other, whose ``env_config``
    is what :func:`gpu_zoo.make` takes; with :class:`BatchedRunner` it is a batch, and
    ``env_config`` what :func:`gpu_zoo.make_vec` takes, but ``autoreset_mode``.

    Args:
        *env_ids: such as ``"mpe/simple_spread_v3"``; none for all there are.

    Raises:
        KeyError: no such environment.
    """
    for spec in [registry.spec(env_id) for env_id in env_ids or registry.list_ids()]:
        register_env(spec.id, Creator(spec))


class BatchedRunner(MultiAgentEnvRunner):
    """RLlib's env runner with a batch of ``num_envs_per_env_runner`` environments in one call.

    ``config.env_runners(env_runner_cls=BatchedRunner)`` has RLlib use it; the environment is one
    that :func:`register` was called for.

    RLlib's logs every step of every agent, which takes a third of the time. This one counts them
    and logs the sums after a sample, so callbacks do not see them before.
    """

    env: RLlibVectorEnv | None

    def make_env(self) -> None:
        """Make the batch, also anew after a change of ``config.env_config``.

        Raises:
            ValueError: RLlib does not know the environment as one of ours.
        """
        if self.env is not None:
            self.env.close()
        context = EnvContext(
            self.config.env_config,
            worker_index=self.worker_index or 0,
            num_workers=self.config.num_env_runners,
        )
        self.env = _creator(self.config.env).batch(self.config.num_envs_per_env_runner, context)
        self.num_envs = self.env.num_envs
        self._needs_initial_reset = True
        make_callback(
            "on_environment_created",
            callbacks_objects=self._callbacks,
            callbacks_functions=self.config.callbacks_on_environment_created,
            kwargs={
                "env_runner": self,
                "metrics_logger": self.metrics,
                "env": self.env,
                "env_context": context,
            },
        )

    def sample(self, **kwargs: Any) -> list[MultiAgentEpisode]:
        """Play; takes and returns what RLlib's does."""
        self._counts: Counter[tuple[str, ...]] = Counter()
        episodes: list[MultiAgentEpisode] = super().sample(**kwargs)
        for (name, *key), count in self._counts.items():
            self.metrics.log_value((name, *key), count, reduce="sum")
            self.metrics.log_value(
                (f"{name}_lifetime", *key),
                count,
                reduce="lifetime_sum",
                with_throughput=name == NUM_ENV_STEPS_SAMPLED,
            )
        return episodes

    def _increase_sampled_metrics(
        self, num_steps: int, next_obs: Mapping[str, Any], episode: MultiAgentEpisode
    ) -> int:
        self._counts[NUM_ENV_STEPS_SAMPLED,] += num_steps
        if episode.is_done:
            self._counts[NUM_EPISODES,] += 1
        for agent in next_obs:
            self._counts[NUM_AGENT_STEPS_SAMPLED, agent] += 1
            self._counts[NUM_MODULE_STEPS_SAMPLED, episode.module_for(agent)] += 1
        return num_steps


def _creator(env: Any) -> Creator:
    if isinstance(env, str) and _global_registry.contains(ENV_CREATOR, env):
        creator = _global_registry.get(ENV_CREATOR, env)
        if isinstance(creator, Creator):
            return creator
    raise ValueError(
        f"config.env={env!r}: expected an id that gpu_zoo.wrappers.rllib.register was called with"
    )


def _seed_offset(context: Mapping[str, Any]) -> int:
    return SEED_STRIDE * getattr(context, "worker_index", 0)


def _spaces(batch: VectorEnv) -> tuple[ByAgent, ByAgent]:
    """The observation and the action spaces of one environment, by agent."""
    observed: ByAgent = {}
    acted: ByAgent = {}
    for group in batch.group.values():
        space: spaces.Space[Any] = group.observation_space
        if group.action_masks is not None:
            mask = spaces.Box(0.0, 1.0, group.action_masks.shape[2:], np.float32)
            space = spaces.Dict(_masked(space, mask))
        observed |= dict.fromkeys(group.agents, space)
        acted |= dict.fromkeys(group.agents, group.action_space)
    return observed, acted


def _masked(observation: Any, mask: Any) -> dict[str, Any]:
    return {"action_mask": mask, "observations": observation}


def _with_masks(observations: ByAgent, infos: ByAgent) -> ByAgent:
    """Observations that hold the masks of the infos, if there are any."""
    return {
        agent: _masked(
            own, np.concatenate(infos[agent]["action_mask"], axis=None, dtype=np.float32)
        )
        if "action_mask" in infos[agent]
        else own
        for agent, own in observations.items()
    }


def _any_action(space: spaces.Space[Any]) -> Any:
    return space.low if isinstance(space, spaces.Box) else np.zeros(space.shape, np.int32)
