"""The A/B panel in a real JupyterLab: keys, cards, and votes that survive a kernel kill."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from tests.e2e.browser.reading import (
    OUTSIDE,
    assert_readable,
    each_theme,
    hold_focus,
    stopped_clock,
)

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

EARLY_MS = 400
BOARD = ".lhkit-ab, .lhkit-board"

CELL = """
import sqlite3
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.notebook import ABPanel
from lhkit.notebook.demo_script import demo_reply
import os

os.environ["LHKIT_CONFIG_DIR"] = {folder!r} + "-agreed"
EVIL = "<img src=x onerror=\\"document.title='owned'\\"><script>document.title='owned'</script>"
models = [
    ScriptedModel(demo_reply, name="bare"),
    ScriptedModel(lambda request: {other}, name="tuned"),
]
panel = ABPanel(models=models, record={folder!r}, locale="en", opt_in={opt_in}, person="kim",
                draw=lambda: False)
print(os.getpid())
panel
"""

OpenNotebook = Callable[..., Page]


def cell(folder: Path, other: str = "demo_reply(request)", *, opt_in: bool = True) -> str:
    return CELL.format(folder=str(folder), other=other, opt_in=opt_in)


def sides(page: Page) -> tuple[Locator, Locator]:
    both = page.locator(".lhkit-sides > *")
    expect(both).to_have_count(2)
    return both.nth(0), both.nth(1)


def say(page: Page, text: str) -> None:
    box = page.locator(".lhkit-board [name=message]")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    box.press_sequentially(text)
    expect(box).to_have_value(text)  # all of it has arrived before it is sent
    box.press("Enter")


def records(folder: Path, name: str) -> Run:
    return Run.load(folder / name)


def test_ab_votes_by_keys(open_notebook: OpenNotebook, tmp_path: Path) -> None:
    folder = tmp_path / "ab"
    page = open_notebook(cell(folder, "say('I cannot do that.')"))
    votes = page.locator(".lhkit-votes")
    hold_focus(page.locator(".lhkit-board [name=message]"))
    for number in range(3):
        expect(page.locator(".lhkit-send")).to_be_enabled()
        page.keyboard.type(f"hello 1234 {number}")  # digits in a message vote for nothing
        page.keyboard.press("Enter")
        expect(votes).to_be_focused()
        page.wait_for_timeout(EARLY_MS + 50)
        page.keyboard.press("1" if number < 2 else "3")
        reason = page.locator("[name^=reason]")
        expect(reason).to_be_focused()
        page.keyboard.type("it helps")
        page.keyboard.press("Enter")
        expect(page.locator(".lhkit-board")).to_contain_text(f"({number + 1} vote")
        page.keyboard.press("Shift+Tab")
        for _ in range(12):
            if page.evaluate("() => document.activeElement.name") == "message":
                break
            page.keyboard.press("Shift+Tab")
    comparison = compare(records(folder, "bare"), records(folder, "tuned"))
    assert (len(comparison.pairs), len(comparison.regressions)) == (3, 2)
    assert comparison.people[0].votes == 3
    assert comparison.p_value == pytest.approx(2 * 0.5**2)
    assert comparison.pairs[0].a.score.reasons == ("better", "it helps")


def test_ab_double_enter_answers_one_card_and_a_kernel_kill_keeps_the_vote(
    open_notebook: OpenNotebook, tmp_path: Path, shots: Path
) -> None:
    folder = tmp_path / "ab"
    page = open_notebook(cell(folder))
    left, right = sides(page)
    say(page, "Add a habit to cut caffeine")
    for side in (left, right):
        expect(side.locator('.lhkit-confirm[data-state="open"]')).to_be_visible()
    page.screenshot(path=shots / "ab-cards.png")
    left.locator(".lhkit-run").focus()
    page.wait_for_timeout(EARLY_MS + 100)
    with stopped_clock(page):
        page.keyboard.press("Enter")
        expect(left.locator(".lhkit-confirm")).to_have_attribute("data-state", "allowed")
        expect(right.locator(".lhkit-run")).to_be_focused()
        page.keyboard.press("Enter")  # doubled: it was meant for the card that is gone
        page.wait_for_timeout(100)
        expect(right.locator(".lhkit-confirm")).to_have_attribute("data-state", "open")
    page.keyboard.press("Escape")
    expect(right.locator(".lhkit-confirm")).to_have_attribute("data-state", "denied")
    expect(page.locator(".lhkit-vote").first).to_be_enabled()
    ran = {
        name: [
            call.ran
            for call in records(folder, name).records[0].trajectory.turns[0].calls
            if call.destructive
        ]
        for name in ("bare", "tuned")
    }
    assert ran == {"bare": [True], "tuned": [False]}
    page.locator('[data-press="vote"][data-value="right"]').click()
    expect(page.locator(".lhkit-board")).to_contain_text("Your vote is saved")
    os.kill(int(page.locator(".jp-OutputArea-output pre").first.inner_text()), signal.SIGKILL)
    expect(page.locator(".lhkit-board")).to_contain_text("The kernel was restarted")
    comparison = compare(records(folder, "bare"), records(folder, "tuned"))
    assert [pair.gain for pair in comparison.pairs] == [1]
    assert json.loads((folder / "bare/manifest.json").read_text())["user"] == "person"


@pytest.mark.nightly
def test_ab_is_accessible_in_both_themes(
    open_notebook: OpenNotebook, tmp_path: Path, shots: Path
) -> None:
    page = open_notebook(cell(tmp_path / "ab", opt_in=False))
    opt_in = page.get_by_role("button", name="Got it, start")
    expect(opt_in).to_be_visible()
    assert_readable(page, BOARD)
    opt_in.click()
    say(page, "Add a habit to cut caffeine")
    left, right = sides(page)
    for side in (left, right):
        expect(side.locator('.lhkit-confirm[data-state="open"]')).to_be_visible()
    assert_readable(page, BOARD)
    page.wait_for_timeout(EARLY_MS + 100)
    left.locator(".lhkit-run").click()
    right.locator(".lhkit-cancel").click()
    page.locator('[data-press="vote"][data-value="left"]').click()
    expect(page.locator("[name^=reason]")).to_be_visible()
    assert_readable(page, BOARD)
    page.locator(".lhkit-unblind").click()
    expect(page.locator(".lhkit-board .lhkit-facts")).to_contain_text("tuned")
    expect(left).to_contain_text("Left · bare")
    assert_readable(page, BOARD)
    panel = page.locator(".lhkit-ab")
    for theme in each_theme(page):
        panel.screenshot(path=shots / f"ab-{theme}.png")
    panel.evaluate("panel => { panel.style.width = '340px'; }")
    assert panel.evaluate(OUTSIDE) == []
    panel.screenshot(path=shots / "ab-narrow.png")


@pytest.mark.nightly
def test_ab_page_escapes_text_and_hides_models(open_notebook: OpenNotebook, tmp_path: Path) -> None:
    page = open_notebook(cell(tmp_path / "ab", "say(EVIL)"))
    say(page, "<img src=x onerror=\"document.title='owned'\">")
    expect(page.locator(".lhkit-vote").first).to_be_enabled()
    for shown in (".lhkit-ab", ".lhkit-saved"):  # the copy in the notebook is as blind
        html = page.locator(shown).evaluate("panel => panel.outerHTML")
        assert "tuned" not in html
        assert "bare" not in html
    page.locator('[data-press="vote"][data-value="tie"]').click()
    page.locator("[name^=reason]").fill("<img src=x onerror=\"document.title='owned'\">")
    page.locator(".lhkit-unblind").hover()
    page.keyboard.press("Enter")
    page.mouse.down()  # the kernel saves the reason and sends the board while the button is held
    page.wait_for_timeout(1000)
    page.mouse.up()
    expect(page.locator(".lhkit-board .lhkit-facts")).to_be_visible()
    assert "owned" not in page.title()
    everywhere = ":is(.lhkit-ab, .lhkit-saved)"
    assert page.locator(f"{everywhere} :is(img, script)").count() == 0
    assert page.requested == []  # type: ignore[attr-defined] - set when the page was opened
