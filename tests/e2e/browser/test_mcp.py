"""A real MCP server in the panel, in a real browser: a file is written only after the click."""

import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from lhkit.harness.results.results import Run
from tests.e2e.browser.reading import OLD_MS
from tests.mcp.conftest import SMALL_SERVER
from tests.node_servers import server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

PANEL = """
import os
from lhkit import McpToolset, ScriptedModel
from lhkit.models.recorded.scripted import call, say
from lhkit.notebook import ChatPanel
files = McpToolset(server={server!r}, reads=["read_text_file"], start_s=120)
turn = [call("write_file", path={path!r}, content="rent"), say("That was it.")]
panel = ChatPanel(model=ScriptedModel(turn * 9), toolset=files, locale="en", opt_in=True,
                  record={record!r})
panel
"""
MEMORY = """
import os
from lhkit import McpToolset, ScriptedModel
from lhkit.mcp.launch import Launch
from lhkit.models.recorded.scripted import call, say
from lhkit.notebook import ChatPanel
memory = McpToolset(
    server=Launch(command={server!r}, env={{"MEMORY_FILE_PATH": {file!r}}}),
    reads=["read_graph"], start_s=120)
kim = {{"name": "Kim", "entityType": "person", "observations": ["likes tea"]}}
turn = [call("create_entities", entities=[kim]), say("That was it.")]
look = [call("read_graph"), say("There is Kim.")]
panel = ChatPanel(
    model=ScriptedModel([*turn, *turn, *look]), toolset=memory, locale="en", opt_in=True)
panel
"""
WHO = "print('kernel', os.getpid())"

OpenNotebook = Callable[..., Page]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder that the server may work in."""
    made = tmp_path / "notes"
    made.mkdir()
    return made


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Return the folder of the record."""
    return tmp_path / "chats"


@pytest.fixture
def open_panel(open_notebook: OpenNotebook, folder: Path, record: Path) -> OpenNotebook:
    """Return a function that opens a panel over the server, and a cell with the kernel's id."""
    words = shlex.join([sys.executable, str(SMALL_SERVER), str(folder / "ledger.txt")])
    path = str(folder / "note.txt")
    cell = PANEL.format(server=words, path=path, record=str(record))

    def opened(**options: bool) -> Page:
        page = open_notebook(cell, WHO, **options)
        expect(page.locator(".jp-CodeCell").nth(1)).to_contain_text("kernel")
        return page

    return opened


def open_card(page: Page, tool: str = "write_file", names: str = "note.txt") -> Locator:
    """Ask for a write, and return the card, old enough to be pressed."""
    expect(page.locator(".lhkit-send")).to_be_enabled(timeout=120_000)
    page.locator(".lhkit-input").press_sequentially("Write it down")
    page.locator(".lhkit-input").press("Enter")
    card = page.locator(".lhkit-confirm").last
    expect(card).to_have_attribute("data-state", "open")
    expect(card).to_contain_text(tool)
    expect(card).to_contain_text(names)
    page.wait_for_timeout(OLD_MS)
    return card


def kernel_of(page: Page) -> psutil.Process:
    output = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output").inner_text()
    return psutil.Process(int(output.split()[-1]))


def servers_of(kernel: psutil.Process) -> list[psutil.Process]:
    return [
        each for each in kernel.children(recursive=True) if SMALL_SERVER.name in str(each.cmdline())
    ]


def test_mcp_card_cancel_escape_run_and_a_killed_server(
    open_panel: OpenNotebook, folder: Path, shots: Path
) -> None:
    page = open_panel()
    open_card(page).locator(".lhkit-cancel").click()
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "cancelled")
    open_card(page)
    page.keyboard.press("Escape")
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "cancelled")
    assert list(folder.iterdir()) == []
    open_card(page)
    page.screenshot(path=shots / "mcp-card.png")
    assert list(folder.iterdir()) == []
    page.locator(".lhkit-run").click()
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "ok")
    (note,) = folder.iterdir()
    assert note.read_text(encoding="utf-8") == "rent"
    note.unlink()
    open_card(page)
    for child in servers_of(kernel_of(page)):
        child.kill()
        child.wait(60)
    page.locator(".lhkit-run").click()
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "error")
    assert list(folder.iterdir()) == []


def answers(record: Path) -> list[str]:
    """Return the answers to the recorded cards."""
    records = Run.load(record).records if record.exists() else ()
    turns = [turn for record in records for turn in record.trajectory.turns]
    return [call.answer for turn in turns for call in turn.calls]


@pytest.mark.nightly
def test_mcp_card_stays_open_when_the_tab_closes_and_not_when_the_panel_does(
    open_panel: OpenNotebook, folder: Path, record: Path, context: BrowserContext
) -> None:
    page = open_panel(anew=True)
    open_card(page)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    address = page.url.replace("?reset", "")
    page.close(run_before_unload=False)
    again = context.new_page()
    again.goto(address, wait_until="domcontentloaded")
    card = again.locator(".lhkit-confirm").last
    expect(card).to_have_attribute("data-state", "open")
    assert list(folder.iterdir()) == []
    assert answers(record) == []
    expect(again.locator(".lhkit-chat:not(.lhkit-deaf)")).to_be_visible()  # the kernel answers
    card.locator(".lhkit-run").focus()
    again.keyboard.press("Escape")
    expect(card).to_have_attribute("data-state", "denied")
    expect(again.locator(".lhkit-send")).to_be_enabled()
    assert answers(record) == ["escape"]
    open_card(again)
    again.evaluate("""() => {
        window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0;
        window.jupyterapp.commands.execute('notebook:clear-cell-output');
    }""")
    expect(again.locator(".lhkit-chat")).to_have_count(0)
    pause = threading.Event()
    while len(seen := answers(record)) < 2:  # saved when the turn is over
        pause.wait(0.1)
    assert seen == ["escape", "closed"]
    assert list(folder.iterdir()) == []
    again.close()


@pytest.mark.nightly
def test_mcp_memory_server_writes_only_after_run(
    open_notebook: OpenNotebook, tmp_path: Path
) -> None:
    file = tmp_path / "memory.jsonl"
    page = open_notebook(MEMORY.format(server=server("memory"), file=str(file)))
    open_card(page, "create_entities", "likes tea").locator(".lhkit-cancel").click()
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "cancelled")
    assert not file.exists() or file.read_text(encoding="utf-8") == ""
    card = open_card(page, "create_entities", "likes tea")
    assert not file.exists() or file.read_text(encoding="utf-8") == ""
    card.locator(".lhkit-run").click()
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "ok")
    assert json.loads(file.read_text(encoding="utf-8"))["name"] == "Kim"
    expect(page.locator(".lhkit-send")).to_be_enabled()
    page.locator(".lhkit-input").press_sequentially("Who is there?")
    page.locator(".lhkit-input").press("Enter")
    expect(page.locator('[data-role="tool"]')).to_have_count(3)  # a read asks no confirmation
    expect(page.locator(".lhkit-confirm")).to_have_count(2)
    expect(page.locator('[data-role="tool"]').last.locator("pre").last).to_contain_text("Kim")


@pytest.mark.nightly
def test_mcp_kernel_kill_ends_the_server(open_panel: OpenNotebook, folder: Path) -> None:
    page = open_panel()
    open_card(page)
    kernel = kernel_of(page)
    (child,) = servers_of(kernel)
    os.kill(kernel.pid, signal.SIGKILL)
    _, left = psutil.wait_procs([kernel, child], timeout=60)
    assert left == []
    assert list(folder.iterdir()) == []
