"""The site as plain text for language models, in the form of https://llmstxt.org.

python docs/_scripts/llms.py               write docs/llms.txt: each page, a line about it
python docs/_scripts/llms.py --check       exit 1 if docs/llms.txt is not up to date
python docs/_scripts/llms.py --site DIR    write into the built site each page's Markdown beside its
                                           HTML, and llms-full.txt: all pages in one file

The links in llms.txt lead to the pages' Markdown, in the repository and in the built site. The
texts are written at build time alone: they repeat what the pages and the docstrings say.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "llms.txt"
FULL = "llms-full.txt"
COMMENT = re.compile(r"^ *<!--.*?-->\n?", re.DOTALL | re.MULTILINE)
DIRECTIVE = re.compile(r"^::: ([\w.]+)\n((?: {4}.*\n)*)", re.MULTILINE)
DRAWING = re.compile(r'<svg[^>]*aria-label="([^"]*)".*?</svg>', re.DOTALL)
STILL = re.compile(
    r"!\[[^\]]*\]\([^)]*\)\{ \.still[^}]*\}"
)  # the picture before it, without motion
LOOKS = re.compile(r"(?<=\))\{ [.#][^}]*\}|^</?(?:div|figure)[^>]*>\n", re.MULTILINE)
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
PROSE = re.compile(r"[A-Z\[`]|\*\*")  # how it begins; a small letter goes on from a block of code
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
SENTENCE = re.compile(r".+?[.:!?](?= [A-Z`\[]|$)")


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name Python objects that are of no interest here."""


Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def config() -> dict[str, Any]:
    """mkdocs.yml."""
    loaded: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    return loaded


def sections(
    entries: list[Any], title: str = "Pages"
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A title and its pages, each with its own title or "", for every list in the navigation."""
    pages, below = [], []
    for entry in entries:
        name, value = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        if isinstance(value, list):
            below.append((name, value))
        else:
            pages.append((name, value))
    if pages:
        yield title, pages
    for name, value in below:
        yield from sections(value, name if title == "Pages" else f"{title}: {name}")


def heading(text: str) -> str:
    """A page's title."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def summary(text: str) -> str:
    """The first sentence of a page's prose, without its links."""
    for paragraph in re.split(r"\n{2,}", CODE.sub("", COMMENT.sub("", text))):
        if PROSE.match(paragraph):
            line = LINK.sub(r"\1", " ".join(paragraph.split()))
            found = SENTENCE.match(line)
            return found[0] if found else line
    return ""


def index() -> str:
    """llms.txt."""
    site = config()
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}"]
    for title, pages in sections(site["nav"]):
        lines += ["", f"## {title}", ""]
        for name, page in pages:
            text = (DOCS / page).read_text()
            about = summary(text)
            lines.append(f"- [{name or heading(text)}]({page})" + (f": {about}" if about else ""))
    lines += ["", "## Optional", "", f"- [All pages in one file]({FULL})"]
    return "\n".join(lines) + "\n"


def resolved(text: str) -> str:
    """A page with snippets and docstrings in place, and its drawings in words."""
    import markdown
    from api_text import api_text

    snippets = next(e for e in config()["markdown_extensions"] if "pymdownx.snippets" in e)
    reader = markdown.Markdown(extensions=list(snippets), extension_configs=snippets)
    lines = FRONT_MATTER.sub("", text).splitlines()
    text = "\n".join(reader.preprocessors["snippet"].run(lines)) + "\n"
    text = LOOKS.sub("", STILL.sub("", DRAWING.sub(r"Drawing: \1", COMMENT.sub("", text))))
    return DIRECTIVE.sub(lambda found: api_text(found[1], yaml.safe_load(found[2] or "{}")), text)


def export(site: Path) -> None:
    """Write the pages' texts into the built site."""
    site = site.resolve()
    os.chdir(ROOT)  # snippets are looked for from here, as mkdocs does
    full = []
    for _, pages in sections(config()["nav"]):
        for _, page in pages:
            text = resolved((DOCS / page).read_text()).strip() + "\n"
            (site / page).parent.mkdir(parents=True, exist_ok=True)
            (site / page).write_text(text)
            full.append(f"File: {page}\n\n{text}")
    (site / FULL).write_text("\n\n---\n\n".join(full))


def main() -> int:
    """Write the index or the texts, or with ``--check`` say whether the index is out of date."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--site", type=Path, metavar="DIR")
    args = parser.parse_args()
    if args.site:
        export(args.site)
        return 0
    stale = not INDEX.is_file() or INDEX.read_text() != index()
    if args.check:
        if stale:
            print("out of date: docs/llms.txt; run docs/_scripts/llms.py")
        return int(stale)
    if stale:
        INDEX.write_text(index())
        print("wrote docs/llms.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
