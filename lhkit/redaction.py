"""Secrets that were sent to a server, kept out of every text that the server can write into.

A server may echo the headers of a request in an error, in a stream or in the name of a model, and
such text ends in exceptions, records, reports and logs. Every secret is known here by the time it
is sent; texts are masked before they are cut, so that no part of a secret is left at an edge.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"
LEAST_CHARS = 8
"""A shorter key of a server is no secret but a word such as `EMPTY` or `none`, and masking it would
change texts that have nothing to do with it."""
_LEAST_IN_ANSWERS = 6
_LEAST_OF_A_TAIL = 4


class Mask:
    """Replaces secrets in texts, as they are and as servers and formats spell them.

    Args:
        secrets: what is shown instead, such as `${TOKEN}`, by value.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.secrets = {value: shown for value, shown in secrets.items() if value}
        self._shown = {
            form: shown for value, shown in self.secrets.items() for form in _forms(value)
        }
        in_answers = [
            value
            for value in self.secrets
            if len(value) >= _LEAST_IN_ANSWERS and not _is_path(value)
        ]
        self._anywhere = _any_of(self._shown)
        self._in_answers = _any_of(form for value in in_answers for form in _forms(value))

    def message(self, text: str) -> str:
        """Return a text without any of the values."""
        return self._without(self._anywhere, text)

    def tail(self, text: str) -> str:
        """Return the end of a longer text: the end of a key at its beginning is masked."""
        for form in sorted(self._shown, key=len, reverse=True):
            if len(form) < LEAST_CHARS:
                continue
            for begin in range(1, len(form) - _LEAST_OF_A_TAIL + 1):
                if text.startswith(form[begin:]):
                    return self._shown[form] + text[len(form) - begin :]
        return text

    def answer(self, value: Any) -> Any:
        """Return JSON of a server without the values, in keys, too.

        Only values count that are no plain data: those of 6 characters or more that are no path of
        a file or folder here, which models have to read and to write.
        """
        if self._in_answers is None:
            return value
        if isinstance(value, str):
            return self._without(self._in_answers, value)
        if isinstance(value, Mapping):
            return {self.answer(key): self.answer(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.answer(inner) for inner in value]
        return value

    def _without(self, pattern: re.Pattern[str] | None, text: str) -> str:
        if pattern is None:
            return text
        return pattern.sub(lambda found: self._shown[found.group()], text)


def hide(secret: str | None) -> None:
    """Mask the key of a server from now on, in every text that `masked` returns."""
    global _keys  # noqa: PLW0603 - one mask for all keys of this process
    secret = (secret or "").strip()
    if len(secret) >= LEAST_CHARS and secret not in _keys.secrets:
        _keys = Mask({**_keys.secrets, secret: MASK})


def masked(text: str) -> str:
    """Return text without any hidden key."""
    return _keys.message(text)


def _any_of(forms: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _forms(secret: str) -> set[str]:
    """Return the spellings of a secret in addresses, JSON, HTML and base64."""
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    forms |= {json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    if len(secret) < LEAST_CHARS:
        return forms
    forms |= {quote(secret, safe="").lower(), html.escape(secret), repr(secret)[1:-1]}
    forms.add("".join(f"\\u{ord(char):04x}" for char in secret))
    for shift in range(3):  # inside a longer value, as a password behind `user:`
        code = base64.b64encode(b"\0" * shift + secret.encode()).decode().rstrip("=")
        whole = (shift + len(secret.encode())) * 8 // 6  # behind it bits of the next letter come
        inner = code[-(-shift * 8 // 6) : whole]
        forms |= {inner, inner.translate(str.maketrans("+/", "-_"))}
    return forms


def _is_path(value: str) -> bool:
    try:
        return Path(value).is_absolute() and Path(value).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False


_keys = Mask({})
