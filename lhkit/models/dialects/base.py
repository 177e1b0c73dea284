"""What a dialect is: how one Gemma family is spoken to, both directions, without any I/O."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from lhkit.errors import UsageError
from lhkit.json_values import JSON
from lhkit.messages import Message
from lhkit.models.dialects.parser import IncrementalParser, ParseResult
from lhkit.tools.definition import ToolDefinition

Constraint: TypeAlias = Literal["off", "auto", "required"]
"""How decoding is constrained: not at all; free text or a valid call; a valid call."""

ToolSpec: TypeAlias = ToolDefinition | Mapping[str, Any]
"""A definition, or a plain `{"name", "description", "parameters"}` mapping."""


class Dialect(ABC):
    """How one model family writes and reads calls. Pure, stateless, safe to share."""

    name: str
    """The key in `DIALECTS`."""
    stop_token_ids: tuple[int, ...]
    """Token ids at which generation ends, besides the model's own end of sequence."""
    stop_texts: tuple[str, ...]
    """Texts at which generation ends; they are not part of the response."""

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return the request fields that constrain decoding; none for `off`.

        Raises:
            UsageError: this dialect has no such constraint.
        """
        if constraint != "off":
            raise UsageError(f"the dialect {self.name} cannot be constrained: give --constrain off")
        return {}

    @abstractmethod
    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the whole prompt text, with exactly one begin-of-sequence token.

        Instructions and tools stand first, so that all chats share a prefix.
        """

    @abstractmethod
    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return what a model of this family would write to make this call.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text and calls of a complete response. Never raises."""
        return self.incremental(tools).whole(raw)

    @abstractmethod
    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response."""


def spec_of(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool as a plain `{"name", "description", "parameters"}` mapping."""
    if isinstance(tool, ToolDefinition):
        return {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
    return {key: tool[key] for key in ("name", "description", "parameters") if key in tool}


def names_of(tools: Sequence[ToolSpec]) -> frozenset[str]:
    """Return the names of the tools."""
    return frozenset(str(spec_of(tool).get("name")) for tool in tools)
