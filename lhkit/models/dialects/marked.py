"""A dialect made of a family's markup: what FunctionGemma and Gemma 4 have in common.

Calls and thinking are found in what a model writes, while it writes. A call is one only when its
end token has come, outside of any string. A string that lacks a delimiter cannot swallow the next
call: if a start token or the end of the response comes while it is open, the call has ended at the
end token inside of it. A control token that means nothing here stays in the text: a leak must be
seen.

Repairs: `no_call_prefix`, `no_arguments`, `bare_string`, `python_literal`, `trailing_comma`,
`duplicate_key`, `bad_escape`, `control_character`, `single_quoted`, `malformed`. A string in
JSON quotes is our own extension (`markup`) and no repair.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from lhkit.json_values import JSON, plain_json
from lhkit.messages import Message, ToolCall
from lhkit.models.dialects.base import Dialect, ToolSpec
from lhkit.models.dialects.markup import Markup, render_call, render_prompt
from lhkit.models.dialects.parser import IncrementalParser, OpenCall
from lhkit.models.dialects.values import (
    JSON_WORDS,
    PYTHON_WORDS,
    Notation,
    ValueReader,
    read_quoted,
    unescaped,
)

_HEAD = re.compile(r"\s*(?P<prefix>call:)?\s*(?P<name>[^\s{}<>:]+)\s*(?P<brace>\{)?")
_MAX_NAME_CHARS = 64

_SINGLE_QUOTED = re.compile(
    r"'(?P<text>(?:[^'\\,:\[{]|\\.|[,:\[{](?!\s*')|'(?!\s*(?:[,:\]}]|\Z)))*)"
    r"(?:'(?=\s*[,:\]}])|(?P<next>[,:\[{]))?",
    re.DOTALL,
)
"""A string in single quotes, which ends where a comma, colon or bracket follows the quote.

An apostrophe inside of it is text. `next`: it has no end before the next one begins.
"""


@dataclass(frozen=True, kw_only=True)
class MarkedDialect(Dialect):
    """Speaks a format of `call:NAME{…}` between tokens; `markup` holds the tokens."""

    name: str
    markup: Markup
    stop_token_ids: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the prompt: instructions and tools first, so that all chats share a prefix."""
        return render_prompt(self.markup, messages, tools, instructions)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call in the model's own format.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return render_call(self.markup, name, args)

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; the markup needs no names."""
        return _MarkedParser(self.markup)


class _MarkedParser(IncrementalParser):
    def __init__(self, markup: Markup) -> None:
        super().__init__()
        self._markup = markup
        self._starts = (markup.call[0], *markup.thinking[0])
        self._is_thinking = False

    def _step(self, *, is_final: bool) -> bool:
        start = self._at
        if self._is_thinking:
            thought, token = self._take_until((self._markup.thinking[1],), is_final=is_final)
            self._think(thought)
            self._is_thinking = not token
        else:
            words, token = self._take_until(self._starts, is_final=is_final)
            self._say(words)
            self._begin(token)
        return self._at > start

    def _begin(self, token: str) -> None:
        if token == self._markup.call[0]:
            self._open = _MarkedCall(self._markup)
        elif token:
            self._prose.cut()
            self._is_thinking = True

    def _take(self, call: OpenCall) -> int:
        raw = call.raw[: call.boundary]
        name, args, repairs = read_marked(raw, self._markup)
        if call.boundary is not None:
            args, repairs = raw, ("malformed",)
        self._make(ToolCall(name=name, args=args, raw=raw, repairs=repairs))
        return len(raw)

    def _take_until(self, tokens: tuple[str, ...], *, is_final: bool) -> tuple[str, str]:
        """Consume (words, token); the token is empty if none has come."""
        safe = len(self._pending) if is_final else _undecided(self._pending, self._at, tokens)
        found = _any_of(tokens).search(self._pending, self._at, safe)
        words = self._consume(found.start() if found else safe)
        self._at = found.end() if found else safe
        return words, found.group() if found else ""


class _MarkedCall(OpenCall):
    """A call between tokens. Each character is looked at once.

    Its boundary is after the first end token in the open string, or before a start token outside
    of one.
    """

    def __init__(self, markup: Markup) -> None:
        super().__init__(markup.call[0])
        self._start, self._end = markup.call
        self._quote = markup.quote
        self._tokens = (self._quote, *markup.call)
        self._inside = ""  # the delimiter of the string we are in
        self._opens = False  # a string in JSON quotes may begin here

    def _follow(self, text: str, start: int) -> int:
        at = start
        safe = self._safe(text, at)
        while not self.is_complete and (found := self._pattern().search(text, at, safe)):
            at = found.end()
            if found.group() != self._start:
                self._take(found.group(), self._length + at - start)
            elif self.boundary is not None or not self._inside:
                at = found.start()
                self.is_complete = True
                if self.boundary is None:
                    self.boundary = self._length + at - start
        return at if self.is_complete else safe

    def _safe(self, text: str, at: int) -> int:
        end = _undecided(text, at, self._tokens)
        first_slash = end
        while first_slash > at and text[first_slash - 1] == "\\":
            first_slash -= 1
        return end - (end - first_slash) % 2  # an escape is decided with the next character

    def _pattern(self) -> re.Pattern[str]:
        if self._inside == '"':
            return _in_json_string(self._start, self._end)
        if self._inside:
            return _any_of(self._tokens)
        return _outside(self._tokens)

    def _take(self, piece: str, end: int) -> None:
        """Take in a token, a mark or a word that ends after `end` characters of the call."""
        if self._inside and piece == self._end:
            self.boundary = self.boundary or end
        elif self._inside and piece == self._inside:
            self._inside = ""
            self.boundary = None
        elif self._inside:
            return
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
def _outside(tokens: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(_any_of(tokens).pattern + r'|[:,{\["<]|[^\s:,{\["<]+')


@cache
def _in_json_string(*tokens: str) -> re.Pattern[str]:
    return re.compile(_any_of(tokens).pattern + r'|"|\\.', re.DOTALL)


def _undecided(text: str, at: int, tokens: tuple[str, ...]) -> int:
    """Return where a token begins that more input could complete, or the end of the text."""
    start = text.rfind("<", max(at, len(text) - max(map(len, tokens)) + 1))
    tail = text[start:]
    if start >= 0 and any(token.startswith(tail) and token != tail for token in tokens):
        return start
    return len(text)


def read_marked(raw: str, markup: Markup) -> tuple[str, Any, tuple[str, ...]]:
    """Return (name, arguments, repairs) of a call from its start token to its end token.

    What makes no sense keeps `raw` as its arguments, so that validation can tell the model.
    Never raises.
    """
    start, end = markup.call
    body = raw.removeprefix(start).removesuffix(end)
    head = _HEAD.match(body)
    if head is None:
        return body.strip()[:_MAX_NAME_CHARS], raw, ("malformed",)
    name = head.group("name")
    repairs = [] if head.group("prefix") else ["no_call_prefix"]
    try:
        args = _arguments(body, head, markup.quote, repairs)
    except (ValueError, RecursionError):  # also NotJsonError, and integers too long to read
        return name, raw, ("malformed",)
    return name, args, tuple(dict.fromkeys(repairs))


def _arguments(body: str, head: re.Match[str], quote: str, repairs: list[str]) -> Any:
    args: Any = {}
    end = head.end()
    if head.group("brace") is None:
        repairs.append("no_arguments")
    else:
        args, end = ValueReader(body, _notation(quote), repairs).value(end - 1)
    if body[end:].strip():
        raise ValueError(body[end:])
    return plain_json(args)


@cache
def _notation(quote: str) -> Notation:
    def read_string(text: str, at: int) -> tuple[str, int, tuple[str, ...]] | None:
        if text.startswith('"', at):
            return read_quoted(text, at)
        if text.startswith("'", at):
            return _read_single_quoted(text, at)
        if not text.startswith(quote, at):
            return None
        start = at + len(quote)
        end = text.index(quote, start)
        return text[start:end], end + len(quote), ()

    return Notation(
        read_string=read_string,
        words=JSON_WORDS,
        foreign=PYTHON_WORDS,
        foreign_name="python_literal",
        has_bare_text=True,
    )


def _read_single_quoted(text: str, at: int) -> tuple[str, int, tuple[str, ...]] | None:
    """Return the string whose single quote is at `at`; None if it is an apostrophe of bare text.

    Raises:
        ValueError: another string begins before this one ends.
    """
    found = _SINGLE_QUOTED.match(text, at)
    if found is None or found.group("next"):
        raise ValueError("a string without end")
    if found.end() == found.end("text"):
        return None
    value, repairs = unescaped(found.group("text"))
    return value, found.end(), ("single_quoted", *repairs)
