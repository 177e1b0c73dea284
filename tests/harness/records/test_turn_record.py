"""turn_record(): the record of a turn from its events."""

from collections.abc import Sequence

import pytest

from lhkit.conversation.events import (
    CallCompleted,
    ChatEvent,
    EndReason,
    ModelCalled,
    TurnEnded,
    TurnStarted,
)
from lhkit.conversation.messages import (
    GateOutcome,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.conversation.responses import (
    Finished,
    ModelIdentity,
    TextDelta,
    ThinkingDelta,
    Timing,
    Usage,
)
from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.harness.records.turn_record import turn_record

START = TurnStarted(message=UserMessage(text="hello"))
END = TurnEnded(reason=EndReason.ANSWERED)
CALL = ToolCall(name="add_note", args={"text": "milk"}, raw='{"name"…}', repairs=("quotes",))
OUTCOME = ToolCallOutcome(
    result=ToolOk({"id": "note-0"}),
    gate=GateOutcome.ACCEPTED,
    args={"text": "milk", "tag": "-"},
    filled_in=("/tag",),
    extra_args=("zzz",),
    ran=True,
    answer="run",
    validation_s=0.1,
    waiting_s=2.0,
    handler_s=0.2,
)
REPEATED = ToolCallOutcome(result=ToolErr("repeated_call", "no"))


def completed(outcome: ToolCallOutcome = OUTCOME, call: ToolCall = CALL) -> CallCompleted:
    return CallCompleted(message=ToolCallMessage(call=call, outcome=outcome))


def timed(events: Sequence[ChatEvent]) -> list[tuple[float, ChatEvent]]:
    return [(float(second), event) for second, event in enumerate(events)]


def finished(text: str, *calls: ToolCall) -> Finished:
    return Finished(
        reason="stop",
        text=text,
        calls=calls,
        usage=Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=5),
        timing=Timing(first_token_s=0.5),
        raw_text="raw",
        token_ids=(1, 2),
        prompt_text="secret prompt",
        prompt_sha256="abc",
        identity=ModelIdentity(model="m"),
        server_metrics={"queue_s": float("nan")},
    )


EVENTS = timed(
    [
        START,
        ModelCalled(turn=1),
        ThinkingDelta(text="hm"),
        TextDelta(text="let me"),
        finished("let me", CALL),
        completed(),
        ModelCalled(turn=2),
        finished("done"),
        END,
        SystemMessage(text="clear?"),
    ]
)


def test_turn_record_has_text_requests_and_times() -> None:
    record = turn_record("hello", EVENTS, destructive={"add_note"})
    assert (record.ended, record.reply, record.notice) == (
        EndReason.ANSWERED,
        "let me\ndone",
        "clear?",
    )
    assert record.duration_s == 8
    first, second = record.model_calls
    assert (first.offset_s, first.duration_s) == (1, 3)
    assert (second.offset_s, second.duration_s) == (6, 1)
    assert (first.response.raw_text, first.response.token_ids, first.response.prompt_sha256) == (
        "raw",
        (1, 2),
        "abc",
    )
    assert first.response.prompt_text == ""
    assert first.response.usage.cached_tokens == 5
    assert first.response.calls[0].repairs == ("quotes",)
    assert not first.response.strict
    assert first.response.server_metrics == {"queue_s": "nan"}


def test_turn_record_has_call_with_outcome() -> None:
    (call,) = turn_record("hello", EVENTS, destructive={"add_note"}).calls
    assert (call.tool, call.args) == ("add_note", {"text": "milk", "tag": "-"})
    assert (call.filled_in, call.proposed_args) == (("/tag",), {"text": "milk"})
    assert call.extra_args == ("zzz",)
    assert (call.gate, call.ran, call.destructive) == (GateOutcome.ACCEPTED, True, True)
    assert (call.validation_s, call.waiting_s, call.handler_s) == (0.1, 2.0, 0.2)
    assert (call.raw_text, call.model_call, call.outcome, call.answer) == (CALL.raw, 0, "ok", "run")


def test_turn_record_of_undispatched_call() -> None:
    record = turn_record("hello", timed([START, completed(REPEATED), END]), destructive=())
    (call,) = record.calls
    assert (call.outcome, call.gate, call.ran) == ("repeated_call", GateOutcome.NOT_NEEDED, False)
    assert (call.args, call.model_call) == (None, None)


def test_turn_record_keeps_non_json_arguments_as_text() -> None:
    odd = completed(REPEATED, ToolCall(name="x", args={"x": {1, 2}}))
    (call,) = turn_record("hello", timed([START, odd, END]), destructive=()).calls
    assert call.raw_args == "{'x': {1, 2}}"


def test_turn_record_keeps_text_of_interrupted_request() -> None:
    failed = TurnEnded(reason=EndReason.FAILED, error="e", cause="StreamBrokenError", detail="d")
    record = turn_record(
        "hello",
        timed([START, ModelCalled(turn=1), TextDelta(text="a"), TextDelta(text="b"), failed]),
        destructive=(),
    )
    (request,) = record.model_calls
    assert (request.response.text, request.response.reason, request.duration_s) == ("ab", "", 3)
    assert (record.error, record.cause, record.detail) == ("e", "StreamBrokenError", "d")


@pytest.mark.parametrize("events", [[], [END], [START]])
def test_turn_record_refuses_incomplete_events(events: list[ChatEvent]) -> None:
    with pytest.raises(ValueError, match="hello"):
        turn_record("hello", timed(events), destructive=())
