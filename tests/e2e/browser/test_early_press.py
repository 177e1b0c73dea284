"""Presses before the kernel is connected: sent once, and only if the button is still there.

The scripts of the panel and of the boards run alone in a page, with a fake model instead of
JupyterLab.
"""

import pytest
from playwright.sync_api import Page, expect

from lhkit.base.locales import load_catalog
from lhkit.notebook.panel.render import fragment
from lhkit.notebook.panel.screen import script
from lhkit.notebook.panel.state import OptInRequested

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

QUESTION = fragment(
    OptInRequested(model="gemma-test", address="", licence="terms"), load_catalog("ko")
)
SHOW = """async ([script, question]) => {
    const { default: panel } = await import("data:text/javascript," + encodeURIComponent(script));
    const listeners = {};
    const values = {
        fragments: [question], revision: 0, status: "", locales: ["ko"], locale: "ko",
        controls: { needs_opt_in: true }, labels: { waiting: "waiting", lost: "lost" },
        has_input: true,
    };
    window.sent = [];
    window.model = {
        get: (name) => values[name],
        on: (name, listener) => { listeners[name] = listener; },
        off: () => {},
        send: ({ type }) => window.sent.push(type),
        say: (message) => listeners["msg:custom"](message),
        end: () => listeners.comm_live_update(),
    };
    panel.render({ model: window.model, el: document.body });
}"""


@pytest.fixture
def page(blank_page: Page) -> Page:
    """Return a page with a panel that asks for the opt-in, and a kernel that says nothing yet."""
    blank_page.evaluate(SHOW, [script("panel.js"), QUESTION])
    return blank_page


def opt_ins(page: Page) -> int:
    """Return how often the opt-in was sent."""
    return int(page.evaluate("() => window.sent.filter((type) => type === 'opt_in').length"))


def answer(page: Page) -> None:
    page.evaluate("() => window.model.say({ type: 'here' })")


def test_early_opt_in_is_sent_once(page: Page) -> None:
    agree = page.locator('[data-action="opt_in"]')
    agree.dblclick()
    expect(agree).to_have_attribute("aria-disabled", "true")
    assert opt_ins(page) == 0
    answer(page)
    assert opt_ins(page) == 1
    answer(page)
    assert opt_ins(page) == 1


def test_early_press_is_dropped_when_settled(
    page: Page,
) -> None:
    page.locator('[data-action="opt_in"]').click()
    page.evaluate("() => document.querySelector('.lhkit-opt-in').remove()")  # agreed elsewhere
    answer(page)
    assert opt_ins(page) == 0


def test_press_on_a_lost_panel_is_ignored(page: Page) -> None:
    page.evaluate("() => window.model.end()")
    page.locator('[data-action="opt_in"]').click()
    answer(page)
    assert opt_ins(page) == 0
    expect(page.locator(".lhkit-status")).to_have_text("lost")


BUTTONS = "".join(
    f'<button data-press="label" data-value="{value}" data-key="{key}">{value}</button>'
    for value, key in (("right", "1"), ("wrong", "2"))
)
SHOW_BOARD = """async ([script, html]) => {
    const { default: board } = await import("data:text/javascript," + encodeURIComponent(script));
    const listeners = {};
    const values = { parts: [html], locale: "en", labels: { waiting: "waiting", lost: "lost" } };
    window.sent = [];
    window.model = {
        get: (name) => values[name],
        on: (name, listener) => { listeners[name] = listener; },
        off: () => {},
        send: ({ type, value }) => { if (type === "press") window.sent.push(value); },
        say: (message) => listeners["msg:custom"](message),
        paint: (html) => { values.parts = [html]; listeners["change:parts"](); },
        end: () => listeners.comm_live_update(),
    };
    board.render({ model: window.model, el: document.body });
    document.querySelector(".lhkit-board").focus();
}"""


@pytest.fixture
def board(blank_page: Page) -> Page:
    """Return a page with a board of two buttons, and a kernel that says nothing yet."""
    blank_page.evaluate(SHOW_BOARD, [script("board.js"), BUTTONS])
    return blank_page


def test_early_key_on_a_board_is_sent_once(board: Page) -> None:
    board.keyboard.press("1")
    board.keyboard.press("1")
    board.keyboard.press("2")  # meant for what the first one would have shown
    assert board.evaluate("window.sent") == []
    answer(board)
    answer(board)
    assert board.evaluate("window.sent") == ["right"]
    board.keyboard.press("2")
    assert board.evaluate("window.sent") == ["right", "wrong"]


def test_early_click_on_a_board_is_dropped_with_its_button(board: Page) -> None:
    board.get_by_text("right").click()
    board.evaluate(
        'window.model.paint(\'<button data-press="label" data-value="wrong">no</button>\')'
    )
    expect(board.get_by_text("no")).to_be_visible()  # not while the pointer is down
    answer(board)
    assert board.evaluate("window.sent") == []


def test_early_press_on_a_lost_board_is_ignored(board: Page) -> None:
    board.get_by_text("right").click()
    board.evaluate("() => window.model.end()")
    answer(board)
    assert board.evaluate("window.sent") == []
    expect(board.locator(".lhkit-line")).to_have_text("lost")
