"""Reads `call:NAME{key:value}`: one complete call to its name and arguments, with repairs.

Repairs: `no_call_prefix`, `no_arguments`, `bare_string`, `python_literal`, `trailing_comma`,
`duplicate_key`, `bad_escape`, `control_character`, `single_quoted`, `malformed`. A string in
JSON quotes is our own extension (`markup`) and no repair.
"""

import re
from functools import cache
from typing import Any

from lhkit.json_values import plain_json
from lhkit.models.dialects.markup import Markup
from lhkit.models.dialects.strings import read_quoted, unescaped
from lhkit.models.dialects.values import JSON_WORDS, PYTHON_WORDS, Notation, ValueReader

_HEAD = re.compile(r"\s*(?P<prefix>call:)?\s*(?P<name>[^\s{}<>:]+)\s*(?P<brace>\{)?")
_MAX_NAME_CHARS = 64

_SINGLE_QUOTED = re.compile(
    r"'(?P<text>(?:[^'\\,:\[{]|\\.|[,:\[{](?!\s*')|'(?!\s*(?:[,:\]}]|\Z)))*)"
    r"(?:'(?=\s*[,:\]}])|(?P<next>[,:\[{]))?",
    re.DOTALL,
)
"""A string in single quotes, which ends where a comma, colon or bracket follows the quote.

An apostrophe inside of it is text. `next`: it has no end before the next one begins.
"""


def read_marked(raw: str, markup: Markup) -> tuple[str, Any, tuple[str, ...]]:
    """Return (name, arguments, repairs) of a call from its start token to its end token.

    What makes no sense keeps `raw` as its arguments, so that validation can tell the model.
    Never raises.
    """
    start, end = markup.call
    body = raw.removeprefix(start).removesuffix(end)
    head = _HEAD.match(body)
    if head is None:
        return body.strip()[:_MAX_NAME_CHARS], raw, ("malformed",)
    name = head.group("name")
    repairs = [] if head.group("prefix") else ["no_call_prefix"]
    try:
        args = _arguments(body, head, markup.quote, repairs)
    except (ValueError, RecursionError):  # also NotJsonError, and integers too long to read
        return name, raw, ("malformed",)
    return name, args, tuple(dict.fromkeys(repairs))


def _arguments(body: str, head: re.Match[str], quote: str, repairs: list[str]) -> Any:
    args: Any = {}
    end = head.end()
    if head.group("brace") is None:
        repairs.append("no_arguments")
    else:
        args, end = ValueReader(body, _notation(quote), repairs).value(end - 1)
    if body[end:].strip():
        raise ValueError(body[end:])
    return plain_json(args)


@cache
def _notation(quote: str) -> Notation:
    def read_string(text: str, at: int) -> tuple[str, int, tuple[str, ...]] | None:
        if text.startswith('"', at):
            return read_quoted(text, at)
        if text.startswith("'", at):
            return _read_single_quoted(text, at)
        if not text.startswith(quote, at):
            return None
        start = at + len(quote)
        end = text.index(quote, start)
        return text[start:end], end + len(quote), ()

    return Notation(
        read_string=read_string,
        words=JSON_WORDS,
        foreign=PYTHON_WORDS,
        foreign_name="python_literal",
        has_bare_text=True,
    )


def _read_single_quoted(text: str, at: int) -> tuple[str, int, tuple[str, ...]] | None:
    """Return the string whose single quote is at `at`; None if it is an apostrophe of bare text.

    Raises:
        ValueError: another string begins before this one ends.
    """
    found = _SINGLE_QUOTED.match(text, at)
    if found is None or found.group("next"):
        raise ValueError("a string without end")
    if found.end() == found.end("text"):
        return None
    value, repairs = unescaped(found.group("text"))
    return value, found.end(), ("single_quoted", *repairs)
