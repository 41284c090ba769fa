"""What ``gpu-zoo``'s commands take: the kinds of options, and environment parameters as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import tyro

from gpu_zoo.spec import EnvSpec, Param, Value

EnvId = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")]
OptionalEnvId = Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="ID")]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
Params = Annotated[
    list[str], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE", name="param")
]
Names = Annotated[list[str], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")]
RulesClass = Annotated[str | None, tyro.conf.arg(metavar="FILE.PY:CLASS")]
File = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
Runs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Project = Annotated[str | None, tyro.conf.arg(metavar="PROJECT")]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class UserError(Exception):
    """A mistake in what the user typed; the message is one line."""


def find_spec(text: str) -> EnvSpec:
    """The environment that the user means: an id, a file or a folder of one's own.

    Raises:
        UserError: a file or folder that holds no environment.
        UnknownEnvironment: neither an id nor a file.
    """
    from gpu_zoo.authoring import find

    with user_errors():
        return find(text)


def parse_params(entry: EnvSpec, given: Sequence[str]) -> dict[str, Value]:
    """``["N=5"]`` as ``{"N": 5}``, checked by the spec.

    Raises:
        UserError: no such parameter, or a value that it does not accept.
    """
    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--param {text}: expected NAME=VALUE, such as --param N=5")
        param = entry.params.get(name)
        values[name] = value if param is None else _parse(param, value)
    with user_errors():
        entry.resolve(values)
    return values


@contextmanager
def user_errors(prefix: str = "") -> Iterator[None]:
    """Around the checks of what the user typed: their errors are the user's, others are ours."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise UserError(f"{prefix}{error}") from None


def _parse(param: Param, text: str) -> Any:
    """The text as the parameter's type, or as it is: the spec's check words the error."""
    if param.choices is not None:
        return next((choice for choice in param.choices if str(choice) == text), text)
    if param.optional and text.lower() == "none":
        return None
    try:
        if param.type is tuple:
            return tuple(float(number) for number in text.strip("()").split(","))
        return WORDS[text.lower()] if param.type is bool else param.type(text)
    except (KeyError, ValueError):
        return text
