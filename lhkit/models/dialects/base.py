"""What a dialect is: how a prompt is written and how its calls are read."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, assert_never

from lhkit.errors import UsageError
from lhkit.json_values import JSON
from lhkit.messages import (
    TRUNCATION_HINT,
    Message,
    ModelMessage,
    SystemMessage,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallMessage,
    ToolCallParsed,
    UserMessage,
    encode_tool_result,
)
from lhkit.tools.definition import ToolDefinition

# A transcript as the model sees it: the calls of one model message together, no hints.
#
# For the dialects that write turns; how a group is written is theirs.


Group: TypeAlias = UserMessage | ModelMessage | list[ToolCallMessage]
"""The user's words, the model's words, or the calls of one model message."""


def grouped(messages: Iterable[Message]) -> list[Group]:
    """Return what the model sees, with the calls of one model message together."""
    groups: list[Group] = []
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


def words_of(message: UserMessage) -> str:
    """Return what the user said below the line for the model."""
    return f"{message.context}\n{message.text}" if message.context else message.text


def result_text(message: ToolCallMessage) -> str:
    """Return the result of a call as the model reads it, within the budget of bytes."""
    hint = message.hint or TRUNCATION_HINT
    return encode_tool_result(message.result, message.max_bytes, hint=hint)


def is_writable(message: ToolCallMessage) -> bool:
    """Return False for a call that was cut off or made no sense: only its raw text can be shown."""
    return bool(message.name) and isinstance(message.args, Mapping)


# What a dialect is: how one Gemma family is spoken to, both directions, without any I/O.


Constraint: TypeAlias = Literal["off", "auto", "required"]
"""How decoding is constrained: not at all; free text or a valid call; a valid call."""

ToolSpec: TypeAlias = ToolDefinition | Mapping[str, Any]
"""A definition, or a plain `{"name", "description", "parameters"}` mapping."""

ParsedEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallParsed
"""What has become certain of a response while it streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseResult:
    """What a raw response says.

    `text` is what is left for the user, `calls` the complete calls in order. `fragment` is the
    raw text of a call that the response ends inside of, empty if there is none. `thinking` is
    the reasoning of a model that has a channel for it.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    fragment: str = ""
    thinking: str = ""

    @property
    def truncated(self) -> bool:
        """True if the response ends inside a call."""
        return bool(self.fragment)


class IncrementalParser(Protocol):
    """Parses a response while it streams."""

    def feed(self, chunk: str) -> Sequence[ParsedEvent]:
        """Return what has become certain with this chunk."""
        ...

    def close(self) -> ParseResult:
        """Return the whole result, equal to `Dialect.parse` of all chunks joined.

        The text may be longer than what `feed` gave out: the end was not certain before.
        """
        ...


class Dialect(Protocol):
    """How one model family writes and reads calls. Pure, stateless, safe to share."""

    @property
    def name(self) -> str:
        """The key in `DIALECTS`."""
        ...

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Token ids at which generation ends, besides the model's own end of sequence."""
        ...

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """Texts at which generation ends; they are not part of the response."""
        ...

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return the request fields that constrain decoding; none for `off`.

        Raises:
            UsageError: this dialect has no such constraint.
        """
        ...

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the whole prompt text, with exactly one begin-of-sequence token."""
        ...

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return what a model of this family would write to make this call."""
        ...

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text and calls of a complete response. Never raises."""
        ...

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response."""
        ...


def spec_of(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool as a plain `{"name", "description", "parameters"}` mapping."""
    if isinstance(tool, ToolDefinition):
        return {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
    return {key: tool[key] for key in ("name", "description", "parameters") if key in tool}


def unconstrained(dialect: str, constraint: Constraint) -> Mapping[str, Any]:
    """Return no request fields: for a dialect that knows no constraint but `off`.

    Raises:
        UsageError: any other constraint.
    """
    if constraint != "off":
        raise UsageError(f"the dialect {dialect} cannot be constrained: give --constrain off")
    return {}


# Gemma 3's turn markup: roles alternate, one `<bos>`, and nobody else may write control tokens.
#
# Everything inside a turn is defused here, in one place, so that no caller can forget it.
#
# Source: Gemma 3's formatting (user and model turns only; the system text opens the first user
# turn). Not a chat template: it is rendered here so that the prompt is ours to the byte.


BOS = "<bos>"
START_OF_TURN_ID = 105
END_OF_TURN_ID = 106

CONTROL_TOKEN = re.compile(
    r"<(?=/?(?:bos|eos|pad|unk|mask|start_of_turn|end_of_turn|start_of_image|end_of_image"
    r"|image_soft_token|unused\d+)>)"
)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_TURN_END = "<end_of_turn>\n"
_MODEL_START = "<start_of_turn>model\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTurn:
    """One turn; `role` is `user` or `model`."""

    role: str
    text: str


def defused(text: str) -> str:
    """Return `text` without control tokens: `<end_of_turn>` becomes `< end_of_turn>`.

    User text, tool data and model text are untrusted. Without this they could close a turn and
    speak in another role. A lone surrogate, which vLLM refuses with HTTP 400, becomes U+FFFD.
    """
    return CONTROL_TOKEN.sub("< ", _LONE_SURROGATE.sub("\ufffd", text))


def render_turns(turns: Iterable[PromptTurn]) -> str:
    """Return the prompt for the model's next turn; neighbours of one role are merged.

    A longer conversation's prompt begins with a shorter one's up to its open model turn, so that
    the server finds it in its prefix cache (up to the end of the text where turns are merged).
    """
    blocks = [
        f"<start_of_turn>{turn.role}\n{defused(turn.text)}{_TURN_END}" for turn in _merged(turns)
    ]
    return BOS + "".join(blocks) + _MODEL_START


def _merged(turns: Iterable[PromptTurn]) -> list[PromptTurn]:
    merged: list[PromptTurn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            text = f"{merged[-1].text}\n\n{turn.text}"
            merged[-1] = PromptTurn(role=turn.role, text=text)
        else:
            merged.append(turn)
    return merged
