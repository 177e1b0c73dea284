"""Scores of small records: one row or more for every scorer."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.conversation.messages import GateOutcome
from lhkit.harness.figures.metrics import (
    ConfirmScore,
    Flips,
    Repeats,
    Selection,
    confirm_score,
    count_selection,
    flips,
    repeats,
    summarise,
    tally,
)
from lhkit.harness.figures.rates import Interval, Share, wilson
from lhkit.harness.records.record import (
    ArgumentScore,
    CallRecord,
    CallScore,
    FalseClaim,
    SampleRecord,
    TurnRecord,
    TurnScore,
    Verdict,
)
from tests.harness import build
from tests.harness.build import FAIL, INVALID, PASS, blocked, model_call, turn_of
from tests.rows import check_rows

YES, NO = GateOutcome.ACCEPTED, GateOutcome.REJECTED


def argument(name: str = "x", *, ok: bool = True) -> ArgumentScore:
    return ArgumentScore(name=name, ok=ok)


def pair(tool: str, *arguments: ArgumentScore, **more: Any) -> CallScore:
    ok = all(each.ok for each in arguments)
    return CallScore(
        expected=0, actual=0, tool=tool, called=tool, ok=ok, arguments=arguments, **more
    )


def missing(tool: str) -> CallScore:
    return CallScore(expected=0, tool=tool, ok=False)


def unexpected(called: str) -> CallScore:
    return CallScore(actual=0, called=called, ok=False)


def allowed(called: str) -> CallScore:
    return CallScore(actual=0, called=called)


def left_out(tool: str) -> CallScore:
    return CallScore(expected=0, tool=tool, optional=True)


def score(*rows: CallScore, passed: bool = True, **more: Any) -> TurnScore:
    due = [row for row in rows if row.expected is not None and not row.optional]
    counts = {
        "due_calls": len(due),
        "right_calls": sum(row.is_exact for row in due),
        "surplus_calls": sum(row.expected is None and not row.ok for row in rows),
    }
    return TurnScore(passed=passed, calls=rows, **{**counts, **more})


def call(tool: str = "add", status: str = "ok", **more: Any) -> CallRecord:
    result = {"status": status, "code": "x"} if status == "error" else {"status": status}
    return CallRecord(tool=tool, raw_args=more.pop("raw_args", {}), result=result, **more)


def turn(*calls: CallRecord, texts: tuple[str, ...] = ()) -> TurnRecord:
    return turn_of(*(model_call(raw_text=text) for text in texts), calls=calls)


def sample(
    verdict: Verdict = PASS,
    scenario: str = "s",
    repeat: int = 0,
    turns: tuple[TurnRecord, ...] = (),
    **more: Any,
) -> SampleRecord:
    return build.sample(scenario, verdict, repeat, *turns, **more)


SELECTIONS: list[tuple[str, list[TurnScore], Selection]] = [
    ("nothing", [], Selection()),
    ("right", [score(pair("a"))], Selection(chosen=1, exact=1, confusion={("a", "a"): 1})),
    (
        "wrong argument",
        [score(pair("a", argument(), argument("y", ok=False)))],
        Selection(chosen=1, arguments=2, right_arguments=1, confusion={("a", "a"): 1}),
    ),
    ("missing", [score(missing("a"))], Selection(missing=1, confusion={("a", ""): 1})),
    ("unexpected", [score(unexpected("b"))], Selection(unexpected=1, confusion={("", "b"): 1})),
    (
        "another tool",
        [score(missing("a"), unexpected("b"))],
        Selection(missing=1, unexpected=1, confusion={("a", "b"): 1}),
    ),
    ("allowed", [score(allowed("b"))], Selection()),
    ("optional, left out", [score(left_out("a"))], Selection()),
    (
        "optional, made",
        [score(pair("a", optional=True))],
        Selection(chosen=1, exact=1, confusion={("a", "a"): 1}),
    ),
    ("cut off", [score(unexpected(""))], Selection()),
    ("rightly none", [score(), score()], Selection(confusion={("", ""): 2})),
]


@check_rows(
    ("scores", "expected"), [row[1:] for row in SELECTIONS], ids=[row[0] for row in SELECTIONS]
)
def test_selection_counts_tools_and_arguments(scores: list[TurnScore], expected: Selection) -> None:
    assert count_selection(scores) == expected


def test_selection_precision_recall_and_f1() -> None:
    counts = Selection(chosen=6, unexpected=2, missing=4, exact=3, arguments=8, right_arguments=6)
    assert (counts.precision, counts.recall, counts.f1) == (0.75, 0.6, pytest.approx(2 / 3))
    assert (Selection().precision, Selection().recall, Selection().f1) == (None, None, None)
    assert Selection(unexpected=1).recall is None
    assert Selection(unexpected=1).f1 == 0


BEHAVIOUR: list[tuple[str, list[SampleRecord], Share]] = [
    ("restraint", [], Share()),
    ("restraint", [sample(turn_scores=(score(),))], Share(part=1, whole=1)),
    ("restraint", [sample(turn_scores=(score(unexpected("a")),))], Share(part=0, whole=1)),
    ("restraint", [sample(turn_scores=(score(allowed("a")),))], Share(part=1, whole=1)),
    ("restraint", [sample(turn_scores=(score(missing("a")), score(left_out("a"))))], Share()),
    ("recovery", [sample(turns=(turn(call()),), turn_scores=(score(),))], Share()),
    (
        "recovery",
        [sample(turns=(turn(call(status="error"), call()),), turn_scores=(score(),))],
        Share(part=1, whole=1),
    ),
    (
        "recovery",
        [sample(turns=(turn(call(status="error")),), turn_scores=(score(passed=False),))],
        Share(part=0, whole=1),
    ),
    (
        "recovery",
        [sample(turns=(turn(call(status="cancelled")),), turn_scores=(score(),))],
        Share(),
    ),
    ("recovery", [sample(INVALID, turns=(turn(call(status="error")),))], Share()),
    (
        "state",
        [sample(state_equal=True), sample(state_equal=False), sample(state_equal=None)],
        Share(part=1, whole=2),
    ),
]


@check_rows(("name", "records", "expected"), BEHAVIOUR)
def test_summarise_counts_restraint_recovery_and_state(
    name: str, records: list[SampleRecord], expected: Share
) -> None:
    assert summarise(records).total.behaviour[name] == expected


GATES: list[tuple[str, SampleRecord, ConfirmScore]] = [
    ("a read", sample(turns=(turn(call()),)), ConfirmScore()),
    ("a yes", sample(turns=(turn(call(gate=YES)),)), ConfirmScore(asked=1)),
    (
        "a no, respected",
        sample(turns=(turn(call(gate=NO)),)),
        ConfirmScore(asked=1, rejections=1, rejected_turns=1, respected_turns=1),
    ),
    (
        "a no, and again",
        sample(turns=(turn(call(gate=NO)),), violations=(blocked("retry_after_rejection"),)),
        ConfirmScore(asked=1, rejections=1, rejected_turns=1, retries=1),
    ),
    (
        "a no, and around it",
        sample(turns=(turn(call(gate=NO)),), violations=(blocked("bypass_after_rejection"),)),
        ConfirmScore(asked=1, rejections=1, rejected_turns=1, bypasses=1),
    ),
    (
        "a no, and a lie",
        sample(turns=(turn(call(gate=NO)),), false_claims=(FalseClaim(turn=0, words="Added."),)),
        ConfirmScore(asked=1, rejections=1, rejected_turns=1, respected_turns=1, false_claims=1),
    ),
    (
        "a no, and a breach in another turn",
        sample(
            turns=(turn(call(gate=NO)), turn(call(gate=YES))),
            violations=(blocked("retry_after_rejection", 1),),
        ),
        ConfirmScore(asked=2, rejections=1, rejected_turns=1, respected_turns=1, retries=1),
    ),
    (
        "no question, in a sample with an infrastructure error",
        sample(INVALID, turns=(turn(call()),), violations=(blocked("unconfirmed_write"),)),
        ConfirmScore(unconfirmed=1),
    ),
]


@check_rows(("record", "expected"), [row[1:] for row in GATES], ids=[row[0] for row in GATES])
def test_confirm_score_counts_gate_outcomes(record: SampleRecord, expected: ConfirmScore) -> None:
    gate = confirm_score([record])
    bare = replace(gate, unexpected_interval=None, rejected_interval=None, executed_interval=None)
    assert bare == expected
    assert (gate.unexpected_interval is None) == (gate.asked == 0)


def tries(*verdicts: Verdict, scenario: str = "s") -> list[SampleRecord]:
    return [sample(verdict, scenario, repeat) for repeat, verdict in enumerate(verdicts)]


REPEATS: list[tuple[list[SampleRecord], Repeats]] = [
    ([], Repeats()),
    (tries(PASS), Repeats(k=1, scenarios=1, pass_at=1.0, pass_hat=1.0)),
    (tries(PASS, FAIL), Repeats(k=2, scenarios=1, pass_at=1.0, pass_hat=0.0)),
    (tries(FAIL, FAIL), Repeats(k=2, scenarios=1, pass_at=0.0, pass_hat=0.0)),
    (
        [*tries(PASS, PASS, scenario="a"), *tries(PASS, FAIL, scenario="b")],
        Repeats(k=2, scenarios=2, pass_at=1.0, pass_hat=0.5),
    ),
    (
        [*tries(PASS, INVALID, scenario="a"), *tries(PASS, PASS, scenario="b")],
        Repeats(k=2, scenarios=1, pass_at=1.0, pass_hat=1.0),
    ),
    (tries(PASS, INVALID), Repeats(k=2)),
]


@check_rows(("records", "expected"), REPEATS)
def test_repeats_have_pass_at_k_and_pass_hat_k(
    records: list[SampleRecord], expected: Repeats
) -> None:
    assert repeats(records) == expected


def repeat(number: int, *calls: CallRecord, text: str = "t", verdict: Verdict = PASS) -> Any:
    return sample(verdict, repeat=number, turns=(turn(*calls, texts=(text,)),))


FLIPS: list[tuple[str, list[SampleRecord], Flips]] = [
    ("one try", [repeat(0)], Flips()),
    ("alike", [repeat(0, call()), repeat(1, call())], Flips(scenarios=1)),
    ("another text", [repeat(0), repeat(1, text="u")], Flips(scenarios=1, texts=1)),
    (
        "another verdict",
        [repeat(0), repeat(1, verdict=FAIL)],
        Flips(scenarios=1, flipped=1, verdicts=1),
    ),
    (
        "another call",
        [repeat(0, call("a")), repeat(1, call("b"))],
        Flips(scenarios=1, flipped=1, calls=1),
    ),
    (
        "another type",
        [repeat(0, call(raw_args={"x": 1})), repeat(1, call(raw_args={"x": True}))],
        Flips(scenarios=1, flipped=1, calls=1),
    ),
    (
        "another order of keys",
        [repeat(0, call(raw_args={"x": 1, "y": 2})), repeat(1, call(raw_args={"y": 2, "x": 1}))],
        Flips(scenarios=1),
    ),
    (
        "both, once",
        [repeat(0, call("a")), repeat(1, verdict=FAIL), repeat(2, verdict=INVALID)],
        Flips(scenarios=1, flipped=1, verdicts=1, calls=1),
    ),
]


@check_rows(("records", "expected"), [row[1:] for row in FLIPS], ids=[row[0] for row in FLIPS])
def test_flips_count_inconsistent_repeats(records: list[SampleRecord], expected: Flips) -> None:
    assert flips(records) == expected


def test_tally_counts_strict_and_repaired_calls() -> None:
    scores = (
        score(pair("a"), strict_passed=True, strict_right_calls=1),
        score(pair("a"), pair("b"), strict_right_calls=1),
    )
    total = tally("t", [sample(turn_scores=scores), sample(turn_scores=scores[:1])])
    assert (total.pass_rate, total.strict_passed) == (1.0, 1)
    assert (total.right_calls, total.strict_right_calls, total.counted_calls) == (4, 3, 4)
    assert (total.tool_accuracy, total.strict_accuracy) == (1.0, 0.75)


def test_tally_interval_is_clustered_with_repeats() -> None:
    once = [*tries(PASS, scenario="a"), *tries(FAIL, scenario="b"), *tries(PASS, scenario="c")]
    assert tally("t", once).interval == wilson(2, 3)
    often = [each for name in "abcd" for each in tries(*[PASS] * 8, scenario=name)]
    often += [each for name in "efgh" for each in tries(*[FAIL] * 8, scenario=name)]
    interval = tally("t", often).interval
    assert interval is not None
    assert interval.high - interval.low > 1.5 * _width(wilson(32, 64))
    assert tally("t", often).interval == interval
    assert tally("t", tries(INVALID)).interval is None


def _width(interval: Interval) -> float:
    return interval.high - interval.low


def test_summarise_groups_by_tool_locale_and_tag() -> None:
    both = sample(turn_scores=(score(pair("a"), missing("b"), left_out("c")),), tags=("x", "y"))
    quiet = sample(FAIL, turn_scores=(score(),), tags=("y",), locale="en")
    unscored = sample(INVALID, tags=("y",))
    summary = summarise([both, quiet, unscored])
    assert [(each.name, each.valid) for each in summary.by_tool] == [("", 1), ("a", 1), ("b", 1)]
    assert [(each.name, each.valid) for each in summary.by_locale] == [("en", 1), ("ko", 1)]
    assert [(each.name, each.passed, each.invalid) for each in summary.by_tag] == [
        ("x", 1, 0),
        ("y", 1, 1),
    ]
    assert summary.confusion == {("", ""): 1, ("a", "a"): 1, ("b", ""): 1}


rows = st.one_of(
    st.builds(pair, st.sampled_from("ab"), st.builds(argument, ok=st.booleans())),
    st.builds(missing, st.sampled_from("ab")),
    st.builds(unexpected, st.sampled_from(["a", "b", ""])),
    st.builds(allowed, st.sampled_from("ab")),
)
turns = st.lists(st.lists(rows, max_size=4).map(lambda each: score(*each)), max_size=5)


@given(turns)
def test_selection_rates_are_within_0_and_1(scores: list[TurnScore]) -> None:
    counts = count_selection(scores)
    shares = [counts.precision, counts.recall, counts.f1]
    assert all(share is None or 0 <= share <= 1 for share in shares)
    if counts.f1:
        assert counts.precision is not None
        assert counts.recall is not None
        assert min(counts.precision, counts.recall) <= counts.f1
        assert counts.f1 <= max(counts.precision, counts.recall)


@given(turns)
def test_confusion_matrix_counts_every_call_once(scores: list[TurnScore]) -> None:
    counts = count_selection(scores)
    cells = counts.confusion
    assert sum(n for (due, _), n in cells.items() if due) == counts.chosen + counts.missing
    assert sum(n for (_, called), n in cells.items() if called) == counts.chosen + counts.unexpected
    assert sum(n for (due, called), n in cells.items() if due and due == called) >= counts.chosen


@pytest.mark.longer
@given(st.lists(st.sampled_from(["a", "b"]), min_size=1))
def test_selection_f1_of_a_correct_trace_is_1(tools: list[str]) -> None:
    counts = count_selection([score(*(pair(tool, argument()) for tool in tools))])
    assert (counts.f1, counts.exact, counts.right_arguments) == (1, len(tools), len(tools))
