"""The dispatcher as a table: what is asked, what runs, what comes back. It never raises."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lhkit
from lhkit.testing import BrokenGate, echo_tool, object_schema
from tests.hostile import ANYTHING, AnswerGate
from tests.rows import check_rows


@dataclass
class Bench:
    """Two tools, one of which writes, and the arguments that reached their handlers."""

    ran: list[tuple[str, Any]] = field(default_factory=list)

    def tool(self, name: str, *, is_destructive: bool) -> lhkit.ToolDefinition:
        def handler(args: Any, _deps: Any) -> lhkit.ToolResult:
            self.ran.append((name, dict(args)))
            if args.get("n") == 13:
                raise RuntimeError("unlucky")
            return lhkit.ToolOk({"n": args.get("n")})

        schema = object_schema("n", n={"type": "integer", "minimum": 0}, note={"type": "string"})
        return echo_tool(name, parameters=schema, is_destructive=is_destructive, handler=handler)

    async def dispatch(self, name: Any, args: Any, gate: Any) -> lhkit.ToolResult:
        registry = lhkit.ToolRegistry(
            [self.tool("look", is_destructive=False), self.tool("write", is_destructive=True)]
        )
        return await lhkit.ToolDispatcher(registry).dispatch(name, args, confirm=gate)


def outcome(result: lhkit.ToolResult) -> str:
    if isinstance(result, lhkit.ToolErr):
        return result.code
    return "ok" if isinstance(result, lhkit.ToolOk) else "cancelled"


YES, NO = [True], [False]
TABLE: list[tuple[Any, Any, Any, str, int, int]] = [
    # tool, arguments, answers of the gate (None: no gate), result, asked, ran
    ("look", {"n": 1}, None, "ok", 0, 1),
    ("look", {"n": 1}, NO, "ok", 0, 1),
    ("write", {"n": 1}, YES, "ok", 1, 1),
    ("write", {"n": 1}, NO, "cancelled", 1, 0),
    ("write", {"n": 1}, None, "cancelled", 0, 0),
    ("write", {"n": 1}, [], "cancelled", 1, 0),
    ("write", {"n": 1}, [1], "cancelled", 1, 0),
    ("write", {"n": 1}, ["yes"], "cancelled", 1, 0),
    ("write", {"n": -1}, YES, "validation", 0, 0),
    ("write", {"n": "1"}, YES, "validation", 0, 0),
    ("write", {"n": True}, YES, "validation", 0, 0),
    ("write", {}, YES, "validation", 0, 0),
    ("write", None, YES, "validation", 0, 0),
    ("write", [1], YES, "validation", 0, 0),
    ("write", "{}", YES, "validation", 0, 0),
    ("write", {"n": 1, "other": 2}, YES, "ok", 1, 1),
    ("look", {"n": 13}, None, "handler_error", 0, 1),
    ("write", {"n": 13}, YES, "handler_error", 1, 1),
    ("unknown", {"n": 1}, YES, "unknown_tool", 0, 0),
    ("", {}, YES, "unknown_tool", 0, 0),
    (None, {}, YES, "unknown_tool", 0, 0),
    (7, {}, YES, "unknown_tool", 0, 0),
]


@check_rows(("name", "args", "answers", "result", "asked", "ran"), TABLE)
def test_dispatch_validates_then_asks_then_runs(
    name: Any, args: Any, answers: Any, result: str, asked: int, ran: int
) -> None:
    bench = Bench()
    gate = None if answers is None else lhkit.ScriptedGate(answers)
    dispatched = asyncio.run(bench.dispatch(name, args, gate))
    assert outcome(dispatched) == result
    assert len(gate.asked if gate else []) == asked
    assert len(bench.ran) == ran


BROKEN = [*map(BrokenGate, (RuntimeError("broken"), TimeoutError(), ValueError())), 3]


@check_rows("gate", BROKEN)
def test_dispatch_takes_a_broken_gate_for_a_no(gate: Any) -> None:
    bench = Bench()
    assert outcome(asyncio.run(bench.dispatch("write", {"n": 1}, gate))) == "cancelled"
    assert bench.ran == []


@check_rows("answer", [1, "yes", "true", object(), [True], None, 0, False])
def test_dispatch_takes_anything_but_true_for_a_no(answer: Any) -> None:
    bench = Bench()
    assert (
        outcome(asyncio.run(bench.dispatch("write", {"n": 1}, AnswerGate(answer)))) == "cancelled"
    )
    assert bench.ran == []


def test_dispatch_drops_undeclared_arguments_before_the_question() -> None:
    bench, gate = Bench(), lhkit.ScriptedGate(YES)
    asyncio.run(bench.dispatch("write", {"n": 1, "other": 2}, gate))
    assert gate.asked[0].args == {"n": 1}
    assert bench.ran == [("write", {"n": 1})]


@pytest.mark.parametrize("swallows", [True, False])
def test_dispatch_runs_nothing_but_what_was_asked_if_the_gate_changes_it(swallows: bool) -> None:
    class Changing:
        async def confirm(self, request: lhkit.ConfirmRequest) -> bool:
            try:
                request.args["n"] = 99  # type: ignore[index]
            except TypeError:
                return swallows
            return True

    bench = Bench()
    asyncio.run(bench.dispatch("write", {"n": 1}, Changing()))
    assert all(args == {"n": 1} for _, args in bench.ran)


@given(name=st.sampled_from(["look", "write"]) | ANYTHING, args=ANYTHING)
def test_dispatch_never_raises_and_never_writes_without_a_yes(name: Any, args: Any) -> None:
    bench = Bench()
    result = asyncio.run(bench.dispatch(name, args, None))
    assert isinstance(result, lhkit.ToolOk | lhkit.ToolErr | lhkit.ToolCancelled)
    assert all(tool != "write" for tool, _ in bench.ran)
