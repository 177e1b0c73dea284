"""Reads one response chunk by chunk: words, thinking and calls, as they become certain."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from lhkit.messages import ToolCall
from lhkit.responses import TextDelta, ThinkingDelta, ToolCallParsed

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
