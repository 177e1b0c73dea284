"""What an MCP server asks in the midst of a call, as a card in a real browser: by keys alone."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.browser.reading import (
    OLD_MS,
    OUTSIDE,
    assert_readable,
    each_theme,
    read_through,
    stopped_clock,
)
from tests.mcp.conftest import LEDGER

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

PANEL = """
from lhkit import McpToolset, ScriptedModel
from lhkit.models.recorded.scripted import call, say
from lhkit.notebook import ChatPanel
ledger = McpToolset(server={server!r}, start_s=120, reads=[{tool!r}])
turn = [call({tool!r}, text="rent"), say("That was it.")]
panel = ChatPanel(model=ScriptedModel(turn * 9), toolset=ledger, locale="en", opt_in=True)
panel
"""
EVIL = "<img src=x onerror=\\\"document.title='owned'\\\">"

OpenNotebook = Callable[..., Page]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the ledger is."""
    return tmp_path / "ledger.txt"


def panel(file: Path, tool: str = "add_detailed", server: Path = LEDGER) -> str:
    words = shlex.join([sys.executable, str(server), str(file)])
    return PANEL.format(server=words, tool=tool)


def open_form_card(page: Page) -> Locator:
    """Send a message, and return the locator of its card."""
    expect(page.locator(".lhkit-send")).to_be_enabled(timeout=120_000)
    page.locator(".lhkit-input").press_sequentially("Write it down")
    page.locator(".lhkit-input").press("Enter")
    return page.locator(".lhkit-confirm").last


def question_card(page: Page) -> Locator:
    """Say something, and return the card with the form that it leads to."""
    card = open_form_card(page)
    expect(card).to_have_attribute("data-state", "open")
    page.wait_for_timeout(OLD_MS)
    return card


def type_all_wrong(page: Page) -> None:
    """Fill in all fields by keys and send them; the address and the amount do not fit."""
    page.keyboard.type("Kim")
    page.keyboard.press("Tab")
    page.keyboard.type("kim at home")  # no address
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("100")  # at most 99
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")  # no
    page.keyboard.press("Tab")
    page.keyboard.press("W")  # one key: a slow second one would begin anew
    page.keyboard.press("Tab")
    page.keyboard.press("r")  # rent
    card = page.locator(".lhkit-confirm").last
    expect(card.get_by_label("tag")).to_have_value("rent")
    send = card.locator('[data-answer="send"]')
    expect(send).not_to_have_attribute("aria-disabled", "true")  # all of the card was seen
    page.keyboard.press("Enter")


def test_elicitation_form_by_keys_ignores_early_ones_and_shows_errors(
    open_notebook: OpenNotebook, file: Path, shots: Path
) -> None:
    page = open_notebook(panel(file))
    with stopped_clock(page):
        card = open_form_card(page)
        expect(card).to_have_attribute("data-state", "open")
        page.keyboard.type("and more")  # the card is young all along
        page.keyboard.press("Enter")
        expect(card).to_have_attribute("data-state", "open")
        expect(card.get_by_label("Who pays? *")).to_have_value("")
        expect(card.get_by_label("amount")).to_have_value("5")
    page.wait_for_timeout(OLD_MS)
    assert not file.exists()
    expect(card.locator(".lhkit-description")).to_contain_text("The server ledger asks this")
    card.get_by_label("Who pays? *").focus()  # by itself, it leaves the focus to who types
    type_all_wrong(page)
    mail = card.get_by_label("mail")
    expect(mail).to_have_attribute("aria-invalid", "true")
    expect(mail).to_be_focused()
    expect(mail).to_have_accessible_description(
        "for the receipt an e-mail address Invalid value. Expected: an e-mail address."
    )
    expect(card.get_by_label("amount")).to_have_attribute("aria-invalid", "true")
    expect(card.get_by_label("Who pays? *")).to_have_value("Kim")
    expect(card.get_by_label("tag")).to_have_value("rent")
    card.screenshot(path=shots / "mcp-form.png")
    assert not file.exists()
    page.keyboard.press("Control+A")
    page.keyboard.press("Backspace")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("7")
    page.keyboard.press("Enter")
    expect(card).to_have_attribute("data-state", "allowed")
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "ok")
    sent = {"amount": 7, "book": "w", "cash": False, "tag": "rent", "who": "Kim"}
    assert file.read_text(encoding="utf-8") == f"rent {json.dumps(sent)}\n"
    expect(card.locator("input, select")).to_have_count(0)
    expect(page.locator(".lhkit-input")).to_be_focused()


@pytest.mark.nightly
def test_elicitation_form_cancel_and_decline_reach_the_server(
    open_notebook: OpenNotebook, file: Path
) -> None:
    page = open_notebook(panel(file))
    for number, (leave, action) in enumerate(
        (("Escape", "cancel"), (".lhkit-cancel", "cancel"), (".lhkit-decline", "decline")), start=1
    ):
        card = question_card(page)
        expect(card.get_by_label("Who pays? *")).to_be_focused()
        page.keyboard.type("Kim")
        if leave.startswith("."):
            card.locator(leave).press("Enter")
        else:
            page.keyboard.press(leave)
        expect(card).to_have_attribute("data-state", "denied")
        tools = page.locator('[data-role="tool"]')
        expect(tools).to_have_count(number)
        expect(tools.last).to_have_attribute("data-status", "ok")
        expect(tools.last).to_contain_text(f"not added: {action}")
    assert not file.exists()


@pytest.mark.nightly
def test_elicitation_form_escapes_html_and_is_accessible(
    open_notebook: OpenNotebook, file: Path, tmp_path: Path, shots: Path
) -> None:
    evil = tmp_path / "evil.py"
    text = LEDGER.read_text(encoding="utf-8")
    for each in ("Who pays?", "for the receipt", "House", "Details of"):
        text = text.replace(each, f"{each} {EVIL} password")
    evil.write_text(text.replace('"fun"]', f'"{EVIL}"]'), encoding="utf-8")
    page = open_notebook(panel(file, server=evil))
    card = question_card(page)
    assert_readable(page)
    expect(card).to_contain_text("This seems to ask for a password")
    card.get_by_role("textbox").first.fill("Kim")
    read_through(card)  # with these titles the form is longer than the page
    card.get_by_role("textbox").first.press("Enter")
    expect(card.locator("[aria-invalid]")).to_have_count(1)  # the book
    assert_readable(page)
    panel_ = page.locator(".lhkit-chat")
    panel_.evaluate("panel => { panel.style.width = '320px'; }")
    assert panel_.evaluate(OUTSIDE) == []
    for theme in each_theme(page):
        card.screenshot(path=shots / f"mcp-form-{theme}.png")
    expect(card.locator("img")).to_have_count(0)
    assert "owned" not in page.title()


@pytest.mark.nightly
def test_elicitation_card_closes_with_its_server(open_notebook: OpenNotebook, file: Path) -> None:
    page = open_notebook(panel(file, tool="ask_and_die"))
    card = open_form_card(page)
    expect(card).to_have_attribute("data-state", "denied")
    expect(card).to_contain_text("the question was withdrawn")
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "error")
