"""How work grows with its input, counted in operations: of all parsers, scorers and importers.

The cases follow the registries: a dialect, an importer, a matcher or a public scoring function
without a case fails.
"""

import asyncio
import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from inspect import isawaitable, isfunction
from pathlib import Path
from typing import Any

import pytest

from lhkit.conversation.events import EndReason
from lhkit.conversation.messages import (
    GateOutcome,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness import scoring
from lhkit.harness.records.record import CallRecord, TableDiff, Trajectory, TurnRecord
from lhkit.harness.scenarios.matchers import MATCHER_KEYS, parse_row
from lhkit.harness.scenarios.scenario import ExpectedReply, Scenario
from lhkit.harness.scoring import claim_model, matching, reply, state, success_claims, verdict
from lhkit.harness.scoring import violations as rules
from lhkit.harness.scoring.claim_model import History
from lhkit.imports.importers import SHIPPED, load_importer, to_scenario
from lhkit.imports.tau2 import read_domain
from lhkit.models.client.openai_chat import ChatContent
from lhkit.models.client.response import CompletionContent
from lhkit.models.client.sse import EventStreamDecoder
from lhkit.models.dialects import DIALECTS
from lhkit.tools.registry import ToolRegistry
from tests.imports.test_bfcl import package
from tests.imports.test_calls import ROWS, Row, openai
from tests.imports.test_functionchat import clone
from tests.imports.test_openai_messages import CHAT
from tests.imports.test_tau2 import checkout
from tests.laws.test_dialect import BEGUN
from tests.operations import growth

__all__ = ["checkout", "clone", "package"]
"""Fixtures of the importers' tests, with a source of each."""

pytestmark = pytest.mark.slow

LINEAR, SQUARE = 2.6, 4.6
"""Bounds of the growth of work when the size of its input doubles."""
TODAY = date(2026, 6, 15)
Work = Callable[[], object]
Prepare = Callable[[int], Work]

RESPONSES: Mapping[str, Callable[[str, int], str]] = {
    "calls": lambda name, n: DIALECTS[name].render_call("f", {"x": "tea"}) * n,
    "prose": lambda _, n: "Tea, milk (two) and bread. " * n,
    "a_long_argument": lambda name, n: DIALECTS[name].render_call("f", {"x": "tea 'n' " * n}),
    "many_arguments": lambda name, n: DIALECTS[name].render_call(
        "f", {f"x{i}": [i] for i in range(n)}
    ),
    "begun": lambda name, n: BEGUN[name] * n,
    "open_brackets": lambda _, n: "[{(" * n,
    "quotation_marks": lambda name, n: BEGUN[name] + "\"'`" * n,
    "fences": lambda _, n: "```json\n" * n,
}


@pytest.mark.parametrize("shape", RESPONSES)
@pytest.mark.parametrize("name", DIALECTS)
def test_dialect_parses_in_linear_time(name: str, shape: str) -> None:
    def prepare(n: int) -> Work:
        text = RESPONSES[shape](name, n)

        def parse() -> None:
            parser = DIALECTS[name].incremental()
            for start in range(0, len(text), 7):
                parser.feed(text[start : start + 7])
            parser.close()

        return parse

    assert growth(prepare, 60) < LINEAR


def read_events(n: int) -> None:
    decoder = EventStreamDecoder()
    data = b'data: {"text": "tea"}\n\n' * n
    for start in range(0, len(data), 7):
        decoder.feed(data[start : start + 7])


def read_completion(n: int) -> None:
    content = CompletionContent(DIALECTS["json"].incremental())
    for _ in range(n):
        content.feed({"text": "tea "})
    list(content.close(truncated=False))


def read_chat(n: int) -> None:
    content = ChatContent()
    for i in range(n):
        list(content.feed({"delta": {"content": f"tea {i} "}}))
    list(content.feed({"delta": {}, "finish_reason": "stop"}))
    list(content.close(truncated=False))


def read_chat_calls(n: int) -> None:
    content = ChatContent(["f"])
    for i in range(n):
        call = {"index": i, "id": f"c{i}", "type": "function"}
        for part in ({"name": "f", "arguments": ""}, {"arguments": '{"x":'}, {"arguments": "1}"}):
            list(content.feed({"delta": {"tool_calls": [{**call, "function": part}]}}))
    list(content.feed({"delta": {}, "finish_reason": "tool_calls"}))
    list(content.close(truncated=False))


def read_long_call(n: int) -> None:
    content = ChatContent(["f"])
    parts = [{"name": "f", "arguments": '{"x": "'}, *[{"arguments": "tea "}] * n]
    for part in (*parts, {"arguments": '"}'}):
        call = {"index": 0, "id": "c", "type": "function", "function": part}
        list(content.feed({"delta": {"tool_calls": [call]}}))
    list(content.feed({"delta": {}, "finish_reason": "tool_calls"}))
    list(content.close(truncated=False))


@pytest.mark.parametrize(
    "read", [read_events, read_completion, read_chat, read_chat_calls, read_long_call]
)
def test_stream_is_read_in_linear_time(read: Callable[[int], None]) -> None:
    assert growth(lambda n: lambda: read(n), 60) < LINEAR


def write_lines(file: Path, rows: list[Any]) -> None:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def multiplied(file: Path, key: str) -> Callable[[int], None]:
    """Return a function that writes the first row of a file n times, with other ids."""
    row = json.loads(file.read_text(encoding="utf-8").partition("\n")[0])
    return lambda n: write_lines(file, [{**row, key: f"{row[key]}{i}"} for i in range(n)])


def many_calls(folder: Path, _: Any) -> Callable[[int], dict[str, Any]]:
    def write(n: int) -> dict[str, Any]:
        rows = [openai(Row(f"Show {i}", ROWS[0].calls), i + 10) for i in range(n)]
        write_lines(folder / "rows.jsonl", rows)
        return {"files": [folder / "rows.jsonl"]}

    return write


def many_chats(folder: Path, _: Any) -> Callable[[int], dict[str, Any]]:
    def write(n: int) -> dict[str, Any]:
        write_lines(folder / "chats.jsonl", [{"messages": CHAT}] * n)
        return {"file": folder / "chats.jsonl"}

    return write


def many_bfcl(_: Path, fixture: Callable[[str], Path]) -> Callable[[int], dict[str, Any]]:
    root, file = fixture("package"), "BFCL_v4_multi_turn_base.json"
    writers = [
        multiplied(root / "bfcl_eval/data" / part / file, "id") for part in ("", "possible_answer")
    ]

    def write(n: int) -> dict[str, Any]:
        for writer in writers:
            writer(n)
        return {"path": root}

    return write


def many_functionchat(_: Path, fixture: Callable[[str], Path]) -> Callable[[int], dict[str, Any]]:
    root = fixture("clone")
    writer = multiplied(root / "data/FunctionChat-CallDecision.jsonl", "serial_num")

    def write(n: int) -> dict[str, Any]:
        writer(n)
        return {"path": root}

    return write


def many_tau2(_: Path, fixture: Callable[[str], Path]) -> Callable[[int], dict[str, Any]]:
    root = fixture("checkout")
    tasks = json.loads((root / "tasks.json").read_text(encoding="utf-8"))

    def write(n: int) -> dict[str, Any]:
        first = tasks["airline"][0]
        more = {**tasks, "airline": [{**first, "id": str(i)} for i in range(n)]}
        (root / "tasks.json").write_text(json.dumps(more), encoding="utf-8")
        read_domain.cache_clear()
        for name in [name for name in sys.modules if name.partition(".")[0] == "tau2"]:
            del sys.modules[name]  # the package reads its tasks when it is imported
        return {"path": root}

    return write


SOURCES = {
    "calls": many_calls,
    "openai-messages": many_chats,
    "bfcl": many_bfcl,
    "functionchat": many_functionchat,
    "tau2": many_tau2,
}


@pytest.mark.parametrize("name", SHIPPED)
def test_importer_is_linear_in_rows(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    write, importer = SOURCES[name](tmp_path, request.getfixturevalue), load_importer(name)
    counts: list[int] = []

    def prepare(n: int) -> Work:
        options = write(n)

        def convert() -> None:
            result = importer(**options)
            if isawaitable(result):
                with asyncio.Runner() as runner:
                    result = runner.run(result)
            counts.append(sum(len(suite.scenarios) for suite in result.suites))

        return convert

    assert growth(prepare, 10) < LINEAR
    assert counts[0] - counts[-1] == 10


def rows(n: int) -> tuple[dict[str, Any], ...]:
    return tuple({"id": f"x-{i}", "name": f"tea {i}"} for i in range(n))


def write_call(i: int, gate: GateOutcome = GateOutcome.ACCEPTED, status: str = "ok") -> CallRecord:
    args = {"id": f"x-{i}", "note": f"tea {i}"}
    return CallRecord(
        tool="write",
        raw_args=args,
        args=args,
        result={"status": status, "data": {"id": f"x-{i}"}, "message": f"x-{i} is no tea"},
        gate=gate,
        ran=status == "ok",
        destructive=True,
    )


def replaced(n: int) -> TableDiff:
    indexes = tuple(range(n))
    return TableDiff(removed=rows(n), removed_at=indexes, added=rows(n), added_at=indexes)


def with_args(args: dict[str, Any]) -> CallRecord:
    return CallRecord(tool="t", raw_args=args, args=args, result={"status": "ok"})


def turn(*calls: CallRecord, reply: str = "Done.", **more: Any) -> TurnRecord:
    user = " ".join(f"x-{i}" for i in range(len(calls)))
    return TurnRecord(user=user, ended=EndReason.ANSWERED, calls=calls, reply=reply, **more)


def scripted(*expects: Mapping[str, Any], **more: Any) -> Scenario:
    turns = [{"user": "write", "confirm": "accept", **expect} for expect in expects]
    return to_scenario({"id": "s", "turns": turns, **more})


def expected_calls(n: int, **more: Any) -> dict[str, Any]:
    calls = [{"tool": "write", "args": {"id": f"x-{i}", "note": f"tea {i}"}} for i in range(n)]
    return {"expect": {"calls": calls, **more}}


SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "note": {"type": "string"}},
}
METADATA = verdict.ToolMetadata(
    schemas={"write": SCHEMA}, destructive=frozenset({"write"}), claims={"write": ("written",)}
)


def judged(scenario: Scenario, trajectory: Trajectory) -> Work:
    return lambda: verdict.judge(scenario, trajectory, METADATA, today=TODAY)


def judge_calls(n: int, **more: Any) -> Work:
    calls = [write_call(i) for i in range(n)]
    return judged(scripted(expected_calls(n, **more)), Trajectory(turns=(turn(*calls),)))


def judge_turns(n: int, **expect: Any) -> Work:
    script = scripted(*[{**expected_calls(1), **expect}] * n)
    return judged(script, Trajectory(turns=tuple(turn(write_call(i)) for i in range(n))))


def judge_results(n: int) -> Work:
    results = {"results": [{"id": "x-0"}]}
    script = scripted(*[expected_calls(1, **results)] * n)
    return judged(script, Trajectory(turns=tuple(turn(write_call(i)) for i in range(n))))


def judge_refused(n: int) -> Work:
    calls = [write_call(i, GateOutcome.NOT_ASKED, "error") for i in range(n)]
    return judged(scripted(expected_calls(n)), Trajectory(turns=(turn(*calls),)))


def judge_rejected(n: int) -> Work:
    calls = [write_call(i, GateOutcome.REJECTED, "cancelled") for i in range(n)]
    return judged(scripted({"confirm": "reject"}), Trajectory(turns=(turn(*calls),)))


def judge_repeats(n: int) -> Work:
    calls = [write_call(0, GateOutcome.REJECTED, "cancelled")] * n
    return judged(scripted({"confirm": "reject"}), Trajectory(turns=(turn(*calls),)))


def judge_rows(n: int) -> Work:
    script = scripted({}, final={"notes": [dict(row) for row in rows(n)]})
    changed = TableDiff(added=rows(n), added_at=tuple(range(n)))
    trajectory = Trajectory(
        turns=(turn(state_diff={"notes": changed}),),
        initial_state={"notes": ()},
        final_state={"notes": rows(n)},
    )
    return judged(script, trajectory)


def judge_reply(n: int) -> Work:
    script = scripted({"reply": {"contains_any": ["milk"]}})
    return judged(script, Trajectory(turns=(turn(reply="It is written, tea. " * n),)))


JUDGED: Mapping[str, tuple[Prepare, float]] = {
    "calls_in_order": (lambda n: judge_calls(n, order="strict"), SQUARE),
    "turns": (judge_turns, LINEAR),
    "results_in_each_turn": (judge_results, SQUARE),
    "refused_calls": (judge_refused, SQUARE),
    "rejected_calls": (judge_rejected, LINEAR),
    "repeated_calls": (judge_repeats, LINEAR),
    "rows": (judge_rows, LINEAR),
    "reply": (judge_reply, LINEAR),
}


AT_NIGHT = {"calls_in_order", "results_in_each_turn", "refused_calls"}
"""Their parts are measured by day as well, as scoring functions."""


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, marks=pytest.mark.nightly if shape in AT_NIGHT else ())
        for shape in JUDGED
    ],
)
def test_judge_grows_at_most(shape: str) -> None:
    prepare, limit = JUDGED[shape]
    assert growth(prepare, 40) < limit


def searched(n: int) -> Work:
    no = [write_call(i, GateOutcome.REJECTED, "cancelled") for i in range(n)]
    trajectory = Trajectory(turns=(turn(*map(write_call, range(n))), turn(*no)))
    match = matching.match_calls([], [], schemas={})
    return lambda: rules.find_violations(
        scripted({}, {}), trajectory, [match] * 2, schemas={"write": SCHEMA}, today=TODAY
    )


def guessed(n: int) -> Work:
    messages = [
        message
        for i in range(n)
        for message in (
            UserMessage(text=f"tea {i}"),
            ToolCallMessage(
                call=ToolCall(name="write", args={"id": f"x-{i}"}),
                outcome=ToolCallOutcome(result=ToolOk({"id": f"x-{i}"})),
            ),
        )
    ]
    return lambda: success_claims.guess_false_claim(ToolRegistry([]))("Written.", messages)


SCORERS: Mapping[str, Prepare] = {
    "claim_model.common_bit": lambda n: lambda: claim_model.common_bit("tea" * n),
    "claim_model.features": lambda n: (
        lambda: [*claim_model.features("written tea " * n, History(), b"\0" * 10_000)]
    ),
    "claim_model.is_common": lambda n: lambda: claim_model.is_common("tea" * n, b"\0" * 10_000),
    "claim_model.words_in": lambda n: lambda: claim_model.words_in("tea " * n),
    "matching.match_calls": lambda n: (
        lambda: matching.match_calls(
            expected_calls(n)["expect"]["calls"],
            expected_calls(n)["expect"]["calls"],
            schemas={"write": SCHEMA},
        )
    ),
    "matching.values_equal": lambda n: (
        lambda: matching.values_equal(
            {f"f{i}": [i] for i in range(n)}, {f"f{i}": [i] for i in range(n)}, {}
        )
    ),
    "reply.reply_reasons": lambda n: (
        lambda: reply.reply_reasons(
            ExpectedReply(contains_all=tuple(f"tea {i}" for i in range(n))), "tea 0, "
        )
    ),
    "reply.without_asterisk": lambda n: lambda: reply.without_asterisk("tea" * n + "*"),
    "state.check_state": lambda n: (
        lambda: state.check_state(
            {"t": [dict(row) for row in rows(n)]}, before={"t": ()}, after={"t": rows(n)}
        )
    ),
    "state.fits_row": lambda n: (
        lambda: state.fits_row(
            parse_row({f"f{i}": i for i in range(n)}), {f"f{i}": i for i in range(n)}, TODAY
        )
    ),
    "state.state_changes": lambda n: (
        lambda: state.state_changes(
            {"t": rows(n)}, {"t": tuple({**row, "name": "milk"} for row in rows(n))}
        )
    ),
    "state.state_diff": lambda n: lambda: state.state_diff({"t": rows(n)}, {"t": rows(2 * n)}),
    "state.with_diff": lambda n: lambda: state.with_diff({"t": rows(n)}, {"t": replaced(n)}),
    "success_claims.find_false_claims": lambda n: (
        lambda: success_claims.find_false_claims(
            scripted(*[{}] * n),
            Trajectory(turns=tuple(turn(write_call(i), reply="Written.") for i in range(n))),
            METADATA.claims,
        )
    ),
    "success_claims.find_success_phrase": lambda n: (
        lambda: success_claims.find_success_phrase(
            "tea " * n, {f"f{i}": (f"milk {i}",) for i in range(n)}, History()
        )
    ),
    "success_claims.guess_false_claim": guessed,
    "verdict.judge": judge_calls,
    "verdict.match_results": lambda n: (
        lambda: verdict.match_results(
            scripted(expected_calls(1, results=[{"id": "x-0"}])),
            [turn(*map(write_call, range(n)))],
            0,
            TODAY,
        )
    ),
    "violations.find_id": lambda n: lambda: [*rules.find_id("x-1", "x-1 x-12 " * n)],
    "violations.find_violations": searched,
    "violations.ids_of": lambda n: (
        lambda: [*rules.ids_of(with_args({"ids": [f"x-{i}" for i in range(n)]}))]
    ),
    "violations.without_id": lambda n: lambda: rules.without_id("x-1", "x-1 x-12 " * n),
    "violations.words_of": lambda n: lambda: rules.words_of([{"a": "tea"}] * n),
    "violations.wrong_by_policy": lambda n: (
        lambda: rules.wrong_by_policy(0, with_args({f"f{i}": i for i in range(n)}))
    ),
}
IN_PAIRS = {"matching.match_calls", "verdict.judge"}
"""Functions that compare each expected call of a turn with each call."""
CONSTANT = {"claim_model.shipped_model"}
"""Functions without an input that grows."""


def scoring_functions() -> Iterator[str]:
    for info in pkgutil.iter_modules(scoring.__path__):
        module = importlib.import_module(f"{scoring.__name__}.{info.name}")
        for name, value in vars(module).items():
            is_own = isfunction(value) and value.__module__ == module.__name__
            if is_own and not name.startswith("_"):
                yield f"{info.name}.{name}"


@pytest.mark.parametrize("name", sorted({*scoring_functions()} - CONSTANT))
def test_scoring_function_grows_at_most(name: str) -> None:
    size, limit = (20, SQUARE) if name in IN_PAIRS else (40, LINEAR)
    assert growth(SCORERS[name], size) < limit


MATCHED: Mapping[str, Callable[[int], tuple[Any, Any]]] = {
    "": lambda n: ([*range(n)], [*range(n)]),
    "equals": lambda n: (
        {"equals": {f"f{i}": i for i in range(n)}},
        {f"f{i}": i for i in range(n)},
    ),
    "one_of": lambda n: ({"one_of": [*range(n)]}, n),
    "any": lambda n: ({"any": True}, [*range(n)]),
    "matches": lambda n: ({"matches": "(tea )+milk"}, "tea " * n),
    "approx": lambda n: ({"approx": n, "abs": 1}, n),
    "date": lambda n: ({"date": "today"}, "2026-06-15 " * n),
    "text": lambda n: ({"text": "tea " * n}, "tea  " * n),
    "fields": lambda n: (
        {"fields": {f"f{i}": i for i in range(n)}},
        {f"f{i}": i for i in range(n)},
    ),
    "items": lambda n: ({"items": [*range(n)]}, [*range(n)]),
}


@pytest.mark.parametrize("key", [*MATCHER_KEYS, ""])
def test_matcher_is_linear(key: str) -> None:
    def prepare(n: int) -> Work:
        expected, actual = MATCHED[key](n)
        matcher = parse_row({"x": expected})
        return lambda: state.fits_row(matcher, {"x": actual}, TODAY)

    assert growth(prepare, 40) < LINEAR


def test_unordered_items_are_compared_in_pairs_at_most() -> None:
    def prepare(n: int) -> Work:
        matcher = parse_row({"x": {"items": [*range(n)], "unordered": True}})
        return lambda: state.fits_row(matcher, {"x": [*reversed(range(n))]}, TODAY)

    assert growth(prepare, 30) < SQUARE
