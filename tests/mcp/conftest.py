import shlex
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.confirm.form import Form, FormAction, FormAnswer, Typed, filled
from lhkit.confirm.gate import ConfirmGate, ConfirmRequest
from lhkit.conversation.messages import ToolCallOutcome
from lhkit.conversation.tool_results import ToolResult
from lhkit.mcp.toolset import McpToolset
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import Session
from tests.children import unused_port

LEDGER = Path(__file__).with_name("ledger.py")
SMALL_SERVER = Path(__file__).with_name("small_server.py")
"""A ledger without elicitation and the SDK, which starts at once."""

START_S = 120.0  # the machine may be busy: only a server that says nothing is one that hangs


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what starts a server."""
    for item in items:
        if {"command", "address"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the ledger is."""
    return tmp_path / "ledger.txt"


@pytest.fixture
def command(file: Path, commands: Path) -> str:
    """Return the command of the ledger's server."""
    return shlex.join([str(commands / "python"), str(LEDGER), str(file)])


@pytest.fixture
def ledger(command: str) -> Callable[..., McpToolset]:
    """Return a function that makes a toolset of the ledger."""

    def make(**options: Any) -> McpToolset:
        return McpToolset(server=command, start_s=START_S, **options)

    return make


@pytest.fixture
def address(file: Path, commands: Path) -> Iterator[str]:
    """Return the address of a ledger that is served by HTTP."""
    port = unused_port()
    child = subprocess.Popen([str(commands / "python"), str(LEDGER), str(file), str(port)])
    pause = threading.Event()
    try:
        while True:
            assert child.poll() is None
            with closing(socket.socket()) as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            pause.wait(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        child.kill()
        child.wait()


def written(file: Path) -> str:
    """Return the text of a file; empty if there is none."""
    return file.read_text(encoding="utf-8") if file.exists() else ""


class Person:
    """A gate that a person answers: so many times, then never again. It knows no forms."""

    is_person = True

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.asked: list[ConfirmRequest] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        self.asked.append(request)
        return self._answers.pop(0)


class Writer(Person):
    """A user who also fills in forms: the typed values, or the way to leave the form."""

    def __init__(self, *answers: bool, typed: Typed | FormAnswer) -> None:
        super().__init__(*answers)
        self._typed = typed
        self.forms: list[tuple[ConfirmRequest, Form]] = []

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        self.forms.append((request, form))
        if isinstance(self._typed, FormAnswer):
            return self._typed
        done = filled(form, {**form.typed, **self._typed}, load_catalog("en"))
        assert not done.errors
        return FormAnswer(action=FormAction.ACCEPT, content=done.values)


async def dispatched(
    session: Session, tool: str, gate: ConfirmGate | None = None, **args: Any
) -> ToolResult:
    """Return the result of a call."""
    return (await dispatch_traced(session, tool, gate, **args)).result


async def dispatch_traced(
    session: Session, tool: str, gate: ConfirmGate | None = None, **args: Any
) -> ToolCallOutcome:
    traces: list[ToolCallOutcome] = []
    await ToolDispatcher(session.registry).dispatch(tool, args, confirm=gate, observe=traces.append)
    return traces[0]
