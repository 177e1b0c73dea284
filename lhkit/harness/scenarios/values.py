"""Comparison of JSON values, normalised texts and time-limited patterns.

Numbers compare by value (`1 == 1.0`), but `true` is never `1` and `"1"` is never `1`. Text
compares in Unicode NFC, arrays in order, objects key by key; a key that one side leaves out
equals the schema's `default`. Nothing here validates: both values may be invalid and still equal.

In replies and phrases, a chain of digits with two or more of one separator is a list or a date,
whose parts are numbers; any other chain is one number. `1.000` may be one or a thousand, so it
equals only itself.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import regex

from lhkit.base.errors import ScenarioError
from lhkit.base.schema import SchemaNode, item_schema, nfc, property_default, property_schema

MAX_PATTERN_CHARS = 1_000
SEARCH_CPU_S = 2.0
"""Longest search, in seconds of this process's CPU time: a busy machine does not change a verdict.
An ordinary pattern needs less than a millisecond."""

ALL_SEARCHES_CPU_S = 20.0
"""Longest time of all searches of one sample, in seconds of CPU time."""

_PROBE_CPU_S = 0.2
_PROBE_CHARS = 100
_PROBES = 40


def equal(expected: Any, actual: Any, node: SchemaNode) -> bool:
    """Return True if two JSON values are equal at a node of a schema."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return any(_objects_equal(expected, actual, branch, node) for branch in node.branches())
    if _is_array(expected) and _is_array(actual):
        return len(expected) == len(actual) and any(
            all(
                equal(first, second, node.at(item_schema(branch, index)))
                for index, (first, second) in enumerate(zip(expected, actual, strict=True))
            )
            for branch in node.branches()
        )
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if is_number(expected) and is_number(actual):
        return bool(expected == actual)
    if isinstance(expected, str) and isinstance(actual, str):
        return nfc(expected) == nfc(actual)
    return expected is None and actual is None


def _objects_equal(
    expected: Mapping[str, Any],
    actual: Mapping[str, Any],
    branch: Mapping[str, Any],
    node: SchemaNode,
) -> bool:
    first, second = _with_nfc_keys(expected), _with_nfc_keys(actual)
    return all(
        equal(
            first.get(name, property_default(branch, name, node.root)),
            second.get(name, property_default(branch, name, node.root)),
            node.at(property_schema(branch, name)),
        )
        for name in first.keys() | second.keys()
    )


def _with_nfc_keys(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {nfc(key) if isinstance(key, str) else key: item for key, item in value.items()}


def hashable_form(value: Any) -> Hashable:
    """Return a hashable form that two JSON values share if they are `equal`.

    For sets and counters of values: `1` and `1.0` share a form, `1` and `true` do not.
    """
    if isinstance(value, str):
        return value if value.isascii() else nfc(value)
    if isinstance(value, bool):
        return (value,)
    if isinstance(value, Mapping):
        return frozenset(
            {key: hashable_form(item) for key, item in _with_nfc_keys(value).items()}.items()
        )
    return ("[", *map(hashable_form, value)) if _is_array(value) else value


def is_number(value: Any) -> bool:
    """Return True for a JSON number, which a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple)


def remove_spaces(text: str) -> str:
    """Return `text` without white space."""
    return "".join(text.split())


def fold_text(text: str) -> str:
    """Return `text` in NFC, case-folded, with white space collapsed."""
    return " ".join(nfc(nfc(text).casefold()).split())


_PLAIN_CHARACTERS = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},  # full-width
    **dict.fromkeys(map(ord, "\u2010\u2011\u2212\ufe63"), "-"),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), '"'),
    **dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"), None),  # invisible
}
_EMPHASIS = re.compile(
    r"(?<!\d)(?P<mark>\*{1,3})(?=\S)(?P<starred>[^*\n]+)(?<=\S)(?P=mark)(?!\d)"
    r"|(?<!\w)(?P<line>_{1,2})(?=\S)(?P<lined>[^_\n]+)(?<=\S)(?P=line)(?!\w)"
    r"|(?P<ticks>`{1,9}+)(?P<code>[^`\n]++)(?P=ticks)"  # a long run would be tried at each tick
)
_SEPARATOR = re.compile("[,'\u00a0\u202f\u2007\u2009]")
_THOUSANDS = re.compile(
    rf"(?<!\d)(?<!\d[.,])[1-9]\d{{0,2}}(?P<by>{_SEPARATOR.pattern})\d{{3}}"
    r"(?:(?P=by)\d{3})*(?!\d|(?P=by)\d)"
)
_DOTTED_THOUSANDS = re.compile(  # 1.000.000 and 1.000,50, but not 1.000
    r"(?<!\d)(?<!\d[.,])([1-9]\d{0,2}(?:\.\d{3})+)(?:(?<=\.\d{3}\.\d{3})|(?=,\d{1,2}(?!\d)))"
    r"(?!\d|\.\d)(?:,(\d{1,2}))?(?![,.]?\d)"
)
_DECIMAL = re.compile(r"(?<!\d)(?<!\d[.,])(\d+)(?:\.(\d+)|,(\d{1,2}))(?![.,]?\d)")
_VERSION_BEFORE = re.compile(r"(?:\bv|\bver\.?|\bversion|버전)\s?\Z", re.IGNORECASE)
_TIME_AFTER = re.compile(r"\s?(?:[ap]\.?m\b|o'clock\b|\.?\s?\([월화수목금토일])", re.IGNORECASE)
_GROUP = 3  # digits between thousands marks
_LONGEST_BEFORE = 8  # characters of a word that `_VERSION_BEFORE` finds, with its blank
_CHAIN = re.compile(r"(?<!\d)\d++(?:[.,]\d++){2,}")  # a long number is tried once
_MINUS = re.compile(r"(?<![\w.,)\]%-])-(?=[$€£¥₩]?\d)")  # a hyphen follows a word or a number
# Characters of private use: they occur in no text, and are no white space.
_PART_BORDER = "\ue000"
MINUS_MARK = "\ue002"
AS_WRITTEN_MARK = "\ue003"


def normalize_reply(text: str) -> str:
    """Return the form in which a reply and the phrases searched in it compare.

    Without emphasis marks, in plain characters, folded, without thousands marks: `1,000` is
    `1000`. Decimals stay as written, see `decimals_by_value`.
    """
    text = _EMPHASIS.sub(
        lambda match: match["starred"] or match["lined"] or match["code"] or "",
        text.translate(_PLAIN_CHARACTERS),
    )
    text = _MINUS.sub(MINUS_MARK, text)
    text = _THOUSANDS.sub(lambda match: _SEPARATOR.sub("", match[0]), text)
    text = _DOTTED_THOUSANDS.sub(_without_dots, text)
    return fold_text(_CHAIN.sub(lambda match: _split_chain(match[0]), text))


def _without_dots(match: re.Match[str]) -> str:
    return match[1].replace(".", "") + (f".{match[2]}" if match[2] else "")


def _split_chain(chain: str) -> str:
    commas, dots = chain.count(","), chain.count(".")
    if not commas or (dots > 1 and commas > 1) or not dots:
        border = "," if commas else "."
        return chain.replace(border, border + _PART_BORDER)
    return chain


def decimals_by_value(text: str) -> str:
    """Return a normalised text with one spelling of each decimal: `1.50` and `1,50` are `1.5`.

    Marked as no value: versions, times and days (`v1.10`, `7.30 pm`, `1.10(화)`), and three
    decimals behind at most three digits (`1.500`), which may be thousands.
    """
    return _DECIMAL.sub(_decimal_by_value, text)


def _decimal_by_value(match: re.Match[str]) -> str:
    whole, decimals, text = match[1], match[2] or match[3], match.string
    before = text[max(0, match.start() - _LONGEST_BEFORE) : match.start()]
    may_be_thousands = len(decimals) == _GROUP >= len(whole) and not whole.startswith("0")
    if may_be_thousands or _VERSION_BEFORE.search(before) or _TIME_AFTER.match(text, match.end()):
        return AS_WRITTEN_MARK + match[0]
    decimals = decimals.rstrip("0")
    return f"{whole}.{decimals}" if decimals else whole


def is_found(pattern: str, text: str) -> bool:
    """Return whether a valid pattern is found in a text, both in NFC.

    Raises:
        ScenarioError: the search takes longer than `SEARCH_CPU_S`, or all of `limited_searches`
            than `ALL_SEARCHES_CPU_S`.
    """
    spent = _spent.get()
    if spent is None:
        return _search(pattern, text, SEARCH_CPU_S)
    started_s = spent.clock()
    found = _search(pattern, text, SEARCH_CPU_S)
    spent.cpu_s += spent.clock() - started_s
    if spent.cpu_s > ALL_SEARCHES_CPU_S:
        raise ScenarioError(
            f"the patterns of this scenario take longer than {ALL_SEARCHES_CPU_S:g} s together: "
            "list exact values, or write simpler patterns"
        )
    return found


@dataclass(slots=True)
class _Spent:
    clock: Callable[[], float]
    cpu_s: float = 0.0


_spent: ContextVar[_Spent | None] = ContextVar("_spent", default=None)


@contextmanager
def limited_searches(clock: Callable[[], float]) -> Iterator[None]:
    """Limit the time of all searches of a block; `clock` returns seconds of this thread's CPU."""
    token = _spent.set(_Spent(clock))
    try:
        yield
    finally:
        _spent.reset(token)


@lru_cache(maxsize=1_024)  # a scenario's expectations are read again for every sample
def pattern_error(pattern: str) -> str | None:
    """Return why a regular expression is invalid or too slow, or None if it is valid.

    Python's `re` decides which expressions are valid; `regex` searches, because it has a timeout.
    The pattern is tried on texts that trigger catastrophic backtracking.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        return (
            f"is a regular expression of more than {MAX_PATTERN_CHARS} characters: write a "
            "shorter one"
        )
    letters = dict.fromkeys(char for char in pattern if char.isalnum() or char.isspace())
    samples = ["", "a", "0", " ", "가", *letters][:_PROBES]
    try:
        re.compile(nfc(pattern))
        for sample in samples:
            _search(pattern, sample * _PROBE_CHARS + "\x00", _PROBE_CPU_S)
    except (re.error, regex.error, RecursionError, OverflowError) as error:
        return f"is not a valid regular expression: {error}"
    except ScenarioError:
        return f"/{pattern}/ backtracks without end: avoid nested repeats"
    return None


def _search(pattern: str, text: str, cpu_s: float) -> bool:
    try:
        return _compiled(pattern).search(nfc(text), timeout=cpu_s) is not None
    except TimeoutError as error:
        raise ScenarioError(
            f"/{pattern}/ takes longer than {cpu_s:g} s in a text of {len(text)} characters: "
            "avoid nested repeats"
        ) from error


@lru_cache(maxsize=4_096)  # that of `regex` holds only 500, and a compilation takes long
def _compiled(pattern: str) -> "regex.Pattern[str]":
    return regex.compile(nfc(pattern), cache_pattern=False)
