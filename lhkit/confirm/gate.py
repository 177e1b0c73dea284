"""The confirm gate: one question, answered yes only by an explicit "run".

Fail closed: cancel, dismissal, a time-out, a second question while one is open and any internal
error all mean no. A yes counts only if it came after the question was shown. Not covered: a person
who clicks Run without reading.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lhkit.confirm.decision import Decision, is_approved
from lhkit.confirm.form import CANCELLED, DECLINED, Form, FormAction, FormAnswer
from lhkit.json_values import JSON

_log = logging.getLogger(__name__)


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

    async def confirm(self, request: ConfirmRequest) -> bool | Decision:
        """Return True, or a `Decision` for it, only if the user explicitly said to run it."""
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

    async def confirm(self, request: ConfirmRequest) -> bool | Decision:
        """Return the inner gate's answer; False if busy, too late or broken.

        An inner gate that goes on although it was told that time is up, or that the caller was
        cancelled, is too late as well: what it says then is no yes.
        """
        answer = await self._answer(request, self._inner.confirm)
        return answer if type(answer) is Decision else answer is True

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return what the inner gate's person filled in; cancelled if busy, too late or broken.

        A gate that knows no forms is asked for a yes or no, where no more is wanted.
        """

        async def asked(request: ConfirmRequest) -> FormAnswer:
            if isinstance(self._inner, FormGate):
                return await self._inner.fill_in(request, form)
            is_yes = not form.fields and is_approved(await self._inner.confirm(request))
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
def use_questions(questions: MidCallQuestions) -> Iterator[None]:
    """Let what runs in the block ask these."""
    token = _questions.set(questions)
    try:
        yield
    finally:
        _questions.reset(token)


def current_questions() -> MidCallQuestions | None:
    """Return what the running handler may ask; None outside of one."""
    return _questions.get()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def cancellations() -> int:
    """Return how often the calling task was asked to cancel."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0
