"""The confirmation card: a question with two buttons, accepted only by an explicit Run.

A question of a tool in mid-call is a card with a form; its input goes only to the tool.

Cards work in the turn of a panel, and in `await gate.confirm(…)` in a cell (ipykernel 7.4 or
newer). Where no widget is shown the gate asks with `input()`, and without a user it refuses.
Waiting wakes up regularly, so that an interrupt ends it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from lhkit.confirm.decision import Approve, Decision, QuestionOutcome, Reject
from lhkit.confirm.form import CANCELLED, DECLINED, Form, FormAction, FormAnswer, Typed, filled
from lhkit.confirm.gate import ConfirmRequest, GuardedGate
from lhkit.json_values import JSON
from lhkit.locales import DEFAULT_LOCALE, load_catalog
from lhkit.notebook.front_end import Ask, in_kernel, show, typed_answer, typed_form
from lhkit.notebook.loop import HEARTBEAT_S, HomeLoop
from lhkit.notebook.screen import Screen
from lhkit.notebook.state import CardInvalid, CardItem, CardSettled
from lhkit.text import visible

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
        locale: the language of the card.
        timeout_s: refuse after this many seconds; None waits without a limit.
        screen: where cards are shown; by default each card is shown in the output of the cell.
        ask: reads a line where no widget is shown.
    """

    is_person = True

    def __init__(
        self,
        *,
        locale: str = DEFAULT_LOCALE,
        timeout_s: float | None = None,
        screen: Screen | None = None,
        ask: Ask = input,
    ) -> None:
        self.locale = locale
        self._timeout_s = timeout_s
        self._screen = screen
        self._ask = ask
        self._loop = HomeLoop()
        self.decision_gate = GuardedGate(_CardGate(self._ask_with_card))
        """The same gate with `Decision` answers, for conversations that are recorded."""
        self._open: _OpenCard | None = None
        self._dismissal = QuestionOutcome.INTERRUPTED
        self._code_answers: list[bool] = []
        self._declines_forms = False
        self.outcomes: list[QuestionOutcome] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return True only if the user pressed Run; False while another card is open."""
        return bool(await self.decision_gate.confirm(request))

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return the user's input to a form of a tool in mid-call."""
        return await self.decision_gate.fill_in(request, form)

    def settle(self, card: str, *, is_allowed: bool) -> None:
        """Answer a card from code, in any thread; the first answer wins.

        Args:
            card: the card's id; ignored if it is not open, as with a late click.
            is_allowed: only True accepts. A form of a server in mid-call is declined.
        """
        self._loop.call_soon(self._settle, card, is_allowed)

    def _settle(self, card: str, is_allowed: bool) -> None:
        open_card = self._open
        if open_card is not None and open_card.card == card:
            is_yes = is_allowed is True and open_card.form is None
            self._set(QuestionOutcome.CODE_YES if is_yes else QuestionOutcome.CODE_NO)

    def close(self) -> None:
        """Cancel the open card, from any thread."""
        self._loop.call_soon(self._set, QuestionOutcome.CLOSED)

    def dismiss(self, outcome: QuestionOutcome) -> None:
        """Set the outcome of the cancellation that follows, in the loop's thread."""
        self._dismissal = outcome

    def answer_from_code(self, answers: Iterable[bool]) -> None:
        """Answer the next cards without waiting for a click, in the loop's thread.

        Only True accepts. With any answer, forms are declined until the next call: questions of a
        server in mid-call were unknown when the answers were written.
        """
        self._code_answers = [answer is True for answer in answers]
        self._declines_forms = bool(self._code_answers)

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Handle a message of the browser; only answers to the open card count."""
        open_card = self._open
        if open_card is None or content.get("type") != "answer":
            return
        if content.get("card") != open_card.card:
            return
        outcomes = _OUTCOMES[open_card.form is not None]
        match content:
            case {"how": "send", "fields": dict(fields)} if open_card.form is not None:
                typed = {k: text for k, text in fields.items() if isinstance(text, str)}
                self._send(open_card, open_card.form, typed)
            case {"how": str(how)} if how in outcomes:
                self._set(outcomes[how])

    def _send(self, open_card: "_OpenCard", form: Form, typed: Typed) -> None:
        """Complete a form with its input, or show its validation errors."""
        done = filled(form, typed, load_catalog(self.locale))
        if not done.faults:
            open_card.values = done.values
            self._set(QuestionOutcome.SENT)
        elif not open_card.answer.done():
            open_card.screen.apply(CardInvalid(card=open_card.card, faults=done.faults))
            open_card.screen.flush()

    def _set(self, outcome: QuestionOutcome) -> None:
        if self._open is not None and not self._open.answer.done():
            self._open.answer.set_result(outcome)

    async def _ask_with_card(
        self, request: ConfirmRequest, form: Form | None = None
    ) -> tuple[QuestionOutcome, Mapping[str, JSON]]:
        """Show a card, and return its outcome and the values of its form."""
        self._loop.bind()
        open_card = _OpenCard(
            card=f"{os.getpid()}-{next(_numbers)}",
            request=request,
            form=form,
            screen=self._screen or self._new_screen(),
            answer=asyncio.get_running_loop().create_future(),
        )
        self._open = open_card
        # `dismiss` sets it before a stop; else a cancelled form was withdrawn by its server
        self._dismissal = QuestionOutcome.INTERRUPTED if form is None else QuestionOutcome.WITHDRAWN
        open_card.screen.apply(CardItem(card=open_card.card, request=request, form=form))
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
            open_card.screen.apply(CardSettled(card=open_card.card, outcome=outcome))
            open_card.screen.flush()
        return outcome, open_card.values

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
        if open_card.form is not None and self._declines_forms:
            return QuestionOutcome.CODE_NO
        if open_card.form is None and self._code_answers:
            is_yes = self._code_answers.pop(0)
            return QuestionOutcome.CODE_YES if is_yes else QuestionOutcome.CODE_NO
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
        catalog, request = load_catalog(self.locale), open_card.request
        if open_card.form is not None:
            answer = await typed_form(request, open_card.form, catalog, self._ask)
            if answer is None:
                return QuestionOutcome.NOBODY
            open_card.values = answer.content
            return _TYPED_OUTCOMES[answer.action]
        prompt = catalog.text("confirm.prompt", title=catalog.text("confirm.title"))
        shown = visible(f"{request.tool}: {request.summary}")
        typed = await typed_answer(f"{shown}\n{prompt}", self._ask)
        if typed is None:
            return QuestionOutcome.NOBODY
        return QuestionOutcome.TYPED_YES if typed else QuestionOutcome.TYPED_NO


@dataclass(slots=True, kw_only=True)
class _OpenCard:
    """The open card, its pending answer, and the values of its form."""

    card: str
    request: ConfirmRequest
    form: Form | None
    screen: Screen
    answer: "asyncio.Future[QuestionOutcome]"
    values: Mapping[str, JSON] = field(default_factory=dict)


class _CardGate:
    """The gate inside `GuardedGate`, which serialises questions and refuses on errors."""

    is_person = True

    def __init__(
        self,
        ask: Callable[
            [ConfirmRequest, Form | None],
            Awaitable[tuple[QuestionOutcome, Mapping[str, JSON]]],
        ],
    ) -> None:
        self._ask = ask

    async def confirm(self, request: ConfirmRequest) -> Decision:
        outcome, _ = await self._ask(request, None)
        return Approve(how=outcome) if outcome.is_allowed else Reject(how=outcome)

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        outcome, values = await self._ask(request, form)
        if outcome.is_allowed:
            return FormAnswer(action=FormAction.ACCEPT, content=values)
        return DECLINED if outcome in _DECLINING else CANCELLED
