"""A concrete value for a matcher or a JSON Schema: what a gold trace is made of.

Not a generator of test data: one plain value each, always the same.
"""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from math import inf
from typing import Any

from lhkit.harness.matchers import ArgumentSet, Place, example_arguments
from lhkit.tools.schema import SchemaNode, item_of, property_of

_EXAMPLE_DATE = date(2026, 1, 1)
_EXAMPLE_TEXT = "sample"


def derived(
    expected: ArgumentSet, schema: Mapping[str, Any], *, today: date | None = None
) -> dict[str, Any]:
    """Return arguments that fit every matcher; optional ones are left out.

    Raises:
        Underivable: a required `matches`, of which only an author knows what fits.
    """
    top = Place(SchemaNode.of(schema), today)
    return example_arguments(expected, top, lambda place: example(place.node, place.today))


def example(node: SchemaNode, today: date | None = None) -> Any:
    """Return a value that a schema most likely accepts (the caller validates)."""
    schema = node.branches()[0]
    given = _given(schema)
    return given[0] if given else _of_type(schema, node, today or _EXAMPLE_DATE)


def _given(schema: Mapping[str, Any]) -> Sequence[Any]:
    """Return the values that a schema itself names."""
    named = [schema[keyword] for keyword in ("const", "default") if keyword in schema]
    return named or schema.get("enum") or schema.get("examples") or ()


def _of_type(schema: Mapping[str, Any], node: SchemaNode, today: date) -> Any:
    kind = schema.get("type", "string")
    match kind if isinstance(kind, str) else next(iter(kind), "string"):
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
        case "array":
            items = range(schema.get("minItems", 0))
            return [example(node.at(item_of(schema, i)), today) for i in items]
        case "object":
            required = schema.get("required", ())
            return {name: example(node.at(property_of(schema, name)), today) for name in required}
        case _:
            return _string(schema, today)


def _number(schema: Mapping[str, Any]) -> Any:
    """Return 1, or the number nearest to it that the bounds allow."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    high = schema.get("maximum", schema.get("exclusiveMaximum", inf) - 1)
    return min(max(1, low), high)


def _string(schema: Mapping[str, Any], today: date) -> str:
    text = next(texts_like(schema, today), _EXAMPLE_TEXT)
    padded = text.ljust(schema.get("minLength", 0), "x")
    return padded[: schema.get("maxLength", len(padded))]


_OF_FORMAT: Mapping[str, Sequence[str]] = {
    "time": ("09:00:00Z", "21:30:00Z"),
    "date-time": ("{day}T09:00:00Z", "{day}T21:30:00Z"),
    "uuid": ("00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000001"),
    "ipv4": ("192.0.2.1", "192.0.2.2"),
    "ipv6": ("2001:db8::1", "2001:db8::2"),
    "email": ("someone@example.com", "another@example.com"),
    "uri": ("https://example.com/a", "https://example.com/b"),
}
_CHOICES = 8


def texts_like(schema: Mapping[str, Any], today: date) -> Iterator[str]:
    """Yield texts that fit the `examples`, `format` and `pattern` of a schema, as far as can be."""
    yield from (each for each in schema.get("examples", ()) if isinstance(each, str))
    formed = _OF_FORMAT.get(schema.get("format", ""), ())
    pattern = schema.get("pattern", "")
    candidates = (*(each.format(day=today) for each in formed), today.isoformat())
    if not formed and schema.get("format") != "date":
        candidates = (_EXAMPLE_TEXT, *candidates)
    yield from (each for each in candidates if re.search(pattern, each))
    if pattern:
        yield from texts_of(pattern)


def texts_of(pattern: str) -> Iterator[str]:
    """Yield a few texts that a regular expression finds; none of one with unusual parts."""
    try:
        parsed = _PARSER.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return
    made = dict.fromkeys(_spelt(parsed, choice) for choice in range(_CHOICES))
    yield from (text for text in made if text and re.search(pattern, text))


_PARSER: Any = importlib.import_module("re._parser")
_MOST_REPEATS = 64


def _spelt(parts: Any, choice: int) -> str:
    """Return the parts of a pattern spelt out; of what can vary, the given choice."""
    return "".join(_part(str(kind), value, choice) for kind, value in parts)


def _part(kind: str, value: Any, choice: int) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "IN":
            chars = "".join(_chars(str(each), given) for each, given in value)
            return chars[choice % len(chars)] if chars else "x"
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _spelt(value[2], choice) * min(int(value[0]), _MOST_REPEATS)
        case "SUBPATTERN":
            return _spelt(value[3], choice)
        case "BRANCH":
            return _spelt(value[1][choice % len(value[1])], choice)
        case _:  # anchors and what looks around: whether it fits is looked at afterwards
            return "x" if kind in {"ANY", "NOT_LITERAL"} else ""


def _chars(kind: str, value: Any) -> str:
    """Return some characters of a part of a class."""
    match kind:
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return "".join(map(chr, range(value[0], min(value[1], value[0] + _CHOICES) + 1)))
        case "CATEGORY":
            return {"CATEGORY_DIGIT": "0123", "CATEGORY_SPACE": " "}.get(str(value), "x")
        case _:
            return ""
