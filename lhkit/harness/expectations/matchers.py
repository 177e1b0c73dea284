"""The matcher grammar of a scenario (evaluation.md §1): from plain data to values, and its faults.

A plain value stands for itself. A mapping with exactly one of the keys `equals`, `one_of`, `any`,
`matches`, `approx`, `date`, `text`, `fields`, `items` is a matcher; everything inside a plain value
is literal. Comparing is `comparison`'s business.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, TypeAlias

from lhkit.errors import ScenarioError
from lhkit.harness.expectations.equality import is_number
from lhkit.harness.expectations.pattern import Pattern, pattern_fault

Path: TypeAlias = tuple[str | int, ...]
"""Where something stands in plain data: keys and indices from the top."""

DEFAULT_REL = 1e-9
"""Relative tolerance of `approx` without `abs` and `rel`: rounding of binary fractions only."""

MOST_DAYS = 36_525
"""How far from today a relative date may be: a hundred years."""

_DATE = re.compile(r"today(?:([+-]\d{1,5})([dw]))?")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and where."""

    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class Equals:
    """The value itself, by typed equality."""

    value: Any


@dataclass(frozen=True, slots=True)
class OneOf:
    """Any of these."""

    options: "tuple[Matcher, ...]"


@dataclass(frozen=True, slots=True)
class AnyValue:
    """Anything at all."""


@dataclass(frozen=True, slots=True)
class Matches:
    """A text in which the pattern is found (as with `re.search`)."""

    pattern: Pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Approx:
    """A number within the larger of two tolerances."""

    value: float
    abs: float
    rel: float


@dataclass(frozen=True, slots=True)
class DateIs:
    """A day as ISO text: `today`, `today-1d`, `today+2w`, or a date."""

    expression: str

    def resolved(self, today: date | None) -> str:
        """Return the ISO date that is meant.

        Raises:
            ScenarioError: the expression is relative and `today` is None, or the calendar ends
                before that day.
        """
        days = _days_from(self.expression)
        if days is None:
            return self.expression
        if today is None:
            raise ScenarioError(f"date {self.expression!r} needs a clock: pass today=")
        try:
            return (today + timedelta(days=days)).isoformat()
        except OverflowError as error:
            raise ScenarioError(
                f"date {self.expression!r}: from {today} on it is beyond the calendar"
            ) from error


def _days_from(expression: str) -> int | None:
    """Return how many days from today a relative date is; None for any other text."""
    relative = _DATE.fullmatch(expression)
    if relative is None:
        return None
    return int(relative[1] or 0) * (7 if relative[2] == "w" else 1)


@dataclass(frozen=True, slots=True)
class Text:
    """A text, compared without regard to case, width of white space or Unicode form."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """An object, field by field; `extra` tolerates further ones."""

    fields: "Mapping[str, Slot]"
    extra: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """An array, item by item."""

    items: "tuple[Slot, ...]"
    unordered: bool


Matcher: TypeAlias = Equals | OneOf | AnyValue | Matches | Approx | DateIs | Text | Fields | Items


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A matcher in its place; `optional` means that the value may be left out."""

    matcher: Matcher
    optional: bool = False


def parse_slot(raw: Any) -> Slot:
    """Return the matcher that `raw` (plain data) describes.

    Raises:
        ScenarioError: `raw` looks like a matcher and is none; one line per fault.
    """
    faults: list[Fault] = []
    slot = _read(raw, (), faults)
    if faults:
        raise ScenarioError("\n".join(f"{shown_path(f.path)}: {f.message}" for f in faults))
    return slot


def slot_faults(raw: Any, path: Path = ()) -> tuple[Fault, ...]:
    """Return everything that is wrong with a matcher in plain data; empty if it is fine."""
    faults: list[Fault] = []
    _read(raw, path, faults)
    return tuple(faults)


def shown_path(path: Path) -> str:
    """Return a path as people write it: `turns[0].expect.calls[1].args.date`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).lstrip(".") or "(top)"


def _read(raw: Any, path: Path, faults: list[Fault]) -> Slot:
    keys = [key for key in raw if key in _READERS] if isinstance(raw, Mapping) else []
    if not keys:
        return Slot(matcher=Equals(raw))
    key = keys[0]
    allowed = {key, "optional", *_MODIFIERS.get(key, ())}
    for other in raw:
        if other not in allowed:
            hint = f"a matcher with {key!r} has no key {other!r}; a literal goes into 'equals'"
            faults.append(Fault((*path, str(other)), hint))
    switches = [name for name in ("optional", "extra", "unordered") if name in allowed]
    faults += [
        Fault((*path, name), "must be true or false")
        for name in switches
        if not isinstance(raw.get(name, False), bool)
    ]
    matcher = _READERS[key](raw, path, faults)
    return Slot(matcher=matcher, optional=raw.get("optional") is True)


def _equals(raw: Mapping[str, Any], _path: Path, _faults: list[Fault]) -> Matcher:
    return Equals(raw["equals"])


def _one_of(raw: Mapping[str, Any], path: Path, faults: list[Fault]) -> Matcher:
    options = raw["one_of"]
    if not isinstance(options, list | tuple) or not options:
        return _wrong((*path, "one_of"), "must be a list with at least one choice", faults)
    slots = [_read(option, (*path, "one_of", i), faults) for i, option in enumerate(options)]
    for i, slot in enumerate(slots):
        if slot.optional:
            faults.append(Fault((*path, "one_of", i), "'optional' belongs beside 'one_of'"))
    return OneOf(tuple(slot.matcher for slot in slots))


def _any(raw: Mapping[str, Any], path: Path, faults: list[Fault]) -> Matcher:
    if raw["any"] is not True:
        return _wrong((*path, "any"), "must be true", faults)
    return AnyValue()


def _matches(raw: Mapping[str, Any], path: Path, faults: list[Fault]) -> Matcher:
    fault = pattern_fault(raw["matches"])
    if fault is not None:
        return _wrong((*path, "matches"), fault, faults)
    return Matches(Pattern(raw["matches"]))


def _approx(raw: Mapping[str, Any], path: Path, faults: list[Fault]) -> Matcher:
    for name in ("approx", "abs", "rel"):
        number = raw.get(name, 0)
        if not is_number(number) or not _is_finite(number):
            return _wrong((*path, name), "must be a number", faults)
        if name != "approx" and number < 0:
            return _wrong((*path, name), "must not be below 0", faults)
    rel = 0.0 if "abs" in raw else DEFAULT_REL
    return Approx(value=raw["approx"], abs=raw.get("abs", 0.0), rel=raw.get("rel", rel))


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond the range of floats
        return False


def _date(raw: Mapping[str, Any], path: Path, faults: list[Fault]) -> Matcher:
    expression = raw["date"]
    if isinstance(expression, str) and abs(_days_from(expression) or 0) > MOST_DAYS:
        return _wrong((*path, "date"), f"must be within {MOST_DAYS} days of today", faults)
    if isinstance(expression, str) and (_DATE.fullmatch(expression) or _is_iso_date(expression)):
        return DateIs(expression)
    return _wrong((*path, "date"), "must be today, today-1d, today+2w or YYYY-MM-DD", faults)


def _is_iso_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _text(raw: Mapping[str, Any], path: Path, faults: list[Fault]) -> Matcher:
    if not isinstance(raw["text"], str):
        return _wrong((*path, "text"), "must be a text", faults)
    return Text(raw["text"])


def _fields(raw: Mapping[str, Any], path: Path, faults: list[Fault]) -> Matcher:
    fields = raw["fields"]
    if not isinstance(fields, Mapping):
        return _wrong((*path, "fields"), "must be a mapping of names to matchers", faults)
    slots = {name: _read(each, (*path, "fields", name), faults) for name, each in fields.items()}
    return Fields(fields=slots, extra=raw.get("extra") is True)


def _items(raw: Mapping[str, Any], path: Path, faults: list[Fault]) -> Matcher:
    items = raw["items"]
    if not isinstance(items, list | tuple):
        return _wrong((*path, "items"), "must be a list of matchers", faults)
    slots = tuple(_read(each, (*path, "items", i), faults) for i, each in enumerate(items))
    return Items(items=slots, unordered=raw.get("unordered") is True)


def _wrong(path: Path, message: str, faults: list[Fault]) -> Matcher:
    faults.append(Fault(path, message))
    return AnyValue()


_Reader: TypeAlias = Callable[[Mapping[str, Any], Path, list[Fault]], Matcher]

_READERS: Mapping[str, _Reader] = {
    "equals": _equals,
    "one_of": _one_of,
    "any": _any,
    "matches": _matches,
    "approx": _approx,
    "date": _date,
    "text": _text,
    "fields": _fields,
    "items": _items,
}
_MODIFIERS: Mapping[str, tuple[str, ...]] = {
    "approx": ("abs", "rel"),
    "fields": ("extra",),
    "items": ("unordered",),
}

MATCHER_KEYS = tuple(_READERS)
