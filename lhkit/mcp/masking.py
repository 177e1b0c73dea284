"""What is read instead of the secrets of a reference: `${NAME}` for the value of a variable.

A message is masked as a whole, before it is cut, and a rest of a key at a cut, too. In what a tool
answers only values count that are no plain data: those of 6 characters or more that are no path of
a file or folder here, which models have to read and to write.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

_LEAST_IN_ANSWERS = 6
_LEAST_OF_A_TAIL = 4
_LONG_KEY = 8


class Mask:
    """Replaces secrets in texts.

    Args:
        secrets: what is shown, such as `${TOKEN}`, by value.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._all = _spelled(secrets)
        self._in_answers = _spelled(
            {
                value: name
                for value, name in secrets.items()
                if len(value) >= _LEAST_IN_ANSWERS and not _is_path(value)
            }
        )

    def message(self, text: str) -> str:
        """Return a text without any of the values."""
        for value, name in self._all:
            text = text.replace(value, name)
        return text

    def tail(self, text: str) -> str:
        """Return the end of a longer text: the end of a key at its beginning is masked."""
        for value, name in self._all:
            if len(value) < _LONG_KEY:
                continue
            for begin in range(1, len(value) - _LEAST_OF_A_TAIL + 1):
                if text.startswith(value[begin:]):
                    return name + text[len(value) - begin :]
        return text

    def answer(self, value: Any) -> Any:
        """Return JSON of a server without the values, in keys, too."""
        if not self._in_answers:
            return value
        if isinstance(value, str):
            for secret, name in self._in_answers:
                value = value.replace(secret, name)
            return value
        if isinstance(value, Mapping):
            return {self.answer(key): self.answer(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.answer(inner) for inner in value]
        return value


def _spelled(secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return each value in the spellings of addresses and JSON; the longest first."""
    spelled: dict[str, str] = {}
    for value, name in secrets.items():
        escaped = (json.dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
        for each in (value, quote(value, safe=""), quote(value), quote_plus(value), *escaped):
            spelled[each] = name
    return sorted(((value, name) for value, name in spelled.items() if value), key=_longest_first)


def _longest_first(spelled: tuple[str, str]) -> int:
    return -len(spelled[0])


def _is_path(value: str) -> bool:
    try:
        return Path(value).is_absolute() and Path(value).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False
