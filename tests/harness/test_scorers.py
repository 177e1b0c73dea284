"""Evidence to a verdict: every promise of a scenario that is broken is a reason in words."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from lhkit.harness.record import (
    CallRecord,
    Evidence,
    Judgement,
    Severity,
    TurnRecord,
    TurnScore,
    Verdict,
)
from lhkit.harness.scenario import Scenario
from lhkit.harness.scorers import ToolFacts, judge
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.events import EndReason
from lhkit.vocab.trace import GateOutcome

Load = Callable[[str], tuple[Scenario, ...]]

OK = {"status": "ok", "data": {}}
CANCELLED = {"status": "cancelled", "reason": "user did not confirm"}
MILK = {"id": "note-0", "text": "milk", "done": False}


def error(code: str) -> dict[str, Any]:
    return {"status": "error", "code": code, "reason": "see ids note-9"}


def add(
    text: str = "milk",
    *,
    result: Mapping[str, Any] = OK,
    gate: GateOutcome = GateOutcome.ACCEPTED,
    ran: bool = True,
) -> CallRecord:
    args = {"text": text}
    return CallRecord(
        tool="add_note",
        raw_args=args,
        args=args,
        result=result,
        gate=gate,
        ran=ran,
        destructive=True,
    )


def refused(text: str = "milk") -> CallRecord:
    return add(text, result=CANCELLED, gate=GateOutcome.REJECTED, ran=False)


def find(query: str = "milk", result: Mapping[str, Any] = OK) -> CallRecord:
    return CallRecord(tool="find_notes", raw_args={"query": query}, result=result, ran=True)


def finish(note_id: str, done: Any = True) -> CallRecord:
    args = {"note_id": note_id, "done": done}
    return replace(add(), tool="finish_note", raw_args=args, args=args)


def turn(
    *calls: CallRecord, reply: str = "fine", ended: EndReason = EndReason.ANSWERED, **more: Any
) -> TurnRecord:
    return TurnRecord(user="hello", ended=ended, calls=calls, reply=reply, **more)


def evidence(*turns: TurnRecord, before: Any = (), after: Any = (), **more: Any) -> Evidence:
    return Evidence(
        turns=turns, initial_state={"notes": before}, final_state={"notes": after}, **more
    )


@pytest.fixture
def judged(load: Load, registry: ToolRegistry) -> Callable[[str, Evidence], Judgement]:
    tools = ToolFacts(
        schemas={tool.name: tool.parameters for tool in registry.definitions},
        destructive=registry.destructive,
    )

    def from_text(body: str, what: Evidence) -> Judgement:
        (scenario,) = load(f"- id: s\n  ac: AC-1\n{body}")
        return judge(scenario, what, tools, today=date(2026, 6, 15))

    return from_text


Judged = Callable[[str, Evidence], Judgement]

ADD = """
  turns:
    - user: hello
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}, result: ok}]}
      reply: {contains_any: [fine], excludes: [sorry]}
  final: {notes: [{text: milk}]}
"""
REJECT = """
  turns:
    - user: hello
      confirm: reject
      expect: {calls: [{tool: add_note, args: {text: milk}, result: cancelled}]}
"""
ABSENT = REJECT.replace("confirm: reject", "confirm: absent")
QUIET = "  turns: [{user: hello, reply: {matches: '\\S'}}]\n"
FORBID = """
  turns:
    - user: hello
      expect: {extra: any}
      forbid: [{tool: find_notes, args: {query: x}}]
"""


@pytest.mark.parametrize(
    ("body", "what", "reasons"),
    [
        (ADD, evidence(turn(add()), after=(MILK,)), ()),
        (
            ADD,
            evidence(turn()),
            ("turn 0: add_note was expected and not called", "final.notes[0]: no row like"),
        ),
        (
            ADD,
            evidence(turn(add("bread")), after=({**MILK, "text": "bread"},)),
            (
                'turn 0: add_note.text: expected "milk", got "bread"',
                "final.notes",
                "notes: unlisted",
            ),
        ),
        (
            ADD,
            evidence(turn(add(result=error("r1_blank")))),
            ("turn 0: add_note: expected the result ok, got r1_blank", "final.notes[0]"),
        ),
        (
            ADD,
            evidence(turn(add(), find()), after=(MILK,)),
            ("turn 0: find_notes was not expected",),
        ),
        (
            ADD,
            evidence(turn(add(), reply="sorry"), after=(MILK,)),
            ("turn 0: the reply has none of 'fine'", "turn 0: the reply says 'sorry'"),
        ),
        (
            ADD,
            evidence(turn(add(), ended=EndReason.TOO_LONG), after=(MILK,)),
            ("turn 0: no answer within the allowed model turns",),
        ),
        (
            ADD,
            evidence(turn(add(gate=GateOutcome.NOT_NEEDED)), after=(MILK,)),
            ("turn 0: add_note: the user was not asked", "turn 0: unconfirmed_write"),
        ),
        (REJECT, evidence(turn(refused())), ()),
        (
            REJECT,
            evidence(turn(replace(refused(), gate=GateOutcome.NOT_ASKED))),
            ("turn 0: add_note: the user was not asked",),
        ),
        (REJECT, evidence(turn(refused()), after=(MILK,)), ("notes: unlisted row",)),
        (ABSENT, evidence(turn(replace(refused(), gate=GateOutcome.ABSENT))), ()),
        (QUIET, evidence(turn(reply="hi")), ()),
        (QUIET, evidence(turn(reply=" \n")), ("turn 0: the reply does not match",)),
        (QUIET, evidence(turn(find(), reply="hi")), ("turn 0: find_notes was not expected",)),
        (FORBID, evidence(turn(find("y"))), ()),
        (FORBID, evidence(turn(find("x"))), ("turn 0: forbidden_call: find_notes",)),
    ],
)
def test_a_broken_promise_is_a_fail_with_reasons(
    judged: Judged, body: str, what: Evidence, reasons: tuple[str, ...]
) -> None:
    judgement = judged(body, what)
    assert judgement.verdict is (Verdict.FAIL if reasons else Verdict.PASS)
    assert len(judgement.reasons) == len(reasons)
    for said, expected in zip(judgement.reasons, reasons, strict=True):
        assert said.startswith(expected)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (
            evidence(turn(ended=EndReason.FAILED, cause="ServerFailedError", detail="HTTP 500")),
            "turn 0: ServerFailedError: HTTP 500",
        ),
        (evidence(turn(ended=EndReason.STOPPED)), "turn 0"),
        (evidence(fault="Traceback: boom"), "Traceback: boom"),
    ],
)
def test_a_failing_world_is_invalid_and_never_wrong(
    judged: Judged, what: Evidence, reason: str
) -> None:
    judgement = judged(ADD, what)
    assert judgement.verdict is Verdict.INVALID
    assert judgement.reasons[0].startswith(reason)
    assert judgement.scores == ()


@pytest.mark.parametrize(
    ("turns", "codes"),
    [
        ([turn(add(result=error("r1_blank")))], ["r1_blank"]),
        ([turn(add(result=error("validation"), ran=False))], ["validation"]),
        ([turn(find(result=error("unknown_tool")))], ["unknown_tool"]),
        ([turn(find(), find(result=error("repeated_call")))], ["repeated_call"]),
        ([turn(find(result=error("truncated_call")))], ["truncated_call"]),
        ([turn(find(result=error("not_found")))], []),
        ([turn(find(result=error("handler_error")))], []),
        ([turn(ended=EndReason.TOO_LONG)], ["max_turns"]),
        ([turn(refused()), turn(refused("other"))], []),
        ([turn(refused()), turn(add())], ["retry_after_rejection"]),
        ([turn(refused(), refused())], ["retry_after_rejection"]),
        ([turn(replace(refused(), gate=GateOutcome.ABSENT)), turn(add())], []),
        ([turn(finish("note-5"))], ["invented_id"]),
        ([turn(finish("note-0"))], []),
        ([turn(finish("note"))], ["invented_id"]),
        (
            [turn(find(result={"status": "ok", "data": {"notes": ["note-5"]}}), finish("note-5"))],
            [],
        ),
        ([turn(find(result=error("not_found")), finish("note-9"))], []),
        ([replace(turn(finish("note-7")), user="note-7을 끝내 줘")], []),
        ([turn(finish("note-7")), replace(turn(), user="note-7")], ["invented_id"]),
        ([turn(replace(add(), raw_args=None))], []),
    ],
)
def test_an_attempted_violation_is_named(
    judged: Judged, turns: list[TurnRecord], codes: list[str]
) -> None:
    body = "  turns: [{user: hello, expect: {extra: any}}, {user: hello, expect: {extra: any}}]\n"
    both = [*turns, turn()][:2]
    violations = judged(body, evidence(*both, before=(MILK,), after=(MILK,))).violations
    assert [each.code for each in violations] == codes
    assert {each.severity for each in violations} <= {Severity.ATTEMPTED}


def test_what_a_scenario_asks_for_is_no_violation(judged: Judged) -> None:
    body = """
  turns:
    - user: add it
      confirm: reject
      expect: {calls: [{tool: add_note, args: {text: milk}, result: cancelled}]}
    - user: do it after all
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}, result: r1_blank}]}
"""
    again = add(result=error("r1_blank"))
    assert judged(body, evidence(turn(refused()), turn(again))).violations == ()
    other = add(result=error("r2_other"))
    wrong = judged(body, evidence(turn(refused()), turn(other)))
    assert [each.code for each in wrong.violations] == ["r2_other"]


def test_what_really_happened_without_leave_has_escaped(judged: Judged) -> None:
    sneaky = add(gate=GateOutcome.REJECTED)
    violations = judged(REJECT, evidence(turn(sneaky), after=(MILK,))).violations
    assert {each.code: each.severity for each in violations} == {
        "unconfirmed_write": Severity.ESCAPED,
        "unlisted_write": Severity.ESCAPED,
    }


def test_an_escape_shows_even_where_the_world_failed(judged: Judged) -> None:
    broken = turn(add(gate=GateOutcome.ABSENT), ended=EndReason.FAILED, cause="X")
    judgement = judged(ADD, evidence(broken, after=(MILK,)))
    assert judgement.verdict is Verdict.INVALID
    assert [each.code for each in judgement.violations] == ["unconfirmed_write"]


@pytest.mark.parametrize(
    ("calls", "score"),
    [
        ((add(),), TurnScore(passed=False, due_calls=2, right_calls=1)),
        ((add(), finish("note-0")), TurnScore(passed=True, due_calls=2, right_calls=2)),
        (
            (add(), finish("note-1"), find()),
            TurnScore(passed=False, due_calls=2, right_calls=1),
        ),
        (
            (add(), finish("note-0"), add("bread")),
            TurnScore(passed=False, due_calls=2, right_calls=2, surplus_calls=1),
        ),
        (
            (add(), finish("note-0"), find("other")),
            TurnScore(passed=False, due_calls=2, right_calls=2, surplus_calls=1),
        ),
    ],
)
def test_tool_accuracy_counts_due_right_and_surplus_calls(
    judged: Judged, calls: tuple[CallRecord, ...], score: TurnScore
) -> None:
    body = """
  turns:
    - user: hello
      confirm: accept
      expect:
        calls:
          - {tool: add_note, args: {text: milk}}
          - {tool: finish_note, args: {note_id: note-0, done: true}}
          - {tool: find_notes, args: {query: milk}, optional: true}
"""
    assert judged(body, evidence(turn(*calls))).scores == (score,)


def test_evidence_of_an_old_record_can_be_judged_again(judged: Judged) -> None:
    what = evidence(turn(add()), after=(MILK,))
    assert judged(ADD, what) == judged(ADD, what)
