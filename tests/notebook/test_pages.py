"""Several pages on one kernel, pages that are gone, and Jupyter's Interrupt."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lhkit.confirm.decision import QuestionOutcome
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.tool_results import ToolCancelled
from lhkit.models.recorded.scripted import call, say
from lhkit.notebook.panel.panel import ChatPanel

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

MakePanel = Callable[..., ChatPanel]
MakeFrontEnd = Callable[[Any], Any]

WRITES = (call("write", a=1), say("done"))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Callable[[ChatPanel], list[Any]]:
    def recorded(panel: ChatPanel) -> list[Any]:
        messages: list[Any] = []
        monkeypatch.setattr(panel.widget, "send", messages.append)
        return messages

    return recorded


async def test_pages_return_unsent_text(
    make_panel: MakePanel, front_end: MakeFrontEnd, sent: Callable[[ChatPanel], list[Any]]
) -> None:
    panel = make_panel([say("hello")])
    page, messages = front_end(panel), sent(panel)
    page.press("send", text="first", view="page")
    page.press("send", text="second", view="other")
    await page.until(lambda: panel.state.has_figures and not panel.is_busy)
    sent_texts = [item.text for item in panel.state.items if isinstance(item, UserMessage)]
    assert sent_texts == ["first"]
    back = [each for each in messages if each["type"] == "unsent"]
    assert back == [{"type": "unsent", "view": "other", "text": "second"}]


async def test_pages_report_again_when_one_closes(
    make_panel: MakePanel, front_end: MakeFrontEnd, sent: Callable[[ChatPanel], list[Any]]
) -> None:
    panel = make_panel([say("hello")])
    page, messages = front_end(panel), sent(panel)
    page.press("ready", view="reloaded")  # without a "gone" of the old page
    page.press("gone", view="reloaded")
    assert {"type": "roll_call"} in messages
    assert not page.screen.is_watched
    page.press("ready", view="page")
    assert page.screen.is_watched
    assert messages[-1] == {"type": "here"}


@pytest.fixture
def idle_kernel() -> Iterator[None]:
    """Ignore the signal, as a kernel does while no cell runs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("idle_kernel")
async def test_interrupt_ends_a_turn_started_by_a_button(
    make_panel: MakePanel, front_end: MakeFrontEnd
) -> None:
    panel = make_panel(WRITES)
    page = front_end(panel)
    page.press("send", text="write it", view="page")
    await page.until_asked()
    os.kill(os.getpid(), signal.SIGINT)
    await page.until(lambda: not panel.is_busy)
    assert panel._gate.outcomes == [QuestionOutcome.INTERRUPTED]
    calls = [item for item in panel.state.items if hasattr(item, "result")]
    assert isinstance(calls[0].result, ToolCancelled)


@pytest.mark.usefixtures("idle_kernel")
async def test_interrupt_handler_is_left_to_a_running_cell(
    make_panel: MakePanel, front_end: MakeFrontEnd
) -> None:
    panel = make_panel(WRITES)
    page = front_end(panel)
    page.press("send", text="write it", view="page")
    await page.until_asked()
    own = signal.signal(signal.SIGINT, signal.default_int_handler)  # a cell begins
    page.answer("cancel")
    await page.until(lambda: not panel.is_busy)
    await asyncio.sleep(0)
    assert signal.signal(signal.SIGINT, own) is signal.default_int_handler  # and ends
    os.kill(os.getpid(), signal.SIGINT)  # as dead as if ignored
    signal.signal(signal.SIGINT, signal.SIG_IGN)
