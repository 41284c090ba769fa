"""Action masks from outside, and random play among what they allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor


def checked_mask(
    name: str, given: Any, lanes: tuple[int, ...], counts: tuple[int, ...]
) -> npt.NDArray[np.bool_]:
    """A mask as networks take it, bool ``(*lanes, sum(counts))``, true where allowed.

    Args:
        name: of the argument, for messages.
        given: array of bools or of integers 0 and 1, or a tuple of one for each component.
        lanes: (), or the size of a batch.
        counts: values of each component of the action.

    Raises:
        ValueError: a wrong shape or value, or a component of which nothing is allowed.
    """
    parts = given if isinstance(given, tuple) else (given,)
    try:
        mask = np.concatenate([np.asarray(part) for part in parts], -1)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    wanted = (*lanes, sum(counts))
    if mask.shape != wanted or mask.dtype.kind not in "biu":
        raise ValueError(f"{name}: {mask.dtype} {mask.shape}, expected bool or int8 {wanted}")
    wrong = mask[~np.isin(mask, (0, 1))]
    if wrong.size:
        raise ValueError(f"{name}: {wrong[0]} in it, expected 0 and 1 only")
    for k, part in enumerate(np.split(mask, np.cumsum(counts)[:-1], -1)):
        if not part.any(-1).all():
            raise ValueError(f"{name}: no action of component {k} is allowed, expected one")
    return mask.astype(np.bool_)


def draw_allowed(
    space: spaces.Space[Any], masks: Tensor, into: Tensor, generator: torch.Generator
) -> None:
    """Write actions drawn uniformly among those allowed, each component for itself.

    Args:
        space: Discrete or MultiDiscrete.
        masks: bool ``(..., n)``, the components side by side.
        into: integers ``(...)`` or ``(..., components)``.
        generator: draws them.
    """
    # The largest of as many equal draws is any of them with the same probability.
    draws = torch.rand(masks.shape, generator=generator, device=masks.device)
    draws = draws.masked_fill(~masks, -1.0)
    if isinstance(space, spaces.MultiDiscrete):
        parts = torch.split(draws, space.nvec.tolist(), -1)
        into.copy_(torch.stack([part.argmax(-1) for part in parts], -1))
    else:
        into.copy_(draws.argmax(-1))
