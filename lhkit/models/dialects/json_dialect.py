"""The `json` dialect: calls as `{"name": …, "parameters": {…}}`, for Gemma 3 and 3n.

The protocol is the original app's (seeds): tools in the first user turn, results as a user turn.
The wording is ours. Parsing is in `json_scanner`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from lhkit.models.dialects.base import (
    Constraint,
    IncrementalParser,
    ParseResult,
    ToolSpec,
    spec_of,
)
from lhkit.models.dialects.gemma_turns import (
    END_OF_TURN_ID,
    START_OF_TURN_ID,
    Turn,
    render_turns,
)
from lhkit.models.dialects.json_constraint import CALL_END, call_start, constrained
from lhkit.models.dialects.json_scanner import JsonScanner
from lhkit.models.dialects.message_groups import Group, grouped, result_text, words_of
from lhkit.vocab.json_values import JSON, NotJsonError, compact
from lhkit.vocab.messages import (
    Message,
    ModelMessage,
    ToolCallMessage,
    UserMessage,
)

_PROTOCOL = """\
To use a tool, answer with only this JSON: {"name": "tool", "parameters": {"argument": value}}
You then get its result. Otherwise answer in words.
Tools:"""


class JsonDialect:
    """Speaks `{"name": …, "parameters": {…}}` with models that have no tool format of their own."""

    name = "json"
    stop_token_ids = (START_OF_TURN_ID, END_OF_TURN_ID)
    """A base model may open the next turn itself instead of ending its own."""
    stop_texts = ()

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return the request fields that constrain decoding: a grammar of our own.

        Raises:
            UsageError: a call is required and there is no tool, or a schema cannot be constrained.
        """
        return constrained(tools, constraint)

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the prompt: instructions and tools first, so that all chats share a prefix."""
        preamble = _preamble(tools, instructions)
        turns: list[Turn] = [Turn(role="user", text=preamble)] if preamble else []
        for group in grouped(messages):
            turns += self._turns_of(group)
        return render_turns(turns)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call as compact JSON with the separators a model would write.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return call_start(name) + compact(args) + CALL_END

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text and calls of a complete response. Never raises."""
        scanner = self.incremental(tools)
        scanner.feed(raw)
        return scanner.close()

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return JsonScanner(frozenset(str(spec_of(tool).get("name")) for tool in tools))

    def _turns_of(self, group: Group) -> list[Turn]:
        match group:
            case UserMessage():
                return [Turn(role="user", text=words_of(group))]
            case ModelMessage(text=text):
                return [Turn(role="model", text=text)]
            case list():
                return self._call_turns(group)
            case _:
                assert_never(group)

    def _call_turns(self, calls: Sequence[ToolCallMessage]) -> list[Turn]:
        words = [call.text for call in calls if call.text]
        said = [*words, *(self._written(call) for call in calls)]
        results = [_result_line(call) for call in calls]
        return [
            Turn(role="model", text="\n".join(said)),
            Turn(role="user", text="\n".join(results)),
        ]

    def _written(self, message: ToolCallMessage) -> str:
        """Return the call as it should have been written, or as it was if that cannot be."""
        if not message.name or (message.raw and not isinstance(message.args, Mapping)):
            return message.raw
        try:
            return self.render_call(message.name, message.args)
        except NotJsonError:
            return message.raw


def _result_line(message: ToolCallMessage) -> str:
    return f"Result of {message.name or 'the call'}: {result_text(message)}"


def _preamble(tools: Sequence[ToolSpec], instructions: str) -> str:
    blocks = [instructions.strip()] if instructions.strip() else []
    if tools:
        blocks.append("\n".join([_PROTOCOL, *(compact(spec_of(tool)) for tool in tools)]))
    return "\n\n".join(blocks)
