"""A card hides nothing: what is folded or out of sight has to be seen before a yes can be pressed.

No JupyterLab here: the panel's script and style alone in a page, with cards that render.py wrote.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from lhkit.base.locales import load_catalog
from lhkit.confirm.form import Form, parse_form
from lhkit.confirm.gate import ConfirmRequest
from lhkit.confirm.summary import pretty
from lhkit.conversation.messages import ModelMessage
from lhkit.notebook.panel.render import fragment
from lhkit.notebook.panel.screen import STATIC, script
from lhkit.notebook.panel.state import CardItem
from tests.e2e.browser.reading import OLD_MS, errors, read_through

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

STYLE = (STATIC / "panel.css").read_text("utf-8")
LABELS = ("send", "stop", "retry", "clear", "markdown", "json", "scenario", "locale", "placeholder")
SHOW = """async ([script, style, fragments, lang, labels]) => {
    document.documentElement.lang = lang;
    document.title = "card";
    document.head.append(Object.assign(document.createElement("style"), { textContent: style }));
    const { default: panel } = await import("data:text/javascript," + encodeURIComponent(script));
    const listeners = {};
    const values = {
        fragments, revision: 0, status: "", locales: [lang], locale: lang, controls: {}, labels,
        has_input: true,
    };
    window.sent = [];
    window.model = {
        get: (name) => values[name],
        on: (name, listener) => { listeners[name] = listener; },
        off: () => {},
        send: (content) => window.sent.push(content),
        say: (message) => listeners["msg:custom"](message),
    };
    const main = document.body.appendChild(document.createElement("main"));
    panel.render({ model: window.model, el: main });
    window.model.say({ type: "here" });
}"""
CUT_OFF = """card => [...card.querySelectorAll("*")]
    .filter((each) => getComputedStyle(each).overflowY !== "visible" && !each.matches("select"))
    .filter((each) => each.scrollHeight > each.clientHeight + 1)
    .map((each) => each.className)"""

ShowCard = Callable[..., Locator]


@pytest.fixture
def page(blank_page: Page) -> Page:
    return blank_page


@pytest.fixture
def show_card(page: Page) -> ShowCard:
    """Return a function that shows a card in a conversation, and waits for EARLY_MS."""

    def shown(args: dict[str, Any], *, form: Form | None = None, locale: str = "en") -> Locator:
        request = ConfirmRequest(
            tool="mail", description="Send it.", args=args, summary=pretty(args)
        )
        catalog = load_catalog(locale)
        items = [
            *([ModelMessage(text="words " * 80)] * 6),
            CardItem(card="7", request=request, form=form),
        ]
        labels = {name: catalog.text(f"notebook.{name}") for name in LABELS} | {"messages": "talk"}
        page.evaluate(
            SHOW,
            [
                script("panel.js"),
                STYLE,
                [fragment(each, catalog) for each in items],
                locale,
                labels,
            ],
        )
        page.wait_for_timeout(OLD_MS)
        return page.locator(".lhkit-confirm")

    return shown


def answers(page: Page) -> list[str]:
    sent = page.evaluate("() => window.sent.filter((each) => each.type === 'answer')")
    return [each["how"] for each in sent]


HIDING = {
    "blank letters": {"to": "ann", "text": "See you." + "\u3164" * 1500, "bcc": "mallory"},
    "spaces": {"to": "ann", "text": "See you." + " " * 3000, "bcc": "mallory"},
    "no-break spaces": {"to": "ann", "text": "See you." + "\xa0" * 3000, "bcc": "mallory"},
    "a long text": {"to": "ann", "text": "See you. " * 300, "bcc": "mallory"},
    "a long key": {"to": "ann", "k" * 2000: "", "bcc": "mallory"},
    "a list of blanks": {"to": "ann", "list": [""] * 300, "bcc": "mallory"},
    "empty keys": {"to": "ann", **{" " * n: "" for n in range(20)}, "bcc": "mallory"},
    "many keys": {"to": "ann", **{f"k{n}": n for n in range(56)}, "bcc": "mallory"},
    "a long text in a long list": {"l": ["x" * 3000] * 4, "bcc": "mallory"},
}


@pytest.mark.parametrize("hidden", HIDING)
def test_card_run_requires_all_arguments_seen(page: Page, show_card: ShowCard, hidden: str) -> None:
    card = show_card(HIDING[hidden])
    run = card.locator(".lhkit-run")
    is_long = hidden != "empty keys"
    assert card.evaluate(CUT_OFF) == []
    for fold in iter(lambda: card.locator("[data-fold]:visible"), None):
        if not fold.count():
            break
        expect(run).to_have_attribute("aria-disabled", "true")
        run.click(force=True)
        assert answers(page) == []
        fold.first.click()
    assert card.evaluate(CUT_OFF) == []
    text = card.locator(".lhkit-summary").text_content() or ""
    assert "mallory" in text
    read_through(card)
    expect(run).not_to_have_attribute("aria-disabled", "true")
    expect(card.locator(".lhkit-unseen")).to_be_hidden()
    assert is_long or card.locator("[data-fold]").count() == 0
    page.wait_for_timeout(OLD_MS)
    run.click()
    assert answers(page) == ["run"]


def test_card_shows_other_arguments_next_to_a_folded_one(page: Page, show_card: ShowCard) -> None:
    card = show_card(HIDING["blank letters"])
    page.set_viewport_size({"width": 500, "height": 640})
    card.evaluate("card => card.scrollIntoView({ block: 'start' })")
    assert page.get_by_text("mallory").evaluate("""each => {
        const seen = document.createRange();
        seen.selectNodeContents(each.closest("pre"));
        const list = each.closest(".lhkit-list").getBoundingClientRect();
        return seen.getBoundingClientRect().bottom <= list.bottom + 1;
    }""")
    fold = card.locator("[data-fold]")
    expect(fold).to_have_text(re.compile("Show all 1,5[0-9][0-9] characters"))
    assert card.locator(".lhkit-summary").inner_text().count("\\u3164") < 400
    card.locator(".lhkit-cancel").click()  # which needs nothing to be seen
    assert answers(page) == ["cancel"]


def test_large_card_requires_scrolling(page: Page, show_card: ShowCard) -> None:
    card = show_card(HIDING["many keys"])
    run, list_ = card.locator(".lhkit-run"), page.locator(".lhkit-list")
    expect(run).to_have_attribute("aria-disabled", "true")
    expect(run).to_have_accessible_description(re.compile("still off screen"))
    list_.evaluate("list => { list.scrollTop = list.scrollHeight; }")
    expect(card.locator(".lhkit-unseen")).to_be_visible()
    run.click(force=True)
    assert answers(page) == []  # the middle was jumped over
    box = list_.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    list_.evaluate("list => { list.scrollTop = 0; }")
    while run.get_attribute("aria-disabled"):
        page.mouse.wheel(0, 200)
        page.wait_for_timeout(50)
    expect(run).to_have_accessible_description("")
    page.wait_for_timeout(OLD_MS)
    run.click()
    assert answers(page) == ["run"]


def test_large_card_by_keys(page: Page, show_card: ShowCard) -> None:
    card = show_card({**HIDING["many keys"], "text": "long " * 200})
    fold = card.locator("[data-fold]").first
    expect(fold).to_be_focused()
    page.keyboard.press("Enter")
    while (again := card.locator("[data-fold]:visible")).count():
        expect(card.locator(".lhkit-rest:visible").last).to_be_focused()
        again.first.focus()
        page.keyboard.press("Space")
    card.locator(".lhkit-run").focus()
    presses = 0
    while not answers(page):
        page.keyboard.press("Enter")
        page.wait_for_timeout(OLD_MS)
        presses += 1
    assert presses > 2
    assert card.locator('[data-end=""]').count() == 0
    assert answers(page) == ["run"]


FIELDS = {
    "properties": {
        "to": {
            "type": "string",
            "default": "ann@example.org" + " " * 300 + ", mallory@example.org",
        },
        **{f"n{each}": {"type": "integer", "default": each} for each in range(20)},
    }
}


def test_form_send_requires_all_fields_seen(page: Page, show_card: ShowCard) -> None:
    form = parse_form(FIELDS, "", load_catalog("en"))
    assert form is not None
    card = show_card({"text": "t" * 900}, form=form)
    card.locator("[data-fold]").click()
    page.keyboard.press("Tab")
    field = card.get_by_role("textbox", name="to", exact=True)
    expect(field).to_be_focused()
    assert card.evaluate(CUT_OFF) == []
    assert field.input_value() == FIELDS["properties"]["to"]["default"]
    page.keyboard.press("Enter")
    assert answers(page) == []
    read_through(card)
    page.wait_for_timeout(OLD_MS)
    card.locator(".lhkit-run").click()
    assert answers(page) == ["send"]


def test_form_with_errors_stays_unfolded(page: Page, show_card: ShowCard) -> None:
    catalog = load_catalog("en")
    form = parse_form({"properties": {"n": {"type": "integer"}}}, "", catalog)
    args = {"text": "t" * 900}
    card = show_card(args, form=form)
    read_through(card)
    page.wait_for_timeout(OLD_MS)
    card.locator(".lhkit-run").click()
    request = ConfirmRequest(tool="mail", description="", args=args, summary=pretty(args))
    item = CardItem(card="7", request=request, form=form, errors={"n": "wrong"}, attempts=1)
    change = ["set", 6, fragment(item, catalog)]
    page.evaluate(
        "(change) => window.model.say({ type: 'patch', revision: 1, changes: [change] })", change
    )
    expect(card.locator("[data-error]")).to_have_text("wrong")
    expect(card.locator("[data-fold]")).to_be_hidden()
    expect(card.locator(".lhkit-run")).not_to_have_attribute("aria-disabled", "true")


@pytest.mark.parametrize("locale", ["ko", pytest.param("en", marks=pytest.mark.nightly)])
def test_folded_card_is_accessible(
    page: Page, show_card: ShowCard, shots: Path, locale: str
) -> None:
    card = show_card(HIDING["blank letters"], locale=locale)
    expect(card.locator(".lhkit-unseen")).to_be_visible()
    assert errors(page) == []
    page.screenshot(path=shots / f"card-folded-{locale}.png")
    card.locator("[data-fold]").click()
    assert errors(page) == []
    page.screenshot(path=shots / f"card-opened-{locale}.png")
