"""Who reads with other means: contrast, names, focus, small pages."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.browser.reading import LOW_CONTRAST, OLD_MS, OUTSIDE, each_theme

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

DEMO = "from lhkit.notebook import demo_panel\npanel = demo_panel()\npanel"
ADD = "카페인 줄이는 습관을 추가해줘"

OpenNotebook = Callable[..., Page]


def ask(page: Page) -> Locator:
    page.locator(".lhkit-input").fill(ADD)
    page.locator(".lhkit-send").click()
    expect(page.locator('.lhkit-confirm[data-state="open"]')).to_be_visible()
    expect(page.locator(".lhkit-run")).to_be_focused()
    page.wait_for_timeout(OLD_MS)
    return page.locator('.lhkit-confirm[data-state="open"]')


@pytest.mark.nightly
def test_panel_text_has_aa_contrast(open_notebook: OpenNotebook) -> None:
    page = open_notebook(DEMO)
    ask(page)
    for _ in each_theme(page):
        assert page.evaluate(LOW_CONTRAST) == {}
    page.locator(".lhkit-run").press("Escape")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    ask(page)
    page.keyboard.press("Enter")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.evaluate(
        "() => { for (const each of document.querySelectorAll('details')) each.open = 1; }"
    )
    page.locator(".lhkit-tool").first.evaluate("tool => { tool.dataset.status = 'error'; }")
    for _ in each_theme(page):
        assert page.evaluate(LOW_CONTRAST) == {}


def test_panel_names_focus_order_and_small_pages(open_notebook: OpenNotebook, shots: Path) -> None:
    page = open_notebook(DEMO.replace("()", "(pace_s=0.3)"))  # its story takes half a minute
    panel = page.locator(".lhkit-chat")
    card = ask(page)
    expect(panel.get_by_role("log", name="대화")).to_be_visible()
    dialog = page.get_by_role("alertdialog", name="이 작업을 실행할까요?")
    expect(dialog).to_have_accessible_description(re.compile("카페인"))
    nameless = "each => each.filter(e => !(e.innerText || e.ariaLabel || e.labels?.length)).length"
    assert panel.locator("button, textarea, select").evaluate_all(nameless) == 0
    examples = ["lhkit-example"] * panel.locator(".lhkit-example").count()
    assert examples
    order = []
    card.locator(".lhkit-cancel").focus()
    for _ in range(4 + len(examples)):
        order.append(page.evaluate("() => document.activeElement.className.split(' ').at(-1)"))
        page.keyboard.press("Tab")
    assert order == ["lhkit-cancel", "lhkit-edit", "lhkit-run", *examples, "lhkit-input"]
    for width in (400, 320):  # 320 is what 200 % leaves of a window 640 wide
        panel.evaluate("(panel, width) => { panel.style.width = `${width}px`; }", width)
        assert panel.evaluate(OUTSIDE) == []
        expect(card.locator(".lhkit-run")).to_be_visible()
    panel.screenshot(path=shots / "narrow.png")
    card.locator(".lhkit-run").focus()
    page.keyboard.press("Escape")
    page.emulate_media(reduced_motion="reduce")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.locator(".lhkit-input").fill("긴 이야기 하나 해줘")
    page.locator(".lhkit-send").click()
    stream = page.locator("[data-live] .lhkit-stream")
    expect(stream).to_contain_text("작은")
    moves = "each => getComputedStyle(each, '::after').animationName"
    assert stream.evaluate(moves) == "none"
