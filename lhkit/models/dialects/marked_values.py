"""Reads `call:NAME{key:value}`: one complete call to its name and arguments, with repairs.

Repairs: `no_call_prefix`, `no_arguments`, `bare_string`, `python_literal`, `trailing_comma`,
`duplicate_key`, `bad_escape`, `control_character`, `malformed`. A string in JSON quotes is our
own extension (`markup`) and no repair.
"""

import re
from functools import cache
from typing import Any

from lhkit.models.dialects.quoted_strings import read_quoted
from lhkit.models.dialects.value_reader import JSON_WORDS, PYTHON_WORDS, Notation, ValueReader
from lhkit.vocab.json_values import plain_json

_HEAD = re.compile(r"\s*(?P<prefix>call:)?\s*(?P<name>[^\s{}<>:]+)\s*(?P<brace>\{)?")
_MAX_NAME_CHARS = 64


def read_marked(body: str, raw: str, quote: str) -> tuple[str, Any, tuple[str, ...]]:
    """Return (name, arguments, repairs) of the text between a call's start and end token.

    What makes no sense keeps `raw` as its arguments, so that validation can tell the model.
    Never raises.
    """
    head = _HEAD.match(body)
    if head is None:
        return body.strip()[:_MAX_NAME_CHARS], raw, ("malformed",)
    name = head.group("name")
    repairs = [] if head.group("prefix") else ["no_call_prefix"]
    try:
        args = _arguments(body, head, quote, repairs)
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
