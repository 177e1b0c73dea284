"""What an argument may be: equal, any, one of, near, a pattern, a text that is like another."""

import math
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import combinations
from typing import Any, TypeAlias

import regex

from lhkit.dates.words import month_away
from lhkit.errors import ScenarioError
from lhkit.tools.schema import SchemaNode, default_of, item_of, nfc, property_of

# Equality of two JSON values as a tool's JSON Schema means it.
#
# Numbers compare by value (`1 == 1.0`), but `true` is never `1` and `"1"` is never `1`. Text
# compares in Unicode NFC, arrays in order, objects key by key; a key that one side leaves out
# equals the schema's `default`. Not a validator: both values may be invalid and still be equal.


def equal(expected: Any, actual: Any, node: SchemaNode) -> bool:
    """Return True if both values mean the same at this place of a schema."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return any(_objects_equal(expected, actual, branch, node) for branch in node.branches())
    if _is_array(expected) and _is_array(actual):
        return len(expected) == len(actual) and any(
            all(
                equal(mine, theirs, node.at(item_of(branch, index)))
                for index, (mine, theirs) in enumerate(zip(expected, actual, strict=True))
            )
            for branch in node.branches()
        )
    return _scalars_equal(expected, actual)


def _objects_equal(
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    branch: Mapping[str, Any],
    node: SchemaNode,
) -> bool:
    mine, theirs = _by_nfc(expected), _by_nfc(actual)
    return all(
        equal(
            mine.get(name, default_of(branch, name, node.root)),
            theirs.get(name, default_of(branch, name, node.root)),
            node.at(property_of(branch, name)),
        )
        for name in mine.keys() | theirs.keys()
    )


def _by_nfc(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {nfc(key) if isinstance(key, str) else key: item for key, item in value.items()}


def _scalars_equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if is_number(expected) and is_number(actual):
        return bool(expected == actual)
    if isinstance(expected, str) and isinstance(actual, str):
        return nfc(expected) == nfc(actual)
    return expected is None and actual is None


_TRUTH: Mapping[bool, Hashable] = {False: ("false",), True: ("true",)}


def normal(value: Any) -> Hashable:
    """Return a form that two JSON values share exactly if they are `equal` without a schema.

    For sets and counters of values: `1` and `1.0` have one, `1` and `true` have two.
    """
    if isinstance(value, str):
        return value if value.isascii() else nfc(value)
    if isinstance(value, bool):
        return _TRUTH[value]
    if isinstance(value, Mapping):
        return frozenset({key: normal(item) for key, item in _by_nfc(value).items()}.items())
    return ("[", *map(normal, value)) if _is_array(value) else value


def is_number(value: Any) -> bool:
    """Return True for a JSON number; `true` is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple)


def spaceless(text: str) -> str:
    """Return `text` without white space."""
    return "".join(text.split())


def folded(text: str) -> str:
    """Return `text` in NFC, case-folded, with white space collapsed."""
    return " ".join(nfc(nfc(text).casefold()).split())


_PLAIN_CHARACTERS = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},  # full-width
    **dict.fromkeys(map(ord, "\u2010\u2011\u2212\ufe63"), "-"),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), '"'),
    **dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"), None),  # nobody sees them
}
_EMPHASIS = re.compile(
    r"(?<!\d)(?P<mark>\*{1,3})(?=\S)(?P<starred>[^*\n]+)(?<=\S)(?P=mark)(?!\d)"
    r"|(?<!\w)(?P<line>_{1,2})(?=\S)(?P<lined>[^_\n]+)(?<=\S)(?P=line)(?!\w)"
    r"|(?P<ticks>`+)(?P<code>[^`\n]+)(?P=ticks)"
)


def words_shown(text: str) -> str:
    """Return a reply as a person reads it: without emphasis marks, in plain characters."""
    plain = text.translate(_PLAIN_CHARACTERS)
    return _EMPHASIS.sub(
        lambda found: found["starred"] or found["lined"] or found["code"] or "", plain
    )


# Numbers in texts. A chain of digits with two or more of one separator is a list or a date, whose
# parts are numbers; any other chain is one number.

_SEPARATOR = re.compile("[,\u00a0\u202f\u2009]")
_THOUSANDS = re.compile(
    rf"(?<!\d)(?<!\d[.,])[1-9]\d{{0,2}}(?P<by>{_SEPARATOR.pattern})\d{{3}}"
    r"(?:(?P=by)\d{3})*(?!\d|(?P=by)\d)"
)
_NO_CENTS = re.compile(r"(?<=\d)\.00(?!\.?\d)")
_MONEY = r"[$€£¥₩]"
_ROUND_CENTS = re.compile(
    rf"(?<={_MONEY})(\d+\.\d)0(?![.,]?\d)"
    rf"|\b(\d+\.\d)0(?=\s?(?:{_MONEY}|(?:dollar|euro|usd|eur)s?\b|달러|유로))",
    re.IGNORECASE,
)
_CHAIN = re.compile(r"\d+(?:[.,]\d+){2,}")
_MINUS = re.compile(r"(?<![\w.,)\]%-])-(?=[$€£¥₩]?\d)")  # no hyphen: no word or number before it
# Characters of private use: in no text, and no white space.
_PART_BORDER = "\ue000"
MINUS_MARK = "\ue002"


def plain_numbers(text: str) -> str:
    """Return a text with one spelling of a number: `1,000.00` is `1000`."""
    text = _MINUS.sub(MINUS_MARK, text)
    plain = _THOUSANDS.sub(lambda number: _SEPARATOR.sub("", number[0]), text)
    plain = _NO_CENTS.sub("", plain)
    return _CHAIN.sub(lambda chain: _parted(chain[0]), plain)


def _parted(chain: str) -> str:
    commas, dots = chain.count(","), chain.count(".")
    if not commas or (dots > 1 and commas > 1) or not dots:
        border = "," if commas else "."
        return chain.replace(border, border + _PART_BORDER)
    return chain


def comparable(text: str) -> str:
    """Return a text of a reply, or a phrase that it is searched for, as both are compared."""
    return folded(plain_numbers(words_shown(text)))


def with_short_cents(text: str) -> str:
    """Return a comparable text in which an amount of money is `4.5` for `4.50`."""
    return _ROUND_CENTS.sub(lambda amount: amount[1] or amount[2], text)


# Regular expressions of scenario files: Python's own grammar, found in model text, time-boxed.
#
# A pattern that backtracks without end would hang a run, and `re` cannot be interrupted; the
# `regex` package can. Not for patterns of our own code, nor for those of a tool's schema.


MAX_CHARS = 1_000
SEARCH_CPU_S = 2.0
"""Longest search, in seconds of this process's CPU time: a busy machine does not change a verdict.
An honest pattern needs less than a millisecond."""

_PROBE_CPU_S = 0.2
_PROBE_CHARS = 100
_PROBES = 40


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that `pattern_fault` has nothing against; compared in NFC."""

    text: str

    def is_in(self, text: str) -> bool:
        """Return whether the pattern is found in `text`.

        Raises:
            ScenarioError: it takes longer than `SEARCH_CPU_S`.
        """
        return _is_found(self.text, text, SEARCH_CPU_S)


def pattern_fault(pattern: object) -> str | None:
    """Return why `pattern` is no regular expression that can be searched for, or None."""
    if not isinstance(pattern, str):
        return "must be a regular expression in quotes"
    if len(pattern) > MAX_CHARS:
        return f"is a regular expression of more than {MAX_CHARS} characters: write a shorter one"
    return _probed(pattern)


@lru_cache(maxsize=1_024)  # a scenario's expectations are read again for every sample
def _probed(pattern: str) -> str | None:
    """Return what shows when a pattern is tried on texts that make bombs go off."""
    try:
        re.compile(nfc(pattern))
        for probe in _probes(pattern):
            _is_found(pattern, probe, _PROBE_CPU_S)
    except (re.error, regex.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    except ScenarioError:
        return f"/{pattern}/ backtracks without end: write it without repeats inside of repeats"
    return None


def _is_found(pattern: str, text: str, cpu_s: float) -> bool:
    try:
        return regex.search(nfc(pattern), nfc(text), timeout=cpu_s) is not None
    except TimeoutError as error:
        raise ScenarioError(
            f"/{pattern}/ takes longer than {cpu_s:g} s in a text of {len(text)} characters: "
            "write it without repeats inside of repeats"
        ) from error


def _probes(pattern: str) -> list[str]:
    """Return texts that make the usual bombs go off: what the pattern repeats, and a wrong end."""
    letters = [*dict.fromkeys(char for char in pattern if char.isalnum() or char.isspace())]
    samples = ["", "a", "0", " ", "가", *letters][:_PROBES]
    return [sample * _PROBE_CHARS + "\x00" for sample in samples]


# Are two texts nearly the same? Overlap of their letter groups; words only, no meaning. Pure.
#
# The measure is the Jaccard index of the sets of neighbouring letters: two of Hangul, where a
# letter is a syllable and a pair about a morpheme, three of other scripts. Case, spaces and
# punctuation do not count.


NEAR = 0.4
"""From here on two texts are near-duplicates.

Measured on the shipped scenarios and on templates: a sentence with one noun swapped lies between
0.45 and 0.75 in both languages, two that ask the same thing in words of their own below 0.3.
"""

_HANGUL_FIRST, _HANGUL_LAST = "가", "힣"


def similarity(first: str, second: str) -> float:
    """Return a number from 0 (nothing in common) to 1 (the same letters in the same places)."""
    return _jaccard(_groups(first), _groups(second))


def near_duplicates(
    texts: Sequence[str], *, least: float = NEAR
) -> Iterator[tuple[int, int, float]]:
    """Yield (i, j, similarity) of every two texts, i before j, that are at least so similar."""
    groups = [_groups(text) for text in texts]
    for i, j in combinations(range(len(texts)), 2):
        likeness = _jaccard(groups[i], groups[j])
        if likeness >= least:
            yield i, j, likeness


@lru_cache(maxsize=8_192)
def _groups(text: str) -> frozenset[str]:
    letters = "".join(c for c in unicodedata.normalize("NFC", text).casefold() if c.isalnum())
    sizes = [2 if _HANGUL_FIRST <= letter <= _HANGUL_LAST else 3 for letter in letters]
    groups = (letters[i : i + n] for i, n in enumerate(sizes) if i + n <= len(letters))
    return frozenset(groups) or frozenset({letters})


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared)


# The matcher grammar of a scenario (evaluation.md §1): from plain data to values, and its faults.
#
# A plain value stands for itself. A mapping with exactly one of the keys `equals`, `one_of`,
# `any`, `matches`, `approx`, `date`, `text`, `fields`, `items` is a matcher; everything inside a
# plain value is literal. Comparing is `matching`'s business.


Path: TypeAlias = tuple[str | int, ...]
"""Where something stands in plain data: keys and indices from the top."""

DEFAULT_REL = 1e-9
"""Relative tolerance of `approx` without `abs` and `rel`: rounding of binary fractions only."""

MOST_DAYS = 36_525
"""How far from today a relative date may be: a hundred years."""

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_BASES = ["today", "yesterday", "tomorrow", "weekstart", "weekendstart", "monthstart", "monthend"]
_DATE = re.compile(
    rf"(?P<base>{'|'.join(_BASES)}"
    rf"|(?:(?P<which>last|next) )?(?P<weekday>{'|'.join(WEEKDAYS)}))"
    r"(?:(?P<by>[+-]\d{1,5})(?P<unit>[dwm]))?"
)
_DAYS_OF = {"d": 1, "w": 7, "m": 31}
DATES = "today, tomorrow-1w, last friday, monthstart-1m or YYYY-MM-DD"
DAY_WORDS = (
    *_BASES,
    *(f"{which}{weekday}" for which in ("", "next ", "last ") for weekday in WEEKDAYS),
)


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
    """A day as ISO text: a date, or one that is told from today.

    A relative one is `today`, `yesterday`, `tomorrow`; `weekstart` (this week's Monday),
    `weekendstart` (its Saturday, on a Sunday that day), `monthstart`, `monthend`;
    or a weekday: `friday` is today or the first one to come,
    `next friday` the first one after today, `last friday` the last one before it. Each may be
    moved by days, weeks or months (`today-1d`, `monday+2w`, `monthstart-1m`); a month without that
    day ends with its last one, and `monthend-1m` is the last day of the month before.
    """

    expression: str

    def resolved(self, today: date | None) -> str:
        """Return the ISO date that is meant.

        Raises:
            ScenarioError: the expression is relative and `today` is None, or the calendar ends
                before that day.
        """
        relative = _DATE.fullmatch(self.expression)
        if relative is None:
            return self.expression
        if today is None:
            raise ScenarioError(
                f"date {self.expression!r} needs a clock: write world.now, or pass today="
            )
        try:
            by, unit = int(relative["by"] or 0), relative["unit"]
            if relative["base"] == "monthend" and unit == "m":
                day = month_away(today, by)[1]
            else:
                day = _moved(_base(relative, today), by, unit)
        except (OverflowError, ValueError) as error:
            raise ScenarioError(
                f"date {self.expression!r}: from {today} on it is beyond the calendar"
            ) from error
        return day.isoformat()


def _base(relative: re.Match[str], today: date) -> date:
    """Return the day that an expression names before it is moved."""
    if relative["weekday"]:
        ahead = (WEEKDAYS.index(relative["weekday"]) - today.weekday()) % 7
        if relative["which"] == "last":
            ahead -= 7
        elif relative["which"] == "next":
            ahead = ahead or 7
        return today + timedelta(days=ahead)
    match relative["base"]:
        case "weekstart":
            return today - timedelta(days=today.weekday())
        case "weekendstart":
            return today + timedelta(days=max(0, WEEKDAYS.index("saturday") - today.weekday()))
        case "monthstart":
            return today.replace(day=1)
        case "monthend":
            return month_away(today, 0)[1]
        case word:
            return today + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(word, 0))


def _moved(day: date, by: int, unit: str | None) -> date:
    if unit != "m":
        return day + timedelta(days=by * _DAYS_OF[unit or "d"])
    first, last = month_away(day, by)
    return min(first + timedelta(days=day.day - 1), last)


def dates_resolved(value: Any, today: date | None) -> Any:
    """Return plain data with the day in place of each `{date: …}` that is told from today.

    Raises:
        ScenarioError: as `DateIs.resolved`.
    """
    if isinstance(value, Mapping):
        expression = value.get("date") if len(value) == 1 else None
        if isinstance(expression, str) and _DATE.fullmatch(expression):
            return DateIs(expression).resolved(today)
        return {name: dates_resolved(each, today) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [dates_resolved(each, today) for each in value]
    return value


def misspelt_days(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each `{date: …}` of plain data that `dates_resolved` does not know, with its place.

    A text that is near no word for a day, such as `TBD`, was not meant for one.
    """
    if isinstance(value, Mapping):
        expression = value.get("date") if len(value) == 1 else None
        if isinstance(expression, str) and not _DATE.fullmatch(expression):
            if get_close_matches(expression.lower(), DAY_WORDS, n=1):
                yield path, expression
            return
        for name, each in value.items():
            yield from misspelt_days(each, (*path, name))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from misspelt_days(each, (*path, number))


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
    relative = _DATE.fullmatch(expression) if isinstance(expression, str) else None
    if relative and abs(int(relative["by"] or 0)) * _DAYS_OF[relative["unit"] or "d"] > MOST_DAYS:
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
