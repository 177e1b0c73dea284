"""The HTML report in a real Chromium: hostile text does not run, and 2,000 samples stay fast."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from lhkit.base.locales import load_catalog
from lhkit.harness.records.record import Verdict
from lhkit.harness.report.page import html_page
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from tests.harness.report.runs import FULL_RUN, HOSTILE_RUN, full_record, run_of

pytestmark = pytest.mark.browser

CONTRAST = """
() => {
  const channel = (value) => {
    const c = value / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const solid = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.unshift(getComputedStyle(at).backgroundColor);
    }
    for (const layer of layers) { paint.fillStyle = layer; paint.fillRect(0, 0, 1, 1); }
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const ink = (element) => {
    paint.fillStyle = getComputedStyle(element).color;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const faint = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!words || !element.checkVisibility() || element.matches("option, script, noscript")) {
      continue;
    }
    const [a, b] = [light(solid(element)), light(ink(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.add(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return [...faint];
}
"""


def write(folder: Path, run: Run, **options: Any) -> str:
    """Write a run's report, and return its address."""
    file = folder / "report.html"
    html = html_page(run, load_catalog("ko"), name="gemma", **options)
    file.write_text(html, encoding="utf-8")
    return file.as_uri()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a report with all parts."""
    folder = tmp_path_factory.mktemp("full")
    return write(folder, FULL_RUN, comparison=compare(FULL_RUN, FULL_RUN))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a report of two samples and one flip, all their texts hostile."""
    first = HOSTILE_RUN.records[0].sample_id
    before = Run(records=(full_record(first.scenario, verdict=Verdict.PASS),))
    folder = tmp_path_factory.mktemp("hostile")
    return write(folder, HOSTILE_RUN, comparison=compare(before, HOSTILE_RUN))


def listen(page: Page) -> list[str]:
    """Return a list to which the page's console adds what it says."""
    console: list[str] = []
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("dialog", lambda dialog: dialog.dismiss())
    return console


@pytest.fixture(scope="module")
def kept_page(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    page = browser.new_page()
    yield page, listen(page)
    page.close()


@pytest.fixture
def console(kept_page: tuple[Page, list[str]]) -> list[str]:
    """Return what the console of `page` says."""
    return kept_page[1]


@pytest.fixture
def page(kept_page: tuple[Page, list[str]]) -> Page:
    """Return an empty page, the same in all tests."""
    page, console = kept_page
    page.goto("about:blank")
    page.set_viewport_size({"width": 1280, "height": 720})
    page.emulate_media(color_scheme="light")
    console.clear()
    return page


def open_all(page: Page) -> int:
    """Open every sample; return how many transcripts are there."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.wait_for_function("!document.querySelector('details > noscript')")
    return page.locator(".lhr-trace").count()


def test_page_runs_no_hostile_text_without_the_policy(browser: Browser, hostile: str) -> None:
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    console = listen(page)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(hostile)
    assert open_all(page) == 4  # two samples, and both sides of one flip
    page.mouse.move(300, 300)
    page.keyboard.press("Tab")
    for box in page.locator("#filters input, #filters select").all():
        box.focus()
    assert page.evaluate("window.pwned") is None
    assert page.locator("[onerror], [onload], [onmouseover], [onfocus]").count() == 0
    assert page.locator("body script").count() == 1
    assert "<img src=x onerror=" in page.locator("#samples .lhr-raw").first.inner_text()
    assert [each for each in requests if not each.startswith(("data:", hostile))] == []
    assert console == []
    context.close()


def test_page_policy_blocks_inline_handlers(page: Page, console: list[str], full: str) -> None:
    page.goto(full)
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned=1\">')"
    )
    page.wait_for_function("document.querySelector('img[src=x]').complete")
    assert page.evaluate("window.pwned") is None
    assert any("Content Security Policy" in line for line in console)


def test_page_filters_by_verdict_criterion_tag_and_text(
    page: Page, console: list[str], full: str
) -> None:
    page.goto(full)
    rows = page.locator("#samples > details:visible")
    shown = page.locator("#shown")
    assert (rows.count(), shown.inner_text()) == (3, "3 / 3")
    page.select_option("select[name=verdict]", "fail")
    assert (rows.count(), shown.inner_text()) == (1, "1 / 3")
    page.select_option("select[name=verdict]", "")
    page.select_option("select[name=ac]", "AC-10")
    assert rows.get_attribute("id") == "s-invalid-ko-01-0"
    page.select_option("select[name=ac]", "")
    page.select_option("select[name=tag]", "chain")
    assert rows.count() == 3
    for words, count in (("우유 사기라고", 3), ('"name": "ADD', 3), ("모델 메시지", 0), ("</b>", 0),
                         ("lhr-text", 0), ("fail-ko", 1)):  # fmt: skip
        page.fill("input[name=words]", words)
        assert rows.count() == count, words
    assert console == []


def test_page_filters_samples_without_a_criterion(
    page: Page, console: list[str], tmp_path: Path
) -> None:
    run = run_of(full_record("one", ac=None), full_record("two", ac="AC-1"))
    page.goto(write(tmp_path, run))
    rows = page.locator("#samples > details:visible")
    page.select_option("select[name=ac]", " ")
    assert rows.get_attribute("id") == "s-one-0"
    page.select_option("select[name=ac]", "")
    assert rows.count() == 2
    page.goto(write(tmp_path, run_of(full_record("one", ac=None))))
    page.fill("input[name=words]", "one")  # the other filters work without that of the criterion
    assert page.locator("#samples > details:visible").count() == 1
    page.fill("input[name=words]", "nowhere")
    assert page.locator("#samples > details:visible").count() == 0
    assert console == []


def test_page_opens_a_sample_by_keyboard_and_by_fragment(page: Page, full: str) -> None:
    page.goto(full)
    assert page.locator(".lhr-trace").count() == 0
    page.locator("#s-fail-ko-01-0 > summary").focus()
    page.keyboard.press("Enter")
    page.locator("#s-fail-ko-01-0 .lhr-diff").wait_for()
    page.goto("about:blank")
    page.goto(f"{full}#s-invalid-ko-01-0")
    page.locator("#s-invalid-ko-01-0 .lhr-turn").wait_for()


def test_page_without_scripts_shows_transcripts(browser: Browser, full: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(full)
    assert not page.locator("#filters").is_visible()
    page.locator("#s-fail-ko-01-0 > summary").click()
    assert page.locator("#s-fail-ko-01-0 .lhr-diff").is_visible()
    context.close()


def test_page_text_has_contrast(page: Page, full: str) -> None:
    page.goto(full)
    open_all(page)
    for scheme, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 28)")):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(CONTRAST) == [], scheme
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour


def test_page_on_a_narrow_screen_does_not_scroll_sideways(
    page: Page, full: str, hostile: str
) -> None:
    page.set_viewport_size({"width": 380, "height": 800})
    for address in (full, hostile):
        page.goto(address)
        open_all(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 380


@pytest.mark.parametrize("samples", [50, pytest.param(2_000, marks=pytest.mark.nightly)])
def test_page_filters_many_samples(samples: int, page: Page, tmp_path: Path) -> None:
    run = run_of(*(full_record(f"s-{n}", ac=f"AC-{n % 12}") for n in range(samples)))
    page.goto(write(tmp_path, run, is_whole=True))
    assert page.locator("#shown").inner_text() == f"{samples} / {samples}"
    elements = page.evaluate("document.querySelectorAll('*').length")
    assert elements < 9 * samples + 1_000  # a line each, no transcripts
    page.evaluate(
        "() => { const t = performance.now(); "
        f"document.querySelector('[name=words]').value = 's-{samples - 1}'; "
        "document.querySelector('#filters').dispatchEvent(new Event('input')); "
        "window.spent = performance.now() - t; }"
    )
    assert page.locator("#shown").inner_text() == f"1 / {samples}"
    assert page.evaluate("window.spent") < 60_000  # measured: half a second
    page.locator(f"#s-s-{samples - 1}-0 > summary").click()
    page.locator(f"#s-s-{samples - 1}-0 .lhr-trace").wait_for()
    assert page.locator(".lhr-trace").count() == 1
