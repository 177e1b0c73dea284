r"""Strings in quotes with backslash escapes: what JSON and Python agree on, and a lenient reader.

A control token inside a string is written with `\u003c` for its `<`. That is lossless, and the
tokenizer never sees the token.
"""

import json
import re

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
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


def quoted(text: str, control: re.Pattern[str]) -> str:
    """Return `text` in double quotes; `control` matches the `<` of each control token."""
    written = control.sub(r"\\u003c", json.dumps(text, ensure_ascii=False))
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", written)


def read_quoted(text: str, at: int) -> tuple[str, int, tuple[str, ...]]:
    """Return (value, end, repairs) of the string whose quote is at `at`.

    Raises:
        ValueError: it never ends.
    """
    found = _STRING[text[at]].match(text, at)
    if found is None:
        raise ValueError("a string without end")
    value, repairs = unescaped(found.group(1))
    return value, found.end(), repairs


def unescaped(written: str) -> tuple[str, tuple[str, ...]]:
    """Return (value, repairs) of the text between a string's quotes."""
    repairs: list[str] = []

    def unescape(match: re.Match[str]) -> str:
        one = match.group("one")
        if one is None:
            return _character(match)
        if one not in _ONE:
            repairs.append("bad_escape")
        return _ONE.get(one, match.group())

    value = _ESCAPE.sub(unescape, written)
    if any(char < " " for char in written):
        repairs.append("control_character")
    return value, tuple(dict.fromkeys(repairs))


def _character(match: re.Match[str]) -> str:
    if high := match.group("high"):
        pair = bytes.fromhex(high) + bytes.fromhex(match.group("low"))
        return pair.decode("utf-16-be")
    return chr(int(match.group("four") or match.group("eight") or match.group("two"), 16))
