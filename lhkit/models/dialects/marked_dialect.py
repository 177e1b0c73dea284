"""A dialect made of a family's markup: what FunctionGemma and Gemma 4 have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lhkit.models.dialects.base import (
    Constraint,
    IncrementalParser,
    ParseResult,
    ToolSpec,
    unconstrained,
)
from lhkit.models.dialects.marked_scanner import MarkedScanner
from lhkit.models.dialects.marked_turns import render_call, render_prompt
from lhkit.models.dialects.markup import Markup
from lhkit.vocab.json_values import JSON
from lhkit.vocab.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedDialect:
    """Speaks a format of `call:NAME{…}` between tokens; `markup` holds the tokens."""

    name: str
    markup: Markup
    stop_token_ids: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:  # noqa: ARG002
        """Return no fields: decoding is free.

        Raises:
            UsageError: any constraint but `off`.
        """
        return unconstrained(self.name, constraint)

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the prompt: instructions and tools first, so that all chats share a prefix."""
        return render_prompt(self.markup, messages, tools, instructions)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call in the model's own format.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return render_call(self.markup, name, args)

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text, thinking and calls of a complete response. Never raises."""
        scanner = self.incremental(tools)
        scanner.feed(raw)
        return scanner.close()

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:  # noqa: ARG002
        """Return a parser for one streamed response; the markup needs no names."""
        return MarkedScanner(self.markup)
