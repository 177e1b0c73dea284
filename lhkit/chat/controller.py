"""The controller of a conversation: runs the steps of `next_step` and emits events.

The conversation lives in memory, as long as the controller.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import chain
from typing import TypeAlias, assert_never

from lhkit.base.errors import ModelError, StreamBrokenError, UsageError, error_text
from lhkit.base.json_values import NotJsonError, read_only_json
from lhkit.base.locales import Catalog
from lhkit.base.user_locale import user_catalog
from lhkit.chat.assistant import Assistant
from lhkit.chat.state import ChatState, Transcript, apply_event
from lhkit.chat.step import (
    AnswerRepeated,
    AnswerTruncated,
    CallModel,
    CallPlan,
    DeclaredArguments,
    Dispatch,
    Finish,
    Limits,
    RunTools,
    SkipUnasked,
    needs_clear_notice,
    next_step,
)
from lhkit.chat.truth import ClaimGuess, find_false_claim
from lhkit.confirm.gate import ConfirmGate, cancellations
from lhkit.conversation.events import (
    CallCompleted,
    ChatEvent,
    EndReason,
    HistoryCleared,
    ModelCalled,
    TurnEnded,
    TurnStarted,
)
from lhkit.conversation.messages import (
    FalseReplyClaim,
    GateOutcome,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.conversation.responses import Finished, ToolCallParsed
from lhkit.conversation.tool_results import (
    ToolCancelled,
    ToolErr,
    encoded_size,
)
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.dispatcher import StateWatch, ToolDispatcher

_log = logging.getLogger(__name__)

Subscriber: TypeAlias = Callable[[ChatEvent], None]


class ChatController:
    """One conversation between a user, a model and tools.

    Args:
        model: answers the user and makes the calls.
        dispatcher: runs the calls.
        assistant: instructions, dependencies and limits.
        confirm: the gate for destructive calls; None cancels all of them. The attribute may be
            replaced between turns.
        catalog: texts for the user; by default in the user's language.
        transcript: a conversation to resume; by default a new one, after the assistant's history.
        watch: compares the tools' data before and after each call, for the lines of truth:
            `lhkit.toolset.watch_state(session)`. Without it they say less of what ran.
        guess: looks at a reply without a success phrase of a tool, and returns words that may
            claim a write which did not happen; its marks say that they are a guess.
        logprobs: request the log-probabilities of the model's tokens, which a call then has
            (`min_logprob`, `mean_logprob`), where the server reports them. Answers take longer.

    Example:
        ```
        chat = ChatController(model=model, dispatcher=ToolDispatcher(registry), confirm=gate)
        await chat.user_turn("Send Kim a message.")
        chat.state.messages[-1]
        ```
    """

    def __init__(
        self,
        *,
        model: ChatModel,
        dispatcher: ToolDispatcher,
        assistant: Assistant | None = None,
        confirm: ConfirmGate | None = None,
        catalog: Catalog | None = None,
        transcript: Transcript | None = None,
        watch: StateWatch | None = None,
        guess: ClaimGuess | None = None,
        logprobs: bool = False,
    ) -> None:
        self._logprobs = logprobs
        self.confirm = confirm
        self._guess = guess
        self._watch = watch
        self._model = model
        self._dispatcher = dispatcher
        self._assistant = assistant or Assistant()
        self._catalog = catalog or user_catalog()
        history = Transcript(messages=self._assistant.history)
        self._state = ChatState(transcript=transcript or history)
        self._subscribers: list[Subscriber] = []
        self._turn: asyncio.Task[EndReason] | None = None
        self._cached_limits: tuple[tuple[ToolDefinition, ...], Limits] | None = None

    @property
    def state(self) -> ChatState:
        """The current state, an immutable value."""
        return self._state

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with each later event; return a function that unsubscribes it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    async def user_turn(self, text: str) -> None:
        """Run one user message through model and tools until the model answers.

        Does nothing if `text` is blank or a turn is running. A failure of the model ends the turn
        and sets `state.error`.

        Raises:
            CancelledError: the calling task was cancelled.
        """
        if not text.strip() or self._state.is_streaming:
            return
        await self._run(UserMessage(text=text, context=self._assistant.context(text)))

    async def retry(self) -> None:
        """Resume the last turn if it failed; otherwise do nothing."""
        if self._state.error is None or self._state.is_streaming:
            return
        await self._run(None)

    def stop(self) -> None:
        """Stop the running turn: close the request, but finish a started write."""
        if self._turn is not None:
            self._turn.cancel()

    def clear(self) -> None:
        """Clear the conversation; do nothing while a turn is running."""
        if not self._state.is_streaming:
            self._emit(HistoryCleared())

    async def _run(self, message: UserMessage | None) -> None:
        self._emit(TurnStarted(message=message))
        ended = TurnEnded(reason=EndReason.STOPPED)
        self._turn = asyncio.create_task(self._run_steps())
        cancelled_before = cancellations()
        try:
            ended = self._turn_ended(await self._turn)
        except asyncio.CancelledError:
            if cancellations() > cancelled_before:
                raise  # not our own `stop`
        except Exception as error:  # noqa: BLE001 - boundary: a model may raise anything
            _log.warning("the turn failed", exc_info=True)
            ended = self._turn_failed(error)
        finally:
            self._turn = None
            self._cancel_pending()
            self._emit(replace(ended, claim=self._false_claim()))
        if needs_clear_notice(self._state.transcript):
            self._emit(SystemMessage(text=self._catalog.text("chat.clear_hint")))

    async def _run_steps(self) -> EndReason:
        while True:
            limits = self._limits()
            step = next_step(self._state.transcript, limits)
            match step:
                case CallModel(turn=turn):
                    await self._call_model(turn)
                case RunTools(plans=plans):
                    for plan in plans:
                        await self._run_plan(plan)
                        is_write = plan.pending.name in limits.destructive
                        has_new_tools = self._dispatcher.registry.destructive != limits.destructive
                        if has_new_tools or (is_write and isinstance(plan, Dispatch)):
                            break  # plan the rest again: the write may have been refused unasked
                case Finish(reason=reason):
                    return reason
                case _:
                    assert_never(step)

    def _limits(self) -> Limits:
        """Return the current limits; tools may be registered during a conversation."""
        registry = self._dispatcher.registry
        if self._cached_limits is not None and self._cached_limits[0] == registry.definitions:
            return self._cached_limits[1]
        limits = Limits(
            max_turns=self._assistant.max_turns,
            stops_after_calls=self._assistant.stops_after_calls,
            destructive=registry.destructive,
            declared={
                name: DeclaredArguments(
                    parameters=tool.schema_on(None),
                    validator=registry.validator(name),
                    repeatable=tool.repeatable,
                )
                for name, tool in registry.items()
            },
        )
        self._cached_limits = registry.definitions, limits
        return limits

    async def _call_model(self, turn: int) -> None:
        request = ModelRequest(
            messages=self._state.messages,
            tools=self._dispatcher.registry.definitions,
            instructions=self._assistant.instructions,
            sampling=self._assistant.sampling,
            logprobs=self._logprobs,
        )
        self._emit(ModelCalled(turn=turn))
        first = sum(isinstance(message, ToolCallMessage) for message in self._state.messages)
        parsed: list[tuple[ToolCall, ToolCall]] = []  # (the model's call, the frozen call)
        is_finished = False
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case ToolCallParsed(call=call):
                        parsed.append((call, _frozen_call(call, first + len(parsed))))
                        self._emit(ToolCallParsed(call=parsed[-1][1]))
                    case Finished(calls=calls):
                        is_finished = True
                        frozen = tuple(
                            parsed[i][1]
                            if i < len(parsed) and parsed[i][0] is call
                            else _frozen_call(call, first + i)
                            for i, call in enumerate(calls)
                        )
                        self._emit(replace(event, calls=frozen))
                    case _:
                        self._emit(event)
        if not is_finished:
            raise StreamBrokenError(
                "the model's stream ended without a Finished event: a ChatModel yields Finished at "
                "the end, or raises a ModelError"
            )

    async def _run_plan(self, plan: CallPlan) -> None:
        match plan:
            case Dispatch(pending=pending):
                await self._dispatch(pending)
            case SkipUnasked(pending=pending):
                skipped = ToolCallOutcome(result=ToolCancelled(), gate=GateOutcome.NOT_ASKED)
                self._complete(pending, skipped)
            case AnswerRepeated(pending=pending):
                self._complete(pending, ToolCallOutcome(result=self._refusal("repeated_call")))
            case AnswerTruncated(pending=pending):
                self._complete(pending, ToolCallOutcome(result=self._refusal("truncated_call")))
            case _:
                assert_never(plan)

    async def _dispatch(self, pending: ToolCallMessage) -> None:
        outcomes: list[ToolCallOutcome] = []
        try:
            await self._dispatcher.dispatch(
                pending.name,
                pending.args,
                confirm=self.confirm,
                deps=self._assistant.deps,
                observe=outcomes.append,
                watch=self._watch,
                logprob=pending.min_logprob,
            )
        finally:  # also when stopped, so that a finished write is reported
            for outcome in outcomes:
                self._complete(pending, outcome)

    def _complete(self, pending: ToolCallMessage, outcome: ToolCallOutcome) -> None:
        limit, size = self._assistant.max_result_bytes, encoded_size(outcome.result)
        if size > limit:
            _log.warning(
                "%s returned %d bytes: the model reads at most max_result_bytes=%d (Assistant)",
                pending.name,
                size,
                limit,
            )
        message = replace(
            pending,
            outcome=outcome,
            hint=self._assistant.truncation_hint,
            max_bytes=limit,
            result_format=self._assistant.result_format,
        )
        self._emit(CallCompleted(message=message))

    def _cancel_pending(self) -> None:
        """Give each pending call a result, so that the next request has a valid history."""
        for pending in self._state.transcript.pending:
            self._complete(pending, ToolCallOutcome(result=ToolCancelled()))

    def _refusal(self, code: str) -> ToolErr:
        return ToolErr(code, self._catalog.text(f"dispatch.{code}"))

    def _false_claim(self) -> FalseReplyClaim | None:
        """Return the words of the reply that claim a write which did not happen in the turn."""
        transcript, streamed = self._state.transcript, self._state.streaming_text or ""
        reply = "\n".join(filter(None, [transcript.text_of_this_turn, streamed]))
        claims = {
            tool.name: tuple(chain.from_iterable(tool.claims.values()))
            for tool in self._dispatcher.registry.definitions
            if tool.claims
        }
        try:
            claim = find_false_claim(reply, transcript.calls_of_this_turn, claims)
        except UsageError:  # a pattern of a tool takes too long
            _log.warning("the reply is not searched for success claims", exc_info=True)
            return None
        can_write = bool(self._dispatcher.registry.destructive)
        if claim is not None or self._guess is None or not (reply.strip() and can_write):
            return claim
        try:
            return self._guess(reply, transcript.messages)
        except Exception:  # noqa: BLE001 - boundary: a guess must not end a turn
            _log.warning("the reply is not searched for success claims", exc_info=True)
            return None

    def _turn_ended(self, reason: EndReason) -> TurnEnded:
        if reason is not EndReason.TOO_LONG:
            return TurnEnded(reason=reason)
        return TurnEnded(
            reason=reason,
            error=self._catalog.text("chat.too_long"),
            detail=f"no answer after max_turns={self._assistant.max_turns} requests (Assistant)",
        )

    def _turn_failed(self, error: Exception) -> TurnEnded:
        key = error.key if isinstance(error, ModelError) else ModelError.key
        type_name = type(error).__name__
        sentence = self._catalog.text(key, type=type_name)
        return TurnEnded(
            reason=EndReason.FAILED,
            error=self._catalog.text("chat.failed", sentence=sentence),
            cause=type_name,
            detail=error_text(error),
        )

    def _emit(self, event: ChatEvent) -> None:
        self._state = apply_event(self._state, event)
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 - boundary: a failing view must not end the turn
                _log.exception("a subscriber failed on %s", type(event).__name__)


def _frozen_call(call: ToolCall, number: int) -> ToolCall:
    """Return a call with an id and read-only arguments."""
    args = call.args
    with suppress(NotJsonError):
        args = read_only_json(args)
    return replace(call, id=call.id or f"call{number:05d}", args=args)
