"""One tool call to one result: look up, validate, confirm, run.

`dispatch` never raises, for any input of any type; only cancellation of the calling task passes,
and a KeyboardInterrupt, which is a person's and no tool's.
What is asked is what runs and what is recorded: validated arguments are read-only, for summary,
gate and record alike, and the handler gets a copy of them. A result is copied when it comes back.
Not promised: a handler that blocks the event loop cannot be timed out, and a handler that ignores
cancellation goes on after its time-out (its result is discarded).
Source: seeds, `ToolDispatcher.dispatch`; we validate before we ask, and pass validated arguments.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

from lhkit.confirm.decision import Decision, QuestionOutcome, is_approved
from lhkit.confirm.gate import (
    ConfirmGate,
    ConfirmRequest,
    MidCallQuestions,
    cancellations,
    open_to_questions,
)
from lhkit.confirm.summary import summarize
from lhkit.json_values import JSON, plain_json
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import GateOutcome, ToolCallOutcome
from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult, serialisable
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted, Invalid, Missing, NotAnObject

_log = logging.getLogger(__name__)

_CANCEL_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class _Failed:
    """A handler that raised: what it raised."""

    error: BaseException


class ToolDispatcher:
    """Routes calls to the tools of one registry. Stateless: share it between conversations.

    Args:
        registry: the tools.
        catalog: texts of the reasons; Korean by default.
        clock: monotonic seconds, for the trace.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        catalog: Catalog | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.registry = registry
        self._catalog = catalog or load_catalog()
        self._clock = clock

    async def dispatch(
        self,
        tool_name: Any,
        raw_args: Any,
        *,
        confirm: ConfirmGate | None,
        deps: Any = None,
        observe: Callable[[ToolCallOutcome], None] | None = None,
    ) -> ToolResult:
        """Return the result of one call.

        Args:
            tool_name: the name the model gave; anything.
            raw_args: the arguments the model gave; anything.
            confirm: who asks the user; None answers every destructive call with `ToolCancelled`.
            deps: handed to the handler, and to a summary that asks for it, as it is, not copied.
            observe: receives the outcome of this call exactly once, also when the calling task is
                cancelled after the handler was started (a started write is finished first).
        """
        run = _Dispatch(
            cancelled_before=cancellations(),
            registry=self.registry,
            catalog=self._catalog,
            clock=self._clock,
            confirm=confirm,
            deps=deps,
            name=_name_of(tool_name),
            outcome=ToolCallOutcome(result=ToolCancelled(), gate=GateOutcome.NOT_NEEDED),
        )
        try:
            await run.advance(raw_args)
        finally:
            if observe is not None:
                observe(run.outcome)
        return run.outcome.result


def _name_of(tool_name: Any) -> str:
    """Return a plain `str`: a subclass may behave otherwise when it is looked up."""
    kind = type(tool_name)
    return str.__str__(tool_name) if issubclass(kind, str) else f"<{kind.__name__}>"


@dataclass(slots=True, kw_only=True)
class _Dispatch:
    """One dispatch while it runs; `outcome` is what is known of it so far."""

    cancelled_before: int

    registry: ToolRegistry
    catalog: Catalog
    clock: Callable[[], float]
    confirm: ConfirmGate | None
    deps: Any
    name: str
    outcome: ToolCallOutcome

    async def advance(self, raw_args: Any) -> None:
        """Look up, validate, confirm, run; stop at the first step that settles the result."""
        tool = self.registry.get(self.name)
        if tool is None:
            _log.warning("unknown tool %r", self.name)
            known = ", ".join(self.registry)
            self._note(result=self._error("unknown_tool", name=self.name, known=known))
            return
        accepted = self._validate(tool, raw_args)
        if accepted is None:
            return
        if tool.is_destructive and not await self._is_confirmed(tool, accepted.args):
            return
        await self._run(tool, accepted)

    def _note(self, **known: Any) -> None:
        self.outcome = replace(self.outcome, **known)

    def _error(self, code: str, *, key: str | None = None, **values: object) -> ToolErr:
        return ToolErr(code, self.catalog.text(f"dispatch.{key or code}", **values))

    def _validate(self, tool: ToolDefinition, raw_args: Any) -> Accepted | None:
        """Return the validated arguments, which nobody can change; None if they are refused."""
        started_s = self.clock()
        try:
            verdict = self.registry.validator(tool.name).check(raw_args)
        except Exception as error:  # noqa: BLE001 - boundary: arguments and validators may do anything
            _log.warning("validation of %s failed", tool.name, exc_info=True)
            verdict = NotAnObject(actual=type(error).__name__)
        self._note(validation_s=self.clock() - started_s)
        if not isinstance(verdict, Accepted):
            reason = self._refusal(verdict)
            _log.info("arguments of %s refused: %s", tool.name, reason)
            self._note(result=ToolErr("validation", reason))
            return None
        if verdict.extra:
            _log.info("arguments of %s: undeclared keys dropped: %s", tool.name, verdict.extra)
        self._note(args=verdict.args, extra_args=verdict.extra)
        return verdict

    def _refusal(self, verdict: NotAnObject | Missing | Invalid) -> str:
        text = self.catalog.text
        match verdict:
            case NotAnObject(actual=actual):
                return text("validation.not_object", actual=actual)
            case Missing(field=field, expected=expected):
                return text("validation.missing", field=field, expected=expected)
            case Invalid(field=field, expected=expected, actual=actual):
                return text("validation.invalid", field=field, expected=expected, actual=actual)
            case _:
                assert_never(verdict)

    async def _is_confirmed(self, tool: ToolDefinition, args: Mapping[str, JSON]) -> bool:
        if self.confirm is None:
            self._note(gate=GateOutcome.ABSENT)
            return False
        request = ConfirmRequest(
            tool=tool.name,
            description=tool.description,
            args=args,
            summary=summarize(tool, args, self.catalog, self.deps),
        )
        started_s = self.clock()
        # no answer yet, and so far none that counts
        self._note(gate=GateOutcome.FAILED, summary=request.summary)
        try:
            gate, answer = await _ask(self.confirm, request)
            self._pass_cancellation()  # a gate may have swallowed it, and said yes
        except asyncio.CancelledError as error:
            self._note(answer="".join(a for a in error.args if isinstance(a, QuestionOutcome)))
            raise
        finally:
            self._note(waiting_s=self.clock() - started_s)
        self._note(gate=gate, answer=answer)
        return gate is GateOutcome.ACCEPTED

    def _pass_cancellation(self) -> None:
        """Raise if the caller was told to stop, whoever has caught that: nothing may start now."""
        if cancellations() > self.cancelled_before:
            raise asyncio.CancelledError

    async def _run(self, tool: ToolDefinition, accepted: Accepted) -> None:
        started_s = self.clock()
        # From here on it may have written: no end of the caller may make that a "did not confirm".
        self._note(ran=True, result=self._handler_error("CancelledError"))
        questions = MidCallQuestions(self.confirm)
        with open_to_questions(questions):
            task = asyncio.create_task(self._handled(tool, accepted))
        is_late, stopped = await _waited_out(task, tool.timeout_s, questions)
        questions.close()  # what is over asks nothing any more
        returned = _Failed(TimeoutError()) if is_late else _returned(task)
        waited_s = questions.waited_s  # for a person, whom no tool may be blamed for
        self._note(
            handler_s=self.clock() - started_s - waited_s,
            waiting_s=self.outcome.waiting_s + waited_s,
            result=self._timed_out(tool) if is_late else self._result(returned),
        )
        if stopped is not None:
            raise stopped
        if isinstance(returned, _Failed) and isinstance(returned.error, KeyboardInterrupt):
            raise returned.error

    async def _handled(self, tool: ToolDefinition, accepted: Accepted) -> ToolResult | _Failed:
        prepared = accepted.prepared
        try:
            returned: Any
            if prepared is not None and prepared.handler is tool.handler:
                returned = prepared.run(self.deps)
            else:  # it reads a copy of its own
                returned = tool.handler(plain_json(accepted.args), self.deps)
            if inspect.isawaitable(returned):
                returned = await returned
            if isinstance(returned, ToolOk | ToolErr | ToolCancelled):
                return serialisable(returned)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - boundary: handlers may do anything
            _log.exception("the handler of %s failed", tool.name)
            return _Failed(error)
        _log.error("the handler of %s returned a %s", tool.name, type(returned).__name__)
        return self._handler_error(f"returned {type(returned).__name__}")

    def _result(self, returned: ToolResult | _Failed) -> ToolResult:
        if isinstance(returned, _Failed):
            return self._handler_error(type(returned.error).__name__)
        return returned

    def _timed_out(self, tool: ToolDefinition) -> ToolErr:
        _log.error("the handler of %s exceeded %s s", tool.name, tool.timeout_s)
        return self._error(
            "handler_error",
            key="handler_timeout",
            type="TimeoutError",
            seconds=f"{tool.timeout_s:g}",
        )

    def _handler_error(self, type_name: str) -> ToolErr:
        return self._error("handler_error", type=type_name)


async def _ask(gate: ConfirmGate, request: ConfirmRequest) -> tuple[GateOutcome, str]:
    """Return the decision, and how the gate says that it was made."""
    cancelled_before = cancellations()
    try:
        answer = await gate.confirm(request)
    except KeyboardInterrupt:
        raise  # a person's, who wants out of all of it
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and cancellations() > cancelled_before:
            raise
        _log.warning("the confirm gate failed for %s", request.tool, exc_info=True)
        return GateOutcome.FAILED, ""
    how = str(answer.outcome) if isinstance(answer, Decision) else ""
    return (GateOutcome.ACCEPTED if is_approved(answer) else GateOutcome.REJECTED), how


def _returned(task: "asyncio.Task[ToolResult | _Failed]") -> ToolResult | _Failed:
    return _Failed(asyncio.CancelledError()) if task.cancelled() else task.result()


async def _waited_out(
    task: "asyncio.Task[Any]", timeout_s: float, questions: MidCallQuestions
) -> tuple[bool, asyncio.CancelledError | None]:
    """Wait for a started handler until it ends or its time, and the grace after it, are over.

    While it asks a person, its time stands still. Cancelling the caller ends nothing of it, however
    often: what was started has to end, and what came of it to be told. Return whether its time was
    over, and the cancellation, to be passed on.
    """
    loop = asyncio.get_running_loop()
    is_late, stopped = False, None
    for span_s in (timeout_s, _CANCEL_GRACE_S):
        ends_s = loop.time() + span_s - questions.waited_s
        while not task.done() and (left_s := ends_s + questions.waited_s - loop.time()) > 0:
            try:
                await asyncio.wait({task}, timeout=left_s)
            except asyncio.CancelledError as error:
                stopped = error
                questions.close()
        if task.done():
            return is_late, stopped
        is_late = True
        task.cancel()
    return is_late, stopped
