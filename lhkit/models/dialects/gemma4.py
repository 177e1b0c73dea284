"""The `gemma4` dialect: Gemma 4, `<|tool_call>call:f{…}<tool_call|>`, thinking split off.

Source: vLLM's `examples/tool_chat_template_gemma4.jinja` and `vllm/parser/gemma4.py`. Unlike the
template, keys of arguments keep their order (the model's own words stay a prefix), and a property
keeps all of its schema, not only the words that the template knows.

Not checked against a checkpoint, whose weights are gated: the ids of the tokens (so it stops at
texts), `null`, whether models answer better after an empty thinking channel, and whether they
understand the JSON-quoted strings that stand in for those with control tokens. Thinking is never
asked for (`<|think|>`) but always understood.
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
from lhkit.models.dialects.gemma_turns import CONTROL_TOKEN
from lhkit.models.dialects.marked_scanner import MarkedScanner
from lhkit.models.dialects.marked_turns import render_call, render_prompt
from lhkit.models.dialects.markup import Markup
from lhkit.vocab.json_values import JSON
from lhkit.vocab.messages import Message

MARKUP = Markup(
    turn=("<|turn>", "<turn|>"),
    system_role="system",
    declaration=("<|tool>", "<tool|>"),
    call=("<|tool_call>", "<tool_call|>"),
    response=("<|tool_response>", "<tool_response|>"),
    quote='<|"|>',
    thinking=(("<|channel>thought\n", "<|channel>"), "<channel|>"),
    control=re.compile(CONTROL_TOKEN.pattern + r"|<(?=\|[^<>\s]{1,40}>)|<(?=[^<>|\s]{1,40}\|>)"),
)


class Gemma4Dialect:
    """Speaks Gemma 4's own format."""

    name = "gemma4"
    stop_token_ids = ()
    stop_texts = (MARKUP.turn[1], MARKUP.turn[0], MARKUP.response[0])
    """As texts, because the ids could not be checked; a response is opened to wait for one."""

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
        """Return text, thinking and calls of a complete response. Never raises."""
        scanner = self.incremental(tools)
        scanner.feed(raw)
        return scanner.close()

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:  # noqa: ARG002
        """Return a parser for one streamed response; the markup needs no names."""
        return MarkedScanner(MARKUP)
