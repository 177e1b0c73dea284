"""Decisions through the dispatcher: the call that runs, the result, the record."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lhkit.base.locales import load_catalog
from lhkit.chat.truth import truth_line
from lhkit.confirm.decision import Approve, Decision, Edit, QuestionOutcome, Reject
from lhkit.confirm.gate import ConfirmGate, ConfirmRequest, ScriptedGate
from lhkit.confirm.terminal import TerminalGate
from lhkit.conversation.messages import ToolCall, ToolCallMessage, ToolCallOutcome
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult, result_to_dict
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.hostile import AnswerGate
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

ENGLISH = load_catalog("en")
SCHEMA = object_schema(
    "to",
    to={"type": "string", "minLength": 1},
    day={"type": "string", "format": "date"},
    n={"type": "integer"},
    tags={"type": "array", "items": {"type": "string"}},
)
ARGS = {"to": "Kim", "day": "2026-06-15", "n": 1}


class Bench:
    """A tool that writes, and the arguments that it was run with."""

    def __init__(self) -> None:
        self.ran: list[dict[str, Any]] = []
        tool = echo_tool("send", parameters=SCHEMA, is_destructive=True, handler=self._send)
        self.dispatcher = ToolDispatcher(ToolRegistry([tool]), catalog=ENGLISH)

    def _send(self, args: Mapping[str, Any], _deps: Any) -> ToolResult:
        self.ran.append(dict(args))
        if args["to"] == "nobody":
            return ToolErr("r1_unknown", "no such person")
        if args["to"] == "crash":
            raise RuntimeError
        return ToolOk({"sent": True})

    async def send(self, gate: ConfirmGate, args: Any = ARGS) -> ToolCallOutcome:
        outcomes: list[ToolCallOutcome] = []
        await self.dispatcher.dispatch("send", args, confirm=gate, observe=outcomes.append)
        return outcomes[0]


UNSURE = {"status": "cancelled", "reason": "user did not confirm"}
SENT = {"status": "ok", "data": {"sent": True}}
NOT_AN_OBJECT: Any = Edit([1])  # type: ignore[arg-type]
NOT_JSON: Any = Edit({"to": object()})  # type: ignore[dict-item]
BAD_DAY = "the field 'day' must be"


@check_rows(
    ("answer", "reads", "ran", "gate", "how", "reason"),
    [
        (True, SENT, ARGS, "accepted", "", ""),
        (Approve(), SENT, ARGS, "accepted", "", ""),
        (Approve(how=QuestionOutcome.RUN), SENT, ARGS, "accepted", "run", ""),
        (Approve(how=QuestionOutcome.CANCEL), UNSURE, None, "rejected", "cancel", ""),
        (Edit(ARGS, how=QuestionOutcome.TIMED_OUT), UNSURE, None, "failed", "timed_out", ""),
        (Reject(7), UNSURE, None, "failed", "failed", ""),  # type: ignore[arg-type]
        (Approve(how="run"), UNSURE, None, "failed", "failed", ""),  # type: ignore[arg-type]
        (Approve(binding=None), UNSURE, None, "failed", "failed", ""),  # type: ignore[arg-type]
        (Reject(), UNSURE, None, "rejected", "", ""),
        (
            Reject("not today"),
            UNSURE | {"user_message": "not today"},
            None,
            "rejected",
            "",
            "not today",
        ),
        (
            Reject("read-only", how=QuestionOutcome.CODE_NO),
            UNSURE | {"user_message": "read-only"},
            None,
            "rejected",
            "code_no",
            "read-only",
        ),
        (Reject(how=QuestionOutcome.TIMED_OUT), UNSURE, None, "failed", "timed_out", ""),
        (Edit(ARGS), SENT, ARGS, "accepted", "", ""),
        (
            Edit(ARGS | {"day": "2026-06-16"}, "a day later"),
            SENT | {"edited": {"day": "2026-06-16"}},
            ARGS | {"day": "2026-06-16"},
            "accepted",
            "",
            "a day later",
        ),
        (
            Edit({"to": "Lee", "n": 1, "tags": ["a"]}),
            SENT | {"edited": {"to": "Lee", "tags": ["a"], "day": None}},
            {"to": "Lee", "n": 1, "tags": ["a"]},
            "accepted",
            "",
            "",
        ),
        (
            Edit(ARGS | {"to": "nobody"}),
            {"status": "error", "code": "r1_unknown", "reason": "no such person"}
            | {"edited": {"to": "nobody"}},
            ARGS | {"to": "nobody"},
            "accepted",
            "",
            "",
        ),
        (Edit(ARGS | {"day": "soon"}), UNSURE, None, "rejected", "invalid_edit", BAD_DAY),
        (Edit({"n": 1}), UNSURE, None, "rejected", "invalid_edit", "'to' is missing"),
        (Edit(ARGS | {"bcc": "x"}), UNSURE, None, "rejected", "invalid_edit", "no field 'bcc'"),
        (NOT_AN_OBJECT, UNSURE, None, "rejected", "invalid_edit", "must be a JSON object"),
        (NOT_JSON, UNSURE, None, "rejected", "invalid_edit", "must be a JSON object"),
        (Approve(binding="another"), UNSURE, None, "failed", "other_request", ""),
        (Edit(ARGS, binding="another"), UNSURE, None, "failed", "other_request", ""),
        (Reject("x", binding="another"), UNSURE, None, "failed", "other_request", ""),
        ("yes", UNSURE, None, "rejected", "", ""),
        (type("Sly", (Approve,), {}), UNSURE, None, "rejected", "", ""),
    ],
)
async def test_dispatch_runs_what_was_decided_and_reports_it(
    answer: Any, reads: Any, ran: Any, gate: str, how: str, reason: str
) -> None:
    bench = Bench()
    outcome = await bench.send(AnswerGate(answer))
    assert result_to_dict(outcome.result) == reads
    assert bench.ran == ([] if ran is None else [ran])
    assert (outcome.gate, outcome.answer) == (gate, how)
    assert reason in outcome.reason
    assert bool(outcome.reason) is bool(reason)
    assert outcome.args == ARGS  # as proposed
    is_edited = ran not in (None, ARGS)
    assert outcome.shown_args == outcome.run_args == (ran if is_edited else None)
    if is_edited:
        assert outcome.summary.count("2026-06-15") == ("day" in ran and ran["day"] == ARGS["day"])


async def test_dispatch_asks_a_person_again_after_an_invalid_edit() -> None:
    class Person(ScriptedGate):
        is_person = True

    gate = Person([Edit(ARGS | {"n": "x"}), Edit(ARGS | {"n": 2})])
    bench = Bench()
    outcome = await bench.send(gate)
    assert bench.ran == [ARGS | {"n": 2}]
    assert outcome.reason == ""
    first, second = gate.asked
    assert (first.error, first.id != second.id) == ("", True)
    assert "'n' must be" in second.error
    assert second.args == ARGS
    stubborn = Person([Edit({})] * 1000)
    assert (await bench.send(stubborn)).answer == "invalid_edit"
    assert len(bench.ran) == 1


TYPED = [
    (["y"], SENT, ARGS, "typed_yes"),
    (["n", "not today"], UNSURE | {"user_message": "not today"}, None, "typed_no"),
    (["아니요", ""], UNSURE, None, "typed_no"),
    (["n"], UNSURE, None, "typed_no"),
    ([""], UNSURE, None, "typed_no"),
    (
        ["e", "", "2026-06-16", "", "", "y"],
        SENT | {"edited": {"day": "2026-06-16"}},
        ARGS | {"day": "2026-06-16"},
        "typed_yes",
    ),
    (  # an invalid value is asked again; none leaves it out; a list is JSON
        ["수정", "Lee", "soon", "/none", "", '["a"]', "y"],
        SENT | {"edited": {"to": "Lee", "day": None, "tags": ["a"]}},
        {"to": "Lee", "n": 1, "tags": ["a"]},
        "typed_yes",
    ),
    (["e", "Lee", "", "", "", "n", "wrong"], UNSURE | {"user_message": "wrong"}, None, "typed_no"),
    (["e", "Lee", "/cancel", "y"], SENT, ARGS, "typed_yes"),
    (["e", "/none", "", "", "", "y"], SENT, ARGS, "typed_yes"),  # `to` is required
    (["e", "Lee"], UNSURE, None, "typed_no"),
]


@check_rows(("typed", "reads", "ran", "how"), TYPED)
async def test_terminal_edits_by_field_and_asks_again_with_the_edited_card(
    typed: list[str], reads: Any, ran: Any, how: str
) -> None:
    lines, shown = iter(typed), list[str]()

    async def read(prompt: str) -> str:
        shown.append(prompt)
        if (line := next(lines, None)) is None:
            raise EOFError
        return line

    async def forget() -> bool:
        return False

    bench = Bench()
    outcome = await bench.send(TerminalGate(read, shown.append, ENGLISH, forget=forget))
    assert result_to_dict(outcome.result) == reads
    assert bench.ran == ([] if ran is None else [ran])
    assert outcome.answer == how
    assert next(lines, None) is None
    if ran is not None:
        last = max(i for i, text in enumerate(shown) if text.endswith("(e = edit) [y/N] "))
        assert shown[last - 1] == outcome.summary


class OpenGate:
    """A gate whose questions stay open until they are decided from elsewhere."""

    def __init__(self) -> None:
        self.open: list[tuple[ConfirmRequest, asyncio.Future[Decision]]] = []
        self.old: list[tuple[Decision, list[dict[str, Any]]]] = []

    async def confirm(self, request: ConfirmRequest) -> Decision:
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self.open.append((request, answer))
        return await answer

    def decide(self, at: int, of: int, kind: str, n: int) -> list[dict[str, Any]]:
        """Answer a question with a decision on an open one; return the calls that have to run."""
        request, answer = self.open.pop(at)
        bound = [request, *(other for other, _ in self.open)][of % (len(self.open) + 1)]
        shown, decision = bound.args, DECISIONS[kind](bound, n)
        if isinstance(decision, Edit):
            shown = decision.arguments
        runs = [dict(shown)] if kind in ("approve", "edit") else []
        self.old.append((decision, runs))
        answer.set_result(decision)
        return runs if bound is request else []

    def replay(self, at: int, which: int) -> list[dict[str, Any]]:
        """Answer a question with an earlier decision; return the calls that have to run."""
        request, answer = self.open.pop(at)
        decision, runs = self.old[which]
        answer.set_result(decision)
        return runs if decision.binding == request.binding else []  # it was given to another one


def _edited(request: ConfirmRequest, n: int) -> Decision:
    return Edit(request.edited({**request.args, "n": n}).args, binding=request.binding)


DECISIONS: Mapping[str, Callable[[ConfirmRequest, int], Decision]] = {
    "approve": lambda request, _: Approve(binding=request.binding),
    "edit": _edited,
    "invalid": lambda request, _: Edit({"n": "x"}, binding=request.binding),
    "reject": lambda request, _: Reject(binding=request.binding),
}
KINDS = st.sampled_from(tuple(DECISIONS))
STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 2)),
    st.tuples(st.just("decide"), st.integers(0, 3), st.integers(0, 3), KINDS, st.integers(0, 2)),
    st.tuples(st.just("replay"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("stop"), st.integers(0, 3)),
)


@example(
    steps=[("ask", 0), ("decide", 0, 0, "approve", 0), ("ask", 0), ("replay", 0, 0)]
)  # the same arguments again: the earlier yes does not count
@example(steps=[("ask", 0), ("ask", 1), ("decide", 0, 1, "approve", 0)])  # crossed
@example(steps=[("ask", 0), ("ask", 1), ("decide", 0, 1, "edit", 2)])
@example(steps=[("ask", 0), ("ask", 0), ("decide", 0, 1, "approve", 0), ("replay", 0, 0)])
@given(steps=st.lists(STEPS, max_size=20))
async def test_dispatch_uses_each_decision_once_for_its_own_request(
    steps: list[tuple[Any, ...]],
) -> None:
    bench, gate = Bench(), OpenGate()
    calls: list[asyncio.Task[ToolCallOutcome]] = []
    expected: list[dict[str, Any]] = []
    for step in steps:
        match step:
            case ("ask", n):
                calls.append(asyncio.create_task(bench.send(gate, ARGS | {"n": n})))
            case ("decide", at, of, kind, n) if at < len(gate.open):
                expected += gate.decide(at, of, kind, n)
            case ("replay", at, which) if at < len(gate.open) and which < len(gate.old):
                expected += gate.replay(at, which)
            case ("stop", at) if at < len(calls):
                calls[at].cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        gate.open = [(request, answer) for request, answer in gate.open if not answer.done()]
    assert bench.ran == expected
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert bench.ran == expected


@check_rows(
    ("calls", "english", "korean"),
    [
        ([], "Nothing was run that writes", "쓰는 도구는 실행되지 않음"),
        (
            [(ARGS, True)],
            'Ran: send · "Kim", "2026-06-15", 1',
            '실행함: send · "Kim", "2026-06-15", 1',
        ),
        (
            [(ARGS, Reject("no"))],
            'Not run: send · "Kim", "2026-06-15", 1',
            '실행하지 않음: send · "Kim", "2026-06-15", 1',
        ),
        (
            [(ARGS, Edit(ARGS | {"to": "Lee"}))],
            'Ran: send · "Lee", "2026-06-15", 1 (edited: to "Kim" → "Lee")',
            '실행함: send · "Lee", "2026-06-15", 1 (수정함: to "Kim" → "Lee")',
        ),
        ([({"to": 1}, True)], "Nothing was run that writes", "쓰는 도구는 실행되지 않음"),
        (
            [({"to": "nobody"}, True)],
            'Ran, nothing changed: send · "nobody" (r1_unknown)',
            '실행했지만 바뀐 것 없음: send · "nobody" (r1_unknown)',
        ),
        (
            [({"to": "crash"}, True)],
            'Failed, may have changed something: send · "crash"',
            '실패함, 일부 바뀌었을 수 있음: send · "crash"',
        ),
        (
            [(ARGS, True), ({"to": "a\u3164b\x1b"}, False)],
            'Ran: send · "Kim", "2026-06-15", 1\nNot run: send · "a\\u3164b\\x1b"',
            '실행함: send · "Kim", "2026-06-15", 1\n실행하지 않음: send · "a\\u3164b\\x1b"',
        ),
    ],
)
async def test_truth_line_reports_what_was_written(
    calls: list[tuple[dict[str, Any], Any]], english: str, korean: str
) -> None:
    bench = Bench()
    messages = [
        ToolCallMessage(
            call=ToolCall(name="send", args=args),
            outcome=await bench.send(ScriptedGate([answer]), args),
        )
        for args, answer in calls
    ]
    assert truth_line(messages, ENGLISH) == english
    assert truth_line(messages, load_catalog("ko")) == korean
