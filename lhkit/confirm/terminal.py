"""The confirm gate of a terminal: questions and forms in lines of text.

Only input typed after a question was shown counts.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from lhkit.confirm.decision import Approve, Decision, Edit, QuestionOutcome, Reject
from lhkit.confirm.form import (
    CANCELLED,
    DECLINED,
    Form,
    FormAction,
    FormAnswer,
    FormField,
    ParsedForm,
    argument_form,
    edited_arguments,
    filled,
    hint,
)
from lhkit.confirm.gate import ConfirmRequest, InvalidEditError
from lhkit.json_values import JSON
from lhkit.locales import Catalog, load_catalog
from lhkit.text import visible

_YES = frozenset({"y", "yes", "ㅛ", "네", "예"})  # ㅛ is the Y key of a Korean layout
_NO = frozenset({"n", "no", "ㅜ", "아니", "아니요", "아니오"})  # ㅜ is the N key
_EDIT = frozenset({"e", "edit", "ㄷ", "수정"})  # ㄷ is the E key

GUARD_S = 0.4
"""Seconds after a question appears in which input is discarded as meant for something else."""


def is_yes(line: str) -> bool:
    """Return True if a typed line is an explicit yes."""
    return line.strip().casefold() in _YES


def is_no(line: str) -> bool:
    """Return True if a typed line is an explicit no."""
    return line.strip().casefold() in _NO


async def discard_pending_input(guard_s: float = GUARD_S) -> bool:
    """Discard the pending input of the terminal; return True if there was any.

    Both the terminal's queue and prompt_toolkit's read-ahead are discarded, at the end of the
    guard. Does nothing if standard input is not a terminal.

    Args:
        guard_s: seconds to wait before, for keys that were pressed as the question appeared.
    """
    if not is_terminal():
        return False
    await asyncio.sleep(guard_s)
    # imported here because it is slow and only a question needs it
    from prompt_toolkit.input.defaults import create_input
    from prompt_toolkit.input.typeahead import get_typeahead
    from prompt_toolkit.keys import Keys

    source = create_input(sys.stdin)
    pressed = get_typeahead(source)
    with source.raw_mode():  # otherwise an unfinished line stays in the queue
        while more := source.read_keys():
            pressed += more
        pressed += source.flush_keys()
    return any(press.key is not Keys.CPRResponse for press in pressed)  # sent by the terminal


def is_terminal() -> bool:
    """Return True if standard input is an open terminal."""
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # closed
        return False


class TerminalGate:
    """Asks `[y/N]` in a terminal, or `e` to edit the arguments. End of input and Ctrl-C mean no.

    Input typed before the question was shown is discarded, with a notice.

    Args:
        read: shows a prompt and returns one line; raises EOFError at the end of input.
        write: shows a line of text.
        catalog: the texts; Korean by default.
        forget: called after the question is shown; discards earlier input and returns True if
            there was any. The default discards the terminal's; a `read` from another source needs
            its own.
    """

    is_person = True

    def __init__(
        self,
        read: Callable[[str], Awaitable[str]],
        write: Callable[[str], None],
        catalog: Catalog | None = None,
        *,
        forget: Callable[[], Awaitable[bool]] = discard_pending_input,
    ) -> None:
        self._read = read
        self._write = write
        self._catalog = catalog or load_catalog()
        self._forget = forget

    async def confirm(self, request: ConfirmRequest) -> Decision:
        """Show the request and return the typed decision; only an explicit yes runs it.

        With `e` the user edits the arguments, and is asked again with the edited card.
        """
        shown, can_edit = request, request.revise is not None
        title = self._catalog.text("confirm.title")
        prompt = self._catalog.text(f"confirm.prompt{'_edit' if can_edit else ''}", title=title)
        self._write(visible(f"{request.tool}: {request.description}"))
        try:
            while True:
                if shown.fault:
                    self._write(visible(shown.fault))
                self._write(visible("\n".join(shown.texts)))
                await self._fresh()
                line = await self._read(prompt)
                if not (can_edit and line.strip().casefold() in _EDIT):
                    break
                shown = await self._edit(shown)
            if is_no(line):
                reason = (await self._read(self._catalog.text("confirm.why"))).strip()
                return Reject(reason, how=QuestionOutcome.TYPED_NO, binding=request.binding)
        except (EOFError, KeyboardInterrupt):
            line = ""
        if not is_yes(line):
            return Reject(how=QuestionOutcome.TYPED_NO, binding=request.binding)
        if shown is request:
            return Approve(how=QuestionOutcome.TYPED_YES, binding=request.binding)
        return Edit(shown.args, how=QuestionOutcome.TYPED_YES, binding=request.binding)

    async def _edit(self, request: ConfirmRequest) -> ConfirmRequest:
        """Ask for each argument; return the request unchanged if the user stops editing."""
        form = argument_form(request.parameters, request.args)
        self._write(self._catalog.text("confirm.how_edit", none=_NONE, cancel=_CANCEL))
        typed: dict[str, str] = {}
        for field in form.fields:
            text = await self._typed(field, request.args)
            if text is None:
                return request
            typed[field.name] = text
        try:
            return request.edited(edited_arguments(form, typed, request.args, self._catalog).values)
        except InvalidEditError as error:
            return replace(request, fault=str(error))

    async def _typed(self, field: FormField, args: Mapping[str, JSON]) -> str | None:
        """Return the text of an argument that its field accepts; None to stop editing."""
        self._show(field)
        while True:
            line = await self._read(f"{visible(field.label)}> ")
            if line.strip() in ("", _NONE, _CANCEL):
                return {"": field.typed, _NONE: "", _CANCEL: None}[line.strip()]
            text = _chosen(field, line)
            form = Form(fields=(field,))
            faults = edited_arguments(form, {field.name: text}, args, self._catalog).faults
            if not faults:
                return text
            self._write(visible(faults[field.name]))

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Ask for each field, then whether to send; `/decline` and `/cancel` end the form.

        Input typed before the form or before the last question is discarded. End of input and
        Ctrl-C cancel, and so does an empty line from before, which cannot be discarded without a
        terminal.
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
        return _ended(answer) or (DECLINED if is_no(answer) else CANCELLED)

    async def _values(self, form: Form) -> Mapping[str, JSON] | FormAnswer:
        """Return the values of all fields, or the answer if the user ended the form."""
        values = dict(form.given)
        for number, field in enumerate(form.fields):
            result = await self._value(field, is_first=number == 0)
            if isinstance(result, FormAnswer):
                return result
            values |= result.values
        return values

    async def _value(self, field: FormField, *, is_first: bool) -> ParsedForm | FormAnswer:
        form = Form(fields=(field,))
        self._show(field)
        while True:
            is_early = is_first and await self._fresh()
            is_first = False
            line = await self._read(f"{visible(field.label)}{'*' if field.is_required else ''}> ")
            if is_early and not line:
                return CANCELLED
            if (answer := _ended(line)) is not None:
                return answer
            typed = _chosen(field, line) if line.strip() else field.typed
            result = filled(form, {field.name: typed}, self._catalog)
            if not result.faults:
                return result
            self._write(visible(result.faults[field.name]))

    def _show(self, field: FormField) -> None:
        lines = [field.label, field.about, hint(field, self._catalog)]
        lines += [f"  {i}. {choice.label}" for i, choice in enumerate(field.choices, start=1)]
        if field.typed:
            labels = {choice.value: choice.label for choice in field.choices}
            value = labels.get(field.typed, field.typed)
            lines.append(self._catalog.text("form.current", value=value))
        self._write(visible("\n".join(filter(None, lines))))

    async def _fresh(self) -> bool:
        """Discard earlier input, with a notice; return True if there was any."""
        is_early = await self._forget()
        if is_early:
            self._write(self._catalog.text("confirm.early"))
        return is_early


_DECLINE, _CANCEL, _NONE = "/decline", "/cancel", "/none"


def _ended(line: str) -> FormAnswer | None:
    return {_DECLINE: DECLINED, _CANCEL: CANCELLED}.get(line.strip())


def _chosen(field: FormField, line: str) -> str:
    """Return the text of a line, or the value of a choice by its number, title or value."""
    if not field.choices:
        return line
    values = {str(i): choice.value for i, choice in enumerate(field.choices, start=1)}
    values |= {choice.title: choice.value for choice in field.choices if choice.title}
    values |= {choice.value: choice.value for choice in field.choices}
    return values.get(line.strip(), line.strip())
