"""A review in a real JupyterLab: conversations by keys alone, and a run of their scenarios."""

from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.sync_api import Page, expect

from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import read_sources
from lhkit.notebook.boards.review import Review
from lhkit.toolset import load
from tests.e2e.browser.reading import OUTSIDE, assert_readable, each_theme, hold_focus

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

OpenNotebook = Callable[..., Page]

COUNT = 2  # conversations

CHATS = """
from lhkit.notebook import Review, demo_panel
for number in range({count}):
    panel = demo_panel(locale="en", pace_s=0, record={folder!r})
    await panel.send({message!r}, answers=[True])
review = Review({folder!r}, reviewer="kim", locale="en")
review
"""
EVIL = "Add <img src=x onerror=\"document.title='owned'\"> a habit to cut caffeine"


def cell(folder: Path, count: int = 1, message: str = "Add a habit to cut caffeine") -> str:
    return CHATS.format(folder=str(folder), count=count, message=message)


def chip(page: Page, unit: int) -> str:
    return page.locator(".lhkit-unit .lhkit-chip").nth(unit).inner_text()


def review_one(page: Page, number: int, shots: Path) -> None:
    """Judge a conversation by keys: the search is right, the habit another, the reply not fine."""
    board = page.locator(".lhkit-board")
    head = board.locator(".lhkit-head")
    page.keyboard.press("1")
    expect(head).to_contain_text("Place 2 of 3: add_habit")
    page.keyboard.press("3")
    expect(board.locator(".lhkit-form")).to_be_visible()
    page.keyboard.press("Escape")
    expect(board.locator(".lhkit-form")).to_have_count(0)
    page.keyboard.press("3")
    expect(board.locator(".lhkit-form .lhkit-field").nth(1)).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type(f"I sleep 1 hour more, {number}")  # digits in a field judge nothing
    if number == 0:
        board.screenshot(path=shots / "review-form.png")
    page.keyboard.press("Enter")
    expect(head).to_contain_text("Place 3 of 3: reply")
    page.keyboard.press("2")
    expect(board.locator(".lhkit-form textarea")).to_be_focused()
    page.keyboard.type("I added it, after lunch")
    page.keyboard.press("Enter")


def test_review_by_keys_and_export(
    open_notebook: OpenNotebook, tmp_path: Path, shots: Path
) -> None:
    folder = tmp_path / "chats"
    page = open_notebook(cell(folder, count=COUNT))
    board = page.locator(".lhkit-board")
    head = board.locator(".lhkit-head")
    expect(head).to_contain_text(f"conversation 1 of {COUNT}")
    hold_focus(board.locator("[data-key='1']"))
    for number in range(COUNT):
        expect(head).to_contain_text(f"conversation {number + 1} of {COUNT}, {number} labelled")
        review_one(page, number, shots)
    expect(head).to_contain_text(f"{COUNT} labelled")
    page.keyboard.press("ArrowUp")
    expect(head).to_contain_text("Place 2 of 3: add_habit")
    assert [chip(page, unit) for unit in range(3)] == ["Right", "Another call", "Not fine"]

    async def made_and_played() -> list[Verdict]:
        files = await Review(folder, reviewer="kim").to_scenarios(tmp_path / "scenarios")
        sources = read_sources(files)
        assert await lint(sources, load()) == ()
        run = await replay(sources.scenarios, gold_model, progress=False)
        texts = [file.read_text(encoding="utf-8") for file in files]
        assert [f"I sleep 1 hour more, {n}" in each for n, each in enumerate(texts)] == [
            True
        ] * COUNT
        return [record.score.verdict for record in run.records]

    assert in_a_loop_of_its_own(made_and_played) == [Verdict.PASS] * COUNT


def in_a_loop_of_its_own(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine in another thread: Playwright keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: anyio.run(work)).result()


@pytest.mark.nightly
def test_review_is_accessible_in_both_themes(
    open_notebook: OpenNotebook, tmp_path: Path, shots: Path
) -> None:
    page = open_notebook(cell(tmp_path / "chats", message=EVIL))
    board = page.locator(".lhkit-board")
    expect(board.locator(".lhkit-head")).to_contain_text("Place 1 of 3")
    assert_readable(page, ".lhkit-board")
    board.locator("[data-key='1']").click()
    board.locator("[data-value='wrong']").click()
    board.locator("[data-value='call_missing']").click()
    expect(board.locator(".lhkit-form")).to_be_visible()
    board.locator("details").first.evaluate("each => { each.open = true; }")
    assert_readable(page, ".lhkit-board")
    for theme in each_theme(page):
        board.screenshot(path=shots / f"review-{theme}.png")
    board.evaluate("each => { each.style.width = '340px'; }")
    assert board.evaluate(OUTSIDE) == []
    assert page.title() != "owned"
    assert board.locator("img, script").count() == 0
    assert page.requested == []  # type: ignore[attr-defined] - set when the page was opened
