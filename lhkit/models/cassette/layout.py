"""JSON laid out for people: short things on one line, long texts as lists of their lines.

Knows which fields of a cassette are long texts, and nothing else about cassettes.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

WIDTH_CHARS = 100
_SHORT_TEXT_CHARS = 60
_TEXTS = {
    "context",
    "description",
    "fragment",
    "prompt_text",
    "raw",
    "raw_text",
    "text",
    "thinking",
}
_OPAQUE = {"args", "result", "server_metrics", "parameters"}
"""Fields whose content is anybody's JSON: a list in there is a list, never a text."""

_HALVES = r"(?<=[\ud800-\udbff])(?=[\udc00-\udfff])"
"""Between two lone surrogates that JSON would join into one character (elsewhere it does)."""
_CUTS = re.compile(rf"(?<=\n)(?!\Z)|{_HALVES}")


def laid_out(value: Any, indent: str = "") -> str:
    """Return plain JSON as indented text; what fits on a line stays on one, and so do numbers."""
    line = _one_line(value)
    if not isinstance(value, Mapping | list) or len(indent) + len(line) <= WIDTH_CHARS:
        return line
    if isinstance(value, list) and all(isinstance(item, int | float) for item in value):
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        items = [laid_out(item, deeper) for item in value]
        brackets = "[]"
    else:
        items = [f"{_one_line(key)}: {laid_out(item, deeper)}" for key, item in value.items()]
        brackets = "{}"
    body = f",\n{deeper}".join(items)
    return f"{brackets[0]}\n{deeper}{body}\n{indent}{brackets[1]}"


def folded(value: Any) -> Any:
    """Return `value` with its long texts as lists of their lines."""
    if isinstance(value, Mapping):
        return {key: _folded_field(key, item) for key, item in value.items()}
    return [folded(item) for item in value] if isinstance(value, list) else value


def unfolded(value: Any) -> Any:
    """Return `value` with its long texts whole again: the inverse of `folded`."""
    if isinstance(value, Mapping):
        return {key: _unfolded_field(key, item) for key, item in value.items()}
    return [unfolded(item) for item in value] if isinstance(value, list) else value


def _folded_field(key: str, value: Any) -> Any:
    if key in _OPAQUE:
        return value
    if key not in _TEXTS or not isinstance(value, str):
        return folded(value)
    is_long = len(value) > _SHORT_TEXT_CHARS or re.search(_HALVES, value)
    lines = _CUTS.split(value)
    return lines if is_long and len(lines) > 1 else value


def _unfolded_field(key: str, value: Any) -> Any:
    if key in _OPAQUE:
        return value
    if key in _TEXTS and isinstance(value, list) and all(isinstance(x, str) for x in value):
        return "".join(value)
    return unfolded(value)


def _one_line(value: Any) -> str:
    """Return `value` on one line, with spaces after the separators."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value, allow_nan=False)
    return text
