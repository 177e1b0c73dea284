"""The panel in a real JupyterLab, driven by a real browser."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.browser.reading import each_theme, hold_focus, stopped_clock
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
    box = page.locator(".lhkit-input")
    box.click()
    box.press_sequentially(text)
    box.press("Enter")


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


def test_card_run_writes_the_row(page: Page, database: Path, shots: Path) -> None:
    say(page, ADD)
    expect(card(page)).to_have_attribute("data-state", "open")
    expect(card(page)).to_contain_text("카페인")
    expect(page.get_by_role("alertdialog", name="이 작업을 실행할까요?")).to_be_visible()
    expect(page.locator(".lhkit-run")).to_be_focused()
    assert habits(database) == []
    page.screenshot(path=shots / "card-open-light.png")
    page.wait_for_timeout(EARLY_MS)
    page.locator(".lhkit-run").dblclick()  # two quick clicks write once
    expect(card(page)).to_have_attribute("data-state", "allowed")
    expect(card(page)).to_contain_text("실행함")
    expect(answer(page)).to_contain_text("맞춰 해 보세요!")
    assert habits(database) == ["caffeine-cutoff"]
    expect(page.locator(".lhkit-run")).to_have_count(0)
    assert page.locator('[data-role="tool"][data-status="ok"]').count() == 2
    for theme in each_theme(page):
        page.locator(".lhkit-chat").screenshot(path=shots / f"panel-{theme}.png")
    say(page, "오늘 카페인 지켰어, 기록해줘")
    expect(card(page)).to_have_attribute("data-state", "open")
    page.screenshot(path=shots / "conversation-dark.png")


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


@pytest.mark.nightly
def test_card_of_a_page_loaded_again_writes_after_its_click(
    open_notebook: OpenNotebook, database: Path
) -> None:
    page = open_notebook(DEMO.format(path=str(database)), anew=True)
    open_card(page)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.goto(page.url.replace("?reset", ""), wait_until="domcontentloaded")
    expect(card(page)).to_have_attribute("data-state", "open")
    expect(page.locator('[data-role="user"]').last).to_have_text("나카페인 줄이는 습관을 추가해줘")
    page.wait_for_timeout(EARLY_MS + 300)
    assert habits(database) == []
    page.locator(".lhkit-run").scroll_into_view_if_needed()
    page.locator(".lhkit-run").click()
    expect(card(page)).to_have_attribute("data-state", "allowed")
    expect(answer(page)).to_contain_text("맞춰 해 보세요!")
    assert habits(database) == ["caffeine-cutoff"]


def test_keyboard_in_input_and_card(page: Page, database: Path) -> None:
    box = page.locator(".lhkit-input")
    hold_focus(box)
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

    with stopped_clock(page):
        say(page, ADD)
        run = page.locator(".lhkit-run")
        expect(run).to_be_focused()
        page.keyboard.press("Enter")  # a stray one, typed on while the card is young
        page.keyboard.press(" ")
        run.click()
        page.keyboard.down("Enter")
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


def test_stop_and_other_buttons(open_notebook: OpenNotebook, database: Path, shots: Path) -> None:
    page = open_notebook(SLOW_DEMO.format(path=str(database)))
    say(page, "긴 이야기 하나 해줘")
    expect(page.locator("[data-live]")).to_contain_text("작은 습관")
    page.locator(".lhkit-stop").click()
    expect(page.locator(".lhkit-ending")).to_contain_text("멈췄습니다")
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
    expect(answer(page).locator('[data-action="copy"]')).to_have_text("복사했습니다")
    assert page.evaluate("() => navigator.clipboard.readText()").startswith("작은 습관")
    page.locator(".lhkit-locale").select_option("en")
    expect(page.locator(".lhkit-send")).to_have_text("Send")
    page.locator(".lhkit-clear").click()
    expect(page.locator(".lhkit-message")).to_have_text(
        ["The conversation is cleared. This is a new start."]
    )


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


def test_examples_fill_the_input_and_send_nothing(page: Page) -> None:
    examples, box = page.locator(".lhkit-example"), page.locator(".lhkit-input")
    expect(examples).to_have_count(3)
    examples.nth(2).click()
    expect(box).to_have_value("내 습관 목록 보여줘")
    expect(box).to_be_focused()
    assert page.locator('[data-role="user"]').count() == 0
    examples.nth(0).click()  # another example takes its place
    expect(box).to_have_value(ADD)
    box.press("End")
    page.keyboard.type(", 부탁해")
    examples.nth(1).click()  # typed words stay
    expect(box).to_have_value(f"{ADD}, 부탁해")
    box.fill("")
    page.locator(".lhkit-locale").select_option("en")
    expect(examples.nth(0)).to_have_text("Add a habit to cut caffeine")
    examples.nth(2).click()
    box.press("Enter")
    expect(page.locator('[data-role="user"]')).to_contain_text("List my habits")
