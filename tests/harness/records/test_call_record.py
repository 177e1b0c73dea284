"""CallRecord: made from the message of a call, and turned back into it."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from lhkit.base.locales import load_catalog
from lhkit.chat.truth import truth_kind, truth_line
from lhkit.conversation.messages import (
    ChangeKind,
    GateOutcome,
    RowChange,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
)
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.harness.authoring.from_chat import confirm_answer
from lhkit.harness.records.record import CallRecord, decode_line, encode_record
from tests.harness.build import PASS, model_call, sample, turn_of
from tests.rows import check_rows

CATALOGS = [load_catalog("en"), load_catalog("ko")]
EDITED = ToolCallMessage(
    call=ToolCall(
        name="send",
        args={"to": "Kim", "cc": "x"},
        raw="send(…)",
        min_logprob=-1.5,
        mean_logprob=-0.25,
    ),
    outcome=ToolCallOutcome(
        result=ToolOk({"sent": True}, {"to": "영희"}, changed=True),
        gate=GateOutcome.ACCEPTED,
        args={"to": "Kim", "day": "2026-06-15"},
        filled_in=("/day",),
        extra_args=("cc",),
        ran=True,
        summary="영희에게 보낼까요?",
        answer="run",
        reason="이쪽이 맞아요",
        shown_args={"to": "영희"},
        run_args={"to": "영희", "day": "2026-06-15"},
        validation_s=0.25,
        waiting_s=1.5,
        handler_s=0.5,
        changes=(RowChange(table="mails", kind=ChangeKind.ADDED, count=1),),
    ),
)
ARGS = {"args": {"to": "Kim"}}
ASKED = {**ARGS, "gate": GateOutcome.ACCEPTED, "ran": True}


def message(result: ToolResult, raw_args: Any = None, **outcome: Any) -> ToolCallMessage:
    call = ToolCall(name="send", args={"to": "Kim"} if raw_args is None else raw_args)
    return ToolCallMessage(call=call, outcome=ToolCallOutcome(result=result, **outcome))


MESSAGES = {
    "edited": EDITED,
    "approved": message(ToolOk({"sent": 1}), **ASKED, changes=()),
    "unchanged": message(ToolOk({}, changed=False), **ASKED),
    "refused by a rule": message(ToolErr("r3_quota", "꽉 찼어요"), **ASKED),
    "refused after a write": message(ToolErr("r3_quota", "full", changed=True), **ASKED),
    "failed": message(ToolErr("handler_error", "OSError"), **ASKED),
    "cancelled by its handler": message(ToolCancelled(), **ASKED),
    "rejected": message(
        ToolCancelled("나중에"), **ARGS, gate=GateOutcome.REJECTED, answer="cancel", reason="나중에"
    ),
    "gate failed": message(ToolCancelled(), **ARGS, gate=GateOutcome.FAILED, answer="timed_out"),
    "without a gate": message(ToolCancelled(), **ARGS, gate=GateOutcome.ABSENT),
    "not asked": message(ToolCancelled(), gate=GateOutcome.NOT_ASKED),
    "read": message(ToolOk({"rows": []}), **ARGS, gate=GateOutcome.NOT_NEEDED, ran=True),
    "write without asking": message(
        ToolOk({}, changed=True), **ARGS, gate=GateOutcome.NOT_NEEDED, ran=True
    ),
    "invalid": message(ToolErr("validation", "no"), [1, "가"], gate=GateOutcome.NOT_NEEDED),
    "repeated": message(ToolErr("repeated_call", "no")),
}


@check_rows("live", MESSAGES.values(), ids=MESSAGES)
def test_call_record_turns_back_into_its_message(live: ToolCallMessage) -> None:
    record = CallRecord.of(live, model_call=2, destructive=True)
    again = record.to_message()
    assert CallRecord.of(again, model_call=2, destructive=True) == record
    assert again.outcome is not None
    assert live.outcome is not None
    gate = live.outcome.gate or GateOutcome.NOT_NEEDED  # undispatched: stored as not needed
    assert again == replace(live, outcome=replace(live.outcome, gate=gate))
    assert (again.outcome.changed, again.outcome.code) == (live.outcome.changed, record.outcome)
    assert (again.effective_args, again.is_edited) == (record.effective_args, record.is_edited)


@check_rows("live", MESSAGES.values(), ids=MESSAGES)
def test_call_record_reads_as_its_message(live: ToolCallMessage) -> None:
    again = CallRecord.of(live).to_message()
    assert truth_kind(again) == truth_kind(live)
    assert confirm_answer(again) == confirm_answer(live)
    for catalog in CATALOGS:
        assert truth_line([again], catalog) == truth_line([live], catalog)


def test_call_record_has_every_field_of_the_outcome() -> None:
    record = CallRecord.of(EDITED, model_call=1, destructive=True)
    blank = CallRecord(tool="", raw_args=None, result={})
    assert not [f.name for f in fields(record) if getattr(record, f.name) == getattr(blank, f.name)]
    for field in fields(ToolCallOutcome):
        if field.name not in {"result", "gate"}:
            assert getattr(record, field.name) == getattr(EDITED.outcome, field.name)


def test_call_record_stores_log_probabilities_only_if_known() -> None:
    for live, keys in ((EDITED, {"min_logprob", "mean_logprob"}), (MESSAGES["read"], set())):
        call = CallRecord.of(live, model_call=0)
        response = model_call(calls=(live.call,))
        record = sample("s", PASS, 0, turn_of(response, calls=(call,)))
        line = encode_record(record)
        turn = json.loads(line)["trajectory"]["turns"][0]
        assert {key for key in turn["calls"][0] if "logprob" in key} == keys
        assert "logprob" not in json.dumps(turn["model_calls"])  # once is enough
        assert decode_line(line).trajectory.calls == (call,)


@check_rows("value", ["0.5", "NaN", "1e999", '"high"'])
def test_call_record_with_invalid_log_probability_is_not_read(value: str) -> None:
    record = sample("s", PASS, 0, turn_of(model_call(), calls=(CallRecord.of(EDITED),)))
    line = encode_record(record).replace('"min_logprob":-1.5', f'"min_logprob":{value}')
    with pytest.raises(ValueError, match=r"min_logprob|JSON number"):
        decode_line(line)


@check_rows(
    ("result", "outcome", "kind"),
    [
        ({"status": "ok"}, "ok", "ran"),
        ({"status": "ok", "result": {"id": 1}}, "ok", "ran"),
        ({"status": "error", "code": "r3_quota"}, "r3_quota", "unchanged"),
        ({"status": "cancelled", "message": "x"}, "cancelled", "failed"),
        ({"status": "later"}, "later", "failed"),
    ],
)
def test_call_record_with_result_of_another_form_keeps_its_outcome(
    result: dict[str, Any], outcome: str, kind: str
) -> None:
    record = CallRecord(tool="t", raw_args={}, result=result, gate=GateOutcome.ACCEPTED, ran=True)
    again = record.to_message()
    assert again.outcome is not None
    assert (again.outcome.code, truth_kind(again)) == (outcome, kind)


def test_call_record_of_pending_call_is_refused() -> None:
    with pytest.raises(ValueError, match="'send'"):
        CallRecord.of(ToolCallMessage(call=EDITED.call))
