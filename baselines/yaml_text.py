"""YAML as people mean it: ``1e-3`` is a number, and a key said twice is a mistake."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

from gpu_zoo.errors import MissingDependency

# PyYAML follows YAML 1.1, where an exponent needs a dot before it and a sign; 1.2 has it as here.
FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$")


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingDependency(
            "configuration files need PyYAML: pip install 'gpu-zoo[train]'"
        ) from None
    return yaml


def load(text: str) -> Any:
    """What a YAML document holds: dicts, lists, strings, numbers, booleans and None.

    Raises:
        ValueError: no YAML, or a key that a mapping has twice; the message is one line.
        MissingDependency: PyYAML is not installed.
    """
    yaml = _yaml()

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            keys = [key.value for key, _ in node.value]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                raise ValueError(f"{twice}: expected once, found {keys.count(twice)} times")
            return dict(super().construct_mapping(node, deep))

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise ValueError(f"{where}{getattr(error, 'problem', None) or 'not YAML'}") from None


def dump(content: dict[str, Any]) -> str:
    """``content`` as YAML, keys in their order; numbers are read back to the last bit."""
    text: str = _yaml().safe_dump(
        content, sort_keys=False, default_flow_style=None, allow_unicode=True
    )
    return text
