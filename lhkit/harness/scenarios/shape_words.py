"""What pydantic found wrong in a file, in the words of the other faults. Knows no file."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

_WORDS: Mapping[str, str] = {
    "unexpected_keyword_argument": "unknown field",
    "extra_forbidden": "unknown field",
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


def shape_words(errors: Sequence[ErrorDetails]) -> str:
    """Return one sentence about a field: what it must be, and what was probably meant.

    Args:
        errors: all that is wrong there; of a union, one or more for each member.
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
    near = _near(errors[0]["input"], allowed)
    return f"{sentence}: did you mean {near}?" if near else sentence


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


def _near(value: Any, allowed: Sequence[str]) -> str | None:
    near = get_close_matches(value.lower(), allowed, n=1) if isinstance(value, str) else []
    return near[0] if near else None
