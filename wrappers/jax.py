"""JAX's face of a batch: arrays over the kernel's memory, or copied from it once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpu_zoo.errors import InvalidAction, MissingDependency
from gpu_zoo.results import GroupBuffers
from gpu_zoo.vector import VectorEnv
from gpu_zoo.wrappers.incoming import require_batch

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise MissingDependency(
        "gpu_zoo.wrappers.jax: jax is not installed: pip install 'gpu-zoo[jax]'"
    ) from error


class Arrays(NamedTuple):
    """What JAX sees of a group after a step, as :class:`~gpu_zoo.results.GroupBuffers` has it.

    It is a pytree: it goes into a jitted function as it is, and a list of them is stacked by
    ``jax.tree.map(lambda *rows: jnp.stack(rows), *steps)``.

    Attributes:
        observations: float32 ``(num_envs, agents, n)``.
        final_observations: float32, the same shape; in SAME_STEP mode the observations with which
            episodes ended in this step, stale elsewhere.
        rewards: float32 ``(num_envs, agents)``; float64 in reference numerics.
        terminations: bool ``(num_envs, agents)``.
        truncations: bool ``(num_envs, agents)``.
        active: bool ``(num_envs, agents)``: who is in the game, and so acts next.
        action_masks: bool ``(num_envs, agents, n)``, true where an action may be taken next, or
            None if the group's actions are not masked.
    """

    observations: jax.Array
    final_observations: jax.Array
    rewards: jax.Array
    terminations: jax.Array
    truncations: jax.Array
    active: jax.Array
    action_masks: jax.Array | None


class JaxEnv:
    """A batch that gives and takes JAX arrays, a group of agents at a time.

    JAX takes for granted that an array never changes, and may still be reading it when a call has
    returned. The kernel writes into the same memory with every step. So there are two ways:

    ``copy=True``
        A step gives fresh arrays, which one jitted call copies from the kernel's memory, and which
        are complete when ``step`` returns. They may be kept, and read at any time.
    ``copy=False``
        A step gives the kernel's memory itself, always the same arrays. ``step`` waits for the
        actions, and so for the jitted call that made them. Whatever else reads these arrays must
        be complete (``jax.block_until_ready``) before the next ``step`` or ``reset``; what is to be
        kept must be copied before (``jnp.copy``). A function that was traced with one of them as a
        constant, not as an argument, goes on with what was in it then.

    Either way actions are copied once, from JAX's memory into the kernel's.

    Args:
        batch: the environments; made by :func:`gpu_zoo.make_vec`, in any autoreset mode. On CUDA
            with JAX on the same device; the two then wait for each other in every step.
        copy: which of the two.

    Attributes:
        batch: the same.

    Raises:
        TypeError: no batch.
        ValueError: rewards are float64, and JAX is not set to have such numbers.
    """

    def __init__(self, batch: VectorEnv, *, copy: bool = True) -> None:
        require_batch(batch)
        self.batch = batch
        self._views = {name: _views(name, group) for name, group in batch.group.items()}
        self._copy = _copied if copy else None

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> dict[str, Arrays]:
        """Start a new episode in every environment, or in those of ``options["reset_mask"]``.

        Args:
            seed: environment i is seeded with ``seed + i``, or with ``seed[i]``; None goes on.
            options: ``{"reset_mask": bool array (num_envs,)}``.

        Returns:
            Each group's arrays by its name. Where an episode starts, rewards and flags are 0.

        Raises:
            InvalidSeed, ValueError, ResetNeeded: as for :meth:`gpu_zoo.vector.VectorEnv.reset`.
        """
        self.batch.reset(seed=seed, options=options)
        return self._results()

    def step(self, actions: Mapping[str, jax.Array]) -> dict[str, Arrays]:
        """Advance every environment by one step.

        Args:
            actions: group to int32 ``(num_envs, agents)`` or ``(num_envs, agents, components)``, or
                float32 ``(num_envs, agents, size)``, on the batch's device.

        Returns:
            Each group's arrays by its name.

        Raises:
            ResetNeeded: no reset yet, or a finished environment in DISABLED mode.
            InvalidAction: an action of the wrong shape, dtype or value; nothing moved.
        """
        if not isinstance(actions, Mapping):
            raise InvalidAction(f"actions: {type(actions).__name__}, expected a dict by group")
        if actions.keys() != self._views.keys():
            raise InvalidAction(f"actions: {list(actions)}, expected {list(self._views)}")
        for name, group in self.batch.group.items():
            _check(name, actions[name], group.actions)
        jax.block_until_ready(list(actions.values()))  # and with them whatever the same call reads
        for name, group in self.batch.group.items():
            group.actions[...] = _as_array_of(group.actions, actions[name])
        self.batch.step()
        return self._results()

    def _results(self) -> dict[str, Arrays]:
        self.batch.engine.backend.wait()  # on CUDA, JAX works on a stream of its own
        if self._copy is None:
            return dict(self._views)
        results: dict[str, Arrays] = jax.block_until_ready(self._copy(self._views))
        return results


@jax.jit  # type: ignore[untyped-decorator, unused-ignore]
def _copied(views: dict[str, Arrays]) -> Any:
    return jax.tree.map(jnp.copy, views)


def _views(name: str, group: GroupBuffers) -> Arrays:
    """A group's arrays, over the same memory."""
    parts = {field: _view(f"{name}: {field}", getattr(group, field)) for field in Arrays._fields}
    return Arrays(**parts)


def _view(where: str, array: Any) -> Any:
    if array is None:
        return None
    dtype = str(array.dtype).removeprefix("torch.")
    if dtype == "float64" and not jax.config.jax_enable_x64:
        raise ValueError(
            f"{where} are float64, expected numerics='fast', or "
            "jax.config.update('jax_enable_x64', True)"
        )
    return jax.dlpack.from_dlpack(array, copy=False)


def _check(name: str, actions: jax.Array, buffer: Any) -> None:
    wanted = str(buffer.dtype).removeprefix("torch.")
    if not isinstance(actions, jax.Array):
        raise InvalidAction(f"actions[{name!r}]: {type(actions).__name__}, expected a jax.Array")
    if actions.shape != tuple(buffer.shape) or actions.dtype != wanted:
        raise InvalidAction(
            f"actions[{name!r}]: {actions.dtype} {actions.shape}, "
            f"expected {wanted} {tuple(buffer.shape)}"
        )


def _as_array_of(like: Any, array: jax.Array) -> Any:
    """A JAX array as NumPy's, CuPy's or torch's, as ``like`` is, over the same memory."""
    library = sys.modules[type(like).__module__.partition(".")[0]]
    return library.from_dlpack(array)
