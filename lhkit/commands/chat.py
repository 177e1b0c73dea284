"""`lhkit chat`: a conversation in the terminal."""

import asyncio
import os
import select
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias, assert_never

from rich.console import Console
from rich.text import Text

from lhkit import app
from lhkit.chat.controller import ChatController
from lhkit.commands.options import ChatOptions, served_by
from lhkit.commands.progress import opened_model
from lhkit.confirm.gate import GuardedGate, TerminalGate, forget_typed
from lhkit.errors import LhkitError, UsageError
from lhkit.events import (
    CallSettled,
    ChatEvent,
    DispatchTrace,
    EndReason,
    GateOutcome,
    HintAdded,
    ModelFinished,
    TextStreamed,
    TurnEnded,
    TurnStarted,
)
from lhkit.harness.author.written import Said, scenario_of_talk
from lhkit.harness.chats import ChatKeeper
from lhkit.harness.scenario import read_yaml
from lhkit.harness.sessions import Surroundings
from lhkit.json_values import NotJsonError, compact
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import ToolCallMessage, UserMessage
from lhkit.settings import Settings
from lhkit.text import printable, visible
from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.toolset import KeepsData, closed_after, load, name_of

# A chat in a terminal: streams words, shows a line a tool call, asks y/N before a write.
#
# Only shows and reads: the conversation itself is the controller's. All model text, tool names and
# data are untrusted and shown without control characters.


LineReader: TypeAlias = Callable[[str], Awaitable[str]]
"""Shows a prompt and returns one line.

Raises EOFError at the end of input, KeyboardInterrupt on Ctrl-C.
"""

_SHOWN_ARGS_CHARS = 100
_PIECE_BYTES = 4096


class InputLines(Protocol):
    """Where the lines of a person come from."""

    async def read(self, prompt: str) -> str:
        """Show a prompt and return one line, as `LineReader`."""
        ...

    async def forget(self) -> bool:
        """Make sure that no line from before now answers a question, as `TerminalGate` asks."""
        ...


class TypedLines:
    """Lines that are typed into a terminal, with editing and history.

    What is typed while the model speaks is the next line of the chat, unless a question comes
    first: then it is thrown away, and the chat says so.
    """

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession

        self._session: PromptSession[str] = PromptSession()

    async def read(self, prompt: str) -> str:
        """Show a prompt and return one line, as `LineReader`."""
        return str(await self._session.prompt_async(prompt))

    async def forget(self) -> bool:
        """Throw away what was typed so far, and for the length of the guard."""
        return await forget_typed()


class PipedLines:
    """Lines of a pipe or a file in place of a terminal, for scripts.

    Each prompt takes one line, each question too, so that a script stays in step with the chat. A
    line that could be read before the question was shown is no answer to it, whatever it says: the
    question then takes that line and is answered no. So a file, or text piped in at once, can say
    no but never yes; a program that waits for the question before it writes can say both.

    Args:
        descriptor: the file descriptor to read from; UTF-8.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._has_ended = False
        self._is_early = False

    async def read(self, prompt: str) -> str:
        """Show a prompt and return one line, which is shown, too; empty for an early answer."""
        is_early, self._is_early = self._is_early, False
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while b"\n" not in self._rest and not self._has_ended:
            await self._until_readable()
            piece = os.read(self._descriptor, _PIECE_BYTES)
            self._rest += piece
            self._has_ended = not piece
        if not self._rest:
            raise EOFError
        line, _, self._rest = self._rest.partition(b"\n")
        text = line.decode("utf-8", "replace")
        sys.stdout.write(f"{text}\n")
        return "" if is_early else text

    async def forget(self) -> bool:
        """Make the next line, if there is one already, no answer."""
        if not self._rest and self._is_readable():
            self._rest = os.read(self._descriptor, _PIECE_BYTES)
            self._has_ended = not self._rest
        self._is_early = bool(self._rest)
        return self._is_early

    def _is_readable(self) -> bool:
        return bool(select.select([self._descriptor], [], [], 0)[0])

    async def _until_readable(self) -> None:
        if self._is_readable():  # also: a file, which no event loop can wait for
            return
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._descriptor)


def input_lines() -> InputLines:
    """Return the lines of the terminal, or of what stands in its place."""
    return TypedLines() if sys.stdin.isatty() else PipedLines(sys.stdin.fileno())


class TerminalChat:
    """Runs a conversation until the user ends it.

    Args:
        controller: the conversation.
        surroundings: what it is about: it is saved with the world before and after.
        read: gives the lines of the user.
        console: where all is shown.
        catalog: the words.
        now: the clock that saved talks are named by.
        keeper: keeps the talk; None where the user did not ask for it.
    """

    def __init__(
        self,
        controller: ChatController,
        surroundings: Surroundings,
        *,
        read: LineReader,
        console: Console,
        catalog: Catalog,
        now: Callable[[], datetime],
        keeper: ChatKeeper | None = None,
    ) -> None:
        self._controller = controller
        self._surroundings = surroundings
        self._read = read
        self._console = console
        self._catalog = catalog
        self._now = now
        self._keeper = keeper
        self._begun = surroundings.world()
        self._said: list[Said] = []
        self._is_mid_line = False

    async def run(self, *, model_name: str) -> None:
        """Read, answer, repeat; returns at /quit or the end of input."""
        unsubscribe = self._controller.subscribe(self._show)
        self._line(self._catalog.text("terminal.welcome", model=model_name), style="dim")
        if self._keeper is not None:
            self._line(self._catalog.text("notebook.kept", folder=self._keeper.folder), style="dim")
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
        self._write_down()
        return True

    async def _command(self, command: str) -> bool:
        name, _, rest = command.partition(" ")
        match name:
            case "/quit":
                return False
            case "/clear":
                self._controller.clear()
                self._said.clear()
                self._begun = self._surroundings.world()
                if self._keeper is not None:
                    self._keeper.begin()
                self._line(self._catalog.text("terminal.cleared"), style="dim")
            case "/retry":
                with _stops_on_interrupt(self._controller):
                    await self._controller.retry()
                self._write_down()
            case "/save":
                self._save(rest.strip())
            case "/help":
                self._line(self._catalog.text("terminal.help"))
            case _:
                self._line(self._catalog.text("terminal.unknown_command", command=command))
        return True

    def _save(self, file: str) -> None:
        name = f"chat-{self._now():%Y%m%d-%H%M%S}"
        path = Path(file or f"scenarios/{name}.yaml")
        try:
            text = scenario_of_talk(
                self._said,
                begun=self._begun,
                ended=self._surroundings.world(),
                destructive=self._surroundings.session.registry.destructive,
                locale=self._catalog.locale,
                scenario_id=name,
                ac=self._surroundings.criterion(),
                row_keys=self._surroundings.row_keys(),
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as saved:  # another's file is not written over
                saved.write(text)
        except (UsageError, OSError) as error:
            self._line(str(error), style="red")
            return
        self._line(self._catalog.text("terminal.saved", path=path), style="dim")

    def _write_down(self) -> None:
        """Keep the turn that ended; a fault is told, and the next turn brings this one along."""
        if self._keeper is None:
            return
        try:
            self._keeper.keep(self._catalog.locale)
        except (LhkitError, OSError) as error:
            self._line(str(error), style="red")

    def _keep(self, event: ChatEvent) -> None:
        """Keep what a scenario of this talk has to say, and what is to be written down."""
        if self._keeper is not None:
            self._keeper.hear(event, answer=_typed(event))
        match event:
            case TurnStarted(message=UserMessage(text=text)):
                self._said.append(Said(user=text))
            case CallSettled(trace=DispatchTrace() as trace):
                self._said[-1] = replace(self._said[-1], traces=(*self._said[-1].traces, trace))
            case ModelFinished(response=response) if response.text.strip():
                self._said[-1] = replace(self._said[-1], reply=response.text)
            case _:
                pass

    def _show(self, event: ChatEvent) -> None:
        self._keep(event)
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
        line = f"  ⚙ {name} {visible(_short(message))} → {outcome} ({handler_s * 1000:.0f} ms)"
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
        shown = visible(text, keep_emoji=True)
        self._console.print(Text(shown, style=style), soft_wrap=True)

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


def _typed(event: ChatEvent) -> str:
    """Return how the question about a call was answered, in a panel's words; empty without one."""
    match event:
        case CallSettled(trace=DispatchTrace(gate=GateOutcome.ACCEPTED)):
            return "typed_yes"
        case CallSettled(trace=DispatchTrace(gate=GateOutcome.REJECTED)):
            return "typed_no"
        case _:
            return ""


def _short(message: ToolCallMessage) -> str:
    try:
        text = compact(message.args) if message.name else message.raw
    except NotJsonError:
        text = message.raw
    return text if len(text) <= _SHOWN_ARGS_CHARS else text[:_SHOWN_ARGS_CHARS] + "…"


# `lhkit chat`: a toolset in a terminal; a person is asked before every write.


async def converse(options: ChatOptions, settings: Settings) -> int:
    """Chat until the user ends it; return the exit code.

    Raises:
        LhkitError: the toolset, its data or the model cannot be had.
    """
    base_url = options.base_url or settings.base_url
    told = served_by(settings, options.runtime, options.dtype, base_url)
    told = told.model_copy(update={"locale": options.locale or settings.locale})
    catalog = load_catalog(told.locale)
    choice = app.ModelChoice(
        name=options.model,
        base_url=base_url,
        api_key=told.api_key,
        dialect=options.dialect,
        constraint=app.constraint_of(options.constrain),
    )
    app.require_choice(choice, told.runtime)  # before a file is made
    surroundings = open_talk(options, told)
    with closed_after(surroundings.session) as session:
        choice = replace(choice, tools=session.registry.definitions)
        app.require_choice(choice, told.runtime)
        folder = options.record
        keeper = None if folder is None else ChatKeeper(folder, surroundings, now=told.now)
        console = Console(highlight=False, markup=False, emoji=False)
        lines = input_lines()
        gate = GuardedGate(terminal_gate(lines, console, catalog))
        async with opened_model(choice, told) as model:
            controller = app.open_chat(model, session, gate, told.locale)
            chat = TerminalChat(
                controller,
                surroundings,
                read=lines.read,
                console=console,
                catalog=catalog,
                now=told.now,
                keeper=keeper,
            )
            await chat.run(model_name=model.identity.model)
    return 0


def terminal_gate(lines: InputLines, console: Console, catalog: Catalog) -> TerminalGate:
    """Return the gate that asks in `console`, letter for letter."""

    def write(text: str) -> None:  # a `str` would be searched for markup and for `:emoji:`
        console.print(Text(text), soft_wrap=True)

    return TerminalGate(lines.read, write, catalog, forget=lines.forget)


def open_talk(options: ChatOptions, settings: Settings) -> Surroundings:
    """Return what is talked in: kept data, or a world of its own.

    Raises:
        UsageError: there is no such toolset or world, or it keeps no data in a file.
        StoreError: its file cannot be had.
    """
    toolset = load(options.toolset)
    world = None if options.world is None else _world(options.world)
    file = options.file
    if world is None and isinstance(toolset, KeepsData):
        file = file or settings.data_dir / f"{name_of(toolset)}.sqlite3"
    elif file is not None:
        what = "--world begins anew" if options.world else f"--toolset {options.toolset} has none"
        raise UsageError(f"--db names a file that data is kept in, and {what}: leave one out")
    return Surroundings(toolset, world, file, now=settings.now, locale=settings.locale)


def _world(file: Path) -> dict[str, Any]:
    try:
        read = read_yaml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--world {file} cannot be read ({error}): give a YAML file") from error
    if read.faults:
        fault = read.faults[0]
        raise UsageError(f"{file}:{read.line(fault.path)}: {fault.message}")
    if not isinstance(read.value, dict):
        raise UsageError(
            f"{file} is no world: write what stands under `world:` in a scenario, such as "
            "`items: [{id: egg}]`"
        )
    return read.value
