"""The errors that gpu_zoo raises on its own account; the rest are built-in or Gymnasium's."""

from __future__ import annotations

import gymnasium.error


class InvalidAction(ValueError, AssertionError):
    """An action of the wrong shape, dtype, device or value. Nothing was stepped.

    Also an AssertionError, which is what PettingZoo's wrappers raise for such an action.
    """


class InvalidSeed(ValueError, gymnasium.error.Error):
    """A seed that is no integer, or out of range."""


class MissingDependency(ImportError):
    """An optional package, a compiler or CUDA is not there; the message says how to install it."""


ResetNeeded = gymnasium.error.ResetNeeded
ClosedEnvironmentError = gymnasium.error.ClosedEnvironmentError
