"""The events of one user turn to its record: a pure fold, so that nothing can fail while it plays.

The log itself only appends; what the events mean is decided after the turn is over.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from lhkit.harness.records.record import CallRecord, ModelCallRecord, ParsedCall, TurnRecord
from lhkit.vocab.events import (
    CallSettled,
    ChatEvent,
    HintAdded,
    ModelCalled,
    ModelFinished,
    TextStreamed,
    TurnEnded,
    TurnStarted,
)
from lhkit.vocab.generation import Finished
from lhkit.vocab.json_values import NotJsonError, compact, plain_json
from lhkit.vocab.messages import ToolCall
from lhkit.vocab.results import envelope

Timed: TypeAlias = tuple[float, ChatEvent]


class EventLog:
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


class WallTime:
    """What a sitting's time goes into: the model while any request is open, else the writing.

    All conversations share one. `clock` gives monotonic seconds of the machine.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun_s = self._since_s = clock()
        self._requests = self._writes = 0
        self._model_s = self._writing_s = 0.0

    def seconds(self) -> dict[str, Any]:
        """Return what has gone by and into what, by the names that a sitting has for it."""
        whole_s = self._clock() - self._begun_s
        return {"wall_s": whole_s, "model_s": self._model_s, "writing_s": self._writing_s}

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Count the block as a request that is open."""
        self._shift(requests=1)
        try:
            yield
        finally:
            self._shift(requests=-1)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count the block as records that are being written."""
        self._shift(writes=1)
        try:
            yield
        finally:
            self._shift(writes=-1)

    def listener(self) -> Callable[[ChatEvent], None]:
        """Return a subscriber for one conversation: its requests count while they are open."""
        is_open = False

        def hear(event: ChatEvent) -> None:
            nonlocal is_open
            if isinstance(event, ModelCalled):
                is_open = True
                self._shift(requests=1)
            elif is_open and isinstance(event, ModelFinished | TurnEnded):
                is_open = False
                self._shift(requests=-1)

        return hear

    def _shift(self, *, requests: int = 0, writes: int = 0) -> None:
        now_s = self._clock()
        if self._requests:
            self._model_s += now_s - self._since_s
        elif self._writes:
            self._writing_s += now_s - self._since_s
        self._since_s = now_s
        self._requests += requests
        self._writes += writes


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
        reply="\n".join(each.text for each in fold.model_calls if each.text.strip()),
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
    open_call: ModelCallRecord | None = None
    streamed: list[str] = field(default_factory=list)
    model_calls: list[ModelCallRecord] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)

    def take(self, at_s: float, event: ChatEvent) -> None:
        """Take in one event; those that say nothing new for a record are passed over."""
        match event:
            case ModelCalled():
                self.open_call = ModelCallRecord(offset_s=at_s - self.started_s)
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
        if self.open_call is None:
            return
        begun = self.open_call
        duration_s = at_s - self.started_s - begun.offset_s
        if response is None:
            begun = replace(begun, text="".join(self.streamed))
        else:
            begun = _answered(begun, response, keep_prompts=self.keep_prompts)
        self.model_calls.append(replace(begun, duration_s=duration_s))
        self.open_call = None

    def _call_record(self, event: CallSettled) -> CallRecord:
        message = event.message
        record = CallRecord(
            tool=message.name,
            raw_args=_plain(message.args),
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
        )


def _answered(begun: ModelCallRecord, response: Finished, *, keep_prompts: bool) -> ModelCallRecord:
    server, own = response.server_calls, response.own_calls
    return replace(
        begun,
        raw_text=response.raw_text,
        token_ids=response.token_ids,
        prompt_sha256=response.prompt_sha256,
        prompt_text=response.prompt_text if keep_prompts else None,
        text=response.text,
        calls=_parsed(response.calls),
        server_calls=None if server is None else _parsed(server),
        own_calls=None if own is None else _parsed(own),
        own_fragment=response.own_fragment,
        fragment=response.fragment,
        strict=response.strict,
        reason=response.reason,
        truncated=response.truncated,
        usage=response.usage,
        timing=response.timing,
        server_metrics=_plain(response.server_metrics),
        identity=response.identity,
    )


def _parsed(calls: Iterable[ToolCall]) -> tuple[ParsedCall, ...]:
    return tuple(
        ParsedCall(name=call.name, args=_plain(call.args), raw=call.raw, repairs=call.repairs)
        for call in calls
    )


def _plain(value: Any) -> Any:
    """Return `value` as plain JSON; what JSON cannot carry is kept as its `repr`."""
    try:
        compact(value)  # also refuses an integer too long to print
    except NotJsonError:
        return repr(value)
    return plain_json(value)
