"""The `pythonic` dialect: calls as `[f(a="x", b=1)]`, a comparison arm for Gemma 3 and 3n.

It is lhkit's own protocol, for models without a tool format. Tools are in the first user turn,
results in a user turn, as in `json`. Not rendered by vLLM's template, which omits the commas
between calls in the history, and not parsed by its parser, which refuses fences and other text.

The calls of a list are complete together, when its bracket closes. Repairs, in addition to those of
values: `fence`, `bare` (without a list), `malformed`, `json_literal`, `joined_strings`.

Python's own grammar is not used, since it refuses a parameter named `from` and a line break in a
string. A call with positional arguments is malformed.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from lhkit.base.json_values import JSON, NotJsonError, compact, plain_json
from lhkit.conversation.messages import ToolCall, ToolCallMessage
from lhkit.models.dialects.base import ToolSpec, is_renderable, tool_names
from lhkit.models.dialects.parser import IncrementalParser, NextCall, OpenBrackets, OpenCall
from lhkit.models.dialects.thinking import TaggedThinkingParser
from lhkit.models.dialects.turns import CONTROL_TOKEN, PromptedDialect
from lhkit.models.dialects.values import (
    JSON_WORDS,
    PYTHON_WORDS,
    Notation,
    ValueReader,
    quoted,
    read_quoted,
)

NAME = r"[\w\-][\w.\-]{0,99}"
"""Wider than Python's: a tool may be named `get-item` or `3d`. The name of an unknown tool must
start as in Python (`IDENTIFIER`)."""
IDENTIFIER = re.compile(r"[^\W\d]")
KEY = r"[^\W\d]\w{0,99}"

_KEY = re.compile(KEY)
_HEAD = re.compile(rf"\s*({NAME})\s*\(\s*")
_KEYWORD = re.compile(rf"({KEY})\s*=")
_SPLAT = re.compile(r"\*\*\s*(?=\{)")

_FENCE = r"```(?:[A-Za-z_]{1,20}(?=[\s\[]))?\s{0,99}"
_OPEN = re.compile(rf"(?P<fence>{_FENCE})?(?P<list>\[\s{{0,99}})?(?P<name>{NAME})\s{{0,9}}\(")
_MAYBE_OPEN = re.compile(
    rf"`{{1,2}}|```[A-Za-z_]{{0,20}}|(?P<fence>{_FENCE})?(?P<list>\[\s{{0,99}})?(?:(?P<name>{NAME})\s{{0,9}})?"
)
_ARGUMENTS = re.compile(rf"\s{{0,99}}(?:\)|\*\*\s{{0,9}}\{{|{KEY}\s{{0,9}}=)")
_MAYBE_ARGUMENTS = re.compile(rf"\s{{0,99}}(?:\*{{1,2}}|\*\*\s{{0,9}}|{KEY}\s{{0,9}})?")

_SPACE = re.compile(r"\s*")
_INTERESTING = re.compile(r"[`\[\n]")
_FENCE_END = re.compile(r"\s{0,99}```")
_MAYBE_FENCE_END = re.compile(r"\s{0,99}`{0,2}")

_MOST_SPLITS = 8


class PythonicDialect(PromptedDialect):
    """Calls as `[f(a="x")]`, for models without a native tool format."""

    name = "pythonic"
    protocol = """\
To use tools, answer with only this list: [tool(argument="value", other=1)]
You then get the results. Otherwise answer in words.
Tools:"""

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the text of a call, as a list of one.

        Raises:
            NotJsonError: the arguments are not JSON.
        """
        return f"[{write_call(name, args)}]"

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return _PythonicParser(tool_names(tools))

    def render_calls(self, calls: Sequence[ToolCallMessage]) -> Sequence[str]:
        """Return the calls as one list, then the raw text of malformed ones."""
        rendered: list[str] = []
        raw_texts: list[str] = []
        for call in calls:
            try:
                text = write_call(call.name, call.args) if is_renderable(call) else ""
            except NotJsonError:
                text = ""
            (rendered if text else raw_texts).append(text or call.raw)
        return [*([f"[{', '.join(rendered)}]"] if rendered else []), *raw_texts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A call starts at `at`, after a fence if there is one."""

    at: int
    name: str
    has_fence: bool


Decision: TypeAlias = Start | Literal["no", "wait"]
"""A call, no call, or more input is needed."""


def start_at(text: str, at: int, known: Collection[str], *, may_be_bare: bool) -> Decision:
    """Decide whether a call starts at `at`.

    A call in a list must name a tool in `known`, or have keyword arguments or none. A call without
    a list must name a tool, and be at the start of a line or in a fence.
    """
    match = _OPEN.match(text, at)
    if match is None:
        return _maybe(text, at, known, may_be_bare=may_be_bare)
    name, has_fence = match.group("name"), match.group("fence") is not None
    if name not in known and not IDENTIFIER.match(name):
        return "no"
    start = Start(at=match.end("fence") if has_fence else at, name=name, has_fence=has_fence)
    if name in known and (match.group("list") or has_fence or may_be_bare):
        return start
    if match.group("list") is None:
        return "no"
    if _ARGUMENTS.match(text, match.end()):
        return start
    return "wait" if _MAYBE_ARGUMENTS.fullmatch(text, match.end()) else "no"


def _maybe(text: str, at: int, known: Collection[str], *, may_be_bare: bool) -> Decision:
    match = _MAYBE_OPEN.fullmatch(text, at)
    if match is None:
        return "no"
    prefix = match.group("name")
    if prefix and (not match.group("list") or not IDENTIFIER.match(prefix)):
        could_be_known = any(name.startswith(prefix) for name in known)
        if match.group("list"):
            return "wait" if could_be_known else "no"
        return "wait" if could_be_known and (may_be_bare or match.group("fence")) else "no"
    return "wait"


class _OpenCalls(OpenBrackets):
    """A list of calls; if it lacks a quote or bracket, it ends where the next list starts.

    A list that starts inside a string counts only if the whole cannot be parsed, or if `is_hasty`.
    """

    def __init__(self, known: Collection[str], *, is_hasty: bool) -> None:
        super().__init__()
        self._known = known
        self._is_hasty = is_hasty

    def _next_call(self, text: str, at: int) -> NextCall:
        before = self._last_inside if self._quote else self._last
        if text[at] != "[" or before not in {")", "]"} or (self._quote and before == ")"):
            return "no"
        decision = start_at(text, at, self._known, may_be_bare=False)
        if isinstance(decision, Start):
            return "yes" if self._is_hasty or not self._quote else "maybe"
        return decision


class _PythonicParser(TaggedThinkingParser):
    """Parses one response; `known` are the names of the tools."""

    def __init__(self, known: Collection[str]) -> None:
        super().__init__()
        self._known = known
        self._name = ""  # the name in the first open call
        self._splits = 0
        self._in_fence = False
        self._awaits_fence_end = False
        self._at_line_start = True

    def _another(self) -> TaggedThinkingParser:
        return _PythonicParser(self._known)

    def _step_text(self, *, is_final: bool) -> bool:
        if self._awaits_fence_end:
            return self._step_out_of_fence(is_final=is_final)
        if blank := _SPACE.match(self._pending, self._at):
            self._add_text(self._consume(blank.end()))
        if self._at == len(self._pending):
            return True
        start = start_at(self._pending, self._at, self._known, may_be_bare=self._at_line_start)
        if isinstance(start, Start):
            self._at = start.at
            self._in_fence = self._in_fence or start.has_fence
            self._name = start.name
            self._open = _OpenCalls(self._known, is_hasty=self._splits > _MOST_SPLITS)
        elif start == "wait" and not is_final:
            return False
        else:
            match = _INTERESTING.search(self._pending, self._at + 1)
            self._add_text(self._consume(match.start() if match else len(self._pending)))
        return True

    def _step_out_of_fence(self, *, is_final: bool) -> bool:
        """Skip the end of a fence directly after its calls."""
        end = _FENCE_END.match(self._pending, self._at)
        if end is None and not is_final and _MAYBE_FENCE_END.fullmatch(self._pending, self._at):
            return False
        self._awaits_fence_end = False
        if end is not None:
            self._in_fence = False
            self._at = end.end()
        return True

    def _add_text(self, text: str) -> str:
        is_new_line = "\n" in text or self._at_line_start
        self._at_line_start = is_new_line and not text.rpartition("\n")[2].strip()
        return super()._add_text(text)

    def _take(self, call: OpenCall) -> int:
        raw = call.raw
        calls = self._read(raw) if call.is_complete else ()
        if not calls:
            self._splits += call.boundary is not None
            raw = raw[: call.boundary]
            calls = self._malformed(raw.rstrip())
        if not calls:
            self._add_text(raw)
            return len(raw)
        around = ["fence"] if self._in_fence else []
        around += [] if raw.startswith("[") else ["bare"]
        for parsed in calls:
            self._add_call(replace(parsed, repairs=(*around, *parsed.repairs)))
        self._awaits_fence_end = self._in_fence
        self._at_line_start = True
        return len(raw)

    def _read(self, raw: str) -> tuple[ToolCall, ...]:
        try:
            return read_calls(raw)
        except (ValueError, RecursionError):
            return ()

    def _malformed(self, raw: str) -> tuple[ToolCall, ...]:
        """Return a call that names a tool but cannot be parsed, with its raw text as arguments."""
        if self._name not in self._known:
            return ()
        return (ToolCall(name=self._name, args=raw, raw=raw, repairs=("malformed",)),)


def write_call(name: str, args: Mapping[str, JSON]) -> str:
    """Return `f(a="x")`; a name that cannot be a keyword is written `**{"a b": 1}`.

    Raises:
        NotJsonError: the arguments are not JSON.
    """
    members = plain_json(args)
    return f"{name}({', '.join(_argument(key, value) for key, value in members.items())})"


def read_calls(raw: str) -> tuple[ToolCall, ...]:
    """Return the calls of `[f(), g()]` or of a bare `f()`.

    Raises:
        ValueError: it cannot be parsed, or a value is not JSON.
        RecursionError: it is nested too deeply.
    """
    if not raw.startswith("["):
        call, end = _call(raw, 0)
        return (call,) if end == len(raw) else ()
    calls: list[ToolCall] = []
    at = 1
    while not raw.startswith("]", at):
        call, at = _call(raw, at)
        repairs: list[str] = []
        at = ValueReader(raw, _NOTATION, repairs).comma("]", at)
        calls.append(_with_repairs(call, repairs))
    return tuple(calls)


def _argument(key: str, plain: Any) -> str:
    if _KEY.fullmatch(key):
        return f"{key}={_literal(plain)}"
    return f"**{_literal({key: plain})}"


def _literal(plain: Any) -> str:
    if isinstance(plain, str):
        return quoted(plain, CONTROL_TOKEN)
    if isinstance(plain, dict):
        items = (f"{quoted(key, CONTROL_TOKEN)}: {_literal(item)}" for key, item in plain.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(plain, list):
        return "[" + ", ".join(map(_literal, plain)) + "]"
    return str(plain) if plain is None or isinstance(plain, bool) else compact(plain)


def _call(text: str, start: int) -> tuple[ToolCall, int]:
    head = _HEAD.match(text, start)
    if head is None:
        raise ValueError("no call")
    repairs: list[str] = []
    reader = ValueReader(text, _NOTATION, repairs)
    args: dict[str, Any] = {}
    at = head.end()
    while not text.startswith(")", at):
        members, at = _members(text, at, reader)
        if any(key in args for key in members):
            repairs.append("duplicate_key")
        args.update(members)
        at = reader.comma(")", at)
    raw = text[head.start(1) : at + 1]
    call = ToolCall(name=head.group(1), args=plain_json(args), raw=raw)
    return _with_repairs(call, repairs), at + 1


def _members(text: str, at: int, reader: ValueReader) -> tuple[dict[str, Any], int]:
    """Parse `key=value` or `**{…}`."""
    if splat := _SPLAT.match(text, at):
        members, at = reader.value(splat.end())
        return members, at
    keyword = _KEYWORD.match(text, at)
    if keyword is None:
        raise ValueError("no keyword")
    value, at = reader.value(keyword.end())
    return {keyword.group(1): value}, at


def _with_repairs(call: ToolCall, repairs: list[str]) -> ToolCall:
    return replace(call, repairs=tuple(dict.fromkeys([*call.repairs, *repairs])))


def _read_string(text: str, at: int) -> tuple[str, int, tuple[str, ...]] | None:
    if not text.startswith(('"', "'"), at):
        return None
    value, end, repairs = read_quoted(text, at)
    parts, codes = [value], dict.fromkeys(repairs)
    while text.startswith(('"', "'"), end):  # also triple quotes: an empty string on either side
        part, end, repairs = read_quoted(text, end)
        parts.append(part)
        codes |= dict.fromkeys((*repairs, "joined_strings"))
    return "".join(parts), end, tuple(codes)


_NOTATION = Notation(
    read_string=_read_string,
    words=PYTHON_WORDS,
    foreign=JSON_WORDS,
    foreign_name="json_literal",
    has_bare_text=False,
)
