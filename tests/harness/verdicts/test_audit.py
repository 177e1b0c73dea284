"""Every way a response can be less than it should, named from its raw text."""

from dataclasses import replace
from typing import Any

import pytest

from lhkit.harness.audit import (
    Audit,
    Difference,
    ResponseFault,
    audit,
    audited,
    differences,
    faults_of,
)
from lhkit.harness.record import (
    Evidence,
    Judgement,
    ModelCallRecord,
    SampleId,
    SampleRecord,
    TurnRecord,
    Verdict,
)
from lhkit.messages import EndReason, Finished, ToolCall
from lhkit.models.dialects import DIALECTS
from lhkit.testing import object_schema

SCHEMAS = {
    "search": object_schema(
        "query", query={"type": "string"}, limit={"type": "integer"}, price={"type": "number"}
    ),
    "list": object_schema(),
}


def response(raw: str) -> Finished:
    """Return a raw response, read by the json dialect as a chat would."""
    tools = [{"name": name, "parameters": schema} for name, schema in SCHEMAS.items()]
    result = DIALECTS["json"].parse(raw, tools)
    return Finished(
        reason="stop",
        raw_text=raw,
        text=result.text,
        calls=tuple(result.calls),
        fragment=result.fragment,
    )


def sample(*raws: str) -> SampleRecord:
    return sample_of(*map(response, raws))


def sample_of(*said: Finished) -> SampleRecord:
    requests = tuple(ModelCallRecord(response=each) for each in said)
    turn = TurnRecord(user="?", ended=EndReason.ANSWERED, model_calls=requests)
    turn = audited(turn, SCHEMAS)
    return SampleRecord(
        sample_id=SampleId(scenario="s"),
        content_hash="",
        ac="AC-1",
        locale="ko",
        judgement=Judgement(verdict=Verdict.PASS),
        evidence=Evidence(turns=(turn,)),
    )


CALL = '{"name": "search", "parameters": {"query": "잠"}}'


@pytest.mark.parametrize(
    ("raw", "faults"),
    [
        ("안녕하세요", []),
        (CALL, []),
        ('{"name": "list", "parameters": {}}', []),
        (f"```json\n{CALL}\n```", [ResponseFault.FENCE]),
        (f"<tool_code>{CALL}</tool_code>", [ResponseFault.FENCE]),
        (f"찾아볼게요. {CALL}", [ResponseFault.TRAILING_PROSE]),
        (CALL[:-4], [ResponseFault.TRUNCATED_CALL]),
        ("{'name': 'search', 'parameters': {'query': '잠'}}", [ResponseFault.MENDED]),
        ('{"name": "search", "parameters": {query: 잠}}', [ResponseFault.MALFORMED]),
        ('{"name": "search", "parameters": {"limit": 3}}', [ResponseFault.DROPPED_ARGUMENT]),
        (
            '{"name": "search", "parameters": {"query": "잠", "limit": "3"}}',
            [ResponseFault.STRINGIFIED_NUMBER],
        ),
        (
            '{"name": "search", "parameters": {"query": "잠", "price": "-1.5"}}',
            [ResponseFault.STRINGIFIED_NUMBER],
        ),
        ('{"name": "search", "parameters": {"query": "3"}}', []),
        ('{"name": "search", "parameters": {"query": "\\"잠\\""}}', [ResponseFault.KEPT_QUOTES]),
        ('{"name": "search", "parameters": {"query": "잠<|\\"|>"}}', [ResponseFault.LEAKED_TOKEN]),
        ("네<end_of_turn>", [ResponseFault.LEAKED_TOKEN]),
        ("3 < 4 > 2, <b>굵게</b>", []),
    ],
)
def test_a_fault_is_named_from_the_raw_text(raw: str, faults: list[ResponseFault]) -> None:
    assert list(faults_of(response(raw), SCHEMAS)) == faults


def test_responses_are_counted_by_how_they_were_read() -> None:
    found = audit([sample("안녕", CALL, f"```\n{CALL}\n```", CALL[:-4])])
    counts = (found.responses, found.with_calls, found.strict, found.repaired, found.lost)
    assert counts == (4, 3, 1, 1, 1)
    assert [(f.fault, f.response) for f in found.findings] == [
        (ResponseFault.FENCE, 2),
        (ResponseFault.TRUNCATED_CALL, 3),
    ]


def test_a_tool_that_is_not_known_has_no_argument_faults() -> None:
    unknown: Any = response('{"name": "nope", "parameters": {"limit": "3"}}')
    assert faults_of(unknown, SCHEMAS) == ()


def test_nothing_to_audit_is_an_empty_audit() -> None:
    assert audit([]) == Audit()


# --- the server's parse beside ours


def parsed(*calls: tuple[str, Any]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name=name, args=args) for name, args in calls)


def parsed_twice(
    own: tuple[ToolCall, ...] | None, server: tuple[ToolCall, ...], fragment: str = ""
) -> Finished:
    return Finished(
        reason="stop",
        raw_text="?",
        calls=server,
        server_calls=server,
        own_calls=own,
        own_fragment=fragment,
    )


FULL = ("search", {"query": "0101", "limit": 3})


@pytest.mark.parametrize(
    ("own", "server", "why"),
    [
        ([FULL], [FULL], []),
        ([], [], []),
        ([FULL, FULL], [FULL], [Difference.LOST_CALL]),
        ([FULL], [], [Difference.LOST_CALL]),
        ([], [FULL], [Difference.EXTRA_CALL]),
        ([FULL], [("list", FULL[1])], [Difference.OTHER_TOOL]),
        ([FULL], [("search", {"query": "0101"})], [Difference.DROPPED_ARGUMENT]),
        ([FULL], [("search", {})], [Difference.DROPPED_ARGUMENT]),
        ([FULL], [("search", {**FULL[1], "x": 1})], [Difference.ADDED_ARGUMENT]),
        ([FULL], [("search", {**FULL[1], "query": 101})], [Difference.CHANGED_TYPE]),
        ([FULL], [("search", {**FULL[1], "limit": "3"})], [Difference.CHANGED_TYPE]),
        ([FULL], [("search", {**FULL[1], "limit": True})], [Difference.CHANGED_TYPE]),
        ([FULL], [("search", {**FULL[1], "query": '"0101"'})], [Difference.KEPT_QUOTES]),
        ([FULL], [("search", {**FULL[1], "query": "01"})], [Difference.CHANGED_VALUE]),
        ([FULL], [("search", "?")], [Difference.CHANGED_VALUE]),
    ],
)
def test_a_servers_parse_differs_from_ours_in_named_ways(
    own: Any, server: Any, why: list[Difference]
) -> None:
    said = parsed_twice(parsed(*own), parsed(*server))
    assert list(differences(said)) == why
    assert [each for each in faults_of(said, SCHEMAS) if isinstance(each, Difference)] == why


def test_a_call_that_was_cut_and_that_the_server_closed_is_named_as_that() -> None:
    said = parsed_twice((), parsed(FULL), fragment='{"name": "search"')
    assert differences(said) == (Difference.CUT_CALL,)
    assert faults_of(said, {}) == (ResponseFault.TRUNCATED_CALL, Difference.CUT_CALL)


def test_without_the_raw_text_nothing_is_said_of_the_server() -> None:
    said = parsed_twice(None, parsed(FULL))
    assert differences(said) == ()
    assert differences(response(CALL)) == ()


def test_strict_repaired_and_server_are_counted_beside_each_other() -> None:
    mended = (ToolCall(name="search", args=FULL[1], repairs=("array",)),)
    said = [
        parsed_twice(mended, parsed(FULL)),
        parsed_twice(parsed(FULL), ()),
        parsed_twice((), (), fragment="{"),
        parsed_twice(None, parsed(FULL)),
        response(CALL),
    ]
    found = audit([sample_of(*said)])
    assert (found.responses, found.with_calls) == (5, 4)
    assert (found.strict, found.repaired, found.lost) == (2, 1, 1)
    assert (found.asked, found.server) == (4, 2)
    assert [(each.response, each.why) for each in found.disagreements] == [
        (1, (Difference.LOST_CALL,))
    ]


# --- in records


def test_a_turn_is_recorded_with_the_faults_of_each_response() -> None:
    turn = sample("안녕", CALL[:-4]).evidence.turns[0]
    assert [said.faults for said in audited(turn, SCHEMAS).model_calls] == [
        (),
        ("truncated_call",),
    ]


def test_the_recorded_faults_are_those_of_the_audit() -> None:
    told = ("dropped_argument", "server_dropped_argument", "a class of a later version")
    sample = sample_of(response(CALL[:-4]))
    (turn,) = sample.evidence.turns
    turn = replace(turn, model_calls=(replace(turn.model_calls[0], faults=told),))
    found = audit([replace(sample, evidence=Evidence(turns=(turn,)))])
    assert [each.fault for each in found.findings] == [
        ResponseFault.DROPPED_ARGUMENT,
        Difference.DROPPED_ARGUMENT,
    ]
