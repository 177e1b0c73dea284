"""The async driver of a conversation: asks `next_step`, acts, emits events. It decides nothing.

Not covered: persistence. The history lives as long as the controller.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, assert_never

from lhkit.chat.state import ChatState, apply_event
from lhkit.chat.step import (
    MAX_TURNS,
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
    next_step,
    wants_clear_hint,
)
from lhkit.chat.transcript import Transcript
from lhkit.confirm.gate import ConfirmGate, cancellations
from lhkit.errors import ModelError, StreamBrokenError
from lhkit.events import (
    CallSettled,
    ChatEvent,
    EndReason,
    HistoryCleared,
    ModelCalled,
    TurnEnded,
    TurnStarted,
)
from lhkit.json_values import NotJsonError, read_only_json
from lhkit.locales import Catalog, load_catalog
from lhkit.messages import (
    GateOutcome,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.responses import Finished, Sampling, ToolCallParsed
from lhkit.tool_results import (
    MAX_RESULT_BYTES,
    MIN_RESULT_BYTES,
    ToolCancelled,
    ToolErr,
    envelope_bytes,
)
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.dispatcher import ToolDispatcher

_log = logging.getLogger(__name__)

Subscriber: TypeAlias = Callable[[ChatEvent], None]


def _no_context(_message: str) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """What an assistant is made of, apart from the model: instructions, tools' data, limits.

    `instructions` is the byte-stable text for the model. `context` makes a line for each user
    message from its text, such as the present date. `deps` is handed to the tools' handlers.
    `max_turns` is how many requests a model gets for one message of the user. `max_result_bytes` is
    how much of a result it reads, as JSON in UTF-8; in place of a larger one it reads
    `truncation_hint`: best which tool gives a single item; `{bytes}` in it becomes the size.

    Raises:
        ValueError: a limit with which nothing can be done.
    """

    instructions: str = ""
    context: Callable[[str], str] = _no_context
    deps: Any = None
    sampling: Sampling = field(default_factory=Sampling)
    max_turns: int = MAX_TURNS
    max_result_bytes: int = MAX_RESULT_BYTES
    truncation_hint: str = ""

    def __post_init__(self) -> None:
        """Refuse limits that no conversation can have."""
        for name, least in (("max_turns", 1), ("max_result_bytes", MIN_RESULT_BYTES)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name}={value} of the Assistant: give at least {least}")


class ChatController:
    """One conversation between a user, a model and tools.

    Args:
        model: who answers.
        dispatcher: runs the calls.
        assistant: instructions, data and limits.
        confirm: who asks the user; None means that nothing destructive can happen. May be
            replaced between turns.
        catalog: texts for the user; Korean by default.
        transcript: a conversation to go on with; by default a new one.
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
    ) -> None:
        self.confirm = confirm
        self._model = model
        self._dispatcher = dispatcher
        self._assistant = assistant or Assistant()
        self._catalog = catalog or load_catalog()
        self._state = ChatState(transcript=transcript or Transcript())
        self._subscribers: list[Subscriber] = []
        self._turn: asyncio.Task[EndReason] | None = None
        self._known: tuple[tuple[ToolDefinition, ...], Limits] | None = None

    @property
    def state(self) -> ChatState:
        """The present state, a frozen value."""
        return self._state

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with every event from now on; return a function that ends it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    async def user_turn(self, text: str) -> None:
        """Take a user message through model and tools until there is an answer.

        Does nothing if `text` is blank or a turn is running. Faults of the model end the turn
        with `state.error`; nothing is raised but the cancellation of the calling task.
        """
        if not text.strip() or self._state.is_streaming:
            return
        await self._run(UserMessage(text=text, context=self._assistant.context(text)))

    async def retry(self) -> None:
        """Take up the last turn again after a fault. Does nothing if there was none."""
        if self._state.error is None or self._state.is_streaming:
            return
        await self._run(None)

    def stop(self) -> None:
        """End the running turn: the request is closed, a started write is finished."""
        if self._turn is not None:
            self._turn.cancel()

    def clear(self) -> None:
        """Forget the conversation. Does nothing while a turn is running."""
        if not self._state.is_streaming:
            self._emit(HistoryCleared())

    async def _run(self, message: UserMessage | None) -> None:
        self._emit(TurnStarted(message=message))
        ended = TurnEnded(reason=EndReason.STOPPED)
        self._turn = asyncio.create_task(self._drive())
        cancelled_before = cancellations()
        try:
            ended = self._ending(await self._turn)
        except asyncio.CancelledError:
            if cancellations() > cancelled_before:
                raise  # not our own `stop`
        except Exception as error:  # noqa: BLE001 - boundary: whatever the model's stream raises
            _log.warning("the turn failed", exc_info=True)
            ended = self._failure(error)
        finally:
            self._turn = None
            self._settle_the_rest()
            self._emit(ended)
        if wants_clear_hint(self._state.transcript):
            self._emit(SystemMessage(text=self._catalog.text("chat.clear_hint")))

    async def _drive(self) -> EndReason:
        while True:
            limits = self._limits()
            step = next_step(self._state.transcript, limits)
            match step:
                case CallModel(turn=turn):
                    await self._call_model(turn)
                case RunTools(plans=plans):
                    for plan in plans:
                        await self._carry_out(plan)
                        if self._dispatcher.registry.destructive != limits.destructive:
                            break  # that call brought new tools: the rest is planned anew
                case Finish(reason=reason):
                    return reason
                case _:
                    assert_never(step)

    def _limits(self) -> Limits:
        """Return what holds now: tools may be registered while a conversation goes on."""
        registry = self._dispatcher.registry
        if self._known is not None and self._known[0] == registry.definitions:
            return self._known[1]
        limits = Limits(
            max_turns=self._assistant.max_turns,
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
        self._known = registry.definitions, limits
        return limits

    async def _call_model(self, turn: int) -> None:
        request = ModelRequest(
            messages=self._state.messages,
            tools=self._dispatcher.registry.definitions,
            instructions=self._assistant.instructions,
            sampling=self._assistant.sampling,
        )
        self._emit(ModelCalled(turn=turn))
        first = sum(isinstance(message, ToolCallMessage) for message in self._state.messages)
        parsed: list[tuple[ToolCall, ToolCall]] = []  # as the model gave them, and as they are kept
        is_finished = False
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case ToolCallParsed(call=call):
                        parsed.append((call, _kept(call, first + len(parsed))))
                        self._emit(ToolCallParsed(call=parsed[-1][1]))
                    case Finished(calls=calls):
                        is_finished = True
                        kept = tuple(
                            parsed[i][1]
                            if i < len(parsed) and parsed[i][0] is call
                            else _kept(call, first + i)
                            for i, call in enumerate(calls)
                        )
                        self._emit(replace(event, calls=kept))
                    case _:
                        self._emit(event)
        if not is_finished:
            raise StreamBrokenError(
                "the model's stream ended without a last event: a ChatModel yields Finished at the "
                "end, or raises a ModelError"
            )

    async def _carry_out(self, plan: CallPlan) -> None:
        match plan:
            case Dispatch(pending=pending):
                await self._dispatch(pending)
            case SkipUnasked(pending=pending):
                skipped = ToolCallOutcome(result=ToolCancelled(), gate=GateOutcome.NOT_ASKED)
                self._settle(pending, skipped)
            case AnswerRepeated(pending=pending):
                self._settle(pending, ToolCallOutcome(result=self._refusal("repeated_call")))
            case AnswerTruncated(pending=pending):
                self._settle(pending, ToolCallOutcome(result=self._refusal("truncated_call")))
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
            )
        finally:  # also when stopped: a finished write stays reported
            for outcome in outcomes:
                self._settle(pending, outcome)

    def _settle(self, pending: ToolCallMessage, outcome: ToolCallOutcome) -> None:
        most, size = self._assistant.max_result_bytes, envelope_bytes(outcome.result)
        if size > most:
            _log.warning(
                "%s returned %d bytes: the model reads at most max_result_bytes=%d (Assistant)",
                pending.name,
                size,
                most,
            )
        message = replace(
            pending, outcome=outcome, hint=self._assistant.truncation_hint, max_bytes=most
        )
        self._emit(CallSettled(message=message))

    def _settle_the_rest(self) -> None:
        """Give every call a result, so that the next request has a well-formed history."""
        for pending in self._state.transcript.pending:
            self._settle(pending, ToolCallOutcome(result=ToolCancelled()))

    def _refusal(self, code: str) -> ToolErr:
        return ToolErr(code, self._catalog.text(f"dispatch.{code}"))

    def _ending(self, reason: EndReason) -> TurnEnded:
        if reason is not EndReason.TOO_LONG:
            return TurnEnded(reason=reason)
        most = self._assistant.max_turns
        return TurnEnded(
            reason=reason,
            error=self._catalog.text("chat.too_long"),
            detail=f"max_turns={most} (Assistant): so many requests and no answer in words",
        )

    def _failure(self, error: Exception) -> TurnEnded:
        key = error.key if isinstance(error, ModelError) else ModelError.key
        type_name = type(error).__name__
        sentence = self._catalog.text(key, type=type_name)
        return TurnEnded(
            reason=EndReason.FAILED,
            error=self._catalog.text("chat.failed", sentence=sentence),
            cause=type_name,
            detail=str(error),
        )

    def _emit(self, event: ChatEvent) -> None:
        self._state = apply_event(self._state, event)
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 - boundary: a broken view must not end the turn
                _log.exception("a subscriber failed on %s", type(event).__name__)


def _kept(call: ToolCall, number: int) -> ToolCall:
    """Return a call with an id, and with arguments that its model cannot change any more."""
    args = call.args
    with suppress(NotJsonError):
        args = read_only_json(args)
    return replace(call, id=call.id or f"call{number:05d}", args=args)
