"""The risk of a tool's proposed writes: what counts, what is wrong, what is decided."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.conversation.messages import GateOutcome
from lhkit.harness.figures.approvals import (
    ApprovalDecision,
    Approvals,
    Evidence,
    Proposal,
    Source,
    ToolRisk,
    WriteTools,
    approvals_of,
    chat_evidence,
    is_calibration_half,
    run_evidence,
)
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import CallRecord, SampleRecord, Verdict
from lhkit.harness.results.results import Run
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from tests.harness.build import Load, Play, sample, turn_of
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

SCENARIO = """
- id: add
  ac: AC-4
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00", notes: [{id: note-0, text: old}]}
  turns:
    - user: add milk
      confirm: CONFIRM
      expect: EXPECT
      MORE
  final: FINAL
"""
MILK, EGGS, BLANK = (call("add_note", text=text) for text in ("milk", "eggs", " "))
DONE = call("finish_note", note_id="note-0", done=True)
ADD_MILK = "{calls: [{tool: add_note, args: {text: milk}}]}"
ANY_MILK = "{calls: [{tool: add_note, args: {text: {any: true}}}]}"
NOTHING, ALL = "{}", "{extra: any}"
MILK_ROW, EGGS_ROW = "{notes: [{text: milk}]}", "{notes: [{text: eggs}]}"


def scenario(
    expect: str = ADD_MILK, final: str = MILK_ROW, confirm: str = "accept", more: str = ""
) -> str:
    filled = SCENARIO.replace("EXPECT", expect).replace("FINAL", final)
    return filled.replace("CONFIRM", confirm).replace("MORE", more)


def counts(run: Run | Iterable[SampleRecord]) -> dict[str, tuple[int, int]]:
    """Return the proposed and the wrong writes of each tool."""
    records = run.records if isinstance(run, Run) else run
    found: dict[str, tuple[int, int]] = {}
    for each in run_evidence(records).proposals:
        if each.is_wrong is not None:
            proposed, wrong = found.get(each.tool, (0, 0))
            found[each.tool] = proposed + 1, wrong + each.is_wrong
    return found


@pytest.mark.parametrize(
    ("written", "calls", "expected"),
    [
        pytest.param(scenario(), [MILK], {"add_note": (1, 0)}, id="right"),
        pytest.param(scenario(), [EGGS], {"add_note": (1, 1)}, id="wrong argument"),
        pytest.param(scenario(), [EGGS, MILK], {"add_note": (2, 1)}, id="wrong, then right"),
        pytest.param(scenario(), [MILK, MILK], {"add_note": (1, 0)}, id="a repetition is no card"),
        pytest.param(
            scenario(), [DONE, MILK], {"finish_note": (1, 1), "add_note": (1, 0)}, id="tool"
        ),
        pytest.param(scenario(), [call("add_note", text=3)], {}, id="refused by validation"),
        pytest.param(scenario(), [call("nothing")], {}, id="an unknown tool"),
        pytest.param(scenario(), [call("find_notes", query="milk")], {}, id="a read"),
        pytest.param(
            scenario(confirm="reject"), [EGGS], {"add_note": (1, 1)}, id="rejected, wrong"
        ),
        pytest.param(
            scenario(
                "{calls: [{tool: add_note, args: {text: milk}, result: cancelled}]}", "{}", "reject"
            ),
            [MILK],
            {},
            id="rejected, but what was asked for",
        ),
        pytest.param(
            scenario(confirm="{edit: {text: milk}}"), [EGGS], {"add_note": (1, 1)}, id="edited"
        ),
        pytest.param(scenario(confirm="absent"), [MILK], {}, id="nobody to ask"),
        pytest.param(scenario(NOTHING, "{}"), [EGGS], {"add_note": (1, 1)}, id="nothing expected"),
        pytest.param(scenario(NOTHING, "{}"), [], {}, id="nothing expected, nothing done"),
        pytest.param(
            scenario(ANY_MILK), [EGGS], {"add_note": (1, 1)}, id="expected, but an unlisted row"
        ),
        pytest.param(scenario(ANY_MILK), [MILK], {"add_note": (1, 0)}, id="a loose matcher"),
        pytest.param(scenario(ALL), [MILK], {"add_note": (1, 0)}, id="allowed"),
        pytest.param(scenario(ALL), [MILK, EGGS], {"add_note": (2, 1)}, id="allowed, unlisted row"),
        pytest.param(
            scenario(ALL, more="forbid: [{tool: add_note, args: {text: milk}}]"),
            [MILK],
            {"add_note": (1, 1)},
            id="allowed and forbidden",
        ),
        pytest.param(
            scenario(more="final: {}"), [MILK], {"add_note": (1, 1)}, id="unlisted in its turn"
        ),
        pytest.param(
            scenario("{calls: [{tool: add_note, args: {text: ' '}, result: r1_blank}]}", "{}"),
            [BLANK],
            {"add_note": (1, 0)},
            id="an expected refusal of the tool",
        ),
    ],
)
async def test_run_evidence_counts_writes_and_wrong_ones(
    play: Play, load: Load, written: str, calls: Sequence[Any], expected: dict[str, Any]
) -> None:
    run = await play(load(written), ScriptedModel([*calls, *[say("ok")] * 3]))
    assert counts(run) == expected


@pytest.mark.parametrize(("user", "wrong_runs"), [("careful", False), ("hasty", True)])
async def test_simulated_users_do_not_change_what_is_wrong(
    play: Play, load: Load, user: str, wrong_runs: bool
) -> None:
    run = await play(load(scenario()), ScriptedModel([DONE, MILK, say("ok")]), user=user)
    assert counts(run) == {"finish_note": (1, 1), "add_note": (1, 0)}
    (record,) = run.records
    assert record.trajectory.calls[0].ran is wrong_runs


async def test_invalid_sample_counts_only_writes_to_unlisted_rows(play: Play, load: Load) -> None:
    eggs = await play(load(scenario()), ScriptedModel([EGGS, say("ok")]))
    milk = await play(load(scenario()), ScriptedModel([MILK, say("ok")]))
    for run, expected in ((eggs, {"add_note": (1, 1)}), (milk, {})):
        (record,) = run.records
        score = replace(record.score, verdict=Verdict.INVALID, turn_scores=(), reasons=("down",))
        assert counts([replace(record, score=score)]) == expected


def proposals(
    tool: str, *shares: tuple[int, int], cluster: str = "s", **more: Any
) -> list[Proposal]:
    """Return the proposals of scenarios with (wrong, all) writes."""
    return [
        Proposal(tool=tool, cluster=f"{cluster}{n}", is_wrong=number < wrong, **more)
        for n, (wrong, total) in enumerate(shares)
        for number in range(total)
    ]


def table(*rows: list[Proposal], **options: Any) -> Approvals:
    return approvals_of(Evidence(proposals=tuple(chain.from_iterable(rows))), **options)


def row(approvals: Approvals, tool: str) -> ToolRisk:
    return next(each for each in approvals.tools if each.tool == tool)


def test_table_of_the_specification() -> None:
    approvals = table(
        proposals("log_entry", *[(0, 1)] * 212),
        proposals("add_habit", *[(1, 1)] * 3, *[(0, 1)] * 54),
        proposals("delete", *[(0, 1)] * 9),
    )
    shown = [
        (each.tool, each.proposed, each.wrong, round(100 * (each.upper or 0), 1), each.saved)
        for each in approvals.tools
    ]
    assert shown == [
        ("log_entry", 212, 0, 1.4, 212),
        ("add_habit", 57, 3, 13.0, 0),
        ("delete", 9, 0, 28.3, 0),
    ]
    assert [each.decision for each in approvals.tools] == ["run", "cannot_tell", "cannot_tell"]
    assert [each.further for each in approvals.tools] == [None, 330, 140]


def test_tool_is_asked_whose_lower_limit_is_above_the_budget() -> None:
    approvals = table(proposals("delete", *[(1, 1)] * 8, *[(0, 1)] * 40))
    assert approvals.tools[0].decision is ApprovalDecision.ASK
    assert approvals.tools[0].lower == pytest.approx(0.086, abs=0.001)


def test_wordings_repeats_and_runs_of_a_scenario_are_one_cluster() -> None:
    once = proposals("t", *[(0, 1)] * 100)
    assert row(table(once), "t").upper == row(table(once * 5), "t").upper
    both = row(table(proposals("t", (1, 4), (0, 1))), "t")
    assert (both.proposed, both.wrong, both.scenarios) == (5, 1, 2)


def test_holm_takes_more_for_several_tools_but_not_for_hopeless_ones() -> None:
    enough_alone = proposals("a", *[(0, 1)] * 160)
    assert row(table(enough_alone), "a").decision is ApprovalDecision.RUN
    hopeless = [proposals(f"few{n}", *[(0, 1)] * 100) for n in range(20)]
    assert row(table(enough_alone, *hopeless), "a").decision is ApprovalDecision.RUN
    bad = proposals("b", *[(1, 1)] * 9, *[(0, 1)] * 200)
    with_other = table(enough_alone, bad)
    assert row(with_other, "a").decision is ApprovalDecision.CANNOT_TELL
    assert row(with_other, "a").further == 23  # 183 for a level of 2.5 %
    only = table(enough_alone, bad, only=["a"])
    assert [each.tool for each in only.tools] == ["a"]
    assert only.tools[0].decision is ApprovalDecision.RUN


@pytest.mark.parametrize("others", [[(0, 1)] * 160, [(1, 2), *[(0, 1)] * 300], [(0, 1)] * 40])
def test_so_many_further_scenarios_are_enough_beside_other_tools(others: Any) -> None:
    # the first passes alone, but not beside a second test
    few = [(0, 1)] * 8
    before = row(table(proposals("a", *others), proposals("b", *few)), "b")
    assert before.decision is ApprovalDecision.CANNOT_TELL
    more = [*few, *[(0, 1)] * (before.further or 0)]
    after = row(table(proposals("a", *others), proposals("b", *more)), "b")
    assert after.decision is ApprovalDecision.RUN


def test_tools_without_proposals_and_those_that_always_ask_have_rows() -> None:
    tools = WriteTools(frozenset({"a", "b"}), frozenset({"a"}))
    approvals = table(proposals("a", *[(0, 1)] * 500), tools=tools)
    assert row(approvals, "a").decision is ApprovalDecision.ALWAYS_ASK
    assert row(approvals, "a").saved == 0
    never = row(approvals, "b")
    assert (never.decision, never.upper, never.further) == ("cannot_tell", None, 150)


@check_rows(
    "options",
    [
        *({"risk": risk} for risk in (0, 1, 2, "2%", None, True)),
        *({"confidence": confidence} for confidence in (0.4, 1, "95%", None)),
    ],
)
def test_levels_out_of_range_are_refused(options: Any) -> None:
    with pytest.raises(UsageError, match="is invalid"):
        table(**options)


def test_unknown_tool_is_refused_with_those_that_write() -> None:
    with pytest.raises(UsageError, match=r"'delte'.*Those that do: delete\."):
        table(proposals("delete", (0, 1)), only=["delte"])


def chat(number: int, gate: GateOutcome, answer: str = "", **more: Any) -> SampleRecord:
    made = CallRecord(
        tool="add_note",
        raw_args={"text": "milk"},
        args={"text": "milk"},
        result={"status": "ok"},
        gate=gate,
        answer=answer,
        destructive=True,
        **more,
    )
    return sample(f"chat-{number}", "invalid", 0, turn_of(calls=(made,)))


ACCEPTED, REJECTED = GateOutcome.ACCEPTED, GateOutcome.REJECTED


@check_rows(
    ("record", "label", "trust", "expected"),
    [
        (chat(1, REJECTED, "cancel"), None, False, (True, Source.CHATS)),
        (chat(1, REJECTED), None, False, (True, Source.CHATS)),
        (chat(1, REJECTED, "closed"), None, False, (None, Source.CHATS)),
        (chat(1, REJECTED, "code_no"), None, True, (None, Source.CHATS)),
        (chat(1, ACCEPTED, "run", run_args={"text": "eggs"}), None, True, (True, Source.CHATS)),
        (chat(1, ACCEPTED, "run"), None, False, (None, Source.CHATS)),
        (chat(1, ACCEPTED, "run"), None, True, (False, Source.APPROVALS)),
        (chat(1, ACCEPTED, "code_yes"), None, True, (None, Source.CHATS)),
        (chat(1, ACCEPTED, "run"), True, False, (False, Source.REVIEWS)),
        (chat(1, ACCEPTED, "run"), False, True, (True, Source.REVIEWS)),
        (chat(1, GateOutcome.FAILED, "timed_out"), None, True, (None, Source.CHATS)),
        (chat(1, GateOutcome.POLICY, "policy"), None, True, (None, Source.CHATS)),
        (chat(1, GateOutcome.POLICY, "policy"), False, False, (True, Source.REVIEWS)),
    ],
)
def test_chat_evidence_rests_on_people(
    record: SampleRecord, label: bool | None, trust: bool, expected: tuple[Any, Source]
) -> None:
    labels = {} if label is None else {("chat-1", 0, 0): label}
    (each,) = chat_evidence([record], labels, trust_approvals=trust).proposals
    assert (each.is_wrong, each.source) == expected
    assert each.cluster == "chat chat-1"


def test_approvals_of_unknown_result_do_not_count_but_make_no_tool_worse() -> None:
    chats = [chat(n, ACCEPTED, "run") for n in range(95)]
    chats += [chat(n, REJECTED, "cancel") for n in range(95, 100)]
    evidence = chat_evidence(chats)
    only = approvals_of(evidence).tools[0]
    assert (only.proposed, only.wrong, only.unknown) == (5, 5, 95)
    # 5 of 5 known are wrong, but of 100 proposed ones perhaps only 5: that decides nothing
    assert only.decision is ApprovalDecision.CANNOT_TELL


def test_cost_of_cards_is_that_of_people() -> None:
    chats = [
        chat(1, ACCEPTED, "run", waiting_s=0.4),
        chat(2, ACCEPTED, "run", waiting_s=2.0),
        chat(3, REJECTED, "cancel", waiting_s=3.0),
        chat(4, REJECTED, "closed", waiting_s=900.0),
        chat(5, GateOutcome.POLICY, "policy"),
    ]
    labels = {("chat-1", 0, 0): True}
    cost = approvals_of(chat_evidence(chats, labels)).cost
    assert (cost.cards, cost.turns, cost.cards_a_turn) == (4, 5, 0.8)
    assert (cost.decisions, cost.median_s) == (3, 2.0)
    assert (cost.fast.part, cost.fast.whole) == (1, 2)
    assert (cost.needless.part, cost.needless.whole) == (1, 2)


def test_policy_writes_are_counted_as_proposed_and_as_let_through() -> None:
    rows = proposals("t", (0, 1), (1, 1)) + proposals("t", (1, 2), cluster="p", is_policy=True)
    only = row(table(rows), "t")
    assert (only.proposed, only.wrong) == (4, 2)
    assert (only.by_policy, only.wrong_by_policy) == (2, 1)


def test_write_tools_of_a_manifest_include_those_of_scenarios() -> None:
    def spec(name: str, **more: Any) -> dict[str, Any]:
        parameters = {"type": "object", "properties": {}}
        return {"name": name, "description": "d", "parameters": parameters, **more}

    manifest = Manifest.model_validate(
        {
            "locales": {
                "en": {"tools": [spec("read", destructive=False), spec("write", destructive=True)]}
            },
            "tools": {"s": ["read", spec("wipe", destructive=True, always_ask=True)]},
        }
    )
    assert WriteTools.of([manifest]) == (frozenset({"write", "wipe"}), frozenset({"wipe"}))


def certain(n: int, *, wrong_below: float) -> list[Proposal]:
    """Return proposals whose certainty is spread evenly; the uncertain ones are wrong."""
    return [
        Proposal(
            tool="t",
            cluster=f"s{number}",
            is_wrong=number / n < wrong_below,
            min_logprob=-5 + 5 * number / n,
        )
        for number in range(n)
    ]


def test_threshold_is_chosen_on_one_half_and_tested_on_the_other() -> None:
    only = table(certain(600, wrong_below=0.25)).tools[0]
    assert only.decision is ApprovalDecision.RUN_ABOVE
    assert only.threshold is not None
    assert only.threshold.above == pytest.approx(-5 + 5 * 0.25, abs=0.15)
    assert only.threshold.wrong == 0
    tested = sum(not is_calibration_half(f"s{n}") for n in range(600))
    assert only.threshold.saved.whole == tested
    assert only.saved == only.threshold.proposed < tested
    assert (only.proposed, only.wrong) == (600, 150)


def test_threshold_that_the_tested_half_refutes_is_not_safe() -> None:
    rows = [
        replace(each, is_wrong=not is_calibration_half(each.cluster))
        for each in certain(600, wrong_below=0.0)
    ]
    only = table(rows).tools[0]
    assert only.threshold is not None
    assert not only.threshold.is_safe
    assert only.decision is ApprovalDecision.ASK


def test_calls_without_a_log_probability_are_below_every_threshold() -> None:
    rows = certain(400, wrong_below=0.0)
    unknown = [replace(each, min_logprob=None) for each in rows]
    assert table(unknown).tools[0].threshold is None
    half_known = [replace(each, min_logprob=None) if n % 2 else each for n, each in enumerate(rows)]
    threshold = table(half_known).tools[0].threshold
    assert threshold is not None
    assert threshold.saved.rate is not None
    assert threshold.saved.rate < 0.6


def test_tool_that_always_asks_has_no_threshold() -> None:
    tools = WriteTools(frozenset({"t"}), frozenset({"t"}))
    only = table(certain(600, wrong_below=0.25), tools=tools).tools[0]
    assert (only.decision, only.threshold) == ("always_ask", None)
