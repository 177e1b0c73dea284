"""Keys that were sent to a server, kept out of every text that the server can write into.

A server may echo the headers of a request in an error, in a stream or in the name of a model, and
such text ends in exceptions, records, reports and logs. Every secret is known here by the time it
is sent; texts are masked before they are cut, so that no part of a secret is left at an edge.
"""

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

MASK = "***"
LEAST_CHARS = 8
"""A shorter value is no secret but a word such as `EMPTY` or `none`, and masking it would change
texts that have nothing to do with it."""

_secrets: set[str] = set()
_pattern: re.Pattern[str] | None = None


def hide(secret: str | None) -> None:
    """Mask `secret` from now on, as it is and as servers and formats spell it."""
    global _pattern  # noqa: PLW0603 - one compiled pattern for all secrets of this process
    secret = (secret or "").strip()
    if len(secret) < LEAST_CHARS or secret in _secrets:
        return
    _secrets.add(secret)
    forms = {form for each in _secrets for form in _forms(each)}
    _pattern = re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))


def masked(text: str) -> str:
    """Return text without any hidden secret."""
    return text if _pattern is None else _pattern.sub(MASK, text)


def _forms(secret: str) -> set[str]:
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    forms |= {quote(secret, safe="").lower(), html.escape(secret), repr(secret)[1:-1]}
    forms |= {json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    forms.add("".join(f"\\u{ord(char):04x}" for char in secret))
    for shift in range(3):  # inside a longer value, as a password behind `user:`
        code = base64.b64encode(b"\0" * shift + secret.encode()).decode().rstrip("=")
        whole = (shift + len(secret.encode())) * 8 // 6  # behind it bits of the next letter come
        inner = code[-(-shift * 8 // 6) : whole]
        forms |= {inner, inner.translate(str.maketrans("+/", "-_"))}
    return forms
