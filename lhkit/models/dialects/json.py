"""The `json` dialect: calls as `{"name": …, "parameters": {…}}`, for Gemma 3 and 3n.

Tools are in the first user turn, results in a user turn.

The codes in a call's `repairs`: around it `fence`, `tag`, `array`, `separator`, `in_object`; in its
structure `name_key`, `arguments_key`, `no_parameters`, `flat_parameters`, `nested_function`,
`string_parameters`, `extra_keys`, `duplicate_key`; in its notation `control_character`,
`bad_escape`, `trailing_comma`, `python_literal`, `malformed`.
"""

import json
import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from lhkit.json_values import JSON, NotJsonError, compact, plain_json
from lhkit.messages import ToolCall, ToolCallMessage
from lhkit.models.dialects.base import Constraint, ToolSpec, tool_names
from lhkit.models.dialects.constraint import (
    CALL_END,
    call_start,
    constrained,
    unconstrained_tools,
)
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
_MARK_STARTS = frozenset(mark[:end] for mark in _LONG_MARKS for end in range(len(mark) + 1))

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
    """Calls as `{"name": …, "parameters": {…}}`, for models without a native tool format."""

    name = "json"
    protocol = """\
To use a tool, answer with only this JSON: {"name": "tool", "parameters": {"argument": value}}
You then get its result. Otherwise answer in words.
Tools:"""

    def constrain(self, tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
        """Return the request fields that constrain decoding, by a grammar.

        Raises:
            UsageError: a call is required but there is no tool, or no schema is supported.
        """
        return constrained(tools, constraint)

    def unconstrained_tools(self, tools: Sequence[ToolSpec]) -> Mapping[str, str]:
        """Return the tools whose schema is not supported by the grammar: name to reason."""
        return unconstrained_tools(tools)

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the text of a call.

        Raises:
            NotJsonError: the arguments are not JSON.
        """
        return call_start(name) + compact(args) + CALL_END

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return _JsonParser(tool_names(tools))

    def render_calls(self, calls: Sequence[ToolCallMessage]) -> Sequence[str]:
        """Return one line for each call."""
        return [self._line(call) for call in calls]

    def _line(self, call: ToolCallMessage) -> str:
        if not call.name or (call.raw and not isinstance(call.args, Mapping)):
            return call.raw
        try:
            return self.render_call(call.name, call.args)
        except NotJsonError:
            return call.raw


class _OpenObject(OpenBrackets):
    """A JSON object; if it lacks a quote or brace, it ends where the next call starts.

    The next call is recognised only where no value of valid JSON can start: in a string whose quote
    appears there without a backslash, or after a value of an object.
    """

    def __init__(self) -> None:
        super().__init__(BRACES)

    def _next_call(self, text: str, at: int) -> NextCall:
        if text[at] != "{" or not (self._quote or self._is_after_value()):
            return "no"
        if match := _START.match(text, at):
            return "yes" if self._quote in match.group() else "no"
        return "wait" if _MAYBE_START.fullmatch(text, at) else "no"

    def _is_after_value(self) -> bool:
        if self._open[-1:] != ["{"] or self._last in {"{", ":"}:
            return False
        return self._last not in {'"', "'"} or self._before_string == ":"


class _JsonParser(IncrementalParser):
    """Parses one response; `known` are the names of the tools."""

    def __init__(self, known: Collection[str]) -> None:
        super().__init__()
        self._known = known
        self._held: list[str] = []  # the decided marks before `_at`
        self._run = ""  # the marks before the open object
        self._wrapping = _Wrapping()
        self._tail = ""  # the end of the text since the last call

    def close(self) -> ParseResult:
        """Return the whole result; marks without a call after them are text."""
        self._scan(is_final=True)
        if self._held:
            self._add_as_text(self._take_run(self._at), "")
        return super().close()

    def _step(self, *, is_final: bool) -> bool:
        after_call = self._prose.is_after_call
        end, settled = _run_end(self._pending, self._at, after_call=after_call)
        if not is_final and _could_grow(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        if _START.match(self._pending, end):
            self._run = self._take_run(end)
            self._open = _OpenObject()
            return True
        if not is_final and _MAYBE_START.fullmatch(self._pending, end):
            self._held.append(self._consume(settled))
            return False
        run = self._take_run(end)
        match = _INTERESTING.search(self._pending, end + 1)
        self._add_as_text(run, self._consume(match.start() if match else len(self._pending)))
        return True

    def _take_run(self, end: int) -> str:
        """Consume the run of marks up to `end`; return it with the marks held back before."""
        run = "".join((*self._held, self._consume(end)))
        self._held.clear()
        return run

    def _take(self, call: OpenCall) -> int:
        raw = call.raw
        parsed = read_call(raw.rstrip(), self._known)
        if parsed is None:
            self._add_as_text(self._run, raw)
            return len(raw)
        name, args, repairs = parsed
        around = self._wrapping.enter(self._run)
        if _MEMBER.search(self._tail):
            around = ("in_object", *around)
        repairs = (*around, *repairs)
        self._add_call(ToolCall(name=name, args=args, raw=raw.rstrip(), repairs=repairs))
        self._tail = ""
        return len(raw)

    def _add_as_text(self, run: str, rest: str) -> None:
        """Add marks and the text after them, which contain no call."""
        if self._prose.is_after_call:
            run = self._wrapping.close_in(run)
        self._tail = (self._tail + self._add_text(run + rest))[-_TAIL_CHARS:]


def _run_end(text: str, start: int, *, after_call: bool) -> tuple[int, int]:
    """Return (end of the run of marks at `start`, end of the part that cannot change)."""
    pattern = _MARK if after_call else _BEFORE_FIRST
    end = settled = start
    while match := pattern.match(text, end):
        settled = match.start() if match.group().startswith("`") else match.end()
        end = match.end()
    return end, settled


def _could_grow(text: str, end: int) -> bool:
    """Return True if more input could lengthen the run of marks that ends at `end`."""
    return text[end : end + _LONGEST_MARK + 1] in _MARK_STARTS


class _Wrapping:
    """The fences, tags and arrays that are open at the current position."""

    def __init__(self) -> None:
        self._open: dict[str, deque[int]] = {}  # the open marks of each kind, oldest first
        self._opened = 0

    def close_in(self, run: str) -> str:
        """Close the marks at the start of `run`, after a call; return the rest of it."""
        end = 0
        for mark in _MARK.finditer(run):
            if not self._closes(mark.group()):
                break
            end = mark.end()
        return run[end:]

    def enter(self, run: str) -> tuple[str, ...]:
        """Process `run`, the marks before a call; return the codes of repairs."""
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
    `{"name": "Kim"}` about people. An object that cannot be parsed, but names a tool, has its raw
    text as arguments, so that validation reports it to the model. Never raises.
    """
    loaded = _loaded(raw)
    if loaded is None:
        call = _malformed(raw, known)
    else:
        value, repaired = loaded
        inner = value.get("function")
        if isinstance(inner, dict):
            call = _call_of(inner, [*repaired, "nested_function"], known)
        else:
            call = _call_of(value, repaired, known)
    if call is None:
        return None
    name, args, repairs = call
    try:
        return name, plain_json(args), tuple(dict.fromkeys(repairs))
    except NotJsonError:  # nested too deeply, or a number such as NaN or 1e999
        return name, raw, ("malformed",)


def _malformed(raw: str, known: Collection[str]) -> _Call | None:
    named = _NAMED.match(raw)
    if named is None or not (named.group(1) in known or _HAS_ARGUMENTS.search(raw)):
        return None
    return named.group(1), raw, ["malformed"]


def _call_of(value: Mapping[str, Any], repairs: list[str], known: Collection[str]) -> _Call | None:
    names = (key for key in _NAME_KEYS if isinstance(value.get(key), str) and value[key].strip())
    name_key = next(names, None)
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
    args = value[argument_key]
    if "description" in others and isinstance(args, dict) and args.get("type") == "object":
        return None  # a tool's declaration, which weak models copy from the prompt
    if argument_key != _ARGUMENT_KEYS[0]:
        repairs = [*repairs, "arguments_key"]
    if others:
        repairs = [*repairs, "extra_keys"]
    unpacked = _loaded(args) if isinstance(args, str) else None
    if unpacked is not None and isinstance(unpacked[0], dict):
        return name, unpacked[0], [*repairs, "string_parameters", *unpacked[1]]
    return name, args, repairs


def _loaded(raw: str) -> tuple[Any, list[str]] | None:
    """Return the value by the strictest parsing that succeeds, and the codes of repairs."""
    for repair in (False, True):
        text, repaired = _repair_python(raw) if repair else (raw, [])
        for strict in (True, False):
            repairs = [*repaired] if strict else [*repaired, "control_character"]
            try:
                return _value(text, repairs, strict=strict), repairs
            except (ValueError, RecursionError):  # also an integer of more than 4,300 digits
                continue
    return None


def _value(text: str, repairs: list[str], *, strict: bool) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            repairs.append("duplicate_key")
        return members

    return json.loads(text, strict=strict, object_pairs_hook=unique)


def _repair_python(raw: str) -> tuple[str, list[str]]:
    """Return `raw` with Python notation rewritten as JSON, and the codes of repairs."""
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
