"""A notebook that is opened again while a card is open shows the card, however late its timers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.e2e.browser.conftest import Lab, close_notebook, open_again, path_of, save
from tests.e2e.browser.test_ab import cell as ab_cell
from tests.e2e.browser.test_panel import DEMO, open_card

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

OpenNotebook = Callable[..., Page]

LATE_TIMERS = """
(() => {
  // The widget manager looks for a model every 100 ms, for 2 s. Here the timer is late, as in a
  // slow page or one in the background: it ends only after the test says so.
  const real = window.setTimeout.bind(window);
  const held = [];
  window.looks = 0;
  window.letGo = () => { window.looks = -1; for (const each of held.splice(0)) each(); };
  window.setTimeout = (run, wait, ...more) => {
    const isLook = wait === 100 && window.looks >= 0 && /get_model/.test(new Error().stack);
    if (!isLook) return real(run, wait, ...more);
    window.looks += 1;
    window.since = Date.now();
    held.push(run);
    return 0;
  };
})()
"""
IS_LOOKING = "() => window.looks > 0"
IS_TOO_LATE = "() => Date.now() - window.since > 2000"
IS_RESTORED = """async () => {
  const { rendermime } = window.jupyterapp.shell.currentWidget.content;
  const mimeType = "application/vnd.jupyter.widget-view+json";
  const renderer = rendermime.getFactory(mimeType)?.createRenderer({ mimeType });
  return renderer !== undefined && (await renderer._manager.promise).restoredStatus;
}"""


class HeldKernel:
    """The connection of a page to its kernel; the models arrive only when they are let through."""

    def __init__(self, page: Page) -> None:
        self._is_open = False
        self._waiting: list[tuple[WebSocketRoute, str | bytes]] = []
        page.route_web_socket(lambda url: "/channels" in url, self._route)

    def _route(self, browser: WebSocketRoute) -> None:
        kernel = browser.connect_to_server()
        kernel.on_message(lambda message: self._pass_on(browser, message))

    def _pass_on(self, browser: WebSocketRoute, message: str | bytes) -> None:
        text = message if isinstance(message, bytes) else message.encode()
        if not self._is_open and (self._waiting or b"update_states" in text):
            self._waiting.append((browser, message))
        else:
            browser.send(message)

    def open(self) -> None:
        """Let all messages through."""
        self._is_open = True
        for browser, message in self._waiting:
            browser.send(message)
        self._waiting.clear()


def reopened_late(page: Page, lab: Lab) -> Page:
    """Save and close a notebook; return it in another page, which finds its models too late."""
    save(page)
    address = f"{lab.url}/lab/workspaces/late/tree/{path_of(page)}?reset"
    close_notebook(page)
    again = page.context.new_page()
    again.add_init_script(LATE_TIMERS)
    kernel = HeldKernel(again)
    again.goto(address, wait_until="domcontentloaded")
    again.wait_for_function(IS_LOOKING)
    kernel.open()
    again.wait_for_function(IS_RESTORED)
    again.wait_for_function(IS_TOO_LATE)
    again.evaluate("() => window.letGo()")
    return again


def test_reopened_card_can_be_answered(open_notebook: OpenNotebook, tmp_path: Path) -> None:
    page = open_notebook(DEMO.format(path=str(tmp_path / "habits.sqlite3")))
    open_card(page)
    path = save(page)
    close_notebook(page)
    open_again(page, path)
    card = page.locator(".lhkit-confirm").last
    expect(card).to_have_attribute("data-state", "open")
    expect(page.locator(".lhkit-chat:not(.lhkit-deaf)")).to_be_visible()
    card.locator(".lhkit-run").focus()
    page.keyboard.press("Escape")
    expect(card).to_have_attribute("data-state", "denied")


@pytest.mark.nightly
def test_reopened_card_appears_although_the_page_looked_for_it_too_early(
    open_notebook: OpenNotebook, lab: Lab, tmp_path: Path
) -> None:
    page = open_notebook(DEMO.format(path=str(tmp_path / "habits.sqlite3")))
    open_card(page)
    again = reopened_late(page, lab)
    card = again.locator(".lhkit-confirm").last
    expect(card).to_have_attribute("data-state", "open")
    expect(again.locator(".lhkit-chat:not(.lhkit-deaf)")).to_be_visible()
    card.locator(".lhkit-run").focus()
    again.keyboard.press("Escape")
    expect(card).to_have_attribute("data-state", "denied")
    again.close()


@pytest.mark.nightly
def test_reopened_ab_panel_appears_with_both_sides_and_its_board(
    open_notebook: OpenNotebook, lab: Lab, tmp_path: Path
) -> None:
    page = open_notebook(ab_cell(tmp_path / "votes"))
    expect(page.locator(".lhkit-sides .lhkit-chat")).to_have_count(2)
    again = reopened_late(page, lab)
    expect(again.locator(".lhkit-sides .lhkit-chat:not(.lhkit-deaf)")).to_have_count(2)
    expect(again.locator(".lhkit-board:not(.lhkit-deaf)")).to_be_visible()
    again.close()
