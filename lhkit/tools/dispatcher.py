"""One tool call to one result: look up, validate, confirm, run.

`dispatch` never raises, for any input of any type; only cancellation of the calling task passes.
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

from lhkit.confirm.gate import ConfirmGate, ConfirmRequest
from lhkit.confirm.summary import summarize
from lhkit.locales import Catalog, load_catalog
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import Accepted, Invalid, Missing, NotAnObject, Verdict
from lhkit.vocab.json_values import JSON
from lhkit.vocab.results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.vocab.trace import DispatchTrace, GateOutcome

_log = logging.getLogger(__name__)

_CANCEL_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class _Failed:
    """A handler that did not return: what to tell the model."""

    result: ToolErr


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
        observe: Callable[[DispatchTrace], None] | None = None,
    ) -> ToolResult:
        """Return the envelope of one call.

        Args:
            tool_name: the name the model gave; anything.
            raw_args: the arguments the model gave; anything.
            confirm: who asks the user; None answers every destructive call with `ToolCancelled`.
            deps: handed to the handler as it is.
            observe: receives the trace of this call exactly once, also when the calling task is
                cancelled after the handler was started (a started write is finished first).
        """
        run = _Dispatch(
            registry=self.registry,
            catalog=self._catalog,
            clock=self._clock,
            confirm=confirm,
            deps=deps,
            trace=_blank_trace(tool_name, raw_args),
        )
        try:
            await run.advance()
        finally:
            if observe is not None:
                observe(run.trace)
        return run.trace.result


def _blank_trace(tool_name: Any, raw_args: Any) -> DispatchTrace:
    name = tool_name if isinstance(tool_name, str) else f"<{type(tool_name).__name__}>"
    return DispatchTrace(
        name=name,
        raw_args=raw_args,
        args=None,
        extra_args=(),
        gate=GateOutcome.NOT_NEEDED,
        ran=False,
        result=ToolCancelled(),
    )


@dataclass(slots=True, kw_only=True)
class _Dispatch:
    """One dispatch while it runs; `trace` is what is known of it so far."""

    registry: ToolRegistry
    catalog: Catalog
    clock: Callable[[], float]
    confirm: ConfirmGate | None
    deps: Any
    trace: DispatchTrace

    async def advance(self) -> None:
        """Look up, validate, confirm, run; stop at the first step that settles the result."""
        tool = self.registry.get(self.trace.name)
        if tool is None:
            self._unknown_tool()
            return
        accepted = self._validate(tool)
        if accepted is None:
            return
        if tool.is_destructive and not await self._is_confirmed(tool, accepted.args):
            return
        await self._run(tool, accepted.args)

    def _settle(self, result: ToolResult) -> None:
        self.trace = replace(self.trace, result=result)

    def _unknown_tool(self) -> None:
        known = ", ".join(self.registry)
        _log.warning("unknown tool %r", self.trace.name)
        self._settle(self._error("unknown_tool", name=self.trace.name, known=known))

    def _error(self, code: str, *, key: str | None = None, **values: object) -> ToolErr:
        return ToolErr(code, self.catalog.text(f"dispatch.{key or code}", **values))

    def _validate(self, tool: ToolDefinition) -> Accepted | None:
        started_s = self.clock()
        verdict = self._verdict(tool)
        self.trace = replace(self.trace, validation_s=self.clock() - started_s)
        if not isinstance(verdict, Accepted):
            reason = self._refusal(verdict)
            _log.info("arguments of %s refused: %s", tool.name, reason)
            self._settle(ToolErr("validation", reason))
            return None
        if verdict.extra:
            _log.info("arguments of %s: undeclared keys dropped: %s", tool.name, verdict.extra)
        self.trace = replace(self.trace, args=verdict.args, extra_args=verdict.extra)
        return verdict

    def _verdict(self, tool: ToolDefinition) -> Verdict:
        try:
            return self.registry.validator(tool.name).check(self.trace.raw_args)
        except Exception as error:  # noqa: BLE001 - boundary: arguments may be any object
            _log.warning("validation of %s failed", tool.name, exc_info=True)
            return NotAnObject(actual=type(error).__name__)

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
            self.trace = replace(self.trace, gate=GateOutcome.ABSENT)
            return False
        request = ConfirmRequest(
            tool=tool.name,
            description=tool.description,
            args=args,
            summary=summarize(tool, args, self.catalog),
        )
        started_s = self.clock()
        outcome = await _ask(self.confirm, request)
        self.trace = replace(self.trace, gate=outcome, waiting_s=self.clock() - started_s)
        return outcome is GateOutcome.ACCEPTED

    async def _run(self, tool: ToolDefinition, args: Mapping[str, JSON]) -> None:
        started_s = self.clock()
        self.trace = replace(self.trace, ran=True)
        task = asyncio.create_task(self._handled(tool, args))
        try:
            await asyncio.wait({task}, timeout=tool.timeout_s)
        except asyncio.CancelledError:
            # A started write is finished and reported, then the cancellation passes.
            await _finish(task, tool.timeout_s)
            self._settle(self._outcome(tool, task))
            raise
        finally:
            self.trace = replace(self.trace, handler_s=self.clock() - started_s)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_GRACE_S)
            self._settle(self._timed_out(tool))
            return
        self._settle(self._outcome(tool, task))

    async def _handled(self, tool: ToolDefinition, args: Mapping[str, JSON]) -> object:
        try:
            returned = tool.handler(args, self.deps)
            if inspect.isawaitable(returned):
                returned = await returned
        except (Exception, SystemExit) as error:  # noqa: BLE001 - boundary: handlers may do anything
            _log.exception("the handler of %s failed", tool.name)
            return _Failed(self._handler_error(type(error).__name__))
        return returned

    def _outcome(self, tool: ToolDefinition, task: "asyncio.Task[object]") -> ToolResult:
        if not task.done():
            return self._timed_out(tool)
        if task.cancelled():
            return self._handler_error("CancelledError")
        returned = task.result()
        if isinstance(returned, _Failed):
            return returned.result
        if isinstance(returned, ToolOk | ToolErr | ToolCancelled):
            return returned
        _log.error("the handler of %s returned a %s", tool.name, type(returned).__name__)
        return self._handler_error(f"returned {type(returned).__name__}")

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


async def _ask(gate: ConfirmGate, request: ConfirmRequest) -> GateOutcome:
    cancelled_before = _cancellations()
    try:
        answer = await gate.confirm(request)
    except asyncio.CancelledError:
        if _cancellations() > cancelled_before:
            raise
        return GateOutcome.FAILED  # the gate's own future was cancelled: nobody answered
    except (Exception, SystemExit):  # noqa: BLE001 - boundary: a broken gate means no
        _log.warning("the confirm gate failed for %s", request.tool, exc_info=True)
        return GateOutcome.FAILED
    return GateOutcome.ACCEPTED if answer is True else GateOutcome.REJECTED


def _cancellations() -> int:
    """Return how often the calling task was asked to cancel."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


async def _finish(task: "asyncio.Task[object]", timeout_s: float) -> None:
    """Wait for a started handler although the caller was cancelled, within its time-out."""
    while not task.done():
        try:
            await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            continue  # cancelled again: the write still has to end
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_GRACE_S)
            return
