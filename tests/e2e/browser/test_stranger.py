"""What a stranger does by accident: no row without a meant click, no word lost, no dead panel."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.browser.conftest import Lab, path_of
from tests.e2e.browser.reading import OLD_MS
from tests.written import habits

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

ADD = "카페인 줄이는 습관을 추가해줘"
DEMO = "from lhkit.notebook import demo_panel\npanel = demo_panel({path!r})\npanel"
TURN_ENDED = """import asyncio
while panel.is_busy: await asyncio.sleep(0.1)
print("ended:", panel.state.items[-1])"""
TYPING_PAUSE_MS = 600  # slower than a card is young

OpenNotebook = Callable[..., Page]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "habits.sqlite3"


def command(page: Page, name: str) -> None:
    page.evaluate("name => { window.jupyterapp.commands.execute(name); }", name)


def ask(panel: Locator) -> Locator:
    """Ask for a habit and return the card, old enough to be pressed."""
    panel.locator(".lhkit-input").fill(ADD)
    panel.locator(".lhkit-send").click()
    card = panel.locator('.lhkit-confirm[data-state="open"]')
    expect(card).to_be_visible()
    panel.page.wait_for_timeout(OLD_MS)
    return card


def test_cell_shortcuts_interrupt_and_restart_approve_nothing_and_lose_no_word(
    open_notebook: OpenNotebook, database: Path, shots: Path
) -> None:
    page = open_notebook(DEMO.format(path=str(database)))
    panel = page.locator(".lhkit-chat")
    card = ask(panel)
    expect(card.locator(".lhkit-run")).to_be_focused()
    for keys in ("Shift+Enter", "Control+Enter", "Alt+Enter", "Shift+ "):
        page.keyboard.press(keys)
    page.wait_for_timeout(300)
    expect(card).to_be_visible()
    command(page, "notebook:interrupt-kernel")
    expect(panel.locator(".lhkit-confirm")).to_contain_text("커널을 중단")
    expect(panel.locator(".lhkit-send")).to_be_enabled()
    assert habits(database) == []
    panel.locator(".lhkit-input").fill("안녕")
    panel.locator(".lhkit-send").click()
    expect(panel.locator('[data-role="assistant"]').last).to_contain_text("안녕하세요")
    card = ask(panel)
    kernel = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
    page.evaluate(f"() => {{ {kernel}.restart(); }}")
    expect(panel.locator(".lhkit-status")).to_contain_text("셀을 다시 실행하세요")
    card.locator(".lhkit-run").click()
    panel.locator(".lhkit-input").fill("아직 안 보낸 글")
    panel.locator(".lhkit-input").press("Enter")
    expect(panel.locator(".lhkit-input")).to_have_value("아직 안 보낸 글")
    expect(panel.locator(".lhkit-send")).to_be_disabled()
    page.screenshot(path=shots / "restarted.png")
    assert habits(database) == []


def test_card_does_not_steal_focus(open_notebook: OpenNotebook, database: Path) -> None:
    two = f"a, b = (demo_panel({str(database)!r}) for _ in range(2))\n"
    page = open_notebook("from lhkit.notebook import demo_panel\n" + two + "a", "b", "x = 1")
    first, second = (page.locator(".lhkit-chat").nth(each) for each in (0, 1))
    expect(second).to_be_visible()
    editor = page.locator(".jp-CodeCell .cm-content").nth(2)
    first.locator(".lhkit-input").fill(ADD)
    first.locator(".lhkit-send").click()
    editor.click()
    page.keyboard.type("abc", delay=100)
    expect(first.locator(".lhkit-run")).to_be_visible()
    for key in ("x", "Enter", "y", " "):
        page.wait_for_timeout(TYPING_PAUSE_MS)
        page.keyboard.press(key)
    expect(editor).to_be_focused()
    assert habits(database) == []
    run = first.locator(".lhkit-run")
    run.focus()
    second.locator(".lhkit-send").evaluate("send => { window.send = send; }")
    second.locator(".lhkit-input").evaluate("(box, text) => { box.value = text; }", ADD)
    page.evaluate("() => window.send.click()")
    expect(second.locator(".lhkit-run")).to_be_visible()
    page.wait_for_timeout(500)
    expect(run).to_be_focused()
    page.keyboard.press("Enter")
    expect(first.locator(".lhkit-confirm")).to_have_attribute("data-state", "allowed")
    expect(second.locator(".lhkit-confirm")).to_have_attribute("data-state", "open")
    ids = page.locator(".lhkit-title").evaluate_all("titles => titles.map(each => each.id)")
    assert len(set(ids)) == len(ids)


@pytest.mark.nightly
def test_panel_in_two_tabs(open_notebook: OpenNotebook, database: Path, lab: Lab) -> None:
    slow = DEMO.replace(")", ", pace_s=0.3)")  # its story takes half a minute
    page = open_notebook(slow.format(path=str(database)), "")
    expect(page.locator(".lhkit-input")).to_be_visible()
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    other = page.context.new_page()
    other.goto(f"{lab.url}/lab/workspaces/other/tree/{path_of(page)}?reset")
    expect(other.locator(".lhkit-send")).to_be_enabled(timeout=40_000)
    for tab, text in ((page, "긴 이야기 하나 해줘"), (other, "둘째 탭의 글")):
        tab.locator(".lhkit-input").fill(text)
    for tab in (page, other):
        tab.locator(".lhkit-send").evaluate("send => send.click()")
    expect(other.locator('[data-role="user"]')).to_have_text(["나긴 이야기 하나 해줘"])
    expect(other.locator(".lhkit-input")).to_have_value("둘째 탭의 글")
    other.close()  # without a word
    page.bring_to_front()
    page.locator(".lhkit-stop").click()
    expect(page.locator(".lhkit-send")).to_be_enabled()
    ask(page.locator(".lhkit-chat"))
    page.evaluate("""() => {
        window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0;
        window.jupyterapp.commands.execute('notebook:clear-cell-output');
    }""")
    page.locator(".jp-CodeCell .cm-content").nth(1).click()
    page.wait_for_timeout(3_000)  # as long as a page may take to show itself
    page.keyboard.insert_text(TURN_ENDED)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".jp-OutputArea-output").last).to_contain_text("ended: ")
    assert habits(database) == []
