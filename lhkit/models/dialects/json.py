"""The `json` dialect: calls as `{"name": …, "parameters": {…}}`, for Gemma 3 and 3n.

The protocol is the original app's (seeds): tools in the first user turn, results as a user turn.
The wording is ours. Calls are found in what a model writes while it writes.

Whatever is mended is listed in the call's `repairs`. What stood around it: `fence`, `tag`,
`array`, `separator`, `in_object`. Its shape: `name_key`, `arguments_key`, `no_parameters`,
`flat_parameters`, `nested_function`, `string_parameters`, `extra_keys`, `duplicate_key`. Its
notation: `control_character`, `bad_escape`, `trailing_comma`, `python_literal`, `malformed`.
"""

import json
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from lhkit.json_values import JSON, NotJsonError, compact, plain_json
from lhkit.messages import ToolCall, ToolCallMessage
from lhkit.models.dialects.base import Constraint, ToolSpec, names_of
from lhkit.models.dialects.constraint import CALL_END, call_start, constrained
from lhkit.models.dialects.parser import (
    BRACES,
    IncrementalParser,
    NextCall,
    OpenBrackets,
    OpenCall,
    ParseResult,
)
from lhkit.models.dialects.turns import PromptedDialect

_START = re.compile(
    r"""\{\s{0,99}["'](?:name|tool|tool_name|function|parameters|arguments|args)["']\s{0,99}:"""
)
_MAYBE_START = re.compile(r"""\{\s{0,99}(?:["'][a-z_]{0,10}(?:["']\s{0,99})?)?""")
_TAIL_CHARS = 8
_MEMBER = re.compile(r"""["']\s*:$""")
_INTERESTING = re.compile(r"[\s`<\[{]")

_FENCE = r"```[A-Za-z_]{0,20}"
_BEFORE_FIRST = re.compile(rf"\s+|{_FENCE}|<tool_(?:code|call)>|\[")
_MARK = re.compile(rf"\s+|{_FENCE}|</?tool_(?:code|call)>|[\[\],;]")

_LONG_MARKS = ("```", "<tool_code>", "<tool_call>", "</tool_code>", "</tool_call>")
_LONGEST_MARK = max(map(len, _LONG_MARKS))

_CLOSERS = {"```": "fence", "</tool_code>": "tag", "</tool_call>": "tag", "]": "array"}
_OPENERS = (("```", "fence"), ("<tool_", "tag"), ("[", "array"))

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


class JsonDialect(PromptedDialect):
    """Speaks `{"name": …, "parameters": {…}}` with models that have no tool format of their own."""

    name = "json"
    protocol = """\
To use a tool, answer with only this JSON: {"name": "tool", "parameters": {"argument": value}}
You then get its result. Otherwise answer in words.
Tools:"""

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return the request fields that constrain decoding: a grammar of our own.

        Raises:
            UsageError: a call is required and there is no tool, or a schema cannot be constrained.
        """
        return constrained(tools, constraint)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call as compact JSON with the separators a model would write.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return call_start(name) + compact(args) + CALL_END

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return _JsonParser(names_of(tools))

    def written(self, calls: Sequence[ToolCallMessage]) -> Sequence[str]:
        """Return one line a call."""
        return [self._line(call) for call in calls]

    def _line(self, call: ToolCallMessage) -> str:
        if not call.name or (call.raw and not isinstance(call.args, Mapping)):
            return call.raw
        try:
            return self.render_call(call.name, call.args)
        except NotJsonError:
            return call.raw


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
        self._wrapping = _Wrapping()
        self._tail = ""  # the end of the text since the last call

    def close(self) -> ParseResult:
        """Return the whole result; marks that were held back are text, as nothing follows."""
        self._scan(is_final=True)
        if self._held:
            self._pass_over(self._taken(self._at), "")
        return super().close()

    def _step(self, *, is_final: bool) -> bool:
        after_call = self._prose.at_seam
        end, settled = _run_end(self._pending, self._at, after_call=after_call)
        if not is_final and _could_grow(self._pending, end):
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


def _run_end(text: str, start: int, *, after_call: bool) -> tuple[int, int]:
    """Return (end of the run of marks at `start`, up to where more input cannot change it)."""
    pattern = _MARK if after_call else _BEFORE_FIRST
    end = settled = start
    while match := pattern.match(text, end):
        settled = match.start() if match.group().startswith("`") else match.end()
        end = match.end()
    return end, settled


def _could_grow(text: str, end: int) -> bool:
    """Return True if more input could lengthen the run of marks that ends at `end`."""
    if len(text) - end > _LONGEST_MARK:
        return False
    rest = text[end:]
    return any(mark.startswith(rest) for mark in _LONG_MARKS)


class _Wrapping:
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
