"""The built site in Chromium: what a reader does with it, with a keyboard and on a phone too."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed"
)

OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
PHONE = 360  # CSS pixels, the narrowest phones in use
ENVIRONMENT = "environments/simple_spread_v3.html"
OPENED = (
    "index.html",
    "environments/index.html",
    ENVIRONMENT,
    "performance.html",
    "reference.html",
)
WAIT = 120  # seconds until a page that does nothing counts as broken


# Text whose contrast with what is behind it is under WCAG's AA: 4.5, or 3 where it is large.
PALE = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })
function over(colors) {
  canvas.clearRect(0, 0, 1, 1)
  for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1) }
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3)
}
function luminance(rgb) {
  const [r, g, b] = rgb.map(v => v / 255).map(
    v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}
const found = []
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement, style = getComputedStyle(element)
  const shown = element.checkVisibility({ opacityProperty: true, visibilityProperty: true })
  if (!texts.currentNode.data.trim() || !shown || !element.getClientRects().length) continue
  if (element.closest("svg, script, style, [hidden]")) continue
  const behind = []
  for (let e = element; e; e = e.parentElement) behind.unshift(getComputedStyle(e).backgroundColor)
  const [a, b] = [over(behind), over([...behind, style.color])].map(luminance)
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
  const size = parseFloat(style.fontSize), bold = style.fontWeight >= 700
  if (contrast < (size >= 24 || (bold && size >= 18.66) ? 3 : 4.5))
    found.push(`${element.localName}.${element.className}: ${contrast.toFixed(2)}`)
}
return [...new Set(found)]
"""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    handler = functools.partial(QuietHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium: Any, address: str) -> Iterator[Any]:
    """The browser as a new reader has it: wide, light, nothing stored. No test may leave errors."""
    chromium.get(f"{address}/index.html")
    chromium.execute_script("localStorage.clear(); sessionStorage.clear()")
    wide(chromium, 1280)
    prefer(chromium, "light")
    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    yield chromium
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert {url for url in requested(chromium) if not local(url, address)} == set()


def requested(browser: Any) -> Iterator[str]:
    """What was asked for since the last call."""
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            yield message["params"]["request"]["url"]


def local(url: str, address: str) -> bool:
    return url.startswith((address, "data:", "blob:", "file:", "about:"))


def wide(browser: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def prefer(browser: Any, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def until(browser: Any, condition: Callable[[Any], Any]) -> Any:
    return WebDriverWait(browser, WAIT, poll_frequency=0.05).until(condition)


def press(browser: Any, *keys: str) -> None:
    webdriver.ActionChains(browser).send_keys(*keys).perform()


def active(browser: Any, script: str) -> Any:
    """A property of the element that has the focus."""
    return browser.execute_script(f"return document.activeElement.{script}")


def open_page(browser: Any, address: str, page: str) -> None:
    """Open it, and wait until the theme's script has run."""
    browser.get(f"{address}/{page}")
    until(browser, lambda b: b.execute_script("return document.documentElement.matches('.js')"))


def search(browser: Any, text: str) -> Any:
    """Type into the search; the first result, once it is of that text."""
    press(browser, "/")
    until(browser, lambda b: active(b, "matches('.md-search__input')"))
    press(browser, text)
    link = f"a.md-search-result__link[href*='{text}']"
    return until(browser, lambda b: b.find_elements(By.CSS_SELECTOR, link))[0]


def pages(site: Path) -> list[str]:
    return sorted(p.relative_to(site).as_posix() for p in site.rglob("*.html"))


@pytest.mark.parametrize("page", OPENED)
def test_page_opens_without_errors(browser: Any, address: str, page: str) -> None:
    open_page(browser, address, page)
    assert browser.find_element(By.CSS_SELECTOR, "main h1").is_displayed()


def test_a_request_elsewhere_is_seen(browser: Any, address: str) -> None:
    open_page(browser, address, "index.html")
    browser.execute_script("new Image().src = 'https://example.org/a.png'")
    elsewhere: set[str] = set()

    def seen(b: Any) -> bool:
        elsewhere.update(url for url in requested(b) if not local(url, address))
        return bool(elsewhere)

    until(browser, seen)
    assert elsewhere == {"https://example.org/a.png"}
    until(browser, lambda b: [e for e in b.get_log("browser") if e["level"] == "SEVERE"])


def test_search_finds_an_environment(browser: Any, address: str) -> None:
    open_page(browser, address, "concepts.html")
    search(browser, "simple_spread_v3")
    press(browser, Keys.ENTER)
    until(browser, lambda b: ENVIRONMENT in b.current_url)
    assert browser.find_element(By.CSS_SELECTOR, "main h1").text.startswith("simple_spread_v3")


def test_site_and_search_work_from_the_file_system(browser: Any, site: Path) -> None:
    open_page(browser, site.resolve().as_uri(), "index.html")
    search(browser, "simple_spread_v3").click()
    until(browser, lambda b: ENVIRONMENT in b.current_url)
    assert browser.find_element(By.CSS_SELECTOR, "main h1").text.startswith("simple_spread_v3")


@pytest.mark.parametrize("key", ["/", "s", "f"])
def test_a_key_opens_the_search(browser: Any, address: str, key: str) -> None:
    open_page(browser, address, ENVIRONMENT)
    press(browser, key)
    until(browser, lambda b: active(b, "matches('.md-search__input')"))
    assert active(browser, "value") == ""


def test_copy_button_copies(browser: Any, address: str) -> None:
    open_page(browser, address, ENVIRONMENT)
    code = browser.find_element(By.CSS_SELECTOR, "main pre code")
    button = until(browser, lambda b: b.find_element(By.CSS_SELECTOR, "main pre button"))
    button.click()
    browser.execute_script(
        "const box = document.createElement('textarea'); document.body.append(box); box.focus()"
    )
    browser.switch_to.active_element.send_keys(Keys.CONTROL, "v")
    assert active(browser, "value").strip() == code.text.strip() != ""


def test_no_page_scrolls_sideways_on_a_phone(browser: Any, address: str, site: Path) -> None:
    wide(browser, PHONE)
    widths = {}
    for page in pages(site):
        open_page(browser, address, page)
        widths[page] = browser.execute_script("return document.scrollingElement.scrollWidth")
    assert {page: width for page, width in widths.items() if width > PHONE} == {}


def scheme(browser: Any) -> str:
    return str(browser.execute_script("return document.body.dataset.mdColorScheme"))


def toggle(browser: Any, name: str) -> None:
    browser.find_element(By.CSS_SELECTOR, f"label.md-header__button[title='{name}']").click()


def test_dark_mode_follows_the_system(browser: Any, address: str) -> None:
    open_page(browser, address, "index.html")
    assert scheme(browser) == "default"
    prefer(browser, "dark")
    until(browser, lambda b: scheme(b) == "slate")
    open_page(browser, address, ENVIRONMENT)
    assert scheme(browser) == "slate"


def test_dark_mode_can_be_chosen_and_stays(browser: Any, address: str) -> None:
    open_page(browser, address, "index.html")
    toggle(browser, "Switch to light mode")
    toggle(browser, "Switch to dark mode")
    until(browser, lambda b: scheme(b) == "slate")
    open_page(browser, address, ENVIRONMENT)
    assert scheme(browser) == "slate"


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, 1280])
def test_text_can_be_told_from_what_is_behind_it(
    browser: Any, address: str, width: int, mode: str
) -> None:
    wide(browser, width)
    prefer(browser, mode)
    for page in OPENED:
        open_page(browser, address, page)
        assert browser.execute_script(PALE) == [], page


def test_tab_reaches_the_content(browser: Any, address: str) -> None:
    open_page(browser, address, "index.html")
    press(browser, Keys.TAB)
    assert active(browser, "matches('a.md-skip')")
    press(browser, Keys.ENTER, Keys.TAB)
    assert active(browser, "closest('main article') !== null")


def test_focus_is_visible(browser: Any, address: str) -> None:
    open_page(browser, address, ENVIRONMENT)
    style = "getComputedStyle(document.activeElement)"
    stops = []
    press(browser, Keys.TAB)
    while not active(browser, "matches('body')"):  # where it is after the last stop
        stops.append(active(browser, "outerHTML.slice(0, 200)"))
        assert browser.execute_script(f"return {style}.outlineStyle") != "none", stops[-1]
        press(browser, Keys.TAB)
    assert len(stops) > 20
