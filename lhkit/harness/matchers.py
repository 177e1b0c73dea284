"""The matchers of a scenario: from plain data to values, and what is wrong with them.

A plain value stands for itself. A mapping with exactly one of the keys `equals`, `one_of`,
`any`, `matches`, `approx`, `date`, `text`, `fields`, `items` is a matcher; everything inside a
plain value is literal. `matching` compares them with calls.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

from lhkit.errors import ScenarioError
from lhkit.harness.equality import is_number
from lhkit.harness.faults import Fault, Path, shown_path
from lhkit.harness.patterns import Pattern, pattern_fault
from lhkit.harness.relative_dates import DATES, DAYS_OF, MOST_DAYS, RELATIVE_DATE, DateIs
from lhkit.harness.text_forms import folded, spaceless

DEFAULT_REL = 1e-9
"""Relative tolerance of `approx` without `abs` and `rel`: rounding of binary fractions only."""


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
class Text:
    """A text, compared without regard to case, width of white space or Unicode form.

    With `is_spaceless` white space does not count at all: Korean is written with and without it.
    """

    text: str
    is_spaceless: bool = False

    def is_like(self, other: str) -> bool:
        """Return whether another text says the same."""
        mine, theirs = folded(self.text), folded(other)
        return spaceless(mine) == spaceless(theirs) if self.is_spaceless else mine == theirs


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
    _refuse(faults)
    return slot


def _refuse(faults: Sequence[Fault]) -> None:
    if faults:
        raise ScenarioError("\n".join(f"{shown_path(f.path)}: {f.message}" for f in faults))


def parse_slots(raw: Mapping[str, Any]) -> dict[str, Slot]:
    """Return the matcher of each argument or field, as `parse_slot`."""
    return {name: parse_slot(each) for name, each in raw.items()}


ANY_OF = "any_of"


def alternatives(args: Mapping[str, Any]) -> tuple[tuple[Path, Any], ...]:
    """Return each set of arguments that is right, with its place in `args`.

    There is one, unless `args` is `{any_of: [{…}, {…}]}`. (An argument of that name that is a list
    is written as `{any_of: {equals: […]}}`.)
    """
    listed = args.get(ANY_OF) if len(args) == 1 else None
    if isinstance(listed, list | tuple):
        return tuple(((ANY_OF, i), each) for i, each in enumerate(listed))
    return (((), args),)


def parse_alternatives(args: Mapping[str, Any]) -> tuple[Mapping[str, Slot], ...]:
    """Return the matchers of each set of arguments that is right.

    Raises:
        ScenarioError: one of them is malformed; one line per fault.
    """
    _refuse(tuple(args_faults(args)))
    return tuple(parse_slots(each) for _, each in alternatives(args))


def args_faults(args: Mapping[str, Any], path: Path = ()) -> Iterator[Fault]:
    """Yield everything that is wrong with the matchers of a call's arguments."""
    listed = alternatives(args)
    if not listed:
        yield Fault((*path, ANY_OF), "must list at least one set of arguments")
    for at, each in listed:
        if isinstance(each, Mapping):
            for name, raw in each.items():
                yield from slot_faults(raw, (*path, *at, name))
        else:
            yield Fault(
                (*path, *at),
                "must be a set of arguments (`name: matcher`); an argument that is called any_of "
                "and is a list is written as {equals: […]}",
            )


def parse_row(raw: Mapping[str, Any]) -> Equals | Fields:
    """Return the matcher of a row of data: of some of its fields, or of the whole row.

    `{equals: {…}}` and `{fields: {…}}` are about the whole row, as they are about an argument.

    Raises:
        ScenarioError: a matcher is malformed; one line per fault.
    """
    if _is_of_whole_row(raw):
        slot = parse_slot(raw)
        if isinstance(slot.matcher, Equals | Fields):
            return slot.matcher
    return Fields(fields=parse_slots(raw), extra=True)


def row_faults(raw: Mapping[str, Any], path: Path = ()) -> Iterator[Fault]:
    """Yield everything that is wrong with the matchers of a row."""
    if _is_of_whole_row(raw):
        yield from slot_faults(raw, path)
    else:
        for name, each in raw.items():
            yield from slot_faults(each, (*path, name))


def _is_of_whole_row(raw: Mapping[str, Any]) -> bool:
    kinds = [name for name in ("equals", "fields") if isinstance(raw.get(name), Mapping)]
    return len(kinds) == 1 and raw.keys() <= {kinds[0], *_MODIFIERS.get(kinds[0], ())}


def slot_faults(raw: Any, path: Path = ()) -> tuple[Fault, ...]:
    """Return everything that is wrong with a matcher in plain data; empty if it is fine."""
    faults: list[Fault] = []
    _read(raw, path, faults)
    return tuple(faults)


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
    relative = RELATIVE_DATE.fullmatch(expression) if isinstance(expression, str) else None
    if relative and abs(int(relative["by"] or 0)) * DAYS_OF[relative["unit"] or "d"] > MOST_DAYS:
        return _wrong((*path, "date"), f"must be within {MOST_DAYS} days of today", faults)
    if relative or (isinstance(expression, str) and _is_iso_date(expression)):
        return DateIs(expression)
    return _wrong((*path, "date"), f"must be {DATES}", faults)


def _is_iso_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _text(raw: Mapping[str, Any], path: Path, faults: list[Fault]) -> Matcher:
    if not isinstance(raw["text"], str):
        return _wrong((*path, "text"), "must be a text", faults)
    if raw.get("ignore", "spaces") != "spaces":
        return _wrong((*path, "ignore"), "must be spaces", faults)
    return Text(raw["text"], is_spaceless="ignore" in raw)


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
    "text": ("ignore",),
    "fields": ("extra",),
    "items": ("unordered",),
}

MATCHER_KEYS = tuple(_READERS)
