"""The `pythonic` dialect: calls as `[f(a="x", b=1)]`, a comparison arm for Gemma 3 and 3n.

Tools in the first user turn, results as a user turn, as in `json`. Not vLLM's template, which
leaves out the commas of calls in the history, nor its parser, which refuses fences and words.

A list of calls is made as a whole, when its bracket closes, or not at all. Repairs besides those
of the values: `fence`, `bare` (no list around it), `malformed`, `json_literal`, `joined_strings`.

Calls are not read by Python's own grammar, which refuses a parameter named `from` and a line break
in a string. Positional arguments are not guessed: they make the call malformed.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from lhkit.json_values import JSON, NotJsonError, compact, plain_json
from lhkit.messages import ToolCall, ToolCallMessage
from lhkit.models.dialects.base import ToolSpec, names_of
from lhkit.models.dialects.parser import IncrementalParser, NextCall, OpenBrackets, OpenCall
from lhkit.models.dialects.transcript import is_writable
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
"""Wider than Python's: a tool may be `get-item` or `3d`. A name that no tool has must begin as in
Python (`IDENTIFIER`)."""
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
    """Speaks `[f(a="x")]` with models that have no tool format of their own."""

    name = "pythonic"
    protocol = """\
To use tools, answer with only this list: [tool(argument="value", other=1)]
You then get the results. Otherwise answer in words.
Tools:"""

    def render_call(self, name: str, args: Mapping[str, JSON]) -> str:
        """Return the call as a list of one.

        Raises:
            NotJsonError: if JSON cannot carry the arguments.
        """
        return f"[{write_call(name, args)}]"

    def incremental(self, tools: Sequence[ToolSpec] = ()) -> IncrementalParser:
        """Return a parser for one streamed response; of the tools it needs only the names."""
        return _PythonicParser(names_of(tools))

    def written(self, calls: Sequence[ToolCallMessage]) -> Sequence[str]:
        """Return the calls as one list, and as they came those that cannot be written."""
        written: list[str] = []
        raws: list[str] = []
        for call in calls:
            try:
                good = write_call(call.name, call.args) if is_writable(call) else ""
            except NotJsonError:
                good = ""
            (written if good else raws).append(good or call.raw)
        return [*([f"[{', '.join(written)}]"] if written else []), *raws]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A call begins at `at`, after a fence if there is one."""

    at: int
    name: str
    has_fence: bool


Decision: TypeAlias = Start | Literal["no", "wait"]
"""A call, none, or more input is needed."""


def start_at(text: str, at: int, known: Collection[str], *, may_be_bare: bool) -> Decision:
    """Decide whether a call begins at `at`.

    A list of calls is one if it names a tool in `known` or has no or keyword arguments. A call
    without a list must name a tool, and stand at the start of a line or in a fence.
    """
    found = _OPEN.match(text, at)
    if found is None:
        return _maybe(text, at, known, may_be_bare=may_be_bare)
    name, has_fence = found.group("name"), found.group("fence") is not None
    if name not in known and not IDENTIFIER.match(name):
        return "no"
    start = Start(at=found.end("fence") if has_fence else at, name=name, has_fence=has_fence)
    if name in known and (found.group("list") or has_fence or may_be_bare):
        return start
    if found.group("list") is None:
        return "no"
    if _ARGUMENTS.match(text, found.end()):
        return start
    return "wait" if _MAYBE_ARGUMENTS.fullmatch(text, found.end()) else "no"


def _maybe(text: str, at: int, known: Collection[str], *, may_be_bare: bool) -> Decision:
    found = _MAYBE_OPEN.fullmatch(text, at)
    if found is None:
        return "no"
    begun = found.group("name")
    if begun and (not found.group("list") or not IDENTIFIER.match(begun)):
        could_be_known = any(name.startswith(begun) for name in known)
        if found.group("list"):
            return "wait" if could_be_known else "no"
        return "wait" if could_be_known and (may_be_bare or found.group("fence")) else "no"
    return "wait"


class _OpenCalls(OpenBrackets):
    """A list that lacks a quote or a bracket ends where the next list of calls begins.

    Inside of a string that is so only if the whole makes no sense, unless `is_hasty`.
    """

    def __init__(self, known: Collection[str], *, is_hasty: bool) -> None:
        super().__init__()
        self._known = known
        self._is_hasty = is_hasty

    def _next_call(self, text: str, at: int) -> NextCall:
        before = self._last_inside if self._quote else self._last
        if text[at] != "[" or before not in {")", "]"} or (self._quote and before == ")"):
            return "no"
        found = start_at(text, at, self._known, may_be_bare=False)
        if isinstance(found, Start):
            return "yes" if self._is_hasty or not self._quote else "maybe"
        return found


class _PythonicParser(IncrementalParser):
    """`known` are the names of the tools on offer."""

    def __init__(self, known: Collection[str]) -> None:
        super().__init__()
        self._known = known
        self._name = ""  # of the first open call
        self._splits = 0
        self._in_fence = False
        self._awaits_fence_end = False
        self._at_line_start = True

    def _step(self, *, is_final: bool) -> bool:
        if self._awaits_fence_end:
            return self._step_out_of_fence(is_final=is_final)
        if blank := _SPACE.match(self._pending, self._at):
            self._say(self._consume(blank.end()))
        if self._at == len(self._pending):
            return True
        found = start_at(self._pending, self._at, self._known, may_be_bare=self._at_line_start)
        if isinstance(found, Start):
            self._begin(found)
        elif found == "wait" and not is_final:
            return False
        else:
            ahead = _INTERESTING.search(self._pending, self._at + 1)
            self._say(self._consume(ahead.start() if ahead else len(self._pending)))
        return True

    def _step_out_of_fence(self, *, is_final: bool) -> bool:
        """Leave out the end of a fence that stands directly after its calls."""
        end = _FENCE_END.match(self._pending, self._at)
        if end is None and not is_final and _MAYBE_FENCE_END.fullmatch(self._pending, self._at):
            return False
        self._awaits_fence_end = False
        if end is not None:
            self._in_fence = False
            self._at = end.end()
        return True

    def _say(self, text: str) -> str:
        is_new = "\n" in text or self._at_line_start
        self._at_line_start = is_new and not text.rpartition("\n")[2].strip()
        return super()._say(text)

    def _begin(self, start: Start) -> None:
        self._at = start.at
        self._in_fence = self._in_fence or start.has_fence
        self._name = start.name
        self._open = _OpenCalls(self._known, is_hasty=self._splits > _MOST_SPLITS)

    def _take(self, call: OpenCall) -> int:
        raw = call.raw
        calls = self._read(raw) if call.is_complete else ()
        if not calls:
            self._splits += call.boundary is not None
            raw = raw[: call.boundary]
            calls = self._malformed(raw.rstrip())
        if not calls:
            self._say(raw)
            return len(raw)
        around = ["fence"] if self._in_fence else []
        around += [] if raw.startswith("[") else ["bare"]
        for each in calls:
            self._make(replace(each, repairs=(*around, *each.repairs)))
        self._awaits_fence_end = self._in_fence
        self._at_line_start = True
        return len(raw)

    def _read(self, raw: str) -> tuple[ToolCall, ...]:
        try:
            return read_calls(raw)
        except (ValueError, RecursionError):
            return ()

    def _malformed(self, raw: str) -> tuple[ToolCall, ...]:
        """Return what names a tool but makes no sense, with its raw text, for validation."""
        if self._name not in self._known:
            return ()
        return (ToolCall(name=self._name, args=raw, raw=raw, repairs=("malformed",)),)


def write_call(name: str, args: Mapping[str, JSON]) -> str:
    """Return `f(a="x")`; a parameter that no keyword can name is written `**{"a b": 1}`.

    Raises:
        NotJsonError: if JSON cannot carry the arguments.
    """
    members = plain_json(args)
    return f"{name}({', '.join(_argument(key, value) for key, value in members.items())})"


def read_calls(raw: str) -> tuple[ToolCall, ...]:
    """Return the calls of `[f(), g()]` or of a bare `f()`.

    Raises:
        ValueError: it makes no sense, or JSON cannot carry the values.
        RecursionError: it is nested too deep.
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
    """Read `key=value` or `**{…}`."""
    if splat := _SPLAT.match(text, at):
        members, at = reader.value(splat.end())
        return members, at
    keyword = _KEYWORD.match(text, at)
    if keyword is None:
        raise ValueError("no keyword")
    value, at = reader.value(keyword.end())
    return {keyword.group(1): value}, at


def _with_repairs(call: ToolCall, repairs: list[str]) -> ToolCall:
    found = tuple(dict.fromkeys([*call.repairs, *repairs]))
    return ToolCall(name=call.name, args=call.args, raw=call.raw, repairs=found)


def _read_string(text: str, at: int) -> tuple[str, int, tuple[str, ...]] | None:
    if not text.startswith(('"', "'"), at):
        return None
    value, end, repairs = read_quoted(text, at)
    parts, found = [value], dict.fromkeys(repairs)
    while text.startswith(('"', "'"), end):  # also triple quotes: an empty one on either side
        more, end, mended = read_quoted(text, end)
        parts.append(more)
        found |= dict.fromkeys((*mended, "joined_strings"))
    return "".join(parts), end, tuple(found)


_NOTATION = Notation(
    read_string=_read_string,
    words=PYTHON_WORDS,
    foreign=JSON_WORDS,
    foreign_name="json_literal",
    has_bare_text=False,
)
