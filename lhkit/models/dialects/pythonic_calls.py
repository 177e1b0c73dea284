"""Reads and writes `f(a="x", b=1)`: calls whose values are Python literals.

Not Python's own grammar, which refuses a parameter named `from` and a line break in a string.
Repairs: `json_literal`, `trailing_comma`, `duplicate_key`, `joined_strings`, `bad_escape`,
`control_character`. Positional arguments are not guessed: they make the call malformed.
"""

import re
from collections.abc import Mapping
from typing import Any

from lhkit.json_values import JSON, compact, plain_json
from lhkit.messages import ToolCall
from lhkit.models.dialects.strings import quoted, read_quoted
from lhkit.models.dialects.turns import CONTROL_TOKEN
from lhkit.models.dialects.values import JSON_WORDS, PYTHON_WORDS, Notation, ValueReader

NAME = r"[\w\-][\w.\-]{0,99}"
"""Wider than Python's: a tool may be `get-item` or `3d`. A name that no tool has must begin as in
Python (`IDENTIFIER`)."""
IDENTIFIER = re.compile(r"[^\W\d]")
KEY = r"[^\W\d]\w{0,99}"

_KEY = re.compile(KEY)
_HEAD = re.compile(rf"\s*({NAME})\s*\(\s*")
_KEYWORD = re.compile(rf"({KEY})\s*=")
_SPLAT = re.compile(r"\*\*\s*(?=\{)")


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
