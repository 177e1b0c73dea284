"""A real MCP server in the panel, in a real browser: a file is written only after the click."""

import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.node_servers import server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

PANEL = """
import os
from lhkit import McpToolset, ScriptedModel
from lhkit.models.scripted import call, say
from lhkit.notebook import ChatPanel
files = McpToolset(server={server!r}, reads=["read_text_file", "list_directory"], start_s=120)
turn = [call("write_file", path={path!r}, content="rent"), say("That was it.")]
panel = ChatPanel(model=ScriptedModel(turn * 9), toolset=files, locale="en", opt_in=True)
panel
"""
WHO = "print('kernel', os.getpid())"
OLD_MS = 500  # a card is young for 400

OpenNotebook = Callable[..., Page]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder that the server may work in."""
    made = tmp_path / "notes"
    made.mkdir()
    return made


@pytest.fixture
def page(open_notebook: OpenNotebook, folder: Path) -> Page:
    words = shlex.join([server("filesystem"), str(folder)])
    opened = open_notebook(PANEL.format(server=words, path=str(folder / "note.txt")), WHO)
    expect(opened.locator(".jp-CodeCell").nth(1)).to_contain_text("kernel", timeout=120_000)
    return opened


def open_card(page: Page) -> Locator:
    """Ask for a file, and return the card, old enough to be pressed."""
    expect(page.locator(".lhkit-stop")).to_be_disabled()
    page.locator(".lhkit-input").click()
    page.keyboard.type("Write it down")
    page.keyboard.press("Enter")
    card = page.locator(".lhkit-confirm").last
    expect(card).to_have_attribute("data-state", "open")
    expect(card).to_contain_text("write_file")
    expect(card).to_contain_text("note.txt")
    page.wait_for_timeout(OLD_MS)
    return card


def kernel_of(page: Page) -> psutil.Process:
    told = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output").inner_text()
    return psutil.Process(int(told.split()[-1]))


def servers_of(kernel: psutil.Process) -> list[psutil.Process]:
    return [each for each in kernel.children(recursive=True) if "filesystem" in str(each.cmdline())]


@pytest.mark.promise("mcp.panel")
def test_cancel_and_escape_write_nothing_and_run_does(
    page: Page, folder: Path, shots: Path
) -> None:
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
    assert [each.read_text(encoding="utf-8") for each in folder.iterdir()] == ["rent"]


@pytest.mark.promise("mcp.panel")
def test_a_closed_tab_writes_nothing(page: Page, folder: Path) -> None:
    open_card(page)
    kernel = kernel_of(page)
    page.close(run_before_unload=False)
    psutil.wait_procs([kernel], timeout=10)  # long enough for the panel to see that nobody is there
    assert list(folder.iterdir()) == []


@pytest.mark.promise("mcp.panel")
def test_a_killed_kernel_writes_nothing_and_takes_its_server_along(
    page: Page, folder: Path
) -> None:
    open_card(page)
    kernel = kernel_of(page)
    (child,) = servers_of(kernel)
    os.kill(kernel.pid, signal.SIGKILL)
    _, left = psutil.wait_procs([kernel, child], timeout=60)
    assert left == []
    assert list(folder.iterdir()) == []


@pytest.mark.promise("mcp.panel")
def test_a_killed_server_writes_nothing_after_a_yes_and_says_so(page: Page, folder: Path) -> None:
    open_card(page)
    for child in servers_of(kernel_of(page)):
        child.kill()
        child.wait(60)
    page.locator(".lhkit-run").click()
    expect(page.locator('[data-role="tool"]').last).to_have_attribute("data-status", "error")
    assert list(folder.iterdir()) == []
