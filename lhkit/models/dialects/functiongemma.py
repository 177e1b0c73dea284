"""The `functiongemma` dialect: FunctionGemma 270M, `<start_function_call>call:f{…}`.

Rendered here and not by vLLM: its example template is not the trained format, and its parser
loses numbers and booleans. Sources: Google's FunctionGemma formatting page and the printed
sequence in gemma-cookbook (`full-function-calling-sequence-with-functiongemma`).

Not checked against the checkpoint, whose weights and template are gated: the white space between
instructions and declarations, the sorted keys of declarations, the ids of the tokens, `null`, and
whether the model understands the JSON-quoted strings that stand in for those with control tokens.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lhkit.models.dialects.base import (
    Constraint,
    IncrementalParser,
    ParseResult,
    ToolSpec,
    unconstrained,
)
from lhkit.models.dialects.gemma_turns import CONTROL_TOKEN, END_OF_TURN_ID, START_OF_TURN_ID
from lhkit.models.dialects.marked_scanner import MarkedScanner
from lhkit.models.dialects.marked_turns import render_call, render_prompt
from lhkit.models.dialects.markup import Markup
from lhkit.vocab.json_values import JSON
from lhkit.vocab.messages import Message

MARKUP = Markup(
    turn=("<start_of_turn>", "<end_of_turn>"),
    system_role="developer",
    preamble="You are a model that can do function calling with the following functions",
    declaration=("<start_function_declaration>", "<end_function_declaration>"),
    call=("<start_function_call>", "<end_function_call>"),
    response=("<start_function_response>", "<end_function_response>"),
    quote="<escape>",
    control=re.compile(
        CONTROL_TOKEN.pattern
        + r"|<(?=/?(?:(?:start|end)_function_(?:declaration|call|response)|escape)>)"
    ),
)


class FunctionGemmaDialect:
    """Speaks FunctionGemma's own format."""

    name = "functiongemma"
    stop_token_ids = (START_OF_TURN_ID, END_OF_TURN_ID)
    stop_texts = (MARKUP.response[0],)
    """The model opens a response where it waits for one."""

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
        return render_prompt(MARKUP, messages, tools, instructions)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call in the model's own format.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return render_call(MARKUP, name, args)

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text and calls of a complete response. Never raises."""
        scanner = self.incremental(tools)
        scanner.feed(raw)
        return scanner.close()

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:  # noqa: ARG002
        """Return a parser for one streamed response; the markup needs no names."""
        return MarkedScanner(MARKUP)
