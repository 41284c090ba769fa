"""Checks of hyper-parameters, worded alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

Check = tuple[type, str, Callable[[Any], bool]]

COUNT: Check = (int, "an int of at least 1", lambda v: v >= 1)
COUNT_OR_ZERO: Check = (int, "an int of at least 0", lambda v: v >= 0)
SEED: Check = (int, "an int, 0 <= seed < 2**31", lambda v: 0 <= v < 2**31)
ABOVE_ZERO: Check = (float, "a number above 0", lambda v: 0 < v < math.inf)
NOT_NEGATIVE: Check = (float, "a number of at least 0", lambda v: 0 <= v < math.inf)
FINITE: Check = (float, "a finite number", math.isfinite)
SHARE: Check = (float, "a number from 0 to 1", lambda v: 0 <= v <= 1)
PART: Check = (float, "a number above 0 and below 1", lambda v: 0 < v < 1)
TEXTS: Check = (
    dict,
    "a dict of strings to strings",
    lambda v: all(isinstance(text, str) for item in v.items() for text in item),
)
FLAG: Check = (bool, "True or False", lambda v: True)
PATH: Check = (str, "a path", lambda v: v != "")
DEVICE: Check = (str, "'auto', 'cpu', 'cuda' or 'cuda:<index>'", lambda v: v != "")
WIDTHS: Check = (
    tuple,
    "a tuple of ints of at least 1",
    lambda v: all(type(width) is int and width >= 1 for width in v),  # True is an int as well
)


def one_of(words: tuple[str, ...]) -> Check:
    """One of these words."""
    return str, " or ".join(map(repr, words)), lambda v: v in words


def expect(config: Any, names: tuple[str, ...], check: Check, *, optional: bool = False) -> None:
    """Check fields of a configuration; ``optional`` ones may be None.

    Raises:
        ValueError: the value of one of ``names`` is of another type or out of range.
    """
    kind, what, holds = check
    for name in names:
        value = getattr(config, name)
        if optional and value is None:
            continue
        right = isinstance(value, (int, float) if kind is float else kind)
        if not right or (isinstance(value, bool) and kind is not bool) or not holds(value):
            raise ValueError(f"{name}={value!r}: expected {what}{', or None' * optional}")


def plain(value: Any) -> Any:
    """The value with Python's own types for NumPy's, of which files and checkpoints know nothing.

    An array becomes a tuple; tuples, lists and dicts are gone through.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    if isinstance(value, (tuple, list)):
        return type(value)(map(plain, value))
    if isinstance(value, Mapping):
        return {plain(name): plain(own) for name, own in value.items()}
    return value


def make_plain(config: Any) -> None:
    """Give a frozen configuration Python's own types, and a tuple for ``hidden`` where a file had a
    list.
    """
    for field in fields(config):
        value = plain(getattr(config, field.name))
        if field.name == "hidden" and isinstance(value, list):
            value = tuple(value)
        object.__setattr__(config, field.name, value)


def of_every_run(config: Any) -> None:
    """Check the fields that the configurations of all trainers have.

    Raises:
        ValueError: one of them is of another type or out of range.
    """
    make_plain(config)
    sizes = ("total_steps", "num_envs", "horizon", "threads")
    expect(config, (*sizes, "checkpoint_interval", "eval_episodes"), COUNT)
    expect(config, ("num_envs",), (int, "at most 2**30", lambda v: v <= 2**30))
    expect(config, ("threads",), (int, "at most 1024", lambda v: v <= 1024))
    expect(config, ("eval_interval",), COUNT_OR_ZERO)
    expect(config, ("eval_opponents",), TEXTS)
    if config.eval_opponents:
        expect(config, ("eval_interval",), (int, "at least 1, for the eval_opponents", bool))
    expect(config, ("seed",), SEED)
    expect(config, ("hidden",), WIDTHS)
    expect(config, ("progress",), FLAG)
    expect(config, ("device",), DEVICE)
    expect(config, ("checkpoint", "log_dir"), PATH, optional=True)
