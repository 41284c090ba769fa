"""What the reference shows of an object, as Markdown: signature, docstring and members."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")


def api_text(path: str, settings: dict[str, Any]) -> str:
    """The Markdown for one ``::: path`` directive with its indented settings."""
    members = settings.get("options", {}).get("members")
    obj = griffe.load(path, resolve_aliases=True, allow_inspection=False)
    return "\n".join(entry(obj, path, 3, members))


def entry(obj: Any, name: str, level: int, members: list[str] | None = None) -> Iterator[str]:
    """One object and, in the order of the source, its documented public members."""
    shown = obj.signature(return_type=obj.is_function, name=name) if callable_(obj) else name
    yield f"{'#' * level} `{shown}`\n"
    if obj.docstring:
        yield ROLE.sub(r"`\1`", obj.docstring.value) + "\n"
    if obj.is_module or obj.is_class:
        own = [m for m in obj.members.values() if not m.is_alias and wanted(m, members)]
        for member in sorted(own, key=lambda m: m.lineno or 0):
            yield from entry(member, member.name, level + 1)


def callable_(obj: Any) -> bool:
    """Whether it has a signature to show."""
    return bool(obj.is_function or (obj.is_class and "__init__" in obj.all_members))


def wanted(member: Any, members: list[str] | None) -> bool:
    """Whether it is asked for; without a list of names, whether it is public and documented."""
    if members is not None:
        return member.name in members
    return bool(member.docstring) and not member.name.startswith("_")
