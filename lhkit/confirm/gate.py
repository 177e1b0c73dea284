r"""The confirm gate: ask the user before a destructive call; only an explicit yes runs it.

Fails closed: a cancelled or dismissed question, a time-out, a second question while one is open and
any error count as no. Not prevented: a user who approves without reading.

To write a gate, implement `ConfirmGate.confirm`: show `request.tool`, `request.heading`,
`request.texts` and `request.error`, and return `Approve()` only if the user explicitly approved
after the question was shown, else `Reject(reason)`, or `Edit(arguments)`. The short form is a bool.
Wrap it in `GuardedGate` for a time-out and one question at a time. Add `is_person = True` if a
person answers, and `fill_in` (`FormGate`) if it can show forms:

    class MailGate:
        is_person = True

        async def confirm(self, request: ConfirmRequest) -> Decision:
            answer = await self.ask(request.heading, visible("\n".join(request.texts)))
            return Approve() if answer == "yes" else Reject(answer)

    gate = GuardedGate(MailGate(), timeout_s=3600)
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from lhkit.base.json_values import JSON, canonical
from lhkit.confirm.decision import Approve, Decision, Edit, QuestionOutcome, Reject, decision_of
from lhkit.confirm.form import CANCELLED, DECLINED, Form, FormAction, FormAnswer
from lhkit.confirm.summary import pretty

_log = logging.getLogger(__name__)


class InvalidEditError(ValueError):
    """Edited arguments are invalid, or cannot be edited; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """The question to the user.

    Attributes:
        tool: the tool's name.
        description: the tool's description.
        title: the tool's short name for people; empty if it has none.
        args: the validated arguments, deeply read-only: all that will run, with each default.
        summary: what the call would do, in words; untrusted text (`lhkit.base.text.visible`).
        details: the arguments in words, those that the model left out marked as defaults.
        filled_in: JSON Pointers (RFC 6901) of the values in `args` that the model left out.
        given: those arguments as the model wrote them that were converted or completed.
        id: unique for each question.
        parameters: the JSON Schema of the arguments, for the fields of an edit.
        error: why the edit that the user made before is invalid; empty for the first question.
        revise: returns the changed fields of the request for edited arguments, or raises
            InvalidEditError; see `edited`. None if they cannot be edited.
        always_ask: no policy may let the call run without a question.
        logprob: the log-probability of the weakest token of the call; None if it is unknown.
    """

    tool: str
    description: str
    args: Mapping[str, JSON]
    summary: str
    details: str = ""
    filled_in: tuple[str, ...] = ()
    given: Mapping[str, JSON] = field(default_factory=dict, repr=False, compare=False)
    id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    error: str = ""
    revise: Callable[[Any], Mapping[str, Any]] | None = field(
        default=None, repr=False, compare=False
    )
    title: str = ""
    always_ask: bool = False
    logprob: float | None = None

    @property
    def heading(self) -> str:
        """The title, or the description of a tool without one."""
        return self.title.strip() or self.description

    @property
    def binding(self) -> str:
        """The hash of id, tool and arguments, which a decision may carry."""
        text = canonical([self.id, self.tool, self.args])
        return hashlib.sha256(text.encode()).hexdigest()

    def edited(self, arguments: Any) -> "ConfirmRequest":
        """Return the request with edited arguments, as the user sees it before the final yes.

        Return `Edit(arguments=result.args)` from the gate to run it.

        Raises:
            InvalidEditError: the tool's schema refuses them; the message is for the user.
        """
        if self.revise is None:
            raise InvalidEditError(f"the arguments of {self.tool} cannot be edited here")
        return replace(self, **self.revise(arguments), error="")

    @property
    def texts(self) -> tuple[str, ...]:
        """The summary, and the details unless it contains them: what a gate shows."""
        if not self.args or (details := self.details or pretty(self.args)) in self.summary:
            return (self.summary,)
        return self.summary, details


class ConfirmGate(Protocol):
    """Asks the user about one destructive call.

    A gate whose answers come from a person sets `is_person = True`: only such a gate is asked the
    questions that a tool has while it runs.
    """

    async def confirm(self, request: ConfirmRequest) -> Decision | bool:
        """Return the user's decision: `Approve()`, `Edit(…)` or `Reject(…)`.

        In short, True approves; anything else is a no, and so is an exception.
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

    def __init__(self, answers: Iterable[Decision | bool]) -> None:
        self._answers = iter(answers)
        self.asked: list[ConfirmRequest] = []

    async def confirm(self, request: ConfirmRequest) -> Decision | bool:
        """Return the next answer of the list."""
        self.asked.append(request)
        answer = next(self._answers, False)
        return answer if isinstance(answer, Approve | Reject | Edit) else answer is True


class GuardedGate:
    """Wraps a gate that asks a person: one question at a time, a time-out, a no for exceptions.

    A gate that decides by a rule needs none: it returns `Approve(how=QuestionOutcome.CODE_YES)` or
    `Reject("why", how=QuestionOutcome.CODE_NO)`.

    Args:
        inner: the gate.
        timeout_s: limit for each answer, in seconds; None waits without limit.
    """

    def __init__(self, inner: ConfirmGate, *, timeout_s: float | None = None) -> None:
        self._inner = inner
        self._timeout_s = timeout_s
        self._is_open = False
        self.is_person = is_person(inner)

    async def confirm(self, request: ConfirmRequest) -> Decision:
        """Return the inner gate's decision; a `Reject` if it is busy, late or raises.

        An answer after the time-out or after a cancellation of the caller is late, even if the
        inner gate swallows the CancelledError.
        """
        return decision_of(await self._answer(request, self._inner.confirm))

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return the inner gate's answer to a form; `CANCELLED` if it is busy, late or raises.

        An inner gate without `fill_in` is asked to confirm a form without fields, and declines any
        other.
        """

        async def ask(request: ConfirmRequest) -> FormAnswer:
            if isinstance(self._inner, FormGate):
                return await self._inner.fill_in(request, form)
            is_yes = not form.fields and decision_of(await self._inner.confirm(request))
            return FormAnswer(action=FormAction.ACCEPT, content=form.given) if is_yes else DECLINED

        answer = await self._answer(request, ask)
        return answer if isinstance(answer, FormAnswer) else CANCELLED

    async def _answer(
        self, request: ConfirmRequest, ask: Callable[[ConfirmRequest], Awaitable[Any]]
    ) -> Any:
        if self._is_open:
            return Reject(how=QuestionOutcome.FAILED)
        self._is_open = True
        cancelled_before = cancellations()
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                answer = await ask(request)
        except Exception:  # noqa: BLE001 - boundary: an error means no
            if limit.expired():
                return Reject(how=QuestionOutcome.TIMED_OUT)
            _log.warning("the confirm gate failed for %s: denied", request.tool, exc_info=True)
            return Reject(how=QuestionOutcome.FAILED)
        finally:
            self._is_open = False
        if limit.expired():
            return Reject(how=QuestionOutcome.TIMED_OUT)
        is_in_time = cancellations() == cancelled_before
        return answer if is_in_time else Reject(how=QuestionOutcome.WITHDRAWN)


def is_person(gate: object) -> bool:
    """Return whether the answers of a gate come from a person."""
    return getattr(gate, "is_person", False) is True


class MidCallQuestions:
    """The questions of a running tool (MCP elicitation), and the time the user took to answer.

    Args:
        gate: the gate that asks; every question is declined if it is None or not a person's.
    """

    def __init__(self, gate: ConfirmGate | None) -> None:
        self._gate = gate if is_person(gate) else None
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
