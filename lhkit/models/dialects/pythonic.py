"""The `pythonic` dialect: calls as `[f(a="x", b=1)]`, a comparison arm for Gemma 3 and 3n.

Tools in the first user turn, results as a user turn, as in `json`. Not vLLM's template, which
leaves out the commas of calls in the history, nor its parser, which refuses fences and words.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

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
from lhkit.models.dialects.message_groups import Group, grouped, is_writable, result_text, words_of
from lhkit.models.dialects.pythonic_scanner import PythonicScanner
from lhkit.models.dialects.pythonic_values import write_call
from lhkit.vocab.json_values import JSON, NotJsonError, compact
from lhkit.vocab.messages import Message, ModelMessage, ToolCallMessage, UserMessage

_PROTOCOL = """\
To use tools, answer with only this list: [tool(argument="value", other=1)]
You then get the results. Otherwise answer in words.
Tools:"""


class PythonicDialect:
    """Speaks `[f(a="x")]` with models that have no tool format of their own."""

    name = "pythonic"
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
        turns = [Turn(role="user", text=preamble)] if preamble else []
        for group in grouped(messages):
            turns += _turns_of(group)
        return render_turns(turns)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call as a list of one.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return f"[{write_call(name, args)}]"

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text and calls of a complete response. Never raises."""
        scanner = self.incremental(tools)
        scanner.feed(raw)
        return scanner.close()

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return PythonicScanner(frozenset(str(spec_of(tool).get("name")) for tool in tools))


def _turns_of(group: Group) -> list[Turn]:
    match group:
        case UserMessage():
            return [Turn(role="user", text=words_of(group))]
        case ModelMessage(text=text):
            return [Turn(role="model", text=text)]
        case list():
            said = [call.text for call in group if call.text]
            results = [_result_line(call) for call in group]
            return [
                Turn(role="model", text="\n".join([*said, *_written(group)])),
                Turn(role="user", text="\n".join(results)),
            ]
        case _:
            assert_never(group)


def _written(calls: Sequence[ToolCallMessage]) -> list[str]:
    """Return the calls as one list, and those that cannot be written as the model wrote them."""
    written: list[str] = []
    raws: list[str] = []
    for call in calls:
        try:
            good = write_call(call.name, call.args) if is_writable(call) else ""
        except NotJsonError:
            good = ""
        (written if good else raws).append(good or call.raw)
    return [*([f"[{', '.join(written)}]"] if written else []), *raws]


def _result_line(message: ToolCallMessage) -> str:
    return f"Result of {message.name or 'the call'}: {result_text(message)}"


def _preamble(tools: Sequence[ToolSpec], instructions: str) -> str:
    blocks = [instructions.strip()] if instructions.strip() else []
    if tools:
        blocks.append("\n".join([_PROTOCOL, *(compact(spec_of(tool)) for tool in tools)]))
    return "\n\n".join(blocks)
