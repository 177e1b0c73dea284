"""Building the record of a user turn from the controller's events. Pure.

The events of a turn are collected while it runs and evaluated after it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from lhkit.base.json_values import plain_or_repr
from lhkit.conversation.events import CallCompleted, ChatEvent, ModelCalled, TurnEnded, TurnStarted
from lhkit.conversation.messages import SystemMessage
from lhkit.conversation.responses import Finished, TextDelta
from lhkit.harness.records.record import CallRecord, ModelCallRecord, TurnRecord

Timed: TypeAlias = tuple[float, ChatEvent]


class TimedEvents:
    """Collects the events of a controller with their times; subscribe it to one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._events: list[Timed] = []

    def __call__(self, event: ChatEvent) -> None:
        """Collect an event."""
        self._events.append((self._clock(), event))

    def take(self) -> tuple[Timed, ...]:
        """Return the events since the last call."""
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
        user: the user's message.
        events: the events from `TurnStarted` to `TurnEnded`.
        destructive: names of the tools that change data.
        keep_prompts: store the text of prompts, not only their hash.

    Raises:
        ValueError: the events are not those of one turn.
    """
    if not events or not isinstance(events[0][1], TurnStarted):
        raise ValueError(f"the turn {user!r} did not start")
    started_s, sent_s, streamed = events[0][0], None, ""
    model_calls: list[ModelCallRecord] = []
    calls: list[CallRecord] = []
    ended: tuple[float, TurnEnded] | None = None
    notice: str | None = None
    for at_s, event in events:
        if isinstance(event, Finished | TurnEnded) and sent_s is not None:
            response = Finished(reason="", text=streamed)  # interrupted
            if isinstance(event, Finished):
                response = _stored_response(event, keep_prompts=keep_prompts)
            model_calls.append(
                ModelCallRecord(
                    offset_s=sent_s - started_s, duration_s=at_s - sent_s, response=response
                )
            )
            sent_s = None
        match event:
            case ModelCalled():
                sent_s, streamed = at_s, ""
            case TextDelta(text=text):
                streamed += text
            case CallCompleted(message=message):
                number = len(model_calls) - 1 if model_calls else None
                calls.append(
                    CallRecord.of(
                        message, model_call=number, destructive=message.name in destructive
                    )
                )
            case SystemMessage(text=text):
                notice = text
            case TurnEnded():
                ended = at_s, event
            case _:
                pass
    if ended is None:
        raise ValueError(f"the turn {user!r} did not end")
    ended_s, end = ended
    return TurnRecord(
        user=user,
        ended=end.reason,
        error=end.error,
        cause=end.cause,
        detail=end.detail,
        calls=tuple(calls),
        model_calls=tuple(model_calls),
        reply="\n".join(text for call in model_calls if (text := call.response.text).strip()),
        notice=notice,
        duration_s=ended_s - started_s,
        claim=end.claim,
    )


_PROMPT_IDS = 2
"""Prompt token ids that are stored: enough to see a missing or doubled `<bos>`."""


def _stored_response(response: Finished, *, keep_prompts: bool) -> Finished:
    """Return the response as it is stored: see `ModelCallRecord`."""
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
        calls=tuple(
            replace(call, args=plain_or_repr(call.args), id="", echo=None)
            for call in response.calls
        ),
        server_metrics=None
        if response.server_metrics is None
        else {name: plain_or_repr(value) for name, value in response.server_metrics.items()},
    )
