"""The confirm gate in a terminal: questions and forms in lines of text.

Only what was typed after a question was shown counts.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping

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
from lhkit.confirm.gate import ConfirmRequest
from lhkit.json_values import JSON
from lhkit.locales import Catalog, load_catalog
from lhkit.text import visible

_YES = frozenset({"y", "yes", "ㅛ", "네", "예"})  # ㅛ is the Y key of a Korean layout
_NO = frozenset({"n", "no", "ㅜ", "아니", "아니요", "아니오"})  # ㅜ is the N key

GUARD_S = 0.4
"""For so long after a question appeared, what is typed was meant for something else. Seconds."""


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
            await self._fresh()
            return is_yes(await self._read(prompt))
        except (EOFError, KeyboardInterrupt):
            return False

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Ask field by field, and in the end whether to send it; `/decline` and `/cancel` leave it.

        What was typed before the form stood there, or before it was asked whether to send it, does
        not count. Without a terminal, where that line cannot be thrown away, it is taken for going
        away, as are the end of input and Ctrl-C.
        """
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
