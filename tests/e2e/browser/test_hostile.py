"""A corpus of hostile texts in every place of the panels that a foreign text can reach."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.hostile import ALL, assert_dead
from tests.e2e.browser.reading import read_through

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

EARLY_MS = 400

OpenNotebook = Callable[..., Page]

MADE = """
import os
from lhkit import Scenario, ToolCall, ToolDefinition, ToolErr, ToolOk, replay
from lhkit.models.recorded.scripted import Reply, ScriptedModel, say
from lhkit.notebook import ABPanel, ChatPanel, Review
from lhkit.tools.registry import ToolRegistry
from tests.e2e.browser.hostile import ALL, HOSTILE

os.environ["LHKIT_CONFIG_DIR"] = {folder!r} + "/config"
fields = {{each: {{"type": "string", "description": ALL}} for each in HOSTILE}}

def tool(name, result, is_destructive=False):
    return ToolDefinition(name=name, description=ALL, handler=lambda args, deps: result,
                          parameters={{"type": "object", "properties": fields}},
                          is_destructive=is_destructive)

tools = ToolRegistry([
    tool("write", ToolOk({{each: ALL for each in HOSTILE}}), is_destructive=True),
    tool("look", ToolErr("not_found", ALL)),
])
args = {{each: ALL for each in HOSTILE}}
def replies():
    return [Reply(text=ALL, calls=(ToolCall(name="write", args=args, raw=ALL),)),
            Reply(text=ALL, calls=(ToolCall(name="look", args=args, raw=ALL),)), say(ALL),
            Reply(text=ALL, calls=(ToolCall(name=HOSTILE[0], args=args, raw=ALL),)), say(ALL),
            Reply(text=ALL, error=RuntimeError(ALL)), say("back again")]
"""

AB = """
models = [ScriptedModel(replies(), name=each) for each in (HOSTILE[0], HOSTILE[5])]
panel = ABPanel(models=models, toolset=tools, locale="en", person=ALL, draw=lambda: False,
                record={folder!r} + "/" + HOSTILE[3].replace("/", "∕"))
panel
"""

CHAT = """
panel = ChatPanel(model=ScriptedModel(replies(), name=HOSTILE[0]), toolset=tools, locale="en",
                  record={folder!r} + "/" + HOSTILE[0].replace("/", "∕"))
panel
"""

REVIEW = """
panel = ChatPanel(model=ScriptedModel(replies()), toolset=tools, locale="en", opt_in=True,
                  record={folder!r} + "/chats")
await panel.send(ALL, answers=[True])
await panel.send(ALL)
review = Review({folder!r} + "/chats", reviewer="kim", locale="en", toolset=tools)
other = Review({folder!r} + "/chats", reviewer="lee", locale="en", toolset=tools)
other.judge("wrong")
other.judge("wrong")
other.judge("not_fine", say=ALL)
review
"""


def opened(open_notebook: OpenNotebook, folder: Path, *cells: str) -> Page:
    given = [each.format(folder=str(folder)) for each in (MADE, *cells)]
    return open_notebook(*given)


TYPED = ALL.replace("\x00", "").replace("\ud800", "")  # cannot be typed


def say(page: Page, box: str) -> None:
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.locator(box).fill(TYPED)
    page.locator(box).press("Enter")


@pytest.mark.nightly
def test_hostile_text_in_ab_panel(open_notebook: OpenNotebook, tmp_path: Path, shots: Path) -> None:
    page = opened(open_notebook, tmp_path, AB)
    expect(page.get_by_role("button", name="Got it, start")).to_be_visible()
    assert_dead(page, ".lhkit-ab, .lhkit-board, .lhkit-saved")
    page.get_by_role("button", name="Got it, start").click()
    say(page, ".lhkit-board [name=message]")
    cards = page.locator('.lhkit-confirm[data-state="open"]')
    expect(cards).to_have_count(2)
    assert_dead(page, ".lhkit-ab, .lhkit-board, .lhkit-saved")
    read_through(cards.first)
    page.wait_for_timeout(EARLY_MS + 100)
    page.locator(".lhkit-sides > *").nth(0).locator(".lhkit-run").click()
    page.locator(".lhkit-sides > *").nth(1).locator(".lhkit-cancel").click()
    page.locator('[data-press="vote"][data-value="tie"]').click()
    page.locator("[name^=reason]").fill(TYPED)
    page.keyboard.press("Enter")
    page.locator(".lhkit-unblind").click()
    expect(page.locator(".lhkit-board .lhkit-facts")).to_contain_text("onerror")
    page.locator(".lhkit-ab").screenshot(path=shots / "hostile-ab.png")
    assert_dead(page, ".lhkit-ab, .lhkit-board, .lhkit-saved")


def test_hostile_text_in_recorded_chat(open_notebook: OpenNotebook, tmp_path: Path) -> None:
    page = opened(open_notebook, tmp_path, CHAT)
    note = page.locator('.lhkit-message[data-role="system"]').first
    expect(note).to_contain_text("onerror")  # the folder has such a name
    expect(page.locator(".lhkit-input")).to_be_disabled()
    page.get_by_role("button", name="Got it, start").click()
    expect(page.locator(".lhkit-opt-in")).to_have_count(0)
    say(page, ".lhkit-input")
    expect(page.locator('.lhkit-confirm[data-state="open"]')).to_be_visible()
    assert_dead(page, ".lhkit-chat, .lhkit-saved")
    read_through(page.locator(".lhkit-confirm"))
    page.wait_for_timeout(EARLY_MS + 100)
    page.locator(".lhkit-run").click()
    say(page, ".lhkit-input")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    assert_dead(page, ".lhkit-chat, .lhkit-saved")
    say(page, ".lhkit-input")
    error = page.locator('[data-role="error"]')
    expect(error).to_contain_text("onerror")
    assert_dead(page, ".lhkit-chat, .lhkit-saved")
    error.locator('[data-action="retry"]').click()
    expect(page.locator('[data-role="assistant"] .lhkit-text').last).to_have_text("back again")
    page.evaluate("() => fetch('http://elsewhere.example/').catch(() => null)")
    assert page.requested == ["http://elsewhere.example/"]  # type: ignore[attr-defined] - as above


@pytest.mark.nightly
def test_hostile_text_in_review(open_notebook: OpenNotebook, tmp_path: Path, shots: Path) -> None:
    page = opened(open_notebook, tmp_path, REVIEW)
    board = page.locator(".lhkit-board")
    expect(board.locator(".lhkit-head")).to_be_visible()
    assert_dead(page, ".lhkit-board, .lhkit-saved")
    board.locator("[data-value='should_be']").click()
    expect(board.locator(".lhkit-form")).to_be_visible()
    assert_dead(page, ".lhkit-board, .lhkit-saved")
    board.locator(".lhkit-form .lhkit-field").nth(1).fill(TYPED)
    board.get_by_role("button", name="Save").click()
    expect(board.locator(".lhkit-form")).to_have_count(0)
    board.locator("[data-press='compare']").click()
    expect(board.locator(".lhkit-opt-in")).to_be_visible()
    board.screenshot(path=shots / "hostile-review.png")
    assert_dead(page, ".lhkit-board, .lhkit-saved")
