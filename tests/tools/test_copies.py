"""One approved write: how often its arguments are validated, converted and copied."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest

from lhkit.base import json_values
from lhkit.chat.controller import ChatController
from lhkit.confirm.gate import ScriptedGate
from lhkit.conversation.messages import ToolCall, ToolCallMessage
from lhkit.conversation.responses import Finished, ModelEvent, ModelIdentity, ToolCallParsed
from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.models.base import ModelRequest
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.functions import FunctionHandler
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import ArgumentValidator

ROWS = ["milk", "bread"]


class Counts:
    """Counts validations, and deep copies of `ROWS`: each builds a list with these items."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.validations = self.readings = self.copies = 0
        self._patch = patch
        self._count(ArgumentValidator, "check", "validations")
        self._count(FunctionHandler, "check", "readings")
        self._count(FunctionHandler, "__call__", "readings")
        for name in ("_read_only", "plain_json"):
            self._count(json_values, name, "copies")
        for module in ("lhkit.tools.dispatcher", "lhkit.conversation.tool_results"):
            patch.setattr(f"{module}.plain_json", json_values.plain_json, raising=False)
        patch.setattr("copy.deepcopy", self._no_deepcopy)

    def _count(self, owner: Any, name: str, counter: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def counted(*args: Any, **more: Any) -> Any:
            made = real(*args, **more)
            is_rows = counter != "copies" or (args[0] == ROWS and made is not args[0])
            setattr(self, counter, getattr(self, counter) + is_rows)
            return made

        self._patch.setattr(owner, name, counted)

    def _no_deepcopy(self, value: Any, *_: Any) -> Any:
        raise AssertionError(f"a deep copy of {value!r}")


class OneWrite:
    """A model that calls `write` once and then answers in words."""

    identity = ModelIdentity(model="one write")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if isinstance(request.messages[-1], ToolCallMessage):
            yield Finished(reason="stop", text="done")
            return
        call = ToolCall(name="write", args={"rows": list(ROWS)})
        yield ToolCallParsed(call=call)
        yield Finished(reason="stop", calls=(call,))

    async def aclose(self) -> None: ...


async def dispatched(registry: ToolRegistry) -> ToolCallMessage:
    controller = ChatController(
        model=OneWrite(),
        dispatcher=ToolDispatcher(registry),
        confirm=ScriptedGate([True]),
    )
    await controller.user_turn("write")
    message = controller.state.messages[1]
    assert isinstance(message, ToolCallMessage)
    assert message.outcome is not None
    assert (message.outcome.ran, message.outcome.args) == (True, {"rows": ROWS})
    return message


@pytest.mark.anyio
async def test_dispatch_validates_an_approved_write_once_and_copies_it_for_each_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = object_schema(rows={"type": "array", "items": {"type": "string"}})
    tool = echo_tool("write", parameters=schema, is_destructive=True)
    tool = replace(
        tool,
        handler=lambda _args, _deps: ToolOk({}),
        summarize=lambda args, _catalog: ", ".join(args["rows"]),
    )
    counts = Counts(monkeypatch)
    assert (await dispatched(ToolRegistry([tool]))).result == ToolOk({})
    # the record, the card (thawed and frozen again), the summary and the handler, which may all
    # change what they were given
    assert counts.validations == 1
    assert counts.copies <= 7


@pytest.mark.anyio
async def test_dispatch_converts_function_arguments_before_and_after_filling_them_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = Counts(monkeypatch)
    registry = ToolRegistry()

    @registry.tool(destructive=True)
    def write(rows: list[str]) -> dict[str, Any]:
        """Write rows."""
        return {"count": len(rows)}

    assert (await dispatched(registry)).result == ToolOk({"count": 2})
    # the function gets what was converted from the very JSON that the card shows
    assert (counts.validations, counts.readings) == (1, 2)
    assert counts.copies <= 7


@pytest.mark.anyio
async def test_dispatch_runs_a_handler_that_replaced_a_function() -> None:
    registry = ToolRegistry()

    @registry.tool(destructive=True)
    def write(rows: list[str]) -> dict[str, Any]:
        """Write rows."""
        raise AssertionError(rows)

    broken = ToolErr("handler_error", "no")
    others = registry.mapped(lambda tool: replace(tool, handler=lambda _args, _deps: broken))
    assert (await dispatched(others)).result == broken
