"""Mask secrets in texts that come from servers.

A server may echo the headers of a request in an error, in a stream or in the name of a model, and
such text gets into exceptions, records, reports and logs. Every secret is registered before it is
sent; texts are masked before they are cut, so that no part of a secret remains at an edge.
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
MIN_SECRET_CHARS = 8
"""A shorter API key is a placeholder such as `EMPTY` or `none`, a word that texts may contain."""
_MIN_ANSWER_CHARS = 6
_MIN_TAIL_CHARS = 4


class Mask:
    """Replaces secrets in texts, verbatim and as formats encode them.

    Args:
        secrets: replacement, such as `${TOKEN}`, by secret value.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.secrets = {value: replacement for value, replacement in secrets.items() if value}
        self._replacements = {
            form: replacement
            for value, replacement in self.secrets.items()
            for form in _encodings(value)
        }
        in_answers = [
            value
            for value in self.secrets
            if len(value) >= _MIN_ANSWER_CHARS and not _is_path(value)
        ]
        self._anywhere = _pattern(self._replacements)
        self._in_answers = _pattern(form for value in in_answers for form in _encodings(value))

    def message(self, text: str) -> str:
        """Return a text with all secrets masked."""
        return self._replace(self._anywhere, text)

    def tail(self, text: str) -> str:
        """Return the tail of a cut text, with a cut secret at its start masked."""
        for form in sorted(self._replacements, key=len, reverse=True):
            if len(form) < MIN_SECRET_CHARS:
                continue
            for begin in range(1, len(form) - _MIN_TAIL_CHARS + 1):
                if text.startswith(form[begin:]):
                    return self._replacements[form] + text[len(form) - begin :]
        return text

    def answer(self, value: Any) -> Any:
        """Return a server's JSON with secrets masked in keys and values.

        Secrets of less than 6 characters and paths of existing files are left, because they may be
        data that a model has to read and write.
        """
        if self._in_answers is None:
            return value
        if isinstance(value, str):
            return self._replace(self._in_answers, value)
        if isinstance(value, Mapping):
            return {self.answer(key): self.answer(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.answer(inner) for inner in value]
        return value

    def _replace(self, pattern: re.Pattern[str] | None, text: str) -> str:
        if pattern is None:
            return text
        return pattern.sub(lambda match: self._replacements[match.group()], text)


def hide(secret: str | None) -> None:
    """Register the API key of a server, which `masked` masks from now on."""
    global _keys  # noqa: PLW0603 - one mask for all keys of this process
    secret = (secret or "").strip()
    if len(secret) >= MIN_SECRET_CHARS and secret not in _keys.secrets:
        _keys = Mask({**_keys.secrets, secret: MASK})


def masked(text: str) -> str:
    """Return a text with all registered keys masked."""
    return _keys.message(text)


def _pattern(forms: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _encodings(secret: str) -> set[str]:
    """Return a secret as it appears in addresses, JSON, HTML and base64."""
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    forms |= {json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    if len(secret) < MIN_SECRET_CHARS:
        return forms
    forms |= {quote(secret, safe="").lower(), html.escape(secret), repr(secret)[1:-1]}
    forms.add("".join(f"\\u{ord(char):04x}" for char in secret))
    for shift in range(3):  # inside a longer value, as a password after `user:`
        code = base64.b64encode(b"\0" * shift + secret.encode()).decode().rstrip("=")
        end = (shift + len(secret.encode())) * 8 // 6  # later bits depend on the next character
        inner = code[-(-shift * 8 // 6) : end]
        forms |= {inner, inner.translate(str.maketrans("+/", "-_"))}
    return forms


def _is_path(value: str) -> bool:
    try:
        return Path(value).is_absolute() and Path(value).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False


_keys = Mask({})
