"""Finds marked calls and thinking in what a model writes, while it writes.

One scanner serves streaming and whole texts, so both agree at every chunking. A call is one only
when its end token has come, outside of any string. A control token that means nothing here stays
in the text: a leak must be seen.
"""

import re
from functools import cache

from lhkit.models.dialects.base import ParsedEvent, ParseResult
from lhkit.models.dialects.marked_values import read_marked
from lhkit.models.dialects.markup import Markup
from lhkit.models.dialects.prose import Prose
from lhkit.vocab.generation import TextDelta, ThinkingDelta, ToolCallParsed
from lhkit.vocab.messages import ToolCall

_JSON_STRING = re.compile(r'"|\\.', re.DOTALL)


class MarkedScanner:
    """Reads one response, chunk by chunk, in time linear in its length."""

    def __init__(self, markup: Markup) -> None:
        self._markup = markup
        self._starts = (markup.call[0], *markup.thinking[0])
        self._pending = ""  # what is not decided yet begins at `_at`
        self._at = 0
        self._call: _OpenCall | None = None
        self._is_thinking = False
        self._prose = Prose()
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._events: list[ParsedEvent] = []

    def feed(self, chunk: str) -> list[ParsedEvent]:
        """Return the text, thinking and calls that have become certain."""
        self._events = []
        self._pending += chunk
        self._scan(is_final=False)
        return self._events

    def close(self) -> ParseResult:
        """Return the whole result; what was undecided is decided now."""
        self._scan(is_final=True)
        return ParseResult(
            text=self._prose.text,
            calls=tuple(self._calls),
            fragment=self._call.raw if self._call else "",
            thinking="".join(self._thinking),
        )

    def _scan(self, *, is_final: bool) -> None:
        while self._at < len(self._pending):
            start = self._at
            if self._call is not None:
                self._follow(self._call, is_final=is_final)
            elif self._is_thinking:
                self._think(is_final=is_final)
            else:
                self._read(is_final=is_final)
            if self._at == start:
                break
        self._pending = self._pending[self._at :]
        self._at = 0

    def _read(self, *, is_final: bool) -> None:
        """Take words up to the next start token."""
        words, token = self._take_until(self._starts, is_final=is_final)
        if shown := self._prose.say(words):
            self._events.append(TextDelta(text=shown))
        if token:
            self._prose.cut()
            self._is_thinking = token != self._markup.call[0]
            self._call = None if self._is_thinking else _OpenCall(self._markup)

    def _think(self, *, is_final: bool) -> None:
        thought, token = self._take_until((self._markup.thinking[1],), is_final=is_final)
        if thought:
            self._thinking.append(thought)
            self._events.append(ThinkingDelta(text=thought))
        self._is_thinking = not token

    def _follow(self, call: "_OpenCall", *, is_final: bool) -> None:
        self._at = call.feed(self._pending, self._at, is_final=is_final)
        if not call.is_complete:
            return
        self._call = None
        name, args, repairs = read_marked(call.body, call.raw, self._markup.quote)
        parsed = ToolCall(name=name, args=args, raw=call.raw, repairs=repairs)
        self._calls.append(parsed)
        self._events.append(ToolCallParsed(call=parsed))

    def _take_until(self, tokens: tuple[str, ...], *, is_final: bool) -> tuple[str, str]:
        """Consume (words, token); the token is empty if none has come."""
        safe = len(self._pending) if is_final else _undecided(self._pending, self._at, tokens)
        found = _any_of(tokens).search(self._pending, self._at, safe)
        words = self._pending[self._at : found.start() if found else safe]
        self._at = found.end() if found else safe
        return words, found.group() if found else ""


class _OpenCall:
    """A call that has begun. Each character is looked at once."""

    def __init__(self, markup: Markup) -> None:
        self._start, self._end = markup.call
        self._quote = markup.quote
        self._parts: list[str] = []
        self._inside = ""  # the delimiter of the string we are in
        self._opens = False  # a string in JSON quotes may begin here
        self.is_complete = False

    @property
    def raw(self) -> str:
        """The text of the call so far, with its tokens."""
        return self._start + "".join(self._parts)

    @property
    def body(self) -> str:
        """What stands between the tokens."""
        return "".join(self._parts).removesuffix(self._end)

    def feed(self, text: str, at: int, *, is_final: bool) -> int:
        """Take in what is decided from `at` on; return where the undecided begins."""
        start = at
        safe = self._safe(text, at, is_final=is_final)
        while not self.is_complete and (found := self._pattern().search(text, at, safe)):
            at = found.end()
            self._take(found.group())
        end = at if self.is_complete else safe
        self._parts.append(text[start:end])
        return end

    def _safe(self, text: str, at: int, *, is_final: bool) -> int:
        if is_final:
            return len(text)
        slashes = len(text) - len(text.rstrip("\\"))
        if slashes % 2:
            return max(at, len(text) - 1)
        return _undecided(text, at, (self._quote, self._end))

    def _pattern(self) -> re.Pattern[str]:
        if self._inside == '"':
            return _JSON_STRING
        if self._inside:
            return _any_of((self._quote,))
        return _outside(self._quote, self._end)

    def _take(self, piece: str) -> None:
        if self._inside:
            self._inside = "" if piece == self._inside else self._inside
        elif piece == self._end:
            self.is_complete = True
        elif piece == self._quote or (piece == '"' and self._opens):
            self._inside = piece
            self._opens = False
        else:
            self._opens = piece in {":", ",", "{", "["}


@cache
def _any_of(tokens: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))


@cache
def _outside(quote: str, end: str) -> re.Pattern[str]:
    return re.compile(f"{re.escape(quote)}|{re.escape(end)}" + r'|[:,{\["<]|[^\s:,{\["<]+')


def _undecided(text: str, at: int, tokens: tuple[str, ...]) -> int:
    """Return where a token begins that more input could complete, or the end of the text."""
    start = text.rfind("<", max(at, len(text) - max(map(len, tokens)) + 1))
    tail = text[start:]
    if start >= 0 and any(token.startswith(tail) and token != tail for token in tokens):
        return start
    return len(text)
