"""Calls as JSON objects in the reply's text."""

import json
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lhkit.json_values import JSON, MAX_DEPTH, NotJsonError, compact, plain_json
from lhkit.messages import (
    Message,
    ToolCall,
    ToolCallMessage,
)
from lhkit.models.dialects.base import (
    END_OF_TURN_ID,
    START_OF_TURN_ID,
    Constraint,
    IncrementalParser,
    OpenCall,
    ParseResult,
    ToolSpec,
    render_told_calls,
    spec_of,
)
from lhkit.models.dialects.constraint import CALL_END, call_start, constrained

# Follows one object or call of a model's text to its last bracket, however it is cut.


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


class OpenBrackets(ABC):
    """A text of `brackets` that has begun. Each character is looked at once.

    Brackets inside strings do not count. Single quotes delimit strings too, where a value or key
    can begin: valid JSON has none outside of strings, and models write Python. If a bracket or a
    quote is missing, the text ends where the next call begins (`_next_call`).
    """

    def __init__(self, brackets: str = ALL_BRACKETS) -> None:
        self._counted = brackets
        self._parts: list[str] = []
        self._length = 0
        self._depth = 0
        self._open: list[str] = []  # every bracket that is open
        self._quote = ""
        self._last = ""  # the character before, outside of strings and white space
        self._before_string = ""  # the one before the last string
        self._last_inside = ""  # the character before in the open string, without white space
        self._is_escaped = False
        self.boundary: int | None = None
        self.is_complete = False

    @property
    def raw(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    def feed(self, text: str, at: int) -> int:
        """Take in `text` from `at` up to the last bracket; return where that was."""
        end = self._end(text, at)
        self._parts.append(text[at:end])
        self._length += end - at
        return end

    @abstractmethod
    def _next_call(self, text: str, at: int) -> NextCall:
        """Return whether the bracket at `at` begins the next call, since this one is damaged."""

    def _end(self, text: str, start: int) -> int:
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


# Strings in quotes with backslash escapes: what JSON and Python agree on, and a lenient reader.
#
# A control token inside a string is written with `\u003c` for its `<`. That is lossless, and the
# tokenizer never sees the token.


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
}
_ESCAPE = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<four>[0-9a-fA-F]{4})|U(?P<eight>000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})"
    r"|x(?P<two>[0-9a-fA-F]{2})|(?P<one>.))",
    re.DOTALL,
)
_ONE = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "/": "/",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}


def quoted(text: str, control: re.Pattern[str]) -> str:
    """Return `text` in double quotes; `control` matches the `<` of each control token."""
    written = control.sub(r"\\u003c", json.dumps(text, ensure_ascii=False))
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", written)


def read_quoted(text: str, at: int) -> tuple[str, int, tuple[str, ...]]:
    """Return (value, end, repairs) of the string whose quote is at `at`.

    Raises:
        ValueError: it never ends.
    """
    found = _STRING[text[at]].match(text, at)
    if found is None:
        raise ValueError("a string without end")
    value, repairs = unescaped(found.group(1))
    return value, found.end(), repairs


def unescaped(written: str) -> tuple[str, tuple[str, ...]]:
    """Return (value, repairs) of the text between a string's quotes."""
    repairs: list[str] = []

    def unescape(match: re.Match[str]) -> str:
        one = match.group("one")
        if one is None:
            return _character(match)
        if one not in _ONE:
            repairs.append("bad_escape")
        return _ONE.get(one, match.group())

    value = _ESCAPE.sub(unescape, written)
    if any(char < " " for char in written):
        repairs.append("control_character")
    return value, tuple(dict.fromkeys(repairs))


def _character(match: re.Match[str]) -> str:
    if high := match.group("high"):
        pair = bytes.fromhex(high) + bytes.fromhex(match.group("low"))
        return pair.decode("utf-16-be")
    return chr(int(match.group("four") or match.group("eight") or match.group("two"), 16))


# Reads objects, lists, strings and words by their place in a text; notations differ in detail.
#
# Repairs: `trailing_comma`, `duplicate_key`, `bare_string`, and those of the notation's strings
# and foreign words.


_BARE_KEY = re.compile(r"[^\s:,{}\[\]<\"]+")
_BARE = re.compile(r"[^,{}()\[\]<\"']+")
_BARE_TEXT = re.compile(r"[^,{}\[\]<\"]+")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

StringReader: TypeAlias = Callable[[str, int], tuple[str, int, tuple[str, ...]] | None]
"""(text, place) to (value, end, repairs), or None if no string begins there; ValueError if it
never ends."""

JSON_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
PYTHON_WORDS: Mapping[str, Any] = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """How strings and words are written. `foreign` words are read, and listed as `foreign_name`.

    `has_bare_text`: keys stand without quotes, and a value without quotes is a string.
    """

    read_string: StringReader
    words: Mapping[str, Any]
    foreign: Mapping[str, Any]
    foreign_name: str
    has_bare_text: bool


class ValueReader:
    """Reads values of one text; each method takes a place and returns (value, next place).

    All raise ValueError where the text makes no sense. What was mended is added to `repairs`.
    """

    def __init__(self, text: str, notation: Notation, repairs: list[str]) -> None:
        self._text = text
        self._notation = notation
        self._repairs = repairs

    def value(self, at: int, depth: int = 0) -> tuple[Any, int]:
        """Read any value at `at` or after white space."""
        if depth > MAX_DEPTH:
            raise ValueError("too deep")
        at = self.skip(at)
        if self._text.startswith("{", at):
            return self._object(at + 1, depth)
        if self._text.startswith("[", at):
            return self._list(at + 1, depth)
        return self._string(at) or self._bare(at)

    def skip(self, at: int) -> int:
        """Return the place after white space."""
        found = _SPACE.match(self._text, at)
        return found.end() if found else at

    def comma(self, closer: str, at: int) -> int:
        """Return the place after a comma, or of the closer."""
        at = self.skip(at)
        if not self._text.startswith(",", at):
            if not self._text.startswith(closer, at):
                raise ValueError("neither comma nor end")
            return at
        at = self.skip(at + 1)
        if self._text.startswith(closer, at):
            self._repairs.append("trailing_comma")
        return at

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        at = self.skip(at)
        while not self._text.startswith("}", at):
            key, at = self._key(at)
            at = self.skip(at)
            if not self._text.startswith(":", at):
                raise ValueError("no colon")
            if key in members:
                self._repairs.append("duplicate_key")
            members[key], at = self.value(at + 1, depth + 1)
            at = self.comma("}", at)
        return members, at + 1

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self.skip(at)
        while not self._text.startswith("]", at):
            item, at = self.value(at, depth + 1)
            items.append(item)
            at = self.comma("]", at)
        return items, at + 1

    def _key(self, at: int) -> tuple[str, int]:
        if string := self._string(at):
            return string
        found = _BARE_KEY.match(self._text, at) if self._notation.has_bare_text else None
        if found is None:
            raise ValueError("no key")
        return found.group(), found.end()

    def _string(self, at: int) -> tuple[str, int] | None:
        found = self._notation.read_string(self._text, at)
        if found is None:
            return None
        self._repairs.extend(found[2])
        return found[0], found[1]

    def _bare(self, at: int) -> tuple[Any, int]:
        pattern = _BARE_TEXT if self._notation.has_bare_text else _BARE
        found = pattern.match(self._text, at)
        if found is None or not found.group().strip():
            raise ValueError("no value")
        return self._word(found.group().strip()), found.end()

    def _word(self, word: str) -> Any:
        notation = self._notation
        if word in notation.words:
            return notation.words[word]
        if _NUMBER.fullmatch(word):
            return json.loads(word)
        if word in notation.foreign:
            self._repairs.append(notation.foreign_name)
            return notation.foreign[word]
        if not notation.has_bare_text:
            raise ValueError(word)
        self._repairs.append("bare_string")
        return word


# What models put around calls: fences, tags, arrays, separators. Neither text nor call.
#
# Marks are followed only while they stand directly before, between or after calls; elsewhere they
# are text.


_FENCE = r"```[A-Za-z_]{0,20}"
_BEFORE_FIRST = re.compile(rf"\s+|{_FENCE}|<tool_(?:code|call)>|\[")
_MARK = re.compile(rf"\s+|{_FENCE}|</?tool_(?:code|call)>|[\[\],;]")

_LONG_MARKS = ("```", "<tool_code>", "<tool_call>", "</tool_code>", "</tool_call>")
_LONGEST_MARK = max(map(len, _LONG_MARKS))

_CLOSERS = {"```": "fence", "</tool_code>": "tag", "</tool_call>": "tag", "]": "array"}
_OPENERS = (("```", "fence"), ("<tool_", "tag"), ("[", "array"))


def run_end(text: str, start: int, *, after_call: bool) -> tuple[int, int]:
    """Return (end of the run of marks at `start`, up to where more input cannot change it)."""
    pattern = _MARK if after_call else _BEFORE_FIRST
    end = settled = start
    while match := pattern.match(text, end):
        settled = match.start() if match.group().startswith("`") else match.end()
        end = match.end()
    return end, settled


def could_grow(text: str, end: int) -> bool:
    """Return True if more input could lengthen the run of marks that ends at `end`."""
    if len(text) - end > _LONGEST_MARK:
        return False
    rest = text[end:]
    return any(mark.startswith(rest) for mark in _LONG_MARKS)


class Wrapping:
    """The fences, tags and arrays that are open around the present place."""

    def __init__(self) -> None:
        self._open: dict[str, deque[int]] = {}  # by kind, the marks still open, oldest first
        self._opened = 0

    def close_in(self, run: str) -> str:
        """Close what the front of `run`, marks after a call, closes; return the rest of it."""
        end = 0
        for mark in _MARK.finditer(run):
            if not self._closes(mark.group()):
                break
            end = mark.end()
        return run[end:]

    def enter(self, run: str) -> tuple[str, ...]:
        """Take in `run`, marks before a call; return what is mended by leaving them out."""
        repairs = [
            "separator"
            for mark in _MARK.finditer(run)
            if not self._closes(mark.group()) and not self._opens(mark.group())
        ]
        oldest_first = sorted(self._open, key=lambda kind: self._open[kind][0])
        return tuple(dict.fromkeys([*oldest_first, *repairs]))

    def _closes(self, mark: str) -> bool:
        if mark.isspace():
            return True
        if mark == ",":
            return "array" in self._open
        kind = _CLOSERS.get(mark)
        if kind not in self._open:
            return False
        self._open[kind].popleft()
        if not self._open[kind]:
            del self._open[kind]
        return True

    def _opens(self, mark: str) -> bool:
        kind = next((kind for start, kind in _OPENERS if mark.startswith(start)), None)
        if kind is not None:
            self._open.setdefault(kind, deque()).append(self._opened)
            self._opened += 1
        return kind is not None


# One balanced `{…}` of a model's text to a call, with the list of what had to be mended.


_NAME_KEYS = ("name", "tool", "tool_name", "function")
_ARGUMENT_KEYS = ("parameters", "arguments", "args")

_NAMED = re.compile(
    r"""\{\s*(?:["']function["']\s*:\s*\{\s*)?"""
    r"""["'](?:name|tool|tool_name|function)["']\s*:\s*["']([^"'\\]+)["']"""
)
_HAS_ARGUMENTS = re.compile(r"""["'](?:parameters|arguments|args)["']\s*:""")

_NOT_JSON = re.compile(
    r'''"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"'''
    r"""|'(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'"""
    r"""|\b(?P<word>True|False|None)\b"""
    r"""|(?P<comma>,)(?=\s*[}\]])""",
    re.DOTALL,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_IN_STRING = re.compile(r'\\(?P<escaped>.)|"', re.DOTALL)
_JSON_ESCAPES = frozenset('"\\/bfnrtu')

_Call: TypeAlias = tuple[str, Any, list[str]]


def read_call(raw: str, known: Collection[str] = ()) -> tuple[str, Any, tuple[str, ...]] | None:
    """Return (name, arguments, repairs), or None if `raw` is an object but not a call.

    An object without arguments is a call only if it names a tool in `known`: models also write
    `{"name": "Kim"}` about people. An object that no reading makes sense of, but that names a
    tool, is returned with its raw text as arguments, so that validation can tell the model.
    Never raises.
    """
    loaded = _loaded(raw)
    call = _malformed(raw, known) if loaded is None else _call_in(*loaded, known)
    if call is None:
        return None
    name, args, repairs = call
    try:
        return name, plain_json(args), tuple(dict.fromkeys(repairs))
    except NotJsonError:  # nested too deep, or a number such as NaN or 1e999
        return name, raw, ("malformed",)


def _malformed(raw: str, known: Collection[str]) -> _Call | None:
    named = _NAMED.match(raw)
    if named is None or not (named.group(1) in known or _HAS_ARGUMENTS.search(raw)):
        return None
    return named.group(1), raw, ["malformed"]


def _call_in(value: Mapping[str, Any], repairs: list[str], known: Collection[str]) -> _Call | None:
    inner = value.get("function")
    if isinstance(inner, dict):
        return _call_of(inner, [*repairs, "nested_function"], known)
    return _call_of(value, repairs, known)


def _call_of(value: Mapping[str, Any], repairs: list[str], known: Collection[str]) -> _Call | None:
    name_key = next((key for key in _NAME_KEYS if _is_name(value.get(key))), None)
    if name_key is None:
        return None
    name = value[name_key]
    if name_key != _NAME_KEYS[0]:
        repairs = [*repairs, "name_key"]
    argument_key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    others = {key: item for key, item in value.items() if key not in {name_key, argument_key}}
    if argument_key is None:
        if name not in known:
            return None
        return name, others, [*repairs, "flat_parameters" if others else "no_parameters"]
    if _is_declaration(others, value[argument_key]):
        return None
    if argument_key != _ARGUMENT_KEYS[0]:
        repairs = [*repairs, "arguments_key"]
    if others:
        repairs = [*repairs, "extra_keys"]
    args, unpacked = _unpacked(value[argument_key])
    return name, args, [*repairs, *unpacked]


def _is_declaration(others: Mapping[str, Any], args: Any) -> bool:
    """Return True for a tool's declaration, which weak models copy out of their prompt."""
    return "description" in others and isinstance(args, dict) and args.get("type") == "object"


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _unpacked(args: Any) -> tuple[Any, list[str]]:
    """Return arguments that were written as a string of JSON as the object they are."""
    loaded = _loaded(args) if isinstance(args, str) else None
    if loaded is None or not isinstance(loaded[0], dict):
        return args, []
    return loaded[0], ["string_parameters", *loaded[1]]


def _loaded(raw: str) -> tuple[Any, list[str]] | None:
    """Return the value of the strictest reading that makes sense, and what it had to mend."""
    for text, mended in _readings(raw):
        for strict in (True, False):
            repairs = [*mended] if strict else [*mended, "control_character"]
            try:
                return _value(text, repairs, strict=strict), repairs
            except (ValueError, RecursionError):  # also an integer of more than 4,300 digits
                continue
    return None


def _readings(raw: str) -> Iterator[tuple[str, list[str]]]:
    yield raw, []
    yield _mended(raw)


def _value(text: str, repairs: list[str], *, strict: bool) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            repairs.append("duplicate_key")
        return members

    return json.loads(text, strict=strict, object_pairs_hook=unique)


def _mended(raw: str) -> tuple[str, list[str]]:
    """Return `raw` as JSON where it was written as Python, and what was rewritten."""
    repairs: list[str] = []

    def rewrite(match: re.Match[str]) -> str:
        kind = str(match.lastgroup)
        if kind == "word":
            repairs.append("python_literal")
            return _WORDS[match.group()]
        if kind == "comma":
            repairs.append("trailing_comma")
            return ""
        if kind == "single":
            repairs.append("python_literal")
        return f'"{_IN_STRING.sub(unescape, match.group(kind))}"'

    def unescape(match: re.Match[str]) -> str:
        escaped = match.group("escaped")
        if escaped is None:
            return '\\"'
        if escaped in _JSON_ESCAPES:
            return match.group()
        repairs.append("bad_escape")
        return "'" if escaped == "'" else f"\\\\{escaped}"

    text = _NOT_JSON.sub(rewrite, raw)
    return text, list(dict.fromkeys(repairs))


# Finds `{"name": …, "parameters": {…}}` calls in what a model writes, while it writes.
#
# Whatever is mended is listed in the call's `repairs`. What stood around it: `fence`, `tag`,
# `array`, `separator`, `in_object`. Its shape: `name_key`, `arguments_key`, `no_parameters`,
# `flat_parameters`, `nested_function`, `string_parameters`, `extra_keys`, `duplicate_key`. Its
# notation: `control_character`, `bad_escape`, `trailing_comma`, `python_literal`, `malformed`.


_START = re.compile(
    r"""\{\s{0,99}["'](?:name|tool|tool_name|function|parameters|arguments|args)["']\s{0,99}:"""
)
_MAYBE_START = re.compile(r"""\{\s{0,99}(?:["'][a-z_]{0,10}(?:["']\s{0,99})?)?""")
_TAIL_CHARS = 8
_MEMBER = re.compile(r"""["']\s*:$""")
_INTERESTING = re.compile(r"[\s`<\[{]")


class _OpenObject(OpenBrackets):
    """An object that lacks a quote or a brace ends where the next call begins.

    Only at places where no value of valid JSON can begin, so that a whole object is never cut: in
    a string, whose quote stands there without a backslash, or after a value of an object.
    """

    def __init__(self) -> None:
        super().__init__(BRACES)

    def _next_call(self, text: str, at: int) -> NextCall:
        if text[at] != "{" or not (self._quote or self._is_after_value()):
            return "no"
        if found := _START.match(text, at):
            return "yes" if self._quote in found.group() else "no"
        return "wait" if _MAYBE_START.fullmatch(text, at) else "no"

    def _is_after_value(self) -> bool:
        if self._open[-1:] != ["{"] or self._last in {"{", ":"}:
            return False
        return self._last not in {'"', "'"} or self._before_string == ":"


class _JsonParser(IncrementalParser):
    """`known` are the names of the tools on offer."""

    def __init__(self, known: Collection[str]) -> None:
        super().__init__()
        self._known = known
        self._held: list[str] = []  # the marks before `_at` that need not be read again
        self._run = ""  # the marks before the open object
        self._wrapping = Wrapping()
        self._tail = ""  # the end of the text since the last call

    def close(self) -> ParseResult:
        """Return the whole result; marks that were held back are text, as nothing follows."""
        self._scan(is_final=True)
        if self._held:
            self._pass_over(self._taken(self._at), "")
        return super().close()

    def _step(self, *, is_final: bool) -> bool:
        after_call = self._prose.at_seam
        end, settled = run_end(self._pending, self._at, after_call=after_call)
        if not is_final and could_grow(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        if _START.match(self._pending, end):
            self._run = self._taken(end)
            self._open = _OpenObject()
            return True
        if not is_final and _MAYBE_START.fullmatch(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        run = self._taken(end)
        self._pass_over(run, self._consume(self._next_interesting(end)))
        return True

    def _taken(self, end: int) -> str:
        """Return the whole run of marks that ends at `end`, with what was held back of it."""
        run = "".join((*self._held, self._consume(end)))
        self._held.clear()
        return run

    def _next_interesting(self, start: int) -> int:
        match = _INTERESTING.search(self._pending, start + 1)
        return match.start() if match else len(self._pending)

    def _take(self, call: OpenCall) -> int:
        raw = call.raw
        taken = len(raw)
        found = read_call(raw.rstrip(), self._known)
        if found is None:
            self._pass_over(self._run, raw)
            return taken
        name, args, repairs = found
        around = self._wrapping.enter(self._run)
        if _MEMBER.search(self._tail):
            around = ("in_object", *around)
        self._make(ToolCall(name=name, args=args, raw=raw.rstrip(), repairs=(*around, *repairs)))
        self._tail = ""
        return taken

    def _pass_over(self, run: str, rest: str) -> None:
        """Take marks and what follows them, which is no call, as text."""
        if self._prose.at_seam:
            run = self._wrapping.close_in(run)
        self._tail = (self._tail + self._say(run + rest))[-_TAIL_CHARS:]


# The `json` dialect: calls as `{"name": …, "parameters": {…}}`, for Gemma 3 and 3n.
#
# The protocol is the original app's (seeds): tools in the first user turn, results as a user turn.
# The wording is ours. Parsing stands above.


_PROTOCOL = """\
To use a tool, answer with only this JSON: {"name": "tool", "parameters": {"argument": value}}
You then get its result. Otherwise answer in words.
Tools:"""


class JsonDialect:
    """Speaks `{"name": …, "parameters": {…}}` with models that have no tool format of their own."""

    name = "json"
    stop_token_ids = (START_OF_TURN_ID, END_OF_TURN_ID)
    """A base model may open the next turn itself instead of ending its own."""
    stop_texts = ()

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return the request fields that constrain decoding: a grammar of our own.

        Raises:
            UsageError: a call is required and there is no tool, or a schema cannot be constrained.
        """
        return constrained(tools, constraint)

    def encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], instructions: str = ""
    ) -> str:
        """Return the prompt: instructions and tools first, so that all chats share a prefix."""
        return render_told_calls(
            messages, tools, instructions, protocol=_PROTOCOL, written=self._written
        )

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call as compact JSON with the separators a model would write.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return call_start(name) + compact(args) + CALL_END

    def parse(self, raw: str, tools: Sequence[ToolSpec] = ()) -> ParseResult:
        """Return text and calls of a complete response. Never raises."""
        return self.incremental(tools).whole(raw)

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return _JsonParser(frozenset(str(spec_of(tool).get("name")) for tool in tools))

    def _written(self, calls: Sequence[ToolCallMessage]) -> list[str]:
        """Return each call as it should have been written, or as it was if that cannot be."""
        return [self._line(call) for call in calls]

    def _line(self, call: ToolCallMessage) -> str:
        if not call.name or (call.raw and not isinstance(call.args, Mapping)):
            return call.raw
        try:
            return self.render_call(call.name, call.args)
        except NotJsonError:
            return call.raw
