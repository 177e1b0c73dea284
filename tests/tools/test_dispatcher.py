"""The dispatcher's table, row by row, and the laws behind it."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from lhkit.confirm.gate import ConfirmRequest, ScriptedGate
from lhkit.locales import load_catalog
from lhkit.testing import BrokenGate, echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.vocab.trace import DispatchTrace, GateOutcome

HABIT = object_schema("protocol_id", protocol_id={"type": "string"}, n={"type": "integer"})
READ = echo_tool("search_catalog", parameters=HABIT)
WRITE = echo_tool("add_habit", parameters=HABIT, is_destructive=True)
ARGS = {"protocol_id": "daily-walk"}


def dispatcher(*tools: Any) -> ToolDispatcher:
    return ToolDispatcher(ToolRegistry(tools or (READ, WRITE)), catalog=load_catalog("en"))


async def traced(name: Any, args: Any, *tools: Any, confirm: Any = None) -> DispatchTrace:
    seen: list[DispatchTrace] = []
    result = await dispatcher(*tools).dispatch(name, args, confirm=confirm, observe=seen.append)
    assert [trace.result for trace in seen] == [result]
    return seen[0]


def code(result: ToolResult) -> str | None:
    return result.code if isinstance(result, ToolErr) else None


def raising(error: BaseException) -> Any:
    def handler(_args: Mapping[str, Any], _deps: Any) -> ToolResult:
        raise error

    return handler


@pytest.mark.anyio
@pytest.mark.promise("dispatch.unknown_tool")
async def test_an_unknown_tool_is_an_error_that_names_the_known_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace = await traced("foo", {})
    assert trace.result == ToolErr(
        "unknown_tool", "Unknown tool: foo. Available tools: search_catalog, add_habit."
    )
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.anyio
@pytest.mark.promise("dispatch.wrong_type")
async def test_a_wrong_type_names_field_expected_and_actual() -> None:
    trace = await traced("add_habit", {"protocol_id": 123}, confirm=ScriptedGate([True]))
    assert trace.result == ToolErr(
        "validation", "Argument error: the field 'protocol_id' must be string, but 123 came."
    )


@pytest.mark.anyio
@pytest.mark.promise("dispatch.missing_field", "dispatch.empty_args")
async def test_empty_arguments_are_caught_by_the_required_fields() -> None:
    trace = await traced("search_catalog", {})
    assert trace.result == ToolErr(
        "validation",
        "Argument error: the required field 'protocol_id' is missing. Expected: string.",
    )


@pytest.mark.anyio
@pytest.mark.parametrize("args", [None, [], "x", 3, {"protocol_id": {1, 2}}, {1: "x"}])
async def test_arguments_that_are_no_json_object_are_refused(args: Any) -> None:
    assert code((await traced("search_catalog", args)).result) == "validation"


@pytest.mark.anyio
@pytest.mark.promise("dispatch.no_gate")
async def test_a_destructive_call_with_no_gate_is_cancelled() -> None:
    trace = await traced("add_habit", ARGS)
    assert (trace.result, trace.gate, trace.ran) == (ToolCancelled(), GateOutcome.ABSENT, False)


@pytest.mark.anyio
@pytest.mark.promise("dispatch.accept")
async def test_an_accepted_call_returns_the_handlers_result_as_it_is() -> None:
    refusal = ToolErr("r3_quota", "one a week")
    tool = replace(WRITE, handler=lambda _args, _deps: refusal)
    trace = await traced("add_habit", ARGS, tool, confirm=ScriptedGate([True]))
    assert trace.result is refusal
    assert (trace.gate, trace.ran) == (GateOutcome.ACCEPTED, True)


@pytest.mark.anyio
@pytest.mark.promise("dispatch.reject")
async def test_a_rejected_call_is_cancelled() -> None:
    trace = await traced("add_habit", ARGS, confirm=ScriptedGate([False]))
    assert (trace.result, trace.gate, trace.ran) == (ToolCancelled(), GateOutcome.REJECTED, False)


class CancelledGate:
    """A gate whose own future was cancelled, as when its panel closes."""

    async def confirm(self, request: ConfirmRequest) -> bool:  # noqa: ARG002 - protocol
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future


class TruthyGate:
    async def confirm(self, request: ConfirmRequest) -> Any:  # noqa: ARG002 - protocol
        return "yes"


@pytest.mark.anyio
@pytest.mark.promise("dispatch.gate_fails")
@pytest.mark.parametrize(
    "gate",
    [BrokenGate(RuntimeError()), BrokenGate(TimeoutError()), CancelledGate(), TruthyGate(), 3],
    ids=["raises", "times out", "gone", "says no bool", "is no gate"],
)
async def test_a_gate_that_fails_means_cancelled(gate: Any) -> None:
    trace = await traced("add_habit", ARGS, confirm=gate)
    assert (trace.result, trace.ran) == (ToolCancelled(), False)


@pytest.mark.anyio
@pytest.mark.promise("dispatch.validated_first")
async def test_the_user_is_not_asked_about_arguments_that_cannot_run() -> None:
    gate = ScriptedGate([True])
    await traced("add_habit", {"protocol_id": 1}, confirm=gate)
    assert gate.asked == []


@pytest.mark.anyio
@pytest.mark.promise("dispatch.extra_keys")
async def test_undeclared_keys_reach_neither_gate_nor_handler_and_are_reported() -> None:
    gate = ScriptedGate([True])
    trace = await traced("add_habit", {**ARGS, "mood": "good"}, confirm=gate)
    assert trace.result == ToolOk({"args": ARGS})
    assert gate.asked[0].args == ARGS
    assert trace.extra_args == ("mood",)


@pytest.mark.anyio
async def test_undeclared_keys_are_dropped_even_where_the_schema_forbids_them() -> None:
    strict = replace(READ, parameters={**HABIT, "additionalProperties": False})
    trace = await traced("search_catalog", {**ARGS, "mood": 1}, strict)
    assert trace.result == ToolOk({"args": ARGS})


@pytest.mark.anyio
@pytest.mark.promise("dispatch.handler_raises")
@pytest.mark.parametrize("error", [ValueError("secret"), SystemExit(3), asyncio.CancelledError()])
async def test_a_handler_that_raises_gives_the_type_only_and_a_logged_traceback(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    trace = await traced("search_catalog", ARGS, replace(READ, handler=raising(error)))
    assert trace.result == ToolErr("handler_error", f"The tool failed: {type(error).__name__}")
    if not isinstance(error, asyncio.CancelledError):
        assert caplog.records[-1].exc_info


@pytest.mark.anyio
@pytest.mark.promise("dispatch.handler_timeout")
async def test_a_handler_that_exceeds_its_timeout_is_ended() -> None:
    ended = asyncio.Event()

    async def endless(_args: Mapping[str, Any], _deps: Any) -> ToolResult:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()
        raise AssertionError

    async with asyncio.timeout(1):
        trace = await traced("search_catalog", ARGS, replace(READ, handler=endless, timeout_s=0.01))
    assert code(trace.result) == "handler_error"
    assert "TimeoutError" in str(trace.result)
    assert ended.is_set()


@pytest.mark.anyio
@pytest.mark.promise("dispatch.handler_returns")
@pytest.mark.parametrize("returned", [None, {"status": "ok"}, "ok", ToolOk])
async def test_a_handler_that_returns_something_else_failed(returned: Any) -> None:
    tool = replace(READ, handler=lambda _args, _deps: returned)
    assert code((await traced("search_catalog", ARGS, tool)).result) == "handler_error"


@pytest.mark.anyio
@pytest.mark.promise("dispatch.read_only")
async def test_a_read_only_call_runs_without_a_gate() -> None:
    trace = await traced("search_catalog", ARGS)
    assert (trace.result, trace.gate) == (ToolOk({"args": ARGS}), GateOutcome.NOT_NEEDED)


@pytest.mark.anyio
@pytest.mark.promise("dispatch.integers")
async def test_an_integral_float_becomes_an_integer_and_true_is_none() -> None:
    trace = await traced("search_catalog", {**ARGS, "n": 2.0})
    assert trace.args is not None
    assert type(trace.args["n"]) is int
    assert code((await traced("search_catalog", {**ARGS, "n": True})).result) == "validation"
    assert code((await traced("search_catalog", {**ARGS, "n": 2.5})).result) == "validation"


@pytest.mark.anyio
@pytest.mark.promise("dispatch.started_write")
async def test_cancelling_the_caller_lets_a_started_handler_finish() -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def write(_args: Mapping[str, Any], _deps: Any) -> ToolResult:
        started.set()
        await finish.wait()
        return ToolOk({"written": True})

    seen: list[DispatchTrace] = []
    tool = replace(WRITE, handler=write, timeout_s=5.0)
    calling = asyncio.create_task(
        dispatcher(tool).dispatch(
            "add_habit", ARGS, confirm=ScriptedGate([True]), observe=seen.append
        )
    )
    await started.wait()
    calling.cancel()
    await asyncio.sleep(0)
    assert not calling.done()
    calling.cancel()
    finish.set()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert [trace.result for trace in seen] == [ToolOk({"written": True})]


@pytest.mark.anyio
async def test_cancelling_the_caller_while_the_user_is_asked_runs_nothing() -> None:
    class Endless:
        async def confirm(self, request: ConfirmRequest) -> bool:  # noqa: ARG002 - protocol
            return await asyncio.get_running_loop().create_future()

    seen: list[DispatchTrace] = []
    calling = asyncio.create_task(
        dispatcher().dispatch("add_habit", ARGS, confirm=Endless(), observe=seen.append)
    )
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert [(trace.result, trace.ran) for trace in seen] == [(ToolCancelled(), False)]


@pytest.mark.anyio
@pytest.mark.promise("dispatch.trace")
async def test_waiting_for_a_person_is_not_tool_latency() -> None:
    moments = iter(range(100))
    seen: list[DispatchTrace] = []
    clocked = ToolDispatcher(ToolRegistry([WRITE]), clock=lambda: float(next(moments)))
    await clocked.dispatch("add_habit", ARGS, confirm=ScriptedGate([True]), observe=seen.append)
    trace = seen[0]
    assert (trace.validation_s, trace.waiting_s, trace.handler_s) == (1.0, 1.0, 1.0)
    assert (trace.name, trace.raw_args, trace.args) == ("add_habit", ARGS, ARGS)


class Odd:
    """An object that fails wherever it is touched."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
ANYTHING = JSON_VALUES | st.binary() | st.sets(st.integers()) | st.builds(Odd) | st.floats()
NAMES = st.sampled_from(["search_catalog", "add_habit"]) | st.text() | ANYTHING
HANDLERS = st.sampled_from(
    [
        lambda args, _deps: ToolOk({"args": dict(args)}),
        lambda _args, _deps: Odd(),
        raising(ValueError()),
        raising(SystemExit()),
        raising(RecursionError()),
    ]
)
GATES = (
    st.none()
    | st.builds(ScriptedGate, st.lists(st.booleans()))
    | st.sampled_from([BrokenGate(OSError()), BrokenGate(SystemExit()), TruthyGate(), Odd()])
)
KEYED = st.dictionaries(st.sampled_from(["protocol_id", "n", "x"]), ANYTHING)


@pytest.mark.anyio
@pytest.mark.promise("dispatch.never_raises")
@settings(max_examples=300)
@given(name=NAMES, args=ANYTHING | KEYED, handler=HANDLERS, gate=GATES)
async def test_dispatch_returns_a_result_for_anything(
    name: Any, args: Any, handler: Any, gate: Any
) -> None:
    tools = [replace(READ, handler=handler), replace(WRITE, handler=handler)]
    result = await dispatcher(*tools).dispatch(name, args, confirm=gate)
    assert isinstance(result, ToolOk | ToolErr | ToolCancelled)


PROPERTIES = {
    "text": {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^[a-c가]"},
    "number": {"type": "number", "minimum": -1, "exclusiveMaximum": 5},
    "whole": {"type": "integer"},
    "choice": {"enum": ["a", 1, True, None]},
    "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
}
LIKELY = st.sampled_from(["a", "가나", "", "zzzz", 1, 1.0, 0.5, -2, 5, True, None, [True], [1], {}])


@pytest.mark.anyio
@pytest.mark.promise("dispatch.verdict")
@settings(max_examples=300)
@given(
    args=st.dictionaries(st.sampled_from([*PROPERTIES, "other"]), LIKELY | JSON_VALUES),
    required=st.lists(st.sampled_from(list(PROPERTIES)), unique=True, max_size=2),
)
async def test_validation_agrees_with_jsonschema(args: dict[str, Any], required: list[str]) -> None:
    schema = object_schema(*required, **PROPERTIES)
    declared = {key: value for key, value in args.items() if key in PROPERTIES}
    expected = Draft202012Validator(schema).is_valid(declared)
    result = await dispatcher(replace(READ, parameters=schema)).dispatch(
        "search_catalog", args, confirm=None
    )
    assert isinstance(result, ToolOk) == expected
    assert isinstance(result, ToolOk) or code(result) == "validation"
