"""The three decisions in a page: cancel with a reason, edit the arguments, run what the card shows.

No JupyterLab here: the panel's script and style, and a real gate and dispatcher in a thread.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from lhkit.base.locales import load_catalog
from lhkit.conversation.messages import ToolCallOutcome
from lhkit.conversation.tool_results import ToolOk, ToolResult
from lhkit.notebook.panel.confirm import ButtonConfirmGate
from lhkit.notebook.panel.loop import HomeLoop
from lhkit.notebook.panel.screen import Screen, script
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.e2e.browser.reading import (
    LOW_CONTRAST,
    OLD_MS,
    OUTSIDE,
    errors,
    read_through,
    stopped_clock,
)
from tests.e2e.browser.test_whole_card import LABELS, SHOW, STYLE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

SCHEMA = object_schema(
    "title",
    "date",
    title={"type": "string", "maxLength": 2000},
    date={"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
    hours={"type": "number", "minimum": 0},
    count={"type": "integer"},
    is_done={"type": "boolean"},
    kind={"type": "string", "enum": ["walk", "run"]},
    tags={"type": "array", "items": {"type": "string"}},
)
NULLABLE = object_schema(
    "title",
    title={"type": ["string", "null"]},
    date={"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
    hours={"type": ["number", "null"]},
    is_done={"type": ["boolean", "null"]},
    kind={"enum": ["null", "x", None]},
    tags={"type": ["array", "null"]},
)
NULLABLE_ARGS = {"title": None, "date": "2026-06-15", "hours": 2, "is_done": None, "kind": "x"}
ARGS = {
    "title": "Tea",
    "date": "2026-06-15",
    "hours": 1.5,
    "count": 2,
    "is_done": True,
    "kind": "walk",
    "tags": ["a", "b"],
}


class Card:
    """A page with a conversation, and a call of a tool that waits for the user."""

    def __init__(self, page: Page, locale: str, schema: Any = SCHEMA) -> None:
        self.page = page
        self._schema = schema
        self.ran: list[Mapping[str, Any]] = []
        self.outcomes: list[ToolCallOutcome] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._out: list[dict[str, Any]] = []
        self.do(self._open(locale)).result(60)
        labels = {name: load_catalog(locale).text(f"notebook.{name}") for name in LABELS}
        page.evaluate(SHOW, [script("panel.js"), STYLE, [], locale, {**labels, "messages": "talk"}])
        self.carry()

    async def _open(self, locale: str) -> None:
        catalog = load_catalog(locale)
        self._gate = ButtonConfirmGate(locale=locale)
        self._screen = Screen(
            loop=HomeLoop(), catalog=catalog, name="Card()", receive=self._gate.take_message
        )
        self._gate._screen = self._screen
        self._screen.widget.send = self._out.append
        tool = echo_tool("note", parameters=self._schema, is_destructive=True, handler=self._write)
        self._dispatcher = ToolDispatcher(ToolRegistry([tool]), catalog=catalog)

    def _write(self, args: Mapping[str, Any], _deps: Any) -> ToolResult:
        self.ran.append(dict(args))
        return ToolOk({})

    def do(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def ask(self, args: Mapping[str, Any] = ARGS, **changes: Any) -> Locator:
        """Begin a call, and return its card when it is no longer young."""
        self.call = self.do(
            self._dispatcher.dispatch(
                "note", {**args, **changes}, confirm=self._gate, observe=self.outcomes.append
            )
        )
        self.carry()
        self.page.wait_for_timeout(OLD_MS)
        return self.page.locator(".lhkit-confirm").last

    def carry(self) -> None:
        """Carry the messages of page and kernel to each other, until there are none left."""

        async def take(content: Mapping[str, Any]) -> None:
            self._screen.take_message(content)

        async def settle() -> None:
            for _ in range(50):
                await asyncio.sleep(0)

        for _ in range(3):
            for content in self.page.evaluate("() => window.sent.splice(0)"):
                self.do(take(content)).result(60)
            self.do(settle()).result(60)
            messages = [self._out.pop(0) for _ in range(len(self._out))]
            self.page.evaluate("(all) => all.forEach((each) => window.model.say(each))", messages)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.carry()

    def close(self) -> None:
        self._gate.close()
        self.do(asyncio.sleep(0)).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)


OpenCard = Callable[..., Card]


@pytest.fixture
def open_card(blank_page: Page) -> Iterator[OpenCard]:
    cards = []

    def opened(locale: str = "en", width: int = 900, schema: Any = SCHEMA) -> Card:
        blank_page.set_viewport_size({"width": width, "height": 900})
        cards.append(Card(blank_page, locale, schema))
        return cards[-1]

    yield opened
    for card in cards:
        card.close()


def test_card_edit_by_keys_runs_what_it_shows(open_card: OpenCard) -> None:
    card = open_card()
    dialog = card.ask()
    expect(dialog.locator(".lhkit-run")).to_be_focused()
    card.press("Shift+Tab")
    expect(dialog.locator(".lhkit-edit")).to_be_focused()
    card.press("Enter")
    form = card.page.get_by_role("dialog", name="Edit the arguments")
    inner = "all => all.scrollHeight - all.clientHeight"
    assert card.page.locator(".lhkit-list").evaluate(inner) == 0, "one scroll area, the page's"
    expect(form.get_by_role("textbox", name="title *")).to_be_focused()
    assert form.locator("[name]").evaluate_all("all => all.map((one) => one.type)") == [
        *("text", "date", "text", "text", "select-one", "select-one", "textarea"),
    ]
    form.get_by_label("date *").fill("2026-06-16")
    form.get_by_label("hours").fill("2")
    form.get_by_label("is_done").select_option("false")
    form.get_by_label("tags").fill('["c"]')
    form.get_by_label("kind").focus()
    with stopped_clock(card.page):
        card.press("Enter")  # shows the changes
        assert card.ran == []
        expect(dialog).to_have_role("alertdialog")
        run = dialog.locator(".lhkit-run")
        expect(run).to_be_focused()
        changes = dialog.locator(".lhkit-changes")
        expect(changes).to_contain_text('date "2026-06-15" → "2026-06-16"')
        card.press("Enter")
        assert card.ran == []  # young again
    card.page.wait_for_timeout(OLD_MS)
    card.press("Enter")
    changed = {"date": "2026-06-16", "hours": 2, "is_done": False, "tags": ["c"]}
    assert card.ran == [{**ARGS, **changed}]
    assert card.outcomes[0].args == ARGS
    assert card.outcomes[0].run_args == card.ran[0]
    expect(dialog).to_have_attribute("data-state", "allowed")
    expect(dialog.locator(".lhkit-changes")).to_contain_text('"2026-06-16"')
    expect(card.page.locator(".lhkit-input")).to_be_focused()


def test_card_invalid_edit_is_shown_in_the_form(open_card: OpenCard) -> None:
    card = open_card()
    dialog = card.ask()
    dialog.locator(".lhkit-edit").click()
    card.carry()
    dialog.get_by_label("count").fill("many")
    card.press("Enter")
    expect(dialog.locator("[data-error]")).to_contain_text("a whole number")
    expect(dialog.get_by_label("count")).to_have_value("many")
    expect(dialog.get_by_label("count")).to_be_focused()
    dialog.get_by_label("count").fill("3")
    dialog.get_by_label("hours").fill("1.5e")
    dialog.get_by_label("hours").fill("-1")  # only the tool's schema refuses it
    card.press("Enter")
    expect(dialog.locator("[data-error]")).to_contain_text("at least 0")
    dialog.get_by_label("hours").fill("0")
    dialog.get_by_role("button", name="Review the changes").click()
    card.carry()
    expect(dialog.locator(".lhkit-changes div div")).to_have_count(2)
    dialog.locator(".lhkit-edit").click()
    card.carry()
    expect(dialog.get_by_label("count")).to_have_value("3")
    card.press("Escape")  # back to the card
    expect(dialog.locator(".lhkit-run")).to_be_focused()
    card.press("Escape")
    expect(dialog).to_have_attribute("data-state", "denied")
    assert card.ran == []


@pytest.mark.parametrize("locale", ["en", pytest.param("ko", marks=pytest.mark.nightly)])
def test_card_edit_makes_values_null_and_no_longer_null(open_card: OpenCard, locale: str) -> None:
    card = open_card(locale, schema=NULLABLE)
    dialog = card.ask(NULLABLE_ARGS)
    dialog.locator(".lhkit-edit").click()
    card.carry()

    def field(name: str) -> Locator:
        return dialog.locator(f"[name={name}]")

    def null(name: str) -> Locator:
        text = load_catalog(locale).text("form.null")
        return dialog.get_by_role("checkbox", name=f"{name}: {text}")

    expect(null("title")).to_be_checked()
    expect(null("date")).not_to_be_checked()
    expect(null("tags")).to_have_count(0)  # JSON says it itself
    assert field("date").get_attribute("type") == "date"
    assert field("is_done").evaluate("each => each.selectedOptions[0].dataset.null") == ""
    field("title").fill("Tea")  # typed text is no longer null
    expect(null("title")).not_to_be_checked()
    null("date").check()
    null("hours").check()
    field("is_done").select_option("true")
    field("kind").select_option("null")  # the text
    field("tags").fill("[")
    card.page.get_by_role("button", name=load_catalog(locale).text("confirm.check")).click()
    card.carry()
    expect(dialog.locator("[data-error]")).to_have_count(1)
    expect(null("date")).to_be_checked()  # kept with the error
    expect(null("title")).not_to_be_checked()
    field("tags").fill("null")
    card.page.get_by_role("button", name=load_catalog(locale).text("confirm.check")).click()
    card.carry()
    card.page.wait_for_timeout(OLD_MS)
    card.press("Enter")
    assert card.ran == [
        {
            **{"title": "Tea", "date": None, "hours": None, "is_done": True, "kind": "null"},
            "tags": None,
        }
    ]


def test_card_edited_long_value_must_be_seen(open_card: OpenCard) -> None:
    card = open_card()
    dialog = card.ask()
    dialog.locator(".lhkit-edit").click()
    card.carry()
    dialog.get_by_label("title *").fill("x " * 900)
    card.press("Enter")
    run = dialog.locator(".lhkit-run")
    expect(run).to_have_attribute("aria-disabled", "true")
    card.page.wait_for_timeout(OLD_MS)
    run.click(force=True)
    card.carry()
    assert card.ran == []
    read_through(dialog)
    card.page.wait_for_timeout(OLD_MS)
    run.click()
    card.carry()
    assert card.ran == [{**ARGS, "title": "x " * 900}]


def test_card_cancel_with_a_reason_is_safe_with_an_input_method(open_card: OpenCard) -> None:
    card = open_card("ko")
    dialog = card.ask()
    why = card.page.get_by_role("textbox", name="취소하는 이유 (선택)")
    card.press("Shift+Tab", "Shift+Tab", "Shift+Tab")
    expect(why).to_be_focused()
    devtools = card.page.context.new_cdp_session(card.page)
    devtools.send(
        "Input.imeSetComposition", {"text": "오늘은 말", "selectionStart": 5, "selectionEnd": 5}
    )
    ends = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229}
    devtools.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **ends})
    card.carry()
    expect(dialog).to_have_attribute("data-state", "open")
    devtools.send("Input.insertText", {"text": "오늘은 말고"})
    devtools.detach()
    card.press("Enter")
    expect(dialog).to_have_attribute("data-state", "denied")
    expect(dialog.locator(".lhkit-why")).to_have_text("오늘은 말고")
    assert card.ran == []
    assert card.call.result(60).user_message == "오늘은 말고"
    assert card.outcomes[0].reason == "오늘은 말고"
    second = card.ask()
    second.locator(".lhkit-cancel").focus()
    card.press("Enter")
    assert card.call.result(60).user_message == ""


@pytest.mark.parametrize("locale", ["ko", pytest.param("en", marks=pytest.mark.nightly)])
def test_edit_card_is_accessible_and_fits_a_phone(
    open_card: OpenCard, shots: Path, locale: str
) -> None:
    card = open_card(locale, width=390)
    dialog = card.ask(title="A long cup of tea, then another, in the garden behind the house")

    def look(name: str) -> None:
        assert errors(card.page) == []
        assert card.page.evaluate(LOW_CONTRAST) == {}
        assert dialog.evaluate(OUTSIDE) == []
        width = "() => document.documentElement.scrollWidth"
        assert card.page.evaluate(width) <= 390
        card.page.screenshot(path=shots / f"card-{name}-{locale}.png", full_page=True)

    look("open")
    dialog.locator(".lhkit-edit").click()
    card.carry()
    look("edit")
    expect(dialog).to_have_role("dialog")
    nameless = "each => each.filter(e => !(e.innerText || e.ariaLabel || e.labels?.length)).length"
    assert dialog.locator("button, input, textarea, select").evaluate_all(nameless) == 0
    dialog.get_by_label("date").fill("2026-06-16")
    dialog.get_by_label("count").fill("x")
    card.press("Enter")
    look("edit-error")
    dialog.get_by_label("count").fill("3")
    card.press("Enter")
    expect(dialog).to_have_accessible_description(re.compile("2026-06-16"))
    look("edited")
    card.page.wait_for_timeout(OLD_MS)
    card.press("Enter")
    expect(dialog).to_have_attribute("data-state", "allowed")
    card.page.screenshot(path=shots / f"card-ran-{locale}.png")
