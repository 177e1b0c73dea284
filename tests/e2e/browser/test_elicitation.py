"""What an MCP server asks in the midst of a call, as a card in a real browser: by keys alone."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.browser.reading import read_through
from tests.e2e.browser.test_ab import faults
from tests.e2e.browser.test_access import LOW_CONTRAST, OUTSIDE
from tests.mcp.conftest import LEDGER

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

PANEL = """
from lhkit import McpToolset, ScriptedModel
from lhkit.models.scripted import call, say
from lhkit.notebook import ChatPanel
ledger = McpToolset(server={server!r}, start_s=120, reads=[{tool!r}])
turn = [call({tool!r}, text="rent"), say("That was it.")]
panel = ChatPanel(model=ScriptedModel(turn * 9), toolset=ledger, locale="en", opt_in=True)
panel
"""
OLD_MS = 500  # a card is young for 400
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
    page.locator(".lhkit-input").click()
    page.keyboard.type("Write it down")
    page.keyboard.press("Enter")
    return page.locator(".lhkit-confirm").last


def asked(page: Page, *, is_old: bool = True) -> Locator:
    """Say something, and return the card with the form that it leads to."""
    card = open_form_card(page)
    expect(card).to_have_attribute("data-state", "open")
    if is_old:
        page.wait_for_timeout(OLD_MS)
    return card

    """Return what the last call came to."""
    return page.locator('[data-role="tool"]').last.locator("pre").last


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


@pytest.mark.promise("mcp.elicitation")
def test_elicitation_form_by_keys_shows_errors(
    open_notebook: OpenNotebook, file: Path, shots: Path
) -> None:
    page = open_notebook(panel(file))
    card = asked(page)
    expect(card.locator(".lhkit-description")).to_contain_text("The server ledger asks this")
    expect(card.get_by_label("Who pays? *")).to_be_focused()
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


@pytest.mark.promise("mcp.elicitation")
@pytest.mark.parametrize(
    ("leave", "action"),
    [("Escape", "cancel"), (".lhkit-cancel", "cancel"), (".lhkit-decline", "decline")],
)
def test_elicitation_form_cancel_and_decline_reach_the_server(
    open_notebook: OpenNotebook, file: Path, leave: str, action: str
) -> None:
    page = open_notebook(panel(file))
    card = asked(page)
    page.keyboard.type("Kim")
    if leave.startswith("."):
        card.locator(leave).press("Enter")
    else:
        page.keyboard.press(leave)
    expect(card).to_have_attribute("data-state", "denied")
    tool = page.locator('[data-role="tool"]').last
    expect(tool).to_have_attribute("data-status", "ok")
    expect(tool).to_contain_text(f"not added: {action}")
    assert not file.exists()


@pytest.mark.promise("mcp.elicitation")
def test_elicitation_form_ignores_keys_for_other_elements(
    open_notebook: OpenNotebook, file: Path
) -> None:
    page = open_notebook(panel(file))
    page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")
    card = asked(page, is_old=False)
    page.keyboard.type("and more")  # its clock stands still: the card is young all along
    page.keyboard.press("Enter")
    expect(card).to_have_attribute("data-state", "open")
    expect(card.get_by_label("Who pays? *")).to_have_value("")
    expect(card.get_by_label("amount")).to_have_value("5")
    page.evaluate("() => { delete performance.now; }")
    page.wait_for_timeout(OLD_MS)
    assert not file.exists()


@pytest.mark.promise("mcp.elicitation")
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_elicitation_form_escapes_html_and_is_accessible(
    open_notebook: OpenNotebook, file: Path, tmp_path: Path, shots: Path, theme: str
) -> None:
    evil = tmp_path / "evil.py"
    text = LEDGER.read_text(encoding="utf-8")
    for each in ("Who pays?", "for the receipt", "House", "Details of"):
        text = text.replace(each, f"{each} {EVIL} password")
    evil.write_text(text.replace('"fun"]', f'"{EVIL}"]'), encoding="utf-8")
    page = open_notebook(panel(file, server=evil), theme=f"JupyterLab {theme}")
    card = asked(page)
    assert faults(page, ".lhkit-chat") == []
    expect(card).to_contain_text("This seems to ask for a password")
    page.keyboard.type("Kim")
    read_through(card)  # with these titles the form is longer than the page
    page.keyboard.press("Enter")
    expect(card.locator("[aria-invalid]")).to_have_count(1)  # the book
    assert faults(page, ".lhkit-chat") == []
    assert page.evaluate(LOW_CONTRAST) == {}
    panel_ = page.locator(".lhkit-chat")
    panel_.evaluate("panel => { panel.style.width = '320px'; }")
    assert panel_.evaluate(OUTSIDE) == []
    card.screenshot(path=shots / f"mcp-form-{theme.lower()}.png")
    expect(card.locator("img")).to_have_count(0)
    assert "owned" not in page.title()


@pytest.mark.promise("mcp.elicitation")
def test_elicitation_card_closes_with_its_server(open_notebook: OpenNotebook, file: Path) -> None:
    page = open_notebook(panel(file, tool="ask_and_die"))
    card = open_form_card(page)
    expect(card).to_have_attribute("data-state", "denied")
    expect(card).to_contain_text("the question was withdrawn")
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "error")
