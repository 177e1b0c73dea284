r"""Parse and write strings and values that are almost JSON or Python.

A control token inside a string is written with `\u003c` for its `<`, which is lossless and hides
the token from the tokenizer.

Repairs: `trailing_comma`, `duplicate_key`, `bare_string`, `bad_escape`, `control_character`,
`other_quotes` (quotation marks of another language), and those of the notation's strings and
foreign words.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.base.json_values import MAX_DEPTH
from lhkit.models.dialects.base import LONE_SURROGATE

_STRING = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
}
_ESCAPE = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<four>[0-9a-fA-F]{4})|U(?P<eight>000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})"
    r"|x(?P<two>[0-9a-fA-F]{2})|(?P<one>.))",
    re.DOTALL,
)
_ONE = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "/": "/",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}
_BARE_KEY = re.compile(r"[^\s:,{}\[\]<\"]+")
_BARE = re.compile(r"[^,{}()\[\]<\"']+")
_BARE_TEXT = re.compile(r"[^,{}\[\]<\"]+")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_SINGLE = "‘’‚‛`´＇❛❜"
_DOUBLE = "“”„‟＂〝〞〟❝❞"
_FACING = {
    "«": "»",
    "»": "«»",
    "‹": "›",
    "›": "‹›",
    "「": "」",
    "『": "』",
    "｢": "｣",
    "《": "》",
    "〈": "〉",
}
_PAIRS = ("«»", "‹›", "「」", "『』", "｢｣", "《》", "〈〉")
_CLOSERS = {
    **dict.fromkeys(_SINGLE, _SINGLE + "'"),
    **dict.fromkeys(_DOUBLE, _DOUBLE + '"'),
    **_FACING,
}
"""Quotation marks that are not those of JSON, with those that may close them."""
_APOSTROPHES = "'’"
_ANY_QUOTE = re.compile(f"[{''.join(_CLOSERS)}']")
_ENDS = {
    opener: re.compile(
        rf"(?P<closer>[{closers}])(?=\s*(?:[,:\]}}]|\Z))|[,:\[{{]\s*[{''.join(_CLOSERS)}]"
    )
    for opener, closers in _CLOSERS.items()
}
"""The end of a string, or the beginning of the next one before it."""
_OPENS_QUOTE = re.compile(r"(?<!\S)['‘’‚`´＇](?=\S)")
_CLOSES_QUOTE = re.compile(r"(?<=\S)['‘’`´＇](?!\w)")
_LATER_CHARS = 200

StringReader: TypeAlias = Callable[[str, int], tuple[str, int, tuple[str, ...]] | None]
"""Takes (text, index), returns (value, end, repairs), or None if no string starts there. Raises
ValueError if the string does not end."""

JSON_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
PYTHON_WORDS: Mapping[str, Any] = {"True": True, "False": False, "None": None}


def quoted(text: str, control: re.Pattern[str]) -> str:
    """Return `text` in double quotes; `control` matches the `<` of each control token."""
    escaped = control.sub(r"\\u003c", json.dumps(text, ensure_ascii=False))
    return LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", escaped)


def read_quoted(text: str, at: int) -> tuple[str, int, tuple[str, ...]]:
    """Return (value, end, repairs) of the string whose quote is at `at`.

    Raises:
        ValueError: the string does not end.
    """
    match = _STRING[text[at]].match(text, at)
    if match is None:
        raise ValueError("a string without end")
    value, repairs = unescape(match.group(1))
    return value, match.end(), repairs


def unescape(source: str) -> tuple[str, tuple[str, ...]]:
    """Return (value, repairs) of the text between a string's quotes."""
    repairs: list[str] = []

    def character(match: re.Match[str]) -> str:
        if one := match.group("one"):
            if one not in _ONE:
                repairs.append("bad_escape")
            return _ONE.get(one, match.group())
        if high := match.group("high"):
            pair = bytes.fromhex(high) + bytes.fromhex(match.group("low"))
            return pair.decode("utf-16-be")
        return chr(int(match.group("four") or match.group("eight") or match.group("two"), 16))

    value = _ESCAPE.sub(character, source)
    if any(char < " " for char in source):
        repairs.append("control_character")
    return value, tuple(dict.fromkeys(repairs))


def read_other_quotes(text: str, at: int) -> tuple[str, int, tuple[str, ...]] | None:
    """Return (value, end, repairs) of the string whose quotation mark, not one of JSON, is at `at`.

    It ends at the first mark that may close it and stands before a comma, colon, bracket or the
    end. None if another character is at `at`, or if it is an apostrophe.

    Raises:
        ValueError: the string does not end, or another one starts before.
    """
    pattern = _ENDS.get(text[at : at + 1])
    if pattern is None:
        return None
    match = pattern.search(text, at + 1)
    if match is None and text[at] in _APOSTROPHES:
        return None
    if match is None or not match.group("closer"):
        raise ValueError("a string without end")
    value, repairs = unescape(text[at + 1 : match.start()])
    return value, match.end(), ("other_quotes", *repairs)


def has_open_quote(word: str, text: str, end: int) -> bool:
    """Return True if bare text has a quotation mark that is closed after its end in `text`."""
    if not _ANY_QUOTE.search(word):
        return False
    openers, closers = ("„‟", "“”") if "„" in word else ("“„‟〝❝", "”〞〟❞")
    if _count(word, openers) > _count(word, closers) or word.count("＂") % 2:
        return True
    if any(word.count(pair[0]) > word.count(pair[1]) for pair in _PAIRS):
        return True
    is_open = len(_OPENS_QUOTE.findall(word)) > len(_CLOSES_QUOTE.findall(word))
    return is_open and _CLOSES_QUOTE.search(text, end, end + _LATER_CHARS) is not None


def _count(text: str, marks: str) -> int:
    return sum(text.count(mark) for mark in marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """The notation of values.

    Attributes:
        read_string: reads a string.
        words: the constants of the notation, such as `true`.
        foreign: constants of another notation, which are accepted as a repair.
        foreign_name: the code of that repair.
        has_bare_text: keys have no quotes, and a value without quotes is a string.
    """

    read_string: StringReader
    words: Mapping[str, Any]
    foreign: Mapping[str, Any]
    foreign_name: str
    has_bare_text: bool


class ValueReader:
    """Parses values in one text; each method takes an index and returns (value, next index).

    All raise ValueError for text that cannot be parsed, and add the codes of repairs to `repairs`.
    """

    def __init__(self, text: str, notation: Notation, repairs: list[str]) -> None:
        self._text = text
        self._notation = notation
        self._repairs = repairs

    def value(self, at: int, depth: int = 0) -> tuple[Any, int]:
        """Parse any value at `at` or after white space."""
        if depth > MAX_DEPTH:
            raise ValueError("too deep")
        at = self.skip(at)
        if self._text.startswith("{", at):
            return self._object(at + 1, depth)
        if self._text.startswith("[", at):
            return self._list(at + 1, depth)
        return self._string(at) or self._bare(at)

    def skip(self, at: int) -> int:
        """Return the index after white space."""
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def comma(self, closer: str, at: int) -> int:
        """Return the index after a comma, or of the closing bracket."""
        at = self.skip(at)
        if not self._text.startswith(",", at):
            if not self._text.startswith(closer, at):
                raise ValueError("neither comma nor end")
            return at
        at = self.skip(at + 1)
        if self._text.startswith(closer, at):
            self._repairs.append("trailing_comma")
        return at

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        at = self.skip(at)
        while not self._text.startswith("}", at):
            key, at = self._key(at)
            at = self.skip(at)
            if not self._text.startswith(":", at):
                raise ValueError("no colon")
            if key in members:
                self._repairs.append("duplicate_key")
            members[key], at = self.value(at + 1, depth + 1)
            at = self.comma("}", at)
        return members, at + 1

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self.skip(at)
        while not self._text.startswith("]", at):
            item, at = self.value(at, depth + 1)
            items.append(item)
            at = self.comma("]", at)
        return items, at + 1

    def _key(self, at: int) -> tuple[str, int]:
        if string := self._string(at):
            return string
        match = _BARE_KEY.match(self._text, at) if self._notation.has_bare_text else None
        if match is None:
            raise ValueError("no key")
        return match.group(), match.end()

    def _string(self, at: int) -> tuple[str, int] | None:
        result = self._notation.read_string(self._text, at)
        if result is None:
            return None
        value, end, repairs = result
        self._repairs.extend(repairs)
        return value, end

    def _bare(self, at: int) -> tuple[Any, int]:
        pattern = _BARE_TEXT if self._notation.has_bare_text else _BARE
        match = pattern.match(self._text, at)
        if match is None or not match.group().strip():
            raise ValueError("no value")
        word, end = match.group().strip(), match.end()
        if self._notation.has_bare_text and has_open_quote(word, self._text, end):
            raise ValueError("a string without end")
        return self._word(word), end

    def _word(self, word: str) -> Any:
        notation = self._notation
        if word in notation.words:
            return notation.words[word]
        if _NUMBER.fullmatch(word):
            return json.loads(word)
        if word in notation.foreign:
            self._repairs.append(notation.foreign_name)
            return notation.foreign[word]
        if not notation.has_bare_text:
            raise ValueError(word)
        self._repairs.append("bare_string")
        return word
