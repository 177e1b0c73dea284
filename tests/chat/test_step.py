"""The next step is a pure function of the transcript."""

import unicodedata
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lhkit.chat.state import Transcript
from lhkit.chat.step import (
    AnswerRepeated,
    AnswerTruncated,
    CallModel,
    DeclaredArguments,
    Dispatch,
    Finish,
    Limits,
    RunTools,
    SkipUnasked,
    is_same_call,
    next_step,
)
from lhkit.conversation.messages import ToolCall, ToolCallMessage, ToolCallOutcome, UserMessage
from lhkit.conversation.responses import Finished
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.tools.validation import ArgumentValidator
from tests.rows import check_rows

LIMITS = Limits(destructive=frozenset({"write"}))
ASKED = Transcript().started(UserMessage(text="안녕"))


def with_result(call: ToolCallMessage, result: ToolResult = ToolOk({})) -> ToolCallMessage:  # noqa: B008
    return replace(call, outcome=ToolCallOutcome(result=result))


def called(*names: str, fragment: str = "") -> Finished:
    calls = tuple(ToolCall(name=name, args={"i": i}) for i, name in enumerate(names))
    return Finished(reason="stop", calls=calls, fragment=fragment)


def plans(response: Finished, transcript: Transcript = ASKED) -> list[type]:
    step = next_step(transcript.model_called().answered(response), LIMITS)
    assert isinstance(step, RunTools)
    return [type(plan) for plan in step.plans]


def test_step_remembers_the_destructive_call_of_a_partly_completed_message() -> None:
    transcript = ASKED.model_called().answered(called("write", "write"))
    first = transcript.pending[0]
    step = next_step(transcript.completed(with_result(first)), LIMITS)
    assert isinstance(step, RunTools)
    assert [type(plan) for plan in step.plans] == [SkipUnasked]


def test_step_runs_the_same_call_in_the_next_user_turn() -> None:
    same = Finished(reason="stop", calls=(ToolCall(name="read", args={}),))
    first = ASKED.model_called().answered(same)
    answered = first.completed(with_result(first.pending[0]))
    assert plans(same, answered) == [AnswerRepeated]
    assert plans(same, answered.started(UserMessage(text="다시"))) == [Dispatch]


@check_rows(
    ("first", "second", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({}, None, False),
    ],
)
def test_is_same_call_compares_types_and_ignores_order(
    first: object, second: object, same: bool
) -> None:
    assert is_same_call(ToolCall(name="t", args=first), ToolCall(name="t", args=second)) is same


PARAMETERS = {
    "type": "object",
    "properties": {
        "n": {"type": "number"},
        "size": {"type": "string", "default": "small"},
        "of": {"$ref": "#/$defs/of"},
        "maybe": {"anyOf": [{"$ref": "#/$defs/of"}, {"type": "null"}], "default": None},
        "all": {"type": "array", "items": {"$ref": "#/$defs/of"}},
    },
    "$defs": {"of": {"type": "object", "properties": {"kind": {"enum": [1, 2], "default": 1}}}},
}
DECLARED = DeclaredArguments(parameters=PARAMETERS, validator=ArgumentValidator(PARAMETERS))
NFC, NFD = "카페", unicodedata.normalize("NFD", "카페")


@check_rows(
    ("first", "second", "same"),
    [
        ({"n": 1}, {"n": 1.0}, True),
        ({"n": 1}, {"size": "small", "n": 1, "maybe": None}, True),
        ({"n": 1}, {"n": 1, "mood": "good"}, True),
        ({"size": NFC}, {"size": NFD}, True),
        ({"of": {}}, {"of": {"kind": 1.0}}, True),
        ({"maybe": {}}, {"maybe": {"kind": 1}}, True),
        ({"all": [{}, {"kind": 1}]}, {"all": [{"kind": 1}, {}]}, True),
        ({"n": 1}, {"n": 1, "size": "large"}, False),
        ({"n": 1}, {"n": 1.5}, False),
        ({"maybe": {}}, {"maybe": None}, False),
        ({"of": {}}, {"of": {"kind": 2}}, False),
        ({"n": "1"}, {"n": 1}, False),
        ({"n": "1"}, {"n": "1", "mood": 1}, False),  # neither is valid: nothing is known of it
    ],
)
def test_is_same_call_compares_arguments_as_the_tool_reads_them(
    first: object, second: object, same: bool
) -> None:
    one, other = ToolCall(name="t", args=first), ToolCall(name="t", args=second)
    assert is_same_call(one, other, DECLARED) is same
    assert is_same_call(other, one, DECLARED) is same


def test_is_same_call_survives_a_failing_validator() -> None:
    broken = {"type": "object", "properties": {"n": {"$ref": "#/nowhere"}}}
    declared = DeclaredArguments(parameters=broken, validator=ArgumentValidator(broken))
    one, other = ToolCall(name="t", args={"n": 1}), ToolCall(name="t", args={"n": 1.0})
    assert is_same_call(one, other, declared)


@given(
    st.lists(
        st.lists(st.sampled_from(["read", "write", "nope"]), max_size=3), min_size=1, max_size=8
    )
)
def test_step_finishes_within_its_limits(messages: list[list[str]]) -> None:
    transcript = ASKED
    replies = iter(messages * 8)
    for _ in range(100):
        match next_step(transcript, LIMITS):
            case CallModel(turn=turn):
                assert 1 <= turn <= LIMITS.max_turns
                transcript = transcript.model_called().answered(called(*next(replies)))
            case RunTools(plans=todo):
                for plan in todo:
                    transcript = transcript.completed(with_result(plan.pending))
            case Finish():
                return
    raise AssertionError


def write(name: str) -> ToolCall:
    return ToolCall(name="write", args={"what": name})


def complete_pending(transcript: Transcript) -> tuple[Transcript, list[tuple[str, type]]]:
    """Complete the pending calls as the controller does; return the plan of each."""
    step = next_step(transcript, LIMITS)
    assert isinstance(step, RunTools)
    planned: list[tuple[str, type]] = []
    for plan in step.plans:
        result: ToolResult = {
            Dispatch: ToolOk({}),
            SkipUnasked: ToolCancelled(),
            AnswerRepeated: ToolErr("repeated_call", ""),
            AnswerTruncated: ToolErr("truncated_call", ""),
        }[type(plan)]
        planned.append((plan.pending.call.args.get("what", ""), type(plan)))
        transcript = transcript.completed(with_result(plan.pending, result))
    return transcript, planned


def proposed(*messages: str) -> list[list[tuple[str, type]]]:
    """Return the plans for each message; a message is the writes in it, `?` a read."""
    transcript, planned = ASKED, []
    for message in messages:
        calls = tuple(
            ToolCall(name="read", args={"what": "?"}) if name == "?" else write(name)
            for name in message
        )
        transcript, plans_of_it = complete_pending(
            transcript.model_called().answered(Finished(reason="stop", calls=calls))
        )
        planned.append(plans_of_it)
    return planned


@check_rows(
    ("messages", "wanted"),
    [
        (("ab", "b"), ["DS", "D"]),
        (("ab", "ab"), ["DS", "RD"]),
        (("abc", "bc", "c"), ["DSS", "DS", "D"]),
        (("ab", "?", "b"), ["DS", "D", "D"]),
        (("ab", "a"), ["DS", "R"]),
        (("aa",), ["DR"]),
        (("aab", "b"), ["DRS", "D"]),
        (("a", "ab"), ["D", "RD"]),
        (("a", "a", "a"), ["D", "R", "R"]),
        (("a?a",), ["DDS"]),
    ],
)
def test_step_asks_a_skipped_write_when_it_is_proposed_again(
    messages: tuple[str, ...], wanted: list[str]
) -> None:
    letters = {Dispatch: "D", SkipUnasked: "S", AnswerRepeated: "R"}
    assert [
        "".join(letters[kind] for _, kind in message) for message in proposed(*messages)
    ] == wanted


@given(st.lists(st.text("abc?", min_size=1, max_size=4), min_size=1, max_size=6))
def test_step_compares_only_with_the_last_dispatched_call(
    messages: list[str],
) -> None:
    previous = None
    for message in proposed(*messages):
        asked = 0
        for name, plan in message:
            is_write = name != "?"
            if name == previous:
                assert plan is AnswerRepeated
            else:
                assert plan is (SkipUnasked if is_write and asked else Dispatch)
            if plan is Dispatch:
                previous = name
                asked += is_write
        assert asked <= 1
