"""Example values for matchers and JSON Schemas, and calls with them, for scripted models.

An example is always the same value; this does not generate test data.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import date
from math import inf
from typing import Any

from lhkit.base.schema import NOTED_FORMAT, SchemaNode, item_schema, property_schema
from lhkit.conversation.messages import ToolCall
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.validation import Accepted, ArgumentValidator
from lhkit.toolset import Session, user_code

_EXAMPLE_DATE = date(2026, 1, 1)
_EXAMPLE_TEXT = "sample"


def example(node: SchemaNode, today: date | None = None) -> Any:
    """Return a value that a schema most likely accepts; the caller has to validate it."""
    schema = node.branches()[0]
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    listed = schema.get("enum") or schema.get("examples")
    return listed[0] if listed else _example_of_type(schema, node, today or _EXAMPLE_DATE)


def _example_of_type(schema: Mapping[str, Any], node: SchemaNode, today: date) -> Any:
    kind = schema.get("type", "string")
    match kind if isinstance(kind, str) else next(iter(kind), "string"):
        case "integer" | "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
            high = schema.get("maximum", schema.get("exclusiveMaximum", inf) - 1)
            return min(max(1, low), high)
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            items = range(schema.get("minItems", 0))
            return [example(node.at(item_schema(schema, i)), today) for i in items]
        case "object":
            required = schema.get("required", ())
            return {
                name: example(node.at(property_schema(schema, name)), today) for name in required
            }
        case _:
            text = next(texts_like(schema, today), _EXAMPLE_TEXT)
            padded = text.ljust(schema.get("minLength", 0), "x")
            return padded[: schema.get("maxLength", len(padded))]


_FORMAT_EXAMPLES: Mapping[str, Sequence[str]] = {
    "time": ("09:00:00Z", "21:30:00Z"),
    "date-time": ("{day}T09:00:00Z", "{day}T21:30:00Z"),
    "uuid": ("00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000001"),
    "ipv4": ("192.0.2.1", "192.0.2.2"),
    "ipv6": ("2001:db8::1", "2001:db8::2"),
    "email": ("someone@example.com", "another@example.com"),
    "uri": ("https://example.com/a", "https://example.com/b"),
}


def texts_like(schema: Mapping[str, Any], today: date) -> Iterator[str]:
    """Yield texts for the `examples`, `format` and `pattern` of a schema, if any is known."""
    yield from (text for text in schema.get("examples", ()) if isinstance(text, str))
    format_ = schema.get("format", schema.get(NOTED_FORMAT, ""))
    formats = _FORMAT_EXAMPLES.get(format_, ()) if isinstance(format_, str) else ()
    pattern = schema.get("pattern", "")
    candidates = (*(text.format(day=today) for text in formats), today.isoformat())
    if not formats and format_ != "date":
        candidates = (_EXAMPLE_TEXT, *candidates)
    yield from (text for text in candidates if re.search(pattern, text))
    if pattern:
        yield from texts_of(pattern)


_GROUP = re.compile(r"(?<!\\)\((?:\?:)?((?:\\.|[^()\\])*)\)(?:\{(\d+)[,\d]*\}|([?*])|\+)?")
_PIECE = re.compile(r"(\\.|\[(?:\\.|[^\]\\])+\]|.)(?:\{(\d+)[,\d]*\}|([?*])|\+)?", re.DOTALL)
_ESCAPED = {"d": "01", "w": "xy", "s": " ", "b": "", "A": "", "Z": ""}
_MAX_REPEATS = 64
_MAX_PATTERN_CHARS = 1000


def texts_of(pattern: str) -> Iterator[str]:
    """Yield up to two texts that a simple regular expression matches, else none."""
    for text in dict.fromkeys(_expand(pattern, choice) for choice in (0, 1)):
        with suppress(re.error):
            if text and re.search(pattern, text):
                yield text


def _expand(pattern: str, choice: int) -> str:
    """Return a text for a pattern, groups first; `choice` selects among alternatives."""
    while (group := _GROUP.search(pattern)) and len(pattern) < _MAX_PATTERN_CHARS:
        text = re.escape(_expand_flat(group[1], choice)) * _min_repeats(group)
        pattern = pattern[: group.start()] + text + pattern[group.end() :]
    return _expand_flat(pattern, choice)


def _expand_flat(pattern: str, choice: int) -> str:
    """Return a text for a pattern without groups."""
    options = re.split(r"(?<!\\)\|", pattern[:_MAX_PATTERN_CHARS])
    pieces = _PIECE.finditer(options[choice % len(options)])
    return "".join(_example_character(piece[1], choice) * _min_repeats(piece) for piece in pieces)


def _min_repeats(piece: re.Match[str]) -> int:
    """Return the smallest number of repeats that a quantifier allows."""
    return min(int(piece[2]), _MAX_REPEATS) if piece[2] else 0 if piece[3] else 1


def _example_character(piece: str, choice: int) -> str:
    """Return a character that a piece of a pattern matches; nothing for an anchor."""
    if piece[0] == "[" and len(piece) > 1:
        first, *_, last = re.findall(r"\\.|.", piece[1:-1], re.DOTALL) * 2
        piece = "." if first == "^" else last if choice else first
    if piece[0] == "\\":
        chars = _ESCAPED.get(piece[1:], piece[1:])
    else:
        chars = {"^": "", "$": "", ".": "xy"}.get(piece, piece)
    return chars[choice % len(chars)] if chars else ""


def known_ids(session: Session) -> Mapping[str, tuple[str, ...]]:
    """Return the ids that exist in a session, by argument; empty if it has no `known_ids()`.

    Raises:
        UsageError: `known_ids()` fails.
    """
    if (ids_of := getattr(session, "known_ids", None)) is None:
        return {}
    with user_code("session: known_ids()"):
        return {
            argument: tuple(sorted(ids) if isinstance(ids, AbstractSet) else ids)
            for argument, ids in ids_of().items()
        }


def plausible_args(
    tool: ToolDefinition, *, ids: Mapping[str, Sequence[str]], text: str, today: date
) -> dict[str, Any]:
    """Return arguments that a tool most likely accepts, optional ones included.

    Args:
        tool: the tool.
        ids: existing ids, by argument.
        text: value of free texts, cut to the length that the schema allows.
        today: value of dates.
    """
    node = SchemaNode.of(tool.parameters)
    args = {}
    for name in tool.parameters.get("properties", {}):
        inner = node.at(property_schema(node.branches()[0], name))
        schema = inner.branches()[0]
        if ids.get(name):
            args[name] = [ids[name][0]] if schema.get("type") == "array" else ids[name][0]
        elif schema.get("type") == "string" and not _RESTRICTIONS & schema.keys():
            args[name] = text[: schema.get("maxLength", len(text))].strip()
        else:
            args[name] = example(inner, today)
    return args


_RESTRICTIONS = frozenset(
    {"enum", "const", "pattern", "format", NOTED_FORMAT, "default", "examples"}
)


def plausible_calls(
    tool: ToolDefinition,
    validator: ArgumentValidator,
    *,
    ids: Mapping[str, Sequence[str]],
    text: str,
    today: date,
) -> list[ToolCall]:
    """Return valid calls of a tool: with all arguments, and with the required ones only.

    Args:
        tool: the tool.
        validator: validator of the tool.
        ids: existing ids, by argument.
        text: value of free texts, cut to the length that the schema allows.
        today: value of dates.
    """
    args = plausible_args(tool, ids=ids, text=text, today=today)
    required = {name: args[name] for name in tool.parameters.get("required", ()) if name in args}
    candidates = [args] if required == args else [args, required]
    return [
        ToolCall(name=tool.name, args=candidate)
        for candidate in candidates
        if isinstance(validator.check(candidate), Accepted)
    ]
