"""English messages of the code, in the languages of other locales.

Exceptions, findings, reasons and help are English where they are written. So they stay in records,
logs and Python, whatever the locale of the machine; where a person reads them, `translate` looks
them up in `XX.toml` of this folder: a table from the English text to the text of the locale.

Each value in an English text is `{}`; `{0}` is the first of them. `{0*}` is a value that is a
message itself. The tables of the file are only for readers.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files

SOURCE = "en"
"""The language of the messages in the code."""

_VALUE = re.compile(r"\{(\d+)(\*?)\}")
_BORDER = re.compile(r": |\. |; |\n")
"""Between a place and its message, or between two messages."""
_OR = " or "
_PLACE = ": "
_MOST_PARTS = 50


@dataclass(frozen=True, slots=True)
class _Entry:
    parts: tuple[str, ...]
    """The English text between its values."""
    text: str

    def values(self, message: str) -> Sequence[str] | None:
        """Return the values of a message that this entry translates, else None."""
        first, *middle, last = self.parts
        if not message.startswith(first) or not message.endswith(last):
            return None
        start, end = len(first), len(message) - len(last)
        values: list[str] = []
        for part in middle:
            at = message.find(part, start, end)
            if at < 0:
                return None
            values.append(message[start:at])
            start = at + len(part)
        if start > end or (not first and values and _PLACE in values[0]):
            return None  # a place before the message is no part of its first value
        return [*values, message[start:end]]


@cache
def _entries(locale: str) -> tuple[dict[str, str], tuple[_Entry, ...]]:
    """Return the translations of whole texts, and those with values, the most specific first."""
    source = files(__name__).joinpath(f"{locale}.toml").read_text(encoding="utf-8")
    pairs = {
        english: text for table in tomllib.loads(source).values() for english, text in table.items()
    }
    with_values = [
        _Entry(tuple(english.split("{}")), text)
        for english, text in pairs.items()
        if "{}" in english
    ]
    return pairs, tuple(sorted(with_values, key=_specificity, reverse=True))


def _specificity(entry: _Entry) -> tuple[bool, int]:
    # a text at the start fits fewer messages than a value there
    return bool(entry.parts[0]), len("".join(entry.parts))


@cache
def message_locales() -> tuple[str, ...]:
    """Return the locales with a file of messages: all but English."""
    names = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def translate(message: str, locale: str) -> str:
    """Return an English message in a locale; what has no translation stays as it is."""
    if locale == SOURCE or locale not in message_locales():
        return message
    lines = [_translated(line, locale) for line in message.split("\n")]  # a finding on each
    if None not in lines:
        return "\n".join(filter(None, lines))
    whole = _translated(message, locale)
    return message if whole is None else whole


def _translated(message: str, locale: str) -> str | None:
    """Return the translation of a message, or of what is on the sides of its borders, or None."""
    done: list[str] = []
    found = False
    rest = message
    for _ in range(_MOST_PARTS):
        whole = _whole(rest, locale)
        border = None if whole is not None else _BORDER.search(rest)
        if border is None:
            return "".join([*done, rest if whole is None else whole]) if found or whole else None
        head = rest[: border.start()]
        first = _whole(head, locale)
        found = found or first is not None
        done += [head if first is None else first, border[0]]
        rest = rest[border.end() :]
    return "".join([*done, rest]) if found else None


def _whole(message: str, locale: str) -> str | None:
    pairs, entries = _entries(locale)
    if message in pairs:
        return pairs[message]
    for entry in entries:
        values = entry.values(message)
        if values is not None:
            return _VALUE.sub(partial(_filled, values=values, locale=locale), entry.text)
    return None


def _filled(found: re.Match[str], values: Sequence[str], locale: str) -> str:
    value = values[int(found[1])]
    if not found[2]:
        return value
    choices = [_translated(choice, locale) for choice in value.split(_OR)]
    if len(choices) > 1 and None not in choices:
        return f" {_entries(locale)[0][_OR.strip()]} ".join(filter(None, choices))
    return translate(value, locale)
