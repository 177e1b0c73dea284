"""The events of one user turn to its record: a pure fold, so that nothing fails while it plays.

Events are only collected during the turn; what they mean is decided after it is over.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lhkit.events import (
    CallSettled,
    ChatEvent,
    HintAdded,
    ModelCalled,
    ModelFinished,
    TextStreamed,
    TurnEnded,
    TurnStarted,
)
from lhkit.harness.record import CallRecord, ModelCallRecord, TurnRecord
from lhkit.json_values import plain_or_repr
from lhkit.responses import Finished
from lhkit.tool_results import envelope

Timed: TypeAlias = tuple[float, ChatEvent]


class TimedEvents:
    """Subscribes to a controller and keeps its events with the time, until they are taken."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._events: list[Timed] = []

    def __call__(self, event: ChatEvent) -> None:
        """Keep `event`."""
        self._events.append((self._clock(), event))

    def take(self) -> tuple[Timed, ...]:
        """Return the events since the last time."""
        taken, self._events = tuple(self._events), []
        return taken


def turn_record(
    user: str,
    events: Sequence[Timed],
    *,
    destructive: Collection[str],
    keep_prompts: bool = False,
) -> TurnRecord:
    """Return the record of one turn.

    Args:
        user: what the user said.
        events: everything from `TurnStarted` on.
        destructive: names of the tools that change data.
        keep_prompts: store the prompts' text beside their hash.

    Raises:
        ValueError: the events are not those of one turn (a bug of ours).
    """
    if not events or not isinstance(events[0][1], TurnStarted):
        raise ValueError(f"the turn {user!r} did not start")
    fold = _Fold(started_s=events[0][0], destructive=destructive, keep_prompts=keep_prompts)
    for at_s, event in events:
        fold.take(at_s, event)
    if fold.ended is None:
        raise ValueError(f"the turn {user!r} did not end")
    return TurnRecord(
        user=user,
        ended=fold.ended.reason,
        error=fold.ended.error,
        cause=fold.ended.cause,
        detail=fold.ended.detail,
        calls=tuple(fold.calls),
        model_calls=tuple(fold.model_calls),
        reply="\n".join(text for each in fold.model_calls if (text := each.response.text).strip()),
        hint=fold.hint,
        duration_s=fold.ended_s - fold.started_s,
    )


@dataclass(slots=True, kw_only=True)
class _Fold:
    started_s: float
    destructive: Collection[str]
    keep_prompts: bool
    ended_s: float = 0.0
    ended: TurnEnded | None = None
    hint: str | None = None
    sent_s: float | None = None
    streamed: list[str] = field(default_factory=list)
    model_calls: list[ModelCallRecord] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)

    def take(self, at_s: float, event: ChatEvent) -> None:
        """Take in one event; those that say nothing new for a record are passed over."""
        match event:
            case ModelCalled():
                self.sent_s = at_s - self.started_s
                self.streamed = []
            case TextStreamed(text=text):
                self.streamed.append(text)
            case ModelFinished(response=response):
                self._close(at_s, response)
            case CallSettled():
                self.calls.append(self._call_record(event))
            case HintAdded(message=message):
                self.hint = message.text
            case TurnEnded():
                self._close(at_s, None)
                self.ended, self.ended_s = event, at_s
            case _:
                pass

    def _close(self, at_s: float, response: Finished | None) -> None:
        """End the open request; without a response, what was streamed of it is kept."""
        if self.sent_s is None:
            return
        self.model_calls.append(
            ModelCallRecord(
                offset_s=self.sent_s,
                duration_s=at_s - self.started_s - self.sent_s,
                response=Finished(reason="", text="".join(self.streamed))
                if response is None
                else _kept(response, keep_prompts=self.keep_prompts),
            )
        )
        self.sent_s = None

    def _call_record(self, event: CallSettled) -> CallRecord:
        message = event.message
        record = CallRecord(
            tool=message.name,
            raw_args=plain_or_repr(message.args),
            result=envelope(message.result),
            destructive=message.name in self.destructive,
            raw_text=message.raw,
            model_call=len(self.model_calls) - 1 if self.model_calls else None,
        )
        trace = event.trace
        if trace is None:
            return record
        return replace(
            record,
            args=trace.args,
            extra_args=trace.extra_args,
            gate=trace.gate,
            ran=trace.ran,
            validation_s=trace.validation_s,
            waiting_s=trace.waiting_s,
            handler_s=trace.handler_s,
            summary=trace.summary,
        )


_PROMPT_IDS = 2
"""Ids of a prompt that are kept: enough to see a `<bos>` that stands twice or not at all."""


def _kept(response: Finished, *, keep_prompts: bool) -> Finished:
    """Return a response as it is recorded: see `ModelCallRecord`."""
    if not (
        response.prompt_token_ids
        or (response.prompt_text and not keep_prompts)
        or response.calls
        or response.server_metrics
    ):
        return response
    return replace(
        response,
        prompt_token_ids=response.prompt_token_ids[:_PROMPT_IDS],
        prompt_text=response.prompt_text if keep_prompts else "",
        calls=tuple(replace(call, args=plain_or_repr(call.args)) for call in response.calls),
        server_metrics=None
        if response.server_metrics is None
        else {name: plain_or_repr(value) for name, value in response.server_metrics.items()},
    )
