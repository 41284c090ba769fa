"""Docstrings refer to objects as Sphinx does, :class:`VectorEnv`; on the site these become links.

An extension of griffe, which reads the docstrings for mkdocstrings.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?\s*([\w.\s]+?)`")


class Roles(griffe.Extension):
    """Replaces each role by a link to the object's entry, or by its name where it has none."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring:
            obj.docstring.value = ROLE.sub(lambda role: link(obj, role[1]), obj.docstring.value)


def link(obj: griffe.Object, name: str) -> str:
    """HTML that the autorefs plugin resolves once all pages are known."""
    name = re.sub(r"\s", "", name)  # a long one may be broken at a line's end
    try:
        path = obj.resolve(name)
    except griffe.NameResolutionError:
        path = name
    return f'<autoref identifier="{path}" optional><code>{name.split(".")[-1]}</code></autoref>'
