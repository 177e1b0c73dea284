"""The confirm card: a question with two buttons, answered yes only by an explicit Run.

What a tool wants to know in the midst of its work is a card, too, with the fields of its form; what
is typed there goes to who asked and is kept nowhere.

Works in the turn of a panel, in `await gate.confirm(…)` in a cell (ipykernel 7.4 or newer), and
where nothing can be clicked: then it asks with `input()` where a person can type, else says no.
Never a hang: waiting has a heartbeat, so that Interrupt gets through.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from lhkit.confirm.decision import Decision, QuestionOutcome, is_approved
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
"""How long a front end may take to show a card before it is taken to be absent."""

_LEAVING = {"cancel": QuestionOutcome.CANCEL, "escape": QuestionOutcome.ESCAPE}
_ANSWERS = {  # by whether there is a form
    False: {"run": QuestionOutcome.RUN, **_LEAVING},
    True: {"decline": QuestionOutcome.DECLINED, **_LEAVING},
}
_DECLINING = frozenset(
    {
        QuestionOutcome.DECLINED,
        QuestionOutcome.TYPED_NO,
        QuestionOutcome.CODE_NO,
        QuestionOutcome.NOBODY,
    }
)
_TYPED = {
    FormAction.ACCEPT: QuestionOutcome.TYPED_YES,
    FormAction.DECLINE: QuestionOutcome.TYPED_NO,
    FormAction.CANCEL: QuestionOutcome.CANCEL,
}

_numbers = count(1)  # of cards: with the kernel's own number they are ids in one page


class ButtonConfirmGate:
    """Asks with a card.

    Args:
        locale: the language of the card.
        timeout_s: after so many seconds the answer is no; None waits as long as it takes.
        screen: where cards are shown; by default each has its own, in the output of the cell.
        ask: reads a line where nothing can be clicked.
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
        self._home = screen
        self._ask = ask
        self._loop = HomeLoop()
        self.deciding = GuardedGate(_Asking(self._question))
        """The same gate, whose answers are a `Decision`: for a conversation that is recorded."""
        self._open: _Open | None = None
        self._dismissal = QuestionOutcome.INTERRUPTED
        self._code: list[bool] = []
        self._declines_forms = False
        self.outcomes: list[QuestionOutcome] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return True only if the user explicitly said to run it; False while another is open."""
        return is_approved(await self.deciding.confirm(request))

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return what a person filled in, in the midst of a tool's work."""
        return await self.deciding.fill_in(request, form)

    def settle(self, card: str, *, is_allowed: bool) -> None:
        """Answer a card from code. Any thread; the first answer wins.

        Args:
            card: the card's id. Nothing happens if it is not open, as with a late click.
            is_allowed: only True is a yes. A form, which a server asks in mid-call, is declined.
        """
        self._loop.hand_over(self._settle, card, is_allowed)

    def _settle(self, card: str, is_allowed: bool) -> None:
        opened = self._open
        if opened is not None and opened.card == card:
            is_yes = is_allowed is True and opened.form is None
            self._set(QuestionOutcome.CODE_YES if is_yes else QuestionOutcome.CODE_NO)

    def close(self) -> None:
        """Answer the open card with no. Any thread."""
        self._loop.hand_over(self._set, QuestionOutcome.CLOSED)

    def dismiss(self, outcome: QuestionOutcome) -> None:
        """Say why a cancellation that follows ended the question. The loop's thread."""
        self._dismissal = outcome

    def answer_from_code(self, answers: Iterable[bool]) -> None:
        """Answer the next writes without waiting for a click. The loop's thread.

        Only True is a yes. Until the next call every form is declined if there was an answer: what
        a server asks in mid-call was unknown when the answers were written.
        """
        self._code = [answer is True for answer in answers]
        self._declines_forms = bool(self._code)

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Take in what the browser sent; anything but an answer to the open card is ignored."""
        opened = self._open
        if opened is None or content.get("type") != "answer" or content.get("card") != opened.card:
            return
        match content:
            case {"how": "send", "fields": dict(fields)} if opened.form is not None:
                typed = {k: text for k, text in fields.items() if isinstance(text, str)}
                self._send(opened, opened.form, typed)
            case {"how": str(how)} if how in _ANSWERS[opened.form is not None]:
                self._set(_ANSWERS[opened.form is not None][how])

    def _send(self, opened: "_Open", form: Form, typed: Typed) -> None:
        """Send what stands in the form, or tell what does not fit."""
        done = filled(form, typed, load_catalog(self.locale))
        if not done.faults:
            opened.values = done.values
            self._set(QuestionOutcome.SENT)
        elif not opened.answer.done():
            opened.screen.take(CardInvalid(card=opened.card, faults=done.faults))
            opened.screen.flush()

    def _set(self, outcome: QuestionOutcome) -> None:
        if self._open is not None and not self._open.answer.done():
            self._open.answer.set_result(outcome)

    async def _question(
        self, request: ConfirmRequest, form: Form | None = None
    ) -> tuple[QuestionOutcome, Mapping[str, JSON]]:
        """Return what became of a question, and what was filled in."""
        self._loop.bind()
        opened = _Open(
            card=f"{os.getpid()}-{next(_numbers)}",
            request=request,
            form=form,
            screen=self._home or self._own_screen(),
            answer=asyncio.get_running_loop().create_future(),
        )
        self._open = opened
        # whoever stops or interrupts says so before; else who asks in the midst of a call is gone
        self._dismissal = QuestionOutcome.INTERRUPTED if form is None else QuestionOutcome.WITHDRAWN
        opened.screen.take(CardItem(card=opened.card, request=request, form=form))
        opened.screen.flush()
        outcome = QuestionOutcome.FAILED
        try:
            outcome = await self._outcome(opened)
        except (asyncio.CancelledError, KeyboardInterrupt) as error:
            outcome = self._dismissal
            error.args = (outcome,)  # as the message of `Task.cancel`: the dispatcher records it
            raise
        finally:
            self._open = None
            if form is None:  # what a tool asks in its midst is no answer to its call
                self.outcomes.append(outcome)
            opened.screen.take(CardSettled(card=opened.card, outcome=outcome))
            opened.screen.flush()
        return outcome, opened.values

    def _own_screen(self) -> Screen:
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

    async def _outcome(self, opened: "_Open") -> QuestionOutcome:
        if opened.form is not None and self._declines_forms:
            return QuestionOutcome.CODE_NO
        if opened.form is None and self._code:
            return QuestionOutcome.CODE_YES if self._code.pop(0) else QuestionOutcome.CODE_NO
        loop, screen = asyncio.get_running_loop(), opened.screen
        begun_s = watched_s = loop.time()
        while not opened.answer.done():
            now_s = loop.time()
            watched_s = now_s if screen.is_watched else watched_s
            if self._timeout_s is not None and now_s - begun_s >= self._timeout_s:
                return QuestionOutcome.TIMED_OUT
            if not screen.is_watched and (not in_kernel() or now_s - watched_s >= FRONT_END_S):
                return await self._without_front_end(opened)
            await asyncio.wait({opened.answer}, timeout=HEARTBEAT_S)
        return opened.answer.result()

    async def _without_front_end(self, opened: "_Open") -> QuestionOutcome:
        if opened.screen.was_seen:
            return QuestionOutcome.CLOSED  # whoever showed it is gone
        catalog, request = load_catalog(self.locale), opened.request
        if opened.form is not None:
            answer = await typed_form(request, opened.form, catalog, self._ask)
            if answer is None:
                return QuestionOutcome.NOBODY
            opened.values = answer.content
            return _TYPED[answer.action]
        prompt = catalog.text("confirm.prompt", title=catalog.text("confirm.title"))
        shown = visible(f"{request.tool}: {request.summary}")
        typed = await typed_answer(f"{shown}\n{prompt}", self._ask)
        if typed is None:
            return QuestionOutcome.NOBODY
        return QuestionOutcome.TYPED_YES if typed else QuestionOutcome.TYPED_NO


@dataclass(slots=True, kw_only=True)
class _Open:
    """The question that is shown: where, with which answer, and what was filled in."""

    card: str
    request: ConfirmRequest
    form: Form | None
    screen: Screen
    answer: "asyncio.Future[QuestionOutcome]"
    values: Mapping[str, JSON] = field(default_factory=dict)


class _Asking:
    """What `GuardedGate` wraps: one question at a time, and no fault means yes."""

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
        return Decision(outcome)

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        outcome, values = await self._ask(request, form)
        if outcome.is_allowed:
            return FormAnswer(action=FormAction.ACCEPT, content=values)
        return DECLINED if outcome in _DECLINING else CANCELLED
