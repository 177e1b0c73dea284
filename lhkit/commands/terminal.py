"""A chat in a terminal: streams words, shows a line a tool call, asks y/N before a write.

Only shows and reads: the conversation itself is the controller's. All model text, tool names and
data are untrusted and shown without control characters.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, assert_never

from rich.console import Console
from rich.text import Text

from lhkit.chat.controller import ChatController
from lhkit.locales import Catalog
from lhkit.vocab.events import (
    CallSettled,
    ChatEvent,
    EndReason,
    HintAdded,
    ModelFinished,
    TextStreamed,
    TurnEnded,
)
from lhkit.vocab.json_values import NotJsonError, compact
from lhkit.vocab.messages import ToolCallMessage
from lhkit.vocab.printable import printable
from lhkit.vocab.results import ToolCancelled, ToolErr, ToolOk, ToolResult

LineReader: TypeAlias = Callable[[str], Awaitable[str]]
"""Shows a prompt and returns one line.

Raises EOFError at the end of input, KeyboardInterrupt on Ctrl-C.
"""

_SHOWN_ARGS_CHARS = 100


class TerminalChat:
    """Runs a conversation until the user ends it."""

    def __init__(
        self, controller: ChatController, *, read: LineReader, console: Console, catalog: Catalog
    ) -> None:
        self._controller = controller
        self._read = read
        self._console = console
        self._catalog = catalog
        self._is_mid_line = False

    async def run(self, *, model_name: str) -> None:
        """Read, answer, repeat; returns at /quit or the end of input."""
        unsubscribe = self._controller.subscribe(self._show)
        self._line(self._catalog.text("terminal.welcome", model=model_name), style="dim")
        try:
            while await self._one_line():
                pass
        finally:
            unsubscribe()
        self._line(self._catalog.text("terminal.bye"), style="dim")

    async def _one_line(self) -> bool:
        try:
            line = await self._read(f"{self._catalog.text('terminal.you')}> ")
        except EOFError:
            return False
        except KeyboardInterrupt:
            return True
        if line.strip().startswith("/"):
            return await self._command(line.strip())
        with _stops_on_interrupt(self._controller):
            await self._controller.user_turn(line)
        return True

    async def _command(self, command: str) -> bool:
        match command:
            case "/quit":
                return False
            case "/clear":
                self._controller.clear()
                self._line(self._catalog.text("terminal.cleared"), style="dim")
            case "/retry":
                with _stops_on_interrupt(self._controller):
                    await self._controller.retry()
            case "/help":
                self._line(self._catalog.text("terminal.help"))
            case _:
                self._line(self._catalog.text("terminal.unknown_command", command=command))
        return True

    def _show(self, event: ChatEvent) -> None:
        match event:
            case TextStreamed(text=text):
                self._console.print(Text(printable(text)), end="", soft_wrap=True)
                self._is_mid_line = True
            case ModelFinished():
                self._end_line()
            case CallSettled(message=message, trace=trace):
                self._show_call(message, trace.handler_s if trace else 0.0)
            case HintAdded(message=hint):
                self._line(hint.text, style="yellow")
            case TurnEnded(reason=reason, error=error, detail=detail):
                self._show_end(reason, error, detail)
            case _:
                pass

    def _show_call(self, message: ToolCallMessage, handler_s: float) -> None:
        self._end_line()
        outcome, style = self._outcome(message.result)
        name = message.name or "?"
        line = f"  ⚙ {name} {_short(message)} → {outcome} ({handler_s * 1000:.0f} ms)"
        self._line(line, style=style)

    def _outcome(self, result: ToolResult) -> tuple[str, str]:
        match result:
            case ToolOk():
                return self._catalog.text("terminal.tool_ok"), "green"
            case ToolErr(code=code, reason=reason):
                text = self._catalog.text("terminal.tool_error", code=code)
                return f"{text}: {reason}", "yellow"
            case ToolCancelled():
                return self._catalog.text("terminal.tool_cancelled"), "yellow"
            case _:
                assert_never(result)

    def _show_end(self, reason: EndReason, error: str | None, detail: str | None) -> None:
        self._end_line()
        if error is not None:
            self._line(error, style="red")
        if detail is not None:
            self._line(detail, style="dim")
        if reason is EndReason.STOPPED:
            self._line(self._catalog.text("chat.stopped"), style="dim")

    def _line(self, text: str, *, style: str = "") -> None:
        self._console.print(Text(printable(text), style=style), soft_wrap=True)

    def _end_line(self) -> None:
        if self._is_mid_line:
            self._console.print()
            self._is_mid_line = False


@contextmanager
def _stops_on_interrupt(controller: ChatController) -> Iterator[None]:
    """Let Ctrl-C stop the answer instead of the program, where the loop supports it."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, controller.stop)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _short(message: ToolCallMessage) -> str:
    try:
        text = compact(message.args) if message.name else message.raw
    except NotJsonError:
        text = message.raw
    return text if len(text) <= _SHOWN_ARGS_CHARS else text[:_SHOWN_ARGS_CHARS] + "…"
