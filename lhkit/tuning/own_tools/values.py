"""What an argument may be and the words for it, from a phrase file or a JSON Schema. Pure."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from lhkit.errors import TuningError
from lhkit.harness.equality import SchemaNode, property_of
from lhkit.harness.matchers import DateIs, slot_faults
from lhkit.tools.validation import Accepted, ArgumentValidator, Invalid, describe
from lhkit.tuning.own_tools.templates import plain_word
from lhkit.vocab.json_values import compact

_SPREAD = 5
"""Numbers taken from a range."""

_OPEN_RANGE = 9
"""How far a range without an upper end is followed."""

_COMBINING = frozenset({"anyOf", "oneOf", "allOf"})

_CHECK_DAY = date(2026, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value. `words` are ways to say it; none if it cannot be said. `day` is a relative day."""

    words: tuple[str, ...]
    value: Any = None
    day: DateIs | None = None

    def on(self, today: date) -> Any:
        """Return the argument as the model has to write it on that day."""
        return self.value if self.day is None else self.day.resolved(today)


def value_of(raw: Any) -> Value:
    """Return what an entry under `values:` means.

    It is a plain value, `{say: words, value: …}`, or `{say: words, date: today+1d}`.

    Raises:
        TuningError: it is a structure and none of these, or no date.
    """
    if not isinstance(raw, Mapping):
        word = plain_word(raw)
        return Value(words=() if word is None else (word,), value=raw)
    kind = next((key for key in ("value", "date") if set(raw) == {"say", key}), None)
    if kind is None:
        raise TuningError(
            f"{compact(raw)} must be {{say: words, value: …}} or {{say: words, date: …}}"
        )
    words = raw["say"] if isinstance(raw["say"], list) else [raw["say"]]
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise TuningError(f"say: {compact(raw['say'])} must be a text or a list of texts")
    if kind == "value":
        return Value(words=tuple(words), value=raw["value"])
    faults = slot_faults({"date": raw["date"]})
    if faults:
        raise TuningError(f"date: {faults[0].message}")
    return Value(words=tuple(words), day=DateIs(raw["date"]))


def schema_fault(parameters: Mapping[str, Any], argument: str, value: Value) -> str | None:
    """Return what the schema of one argument has against a value, in words; None if nothing."""
    verdict = _validator(parameters, argument).check({argument: value.on(_CHECK_DAY)})
    match verdict:
        case Accepted():
            return None
        case Invalid(expected=expected, actual=actual):
            return f"{actual} breaks the schema: expected {expected}"
        case _:
            return "breaks the schema"


def _validator(parameters: Mapping[str, Any], argument: str) -> ArgumentValidator:
    schema = {key: parameters[key] for key in ("$defs", "definitions") if key in parameters}
    properties = {argument: property_of(parameters, argument)}
    return ArgumentValidator({**schema, "type": "object", "properties": properties})


def expected_of(parameters: Mapping[str, Any], argument: str) -> str:
    """Return in a few words what an argument accepts."""
    node = SchemaNode.of(parameters)
    branches = node.at(property_of(parameters, argument)).branches()
    plain = ({k: v for k, v in each.items() if k not in _COMBINING} for each in branches)
    return " or ".join(dict.fromkeys(map(describe, plain)))


def given_values(parameters: Mapping[str, Any], argument: str) -> tuple[Value, ...]:
    """Return values that the schema of an argument names itself; empty if it names none.

    These are constants, choices, examples and defaults, yes and no, and numbers of a range.
    """
    node = SchemaNode.of(parameters).at(property_of(parameters, argument))
    named = [each for branch in node.branches() for each in _named(branch)]
    distinct = {compact(each): each for each in named}
    values = (value_of({"say": "-", "value": each}) for each in distinct.values())
    fitting = [each.value for each in values if not schema_fault(parameters, argument, each)]
    return tuple(
        Value(words=() if word is None else (word,), value=each)
        for each, word in ((each, plain_word(each)) for each in fitting)
    )


def is_day(parameters: Mapping[str, Any], argument: str) -> bool:
    """Return True if the schema says that an argument is a date."""
    node = SchemaNode.of(parameters).at(property_of(parameters, argument))
    return any(branch.get("format") == "date" for branch in node.branches())


def _named(schema: Mapping[str, Any]) -> Iterator[Any]:
    kind = schema.get("type")
    if "const" in schema:
        yield schema["const"]
    elif "enum" in schema:
        yield from (each for each in schema["enum"] if each is not None)
    elif kind == "boolean":
        yield from (True, False)
    else:
        yield from (schema["default"],) if schema.get("default") is not None else ()
        yield from schema.get("examples", ())
        yield from _numbers(schema) if kind in {"integer", "number"} else ()


def _numbers(schema: Mapping[str, Any]) -> Iterator[int]:
    """Yield whole numbers from a range, its ends among them."""
    step = schema.get("multipleOf", 1)
    step = step if isinstance(step, int) and step > 0 else 1
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf) + 1)
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf) - 1)
    if math.isinf(low):
        return
    first = math.ceil(low / step)
    last = first + _OPEN_RANGE if math.isinf(high) else math.floor(high / step)
    count = min(_SPREAD, last - first + 1)
    for number in range(count):
        yield (first + round(number * (last - first) / max(1, count - 1))) * step
