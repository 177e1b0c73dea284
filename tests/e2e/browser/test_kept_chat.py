"""A recorded chat in a real JupyterLab: its notice, and a kernel kill."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from lhkit.harness.results import Run
from lhkit.locales import load_catalog
from tests.e2e.browser.test_access import LOW_CONTRAST

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

EARLY_MS = 400

CELL = """
import os
from lhkit.notebook import demo_panel
panel = demo_panel(locale={locale!r}, pace_s=0, record={folder!r})
print(os.getpid())
panel
"""

OpenNotebook = Callable[..., Page]


def say(page: Page, text: str) -> None:
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.locator(".lhkit-input").fill(text)
    page.keyboard.press("Enter")


@pytest.mark.parametrize(
    ("theme", "locale"), [("Light", "en"), ("Dark", "ko")], ids=["light", "dark"]
)
def test_record_notice_is_readable_in_both_themes(
    open_notebook: OpenNotebook, tmp_path: Path, shots: Path, theme: str, locale: str
) -> None:
    cell = CELL.format(folder=str(tmp_path / "chats"), locale=locale)
    page = open_notebook(cell, theme=f"JupyterLab {theme}")
    note = page.locator('.lhkit-message[data-role="system"]')
    words = load_catalog(locale).text("notebook.kept", folder=tmp_path / "chats")
    expect(note).to_have_text(words)
    violations = Axe().run(page, context=".lhkit-chat").response["violations"]
    assert [each["id"] for each in violations if each["impact"] in {"serious", "critical"}] == []
    assert page.evaluate(LOW_CONTRAST) == {}
    page.locator(".lhkit-chat").screenshot(path=shots / f"kept-note-{theme.lower()}.png")


def test_record_survives_kernel_kill(open_notebook: OpenNotebook, tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    page = open_notebook(CELL.format(folder=str(folder), locale="en"))
    say(page, "Add a habit to cut caffeine")
    expect(page.locator('.lhkit-confirm[data-state="open"]')).to_be_visible()
    page.wait_for_timeout(EARLY_MS + 100)
    page.keyboard.press("Enter")
    expect(page.locator(".lhkit-confirm")).to_have_attribute("data-state", "allowed")
    say(page, "Add a habit to sleep")
    expect(page.locator('.lhkit-confirm[data-state="open"]')).to_be_visible()  # in mid-turn
    os.kill(int(page.locator(".jp-OutputArea-output pre").first.inner_text()), signal.SIGKILL)
    expect(page.locator(".lhkit-status")).to_contain_text("restarted")
    (record,) = Run.load(folder).records
    (turn,) = record.evidence.turns
    assert turn.user == "Add a habit to cut caffeine"
    assert [(each.tool, each.answer, each.ran) for each in turn.calls if each.destructive] == [
        ("add_habit", "run", True)
    ]
