"""An environment that notes where its tools raise: the dispatcher tells a model the type only."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lhkit.chat.controller import Assistant
from lhkit.harness.replay.environment import Environment, Session, SessionAround
from lhkit.harness.replay.their_code import place_in_their_code
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.json_values import JSON, compact
from lhkit.vocab.results import ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Opens the sessions of another environment, with tools that note their exceptions."""

    inner: Environment
    places: dict[str, str] = field(default_factory=dict)

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        """Return a session of the inner environment.

        Raises:
            UsageError: `world` describes no possible state.
        """
        session = self.inner.open(world, locale)
        tools = (self._watched(tool) for tool in session.registry.definitions)
        return _WatchedSession(inner=session, registry=ToolRegistry(tools))

    def place(self, tool: str, args: Mapping[str, Any] | None) -> str:
        """Return `file:line` of the line of its author that a call failed at; perhaps none."""
        return self.places.get(compact([tool, args]), "")

    def _watched(self, tool: ToolDefinition) -> ToolDefinition:
        async def handle(args: Mapping[str, JSON], deps: Any) -> ToolResult:
            try:
                returned = tool.handler(args, deps)
                return await returned if inspect.isawaitable(returned) else returned
            except (Exception, SystemExit) as error:
                self.places[compact([tool.name, args])] = place_in_their_code(error)
                raise

        return replace(tool, handler=handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WatchedSession(SessionAround):
    registry: ToolRegistry

    @property
    def assistant(self) -> Assistant:
        """The inner session's assistant."""
        return self.inner.assistant
