"""The confirm card: a question with two buttons, answered yes only by an explicit Run.

Works in the turn of a panel, in `await gate.confirm(…)` in a cell (ipykernel 7.4 or newer), and
where nothing can be clicked: then it asks with `input()` where a person can type, else says no.
Never a hang: waiting has a heartbeat, so that Interrupt gets through.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from typing import Any

from lhkit.confirm.gate import ConfirmRequest, GuardedGate
from lhkit.locales import DEFAULT_LOCALE, load_catalog
from lhkit.notebook.state import CardOpened, CardSettled, QuestionOutcome
from lhkit.notebook.widget import HEARTBEAT_S, Ask, HomeLoop, Screen, in_kernel, show, typed_answer

FRONT_END_S = 2.25
"""How long a front end may take to show a card before it is taken to be absent."""

_ANSWERS = {
    "run": QuestionOutcome.RUN,
    "cancel": QuestionOutcome.CANCEL,
    "escape": QuestionOutcome.ESCAPE,
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
        self._guard = GuardedGate(_Asking(self._question))
        self._card = ""
        self._answer: asyncio.Future[QuestionOutcome] | None = None
        self._dismissal = QuestionOutcome.INTERRUPTED
        self._code: list[bool] = []
        self.outcomes: list[QuestionOutcome] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return True only if the user explicitly said to run it; False while another is open."""
        return await self._guard.confirm(request)

    def settle(self, *, is_allowed: bool) -> None:
        """Answer the open card from code. Any thread; the first answer wins."""
        outcome = QuestionOutcome.CODE_YES if is_allowed else QuestionOutcome.CODE_NO
        self._loop.hand_over(self._set, outcome, None)

    def close(self) -> None:
        """Answer the open card with no. Any thread."""
        self._loop.hand_over(self._set, QuestionOutcome.CLOSED, None)

    def dismiss(self, outcome: QuestionOutcome) -> None:
        """Say why a cancellation that follows ended the question. The loop's thread."""
        self._dismissal = outcome

    def answer_from_code(self, answers: Iterable[bool]) -> None:
        """Answer the next cards so, without waiting for a click. The loop's thread."""
        self._code = list(answers)

    def take_message(self, content: Mapping[str, Any]) -> None:
        """Take in what the browser sent; anything but an answer to the open card is ignored."""
        match content:
            case {"type": "answer", "card": str(card), "how": str(how)} if how in _ANSWERS:
                self._set(_ANSWERS[how], card)

    def _set(self, outcome: QuestionOutcome, card: str | None) -> None:
        is_stale = card is not None and card != self._card
        if self._answer is not None and not self._answer.done() and not is_stale:
            self._answer.set_result(outcome)

    async def _question(self, request: ConfirmRequest) -> bool:
        self._loop.bind()
        screen = self._home or self._own_screen()
        self._card, self._answer = _new_id(), asyncio.get_running_loop().create_future()
        self._dismissal = QuestionOutcome.INTERRUPTED
        screen.take(CardOpened(card=self._card, request=request))
        screen.flush()
        outcome = QuestionOutcome.FAILED
        try:
            outcome = await self._outcome(self._answer, screen, request)
        except (asyncio.CancelledError, KeyboardInterrupt):
            outcome = self._dismissal
            raise
        finally:
            self._answer = None
            self.outcomes.append(outcome)
            screen.take(CardSettled(card=self._card, outcome=outcome))
            screen.flush()
        return outcome.is_allowed

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

    async def _outcome(
        self, answer: "asyncio.Future[QuestionOutcome]", screen: Screen, request: ConfirmRequest
    ) -> QuestionOutcome:
        if self._code:
            return QuestionOutcome.CODE_YES if self._code.pop(0) else QuestionOutcome.CODE_NO
        loop = asyncio.get_running_loop()
        begun_s = watched_s = loop.time()
        while not answer.done():
            now_s = loop.time()
            watched_s = now_s if screen.is_watched else watched_s
            if self._timeout_s is not None and now_s - begun_s >= self._timeout_s:
                return QuestionOutcome.TIMED_OUT
            if not screen.is_watched and (not in_kernel() or now_s - watched_s >= FRONT_END_S):
                return await self._without_front_end(screen, request)
            await asyncio.wait({answer}, timeout=HEARTBEAT_S)
        return answer.result()

    async def _without_front_end(self, screen: Screen, request: ConfirmRequest) -> QuestionOutcome:
        if screen.was_seen:
            return QuestionOutcome.CLOSED  # whoever showed it is gone
        title = load_catalog(self.locale).text("confirm.title")
        prompt = load_catalog(self.locale).text("confirm.prompt", title=title)
        typed = await typed_answer(f"{request.tool}: {request.summary}\n{prompt}", self._ask)
        if typed is None:
            return QuestionOutcome.NOBODY
        return QuestionOutcome.TYPED_YES if typed else QuestionOutcome.TYPED_NO


def _new_id() -> str:
    return f"{os.getpid()}-{next(_numbers)}"


class _Asking:
    """What `GuardedGate` wraps: one question at a time, and no fault means yes."""

    def __init__(self, ask: Callable[[ConfirmRequest], Awaitable[bool]]) -> None:
        self._ask = ask

    async def confirm(self, request: ConfirmRequest) -> bool:
        return await self._ask(request)
