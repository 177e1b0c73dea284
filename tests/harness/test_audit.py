"""Every way a response can be less than it should, named from its raw text."""

from typing import Any

import pytest

from lhkit.harness.audit import Audit, Fault, audit, faults_of
from lhkit.harness.record import (
    ModelCallRecord,
    ParsedCall,
    SampleId,
    SampleRecord,
    TurnRecord,
    Verdict,
)
from lhkit.models.dialects import DIALECTS
from lhkit.testing import object_schema
from lhkit.vocab.events import EndReason

SCHEMAS = {
    "search": object_schema(
        "query", query={"type": "string"}, limit={"type": "integer"}, price={"type": "number"}
    ),
    "list": object_schema(),
}


def response(raw: str) -> ModelCallRecord:
    """Return the record of a raw response, read by the json dialect as a chat would."""
    tools = [{"name": name, "parameters": schema} for name, schema in SCHEMAS.items()]
    result = DIALECTS["json"].parse(raw, tools)
    calls = tuple(
        ParsedCall(name=call.name, args=call.args, raw=call.raw, repairs=call.repairs)
        for call in result.calls
    )
    return ModelCallRecord(
        prompt_sha256="",
        raw_text=raw,
        text=result.text,
        calls=calls,
        fragment=result.fragment,
        strict=not result.fragment and not any(call.repairs for call in calls),
    )


def sample(*raws: str) -> SampleRecord:
    turn = TurnRecord(
        user="?", ended=EndReason.ANSWERED, model_calls=tuple(response(raw) for raw in raws)
    )
    return SampleRecord(
        sample_id=SampleId(scenario="s"),
        content_hash="",
        verdict=Verdict.PASS,
        ac="AC-1",
        locale="ko",
        turns=(turn,),
    )


CALL = '{"name": "search", "parameters": {"query": "잠"}}'


@pytest.mark.promise("audit.faults")
@pytest.mark.parametrize(
    ("raw", "faults"),
    [
        ("안녕하세요", []),
        (CALL, []),
        ('{"name": "list", "parameters": {}}', []),
        (f"```json\n{CALL}\n```", [Fault.FENCE]),
        (f"<tool_code>{CALL}</tool_code>", [Fault.FENCE]),
        (f"찾아볼게요. {CALL}", [Fault.TRAILING_PROSE]),
        (CALL[:-4], [Fault.TRUNCATED_CALL]),
        ("{'name': 'search', 'parameters': {'query': '잠'}}", [Fault.MENDED]),
        ('{"name": "search", "parameters": {query: 잠}}', [Fault.MALFORMED]),
        ('{"name": "search", "parameters": {"limit": 3}}', [Fault.DROPPED_ARGUMENT]),
        (
            '{"name": "search", "parameters": {"query": "잠", "limit": "3"}}',
            [Fault.STRINGIFIED_NUMBER],
        ),
        (
            '{"name": "search", "parameters": {"query": "잠", "price": "-1.5"}}',
            [Fault.STRINGIFIED_NUMBER],
        ),
        ('{"name": "search", "parameters": {"query": "3"}}', []),
        ('{"name": "search", "parameters": {"query": "\\"잠\\""}}', [Fault.KEPT_QUOTES]),
        ('{"name": "search", "parameters": {"query": "잠<|\\"|>"}}', [Fault.LEAKED_TOKEN]),
        ("네<end_of_turn>", [Fault.LEAKED_TOKEN]),
        ("3 < 4 > 2, <b>굵게</b>", []),
    ],
)
def test_a_fault_is_named_from_the_raw_text(raw: str, faults: list[Fault]) -> None:
    assert list(faults_of(response(raw), SCHEMAS)) == faults


def test_responses_are_counted_by_how_they_were_read() -> None:
    found = audit([sample("안녕", CALL, f"```\n{CALL}\n```", CALL[:-4])], SCHEMAS)
    counts = (found.responses, found.with_calls, found.strict, found.repaired, found.lost)
    assert counts == (4, 3, 1, 1, 1)
    assert [(f.fault, f.response) for f in found.findings] == [
        (Fault.FENCE, 2),
        (Fault.TRUNCATED_CALL, 3),
    ]


def test_a_tool_that_is_not_known_has_no_argument_faults() -> None:
    unknown: Any = response('{"name": "nope", "parameters": {"limit": "3"}}')
    assert faults_of(unknown, SCHEMAS) == ()


def test_nothing_to_audit_is_an_empty_audit() -> None:
    assert audit([], SCHEMAS) == Audit()
