"""Edit and reject in a real JupyterLab, the lines of truth, a kernel that dies in an edit.

The scripted assistant lies in its last reply. Two of `runs/screenshots/decisions-*.png` are copied
to `docs/images`.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from lhkit.base.locales import load_catalog
from lhkit.harness.results.results import Run
from tests.e2e.browser.reading import OLD_MS, read_through, readable_in_each_theme
from tests.written import habits

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

OpenNotebook = Callable[..., Page]

CELL = """
import os
from datetime import datetime
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.notebook import ChatPanel
add = call(
    "add_habit", protocol_id="caffeine-cutoff", frame_level="identity", framed_text={framed!r},
    anchor_when={when!r},
)
log = call("log_tracker_entry", habit_id="caffeine-cutoff", value="done", date="2026-06-15")
up = call("add_habit", protocol_id="fixed-wake-time", frame_level="action", framed_text={up!r})
model = ScriptedModel([add, say("."), log, say({logged!r}), up, say({rejected!r}), say({lie!r}),
    add, say({again!r})])
panel = ChatPanel(
    model=model, file={database!r}, locale={locale!r}, opt_in=True, record={folder!r},
    now=lambda: datetime.fromisoformat("2026-06-16T20:00:00+09:00"),
)
await panel.send({first!r}, answers=[True])
panel.clear()
print(os.getpid())
panel
"""
WORDS = {
    "en": {
        "when": "2 p.m.",
        "framed": "I have my last coffee before two",
        "up": "I get up at seven every day",
        "logged": "Logged: no caffeine after two.",
        "rejected": "All right, not this week.",
        "lie": "Done! I have added the habit for you.",
        "first": "Add a habit to cut caffeine",
        "log": "I kept my caffeine habit today",
        "bed": "Add a habit to get up at the same time",
        "why": "not this week",
        "please": "So, did you add it?",
        "edited": "Edited",
        "truth": [
            "Changed: tracker +1 · caffeine-cutoff 2026-06-16 "
            '(edited: date "2026-06-15" → "2026-06-16")',
            "Not run: add_habit · fixed-wake-time",
        ],
        "nothing": "Nothing was run that writes"
        "The reply says “I have added the habit for you.”, but no such write was run.",
        "more": "Add the caffeine habit again",
        "again": "I have added it again.",
        "unchanged": "Ran, nothing changed: add_habit · caffeine-cutoff"
        "The reply says “I have added it again.”, but nothing changed.",
    },
    "ko": {
        "when": "오후 2시",
        "framed": "나는 두 시 전에 마지막 커피를 마신다",
        "up": "나는 매일 일곱 시에 일어난다",
        "logged": "두 시 이후 카페인을 참은 걸로 적었어요.",
        "rejected": "네, 이번 주에는 하지 않을게요.",
        "lie": "네! 습관을 추가했어요.",
        "first": "카페인 줄이는 습관을 추가해줘",
        "log": "오늘 카페인 습관 지켰어",
        "bed": "같은 시간에 일어나는 습관도 추가해줘",
        "why": "이번 주는 바빠요",
        "please": "그래서 추가했어?",
        "edited": "수정함",
        "truth": [
            "바뀜: tracker +1 · caffeine-cutoff 2026-06-16 "
            '(수정함: date "2026-06-15" → "2026-06-16")',
            "실행하지 않음: add_habit · fixed-wake-time",
        ],
        "nothing": "쓰는 도구는 실행되지 않음"
        "답은 “습관을 추가했어요.”라고 하지만, 그런 쓰기는 실행되지 않았습니다.",
        "more": "카페인 습관을 다시 추가해줘",
        "again": "다시 추가했어요.",
        "unchanged": "실행했지만 바뀐 것 없음: add_habit · caffeine-cutoff"
        "답은 “다시 추가했어요.”라고 하지만, 바뀐 것은 없습니다.",
    },
}


def say(page: Page, text: str) -> None:
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.locator(".lhkit-input").fill(text)
    page.locator(".lhkit-input").press("Enter")


def open_card(page: Page) -> Locator:
    card = page.locator('.lhkit-confirm[data-state="open"]')
    expect(card).to_be_visible()
    expect(card.locator(".lhkit-run")).to_be_focused()
    page.wait_for_timeout(OLD_MS)
    return card


STAGES = ("edit", "edited", "reason", "truth", "unchanged")


@pytest.mark.parametrize(
    ("locale", "shot"),
    [
        ("ko", ("truth",)),
        pytest.param("ko", STAGES, marks=pytest.mark.nightly),
        pytest.param("en", STAGES, marks=pytest.mark.nightly),
    ],
    ids=["ko", "ko, each stage", "en, each stage"],
)
def test_decisions_in_a_real_notebook(
    open_notebook: OpenNotebook, tmp_path: Path, shots: Path, locale: str, shot: tuple[str, ...]
) -> None:
    words: dict[str, Any] = WORDS[locale]
    folder, database = tmp_path / "chats", tmp_path / "habits.sqlite3"
    cell = CELL.format(**words, locale=locale, folder=str(folder), database=str(database))
    page = open_notebook(cell)

    def shoot(stage: str, what: Locator | None = None) -> None:
        """Check the page in both themes, and take a picture of each, if the stage is `shot`."""
        for theme in readable_in_each_theme(page) if stage in shot else ():
            file = shots / f"decisions-{stage}-{locale}-{theme}.png"
            (what or page.locator(".lhkit-chat")).screenshot(path=file, scale="css")

    notice = load_catalog(locale).text("notebook.kept", folder=folder)
    notes = page.locator('.lhkit-message[data-role="system"]')
    expect(notes.filter(has_text=notice)).to_have_count(1)

    say(page, words["log"])
    card = open_card(page)
    card.locator(".lhkit-edit").click()
    day = card.get_by_label("date")
    expect(day).to_have_value("2026-06-15")
    day.fill("2026-06-16")
    shoot("edit")
    day.press("Enter")
    expect(card.locator(".lhkit-changes")).to_contain_text('"2026-06-15" → "2026-06-16"')
    expect(card.locator(".lhkit-run")).to_be_focused()
    shoot("edited", card)
    page.wait_for_timeout(OLD_MS)
    card.locator(".lhkit-run").press("Enter")

    say(page, words["bed"])
    card = open_card(page)
    card.locator(".lhkit-why").fill(words["why"])
    shoot("reason")
    card.locator(".lhkit-why").press("Enter")
    say(page, words["please"])
    truth = page.locator(".lhkit-chat .lhkit-truth")
    expect(truth).to_have_text([*words["truth"], words["nothing"]])
    expect(truth.last.locator(".lhkit-claim")).to_have_count(1)
    expect(page.locator(".lhkit-tool-args").first).to_contain_text("2026-06-16")  # what ran
    expect(page.locator('[data-role="assistant"]').last).to_contain_text(words["lie"])
    expect(page.locator(".lhkit-send")).to_be_enabled()
    # the last two turns only
    page.locator(".lhkit-slot").evaluate_all(
        "all => all.slice(0, -8).forEach((one) => one.remove())"
    )
    shoot("truth")

    say(page, words["more"])
    open_card(page).locator(".lhkit-run").press("Enter")
    expect(truth.last).to_have_text(words["unchanged"])
    expect(page.locator(".lhkit-send")).to_be_enabled()
    shoot("unchanged")

    assert habits(database) == ["caffeine-cutoff"]
    (record,) = [each for each in Run.load(folder).records if len(each.trajectory.turns) == 4]
    logged, added = (turn.calls[0] for turn in record.trajectory.turns[:2])
    assert logged.raw_args["date"] == "2026-06-15"
    assert logged.run_args["date"] == "2026-06-16"
    assert (added.ran, added.answer, added.reason) == (False, "cancel", words["why"])
    assert added.result["user_message"] == words["why"]


HIDING = """
import os
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.notebook import ChatPanel
from lhkit.testing import echo_tool, object_schema
from lhkit.conversation.tool_results import ToolOk
from lhkit.tools.registry import ToolRegistry
def mail(args, deps):
    with open({path!r}, "a") as file:
        print(ascii(args), file=file)
    return ToolOk({{}})
schema = object_schema(to={{"type": "string"}}, text={{"type": "string"}}, bcc={{"type": "string"}})
tools = ToolRegistry([echo_tool("mail", parameters=schema, handler=mail, is_destructive=True)])
long = dict(to="ann", text="See you. " * 300, bcc="mallory")
blank = dict(to="ann", text="See you." + "\u3164" * 40, bcc="mallory")
model = ScriptedModel([call("mail", **long), say("."), call("mail", **blank), say(".")])
panel = ChatPanel(model=model, toolset=tools, locale="en", opt_in=True, record={folder!r})
print(os.getpid())
panel
"""


@pytest.mark.nightly
def test_hidden_arguments_are_seen_and_a_page_or_kernel_lost_in_an_edit_writes_nothing(
    open_notebook: OpenNotebook, tmp_path: Path
) -> None:
    sent, folder = tmp_path / "sent.txt", tmp_path / "chats"
    page = open_notebook(HIDING.format(path=str(sent), folder=str(folder)), anew=True)
    card = page.locator('.lhkit-confirm[data-state="open"]')
    say(page, "write to ann")
    expect(card.locator("[data-fold]")).to_be_focused()
    page.wait_for_timeout(OLD_MS)
    card.locator(".lhkit-run").click(force=True)
    assert not sent.exists()
    read_through(card)
    page.wait_for_timeout(OLD_MS)
    card.locator(".lhkit-run").click()
    expect(page.locator(".lhkit-chat .lhkit-truth")).to_have_count(1)
    assert sent.read_text().count("mallory") == 1

    say(page, "and again")
    expect(card).to_contain_text("See you." + r"\u3164" * 40)
    expect(card).to_contain_text("mallory")
    page.wait_for_timeout(OLD_MS)
    card.locator(".lhkit-edit").click()
    card.get_by_label("to").fill("bob")
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.goto(page.url.replace("?reset", ""), wait_until="domcontentloaded")
    expect(card.get_by_label("to", exact=True)).to_have_value("ann")
    assert sent.read_text().count("\n") == 1
    card.get_by_label("to", exact=True).fill("bob")
    os.kill(int(page.locator(".jp-OutputArea-output pre").first.inner_text()), signal.SIGKILL)
    expect(page.locator(".lhkit-status")).to_contain_text("restarted")
    card.get_by_role("button", name="Review the changes").click(force=True)
    page.keyboard.press("Enter")
    assert sent.read_text().count("mallory") == 1
    (record,) = Run.load(folder).records
    (turn,) = record.trajectory.turns
    assert turn.user == "write to ann"
    assert [(each.tool, each.answer, each.ran) for each in turn.calls] == [("mail", "run", True)]
