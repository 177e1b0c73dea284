"""The dispatcher's table, row by row, and the laws behind it."""

import asyncio
import json
import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from lhkit.base.json_values import canonical
from lhkit.base.locales import load_catalog
from lhkit.confirm.decision import Approve, Edit, QuestionOutcome, Reject
from lhkit.confirm.gate import ConfirmRequest, ScriptedGate
from lhkit.confirm.terminal import TerminalGate
from lhkit.conversation.messages import GateOutcome, ToolCallOutcome
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.testing import BrokenGate, echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from tests.hostile import ANYTHING, ENDS, AnswerGate, OddMapping, OddObject, OddText, json_values
from tests.rows import check_rows

HABIT = object_schema("protocol_id", protocol_id={"type": "string"}, n={"type": "integer"})
READ = echo_tool("search_catalog", parameters=HABIT)
WRITE = echo_tool("add_habit", parameters=HABIT, is_destructive=True)
ARGS = {"protocol_id": "daily-walk"}


def dispatcher(*tools: Any) -> ToolDispatcher:
    return ToolDispatcher(ToolRegistry(tools or (READ, WRITE)), catalog=load_catalog("en"))


async def traced(name: Any, args: Any, *tools: Any, confirm: Any = None) -> ToolCallOutcome:
    seen: list[ToolCallOutcome] = []
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
async def test_dispatch_names_known_tools_for_an_unknown_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace = await traced("foo", {})
    assert trace.result == ToolErr(
        "unknown_tool", "Unknown tool: foo. Available tools: search_catalog, add_habit."
    )
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.anyio
async def test_dispatch_names_field_expected_and_actual_of_a_wrong_type() -> None:
    trace = await traced("add_habit", {"protocol_id": 123}, confirm=ScriptedGate([True]))
    assert trace.result == ToolErr(
        "validation", "Argument error: the field 'protocol_id' must be string, but 123 came."
    )


@pytest.mark.anyio
async def test_dispatch_refuses_empty_arguments_by_required_fields() -> None:
    trace = await traced("search_catalog", {})
    assert trace.result == ToolErr(
        "validation",
        "Argument error: the required field 'protocol_id' is missing. Expected: string.",
    )


@pytest.mark.anyio
@check_rows(
    "args", [None, {"protocol_id": {1, 2}}, {1: "x"}, {**ARGS, "n": 2.5}, {**ARGS, "n": 10**5000}]
)
async def test_dispatch_refuses_arguments_that_are_not_json_of_the_schema(args: Any) -> None:
    gate = ScriptedGate([True])
    trace = await traced("add_habit", args, confirm=gate)
    assert (code(trace.result), gate.asked, trace.ran) == ("validation", [], False)


@pytest.mark.anyio
@check_rows(
    ("name", "gate"),
    [("search_catalog", GateOutcome.NOT_NEEDED), ("add_habit", GateOutcome.ABSENT)],
)
async def test_dispatch_records_why_nobody_was_asked(name: str, gate: GateOutcome) -> None:
    assert (await traced(name, ARGS)).gate is gate


@pytest.mark.anyio
async def test_dispatch_drops_and_reports_undeclared_keys_that_the_schema_forbids() -> None:
    strict = replace(READ, parameters={**HABIT, "additionalProperties": False})
    trace = await traced("search_catalog", {**ARGS, "mood": 1}, strict)
    assert (trace.result, trace.extra_args) == (ToolOk({"args": ARGS}), ("mood",))


@pytest.mark.anyio
async def test_dispatch_cancels_a_handler_after_its_timeout() -> None:
    ended = asyncio.Event()

    async def endless(_args: Mapping[str, Any], _deps: Any) -> ToolResult:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()
        raise AssertionError

    async with asyncio.timeout(120):  # against a hang only
        trace = await traced("search_catalog", ARGS, replace(READ, handler=endless, timeout_s=0.01))
    assert code(trace.result) == "handler_error"
    assert "TimeoutError" in str(trace.result)
    assert ended.is_set()


NOT_OBJECTS: list[Any] = [[1, 2], 5, "text", None, {"x": {1}}, {"x": float("nan")}, {1: 2}]


@pytest.mark.anyio
@check_rows(
    "returned",
    [None, {"status": "ok"}, "ok", ToolOk, *map(ToolOk, NOT_OBJECTS), ToolOk({"n": 10**5000})],
)
async def test_dispatch_refuses_a_result_that_is_not_json(returned: Any) -> None:
    tool = replace(READ, handler=lambda _args, _deps: returned)
    result = (await traced("search_catalog", ARGS, tool)).result
    assert code(result) == "handler_error"
    if isinstance(returned, ToolOk) and not isinstance(returned.data, dict):
        assert "must be an object" in str(result)


@pytest.mark.anyio
async def test_dispatch_finishes_a_started_handler_when_the_caller_is_cancelled() -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def write(_args: Mapping[str, Any], _deps: Any) -> ToolResult:
        started.set()
        await finish.wait()
        return ToolOk({"written": True})

    seen: list[ToolCallOutcome] = []
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
async def test_dispatch_runs_nothing_when_the_caller_is_cancelled_during_the_question() -> None:
    class Endless:
        async def confirm(self, request: ConfirmRequest) -> bool:
            return await asyncio.get_running_loop().create_future()

    seen: list[ToolCallOutcome] = []
    calling = asyncio.create_task(
        dispatcher().dispatch("add_habit", ARGS, confirm=Endless(), observe=seen.append)
    )
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert [(trace.result, trace.ran) for trace in seen] == [(ToolCancelled(), False)]


@pytest.mark.anyio
async def test_dispatch_counts_waiting_for_the_user_separately() -> None:
    moments = iter(range(100))
    seen: list[ToolCallOutcome] = []
    clocked = ToolDispatcher(ToolRegistry([WRITE]), clock=lambda: float(next(moments)))
    await clocked.dispatch("add_habit", ARGS, confirm=ScriptedGate([True]), observe=seen.append)
    trace = seen[0]
    assert (trace.validation_s, trace.waiting_s, trace.handler_s) == (1.0, 1.0, 1.0)
    assert trace.args == ARGS
    policy = ScriptedGate([Approve(how=POLICY)])  # waits for nobody
    await clocked.dispatch("add_habit", ARGS, confirm=policy, observe=seen.append)
    trace = seen[1]
    assert (trace.validation_s, trace.waiting_s, trace.handler_s) == (2.0, 0.0, 1.0)


def mutate(value: Any) -> None:
    """Change everything that can be reached from `value`."""
    try:
        if isinstance(value, dict):
            for item in list(value.values()):
                mutate(item)
            value["mutated"] = True
            value.pop(next(iter(value)))
        elif isinstance(value, list):
            for item in value:
                mutate(item)
            value.insert(0, "mutated")
    except TypeError:  # a record, which cannot be changed
        return


OPEN = object_schema(x={}, y={"type": "array"})


@pytest.mark.longer
@pytest.mark.anyio
@given(
    args=st.fixed_dictionaries(
        {"x": st.deferred(lambda: JSON_VALUES), "y": st.lists(st.deferred(lambda: JSON_VALUES))}
    )
)
async def test_dispatch_isolates_arguments_from_gate_summary_and_handler(
    args: dict[str, Any],
) -> None:
    asked, ran = [], []
    answer: dict[str, Any] = {"kept": [1, {"n": 2}]}
    mine = deepcopy(args)

    def tell(given: Mapping[str, Any], _catalog: Any) -> str:
        text = canonical(given)
        mutate(given)
        return text

    class Spoiling:
        async def confirm(self, request: ConfirmRequest) -> bool:
            asked.extend([request.summary, canonical(request.args)])
            mutate(request.args)
            mutate(mine)  # the caller keeps using its own object
            return True

    def handle(given: Mapping[str, Any], _deps: Any) -> ToolResult:
        ran.append(canonical(given))
        mutate(given)
        return ToolOk(answer)

    seen: list[ToolCallOutcome] = []
    tool = replace(WRITE, parameters=OPEN, summarize=tell, handler=handle)
    result = await dispatcher(tool).dispatch(
        "add_habit", mine, confirm=Spoiling(), observe=seen.append
    )
    mutate(answer)
    mutate(seen[0].args)
    assert isinstance(result, ToolOk)
    mutate(result.data)
    assert [*asked, *ran] == [canonical(args)] * 3
    assert seen[0].args == args
    assert result == seen[0].result == ToolOk({"kept": [1, {"n": 2}]})


@pytest.mark.anyio
async def test_dispatch_shows_and_records_a_summary_that_looks_up_ids() -> None:
    shown: list[str] = []

    async def read(_prompt: str) -> str:
        return "y"

    def named(args: Mapping[str, Any], _catalog: Any, deps: Mapping[str, str]) -> str:
        return f"To {deps[args['protocol_id']]}"

    async def quiet() -> bool:
        return False

    seen: list[ToolCallOutcome] = []
    await dispatcher(replace(WRITE, summarize=named)).dispatch(
        "add_habit",
        ARGS,
        confirm=TerminalGate(read, shown.append, forget=quiet),
        deps={"daily-walk": "Daily walk"},
        observe=seen.append,
    )
    assert shown[1] == 'To Daily walk\n{\n  "protocol_id": "daily-walk"\n}'
    assert seen[0].summary == "To Daily walk"
    assert (await traced("search_catalog", ARGS)).summary == ""


@pytest.mark.anyio
async def test_dispatch_lets_a_handler_change_and_return_its_arguments() -> None:
    def handle(args: Any, _deps: Any) -> ToolResult:
        args["protocol_id"] += "!"
        args["log"] = [json.dumps(args)]
        args["log"].append("done")
        return ToolOk({**args})

    trace = await traced("search_catalog", ARGS, replace(READ, handler=handle))
    assert trace.result == ToolOk(
        {"protocol_id": "daily-walk!", "log": ['{"protocol_id": "daily-walk!"}', "done"]}
    )
    assert (trace.args, ARGS) == (ARGS, {"protocol_id": "daily-walk"})


@pytest.mark.anyio
async def test_dispatch_looks_up_a_str_subclass_as_plain_text() -> None:
    trace = await traced(OddText("search_catalog"), ARGS)
    assert trace.result == ToolOk({"args": ARGS})
    trace = await traced("search_catalog", {"protocol_id": OddText("daily-walk")})
    assert trace.result == ToolOk({"args": ARGS})


@pytest.mark.anyio
@check_rows("error", [*ENDS, ValueError("secret"), asyncio.CancelledError()], ids=repr)
async def test_dispatch_handles_any_exception_of_gate_and_handler(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    asked = await traced("add_habit", ARGS, confirm=BrokenGate(error))
    assert (asked.result, asked.gate, asked.ran) == (ToolCancelled(), GateOutcome.FAILED, False)
    assert asked.answer == "failed"
    run = await traced("search_catalog", ARGS, replace(READ, handler=raising(error)))
    assert run.result == ToolErr("handler_error", f"The tool failed: {type(error).__name__}")
    assert caplog.records[-1].exc_info or isinstance(error, asyncio.CancelledError)


def test_dispatch_passes_a_keyboard_interrupt_of_a_handler() -> None:
    seen: list[ToolCallOutcome] = []
    tool = replace(WRITE, handler=raising(KeyboardInterrupt()))
    with asyncio.Runner() as runner, pytest.raises(KeyboardInterrupt):
        runner.run(
            dispatcher(tool).dispatch(
                "add_habit", ARGS, confirm=ScriptedGate([True]), observe=seen.append
            )
        )
    assert [(trace.ran, code(trace.result)) for trace in seen] == [(True, "handler_error")]


async def stopped_while(tool: Any, confirm: Any, until: asyncio.Event) -> ToolCallOutcome:
    """Cancel the caller as soon as `until` is set, and return the recorded outcome."""
    seen: list[ToolCallOutcome] = []
    calling = asyncio.create_task(
        dispatcher(tool).dispatch("add_habit", ARGS, confirm=confirm, observe=seen.append)
    )
    await until.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    return seen[0]


@pytest.mark.anyio
async def test_dispatch_reports_a_timeout_when_cancelled_during_the_grace_period() -> None:
    in_grace, written = asyncio.Event(), []

    async def write(_args: Mapping[str, Any], _deps: Any) -> ToolResult:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            in_grace.set()
            await asyncio.sleep(0)  # the stop comes here
            await asyncio.sleep(0)
            written.append(1)

    tool = replace(WRITE, handler=write, timeout_s=0.01)
    trace = await stopped_while(tool, ScriptedGate([True]), in_grace)
    assert written == [1]
    assert (trace.ran, trace.gate) == (True, GateOutcome.ACCEPTED)
    assert code(trace.result) == "handler_error"
    assert "TimeoutError" in str(trace.result)


@pytest.mark.anyio
async def test_dispatch_runs_nothing_if_a_gate_swallows_a_cancellation() -> None:
    asked = asyncio.Event()

    class Stubborn:
        async def confirm(self, request: ConfirmRequest) -> bool:
            asked.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                return True
            raise AssertionError

    trace = await stopped_while(WRITE, Stubborn(), asked)
    assert (trace.result, trace.ran, trace.gate) == (ToolCancelled(), False, GateOutcome.FAILED)


@pytest.mark.anyio
async def test_dispatch_runs_nothing_after_a_cancellation_by_summary_or_gate() -> None:
    def stop(*_: Any) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "?"

    class Stopping:
        async def confirm(self, request: ConfirmRequest) -> bool:
            stop()
            return True

    for tool, gate in ((replace(WRITE, summarize=stop), ScriptedGate([True])), (WRITE, Stopping())):
        seen: list[ToolCallOutcome] = []
        calling = dispatcher(tool).dispatch("add_habit", ARGS, confirm=gate, observe=seen.append)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(calling)
        assert [trace.ran for trace in seen] == [False]


JSON_VALUES = json_values(st.text(max_size=20), st.text(max_size=8))
NAMES = (
    st.sampled_from([OddText("add_habit"), "search_catalog", "add_habit"]) | st.text() | ANYTHING
)
HANDLERS = st.sampled_from(
    [
        lambda args, _deps: ToolOk({"args": dict(args)}),
        lambda _args, _deps: OddObject(),
        raising(ValueError()),
        raising(SystemExit()),
        raising(RecursionError()),
        *map(raising, ENDS),
        lambda _args, _deps: ToolOk(OddMapping()),
        lambda _args, _deps: ToolErr(OddText("x"), OddObject()),  # type: ignore[arg-type] # what is tested
    ]
)
GATES = (
    st.none()
    | st.builds(ScriptedGate, st.lists(st.booleans()))
    | st.sampled_from(
        [BrokenGate(OSError()), *map(BrokenGate, ENDS), AnswerGate("yes"), OddObject()]
    )
)
KEYED = st.dictionaries(st.sampled_from(["protocol_id", "n", "x"]), ANYTHING).map(
    lambda args: {"protocol_id": "walk", **args}
)


@pytest.mark.longer
@pytest.mark.anyio
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


@pytest.mark.longer
@pytest.mark.anyio
@given(
    args=st.dictionaries(st.sampled_from([*PROPERTIES, "other"]), LIKELY | JSON_VALUES),
    required=st.lists(st.sampled_from(list(PROPERTIES)), unique=True, max_size=2),
)
async def test_dispatch_validates_as_jsonschema_does(
    args: dict[str, Any], required: list[str]
) -> None:
    schema = object_schema(*required, **PROPERTIES)
    declared = {key: value for key, value in args.items() if key in PROPERTIES}
    expected = Draft202012Validator(schema).is_valid(declared)
    result = await dispatcher(replace(READ, parameters=schema)).dispatch(
        "search_catalog", args, confirm=None
    )
    assert isinstance(result, ToolOk) == expected
    assert isinstance(result, ToolOk) or code(result) == "validation"


POLICY = QuestionOutcome.POLICY
BY_POLICY = [
    (Approve(how=POLICY), WRITE, (GateOutcome.POLICY, "policy", True)),
    (Approve(how=POLICY), replace(WRITE, always_ask=True), (GateOutcome.FAILED, "failed", False)),
    (Approve(), replace(WRITE, always_ask=True), (GateOutcome.ACCEPTED, "", True)),
    (Edit({"protocol_id": "x"}, how=POLICY), WRITE, (GateOutcome.FAILED, "failed", False)),
    (Reject(how=POLICY), WRITE, (GateOutcome.FAILED, "failed", False)),
]


@pytest.mark.anyio
@check_rows(("decision", "tool", "expected"), BY_POLICY)
async def test_dispatch_takes_the_yes_of_a_policy_for_no_tool_that_is_always_asked(
    decision: Any, tool: Any, expected: tuple[Any, ...]
) -> None:
    gate = ScriptedGate([decision])
    trace = await traced("add_habit", ARGS, tool, confirm=gate)
    assert (trace.gate, trace.answer, trace.ran) == expected
    assert bool(trace.summary) is (trace.gate is not GateOutcome.POLICY)  # no card was shown
    assert gate.asked[0].always_ask is tool.always_ask
