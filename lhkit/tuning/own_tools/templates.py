"""Sentences with slots: `{argument}`, `{field}`, `{rows.title}`, `{rows:count}`. Pure.

`{text:을}` adds the Korean particle that fits the word. Not `str.format`: a slot reaches into
plain data only, never into an object. Also places in a result, such as `rows[0].id`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from lhkit.errors import TuningError
from lhkit.harness.expectations.equality import equal, folded
from lhkit.tools.schema import SchemaNode
from lhkit.tuning.particles import Word
from lhkit.vocab.json_values import compact

COUNT = "count"
"""`{rows:count}` is how many rows there are."""

_FIRST_MARK = 0xE000
_STEP = re.compile(r"([^.\[\]{}\s]+)(?:\[(\d+)\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A gap in a sentence: a name, perhaps a key inside what it names, perhaps a particle."""

    name: str
    key: str = ""
    spec: str = ""

    def __str__(self) -> str:
        return self.name + (f".{self.key}" if self.key else "")


def parts_of(template: str) -> tuple[tuple[str, Slot | None], ...]:
    """Return a sentence as pieces of text, each with the slot that follows it.

    Raises:
        TuningError: a brace is not closed, or what stands in it is no name.
    """
    try:
        parsed = tuple(Formatter().parse(template))
    except ValueError as error:
        raise TuningError(
            f"{template!r}: {error}: a slot is {{name}}, a plain brace {{{{"
        ) from error
    return tuple(
        (text, None if field is None else _slot(field, spec or "", conversion, template))
        for text, field, spec, conversion in parsed
    )


def _slot(field: str, spec: str, conversion: str | None, template: str) -> Slot:
    name, _, key = field.partition(".")
    is_plain = name and not set(field) & set("[]{} ") and not key.count(".")
    if not is_plain or conversion:
        raise TuningError(
            f"{template!r}: {{{field}}} is no slot: write {{name}} or {{name.key}}; a plain brace "
            "is {{"
        )
    return Slot(name=name, key=key, spec=spec)


def slots_of(template: str) -> tuple[Slot, ...]:
    """Return the slots of a sentence, in order.

    Raises:
        TuningError: see `parts_of`.
    """
    return tuple(slot for _, slot in parts_of(template) if slot is not None)


def filled(
    template: str,
    word_of: Callable[[Slot], str | None],
    retyped: Callable[[str], str] = lambda text: text,
) -> str | None:
    """Return the sentence with its slots filled; None if one of them has no word.

    `retyped` may change what stands around the words, but not them: there, a character of Unicode's
    private use area stands for each.
    """
    around: list[str] = []
    words: dict[str, str] = {}
    for text, slot in parts_of(template):
        around.append(text)
        if slot is None:
            continue
        word = word_of(slot)
        if not word:
            return None
        mark = chr(_FIRST_MARK + len(words))
        words[mark] = format(Word(word), "" if slot.spec == COUNT else slot.spec)
        around.append(mark)
    return "".join(words.get(char, char) for char in retyped("".join(around)))


def word_in(data: Mapping[str, Any], slot: Slot) -> str | None:
    """Return how a result's field is said; None if it is not there, empty, or no plain value.

    A list is said as an enumeration; `key` picks one field of an object, or of each in a list.
    """
    value = data.get(slot.name)
    if slot.spec == COUNT:
        return str(len(value)) if isinstance(value, Sequence | Mapping) else None
    values = value if isinstance(value, list | tuple) else [value]
    if slot.key:
        values = [row.get(slot.key) if isinstance(row, Mapping) else None for row in values]
    words = [plain_word(each) for each in values]
    if not words or None in words:
        return None
    return ", ".join(word for word in words if word is not None)


def plain_word(value: Any) -> str | None:
    """Return how a text or a number is said; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One part of a place in a result: a field, and perhaps which of several rows."""

    name: str
    index: int | None = None


def steps_of(place: str) -> tuple[Step, ...]:
    """Return the parts of a place such as `notes.id` or `notes[0].id`.

    Raises:
        TuningError: it is none.
    """
    parts = [_STEP.fullmatch(part) for part in place.split(".")]
    if None in parts:
        raise TuningError(
            f"{place!r} is no place in a result: write it like rows.id, or rows[0].id for the "
            "first of several rows"
        )
    return tuple(
        Step(name=part[1], index=None if part[2] is None else int(part[2]))
        for part in parts
        if part is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What stands at a place: different values, and the result with only the rows they are in.

    `rows` are those, or the whole result where there are none.
    """

    values: tuple[Any, ...]
    data: Mapping[str, Any]
    rows: tuple[Any, ...]


def taken(data: Mapping[str, Any], place: str, where: Mapping[str, Any]) -> Taken:
    """Return what stands at a place of a result, in the rows whose fields are as in `where`.

    A field that is a list goes on in all of its rows; nothing at all is no fault. Texts are
    compared without regard to case.

    Raises:
        TuningError: rows are there and none has such a field.
    """
    *ways, last = steps_of(place)
    rows: list[Any] = [data]
    for step in ways:
        rows = _within(rows, step.name)
        if step is not ways[-1] and step.index is not None:
            rows = rows[step.index : step.index + 1]
    for name in where:
        _within(rows, name)  # refuses a field that no row has
    rows = [row for row in rows if all(_is(row.get(key), value) for key, value in where.items())]
    if ways and ways[-1].index is not None:
        rows = rows[ways[-1].index : ways[-1].index + 1]
    values = _within(rows, last.name)
    if last.index is not None:
        values = values[last.index : last.index + 1]
    different = tuple({compact(value): value for value in values}.values())
    is_one_list = len(ways) == 1 and isinstance(data.get(ways[0].name), list)
    return Taken(
        values=different,
        data={**data, ways[0].name: rows} if is_one_list else data,
        rows=tuple(rows),
    )


def _within(rows: Sequence[Any], name: str) -> list[Any]:
    """Return what stands in a field of the rows, lists as their items."""
    objects = [row for row in rows if isinstance(row, Mapping)]
    if rows and not any(name in row for row in objects):
        fields = ", ".join(dict.fromkeys(key for row in objects for key in row)) or "none"
        raise TuningError(f"there is no {name!r} (fields there: {fields})")
    values = (row[name] for row in objects if row.get(name) is not None)
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def _is(actual: Any, wanted: Any) -> bool:
    if isinstance(actual, str) and isinstance(wanted, str):
        return folded(actual) == folded(wanted)
    return equal(wanted, actual, SchemaNode.of({}))
