"""Chat in a terminal: streams text and shows a line per tool call.

Model text, tool names and data are untrusted and shown without control characters.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import assert_never

from rich.console import Console
from rich.status import Status
from rich.text import Text

from lhkit.base.errors import LhkitError, UsageError
from lhkit.base.json_values import NotJsonError, compact
from lhkit.base.locales import Catalog
from lhkit.base.text import printable, visible
from lhkit.chat.controller import ChatController
from lhkit.chat.truth import TruthKind, claim_text, truth_lines
from lhkit.cli.frame.typed import LineReader
from lhkit.confirm.policy import PolicyGate
from lhkit.conversation.events import (
    CallCompleted,
    ChatEvent,
    EndReason,
    ModelCalled,
    TurnEnded,
)
from lhkit.conversation.messages import FalseReplyClaim, SystemMessage, ToolCallMessage
from lhkit.conversation.responses import Finished, TextDelta
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.harness.authoring.from_chat import scenario_from_chat
from lhkit.harness.chats.chats import ChatRecorder
from lhkit.harness.running.sessions import LiveSession

_MAX_ARGS_CHARS = 100
_INDENT = 4
_TRUTH_STYLES = {TruthKind.FAILED: "bold yellow"}


class TerminalChat:
    """Runs a conversation until the user quits.

    Args:
        controller: the conversation.
        live: the session of its tools.
        read: reads a line of the user.
        console: output.
        catalog: texts.
        now: clock for the names of saved chats.
        recorder: records the conversation, if the user asked for it.
        policy_gate: the policy of approvals, which applies again after /clear; None without one.
        notices: lines below the welcome.
        shows_reading: in a terminal, shows a moving line until the model's first text.
    """

    def __init__(
        self,
        controller: ChatController,
        live: LiveSession,
        *,
        read: LineReader,
        console: Console,
        catalog: Catalog,
        now: Callable[[], datetime],
        recorder: ChatRecorder | None = None,
        policy_gate: PolicyGate | None = None,
        notices: Sequence[str] = (),
        shows_reading: bool = True,
    ) -> None:
        self._controller = controller
        self._live = live
        self._read = read
        self._console = console
        self._catalog = catalog
        self._now = now
        self._recorder = recorder
        self._policy_gate = policy_gate
        self._notices = notices
        self._initial_state = live.world()
        self._is_mid_line = False
        self._shows_reading = shows_reading and console.is_terminal
        # a line that moves: the embedded model may read a first prompt for a minute
        self._reading = Status(catalog.text("chat.reading"), console=console)

    async def run(self, *, model_name: str) -> None:
        """Read and answer lines until /quit or the end of input, after a welcome."""
        self._print(self._catalog.text("terminal.welcome", model=model_name), style="dim")
        if self._recorder is not None:
            self._print(
                self._catalog.text("notebook.kept", folder=self._recorder.folder), style="dim"
            )
        for notice in self._notices:
            self._print(notice, style="bold")
        await self.converse()
        self._print(self._catalog.text("terminal.bye"), style="dim")

    async def converse(self) -> None:
        """Read and answer lines until /quit or the end of input."""
        unsubscribe = self._controller.subscribe(self._show)
        try:
            while await self._handle_line():
                pass
        finally:
            unsubscribe()

    async def _handle_line(self) -> bool:
        try:
            line = await self._read(f"{self._catalog.text('terminal.you')}> ")
        except EOFError:
            return False
        except KeyboardInterrupt:
            return True
        if line.strip().startswith("/"):
            return await self._run_command(line.strip())
        with _stop_on_interrupt(self._controller):
            await self._controller.user_turn(line)
        self._record_turn()
        return True

    async def _run_command(self, command: str) -> bool:
        name, _, rest = command.partition(" ")
        match name:
            case "/quit":
                return False
            case "/clear":
                self._controller.clear()
                if self._policy_gate is not None:
                    self._policy_gate.begin()
                self._initial_state = self._live.world()
                if self._recorder is not None:
                    self._recorder.begin()
                self._print(self._catalog.text("terminal.cleared"), style="dim")
            case "/retry":
                with _stop_on_interrupt(self._controller):
                    await self._controller.retry()
                self._record_turn()
            case "/save":
                self._save(rest.strip())
            case "/help":
                self._print(self._catalog.text("terminal.help"))
            case _:
                self._print(self._catalog.text("terminal.unknown_command", command=command))
        return True

    def _save(self, file: str) -> None:
        name = f"chat-{self._now():%Y%m%d-%H%M%S}"
        path = Path(file or f"scenarios/{name}.yaml")
        try:
            text = scenario_from_chat(
                self._controller.state.messages,
                initial_state=self._initial_state,
                final_state=self._live.world(),
                destructive=self._live.session.registry.destructive,
                locale=self._catalog.locale,
                scenario_id=name,
                criterion=self._live.criterion,
                row_keys=self._live.row_keys(),
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as saved:  # never overwrite a file
                saved.write(text)
        except (UsageError, OSError) as error:
            self._print(self._catalog.translate(error), style="red")
            return
        self._print(self._catalog.text("terminal.saved", path=path), style="dim")

    def _record_turn(self) -> None:
        """Record the finished turn; after an error, the next turn records it too."""
        if self._recorder is None:
            return
        try:
            self._recorder.save(self._catalog.locale)
        except (LhkitError, OSError) as error:
            self._print(self._catalog.translate(error), style="red")

    def _show(self, event: ChatEvent) -> None:
        if self._recorder is not None:
            self._recorder.handle(event)
        self._reading.stop()
        match event:
            case ModelCalled() if self._shows_reading:
                self._reading.start()
            case TextDelta(text=text):
                self._console.print(Text(printable(text)), end="", soft_wrap=True)
                self._is_mid_line = True
            case Finished():
                self._end_line()
            case CallCompleted(message=message):
                self._show_call(message)
            case SystemMessage(text=text):
                self._print(text, style="yellow")
            case TurnEnded(reason=reason, error=error, detail=detail, claim=claim):
                self._show_end(reason, error, detail)
                self._show_truth(claim)
            case _:
                pass

    def _show_truth(self, claim: FalseReplyClaim | None) -> None:
        """Show the writes of the turn, and a mark if its reply contradicts them."""
        calls = self._controller.state.transcript.calls_of_this_turn
        for line in truth_lines(calls, self._catalog):
            self._print_indented(line.text, style=_TRUTH_STYLES.get(line.kind, "bold"))
        if claim is not None:
            mark, style = ("△", "bold yellow") if claim.is_guess else ("▲", "bold red")
            self._print_indented(f"{mark} {claim_text(claim, self._catalog)}", style=style)

    def _print_indented(self, text: str, *, style: str) -> None:
        """Print one line; where a terminal wraps it, its rest is no line of its own."""
        shown = Text(visible(text, keep_emoji=True), style=style)
        if not self._console.is_terminal:
            self._console.print(shown, soft_wrap=True)
            return
        for number, part in enumerate(shown.wrap(self._console, self._console.width - _INDENT)):
            indent = " " * _INDENT if number else ""
            self._console.print(Text(indent).append_text(part), soft_wrap=True)

    def _show_call(self, message: ToolCallMessage) -> None:
        self._end_line()
        handler_s = message.outcome.handler_s if message.outcome else 0.0
        outcome, style = self._outcome(message.result)
        if message.is_unasked:
            outcome = f"{outcome}, {self._catalog.text('policy.ran')}"
        call = visible(f"{message.name or '?'} {_shown_arguments(message)}")
        self._print(f"  ⚙ {call} → {outcome} ({handler_s * 1000:.0f} ms)", style=style)

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
            self._print(error, style="red")
        if detail is not None:
            self._print(detail, style="dim")
        if reason is EndReason.STOPPED:
            self._print(self._catalog.text("chat.stopped"), style="dim")

    def _print(self, text: str, *, style: str = "") -> None:
        shown = visible(text, keep_emoji=True)
        self._console.print(Text(shown, style=style), soft_wrap=True)

    def _end_line(self) -> None:
        if self._is_mid_line:
            self._console.print()
            self._is_mid_line = False


@contextmanager
def _stop_on_interrupt(controller: ChatController) -> Iterator[None]:
    """Let Ctrl-C stop the answer instead of the program, if the event loop supports it."""
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


def _shown_arguments(message: ToolCallMessage) -> str:
    try:
        text = compact(message.effective_args) if message.name else message.raw
    except NotJsonError:
        text = message.raw
    return text if len(text) <= _MAX_ARGS_CHARS else text[:_MAX_ARGS_CHARS] + "…"
