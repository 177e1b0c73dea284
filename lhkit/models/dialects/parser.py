"""Reads one response chunk by chunk: words, thinking and calls, as they become certain."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lhkit.messages import ToolCall
from lhkit.responses import TextDelta, ThinkingDelta, ToolCallParsed

ParsedEvent: TypeAlias = TextDelta | ThinkingDelta | ToolCallParsed
"""What has become certain of a response while it streams."""

BRACES = "{}"
ALL_BRACKETS = "()[]{}"

NextCall: TypeAlias = Literal["no", "wait", "maybe", "yes"]
"""Whether the next call begins at a bracket: `maybe` if only in case that the open one is damaged,
`wait` if more input is needed."""

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


class OpenCall(ABC):
    """A call that has begun, followed to its end however it is cut.

    `boundary` is the length of `raw` at which the call ends if it is damaged, None if there is no
    such place. What follows is read anew: a delimiter that the model left out must not swallow the
    next call.
    """

    def __init__(self, begun: str = "") -> None:
        self._parts = [begun]
        self._length = len(begun)
        self.boundary: int | None = None
        self.is_complete = False

    @property
    def raw(self) -> str:
        """The text of the call so far."""
        return "".join(self._parts)

    def feed(self, text: str, at: int) -> int:
        """Take in what is decided of `text` from `at` on; return where the undecided begins."""
        end = self._follow(text, at)
        self._parts.append(text[at:end])
        self._length += end - at
        return end

    @abstractmethod
    def _follow(self, text: str, start: int) -> int:
        """Return where the decided ends; note there whether the call is complete."""


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


class OpenBrackets(OpenCall):
    """A text of `brackets` that has begun. Each character is looked at once.

    Brackets inside strings do not count. Single quotes delimit strings too, where a value or key
    can begin: valid JSON has none outside of strings, and models write Python. If a bracket or a
    quote is missing, the text ends where the next call begins (`_next_call`).
    """

    def __init__(self, brackets: str = ALL_BRACKETS) -> None:
        super().__init__()
        self._counted = brackets
        self._depth = 0
        self._open: list[str] = []  # every bracket that is open
        self._quote = ""
        self._last = ""  # the character before, outside of strings and white space
        self._before_string = ""  # the one before the last string
        self._last_inside = ""  # the character before in the open string, without white space
        self._is_escaped = False

    @abstractmethod
    def _next_call(self, text: str, at: int) -> NextCall:
        """Return whether the bracket at `at` begins the next call, since this one is damaged."""

    def _follow(self, text: str, start: int) -> int:
        at = start
        if self._is_escaped and at < len(text):
            self._is_escaped = False
            at += 1
        while match := (_INSIDE[self._quote] if self._quote else _OUTSIDE).search(text, at):
            piece = match.group()
            found = self._next_call(text, match.start()) if piece in _OPENING else "no"
            if found == "wait":
                return match.start()
            if found != "no" and self.boundary is None:
                self.boundary = self._length + match.start() - start
            if found == "yes":
                self.is_complete = True
                return match.start()
            at = match.end()
            if piece == "\\":
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
        """Take in a mark or a word; return True for the last bracket."""
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
        """Close the innermost bracket of a kind; a brace closes lists that lack their end."""
        while bracket == "}" and self._open[-1:] == ["["]:
            self._open.pop()
        if self._open[-1:] == [_PAIRS[bracket]]:
            self._open.pop()
