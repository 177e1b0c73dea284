"""Sentences with slots: `{argument}`, `{field}`, `{rows.title}`, `{rows:count}`. Pure.

`{text:을}` adds the Korean particle that fits the word. Not `str.format`: a slot reaches into
plain data only, never into an object.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from lhkit.errors import TuningError
from lhkit.tuning.particles import Word

COUNT = "count"
"""`{rows:count}` is how many rows there are."""


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


def filled(template: str, word_of: Callable[[Slot], str | None]) -> str | None:
    """Return the sentence with its slots filled; None if one of them has no word."""
    said: list[str] = []
    for text, slot in parts_of(template):
        said.append(text)
        if slot is None:
            continue
        word = word_of(slot)
        if not word:
            return None
        said.append(format(Word(word), "" if slot.spec == COUNT else slot.spec))
    return "".join(said)


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
