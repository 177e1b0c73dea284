"""A saved notebook keeps the conversation, for viewers without a kernel."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.conftest import Lab, _end_kernels, close_notebook, open_again, save
from tests.e2e.browser.reading import OLD_MS
from tests.e2e.browser.test_ab import cell as ab_cell

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

DEMO = 'from lhkit.notebook import demo_panel\npanel = demo_panel(locale="en", pace_s=0)\npanel'
ADD = "Add a habit to cut caffeine"

OpenNotebook = Callable[..., Page]


def say(page: Page, text: str) -> None:
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.locator(".lhkit-input").fill(text)
    page.locator(".lhkit-send").click()


def saved(page: Page, lab: Lab) -> Path:
    """Save the notebook of a page, and return its file."""
    return lab.folder / save(page)


def copy_in(file: Path) -> dict[str, Any]:
    """Return the output of the first cell that keeps the conversation."""
    first, second = nbformat.read(file, as_version=4).cells[0].outputs[-2:]
    assert first.data["text/plain"].startswith(("ChatPanel(", "ABPanel("))
    return dict(second.data)


def test_saved_notebook_keeps_the_conversation_with_and_without_a_kernel(
    open_notebook: OpenNotebook, browser: Browser, lab: Lab, shots: Path
) -> None:
    page = open_notebook(DEMO)
    say(page, ADD)
    card = page.locator('.lhkit-confirm[data-state="open"]')
    expect(card).to_be_visible()
    expect(page.locator(".lhkit-saved")).to_contain_text("Not answered")
    assert "Not answered" in copy_in(saved(page, lab))["text/html"]
    page.wait_for_timeout(OLD_MS)
    card.locator(".lhkit-run").click()
    expect(page.locator(".lhkit-live .lhkit-truth")).to_contain_text("Changed: habits +1")
    page.locator(".lhkit-input").type("not sent yet")
    expect(page.locator(".lhkit-chat")).to_have_count(1)
    expect(page.locator(".lhkit-saved")).to_contain_text("Changed: habits +1")
    expect(page.locator(".lhkit-saved")).to_be_hidden()
    file = saved(page, lab)
    kept = copy_in(file)
    for words in (ADD, "Changed: habits +1", "Done"):
        assert words in kept["text/html"]
        assert words in kept["text/plain"]
    assert "Not answered" not in kept["text/html"]
    assert "<button" not in kept["text/html"]
    expect(page.locator(".lhkit-input")).to_have_value("not sent yet")
    expect(page.locator(".lhkit-input")).to_be_focused()
    close_notebook(page)

    _end_kernels(lab)
    open_again(page, file.name)
    expect(page.locator(".lhkit-saved")).to_be_visible()
    expect(page.locator(".lhkit-saved")).to_contain_text("Changed: habits +1")
    expect(page.get_by_text("model not found")).to_be_hidden()
    page.screenshot(path=shots / "saved-lab.png")

    without_scripts = browser.new_context(java_script_enabled=False)
    html, _ = HTMLExporter().from_filename(str(file))
    reader = without_scripts.new_page()
    reader.set_content(html)
    expect(reader.locator(".lhkit-saved")).to_contain_text("Changed: habits +1")
    expect(reader.get_by_text("ChatPanel(model=")).to_be_hidden()
    assert reader.locator(".lhkit-saved button, .lhkit-saved input").count() == 0
    reader.screenshot(path=shots / "saved-nbconvert.png", full_page=True)
    without_scripts.close()


@pytest.mark.nightly
def test_saved_notebook_keeps_turns_after_the_page_was_reloaded(
    open_notebook: OpenNotebook, lab: Lab
) -> None:
    page = open_notebook(DEMO, anew=True)
    say(page, "Hello there")
    expect(page.locator('[data-role="assistant"]')).to_have_count(1)
    expect(page.locator(".lhkit-saved")).to_contain_text("Hello there")
    saved(page, lab)
    page.goto(page.url.replace("?reset", ""), wait_until="domcontentloaded")
    expect(page.locator(".lhkit-live")).to_be_visible()
    say(page, "List my habits")
    expect(page.locator('[data-role="assistant"]')).to_have_count(2)
    expect(page.locator(".lhkit-send")).to_be_enabled()
    expect(page.locator(".lhkit-saved")).to_contain_text("List my habits")
    kept = copy_in(saved(page, lab))
    assert "List my habits" in kept["text/html"]
    assert "List my habits" in kept["text/plain"]


@pytest.mark.nightly
def test_saved_notebook_keeps_both_conversations_of_an_ab_panel(
    open_notebook: OpenNotebook, lab: Lab, tmp_path: Path
) -> None:
    page = open_notebook(ab_cell(tmp_path / "votes"))
    expect(page.locator(".lhkit-sides .lhkit-live")).to_have_count(2)
    page.locator(".lhkit-input").fill("Hello there")
    page.locator(".lhkit-send").click()
    expect(page.locator(".lhkit-votes button").first).to_be_enabled()
    expect(page.locator(".lhkit-saved .lhkit-truth")).to_have_count(2)
    expect(page.locator(".lhkit-saved")).to_be_hidden()
    html = copy_in(saved(page, lab))["text/html"]
    assert html.count("Hello there") == 2
    assert html.count("<h4>") == 2
    assert "bare" not in html, "blind"
