"""Values that fill a phrase's slots."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from lhkit.errors import TuningError
from lhkit.harness.matchers import DateIs, slot_faults
from lhkit.harness.scenario import did_you_mean
from lhkit.json_values import compact
from lhkit.tools.schema import SchemaNode, property_of
from lhkit.tools.validation import Accepted, ArgumentValidator, Invalid, describe
from lhkit.tuning.phrases.file import filled, plain_word, slots_of, steps_of

_SPREAD = 5
"""Numbers taken from a range."""

_OPEN_RANGE = 9
"""How far a range without an upper end is followed."""

_COMBINING = frozenset({"anyOf", "oneOf", "allOf"})

CHECK_DAY = date(2026, 1, 1)
"""A relative day is checked as if it were said on this one."""

SAY = "say"
"""`{say}` in a look-up is what the user said."""

_LOOK_UP = ("tool", "take", "args", "where")
_FORMS = (
    "{say: words, value: …}, {say: words, date: …}, or "
    "{say: words, tool: …, args: {…}, take: …, where: {…}} to look it up"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """A call that has to come first, and where in its result the value stands.

    Attributes:
        tool: which tool to call.
        take: place in its result, such as `notes.id`.
        args: its arguments. A text may hold `{say}`, a `DateIs` is a relative day, and a `LookUp`
            is looked up before.
        where: what fields of the right row hold, written like `args`.
    """

    tool: str
    take: str
    args: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)

    def on(self, today: date, word: str) -> "LookUp":
        """Return it for that day and for what is said."""
        args = {name: _settled(value, today, word) for name, value in self.args.items()}
        where = {name: _settled(value, today, word) for name, value in self.where.items()}
        return replace(self, args=args, where=where)

    def calls(self) -> int:
        """Return how many calls it takes."""
        return calls_for(self.args)


def calls_for(args: Mapping[str, Any]) -> int:
    """Return how many calls it takes to call a tool: itself, and what is looked up before."""
    return 1 + sum(value.calls() for value in args.values() if isinstance(value, LookUp))


def _settled(value: Any, today: date, word: str) -> Any:
    match value:
        case str():
            return filled(value, lambda _slot: word) or ""
        case LookUp():
            return value.on(today, word)
        case DateIs():
            return value.resolved(today)
        case _:
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value. `words` are ways to say it; none if it cannot be said.

    `day` is a relative day; what `look_up` finds is known only when it is played.
    """

    words: tuple[str, ...]
    value: Any = None
    day: DateIs | None = None
    look_up: LookUp | None = None

    def on(self, today: date, word: str = "") -> Any:
        """Return the argument as the model has to write it on that day, or how to look it up."""
        if self.look_up is not None:
            return self.look_up.on(today, word)
        return self.value if self.day is None else self.day.resolved(today)


def value_of(raw: Any) -> Value:
    """Return what an entry under `values:` means.

    It is a plain value, `{say: words, value: …}`, `{say: words, date: today+1d}`, or
    `{say: words, tool: …, args: …, take: …, where: …}`.

    Raises:
        TuningError: it is a structure and none of these, or no date, or no look-up.
    """
    if not isinstance(raw, Mapping):
        word = plain_word(raw)
        return Value(words=() if word is None else (word,), value=raw)
    if is_look_up(raw):
        asked = {key: value for key, value in raw.items() if key != SAY}
        return Value(words=_words(raw) if SAY in raw else (), look_up=look_up_of(asked))
    kind = next((key for key in ("value", "date") if set(raw) == {SAY, key}), None)
    if kind is None:
        raise TuningError(f"{compact(raw)} must be {_FORMS}")
    words = _words(raw)
    if kind == "value":
        return Value(words=words, value=raw["value"])
    return Value(words=words, day=_day(raw["date"]))


def _words(raw: Mapping[str, Any]) -> tuple[str, ...]:
    said = raw.get(SAY)
    words = said if isinstance(said, list) else [said]
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise TuningError(f"say: {compact(said)} must be a text or a list of texts")
    return tuple(words)


def _day(expression: Any) -> DateIs:
    faults = slot_faults({"date": expression})
    if faults:
        raise TuningError(f"date: {faults[0].message}")
    return DateIs(expression)


def is_look_up(raw: Any) -> bool:
    """Return True for what is meant to be looked up, right or wrong."""
    return isinstance(raw, Mapping) and {"tool", "take"} <= raw.keys()


def look_up_of(raw: Mapping[str, Any]) -> LookUp:
    """Return the look-up that `{tool: …, args: {…}, take: rows.id, where: {…}}` means.

    Raises:
        TuningError: a part of it is none; begins with the part.
    """
    unknown = sorted(raw.keys() - set(_LOOK_UP))
    if unknown:
        near = did_you_mean(unknown[0], _LOOK_UP)
        raise TuningError(f"{unknown[0]}: unknown field of a look-up{near}: write {_FORMS}")
    if not isinstance(raw["tool"], str):
        raise TuningError(f"tool: {compact(raw['tool'])} must be the name of a tool")
    try:
        steps_of(str(raw["take"]))
    except TuningError as error:
        raise TuningError(f"take: {error}") from error
    args, where = ({k: _part(raw, key, k) for k in _table(raw, key)} for key in ("args", "where"))
    if any(isinstance(value, LookUp) for value in where.values()):
        raise TuningError("where: must be words, numbers or {date: …}; look things up in `args`")
    return LookUp(tool=raw["tool"], take=str(raw["take"]), args=args, where=where)


def _table(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = raw.get(key, {})
    if not isinstance(table, Mapping):
        raise TuningError(f"{key}: {compact(table)} must be a mapping of names to values")
    return table


def _part(raw: Mapping[str, Any], key: str, name: str) -> Any:
    value = raw[key][name]
    try:
        if is_look_up(value):
            return look_up_of(value)
        if isinstance(value, Mapping) and set(value) == {"date"}:
            return _day(value["date"])
        slots = slots_of(value) if isinstance(value, str) else ()
    except TuningError as error:
        raise TuningError(f"{key}.{name}: {error}") from error
    if any(str(slot) != SAY for slot in slots):
        raise TuningError(f"{key}.{name}: {value!r}: the only slot here is {{say}}, what was said")
    return value


def schema_fault(parameters: Mapping[str, Any], argument: str, value: Value) -> str | None:
    """Return what the schema of one argument has against a value, in words; None if nothing."""
    verdict = _validator(parameters, argument).check({argument: value.on(CHECK_DAY)})
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
