"""The confirm gate: one question, answered yes only by an explicit "run".

Fail closed: cancel, dismissal, a time-out, a second question while one is open and any internal
error all mean no. A yes counts only if it came after the question was shown. Not covered: a person
who clicks Run without reading.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from lhkit.json_values import JSON
from lhkit.locales import Catalog, load_catalog
from lhkit.text import printable

_log = logging.getLogger(__name__)

_YES = frozenset({"y", "yes", "ㅛ", "네", "예"})  # ㅛ is the Y key of a Korean layout

GUARD_S = 0.4
"""For so long after a question appeared, what is typed was meant for something else. Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """What the user is asked: the tool, what it does, its validated arguments, a summary."""

    tool: str
    description: str
    args: Mapping[str, JSON]
    summary: str


class ConfirmGate(Protocol):
    """Asks the user about one destructive call.

    One that asks a person, who may answer what it is about, has `is_person = True` besides: only
    such a gate is asked what a tool wants to know in the midst of its work.
    """

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return True only if the user explicitly said to run it."""
        ...


class DenyGate:
    """Says no to everything."""

    async def confirm(self, request: ConfirmRequest) -> bool:  # noqa: ARG002 - the protocol's name
        """Return False."""
        return False


class ScriptedGate:
    """Answers from a script, for tests and replay; keeps what it was asked.

    When the script has run out, the answer is no.
    """

    def __init__(self, answers: Iterable[bool]) -> None:
        self._answers = iter(answers)
        self.asked: list[ConfirmRequest] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return the script's next answer."""
        self.asked.append(request)
        return next(self._answers, False) is True


class GuardedGate:
    """Wraps a gate that waits for a person: one question at a time, optional time-out, no raise."""

    def __init__(self, inner: ConfirmGate, *, timeout_s: float | None = None) -> None:
        self._inner = inner
        self._timeout_s = timeout_s
        self._is_open = False
        self.is_person = _is_person(inner)

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return the inner gate's answer; False if busy, too late or broken.

        An inner gate that goes on although it was told that time is up, or that the caller was
        cancelled, is too late as well: what it says then is no yes.
        """
        if self._is_open:
            return False
        self._is_open = True
        cancelled_before = cancellations()
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                answer = await self._inner.confirm(request)
        except Exception:  # noqa: BLE001 - boundary: a broken gate means no
            _log.warning("the confirm gate failed for %s: answered no", request.tool, exc_info=True)
            return False
        finally:
            self._is_open = False
        is_in_time = not limit.expired() and cancellations() == cancelled_before
        return answer is True and is_in_time


def _is_person(gate: object) -> bool:
    return getattr(gate, "is_person", False) is True


class MidCallQuestions:
    """What a tool may ask in the midst of its work, and how long the person took to answer.

    Args:
        gate: who is asked; nobody where it is None, or answers from a script.
    """

    def __init__(self, gate: ConfirmGate | None) -> None:
        self._gate = gate if _is_person(gate) else None
        self._waited_s = 0.0
        self._since_s: float | None = None
        self._open: asyncio.Task[bool] | None = None

    @property
    def waited_s(self) -> float:
        """How long was waited for a person so far, in seconds of the loop."""
        since_s = self._since_s
        return self._waited_s + (0.0 if since_s is None else _now_s() - since_s)

    async def ask(self, request: ConfirmRequest) -> bool:
        """Return True only if a person explicitly said so; one question at a time."""
        if self._gate is None or self._since_s is not None:
            return False
        self._since_s = _now_s()
        self._open = asyncio.ensure_future(GuardedGate(self._gate).confirm(request))
        try:
            await asyncio.wait({self._open})
        finally:
            self._open.cancel()
            self._waited_s, self._since_s = self.waited_s, None
        return not self._open.cancelled() and self._open.result() is True

    def close(self) -> None:
        """Answer the open question, and any that comes, with no: who would answer wants out."""
        self._gate = None
        if self._open is not None:
            self._open.cancel()


_questions: ContextVar[MidCallQuestions | None] = ContextVar("questions", default=None)


@contextmanager
def open_to_questions(questions: MidCallQuestions) -> Iterator[None]:
    """Let what runs in the block ask these."""
    token = _questions.set(questions)
    try:
        yield
    finally:
        _questions.reset(token)


def asked_in_the_midst() -> MidCallQuestions | None:
    """Return what the running handler may ask; None outside of one."""
    return _questions.get()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def cancellations() -> int:
    """Return how often the calling task was asked to cancel."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def is_yes(line: str) -> bool:
    """Return True if what a person typed is an explicit yes."""
    return line.strip().casefold() in _YES


async def forget_typed(guard_s: float = GUARD_S) -> bool:
    """Throw away what was typed into the terminal so far; return True if there was something.

    That is the terminal's own queue and what prompt_toolkit has read ahead of it, up to the end of
    the guard. Nothing is waited for or taken away where standard input is no terminal.

    Args:
        guard_s: how long to wait before, in seconds: a key may be on its way when a question
            appears.
    """
    if not _is_terminal():
        return False
    await asyncio.sleep(guard_s)
    # prompt_toolkit is slow to import, and only a question in a terminal needs it
    from prompt_toolkit.input.defaults import create_input  # noqa: PLC0415 - see above
    from prompt_toolkit.input.typeahead import get_typeahead  # noqa: PLC0415 - see above
    from prompt_toolkit.keys import Keys  # noqa: PLC0415 - see above

    source = create_input(sys.stdin)
    pressed = get_typeahead(source)
    with source.raw_mode():  # else a line that was begun and not ended stays in the queue
        while more := source.read_keys():
            pressed += more
        pressed += source.flush_keys()
    return any(each.key is not Keys.CPRResponse for each in pressed)  # that is the terminal's own


def _is_terminal() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # closed
        return False


class TerminalGate:
    """Asks `[y/N]` in a terminal. End of input and Ctrl-C mean no.

    Only a yes that was typed after the question was shown counts: what came before is thrown away,
    and the person is told so.

    Args:
        read: shows a prompt and returns one line; raises EOFError at the end of input.
        write: shows a line of text.
        catalog: the texts.
        forget: called when the question stands on the screen. It makes sure that `read` does not
            return an answer from before, and returns True if there was one. By default what was
            typed into the terminal; a `read` that takes its lines from elsewhere has to bring its
            own.
    """

    is_person = True

    def __init__(
        self,
        read: Callable[[str], Awaitable[str]],
        write: Callable[[str], None],
        catalog: Catalog | None = None,
        *,
        forget: Callable[[], Awaitable[bool]] = forget_typed,
    ) -> None:
        self._read = read
        self._write = write
        self._catalog = catalog or load_catalog()
        self._forget = forget

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Show what would be done and return True for an explicit yes."""
        self._write(printable(f"{request.tool}: {request.description}"))
        self._write(printable(request.summary))
        title = self._catalog.text("confirm.title")
        try:
            if await self._forget():
                self._write(self._catalog.text("confirm.early"))
            answer = await self._read(self._catalog.text("confirm.prompt", title=title))
        except (EOFError, KeyboardInterrupt):
            return False
        return is_yes(answer)
