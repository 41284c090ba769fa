"""The built site reads offline, its links and anchors resolve, its pages can be read aloud."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

# What a browser fetches by itself. A link that somebody has to click may go anywhere.
LOADED = {
    "script": ("src",), "img": ("src", "srcset"), "source": ("src", "srcset"),
    "video": ("src", "poster"), "audio": ("src",), "track": ("src",), "iframe": ("src",),
    "embed": ("src",), "object": ("data",), "input": ("src",), "use": ("href", "xlink:href"),
    "image": ("href", "xlink:href"), "feimage": ("href", "xlink:href"),
}  # fmt: skip
NOT_LOADED = {"canonical", "prev", "next", "alternate", "license", "author"}  # <link rel="...">
ELSEWHERE = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
CSS_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", re.IGNORECASE)
JS_URL = re.compile(r"""["'`]((?:https?:|wss?:)?//[\w-]+\.[^"'`\s]*)""", re.IGNORECASE)

# Addresses in the theme's scripts, and why no page of ours makes a browser ask for them.
UNUSED = {
    "http://www.w3.org/": "names of XML namespaces",
    "https://www.w3.org/": "names of XML namespaces",
    "https://unpkg.com/mermaid@": "only for an element of class mermaid",
    "https://unpkg.com/resize-observer-polyfill": "only where a browser has no ResizeObserver",
    "https://api.github.com/": "only with repo_url, for an element of component source",
    "https://bit.ly/": "in the text of a warning",
}
CAUSES = ('class="mermaid"', 'data-md-component="source"')


@dataclass
class Page(HTMLParser):
    """What one HTML or SVG file loads, links to and names."""

    text: str
    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    headings: list[int] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    css: str = ""
    js: str = ""
    inside: str = ""
    in_article: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)
        self.loads += urls(CSS_URL, self.css)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.inside = tag if tag in ("style", "script") else ""
        self.css += f"\n{values.get('style', '')}"
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        for name in LOADED.get(tag, ()):
            if name in values:
                cut = values[name].split(",") if name == "srcset" else [values[name]]
                self.loads += [entry.split()[0] for entry in cut if entry.strip()]
        if tag == "link" and not set(values.get("rel", "").split()) & NOT_LOADED:
            self.loads.append(values["href"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "img" and not values.get("alt", "").strip():
            self.unnamed.append(values.get("src", ""))
        if tag == "svg" and self.in_article and not {"aria-label", "aria-hidden"} & set(values):
            self.unnamed.append(f"a drawing in line {self.getpos()[0]}")
        self.in_article |= tag == "article"
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""
        self.in_article &= tag != "article"

    def handle_data(self, data: str) -> None:
        self.css += data * (self.inside == "style")
        self.js += f"\n{data}" * (self.inside == "script")


def urls(pattern: re.Pattern[str], text: str) -> list[str]:
    """The first group of each match that is not empty."""
    return ["".join(match.groups(default="")) for match in pattern.finditer(text)]


@cache
def parsed(path: Path) -> Page:
    return Page(path.read_text())


def files(site: Path, *suffixes: str) -> Iterator[tuple[str, Path]]:
    """Files of these kinds as (name in the site, path)."""
    for path in sorted(site.rglob("*")):
        if path.suffix in suffixes:
            yield path.relative_to(site).as_posix(), path


def target(site: Path, page: Path, url: str) -> Path:
    """The file that a relative address on a page leads to."""
    where = unquote(urlsplit(url).path)
    path = site / where.lstrip("/") if where.startswith("/") else page.parent / where
    path = page if not where else path.resolve()
    return path / "index.html" if path.is_dir() else path


def from_elsewhere(site: Path) -> Iterator[str]:
    for name, path in files(site, ".html", ".svg"):
        yield from (f"{name}: {url}" for url in parsed(path).loads if ELSEWHERE.match(url))
        yield from (f"{name}: {url}" for url in scripts_urls(parsed(path).js))
    for name, path in files(site, ".css"):
        found = urls(CSS_URL, path.read_text())
        yield from (f"{name}: {url}" for url in found if ELSEWHERE.match(url))
    for name, path in files(site, ".js"):
        yield from (f"{name}: {url}" for url in scripts_urls(path.read_text()))


def scripts_urls(text: str) -> list[str]:
    return [url for url in urls(JS_URL, text) if not url.startswith(tuple(UNUSED))]


def test_nothing_is_loaded_from_another_site(site: Path) -> None:
    assert list(files(site, ".html")), "no page was built"
    assert list(from_elsewhere(site)) == []


def test_what_would_make_the_theme_load_from_elsewhere_is_on_no_page(site: Path) -> None:
    found = [
        f"{n}: {c}" for n, path in files(site, ".html") for c in CAUSES if c in path.read_text()
    ]
    assert found == []


def test_what_pages_load_is_there(site: Path) -> None:
    for name, path in files(site, ".html"):
        for url in parsed(path).loads:
            if not url.startswith("data:"):
                assert target(site, path, url).is_file(), f"{name}: {url}"


def test_links_and_anchors_resolve(site: Path) -> None:
    broken = []
    for name, path in files(site, ".html"):
        for url in parsed(path).links:
            if urlsplit(url).scheme:
                continue
            to, anchor = target(site, path, url), unquote(urlsplit(url).fragment)
            if not to.is_file():
                broken.append(f"{name}: {url}")
            elif anchor and to.suffix == ".html" and anchor not in parsed(to).anchors:
                broken.append(f"{name}: {url}: no such anchor")
    assert broken == []


def test_pictures_have_alt_text(site: Path) -> None:
    assert {n: parsed(p).unnamed for n, p in files(site, ".html") if parsed(p).unnamed} == {}


def test_headings_are_in_order(site: Path) -> None:
    wrong = {}
    for name, path in files(site, ".html"):
        levels = parsed(path).headings
        skips = any(b > a + 1 for a, b in pairwise(levels))
        if levels[:1] != [1] or levels.count(1) != 1 or skips:
            wrong[name] = levels
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<img src="https://example.org/a.png" alt="a">'),
        ("a.html", '<img srcset="a.png 1x, //example.org/b.png 2x" alt="a">'),
        ("a.html", '<link rel="preconnect" href="https://example.org">'),
        ("a.html", "<script>fetch('https://example.org/x.json')</script>"),
        ("a.html", "<p style='background: url(https://example.org/a.png)'>"),
        ("a.html", "<style>@import 'https://example.org/a.css'</style>"),
        ("a.svg", '<svg><image xlink:href="https://example.org/a.png"/></svg>'),
        ("a.css", "@font-face { src: url('//example.org/a.woff2') }"),
        ("a.css", '@import "https://example.org/a.css";'),
        ("a.js", "import(`https://example.org/a.js`)"),
    ],
)
def test_the_scan_finds(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert len(list(from_elsewhere(tmp_path))) == 1


def test_the_scan_leaves_links_alone(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link rel="canonical" href="https://example.org"><a href="https://example.org">a</a>'
    )
    assert list(from_elsewhere(tmp_path)) == []
