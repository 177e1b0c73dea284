"""Calls between marker tokens: FunctionGemma's and Gemma 4's forms."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, assert_never

from lhkit.json_values import JSON, NotJsonError, compact, plain_json
from lhkit.messages import (
    Message,
    ModelMessage,
    ToolCall,
    ToolCallMessage,
    UserMessage,
)
from lhkit.models.dialects.base import (
    BOS,
    CONTROL_TOKEN,
    END_OF_TURN_ID,
    START_OF_TURN_ID,
    Constraint,
    Group,
    IncrementalParser,
    OpenCall,
    ParseResult,
    ToolSpec,
    grouped,
    is_writable,
    result_text,
    spec_of,
    unconstrained,
    words_of,
)
from lhkit.models.dialects.json import (
    JSON_WORDS,
    PYTHON_WORDS,
    Notation,
    ValueReader,
    quoted,
    read_quoted,
    unescaped,
)

# The tokens of a family that has its own call markup, and how its values are written.
#
# Shared by FunctionGemma and Gemma 4: `call:NAME{key:value}` with strings between two equal
# delimiter tokens, everything else as in JSON. Reading is in `marked_values`.


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_BARE_KEY = re.compile(r"[\w.\-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """One family's tokens; pairs are (start, end).

    `quote` stands before and after a string. `control` matches the `<` of every control token.
    `thinking` holds all spellings of the start, and the end; `preamble` opens the system turn
    where there are tools.
    """

    turn: tuple[str, str]
    system_role: str
    declaration: tuple[str, str]
    call: tuple[str, str]
    response: tuple[str, str]
    quote: str
    control: re.Pattern[str]
    thinking: tuple[tuple[str, ...], str] = ((), "")
    preamble: str = ""

    def defused(self, text: str) -> str:
        """Return `text` without control tokens: `<escape>` becomes `< escape>`."""
        return self.control.sub("< ", _LONE_SURROGATE.sub("\ufffd", text))

    def object(self, members: Mapping[str, Any]) -> str:
        r"""Return an object as text that reads back exactly.

        A string with a control token in it, such as the delimiter itself, is written in JSON
        quotes with `\u003c`; a key that is no plain word is written as a string. Both are our
        extension: the format has no word for them.

        Raises:
            NotJsonError: if JSON cannot carry a value.
        """
        return self._value(plain_json(members))

    def _value(self, plain: Any) -> str:
        if isinstance(plain, str):
            return self._string(plain)
        if isinstance(plain, dict):
            members = (f"{self._key(key)}:{self._value(item)}" for key, item in plain.items())
            return "{" + ",".join(members) + "}"
        if isinstance(plain, list):
            return "[" + ",".join(map(self._value, plain)) + "]"
        return compact(plain)

    def _key(self, key: str) -> str:
        return key if _BARE_KEY.fullmatch(key) else self._string(key)

    def _string(self, text: str) -> str:
        if self.control.search(text) or _LONE_SURROGATE.search(text):
            return quoted(text, self.control)
        return f"{self.quote}{text}{self.quote}"


# Reads `call:NAME{key:value}`: one complete call to its name and arguments, with repairs.
#
# Repairs: `no_call_prefix`, `no_arguments`, `bare_string`, `python_literal`, `trailing_comma`,
# `duplicate_key`, `bad_escape`, `control_character`, `single_quoted`, `malformed`. A string in
# JSON quotes is our own extension (`markup`) and no repair.


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


# The prompt of a family with its own call markup: one `<bos>`, system turn, turns, results.
#
# A result stands in the model's turn, which stays open until the model has answered. All that
# others wrote is defused here, in one place.


_SCHEMAS_BY_NAME = frozenset({"properties", "$defs", "patternProperties"})


def render_prompt(
    markup: Markup, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str
) -> str:
    """Return the prompt for what the model writes next.

    A longer conversation's prompt begins with a shorter one's up to its open model turn, so that
    the server finds it in its prefix cache.
    """
    groups = grouped(messages)
    parts = [BOS, _system_turn(markup, tools, instructions)]
    before: Group | None = None
    for group in groups:
        parts += [_between(markup, before, group), _body(markup, group)]
        before = group
    if not isinstance(before, list):
        parts.append(_ended(markup, before) + f"{markup.turn[0]}model\n")
    return "".join(parts)


def render_call(markup: Markup, name: str, args: Mapping[str, JSON]) -> str:
    """Return one call.

    Raises:
        NotJsonError: if JSON cannot carry the arguments.
    """
    start, end = markup.call
    return f"{start}call:{markup.defused(name)}{markup.object(args)}{end}"


def _system_turn(markup: Markup, tools: Sequence[ToolSpec], instructions: str) -> str:
    words = [markup.preamble] if markup.preamble and tools else []
    words += [markup.defused(instructions.strip())] if instructions.strip() else []
    declared = "".join(_declaration(markup, spec_of(tool)) for tool in tools)
    if not words and not declared:
        return ""
    start, end = markup.turn
    return f"{start}{markup.system_role}\n" + "\n".join(words) + f"{declared}{end}\n"


def _declaration(markup: Markup, spec: Mapping[str, Any]) -> str:
    start, end = markup.declaration
    rest = {key: value for key, value in spec.items() if key != "name"}
    if "parameters" in rest:
        rest["parameters"] = _schema(rest["parameters"])
    return f"{start}declaration:{markup.defused(str(spec.get('name')))}{markup.object(rest)}{end}"


def _schema(node: Any, *, is_by_name: bool = False) -> Any:
    """Return a JSON Schema with sorted keys and its types in upper case, as the families spell it.

    `is_by_name`: the keys are names of parameters, not words of JSON Schema.
    """
    if isinstance(node, list | tuple):
        return [_schema(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    return {
        key: _upper(node[key])
        if key == "type" and not is_by_name
        else node[key]
        if key in {"enum", "const", "default", "examples"} and not is_by_name
        else _schema(node[key], is_by_name=key in _SCHEMAS_BY_NAME and not is_by_name)
        for key in sorted(node)
    }


def _upper(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind.upper()
    return [_upper(each) for each in kind] if isinstance(kind, list | tuple) else kind


def _between(markup: Markup, before: Group | None, group: Group) -> str:
    """Return what stands between two groups: an end and a start, or nothing in an open turn."""
    is_users = isinstance(group, UserMessage)
    if before is None or is_users != isinstance(before, UserMessage):
        return _ended(markup, before) + f"{markup.turn[0]}{'user' if is_users else 'model'}\n"
    return "" if isinstance(before, list) else "\n\n"


def _ended(markup: Markup, before: Group | None) -> str:
    return "" if before is None else f"{markup.turn[1]}\n"


def _body(markup: Markup, group: Group) -> str:
    match group:
        case UserMessage():
            return markup.defused(words_of(group))
        case ModelMessage(text=text):
            return markup.defused(text)
        case list():
            said = [markup.defused(call.text) for call in group]
            written = [_written(markup, call) for call in group]
            return "".join([*said, *written, *(_response(markup, call) for call in group)])
        case _:
            assert_never(group)


def _written(markup: Markup, message: ToolCallMessage) -> str:
    """Return the call as it should have been written, or defused as it was if that cannot be."""
    if not is_writable(message):
        return markup.defused(message.raw)
    try:
        return render_call(markup, message.name, message.args)
    except NotJsonError:
        return markup.defused(message.raw)


def _response(markup: Markup, message: ToolCallMessage) -> str:
    start, end = markup.response
    name = markup.defused(message.name) or "unknown"
    result = json.loads(result_text(message))
    return f"{start}response:{name}{markup.object(result)}{end}"


# Finds marked calls and thinking in what a model writes, while it writes.
#
# A call is one only when its end token has come, outside of any string. A string that lacks a
# delimiter cannot swallow the next call: if a start token or the end of the response comes while it
# is open, the call has ended at the end token inside of it. A control token that means nothing here
# stays in the text: a leak must be seen.


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


class _MarkedCall:
    """A call that has begun. Each character is looked at once."""

    def __init__(self, markup: Markup) -> None:
        self._start, self._end = markup.call
        self._quote = markup.quote
        self._tokens = (self._quote, *markup.call)
        self._parts = [self._start]
        self._length = len(self._start)
        self._inside = ""  # the delimiter of the string we are in
        self._opens = False  # a string in JSON quotes may begin here
        self.boundary: int | None = None
        """After the first end token in the open string, or before a start token outside of one."""
        self.is_complete = False

    @property
    def raw(self) -> str:
        """The text of the call so far, with its tokens."""
        return "".join(self._parts)

    def feed(self, text: str, at: int) -> int:
        """Take in what is decided from `at` on; return where the undecided begins."""
        start = at
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
        end = at if self.is_complete else safe
        self._parts.append(text[start:end])
        self._length += end - start
        return end

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


# A dialect made of a family's markup: what FunctionGemma and Gemma 4 have in common.


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedDialect:
    """Speaks a format of `call:NAME{…}` between tokens; `markup` holds the tokens."""

    name: str
    markup: Markup
    stop_token_ids: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return no fields: decoding is free.

        Raises:
            UsageError: any constraint but `off`.
        """
        return unconstrained(self.name, constraint)

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

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text, thinking and calls of a complete response. Never raises."""
        return self.incremental(tools).whole(raw)

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; the markup needs no names."""
        return _MarkedParser(self.markup)


# The `functiongemma` dialect: FunctionGemma 270M, `<start_function_call>call:f{…}`.
#
# Rendered here and not by vLLM: its example template is not the trained format, and its parser
# loses numbers and booleans. Sources: Google's FunctionGemma formatting page and the printed
# sequence in gemma-cookbook (`full-function-calling-sequence-with-functiongemma`).
#
# Not checked against the checkpoint, whose weights and template are gated: the white space between
# instructions and declarations, the sorted keys of declarations, the ids of the tokens, `null`,
# and whether the model understands the JSON-quoted strings that stand in for those with control
# tokens.


FUNCTIONGEMMA_MARKUP = Markup(
    turn=("<start_of_turn>", "<end_of_turn>"),
    system_role="developer",
    preamble="You are a model that can do function calling with the following functions",
    declaration=("<start_function_declaration>", "<end_function_declaration>"),
    call=("<start_function_call>", "<end_function_call>"),
    response=("<start_function_response>", "<end_function_response>"),
    quote="<escape>",
    control=re.compile(
        CONTROL_TOKEN.pattern
        + r"|<(?=/?(?:(?:start|end)_function_(?:declaration|call|response)|escape)>)"
    ),
)

FUNCTIONGEMMA = MarkedDialect(
    name="functiongemma",
    markup=FUNCTIONGEMMA_MARKUP,
    stop_token_ids=(START_OF_TURN_ID, END_OF_TURN_ID),
    stop_texts=(FUNCTIONGEMMA_MARKUP.response[0],),
)
"""Speaks FunctionGemma's own format; the model opens a response where it waits for one."""


# The `gemma4` dialect: Gemma 4, `<|tool_call>call:f{…}<tool_call|>`, thinking split off.
#
# Source: vLLM's `examples/tool_chat_template_gemma4.jinja` and `vllm/parser/gemma4.py`. Unlike the
# template, keys of arguments keep their order (the model's own words stay a prefix), and a
# property keeps all of its schema, not only the words that the template knows.
#
# Not checked against a checkpoint, whose weights are gated: the ids of the tokens (so it stops at
# texts), `null`, whether models answer better after an empty thinking channel, and whether they
# understand the JSON-quoted strings that stand in for those with control tokens. Thinking is never
# asked for (`<|think|>`) but always understood.


GEMMA4_MARKUP = Markup(
    turn=("<|turn>", "<turn|>"),
    system_role="system",
    declaration=("<|tool>", "<tool|>"),
    call=("<|tool_call>", "<tool_call|>"),
    response=("<|tool_response>", "<tool_response|>"),
    quote='<|"|>',
    thinking=(("<|channel>thought\n", "<|channel>"), "<channel|>"),
    control=re.compile(CONTROL_TOKEN.pattern + r"|<(?=\|[^<>\s]{1,40}>)|<(?=[^<>|\s]{1,40}\|>)"),
)

GEMMA4 = MarkedDialect(
    name="gemma4",
    markup=GEMMA4_MARKUP,
    stop_texts=(GEMMA4_MARKUP.turn[1], GEMMA4_MARKUP.turn[0], GEMMA4_MARKUP.response[0]),
)
"""Speaks Gemma 4's own format. It stops at texts, because the token ids could not be checked; a
response is opened to wait for one."""
