"""The `json` dialect: calls as `{"name": …, "parameters": {…}}`, for Gemma 3 and 3n.

The protocol is the original app's (seeds): tools in the first user turn, results as a user turn.
The wording is ours. Parsing is in `json_scanner`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, assert_never

from lhkit.models.dialects.base import (
    Constraint,
    IncrementalParser,
    ParseResult,
    ToolSpec,
    spec_of,
    unconstrained,
)
from lhkit.models.dialects.gemma_turns import (
    END_OF_TURN_ID,
    START_OF_TURN_ID,
    Turn,
    render_turns,
)
from lhkit.models.dialects.json_scanner import JsonScanner
from lhkit.vocab.json_values import JSON, NotJsonError, compact
from lhkit.vocab.messages import (
    Message,
    ModelMessage,
    SystemMessage,
    ToolCallMessage,
    UserMessage,
)
from lhkit.vocab.results import encode_tool_result

_PROTOCOL = """\
To use a tool, answer with only this JSON: {"name": "tool", "parameters": {"argument": value}}
You then get its result. Otherwise answer in words.
Tools:"""

_Group: TypeAlias = UserMessage | ModelMessage | list[ToolCallMessage]


class JsonDialect:
    """Speaks `{"name": …, "parameters": {…}}` with models that have no tool format of their own."""

    name = "json"
    stop_token_ids = (START_OF_TURN_ID, END_OF_TURN_ID)
    """A base model may open the next turn itself instead of ending its own."""
    stop_texts = ()

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
        preamble = _preamble(tools, instructions)
        turns: list[Turn] = [Turn(role="user", text=preamble)] if preamble else []
        for group in _grouped(messages):
            turns += self._turns_of(group)
        return render_turns(turns)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call as compact JSON with the separators a model would write.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return f'{{"name": {compact(name)}, "parameters": {compact(args)}}}'

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text and calls of a complete response. Never raises."""
        scanner = self.incremental(tools)
        scanner.feed(raw)
        return scanner.close()

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return JsonScanner(frozenset(str(spec_of(tool).get("name")) for tool in tools))

    def _turns_of(self, group: _Group) -> list[Turn]:
        match group:
            case UserMessage(text=text, context=context):
                lines = [context, text] if context else [text]
                return [Turn(role="user", text="\n".join(lines))]
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


def _grouped(messages: Iterable[Message]) -> list[_Group]:
    """Return what the model sees, with the calls of one model message together."""
    groups: list[_Group] = []
    for message in messages:
        match message:
            case SystemMessage():
                continue
            case ToolCallMessage():
                last = groups[-1] if groups else None
                if message.index > 0 and isinstance(last, list):
                    last.append(message)
                else:
                    groups.append([message])
            case UserMessage() | ModelMessage():
                groups.append(message)
            case _:
                assert_never(message)
    return groups


def _result_line(message: ToolCallMessage) -> str:
    return f"Result of {message.name or 'the call'}: {encode_tool_result(message.result)}"


def _preamble(tools: Sequence[ToolSpec], instructions: str) -> str:
    blocks = [instructions.strip()] if instructions.strip() else []
    if tools:
        blocks.append("\n".join([_PROTOCOL, *(compact(spec_of(tool)) for tool in tools)]))
    return "\n\n".join(blocks)
