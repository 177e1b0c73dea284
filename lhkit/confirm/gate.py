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
from typing import Any, Protocol, runtime_checkable

from lhkit.confirm.form import (
    CANCELLED,
    DECLINED,
    Filled,
    Form,
    FormAction,
    FormAnswer,
    FormField,
    filled,
    hint,
)
from lhkit.json_values import JSON
from lhkit.locales import Catalog, load_catalog
from lhkit.text import visible

_log = logging.getLogger(__name__)

_YES = frozenset({"y", "yes", "ㅛ", "네", "예"})  # ㅛ is the Y key of a Korean layout
_NO = frozenset({"n", "no", "ㅜ", "아니", "아니요", "아니오"})  # ㅜ is the N key

GUARD_S = 0.4
"""For so long after a question appeared, what is typed was meant for something else. Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """What the user is asked: the tool, what it does, its validated arguments, a summary.

    The dispatcher's are read-only to the last list: an answer belongs to what was asked.
    """

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


@runtime_checkable
class FormGate(Protocol):
    """A gate that can also be asked to fill something in, in the midst of a tool's work."""

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return what a person filled in, or that they said no, or went away."""
        ...


class DenyGate:
    """Says no to everything."""

    async def confirm(self, request: ConfirmRequest) -> bool:
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
        return await self._answer(request, self._inner.confirm) is True

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return what the inner gate's person filled in; cancelled if busy, too late or broken.

        A gate that knows no forms is asked for a yes or no, where no more is wanted.
        """

        async def asked(request: ConfirmRequest) -> FormAnswer:
            if isinstance(self._inner, FormGate):
                return await self._inner.fill_in(request, form)
            is_yes = not form.fields and await self._inner.confirm(request) is True
            return FormAnswer(action=FormAction.ACCEPT, content=form.given) if is_yes else DECLINED

        answer = await self._answer(request, asked)
        return answer if isinstance(answer, FormAnswer) else CANCELLED

    async def _answer(
        self, request: ConfirmRequest, ask: Callable[[ConfirmRequest], Awaitable[Any]]
    ) -> Any:
        if self._is_open:
            return None
        self._is_open = True
        cancelled_before = cancellations()
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                answer = await ask(request)
        except Exception:  # noqa: BLE001 - boundary: a broken gate means no
            _log.warning("the confirm gate failed for %s: answered no", request.tool, exc_info=True)
            return None
        finally:
            self._is_open = False
        is_in_time = not limit.expired() and cancellations() == cancelled_before
        return answer if is_in_time else None


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
        self._open: asyncio.Task[FormAnswer] | None = None

    @property
    def waited_s(self) -> float:
        """How long was waited for a person so far, in seconds of the loop."""
        since_s = self._since_s
        return self._waited_s + (0.0 if since_s is None else _now_s() - since_s)

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return what a person answers; one question at a time, a no where nobody is asked."""
        if self._gate is None or self._since_s is not None:
            return DECLINED
        self._since_s = _now_s()
        self._open = asyncio.ensure_future(GuardedGate(self._gate).fill_in(request, form))
        try:
            await asyncio.wait({self._open})
        finally:
            self._open.cancel()
            self._waited_s, self._since_s = self.waited_s, None
        return CANCELLED if self._open.cancelled() else self._open.result()

    def close(self) -> None:
        """Answer the open question, and any that comes, with no: nobody wants to know any more."""
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


def is_no(line: str) -> bool:
    """Return True if what a person typed is an explicit no."""
    return line.strip().casefold() in _NO


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
    from prompt_toolkit.input.defaults import create_input
    from prompt_toolkit.input.typeahead import get_typeahead
    from prompt_toolkit.keys import Keys

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
        self._write(visible(f"{request.tool}: {request.description}"))
        self._write(visible(request.summary))
        title = self._catalog.text("confirm.title")
        prompt = self._catalog.text("confirm.prompt", title=title)
        try:
            if await self._forget():
                self._write(self._catalog.text("confirm.early"))
            return is_yes(await self._read(prompt))
        except (EOFError, KeyboardInterrupt):
            return False

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Ask field by field, and in the end whether to send it."""
        lines = FormLines(self._read, self._write, self._catalog, forget=self._forget)
        return await lines.fill_in(request, form)


class FormLines:
    """A form in lines of a terminal. A word that begins with `/` says no, or goes away.

    What was typed before the form stood there, or before it was asked whether to send it, does not
    count. Without a terminal, where that line cannot be thrown away, it is taken for going away.

    Args:
        read: as in `TerminalGate`.
        write: as in `TerminalGate`.
        catalog: the texts.
        forget: as in `TerminalGate`.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[str]],
        write: Callable[[str], None],
        catalog: Catalog,
        *,
        forget: Callable[[], Awaitable[bool]],
    ) -> None:
        self._read, self._write, self._catalog = read, write, catalog
        self._forget = forget

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return the answer; the end of input and Ctrl-C go away."""
        text = self._catalog.text
        self._write(visible(f"{request.tool}: {request.description}"))
        if form.is_secret:
            self._write(text("form.secret"))
        self._write(visible(request.summary))
        if form.fields:
            self._write(text("form.how", decline=_DECLINE, cancel=_CANCEL))
        try:
            values = await self._values(form)
            if isinstance(values, FormAnswer):
                return values
            await self._fresh()
            answer = await self._read(text("form.prompt"))
        except (EOFError, KeyboardInterrupt):
            return CANCELLED
        if is_yes(answer):
            return FormAnswer(action=FormAction.ACCEPT, content=values)
        return _left(answer) or (DECLINED if is_no(answer) else CANCELLED)

    async def _values(self, form: Form) -> Mapping[str, JSON] | FormAnswer:
        """Return what is filled in; the answer where that is not all."""
        values = dict(form.given)
        for number, each in enumerate(form.fields):
            found = await self._value(each, is_first=number == 0)
            if isinstance(found, FormAnswer):
                return found
            values |= found.values
        return values

    async def _value(self, field: FormField, *, is_first: bool) -> Filled | FormAnswer:
        alone = Form(fields=(field,))
        self._show(field)
        while True:
            is_early = is_first and await self._fresh()
            is_first = False
            line = await self._read(f"{visible(field.label)}{'*' if field.is_needed else ''}> ")
            if is_early and not line:
                return CANCELLED
            if (answer := _left(line)) is not None:
                return answer
            typed = _chosen(field, line) if line.strip() else field.typed
            found = filled(alone, {field.name: typed}, self._catalog)
            if not found.faults:
                return found
            self._write(visible(found.faults[field.name]))

    def _show(self, field: FormField) -> None:
        lines = [field.label, field.about, hint(field, self._catalog)]
        lines += [f"  {number}. {each.label}" for number, each in enumerate(field.choices, start=1)]
        titles = {each.value: each.label for each in field.choices}
        if field.typed:
            stands = titles.get(field.typed, field.typed)
            lines.append(self._catalog.text("form.stands", value=stands))
        self._write(visible("\n".join(filter(None, lines))))

    async def _fresh(self) -> bool:
        """Make sure that what comes was typed now; True if something else was there."""
        is_early = await self._forget()
        if is_early:
            self._write(self._catalog.text("confirm.early"))
        return is_early


_DECLINE, _CANCEL = "/decline", "/cancel"


def _left(line: str) -> FormAnswer | None:
    return {_DECLINE: DECLINED, _CANCEL: CANCELLED}.get(line.strip())


def _chosen(field: FormField, line: str) -> str:
    """Return what a line says; a choice by its number, title or value."""
    if not field.choices:
        return line
    known = {str(number): each.value for number, each in enumerate(field.choices, start=1)}
    known |= {each.title: each.value for each in field.choices if each.title}
    known |= {each.value: each.value for each in field.choices}
    return known.get(line.strip(), line.strip())
