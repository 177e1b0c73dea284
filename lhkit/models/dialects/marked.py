"""Parse the native markup of FunctionGemma and Gemma 4: calls and thinking between tokens.

A call is complete at its end token, outside of any string. If a string lacks its delimiter, the
call ends at the end token inside that string as soon as a start token or the end of the response
follows, so that it does not swallow the next call. Other control tokens stay in the text, so that
leaks are visible.

A call inside a thinking channel is only mentioned, not made, if the channel is closed after it. If
the channel is never closed, whole and well-formed calls in it are calls; they stay in the text of
the thinking too.

Repairs: `in_thinking` (in a channel that is not closed), `no_call_prefix`, `no_arguments`,
`bare_string`, `python_literal`, `trailing_comma`, `duplicate_key`, `bad_escape`,
`control_character`, `single_quoted`, `other_quotes`, `json_object` (an object as in the dialect
`json`, with its repairs), `malformed`. A string in JSON quotes is our extension
(`markup`) and not a repair.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from lhkit.base.json_values import JSON, plain_json
from lhkit.conversation.messages import Message, ToolCall
from lhkit.models.dialects.arguments import read_arguments
from lhkit.models.dialects.base import Dialect, ToolSpec
from lhkit.models.dialects.declaration import undeclared_parameters
from lhkit.models.dialects.markup import Markup, render_call
from lhkit.models.dialects.native_prompt import render_prompt
from lhkit.models.dialects.objects import read_calls
from lhkit.models.dialects.parser import IncrementalParser, OpenCall, ParseResult
from lhkit.models.dialects.thinking import TaggedThinkingParser, calls_in_thinking
from lhkit.models.dialects.values import (
    JSON_WORDS,
    PYTHON_WORDS,
    Notation,
    ValueReader,
    read_other_quotes,
    read_quoted,
    unescape,
)

_HEAD = re.compile(r"\s*(?:(?P<prefix>call:)|:)?\s*(?P<name>[^\s{}<>:()=\"']+)\s*(?P<brace>\{)?")
_MAX_NAME_CHARS = 64

_SINGLE_QUOTED = re.compile(
    r"'(?P<text>(?:[^'\\,:\[{]|\\.|[,:\[{](?!\s*')|'(?!\s*(?:[,:\]}]|\Z)))*)"
    r"(?:'(?=\s*[,:\]}])|(?P<next>[,:\[{]))?",
    re.DOTALL,
)
"""A string in single quotes, which ends at a quote before a comma, colon or bracket.

Other apostrophes are text. `next` matches if the string does not end before the next one starts.
"""


@dataclass(frozen=True, kw_only=True)
class MarkedDialect(Dialect):
    """A dialect with calls of the form `call:NAME{…}` between the tokens of `markup`."""

    name: str
    markup: Markup
    stop_token_ids: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the prompt, instructions and tools first."""
        return render_prompt(self.markup, messages, tools, instructions)

    def undeclared_parameters(self, tools: Sequence[ToolSpec]) -> Mapping[str, Sequence[str]]:
        """Return the parameters that the template leaves out, as they are called like a keyword."""
        return undeclared_parameters(self.markup, tools)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the text of a call.

        Raises:
            NotJsonError: the arguments are not JSON.
        """
        return render_call(self.markup, name, args)

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; it does not need the tools."""
        return _MarkedParser(self.markup)


class _MarkedParser(TaggedThinkingParser):
    def __init__(self, markup: Markup) -> None:
        super().__init__()
        self._markup = markup
        self._starts = (markup.call[0], *markup.thinking[0])
        self._is_thinking = False
        self._channel_start = 0  # of the open channel, in `_thinking`

    def close(self) -> ParseResult:
        """Return the whole result, with the calls of a thinking channel that is still open."""
        self._scan(is_final=True)
        if self._is_thinking:
            without_thinking = replace(self._markup, thinking=((), ""))
            text = "".join(self._thinking[self._channel_start :])
            self._begin_source(text)
            for call in calls_in_thinking(_MarkedParser(without_thinking), text):
                self._add_call(call)
            self._is_thinking = False
        return super().close()

    def _another(self) -> TaggedThinkingParser:
        return _MarkedParser(self._markup)

    def _step_text(self, *, is_final: bool) -> bool:
        start = self._at
        if self._is_thinking:
            text, token = self._take_until((self._markup.thinking[1],), is_final=is_final)
            self._add_thinking(text)
            self._is_thinking = not token
        else:
            text, token = self._take_until(self._starts, is_final=is_final)
            self._add_text(text)
            if token == self._markup.call[0]:
                self._open = _MarkedCall(self._markup)
            elif token:
                self._prose.interrupt()
                self._is_thinking = True
                self._channel_start = len(self._thinking)
        return self._at > start

    def _take(self, call: OpenCall) -> int:
        raw = call.raw[: call.boundary]
        name, args, repairs = read_marked(raw, self._markup)
        if call.boundary is not None:
            args, repairs = raw, ("malformed",)
        self._add_call(ToolCall(name=name, args=args, raw=raw, repairs=repairs))
        return len(raw)

    def _take_until(self, tokens: tuple[str, ...], *, is_final: bool) -> tuple[str, str]:
        """Consume and return (text, token); the token is empty if there is none yet."""
        safe = len(self._pending) if is_final else _undecided(self._pending, self._at, tokens)
        match = _any_of(tokens).search(self._pending, self._at, safe)
        text = self._consume(match.start() if match else safe)
        self._at = match.end() if match else safe
        return text, match.group() if match else ""


class _MarkedCall(OpenCall):
    """A call between tokens. Visits each character once.

    Its boundary is after the first end token in the open string, or before a start token outside
    of one.
    """

    def __init__(self, markup: Markup) -> None:
        super().__init__(markup.call[0])
        self._start, self._end = markup.call
        self._quote = markup.quote
        self._tokens = (self._quote, *markup.call)
        self._inside = ""  # the delimiter of the open string
        self._may_open = False  # a string in JSON quotes may start here

    def _follow(self, text: str, start: int) -> int:
        at = start
        safe = self._safe(text, at)
        while not self.is_complete and (match := self._pattern().search(text, at, safe)):
            at = match.end()
            if match.group() != self._start:
                self._take(match.group(), self._length + at - start)
            elif self.boundary is not None or not self._inside:
                at = match.start()
                self.is_complete = True
                if self.boundary is None:
                    self.boundary = self._length + at - start
        return at if self.is_complete else safe

    def _safe(self, text: str, at: int) -> int:
        end = _undecided(text, at, self._tokens)
        first_slash = end
        while first_slash > at and text[first_slash - 1] == "\\":
            first_slash -= 1
        return end - (end - first_slash) % 2  # an escape needs its next character

    def _pattern(self) -> re.Pattern[str]:
        if self._inside == '"':
            return _in_json_string(self._start, self._end)
        if self._inside:
            return _any_of(self._tokens)
        return _outside(self._tokens)

    def _take(self, piece: str, end: int) -> None:
        """Process a token, mark or word that ends after `end` characters of the call."""
        if self._inside and piece == self._end:
            self.boundary = self.boundary or end
        elif self._inside and piece == self._inside:
            self._inside = ""
            self.boundary = None
        elif self._inside:
            return
        elif piece == self._end:
            self.is_complete = True
        elif piece == self._quote or (piece == '"' and self._may_open):
            self._inside = piece
            self._may_open = False
        else:
            self._may_open = piece in {":", ",", "{", "["}


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
    """Return where a token starts that more input could complete, or the end of the text."""
    start = text.rfind("<", max(at, len(text) - max(map(len, tokens)) + 1))
    tail = text[start:]
    if start >= 0 and any(token.startswith(tail) and token != tail for token in tokens):
        return start
    return len(text)


def read_marked(raw: str, markup: Markup) -> tuple[str, Any, tuple[str, ...]]:
    """Return (name, arguments, repairs) of a call from its start token to its end token.

    A malformed call has `raw` as its arguments, so that validation reports it to the model. Never
    raises.
    """
    start, end = markup.call
    body = raw.removeprefix(start).removesuffix(end)
    head = _HEAD.match(body)
    if head is None:
        calls = read_calls(body.strip()) if body.lstrip().startswith(("{", "[")) else ()
        if len(calls) == 1:
            name, args, codes = calls[0]
            return name, args, ("json_object", *codes)
        return body.strip()[:_MAX_NAME_CHARS], raw, ("malformed",)
    name = head.group("name")
    repairs = [] if head.group("prefix") else ["no_call_prefix"]
    try:
        args = _arguments(body, head, markup.quote, repairs)
    except (ValueError, RecursionError):  # also NotJsonError and integers with too many digits
        return name, raw, ("malformed",)
    return name, args, tuple(dict.fromkeys(repairs))


def _arguments(body: str, head: re.Match[str], quote: str, repairs: list[str]) -> Any:
    args: Any = {}
    end = head.end()
    if head.group("brace") is None and body[end:].strip():
        written, end = ValueReader(body, _notation(quote), repairs).value(end)
        args, codes = read_arguments(written)
        if not isinstance(args, dict):
            raise ValueError("no object")
        repairs += ["string_parameters", *codes]
    elif head.group("brace") is None:
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
        if other := read_other_quotes(text, at):
            return other
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
        ValueError: another string starts before this one ends.
    """
    match = _SINGLE_QUOTED.match(text, at)
    if match is None or match.group("next"):
        raise ValueError("a string without end")
    if match.end() == match.end("text"):
        return None
    value, repairs = unescape(match.group("text"))
    return value, match.end(), ("single_quoted", *repairs)
