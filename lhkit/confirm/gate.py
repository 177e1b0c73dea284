"""The confirm gate: ask the user before a destructive call; only an explicit yes runs it.

Fails closed: a cancelled or dismissed question, a time-out, a second question while one is open and
any error count as no. Not prevented: a user who approves without reading.

To write a gate, implement `ConfirmGate.confirm`: show `request.tool`, `request.description` and
`request.summary`, and return True, or a `Decision`, only if the user explicitly approved after the
question was shown. Wrap it in `GuardedGate` for a time-out and one question at a time. Add
`is_person = True` if a person answers, and `fill_in` (`FormGate`) if it can show forms:

    class MailGate:
        is_person = True

        async def confirm(self, request: ConfirmRequest) -> bool:
            return await self.ask(request.description, visible(request.summary)) == "yes"

    gate = GuardedGate(MailGate(), timeout_s=3600)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from lhkit.confirm.form import CANCELLED, DECLINED, Form, FormAction, FormAnswer
from lhkit.json_values import JSON

_log = logging.getLogger(__name__)


class QuestionOutcome(StrEnum):
    """How a question was answered."""

    RUN = "run"
    SENT = "sent"  # a form was filled in
    TYPED_YES = "typed_yes"
    CODE_YES = "code_yes"  # answered by a program, such as a notebook under nbval
    CANCEL = "cancel"
    DECLINED = "declined"  # a form was declined
    ESCAPE = "escape"
    TYPED_NO = "typed_no"
    CODE_NO = "code_no"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    CLOSED = "closed"
    NOBODY = "nobody"  # no front end is connected
    FAILED = "failed"
    WITHDRAWN = "withdrawn"  # the caller was cancelled or no longer needs an answer

    @property
    def is_allowed(self) -> bool:
        """True if the tool may run, or the form may be sent."""
        return self in _ALLOWED


_ALLOWED = frozenset(
    {
        QuestionOutcome.RUN,
        QuestionOutcome.SENT,
        QuestionOutcome.TYPED_YES,
        QuestionOutcome.CODE_YES,
    }
)


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer that a gate may return instead of a bool; `outcome` is recorded."""

    outcome: QuestionOutcome

    def __bool__(self) -> bool:
        """Return True for an explicit yes."""
        return self.outcome.is_allowed


def is_approved(answer: Any) -> bool:
    """Return True if a gate's answer is an explicit yes: `True`, or a `Decision` that allows it."""
    return answer is True or (type(answer) is Decision and bool(answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """The question to the user.

    Attributes:
        tool: the tool's name.
        description: the tool's description.
        args: the validated arguments, deeply read-only.
        summary: what the call would do, in words; untrusted text (`lhkit.text.visible`).
    """

    tool: str
    description: str
    args: Mapping[str, JSON]
    summary: str


class ConfirmGate(Protocol):
    """Asks the user about one destructive call.

    A gate whose answers come from a person sets `is_person = True`: only such a gate is asked the
    questions that a tool has while it runs.
    """

    async def confirm(self, request: ConfirmRequest) -> bool | Decision:
        """Return True, or a `Decision` that allows it, only if the user approved the call.

        Any other answer is a no, and so is an exception.
        """
        ...


@runtime_checkable
class FormGate(Protocol):
    """A gate that can also show a form, for the questions of a running tool (MCP elicitation)."""

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return the values that the user filled in, `DECLINED`, or `CANCELLED`."""
        ...


class DenyGate:
    """Denies every call."""

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return False."""
        return False


class ScriptedGate:
    """Answers from a list, for tests and scripts; denies once the list is exhausted.

    Attributes:
        asked: the requests so far.
    """

    def __init__(self, answers: Iterable[bool]) -> None:
        self._answers = iter(answers)
        self.asked: list[ConfirmRequest] = []

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Return the next answer of the list."""
        self.asked.append(request)
        return next(self._answers, False) is True


class GuardedGate:
    """Wraps a gate that asks a person: one question at a time, a time-out, a no for exceptions.

    A gate that decides by a rule needs none: it returns `Decision` with `CODE_YES` or `CODE_NO`.

    Args:
        inner: the gate.
        timeout_s: limit for each answer, in seconds; None waits without limit.
    """

    def __init__(self, inner: ConfirmGate, *, timeout_s: float | None = None) -> None:
        self._inner = inner
        self._timeout_s = timeout_s
        self._is_open = False
        self.is_person = _is_person(inner)

    async def confirm(self, request: ConfirmRequest) -> bool | Decision:
        """Return the inner gate's answer; False if it is busy, late or raises.

        An answer after the time-out or after a cancellation of the caller is late, even if the
        inner gate swallows the CancelledError.
        """
        answer = await self._answer(request, self._inner.confirm)
        return answer if type(answer) is Decision else answer is True

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return the inner gate's answer to a form; `CANCELLED` if it is busy, late or raises.

        An inner gate without `fill_in` is asked to confirm a form without fields, and declines any
        other.
        """

        async def ask(request: ConfirmRequest) -> FormAnswer:
            if isinstance(self._inner, FormGate):
                return await self._inner.fill_in(request, form)
            is_yes = not form.fields and is_approved(await self._inner.confirm(request))
            return FormAnswer(action=FormAction.ACCEPT, content=form.given) if is_yes else DECLINED

        answer = await self._answer(request, ask)
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
        except Exception:  # noqa: BLE001 - boundary: an error means no
            _log.warning("the confirm gate failed for %s: denied", request.tool, exc_info=True)
            return None
        finally:
            self._is_open = False
        is_in_time = not limit.expired() and cancellations() == cancelled_before
        return answer if is_in_time else None


def _is_person(gate: object) -> bool:
    return getattr(gate, "is_person", False) is True


class MidCallQuestions:
    """The questions of a running tool (MCP elicitation), and the time the user took to answer.

    Args:
        gate: the gate that asks; every question is declined if it is None or not a person's.
    """

    def __init__(self, gate: ConfirmGate | None) -> None:
        self._gate = gate if _is_person(gate) else None
        self._waited_s = 0.0
        self._since_s: float | None = None
        self._open: asyncio.Task[FormAnswer] | None = None

    @property
    def waited_s(self) -> float:
        """Seconds spent waiting for the user so far, an open question included."""
        since_s = self._since_s
        return self._waited_s + (0.0 if since_s is None else _now_s() - since_s)

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return the user's answer; `DECLINED` if a question is open or no person answers."""
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
        """Cancel the open question and decline all later ones."""
        self._gate = None
        if self._open is not None:
            self._open.cancel()


_questions: ContextVar[MidCallQuestions | None] = ContextVar("questions", default=None)


@contextmanager
def use_questions(questions: MidCallQuestions) -> Iterator[None]:
    """Make `questions` the `current_questions` within the block and in tasks started in it."""
    token = _questions.set(questions)
    try:
        yield
    finally:
        _questions.reset(token)


def current_questions() -> MidCallQuestions | None:
    """Return the questions object of the running handler; None outside of a handler."""
    return _questions.get()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def cancellations() -> int:
    """Return the number of cancellation requests to the calling task."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0
