"""What a dialect is: how a prompt is written and how its calls are read."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, assert_never

from lhkit.errors import UsageError
from lhkit.json_values import JSON, compact
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


class OpenCall(Protocol):
    """A call that has begun, followed to its end however it is cut."""

    @property
    def raw(self) -> str:
        """The text of the call so far."""
        ...

    @property
    def is_complete(self) -> bool:
        """True once its end has come."""
        ...

    @property
    def boundary(self) -> int | None:
        """Length of `raw` at which the call ends if it is damaged; None if there is no such place.

        What follows is read anew: a delimiter that the model left out must not swallow the next
        call.
        """
        ...

    def feed(self, text: str, at: int) -> int:
        """Take in what is decided of `text` from `at` on; return where the undecided begins."""
        ...


class IncrementalParser(ABC):
    """Reads one response, chunk by chunk, in time linear in its length.

    One machine serves streaming and whole texts, so both agree at every chunking. It keeps what is
    undecided, follows a call that has begun to its end, and gives out words when nothing can take
    them back. A dialect says what stands at a place (`_step`) and what a complete call means
    (`_take`).
    """

    def __init__(self) -> None:
        self._pending = ""  # what is not decided yet begins at `_at`
        self._at = 0
        self._open: OpenCall | None = None
        self._prose = _Prose()
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._events: list[ParsedEvent] = []

    def feed(self, chunk: str) -> Sequence[ParsedEvent]:
        """Return what has become certain with this chunk."""
        self._events = []
        self._pending += chunk
        self._scan(is_final=False)
        return self._events

    def close(self) -> ParseResult:
        """Return the whole result, equal to `Dialect.parse` of all chunks joined.

        The text may be longer than what `feed` gave out, and calls after a damaged one may be new:
        they were not certain before.
        """
        self._events = []
        self._scan(is_final=True)
        return ParseResult(
            text=self._prose.text,
            calls=tuple(self._calls),
            fragment=self._open.raw + self._pending if self._open else "",
            thinking="".join(self._thinking),
        )

    def whole(self, raw: str) -> ParseResult:
        """Return the result of a response that has come as one."""
        self.feed(raw)
        return self.close()

    @abstractmethod
    def _step(self, *, is_final: bool) -> bool:
        """Decide one piece of `_pending` at `_at`; False if more input is needed.

        A call that begins here is put into `_open`. With `is_final` everything is decided.
        """

    @abstractmethod
    def _take(self, call: OpenCall) -> int:
        """Take in the call that was open; return how much of its text belongs to it."""

    def _consume(self, end: int) -> str:
        taken = self._pending[self._at : end]
        self._at = end
        return taken

    def _say(self, text: str) -> str:
        """Take in words; return what of them is shown now."""
        shown = self._prose.say(text)
        if shown:
            self._events.append(TextDelta(text=shown))
        return shown

    def _think(self, text: str) -> None:
        if text:
            self._thinking.append(text)
            self._events.append(ThinkingDelta(text=text))

    def _make(self, call: ToolCall) -> None:
        self._prose.cut()
        self._calls.append(call)
        self._events.append(ToolCallParsed(call=call))

    def _scan(self, *, is_final: bool) -> None:
        while True:
            call = self._open
            if self._at == len(self._pending):
                is_on = False
            else:
                is_on = self._step(is_final=is_final) if call is None else self._follow(call)
            if not is_on and is_final and call is not None and call.boundary is not None:
                self._end(call)
            elif not is_on:
                break
        self._pending = self._pending[self._at :]
        self._at = 0

    def _follow(self, call: OpenCall) -> bool:
        self._at = call.feed(self._pending, self._at)
        if call.is_complete:
            self._end(call)
        return call.is_complete

    def _end(self, call: OpenCall) -> None:
        """Take in a call that has ended, and go back to where its own text ends."""
        self._open = None
        rest = call.raw[self._take(call) :]
        if len(rest) > self._at:  # it began in an earlier chunk
            self._pending = rest + self._pending[self._at :]
            self._at = 0
        else:
            self._at -= len(rest)


class _Prose:
    """The words around calls: trimmed at both ends and where a call stood, streamed as they settle.

    White space is held back until words follow it.
    """

    def __init__(self) -> None:
        self._said: list[str] = []
        self._spaces: list[str] = []
        self.at_seam = False
        """True if something that is not part of the words was the last."""

    @property
    def text(self) -> str:
        """All words so far."""
        return "".join(self._said)

    def say(self, text: str) -> str:
        """Take in text; return what can be shown now."""
        kept = text.rstrip()
        if not kept:
            self._spaces.append(text)
            return ""
        shown = "".join(self._spaces) + kept
        self._spaces = [text[len(kept) :]]
        if not self._said or self.at_seam:
            shown = ("\n" if self._said else "") + shown.lstrip()
        self.at_seam = False
        self._said.append(shown)
        return shown

    def cut(self) -> None:
        """Note that something stood here that is not part of the words."""
        self.at_seam = True
        self._spaces = []


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
_TURN_START = "<start_of_turn>"
_TURN_END = "<end_of_turn>\n"
_MODEL_START = f"{_TURN_START}model\n"
_RESULT = "Result of "


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
        f"{_TURN_START}{turn.role}\n{defused(turn.text)}{_TURN_END}" for turn in _merged(turns)
    ]
    return BOS + "".join(blocks) + _MODEL_START


def render_told_calls(
    messages: Iterable[Message],
    tools: Sequence[ToolSpec],
    instructions: str,
    *,
    protocol: str,
    written: Callable[[Sequence[ToolCallMessage]], Sequence[str]],
) -> str:
    """Return the prompt for a model without a tool format of its own, which is told `protocol`.

    Instructions and tools stand first, in the first user turn, so that all chats share a prefix.
    `written` gives the lines of the calls of one model message; their results are a user turn.
    """
    preamble = [instructions.strip()] if instructions.strip() else []
    if tools:
        preamble.append("\n".join([protocol, *(compact(spec_of(tool)) for tool in tools)]))
    turns = [PromptTurn(role="user", text="\n\n".join(preamble))] if preamble else []
    for group in grouped(messages):
        match group:
            case UserMessage():
                turns.append(PromptTurn(role="user", text=words_of(group)))
            case ModelMessage(text=text):
                turns.append(PromptTurn(role="model", text=text))
            case list():
                said = [*(call.text for call in group if call.text), *written(group)]
                turns.append(PromptTurn(role="model", text="\n".join(said)))
                results = "\n".join(map(_result_line, group))
                turns.append(PromptTurn(role="user", text=results))
            case _:
                assert_never(group)
    return render_turns(turns)


def _result_line(message: ToolCallMessage) -> str:
    return f"{_RESULT}{message.name or 'the call'}: {result_text(message)}"


def _merged(turns: Iterable[PromptTurn]) -> list[PromptTurn]:
    merged: list[PromptTurn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            text = f"{merged[-1].text}\n\n{turn.text}"
            merged[-1] = PromptTurn(role=turn.role, text=text)
        else:
            merged.append(turn)
    return merged
