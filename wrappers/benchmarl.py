"""BenchMARL's face of the environments: a task each, which its experiments train on batched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gpu_zoo.errors import MissingDependency
from gpu_zoo.prelude import Program
from gpu_zoo.registry import list_ids, spec
from gpu_zoo.spec import EnvSpec
from gpu_zoo.wrappers.torchrl import TorchRLEnv

try:
    import torch
    from benchmarl.environments import Task, TaskClass
except ImportError as error:
    raise MissingDependency(
        "gpu_zoo.wrappers.benchmarl: benchmarl is not installed: pip install 'gpu-zoo[benchmarl]'"
    ) from error


class GpuZooClass(TaskClass):
    """What BenchMARL asks of a task. ``GpuZooTask.SIMPLE_SPREAD_V3.get_task({})`` makes it.

    An experiment's ``n_envs_per_worker`` and ``sampling_device`` are the batch's ``num_envs`` and
    ``device``. The environment is there with one axis for its copies, so BenchMARL does not wrap
    it, and steps all of them with one kernel.

    Args:
        name: an environment's name, in any case, without its family: ``"SIMPLE_SPREAD_V3"``.
        config: what :class:`~gpu_zoo.wrappers.torchrl.TorchRLEnv` takes: the environment's own
            parameters, ``numerics`` and so on. ``continuous_actions`` in it rules out the other
            kind; else the algorithm and ``prefer_continuous_actions`` decide.

    Raises:
        KeyError: no such environment.
        TypeError: an unknown parameter, or one of the wrong type.
        ValueError: a value out of range, or an environment whose agents leave one by one:
            BenchMARL would train on what agents do that have left.
    """

    def __init__(self, name: str, config: dict[str, Any] | None) -> None:
        super().__init__(name, config)
        if self._spec.leaving:
            raise ValueError(
                f"name={name!r}: its agents leave one by one, expected all to stay until the end, "
                "as BenchMARL trains on those that have left too"
            )
        self._params()  # or a wrong one would be noticed only by the experiment

    @property
    def _spec(self) -> EnvSpec:
        return spec(self.name.lower())  # not kept: BenchMARL pickles the task

    def _params(self) -> dict[str, Any]:
        own = {key: value for key, value in self.config.items() if key in self._spec.params}
        return dict(self._spec.resolve(own))

    def get_env_fun(
        self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any
    ) -> Callable[[], TorchRLEnv]:
        """A function that makes the environments; with the global state."""
        config = dict(self.config)
        if "continuous_actions" in self._spec.params:
            config["continuous_actions"] = continuous_actions
        return partial(
            TorchRLEnv,
            self._spec.id,
            num_envs,
            device=str(device),
            seed=seed,
            return_state=True,
            **config,
        )

    def supports_continuous_actions(self) -> bool:
        """Whether every agent's action can be a box."""
        return any(all(group.actions.box for group in groups) for groups in self._choices())

    def supports_discrete_actions(self) -> bool:
        """Whether every agent's action can be one integer."""
        return any(
            all(group.actions.components == 0 for group in groups) for groups in self._choices()
        )

    def _choices(self) -> list[Any]:
        """The groups with each kind of actions that this task may be given."""
        kinds: list[dict[str, Any]] = [{}]
        if "continuous_actions" in self._spec.params and "continuous_actions" not in self.config:
            kinds = [{"continuous_actions": kind} for kind in (False, True)]
        return [Program(self._spec, {**self._params(), **kind}).groups for kind in kinds]

    def max_steps(self, env: Any) -> int:
        """The time limit."""
        return int(env.batch.params[self._spec.time_limit])

    def has_render(self, env: Any) -> bool:
        """Whether there is a picture of it."""
        return self._spec.render is not None

    @staticmethod
    def render_callback(experiment: Any, env: Any, data: Any) -> torch.Tensor:
        """A picture of the first environment: uint8 ``(height, width, 3)``."""
        return torch.as_tensor(env.batch.render(0))

    def group_map(self, env: Any) -> dict[str, list[str]]:
        """Group to the names of its agents."""
        groups: dict[str, list[str]] = env.group_map
        return groups

    def observation_spec(self, env: Any) -> Any:
        """Of one environment: ``(group, "observation")``."""
        return self._only(env, "observation")

    def action_mask_spec(self, env: Any) -> Any:
        """Of one environment: ``(group, "action_mask")`` where masked, or None."""
        return self._only(env, "action_mask")

    def state_spec(self, env: Any) -> Any:
        """Of one environment: ``"state"``."""
        observations = env.full_observation_spec_unbatched.clone()
        for group in self.group_map(env):
            del observations[group]
        return observations

    def info_spec(self, env: Any) -> None:
        """There is none."""

    def action_spec(self, env: Any) -> Any:
        """Of one environment: ``(group, "action")``."""
        return env.full_action_spec_unbatched

    def _only(self, env: Any, wanted: str) -> Any:
        observations = env.full_observation_spec_unbatched.clone()
        del observations["state"]
        for group in self.group_map(env):
            for key in list(observations[group].keys()):
                if key != wanted:
                    del observations[group, key]
            if observations[group].is_empty():
                del observations[group]
        return None if observations.is_empty() else observations

    @staticmethod
    def env_name() -> str:
        """What BenchMARL calls all of these together."""
        return "gpu_zoo"


class _Tasks(Task):
    @staticmethod
    def associated_class() -> type[GpuZooClass]:
        return GpuZooClass


# One of each environment that comes with gpu_zoo and that BenchMARL can train on.
GpuZooTask = _Tasks(
    "GpuZooTask",
    {spec(env_id).name.upper(): None for env_id in list_ids() if not spec(env_id).leaving},
    module=__name__,
)
