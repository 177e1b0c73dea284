"""Fakes and builders for tests of tools, gates and conversations.

For test code only; lhkit itself does not import this module. `assert_passed` is for tests marked
with `lhkit`, and requires pytest.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lhkit.base.json_values import JSON
from lhkit.confirm.gate import ConfirmRequest, DenyGate, ScriptedGate
from lhkit.conversation.events import ChatEvent
from lhkit.conversation.tool_results import ToolOk, ToolResult
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.tools.definition import Handler, ToolDefinition

if TYPE_CHECKING:
    from lhkit.pytest_plugin import assert_passed

__all__ = [
    "BrokenGate",
    "DenyGate",
    "EventLog",
    "Reply",
    "ScriptedGate",
    "ScriptedModel",
    "assert_passed",
    "call",
    "echo_tool",
    "object_schema",
    "say",
]


def __getattr__(name: str) -> Any:
    """Import what requires pytest when it is first used."""
    if name != "assert_passed":
        raise AttributeError(f"module 'lhkit.testing' has no attribute {name!r}")
    from lhkit.pytest_plugin import assert_passed

    return assert_passed


class BrokenGate:
    """A gate that raises the given exception."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Raise the exception.

        Raises:
            BaseException: the given exception.
        """
        raise self._error


class EventLog:
    """A subscriber of a `ChatController` that stores all events in `events`."""

    def __init__(self) -> None:
        self.events: list[ChatEvent] = []

    def __call__(self, event: ChatEvent) -> None:
        """Store the event."""
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        """Return the events of one class, in order."""
        return [event for event in self.events if isinstance(event, kind)]


def object_schema(*required: str, **properties: Any) -> dict[str, Any]:
    """Return an object schema with these properties, some of them required."""
    return {"type": "object", "properties": properties, "required": list(required)}


def echo_tool(
    name: str = "echo",
    *,
    parameters: Mapping[str, Any] | None = None,
    is_destructive: bool = False,
    handler: Handler | None = None,
    timeout_s: float = 1.0,
) -> ToolDefinition:
    """Return a tool whose result is its arguments, or that runs `handler`."""
    return ToolDefinition(
        name=name,
        description=f"{name} for tests",
        parameters=parameters or object_schema(),
        handler=handler or _echo,
        is_destructive=is_destructive,
        timeout_s=timeout_s,
    )


def _echo(args: Mapping[str, JSON], _deps: Any) -> ToolResult:
    return ToolOk({"args": dict(args)})
