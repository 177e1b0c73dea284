"""A toolset that notes where its tools raise: the dispatcher tells a model the type only."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lhkit.json_values import JSON, compact
from lhkit.tool_results import ToolResult
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Session, Toolset, ToolsetAround, place_in_their_code


@dataclass(frozen=True, slots=True, kw_only=True)
class NotingToolset:
    """Another toolset, whose tools note their exceptions."""

    inner: Toolset
    places: dict[str, str] = field(default_factory=dict)

    @property
    def toolset(self) -> Toolset:
        """The toolset to play in."""
        return ToolsetAround(inner=self.inner, registry=self._registry)

    def place(self, tool: str, args: Mapping[str, Any] | None) -> str:
        """Return `file:line` of the line of its author that a call failed at; perhaps none."""
        return self.places.get(compact([tool, args]), "")

    def _registry(self, session: Session, _locale: str) -> ToolRegistry:
        handlers = {name: self._watched(tool) for name, tool in session.registry.items()}
        return session.registry.with_handlers(handlers)

    def _watched(self, tool: ToolDefinition) -> Handler:
        async def handle(args: Mapping[str, JSON], deps: Any) -> ToolResult:
            try:
                returned = tool.handler(args, deps)
                return await returned if inspect.isawaitable(returned) else returned
            except (Exception, SystemExit) as error:
                self.places[compact([tool.name, args])] = place_in_their_code(error)
                raise

        return handle
