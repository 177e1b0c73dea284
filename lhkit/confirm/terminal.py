"""The confirm gate of a terminal: questions and forms in lines of text.

Only input typed after a question was shown counts.
"""

import asyncio
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from lhkit.base.json_values import JSON
from lhkit.base.locales import Catalog
from lhkit.base.text import visible
from lhkit.base.user_locale import user_catalog
from lhkit.confirm.decision import Approve, Decision, Edit, QuestionOutcome, Reject
from lhkit.confirm.form import (
    CANCELLED,
    DECLINED,
    Choice,
    FieldKind,
    Form,
    FormAction,
    FormAnswer,
    FormField,
    ParsedForm,
    Typed,
    argument_form,
    edited_arguments,
    expected,
    filled,
    hint,
)
from lhkit.confirm.gate import ConfirmRequest, InvalidEditError

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
        catalog: the texts; by default in the user's language.
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
        self._catalog = catalog or user_catalog()
        self._forget = forget

    async def confirm(self, request: ConfirmRequest) -> Decision:
        """Show the request and return the typed decision; only an explicit yes runs it.

        With `e` the user edits the arguments, and is asked again with the edited card.
        """
        shown, can_edit = request, request.revise is not None
        title = self._catalog.text("confirm.title")
        prompt = self._catalog.text(f"confirm.prompt{'_edit' if can_edit else ''}", title=title)
        self._write(visible(f"{request.tool}: {request.heading}"))
        try:
            while True:
                if shown.error:
                    self._write(visible(shown.error))
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
        if any(field.is_nullable for field in form.fields):
            self._write(self._catalog.text("confirm.how_null", null=_NULL))
        typed: dict[str, str | None] = {}
        for field in form.fields:
            line = await self._typed(field, request.args)
            if line is None:
                return request
            typed |= line
        try:
            return request.edited(edited_arguments(form, typed, request.args, self._catalog).values)
        except InvalidEditError as error:
            return replace(request, error=str(error))

    async def _typed(self, field: FormField, args: Mapping[str, JSON]) -> Typed | None:
        """Return an argument's text, which its field accepts; None to stop editing."""
        self._show(field)
        while True:
            line = (await self._read(f"{visible(field.label)}> ")).strip("\r\n")
            word = line.strip()
            if word == _CANCEL:
                return None
            if word in ("", _NONE) or (word == _NULL and field.is_nullable):
                return {field.name: {"": field.typed, _NONE: "", _NULL: None}[word]}
            text = self._chosen(field, line)
            if text is None:
                continue
            typed = {field.name: text}
            errors = edited_arguments(Form(fields=(field,)), typed, args, self._catalog).errors
            if not errors:
                return typed
            self._write(visible(errors[field.name]))

    def _chosen(self, field: FormField, line: str) -> str | None:
        """Return the text of a line; None, after a message, if it names several choices."""
        if not field.choices:
            return line
        if field.kind is FieldKind.YES_NO and (is_yes(line) or is_no(line)):
            return "true" if is_yes(line) else "false"
        values = named_choices(field.choices, line)
        if len(values) < 2:
            return values[0] if values else line.strip()
        numbers = [mark for mark, choice in numbered(field.choices) if choice.value in values]
        several = self._catalog.text("form.several", text=line.strip(), numbers=", ".join(numbers))
        self._write(visible(several))
        return None

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Ask for each field, then whether to send; `/decline` and `/cancel` end the form.

        Input typed before the form or before the last question is discarded. End of input and
        Ctrl-C cancel, and so does an empty line from before, which cannot be discarded without a
        terminal.
        """
        text = self._catalog.text
        self._write(visible(f"{request.tool}: {request.heading}"))
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
            typed = self._chosen(field, line) if line.strip() else field.typed
            if typed is None:
                continue
            result = filled(form, {field.name: typed}, self._catalog)
            if not result.errors:
                return result
            self._write(visible(result.errors[field.name]))

    def _show(self, field: FormField) -> None:
        is_unsaid = field.is_nullable and not field.choices
        text = expected(field, self._catalog) if is_unsaid else hint(field, self._catalog)
        lines = [field.label, field.about, text]
        lines += [f"  {mark}. {choice.label}" for mark, choice in numbered(field.choices)]
        if field.is_nullable and field.choices:
            lines.append(f"  {_NULL}")
        if field.default:
            lines.append(self._catalog.text("form.default", value=field.default))
        if field.typed != "":
            labels = {choice.value: choice.label for choice in field.choices}
            value = "null" if field.typed is None else labels.get(field.typed, field.typed)
            lines.append(self._catalog.text("form.current", value=value))
        self._write(visible("\n".join(filter(None, lines))))

    async def _fresh(self) -> bool:
        """Discard earlier input, with a notice; return True if there was any."""
        is_early = await self._forget()
        if is_early:
            self._write(self._catalog.text("confirm.early"))
        return is_early


_DECLINE, _CANCEL, _NONE, _NULL = "/decline", "/cancel", "/none", "/null"


def _ended(line: str) -> FormAnswer | None:
    return {_DECLINE: DECLINED, _CANCEL: CANCELLED}.get(line.strip())


def numbered(choices: Sequence[Choice]) -> Iterator[tuple[str, Choice]]:
    """Yield each choice with its number, which is no value or title of another.

    The numbers are `1`, `2`, …; `#1`, `#2`, … where a value or title is such a number.
    """
    names = {name for choice in choices for name in _names(choice)}
    marks = (tuple(f"{'#' * k}{i}" for i, _ in enumerate(choices, start=1)) for k in count())
    return zip(next(each for each in marks if names.isdisjoint(each)), choices, strict=True)


def named_choices(choices: Sequence[Choice], line: str) -> list[str]:
    """Return the values of the choices that a typed line names; several if it is ambiguous.

    A choice is named by its number, or by its value or title. Case and spaces count only where
    another choice differs in nothing else.
    """
    for fold in (str.strip, _folded):
        text = fold(line)
        values = [choice.value for choice in _by_number(choices, text)]
        values += [c.value for c in choices if text in map(fold, (c.value, c.title, c.label))]
        if values:
            return list(dict.fromkeys(values))
    return []


def _by_number(choices: Sequence[Choice], text: str) -> list[Choice]:
    return [choice for mark, choice in numbered(choices) if mark == text.removesuffix(".")]


def _names(choice: Choice) -> set[str]:
    """Return the texts that name a choice, also with the dot of a number."""
    names = map(_folded, (choice.value, choice.title, choice.label))
    return {name.removesuffix(".") for name in names}


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
