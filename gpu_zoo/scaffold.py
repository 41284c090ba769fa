"""``gpu-zoo new``: a small environment of one's own that works, to change from there."""

from __future__ import annotations

import keyword
from pathlib import Path

from gpu_zoo import registry

TEMPLATES = Path(__file__).parent / "templates"
# The templates are an environment of this name and family, so that they can be linted and tested.
NAME, FAMILY = "my_env", "mine"


def write_environment(name: str, family: str = FAMILY, folder: Path | None = None) -> list[Path]:
    """Write spec, kernel, rules in Python, test and page of a new environment.

    Args:
        name: what it is called: its folder, its files and ``family/name_v0``.
        family: the first part of its id.
        folder: where its folder is made; by default the current one.

    Returns:
        The files, in ``folder / name``.

    Raises:
        ValueError: a name that is no identifier, or one that is taken.
        FileExistsError: the folder is there already.
    """
    for what, text in (("name", name), ("family", family)):
        if not text.isidentifier() or not text.isascii() or keyword.iskeyword(text):
            raise ValueError(f"{what}={text!r}: expected a Python identifier, such as my_env")
    if f"{family}/{name}_v0" in registry.list_ids():
        raise ValueError(f"name={name!r}: {family}/{name}_v0 is an environment already")
    target = (folder or Path()) / name
    if target.exists():
        raise FileExistsError(f"{target}: is there already; nothing was written")
    target.mkdir(parents=True)
    written = []
    for template in sorted(path for path in TEMPLATES.iterdir() if path.is_file()):
        text = template.read_text(encoding="utf-8")
        text = text.replace(f"{FAMILY}/", f"{family}/").replace(NAME, name)
        path = target / template.name.replace(NAME, name)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
