"""Fakes and builders for tests, shipped so that users' own tests need no mock library.

Not for production code: import-linter forbids the product to import this module.
"""

from collections.abc import Mapping
from typing import Any

from lhkit.confirm.gate import ConfirmRequest, DenyGate, ScriptedGate
from lhkit.events import ChatEvent
from lhkit.json_values import JSON
from lhkit.models.scripted import Reply, ScriptedModel, call, say
from lhkit.tool_results import ToolOk, ToolResult
from lhkit.tools.definition import Handler, ToolDefinition

__all__ = [
    "BrokenGate",
    "DenyGate",
    "EventLog",
    "Reply",
    "ScriptedGate",
    "ScriptedModel",
    "call",
    "echo_tool",
    "object_schema",
    "say",
]


class BrokenGate:
    """A gate that raises what it was given."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def confirm(self, request: ConfirmRequest) -> bool:
        """Raise.

        Raises:
            BaseException: the error given.
        """
        raise self._error


class EventLog:
    """A subscriber that keeps every event."""

    def __init__(self) -> None:
        self.events: list[ChatEvent] = []

    def __call__(self, event: ChatEvent) -> None:
        """Keep the event."""
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        """Return the events of one class, in order."""
        return [event for event in self.events if isinstance(event, kind)]


def object_schema(*required: str, **properties: Any) -> dict[str, Any]:
    """Return an object schema with these properties, of which `required` must be there."""
    return {"type": "object", "properties": properties, "required": list(required)}


def echo_tool(
    name: str = "echo",
    *,
    parameters: Mapping[str, Any] | None = None,
    is_destructive: bool = False,
    handler: Handler | None = None,
    timeout_s: float = 1.0,
) -> ToolDefinition:
    """Return a tool that answers with its own arguments, or runs `handler`."""
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
