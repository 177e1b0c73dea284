"""The confirmation card: Cancel, Edit or Run; nothing runs without an explicit Run.

An edit is validated, and shown again: what runs is what the card shows at the press of Run. A press
names the card and its version, so that a late one counts for nothing.

A question of a tool in mid-call is a card with a form; its input goes only to the tool.

Cards work in the turn of a panel, and in `await gate.confirm(…)` in a cell (ipykernel 7.4 or
newer). Where no widget is shown the gate asks with `input()`, and without a user it refuses.
Waiting wakes up regularly, so that an interrupt ends it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from lhkit.base.json_values import JSON
from lhkit.base.locales import load_catalog
from lhkit.base.user_locale import user_locale
from lhkit.confirm.decision import (
    Approve,
    Decision,
    Edit,
    QuestionOutcome,
    Reject,
    changed_arguments,
    decision_of,
)
from lhkit.confirm.form import (
    CANCELLED,
    DECLINED,
    Form,
    FormAction,
    FormAnswer,
    Typed,
    argument_form,
    edited_arguments,
    filled,
)
from lhkit.confirm.gate import ConfirmRequest, GuardedGate, InvalidEditError
from lhkit.notebook.panel.front_end import Ask, ask_by_text, in_kernel, show
from lhkit.notebook.panel.loop import HEARTBEAT_S, HomeLoop
from lhkit.notebook.panel.screen import Screen
from lhkit.notebook.panel.state import WHY_CHARS, CardItem

FRONT_END_S = 2.25
"""How long a front end may take to show a card before it counts as absent, in seconds."""

_CANCELLING = {"cancel": QuestionOutcome.CANCEL, "escape": QuestionOutcome.ESCAPE}
_OUTCOMES = {  # by button; by whether there is a form
    False: {"run": QuestionOutcome.RUN, **_CANCELLING},
    True: {"decline": QuestionOutcome.DECLINED, **_CANCELLING},
}
_DECLINING = frozenset(
    {
        QuestionOutcome.DECLINED,
        QuestionOutcome.TYPED_NO,
        QuestionOutcome.CODE_NO,
        QuestionOutcome.NOBODY,
    }
)
_TYPED_OUTCOMES = {
    FormAction.ACCEPT: QuestionOutcome.TYPED_YES,
    FormAction.DECLINE: QuestionOutcome.TYPED_NO,
    FormAction.CANCEL: QuestionOutcome.CANCEL,
}

_numbers = count(1)  # with the process id they are unique in a page


class ButtonConfirmGate:
    """A confirm gate that asks with a card in the notebook.

    Args:
        locale: the language of the card; by default that of the user.
        timeout_s: refuse after this many seconds; None waits without a limit.
        screen: where cards are shown; by default each card is shown in the output of the cell.
        ask: reads a line where no widget is shown.
    """

    is_person = True

    def __init__(
        self,
        *,
        locale: str | None = None,
        timeout_s: float | None = None,
        screen: Screen | None = None,
        ask: Ask = input,
    ) -> None:
        self.locale = user_locale(locale)
        self._timeout_s = timeout_s
        self._screen = screen
        self._ask = ask
        self._loop = HomeLoop()
        self._guarded = GuardedGate(_CardGate(self._ask_with_card))
        self._open: _OpenCard | None = None
        self._dismissal = QuestionOutcome.INTERRUPTED
        self._code_answers: list[Decision] = []
        self._declines_forms = False
        self.outcomes: list[QuestionOutcome] = []

    async def confirm(self, request: ConfirmRequest) -> Decision:
        """Return the user's decision; a `Reject` while another card is open."""
        return await self._guarded.confirm(request)

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return the user's input to a form of a tool in mid-call."""
        return await self._guarded.fill_in(request, form)

    def settle(self, card: str, decision: Decision | bool) -> None:
        """Answer a card from code, in any thread; the first answer wins.

        Args:
            card: the card's id; ignored if it is not open, as with a late click, and while the user
                edits the arguments.
            decision: True approves what the card shows, `Edit` its own arguments; anything else
                rejects, and so does a decision with the binding of another request. An edit with
                invalid arguments leaves the card open, with the error. A form of a server in
                mid-call is declined.
        """
        self._loop.call_soon(self._settle, card, decision_of(decision))

    def _settle(self, card: str, decision: Decision) -> None:
        if self._open is not None and self._open.item.card == card:
            self._decide(self._open, decision, QuestionOutcome.CODE_YES, QuestionOutcome.CODE_NO)

    def _decide(
        self, open_card: "_OpenCard", decision: Decision, yes: QuestionOutcome, no: QuestionOutcome
    ) -> None:
        """Answer the open card with a decision; an invalid edit leaves it open."""
        if open_card.answer.done() or open_card.item.edit is not None:
            return
        if open_card.item.form is not None:
            self._set(no)
        elif decision.binding and decision.binding != open_card.item.request.binding:
            self._set(QuestionOutcome.OTHER_REQUEST)
        elif isinstance(decision, Reject):
            self._set(no, decision.reason)
        elif not isinstance(decision, Edit) or self._revise(open_card, decision.arguments):
            self._set(yes)

    def close(self) -> None:
        """Cancel the open card, from any thread."""
        self._loop.call_soon(self._set, QuestionOutcome.CLOSED)

    def dismiss(self, outcome: QuestionOutcome) -> None:
        """Set the outcome of the cancellation that follows, in the loop's thread."""
        self._dismissal = outcome

    def answer_from_code(self, answers: Iterable[Decision | bool]) -> None:
        """Answer the next cards without waiting for a click, in the loop's thread.

        Args:
            answers: as in `settle`; an edit with invalid arguments rejects. With any answer, forms
                are declined until the next call: questions of a server in mid-call were unknown
                when the answers were written.
        """
        self._code_answers = [decision_of(answer) for answer in answers]
        self._declines_forms = bool(self._code_answers)

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Handle a message of the browser; only answers to what the open card shows count."""
        open_card = self._open
        if open_card is None or open_card.answer.done() or content.get("type") != "answer":
            return
        item = open_card.item
        if (content.get("card"), content.get("attempt")) != (item.card, item.attempts):
            return
        fields = content.get("fields")
        sent = fields if isinstance(fields, dict) else {}
        typed = {name: text for name, text in sent.items() if isinstance(text, str | None)}
        reason = content.get("reason") if content.get("how") == "cancel" else ""
        match content.get("how"):
            case "back" if item.edit is not None:
                self._show(open_card, edit=None)
            case "check" if item.edit is not None:
                self._check(open_card, item.edit, typed)
            case _ if item.edit is not None:
                pass
            case "send" if item.form is not None:
                self._send(open_card, item.form, typed)
            case "edit" if item.form is None and item.request.revise is not None:
                request, catalog = item.request, load_catalog(self.locale)
                self._show(open_card, edit=argument_form(request.parameters, request.args, catalog))
            case str(how) if how in _OUTCOMES[item.form is not None]:
                words = reason if isinstance(reason, str) and item.form is None else ""
                self._set(_OUTCOMES[item.form is not None][how], words)

    def _show(self, open_card: "_OpenCard", **changes: Any) -> None:
        """Change what an open card shows; presses on the earlier version no longer count."""
        open_card.show(**{"errors": {}, "attempts": open_card.item.attempts + 1, **changes})

    def _send(self, open_card: "_OpenCard", form: Form, typed: Typed) -> None:
        """Complete a form with its input, or show its validation errors."""
        done = filled(form, typed, load_catalog(self.locale))
        if done.errors:
            self._show(open_card, errors=done.errors)
        else:
            open_card.values = done.values
            self._set(QuestionOutcome.SENT)

    def _check(self, open_card: "_OpenCard", edit: Form, typed: Typed) -> None:
        """Show the card with the edited arguments, or the form with its validation errors."""
        request, catalog = open_card.item.request, load_catalog(self.locale)
        given = argument_form(request.parameters, request.args, catalog)
        typed = {**edit.typed, **typed}
        done = edited_arguments(given, typed, request.args, catalog)
        if not done.errors:
            self._revise(open_card, done.values)
        if done.errors or open_card.item.errors:
            fields = (replace(field, typed=typed[field.name]) for field in given.fields)
            errors = done.errors or open_card.item.errors
            self._show(open_card, edit=Form(fields=tuple(fields)), errors=errors)

    def _revise(self, open_card: "_OpenCard", arguments: Any) -> bool:
        """Show the card with other arguments; return False, and show why, if they are invalid."""
        asked = open_card.request
        try:
            request = replace(asked.edited(arguments), revise=asked.revise)
        except InvalidEditError as error:
            self._show(open_card, errors={"": str(error)})
            return False
        is_changed = bool(changed_arguments(asked.args, request.args))
        proposed = asked.args if is_changed else None
        self._show(open_card, request=request, edit=None, proposed=proposed)
        return True

    def _set(self, outcome: QuestionOutcome, reason: str = "") -> None:
        if self._open is not None and not self._open.answer.done():
            self._open.reason = reason.strip()[:WHY_CHARS]
            self._open.answer.set_result(outcome)

    async def _ask_with_card(
        self, request: ConfirmRequest, form: Form | None = None
    ) -> "_OpenCard":
        """Show a card, and return it with its outcome, arguments and reason."""
        self._loop.bind()
        item = CardItem(card=f"{os.getpid()}-{next(_numbers)}", request=request, form=form)
        self._open = open_card = _OpenCard(
            item=item,
            request=request,
            screen=self._screen or self._new_screen(),
            answer=asyncio.get_running_loop().create_future(),
        )
        # `dismiss` sets it before a stop; else a cancelled form was withdrawn by its server
        self._dismissal = QuestionOutcome.INTERRUPTED if form is None else QuestionOutcome.WITHDRAWN
        open_card.screen.apply(item)
        open_card.screen.flush()
        outcome = QuestionOutcome.FAILED
        try:
            outcome = await self._outcome(open_card)
        except (asyncio.CancelledError, KeyboardInterrupt) as error:
            outcome = self._dismissal
            error.args = (outcome,)  # read by the dispatcher, as the message of `Task.cancel`
            raise
        finally:
            self._open = None
            if form is None:  # a form is not the answer to the call
                self.outcomes.append(outcome)
            open_card.settle(outcome)
        return open_card

    def _new_screen(self) -> Screen:
        screen = Screen(
            loop=self._loop,
            catalog=load_catalog(self.locale),
            name="ConfirmCard()",
            receive=self.take_message,
            has_input=False,
        )
        if in_kernel():
            show(screen.widget)
        return screen

    async def _outcome(self, open_card: "_OpenCard") -> QuestionOutcome:
        form = open_card.item.form
        if form is not None and self._declines_forms:
            return QuestionOutcome.CODE_NO
        if form is None and self._code_answers:
            decision = self._code_answers.pop(0)
            self._decide(open_card, decision, QuestionOutcome.CODE_YES, QuestionOutcome.CODE_NO)
            is_valid = open_card.answer.done()
            return open_card.answer.result() if is_valid else QuestionOutcome.INVALID_EDIT
        loop, screen = asyncio.get_running_loop(), open_card.screen
        opened_s = watched_s = loop.time()
        while not open_card.answer.done():
            now_s = loop.time()
            watched_s = now_s if screen.is_watched else watched_s
            if self._timeout_s is not None and now_s - opened_s >= self._timeout_s:
                return QuestionOutcome.TIMED_OUT
            if not screen.is_watched and (not in_kernel() or now_s - watched_s >= FRONT_END_S):
                return await self._ask_by_text(open_card)
            await asyncio.wait({open_card.answer}, timeout=HEARTBEAT_S)
        return open_card.answer.result()

    async def _ask_by_text(self, open_card: "_OpenCard") -> QuestionOutcome:
        if open_card.screen.was_seen:
            return QuestionOutcome.CLOSED  # the page that showed it is gone
        catalog, request, form = load_catalog(self.locale), open_card.request, open_card.item.form
        if form is not None:
            answer = await ask_by_text(lambda gate: gate.fill_in(request, form), catalog, self._ask)
            if answer is None:
                return QuestionOutcome.NOBODY
            open_card.values = answer.content
            return _TYPED_OUTCOMES[answer.action]
        decision = await ask_by_text(lambda gate: gate.confirm(request), catalog, self._ask)
        if decision is None:
            return QuestionOutcome.NOBODY
        self._decide(open_card, decision, QuestionOutcome.TYPED_YES, QuestionOutcome.TYPED_NO)
        is_valid = open_card.answer.done()
        return open_card.answer.result() if is_valid else QuestionOutcome.INVALID_EDIT


@dataclass(slots=True, kw_only=True)
class _OpenCard:
    """The open card, the question as it was asked, and the answer.

    `values` are those of a form of a server in mid-call.
    """

    item: CardItem
    request: ConfirmRequest
    screen: Screen
    answer: "asyncio.Future[QuestionOutcome]"
    values: Mapping[str, JSON] = field(default_factory=dict)
    reason: str = ""

    def show(self, **changes: Any) -> None:
        """Show a changed card."""
        self.item = replace(self.item, **changes)
        self.screen.apply(self.item)
        self.screen.flush()

    def settle(self, outcome: QuestionOutcome) -> None:
        """Show the outcome."""
        self.show(outcome=outcome, edit=None, errors={}, reason=self.reason)

    @property
    def decision(self) -> Decision:
        """The decision on the question; an edit has the arguments that the card shows."""
        outcome, binding = self.item.outcome, self.request.binding
        if outcome is None or not outcome.is_allowed:
            return Reject(self.reason, how=outcome, binding=binding)
        if self.item.proposed is None:
            return Approve(how=outcome, binding=binding)
        return Edit(self.item.request.args, how=outcome, binding=binding)


class _CardGate:
    """The gate inside `GuardedGate`, which serialises questions and refuses on errors."""

    is_person = True

    def __init__(self, ask: Callable[[ConfirmRequest, Form | None], Awaitable[_OpenCard]]) -> None:
        self._ask = ask

    async def confirm(self, request: ConfirmRequest) -> Decision:
        return (await self._ask(request, None)).decision

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        card = await self._ask(request, form)
        outcome = card.item.outcome
        if outcome is not None and outcome.is_allowed:
            return FormAnswer(action=FormAction.ACCEPT, content=card.values)
        return DECLINED if outcome in _DECLINING else CANCELLED
