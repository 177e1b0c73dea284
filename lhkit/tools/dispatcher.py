"""Dispatch one tool call: look up the tool, validate the arguments, confirm, run the handler.

A tool's rules may refuse a call between validation and question, and an edit before it runs.

`dispatch` returns a result for any input of any type. It raises only CancelledError, when the
calling task is cancelled, and KeyboardInterrupt.

The arguments that the user approves are the ones that run and are recorded: they are read-only for
summary, gate and record, and the handler gets a copy. The result is copied as well. A decision
counts for the one request that it answers; edited arguments are validated before anything runs.

Limits: a handler that blocks the event loop cannot time out, and one that ignores cancellation
continues after its time-out; its result is discarded.
"""

import asyncio
import inspect
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, TypeAlias, assert_never

from lhkit.base.json_values import (
    JSON,
    NotJsonError,
    escaped_key,
    json_or_repr,
    plain_json,
    read_only_json,
    without_pointers,
)
from lhkit.base.locales import Catalog
from lhkit.base.user_locale import user_catalog
from lhkit.confirm.decision import (
    Approve,
    Decision,
    Edit,
    QuestionOutcome,
    Reject,
    changed_arguments,
    decision_of,
)
from lhkit.confirm.gate import (
    ConfirmGate,
    ConfirmRequest,
    InvalidEditError,
    MidCallQuestions,
    cancellations,
    is_person,
    use_questions,
)
from lhkit.confirm.summary import argument_text, summarize
from lhkit.conversation.messages import GateOutcome, RowChange, ToolCallOutcome
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult, serialisable
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.outcome_draft import OutcomeDraft
from lhkit.tools.refusals import RuleFailedError, refusal
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import (
    Accepted,
    ArgumentsVerdict,
    Invalid,
    Missing,
    NotAnObject,
    running_call,
)

_log = logging.getLogger(__name__)

_CANCEL_GRACE_S = 1.0

StateWatch: TypeAlias = Callable[[], Callable[[], tuple[RowChange, ...] | None]]
"""Reads the state, and returns a function that returns the changes since; None if unknown."""

_MAX_ASKED = 20
"""How often a person is asked again after an invalid edit."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """A handler raised `error`."""

    error: BaseException


class ToolDispatcher:
    """Runs calls of the tools in a registry. Stateless: share it between conversations.

    Args:
        registry: the tools.
        catalog: texts of error reasons; by default in the user's language.
        clock: returns monotonic seconds, for the times in outcomes.
        today: returns the day of the conversation, for arguments that imply it (`TODAY`); without
            it these stay to the handlers.

    Example:
        ```
        dispatcher = ToolDispatcher(registry)
        result = await dispatcher.dispatch("send", {"to": "Kim"}, confirm=gate)
        ```
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        catalog: Catalog | None = None,
        clock: Callable[[], float] = time.perf_counter,
        today: Callable[[], date] | None = None,
    ) -> None:
        self.registry = registry
        self._catalog = catalog or user_catalog()
        self._clock = clock
        self._today = today

    async def dispatch(
        self,
        tool_name: Any,
        raw_args: Any,
        *,
        confirm: ConfirmGate | None,
        deps: Any = None,
        observe: Callable[[ToolCallOutcome], None] | None = None,
        asked: ConfirmRequest | None = None,
        watch: StateWatch | None = None,
        logprob: float | None = None,
    ) -> ToolResult:
        """Return the result of one call.

        Args:
            tool_name: the name that the model wrote; any value.
            raw_args: the arguments that the model wrote; any value.
            confirm: the gate that asks the user; with None each destructive call is cancelled.
            deps: dependencies for the handler and for a summary that takes them; not copied.
            observe: called exactly once with the outcome, also when the calling task is cancelled
                after the handler has started (a started write is finished first).
            asked: the request of the same call that was asked before, if a client brings its
                answer with a new call: what was filled in there is filled in again.
            watch: compares the tools' data before and after the handler, such as
                `lhkit.toolset.watch_state(session)`; must not raise.
            logprob: the log-probability of the weakest token of the call, for the gate; None if it
                is unknown.

        Returns:
            `ToolOk`; `ToolErr` with code `unknown_tool`, `validation`, `handler_error` or one of
            the tool's own; `ToolCancelled` if the user did not approve.

        Raises:
            CancelledError: the calling task was cancelled.
            KeyboardInterrupt: the gate or the handler was interrupted.
        """
        run = _Dispatch(
            cancelled_before=cancellations(),
            registry=self.registry,
            catalog=self._catalog,
            clock=self._clock,
            today=self._today,
            confirm=confirm,
            deps=deps,
            asked=asked,
            watch=watch,
            logprob=logprob,
            name=_plain_name(tool_name),
        )
        try:
            await run.run(raw_args)
        finally:
            if observe is not None:
                observe(run.draft.outcome())
        return run.draft.result


def _plain_name(tool_name: Any) -> str:
    """Return a plain `str`: a subclass may override hashing and equality."""
    kind = type(tool_name)
    return str.__str__(tool_name) if issubclass(kind, str) else f"<{kind.__name__}>"


@dataclass(slots=True, kw_only=True)
class _Dispatch:
    """A running dispatch, which fills in its `draft` step by step."""

    cancelled_before: int
    registry: ToolRegistry
    catalog: Catalog
    clock: Callable[[], float]
    today: Callable[[], date] | None
    confirm: ConfirmGate | None
    deps: Any
    asked: ConfirmRequest | None
    watch: StateWatch | None
    logprob: float | None
    name: str
    draft: OutcomeDraft = field(default_factory=OutcomeDraft)
    revised: Accepted | None = None
    """The arguments of the last edit that was shown."""

    async def run(self, raw_args: Any) -> None:
        """Look up, validate, confirm and run; stop at the first step that decides the result."""
        tool = self.registry.get(self.name)
        if tool is None:
            _log.warning("unknown tool %r", self.name)
            known = ", ".join(self.registry)
            self.draft.result = self._error("unknown_tool", name=self.name, known=known)
            return
        accepted = self._validate(tool, raw_args)
        if accepted is not None and (refused := await self._refusal(tool, accepted)) is not None:
            self.draft.result = refused
            return
        if accepted is not None and tool.is_destructive:
            accepted = await self._confirmed(tool, accepted)
        if accepted is not None:
            await self._run_handler(tool, accepted)

    def _error(self, code: str, *, key: str | None = None, **values: object) -> ToolErr:
        return ToolErr(code, self.catalog.text(f"dispatch.{key or code}", **values))

    def _validate(self, tool: ToolDefinition, raw_args: Any) -> Accepted | None:
        """Return the validated arguments; None if they are refused."""
        started_s = self.clock()
        verdict = self._verdict(tool, raw_args)
        self.draft.validation_s = self.clock() - started_s
        if not isinstance(verdict, Accepted):
            reason = self._issue(verdict)
            _log.info("arguments of %s refused: %s", tool.name, reason)
            self.draft.result = ToolErr("validation", reason)
            return None
        if verdict.extra:
            _log.info("arguments of %s: undeclared keys dropped: %s", tool.name, verdict.extra)
        self.draft.args = verdict.args
        self.draft.filled_in = verdict.filled_in
        self.draft.extra_args = verdict.extra
        return verdict

    def _verdict(
        self, tool: ToolDefinition, raw_args: Any, earlier: Accepted | None = None
    ) -> ArgumentsVerdict:
        """Return the verdict; of a tool that asks or has rules with everything that will run.

        Args:
            tool: the tool.
            raw_args: any value.
            earlier: the verdict on the arguments before an edit.
        """
        validator = self.registry.validator(tool.name)
        try:
            if not (tool.is_destructive or tool.rules):
                return validator.check(raw_args)
            today = None if self.today is None else self.today()
            implied = tool.implied_on(today)
            verdict = validator.complete(raw_args, implied, earlier)
            if self.asked is None or earlier is not None or not isinstance(verdict, Accepted):
                return verdict
            if not _is_filled_in_anew(verdict, self.asked):
                return verdict
            asked, filled_in = self.asked.args, frozenset(self.asked.filled_in)
            again = {n: v for n, v in asked.items() if f"/{escaped_key(n)}" in filled_in}
            given = {name: value for name, value in asked.items() if name not in again}
            repeated = validator.complete(given, {**implied, **again})
            if not isinstance(repeated, Accepted) or changed_arguments(asked, repeated.args):
                return verdict
            return replace(
                repeated, filled_in=self.asked.filled_in, extra=verdict.extra, given=verdict.given
            )
        except Exception as error:  # noqa: BLE001 - boundary: arguments and checks are user code
            _log.warning("validation of %s failed", tool.name, exc_info=True)
            return NotAnObject(actual=type(error).__name__)

    async def _refusal(self, tool: ToolDefinition, accepted: Accepted) -> ToolResult | None:
        """Return why the tool's rules refuse a call; None if they allow it."""
        if not tool.rules:
            return None
        started_s = self.clock()
        try:
            return await refusal(tool, accepted.args, self.deps, locale=self.catalog.locale)
        except RuleFailedError as error:
            return self._error("handler_error", key="rule_failed", type=str(error))
        finally:
            self.draft.validation_s += self.clock() - started_s

    def _issue(self, verdict: NotAnObject | Missing | Invalid) -> str:
        text = self.catalog.text
        match verdict:
            case NotAnObject(actual=actual):
                return text("validation.not_object", actual=self.catalog.translate(actual))
            case Missing(field=field):
                expected = verdict.expected_in(self.catalog)
                return text("validation.missing", field=field, expected=expected)
            case Invalid(field=field, actual=actual):
                expected = verdict.expected_in(self.catalog)
                return text("validation.invalid", field=field, expected=expected, actual=actual)
            case _:
                assert_never(verdict)

    async def _confirmed(self, tool: ToolDefinition, proposed: Accepted) -> Accepted | None:
        """Return the arguments that the user approved, edited or not; None for a no."""
        if self.confirm is None:
            self.draft.gate = GateOutcome.ABSENT
            return None
        draft, request = self.draft, self._request(tool, proposed)
        for _ in range(_MAX_ASKED):
            refused: ToolResult | None = None
            decision = await self._decision(self.confirm, request)
            if not isinstance(decision, Edit):
                return self._answered(decision, proposed)
            try:
                shown_args, edited = self._edited(tool, decision.arguments, proposed)
                refused = await self._refusal(tool, edited)
                if isinstance(refused, ToolErr):
                    raise InvalidEditError(refused.reason or refused.code)
            except InvalidEditError as error:
                issue = str(error)
                draft.gate = GateOutcome.REJECTED
                draft.reason = issue
                draft.answer = str(QuestionOutcome.INVALID_EDIT)
                if not is_person(self.confirm):
                    draft.result = refused or draft.result
                    return None
                request = replace(request, id=secrets.token_hex(8), error=issue)
                continue
            draft.gate = GateOutcome.ACCEPTED
            draft.answer = decision.how or ""
            draft.reason = decision.reason
            if not changed_arguments(proposed.args, edited.args):
                return proposed
            draft.summary = self._summary(tool, edited)
            draft.shown_args = shown_args
            draft.run_args = edited.args
            return edited
        return None

    def _answered(self, decision: Approve | Reject, proposed: Accepted) -> Accepted | None:
        """Return the arguments that the user approved as they are; None for a no."""
        self.draft.answer = decision.how or ""
        if isinstance(decision, Approve):
            self.draft.gate = GateOutcome.ACCEPTED
            if decision.how is QuestionOutcome.POLICY:
                self.draft.gate, self.draft.summary = GateOutcome.POLICY, ""  # no card was shown
                self.draft.validation_s += self.draft.waiting_s  # and no person was waited for
                self.draft.waiting_s = 0.0
            return proposed
        is_failure = decision.how is not None and decision.how.is_failure
        self.draft.gate = GateOutcome.FAILED if is_failure else GateOutcome.REJECTED
        self.draft.reason = decision.reason
        self.draft.result = ToolCancelled(decision.reason)
        return None

    def _request(self, tool: ToolDefinition, proposed: Accepted) -> ConfirmRequest:
        def revise(arguments: Any) -> Mapping[str, Any]:
            self.revised = self._edited(tool, arguments, proposed)[1]
            return self._shown(tool, self.revised)

        return ConfirmRequest(
            tool=tool.name,
            description=tool.description,
            title=tool.title_in(self.catalog.locale),
            always_ask=tool.always_ask,
            logprob=self.logprob,
            **self._shown(tool, proposed),
            id=secrets.token_hex(8),
            parameters=tool.parameters,
            revise=revise,
        )

    def _shown(self, tool: ToolDefinition, accepted: Accepted) -> dict[str, Any]:
        """Return the fields of a request with these arguments, as copies that a gate may change."""
        args, filled_in = accepted.args, accepted.filled_in
        return {
            "args": _copy(args),
            "filled_in": filled_in,
            "given": _copy(accepted.given) if accepted.given else {},
            "summary": self._summary(tool, accepted),
            "details": argument_text(args, filled_in, self.catalog),
        }

    def _summary(self, tool: ToolDefinition, accepted: Accepted) -> str:
        """Return the text that the user is asked to confirm."""
        return summarize(
            tool.summarize,
            accepted.args,
            self.catalog,
            self.deps,
            filled_in=accepted.filled_in,
        )

    def _edited(
        self, tool: ToolDefinition, arguments: Any, proposed: Accepted
    ) -> tuple[Mapping[str, JSON], Accepted]:
        """Return a copy of edited arguments, and the same arguments validated.

        Raises:
            InvalidEditError: the tool refuses them, or would drop some.
        """
        try:
            shown_args = _copy(arguments)
        except NotJsonError as error:
            raise InvalidEditError(self._issue(NotAnObject(actual=str(error)))) from error
        if self.revised is not None and json_or_repr(shown_args) == json_or_repr(self.revised.args):
            return shown_args, self.revised
        verdict = self._verdict(tool, shown_args, proposed)
        if not isinstance(verdict, Accepted):
            raise InvalidEditError(self._issue(verdict))
        if verdict.extra:
            field = ", ".join(verdict.extra)
            raise InvalidEditError(self.catalog.text("validation.undeclared", field=field))
        return shown_args, verdict

    async def _decision(self, gate: ConfirmGate, request: ConfirmRequest) -> Decision:
        """Ask the gate; a decision on another request is refused."""
        started_s, binding = self.clock(), request.binding  # before the gate can change anything
        # until the gate answers, the question counts as failed
        self.draft.gate = GateOutcome.FAILED
        self.draft.summary = request.summary
        self.draft.reason = self.draft.answer = ""
        try:
            decision = await _ask(gate, request)
            if cancellations() > self.cancelled_before:  # the gate may have swallowed it
                raise asyncio.CancelledError
        except asyncio.CancelledError as error:
            answers = (arg for arg in error.args if isinstance(arg, QuestionOutcome))
            self.draft.answer = "".join(answers)
            raise
        finally:
            self.draft.waiting_s += self.clock() - started_s
        if decision.binding and decision.binding != binding:
            _log.warning("a decision on another request than %s: denied", request.tool)
            return Reject(how=QuestionOutcome.OTHER_REQUEST)
        if decision.how is QuestionOutcome.POLICY and request.always_ask:
            _log.warning("%s is always asked: the yes of a policy is denied", request.tool)
            return Reject(how=QuestionOutcome.FAILED)
        return decision

    async def _run_handler(self, tool: ToolDefinition, accepted: Accepted) -> None:
        changes_since = self.watch() if self.watch is not None else None
        started_s = self.clock()
        # from here on it may have written, so a cancelled caller must not record "not confirmed"
        self.draft.result = self._handler_error("CancelledError")
        self.draft.ran = True
        questions = MidCallQuestions(self.confirm)
        with use_questions(questions):
            task = asyncio.create_task(self._call_handler(tool, accepted))
        is_late, cancelled = await _wait_for_handler(task, tool.timeout_s, questions)
        questions.close()
        error: BaseException | None = None
        if is_late:
            _log.error("the handler of %s exceeded %s s", tool.name, tool.timeout_s)
            result: ToolResult = self._error(
                "handler_error",
                key="handler_timeout",
                type="TimeoutError",
                seconds=f"{tool.timeout_s:g}",
            )
        elif task.cancelled():
            result = self._handler_error("CancelledError")
        elif isinstance(returned := task.result(), _Failed):
            error = returned.error
            result = self._handler_error(type(error).__name__)
        else:
            result = returned
        run_args = self.draft.run_args
        if run_args is not None and not isinstance(result, ToolCancelled):
            edited = changed_arguments(self.draft.args or {}, run_args)
            result = replace(result, edited=read_only_json(edited))
        waited_s = questions.waited_s  # the user's time is not the tool's
        self.draft.waiting_s += waited_s
        self.draft.handler_s = self.clock() - started_s - waited_s
        self.draft.result = result
        if changes_since is not None:
            changes = changes_since()
            if is_late or task.cancelled():  # it may still write
                changes = changes or None
            self.draft.changes = changes
        if cancelled is not None:
            raise cancelled
        if isinstance(error, KeyboardInterrupt):
            raise error

    async def _call_handler(self, tool: ToolDefinition, accepted: Accepted) -> ToolResult | _Failed:
        prepared = accepted.prepared
        try:
            returned: Any
            if prepared is not None and prepared.handler is tool.handler:
                returned = prepared.run(self.deps)
            else:
                running_call.set(accepted)
                returned = tool.handler(plain_json(accepted.args), self.deps)
            if inspect.isawaitable(returned):
                returned = await returned
            if isinstance(returned, ToolOk | ToolErr | ToolCancelled):
                return serialisable(returned, self.catalog.locale)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - boundary: handlers are user code
            _log.exception("the handler of %s failed", tool.name)
            return _Failed(error)
        _log.error("the handler of %s returned a %s", tool.name, type(returned).__name__)
        return self._handler_error(f"returned {type(returned).__name__}")

    def _handler_error(self, type_name: str) -> ToolErr:
        return self._error("handler_error", type=type_name)


def _copy(arguments: Any) -> Any:
    """Return a read-only copy, also of what is read-only: a gate can change that all the same."""
    return read_only_json(plain_json(arguments))


def _is_filled_in_anew(verdict: Accepted, asked: ConfirmRequest) -> bool:
    """Return whether the same call was asked with other values filled in."""
    given = without_pointers(verdict.args, verdict.filled_in)
    if json_or_repr(given) != json_or_repr(without_pointers(asked.args, asked.filled_in)):
        return False
    return json_or_repr(verdict.args) != json_or_repr(asked.args)


async def _ask(gate: ConfirmGate, request: ConfirmRequest) -> Decision:
    cancelled_before = cancellations()
    try:
        return decision_of(await gate.confirm(request))
    except KeyboardInterrupt:
        raise  # the user interrupts the program
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and cancellations() > cancelled_before:
            raise
        _log.warning("the confirm gate failed for %s", request.tool, exc_info=True)
        return Reject(how=QuestionOutcome.FAILED)


async def _wait_for_handler(
    task: "asyncio.Task[Any]", timeout_s: float, questions: MidCallQuestions
) -> tuple[bool, asyncio.CancelledError | None]:
    """Wait until a handler ends or is cancelled after its time-out; return (is late, cancellation).

    The timer pauses while the handler asks the user. A cancellation of the calling task is caught
    and returned, so that a started write is finished and its outcome recorded.
    """
    loop = asyncio.get_running_loop()
    is_late, cancelled = False, None
    for limit_s in (timeout_s, _CANCEL_GRACE_S):
        end_s = loop.time() + limit_s - questions.waited_s
        while not task.done() and (left_s := end_s + questions.waited_s - loop.time()) > 0:
            try:
                await asyncio.wait({task}, timeout=left_s)
            except asyncio.CancelledError as error:
                cancelled = error
                questions.close()
        if task.done():
            return is_late, cancelled
        is_late = True
        task.cancel()
    return is_late, cancelled
