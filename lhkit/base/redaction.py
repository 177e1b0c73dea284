"""Mask secrets in texts that come from servers.

A server may echo the headers of a request in an error, in a stream or in the name of a model, and
such text gets into exceptions, records, reports and logs. Every secret is registered before it is
sent; texts are masked before they are cut, so that no part of a secret remains at an edge.

`without_secrets` masks what looks like a key in a command line or an address, for texts about a
server that contain what a person wrote: by the name before it, or by its own form.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
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


_NAME_WORDS = (
    r"(?:api|access|auth|private|secret|master|license|signing|encryption|account|client|app)?[-_.]?"
    r"(?:key|token|secret|password|passwd|passphrase|pwd|pw|pat|pass|credentials?|creds?|bearer|jwt|"
    r"authorization|auth|cookie|signature|sig|dsn)"
)
_SECRET_NAME = re.compile(rf"(?:.*[-_. ])?{_NAME_WORDS}", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PLACEHOLDER = re.compile(r"\$\{[^{}]*\}|\$\w+|\{\w+\}|\*{3,}")

_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)(?P<is>=)?")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)=")
_HEADER = re.compile(r"(?P<name>[A-Za-z][\w-]*):\s*(?:(?:Bearer|Basic|Token)\s+)?", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_QUERY = re.compile(r"[?&#;](?P<name>[\w.-]+)=(?P<value>[^&\s\"'#;]*)")
_SCHEME = re.compile(r"\b(?:Bearer|Basic)\s+(?P<value>[^\s\"']{6,})", re.IGNORECASE)
_ENDS_IN_SCHEME = re.compile(r"(?:.*:\s*)?(?:Bearer|Basic)", re.IGNORECASE)
_KNOWN_FORM = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk|fc|gh[opsur]|github_pat|glpat|xox[abeprs]|hf|sbp|ntn|figd|shpat|tvly|lin_api|"
    r"dop_v1|whsec)[-_](?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{8,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|(?=[A-Za-z0-9]*[0-9])(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{32,}"
    r")"
)
_WORD = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s\"']+(?:\"[^\"]*\"|'[^']*'|[^\s\"']+)*")
_ORDINARY = re.compile(r"[a-z]+(?:[-_][a-z]+)*|\d{1,10}|true|false", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return True for the name of an option, variable or header that has a secret as value."""
    return _SECRET_NAME.fullmatch(_HUMP.sub("_", name)) is not None


def secrets_in(words: Sequence[str]) -> list[str]:
    """Return the parts of a command's words that look like secrets, in order."""
    return [
        word[begin:end]
        for word, spans in zip(words, _spans_of_words(words), strict=True)
        for begin, end in spans
    ]


def may_be_data(secret: str) -> bool:
    """Return True for a value too ordinary to be masked in all texts: a word, a small number."""
    return len(secret) < MIN_SECRET_CHARS or _ORDINARY.fullmatch(secret) is not None


def without_secrets(text: str | Sequence[str]) -> str:
    """Return a command line or an address with `***` for what looks like a secret.

    Placeholders such as `${TOKEN}` stay.

    Args:
        text: the command line, or its words.
    """
    if not isinstance(text, str):
        return " ".join(
            _masked_spans(word, spans)
            for word, spans in zip(text, _spans_of_words(text), strict=True)
        )
    matches = [*_WORD.finditer(text)]
    inner = [(match.start(), match[0]) for match in matches]
    words = [word.strip("\"'") for _, word in inner]
    spans: list[tuple[int, int]] = []
    for (start, word), stripped, found in zip(inner, words, _spans_of_words(words), strict=True):
        offset = start + word.find(stripped)
        spans += [(offset + begin, offset + end) for begin, end in found]
    return _masked_spans(text, spans)


def masked_repr(instance: Any, *named: str) -> str:
    """Return the repr of a dataclass, with secrets in some of its fields masked.

    Args:
        instance: the dataclass.
        named: fields with an address or a command line, or several.
    """
    values = {each.name: getattr(instance, each.name) for each in fields(instance) if each.repr}
    for name in named:
        value = values[name]
        if isinstance(value, str):
            values[name] = without_secrets(value)
        elif isinstance(value, tuple):
            values[name] = tuple(map(without_secrets, value))
    listed = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return f"{type(instance).__name__}({listed})"


def _masked_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts, position = [], 0
    for begin, end in spans:
        parts += [text[position:begin], MASK]
        position = end
    return "".join([*parts, text[position:]])


def _spans_of_words(words: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Return the spans of secrets in each word, without overlaps."""
    spans: list[list[tuple[int, int]]] = []
    is_value = False  # of the option before
    for word in words:
        option = _OPTION.match(word)
        whole = [(0, len(word))]
        found = whole if is_value and not word.startswith("-") else [*_spans(word)]
        is_value = _ENDS_IN_SCHEME.fullmatch(word) is not None or bool(
            option
            and not option["is"]
            and option.end() == len(word)
            and is_secret_name(option["name"])
        )
        spans.append(_merged(span for span in found if not _is_placeholder(word, span)))
    return spans


def _is_placeholder(word: str, span: tuple[int, int]) -> bool:
    rest = _PLACEHOLDER.sub("", word[span[0] : span[1]])
    return not re.search(r"\w", re.sub(r"(?i)\b(?:bearer|basic)\b", "", rest))


def _spans(word: str) -> Iterator[tuple[int, int]]:
    for pattern in (_OPTION, _ASSIGNMENT, _HEADER):
        match = pattern.match(word)
        has_value = match and match.end() < len(word) and (pattern is not _OPTION or match["is"])
        if match and has_value and is_secret_name(match["name"]):
            yield match.end(), len(word)
    for match in _ASSIGNMENT.finditer(word):  # --env=API_KEY=…
        if is_secret_name(match["name"]):
            yield match.end(), len(word)
    for match in _QUERY.finditer(word):
        if is_secret_name(match["name"]) or match["name"] == "code":  # a key of Azure Functions
            yield match.span("value")
    for match in _SCHEME.finditer(word):
        yield match.span("value")
    for pattern in (_USER, _KNOWN_FORM):
        for match in pattern.finditer(word):
            yield match.span()


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


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
