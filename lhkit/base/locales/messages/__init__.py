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
from itertools import islice

SOURCE = "en"
"""The language of the messages in the code."""

_VALUE = re.compile(r"\{(\d+)(\*?)\}")
_BORDER = re.compile(r": |\. |; ")
"""Between a place and its message, or between two messages."""
_OR = " or "
_PLACE = ": "
_MOST_PARTS = 50


@dataclass(frozen=True, slots=True)
class _Entry:
    parts: tuple[str, ...]
    """The English text between its values."""
    longest: str
    """The longest of the parts, by which a search of all entries is quick."""
    text: str

    def values(self, message: str) -> Sequence[tuple[int, int]] | None:
        """Return where the values are in a message that this entry translates, else None."""
        first, *middle, last = self.parts
        if not message.startswith(first) or not message.endswith(last):
            return None
        start, end = len(first), len(message) - len(last)
        values: list[tuple[int, int]] = []
        for part in middle:
            at = message.find(part, start, end)
            if at < 0:
                return None
            values.append((start, at))
            start = at + len(part)
        values.append((start, end))
        if start > end or (not first and _PLACE in f"{message[slice(*values[0])]} "):
            return None  # a place before the message is no part of its first value
        return values


@cache
def _entries(locale: str) -> tuple[dict[str, str], tuple[_Entry, ...]]:
    """Return the translations of whole texts, and those with values, the most specific first."""
    source = files(__name__).joinpath(f"{locale}.toml").read_text(encoding="utf-8")
    pairs = {
        english: text for table in tomllib.loads(source).values() for english, text in table.items()
    }
    with_values = [
        _Entry(parts=parts, longest=max(parts, key=len), text=text)
        for parts, text in ((tuple(english.split("{}")), text) for english, text in pairs.items())
        if len(parts) > 1
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
    whole = _translated(message, locale)
    return message if whole is None else whole


def _translated(message: str, locale: str) -> str | None:
    """Return the translation of a message, or of what is on the sides of its borders, or None."""
    if "\n" in message and not _is_one(message, locale):
        lines = message.split("\n")
        texts = [_translated(line, locale) for line in lines]
        pairs = zip(lines, texts, strict=True)
        return "\n".join(text or line for line, text in pairs) if any(texts) else None
    done: list[str] = []
    found = False
    rest = message
    for _ in range(_MOST_PARTS):
        match = _match(rest, locale)
        border = _BORDER.search(rest) if match is None else _border_in_values(rest, match, locale)
        if border is None:
            whole = None if match is None else _text(rest, match, locale)
            return "".join([*done, rest if whole is None else whole]) if found or match else None
        head = rest[: border.start()]
        first = _match(head, locale)
        found = found or first is not None
        done += [head if first is None else _text(head, first, locale), border[0]]
        rest = rest[border.end() :]
    return "".join([*done, rest]) if found else None


@dataclass(frozen=True, slots=True)
class _Match:
    text: str
    values: Sequence[tuple[int, int]] = ()


def _match(message: str, locale: str) -> _Match | None:
    """Return the translation of a whole message; None if there is none."""
    pairs, entries = _entries(locale)
    if message in pairs and "{}" not in message:
        return _Match(pairs[message])
    for entry in entries:
        if entry.longest in message and (values := entry.values(message)) is not None:
            return _Match(entry.text, values)
    return None


def _is_one(lines: str, locale: str) -> bool:
    """Return whether lines are one message, maybe after a place, with values of one line each."""
    borders = islice(_BORDER.finditer(lines.partition("\n")[0]), _MOST_PARTS)
    messages = [lines, *(lines[border.end() :] for border in borders)]
    matches = [(message, _match(message, locale)) for message in messages]
    return any(
        match is not None and not any("\n" in message[start:end] for start, end in match.values)
        for message, match in matches
    )


def _border_in_values(message: str, match: _Match, locale: str) -> re.Match[str] | None:
    """Return a border in a value that ends the message there: another one follows."""
    for border in islice(_BORDER.finditer(message), _MOST_PARTS):
        if any(start <= border.start() < end for start, end in match.values):
            sides = message[: border.start()], message[border.end() :]
            if None not in (_match(side, locale) for side in sides):
                return border
    return None


def _text(message: str, match: _Match, locale: str) -> str:
    values = [message[start:end] for start, end in match.values]
    return _VALUE.sub(partial(_filled, values=values, locale=locale), match.text)


def _filled(found: re.Match[str], values: Sequence[str], locale: str) -> str:
    value = values[int(found[1])]
    if not found[2]:
        return value
    choices = [_translated(choice, locale) for choice in value.split(_OR)]
    if len(choices) > 1 and None not in choices:
        return f" {_entries(locale)[0][_OR.strip()]} ".join(filter(None, choices))
    return translate(value, locale)
