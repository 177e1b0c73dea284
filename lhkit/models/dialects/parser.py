"""Parse one response incrementally: text, thinking and calls, as soon as they are certain."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lhkit.conversation.messages import ToolCall
from lhkit.conversation.responses import TextDelta, ThinkingDelta, ToolCallParsed

ParsedEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallParsed
"""A part of a streamed response that later chunks cannot change."""

Span: TypeAlias = tuple[int, int]
"""Start and end of a part of a text, in characters."""

BRACES = "{}"
ALL_BRACKETS = "()[]{}"

NextCall: TypeAlias = Literal["no", "wait", "maybe", "yes"]
"""Whether the next call starts at a bracket: `maybe` if it does so only in case the open call is
malformed, `wait` if more input is needed."""

_PAIRS = {")": "(", "]": "[", "}": "{"}
_OPENING = frozenset(_PAIRS.values())
_OUTSIDE = re.compile(r"""["'()\[\]{}:,=]|[^\s"'()\[\]{}:,=]+""")
_INSIDE = {
    '"': re.compile(r'["\\\[{]|[^\s"\\\[{]+'),
    "'": re.compile(r"['\\\[{]|[^\s'\\\[{]+"),
}
_BEFORE_SINGLE_QUOTE = frozenset("([{,:=\"'")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseResult:
    """A parsed response.

    Attributes:
        text: the text for the user.
        calls: the complete calls, in order.
        fragment: the raw text of a call that is cut off at the end of the response; else empty.
        thinking: the text of the model's thinking channel.
        spans: for each call, start and end of its `raw` in the response, in characters; None if it
            is not in there.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    fragment: str = ""
    thinking: str = ""
    spans: tuple["Span | None", ...] = field(default=(), compare=False, repr=False)

    @property
    def truncated(self) -> bool:
        """True if the response ends inside a call."""
        return bool(self.fragment)


class OpenCall(ABC):
    """Finds the end of a call that has started, in any chunks.

    Attributes:
        boundary: the length of `raw` at which the call ends if it is malformed, so that a missing
            delimiter does not swallow the next call; None if there is none. The text after it is
            parsed again.
        is_complete: the end has been found.
    """

    def __init__(self, start: str = "") -> None:
        self._parts = [start]
        self._length = len(start)
        self.boundary: int | None = None
        self.is_complete = False

    @property
    def raw(self) -> str:
        """The text of the call so far."""
        return "".join(self._parts)

    def feed(self, text: str, at: int) -> int:
        """Consume the decided part of `text` from `at`; return the index of the undecided rest."""
        end = self._follow(text, at)
        self._parts.append(text[at:end])
        self._length += end - at
        return end

    @abstractmethod
    def _follow(self, text: str, start: int) -> int:
        """Return the end of the decided part; set `is_complete` if the call ends there."""


class IncrementalParser(ABC):
    """Parses one response chunk by chunk, in time linear in its length.

    Results do not depend on the chunking: whole texts are one chunk. A dialect implements `_step`,
    which decides the next piece of text, and `_take`, which parses a complete call.
    """

    def __init__(self) -> None:
        self._pending = ""  # the undecided text starts at `_at`
        self._at = 0
        self._open: OpenCall | None = None
        self._prose = _Prose()
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._spans: list[Span | None] = []
        self._fed = 0
        self._source, self._source_start, self._source_at = "", 0, 0  # see `_begin_source`
        self._events: list[ParsedEvent] = []

    def feed(self, chunk: str) -> Sequence[ParsedEvent]:
        """Return the events that are certain after this chunk."""
        self._events = []
        self._fed += len(chunk)
        self._pending += chunk
        self._scan(is_final=False)
        return self._events

    def close(self) -> ParseResult:
        """Return the whole result, equal to `Dialect.parse` of all chunks joined.

        It may have more text and, after a malformed call, more calls than the events so far.
        """
        self._events = []
        self._scan(is_final=True)
        return ParseResult(
            text=self._prose.text,
            calls=tuple(self._calls),
            fragment=self._open.raw + self._pending if self._open else "",
            thinking="".join(self._thinking),
            spans=tuple(self._spans),
        )

    def whole(self, raw: str) -> ParseResult:
        """Return the result of a complete response."""
        self.feed(raw)
        return self.close()

    @abstractmethod
    def _step(self, *, is_final: bool) -> bool:
        """Decide the next piece of `_pending` at `_at`; return False if more input is needed.

        Sets `_open` to a call that starts here. With `is_final` everything must be decided.
        """

    @abstractmethod
    def _take(self, call: OpenCall) -> int:
        """Parse the call that has ended; return how much of its raw text belongs to it."""

    def _consume(self, end: int) -> str:
        text = self._pending[self._at : end]
        self._at = end
        return text

    def _add_text(self, text: str) -> str:
        """Add text for the user; return the part of it that is certain."""
        certain = self._prose.add(text)
        if certain:
            self._events.append(TextDelta(text=certain))
        return certain

    def _add_thinking(self, text: str) -> None:
        if text:
            self._thinking.append(text)
            self._events.append(ThinkingDelta(text=text))

    def _begin_source(self, source: str) -> None:
        """Note that the next calls are parsed from `source`, which ends at the current position."""
        self._source, self._source_at = source, 0
        self._source_start = self._position - len(source)

    @property
    def _position(self) -> int:
        """The current position in the response, in characters."""
        return self._fed - len(self._pending) + self._at

    def _span(self, raw: str) -> Span | None:
        """Return the place of the next call; several calls of one object share theirs."""
        at = self._source.find(raw, self._source_at)
        at = self._source.find(raw) if at < 0 else at
        self._source_at = at + len(raw)
        start = self._source_start + at
        return None if at < 0 else (start, start + len(raw))

    def _add_call(self, call: ToolCall) -> None:
        self._prose.interrupt()
        self._calls.append(call)
        self._spans.append(self._span(call.raw))
        self._events.append(ToolCallParsed(call=call))

    def _scan(self, *, is_final: bool) -> None:
        while True:
            call = self._open
            if self._at == len(self._pending):
                has_advanced = False
            elif call is None:
                has_advanced = self._step(is_final=is_final)
            else:
                has_advanced = self._follow(call)
            if not has_advanced and is_final and call is not None and call.boundary is not None:
                self._end(call)
            elif not has_advanced:
                break
        self._pending = self._pending[self._at :]
        self._at = 0

    def _follow(self, call: OpenCall) -> bool:
        self._at = call.feed(self._pending, self._at)
        if call.is_complete:
            self._end(call)
        return call.is_complete

    def _end(self, call: OpenCall) -> None:
        """Parse a call that has ended, and continue where its own text ends."""
        self._open = None
        raw = call.raw
        self._begin_source(raw)
        rest = raw[self._take(call) :]
        if len(rest) > self._at:  # the call started in an earlier chunk
            self._pending = rest + self._pending[self._at :]
            self._at = 0
        else:
            self._at -= len(rest)


class _Prose:
    """The text around calls, trimmed at both ends and at each call.

    White space is held back until other text follows it.

    Attributes:
        is_after_call: a call or thinking was the last thing before the next text.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._spaces: list[str] = []
        self.is_after_call = False

    @property
    def text(self) -> str:
        """All text so far."""
        return "".join(self._pieces)

    def add(self, text: str) -> str:
        """Add text; return the part that is certain now."""
        stripped = text.rstrip()
        if not stripped:
            self._spaces.append(text)
            return ""
        piece = "".join(self._spaces) + stripped
        self._spaces = [text[len(stripped) :]]
        if not self._pieces or self.is_after_call:
            piece = ("\n" if self._pieces else "") + piece.lstrip()
        self.is_after_call = False
        self._pieces.append(piece)
        return piece

    def interrupt(self) -> None:
        """Trim white space here, because a call or thinking follows."""
        self.is_after_call = True
        self._spaces = []


class OpenBrackets(OpenCall):
    """A call that ends with the last of its `brackets`. Visits each character once.

    Brackets inside strings do not count. Where a value or key may start, single quotes delimit
    strings as well, because models write Python. If a bracket or quote is missing, the call ends
    where the next one starts (`_next_call`).
    """

    def __init__(self, brackets: str = ALL_BRACKETS) -> None:
        super().__init__()
        self._counted = brackets
        self._depth = 0
        self._open: list[str] = []  # the open brackets
        self._quote = ""
        self._last = ""  # the last character outside of strings and white space
        self._before_string = ""  # the one before the last string
        self._last_inside = ""  # the last character in the open string, without white space
        self._is_escaped = False

    @abstractmethod
    def _next_call(self, text: str, at: int) -> NextCall:
        """Return whether the bracket at `at` starts the next call."""

    def _follow(self, text: str, start: int) -> int:
        at = start
        if self._is_escaped and at < len(text):
            self._is_escaped = False
            at += 1
        while match := (_INSIDE[self._quote] if self._quote else _OUTSIDE).search(text, at):
            piece = match.group()
            answer = self._next_call(text, match.start()) if piece in _OPENING else "no"
            if answer == "wait":
                return match.start()
            if answer != "no" and self.boundary is None:
                self.boundary = self._length + match.start() - start
            if answer == "yes":
                self.is_complete = True
                return match.start()
            at = match.end()
            if self._quote and piece == "\\":
                self._last_inside = piece
                self._is_escaped = at == len(text)
                at += 1
            elif self._quote:
                self._take_inside(piece)
            elif self._take_outside(piece):
                self.is_complete = True
                return at
        return len(text)

    def _take_inside(self, piece: str) -> None:
        self._last_inside = piece[-1]
        if piece == self._quote:
            self._last = piece
            self._quote = ""

    def _take_outside(self, piece: str) -> bool:
        """Process a mark or word outside of strings; return True for the last bracket."""
        before, self._last = self._last, piece[-1]
        if piece == '"' or (piece == "'" and before in _BEFORE_SINGLE_QUOTE):
            self._quote = piece
            self._before_string = before
            self._last_inside = ""
        elif piece in _OPENING:
            self._open.append(piece)
            self._depth += piece in self._counted
        elif piece in _PAIRS:
            self._close(piece)
            self._depth -= piece in self._counted
            return self._depth == 0 and piece in self._counted
        return False

    def _close(self, bracket: str) -> None:
        """Close the innermost bracket of a kind; a brace also closes lists without an end."""
        while bracket == "}" and self._open[-1:] == ["["]:
            self._open.pop()
        if self._open[-1:] == [_PAIRS[bracket]]:
            self._open.pop()
