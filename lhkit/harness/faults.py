"""What is wrong in a file of scenarios, by place, in the same words whoever found it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias

from pydantic_core import ErrorDetails

from lhkit.tools.schema import SchemaNode, item_of, property_of

Path: TypeAlias = tuple[str | int, ...]
"""Where something stands in plain data: keys and indices from the top."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and where."""

    path: Path
    message: str


def shown_path(path: Path) -> str:
    """Return a path as people write it: `turns[0].expect.calls[1].args.date`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).lstrip(".") or "(top)"


_UNKNOWN = "unknown field"
_WORDS: Mapping[str, str] = {
    "unexpected_keyword_argument": _UNKNOWN,
    "extra_forbidden": _UNKNOWN,
    "missing": "is required",
}
_KINDS: Mapping[str, str] = {
    "string_type": "a text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "tuple_type": "a list",
    "dict_type": "a mapping (`key: value`)",
    "mapping_type": "a mapping (`key: value`)",
    "dataclass_type": "a mapping (`key: value`)",
    "model_type": "a mapping (`key: value`)",
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
    "too_short": "a list of {min_length} or more",
    "too_long": "a list of {max_length} or less",
}


def shape_words(errors: Sequence[ErrorDetails], known: Sequence[str] = ()) -> str:
    """Return one sentence about a field: what it must be, and what was probably meant.

    Args:
        errors: all that is wrong there; of a union, one or more for each member.
        known: the fields that may stand there (`known_fields`), for one that is unknown.
    """
    allowed = [each for error in errors for each in _allowed(error)]
    kinds = dict.fromkeys(filter(None, map(_kind, errors)))
    others = dict.fromkeys(
        _WORDS.get(error["type"], error["msg"])
        for error in errors
        if error["type"] != "literal_error" and _kind(error) is None
    )
    wanted = [_one_of(allowed)] if allowed else []
    told = " or ".join([*wanted, *kinds])
    sentence = " or ".join([*([f"must be {told}"] if told else []), *others])
    if _UNKNOWN in others:
        return sentence + did_you_mean(errors[0]["loc"][-1], known)
    return sentence + did_you_mean(errors[0]["input"], allowed)


def did_you_mean(written: Any, known: Sequence[str]) -> str:
    """Return the end of a sentence that names what was probably meant; empty if nothing is near."""
    near = get_close_matches(written.lower(), known, n=1) if isinstance(written, str) else []
    return f": did you mean {near[0]}?" if near else ""


def known_fields(schema: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Return the fields that a JSON Schema names at a place, of all that may stand there."""
    nodes = [SchemaNode.of(schema)]
    for part in path:
        nodes = [node.at(_inside(at, part)) for node in nodes for at in node.branches()]
    branches = (branch for node in nodes for branch in node.branches())
    return tuple(dict.fromkeys(name for each in branches for name in each.get("properties", {})))


def _inside(branch: Mapping[str, Any], part: str | int) -> Any:
    return item_of(branch, part) if isinstance(part, int) else property_of(branch, part)


def _kind(error: ErrorDetails) -> str | None:
    """Return what the value must be, for a sentence that begins with `must be`."""
    context: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] == "string_pattern_mismatch":
        pattern = context["pattern"]
        return "more than white space" if pattern == r"\S" else f"a text like {pattern}"
    kind = _KINDS.get(error["type"])
    return None if kind is None else kind.format(**context)


def _allowed(error: ErrorDetails) -> Iterator[str]:
    """Yield the words that a choice takes; pydantic has them as `'a', 'b' or 'c'`."""
    if error["type"] == "literal_error":
        listed = str(error["ctx"]["expected"]).replace(" or ", ", ").split(", ")
        yield from (each.strip("'") for each in listed)


def _one_of(allowed: Sequence[str]) -> str:
    return allowed[0] if len(allowed) == 1 else f"one of {', '.join(allowed)}"
