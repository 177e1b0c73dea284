"""Two notebooks in two tabs, with a panel each, on one chat database."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.written import habits

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

ADD = "카페인 줄이는 습관을 추가해줘"
PANEL = "from lhkit.notebook import demo_panel\npanel = demo_panel({path!r})\npanel"
EARLY_MS = 500
"""A card cannot be pressed before it has been there for a moment."""

OpenNotebook = Callable[..., Page]


def asked(page: Page) -> None:
    """Ask for a habit and wait for the question."""
    page.locator(".lhkit-input").fill(ADD)
    page.locator(".lhkit-send").click()
    expect(page.locator(".lhkit-confirm").last).to_have_attribute("data-state", "open")
    page.wait_for_timeout(EARLY_MS)


def test_two_notebooks_confirm_separately(
    open_notebook: OpenNotebook, tmp_path: Path, shots: Path
) -> None:
    database = tmp_path / "habits.sqlite3"
    one, other = (open_notebook(PANEL.format(path=str(database))) for _ in range(2))
    for page in (one, other):
        asked(page)
    assert habits(database) == []
    one.locator(".lhkit-run").click()
    expect(one.locator(".lhkit-confirm").last).to_have_attribute("data-state", "allowed")
    expect(one.locator(".lhkit-send")).to_be_enabled()
    assert len(habits(database)) == 1
    expect(other.locator(".lhkit-confirm").last).to_have_attribute("data-state", "open")
    other.locator(".lhkit-run").click()
    expect(other.locator(".lhkit-confirm").last).to_have_attribute("data-state", "allowed")
    expect(other.locator(".lhkit-send")).to_be_enabled()
    other.screenshot(path=shots / "two-notebooks.png")
    assert len(habits(database)) == 1
