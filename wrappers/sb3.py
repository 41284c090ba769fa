"""Stable-Baselines3's face of a batch: a native ``VecEnv``, one environment of it an agent's lane.

Source of the interface: stable-baselines3 2.9, ``common/vec_env/base_vec_env.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_zoo.errors import MissingDependency
from gpu_zoo.memory import to_numpy
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.incoming import set_param_of
from gpu_zoo.wrappers.lanes import Lanes, Outcome, Policy

try:
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise MissingDependency(
        "Stable-Baselines3 is missing; install it with: pip install 'gpu-zoo[sb3]'"
    ) from error

Indices = int | Iterable[int] | None


class SB3VecEnv(VecEnv):
    """A group of agents in all environments of a batch, as Stable-Baselines3 trains on them.

    Every agent of every environment is an environment to Stable-Baselines3, and all share its
    policy: :class:`~gpu_zoo.wrappers.lanes.Lanes`. Where a lane's episode ended, its info has
    ``terminal_observation``, ``TimeLimit.truncated`` (cut off and not terminated, so that its value
    is bootstrapped), and ``episode`` with ``r``, ``l`` and ``t`` as ``VecMonitor`` has them, which
    is not needed. Infos are empty otherwise.

    A lane whose agent has left before its environment's episode is over earns nothing until then,
    is done once more when it is over, and its info says ``left``. :class:`LivingRolloutBuffer`
    keeps such steps from being learned from.

    Args:
        batch: the environments, in SAME_STEP mode; of any device, arrays go over as NumPy's.
        group: whose lanes; may be left out if there is one group.
        others: a policy for each other group, by name, such as ``lanes.chance(seed)``.
        render_mode: ``"rgb_array"`` or None.
        shown: how many environments a picture shows.

    Attributes:
        batch: the same.
        acting: which lanes acted in the last step, for :class:`LivingRolloutBuffer`.

    Raises:
        ValueError, TypeError: as for :class:`~gpu_zoo.wrappers.lanes.Lanes`; another render mode.
    """

    def __init__(
        self,
        batch: VectorEnv,
        group: str | None = None,
        others: Mapping[str, Policy] | None = None,
        *,
        render_mode: str | None = None,
        shown: int = 1,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r}: expected None or 'rgb_array'")
        self._lanes = Lanes(batch, group, others)
        if not 1 <= shown <= batch.num_envs:
            raise ValueError(f"shown={shown}: expected 1 to {batch.num_envs}")
        self.batch = batch
        self.acting = Acting()
        self._shown = shown
        self._begun = time.time()
        self._attributes = {"render_mode": render_mode, "spec": batch.spec}
        super().__init__(self._lanes.count, self._lanes.observation_space, self._lanes.action_space)

    def reset(self) -> npt.NDArray[np.float32]:
        """Begin an episode everywhere; environment e with ``seed + e`` after ``seed(seed)``.

        Raises:
            ValueError: options were set; there are none.
        """
        if any(self._options):
            raise ValueError(f"options={next(filter(None, self._options))!r}: expected none")
        given = self._seeds[: self.batch.num_envs]
        self.batch.reset(seed=None if given[0] is None else given)
        self._reset_seeds()
        self._reset_options()
        return self._observations()

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Keep the actions for ``step_wait``."""
        self._actions = actions

    def step_wait(
        self,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], list[dict[str, Any]]]:
        """Advance every environment by one step.

        Returns:
            Observations float32 ``(lanes, n)``, rewards float32 ``(lanes,)``, dones bool
            ``(lanes,)`` and a dict a lane; all fresh, for Stable-Baselines3 writes into them.

        Raises:
            InvalidAction: a wrong shape, dtype or value; nothing moved.
            ResetNeeded: no reset yet.
        """
        outcome = self._lanes.step(self._actions)
        self.acting.lanes = np.array(to_numpy(outcome.acted))
        rewards = np.array(to_numpy(self._lanes.rewards), np.float32)
        dones = np.array(to_numpy(outcome.done))
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            self._tell_ends(outcome, infos)
        return self._observations(), rewards, dones, infos

    def _observations(self) -> npt.NDArray[np.float32]:
        return np.array(to_numpy(self._lanes.observations))

    def _tell_ends(self, outcome: Outcome, infos: list[dict[str, Any]]) -> None:
        ended, over = to_numpy(outcome.ended), to_numpy(outcome.over)
        cut = to_numpy(outcome.cut)
        lanes = np.flatnonzero(ended)
        returns, lengths = (
            to_numpy(array)[lanes].tolist() for array in self._lanes.statistics(outcome.over)
        )
        last = to_numpy(self._lanes.last_observations(outcome.over))[lanes]
        seconds = round(time.time() - self._begun, 6)
        for k, lane in enumerate(lanes.tolist()):
            infos[lane].update(
                {
                    "terminal_observation": last[k],
                    "TimeLimit.truncated": bool(cut[lane]),
                    "episode": {"r": returns[k], "l": lengths[k], "t": seconds},
                }
            )
        for lane in np.flatnonzero(over & ~ended).tolist():
            infos[lane].update({"TimeLimit.truncated": False, "left": True})

    def close(self) -> None:
        """Release the batch; closing twice does nothing."""
        self.batch.close()

    # What Stable-Baselines3 asks single environments for -----------------------------------------

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions each lane may take now, bool ``(lanes, n)``, as ``MaskablePPO`` wants them.

        Raises:
            AttributeError: actions are not masked.
        """
        if self._lanes.action_masks is None:
            raise AttributeError(f"action_masks: those of {self.batch.spec.id} are not masked")
        return to_numpy(self._lanes.action_masks)

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """A parameter of the environment, or ``render_mode``, ``spec`` or ``action_masks``, a lane.

        Raises:
            AttributeError: there is no such attribute.
        """
        lanes = list(self._get_indices(indices))
        if attr_name in self._attributes:
            return [self._attributes[attr_name]] * len(lanes)
        if attr_name in self.batch.params:
            value = self.batch.params[attr_name]
            if isinstance(value, np.ndarray):
                return [value[lane // self._lanes.agents] for lane in lanes]
            return [value] * len(lanes)
        if attr_name == "action_masks" and self._lanes.action_masks is not None:
            return [self.action_masks] * len(lanes)
        raise AttributeError(f"{self.batch.spec.id} has no attribute {attr_name!r}")

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Change a parameter everywhere, or in the environments that the lanes belong to.

        Raises:
            KeyError: no parameter of this name that can change.
            TypeError, ValueError: a wrong type, or out of range.
        """
        if indices is None:
            self.batch.set_param(attr_name, value)
            return
        if attr_name not in self.batch.params:
            raise KeyError(f"{self.batch.spec.id} has no parameter {attr_name!r}")
        rows = [lane // self._lanes.agents for lane in self._get_indices(indices)]
        set_param_of(self.batch, attr_name, value, rows)

    def env_method(self, method_name: str, *args: Any, indices: Indices = None) -> Any:
        """``action_masks``, ``render`` or ``set_param``, by lane.

        Returns:
            A list, or, of ``action_masks`` for all lanes, the whole array.

        Raises:
            AttributeError: another method.
        """
        lanes = list(self._get_indices(indices))
        if method_name == "action_masks":
            return self.action_masks() if indices is None else list(self.action_masks()[lanes])
        if method_name == "render":
            return [self.batch.render(lane // self._lanes.agents) for lane in lanes]
        if method_name == "set_param":
            name, value = args
            self.set_attr(name, value, indices)
            return [None] * len(lanes)
        raise AttributeError(
            f"method_name={method_name!r}: expected 'action_masks', 'render' or 'set_param'"
        )

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Whether lanes are wrapped: they are not, but they count episodes as ``Monitor`` does."""
        from stable_baselines3.common.monitor import Monitor

        return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[npt.NDArray[np.uint8]]:
        """Pictures of the first environments, as many as are ``shown``."""
        return [self.batch.render(index) for index in range(self._shown)]


class Acting:
    """Which lanes acted in an environment's last step; bool ``(lanes,)``.

    Stable-Baselines3 saves a model with the arguments of its buffer. What is loaded has no
    environment any more, and says so.
    """

    lanes: npt.NDArray[np.bool_]

    def __getattr__(self, name: str) -> Any:
        if name == "lanes":
            raise ValueError(
                "acting: of no environment that was stepped; give "
                "rollout_buffer_kwargs={'acting': env.acting} to load, too"
            )
        raise AttributeError(name)

    def __reduce__(self) -> tuple[type[Acting], tuple[()]]:
        return Acting, ()


class LivingRolloutBuffer(RolloutBuffer):
    """A rollout buffer that gives out no step of agents that have left.

    ``PPO("MlpPolicy", env, rollout_buffer_class=LivingRolloutBuffer,
    rollout_buffer_kwargs={"acting": env.acting})``

    Args:
        *args: as for Stable-Baselines3's ``RolloutBuffer``.
        acting: of the :class:`SB3VecEnv` that is trained on.
        **kwargs: as for ``RolloutBuffer``.
    """

    def __init__(self, *args: Any, acting: Acting, **kwargs: Any) -> None:
        self._acting = acting
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        """Forget all steps."""
        self._acted = np.zeros((self.buffer_size, self.n_envs), np.bool_)
        super().reset()

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Store the step just taken."""
        self._acted[self.pos] = self._acting.lanes
        super().add(*args, **kwargs)

    def get(self, batch_size: int | None = None) -> Iterator[Any]:
        """Minibatches of the steps that agents took, in random order; one with all by default."""
        assert self.full
        next(super().get(batch_size=1))  # lays all arrays flat
        steps = np.flatnonzero(self.swap_and_flatten(self._acted))
        steps = np.random.permutation(steps)  # by the generator that Stable-Baselines3 seeds
        size = batch_size or len(steps)
        for start in range(0, len(steps), size):
            yield self._get_samples(steps[start : start + size])
