"""Texts for people, in Korean and English: one TOML file for each locale.

`lhkit.base.user_locale` chooses that of the user. Texts for the model are in the prompts of a
domain and in the dialects, except for error reasons of tool calls (the tables `[dispatch]` and
`[validation]`).
"""

import re
import string
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.locales.messages import translate
from lhkit.base.text import NOTHING, number_of_seconds

_HANGUL = re.compile("[가-힣]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The texts of one locale, by dotted key."""

    locale: str
    texts: Mapping[str, str]

    def text(self, key: str, **values: object) -> str:
        """Return the text for `key` with `{name}` placeholders filled in.

        `{n:file|files}` is a number with the word that goes with it: "1 file", "2 files".

        Raises:
            KeyError: the locale has no such key, or a placeholder has no value.
        """
        return _FORMATTER.format(self.texts[key], **values)

    def seconds(self, value: float | None) -> str:
        """Return seconds with three figures and the unit, such as `0.123 s`; a dash for None."""
        return NOTHING if value is None else self.text("table.seconds", n=number_of_seconds(value))

    def translate(self, message: object) -> str:
        """Return an English message of the code, such as an exception, in this locale."""
        return translate(str(message), self.locale)


class _PluralFormatter(string.Formatter):
    """Formats placeholders; `{n:one|many}` adds the word for the number."""

    def format_field(self, value: Any, format_spec: str) -> str:
        one, is_counted, many = format_spec.partition("|")
        if not is_counted:
            return str(super().format_field(value, format_spec))
        return f"{value} {one if str(value) == '1' else many}"


_FORMATTER = _PluralFormatter()


@cache
def available_locales() -> tuple[str, ...]:
    """Return the names of the shipped locales, sorted."""
    names = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def require_locale(locale: str) -> str:
    """Return `locale` if there are texts in it.

    Raises:
        UsageError: there are none; the message lists the available locales.
    """
    if locale not in available_locales():
        known = ", ".join(available_locales())
        raise UsageError(f"no locale {locale!r}: choose one of {known}")
    return locale


def written_locale(texts: Iterable[str]) -> str:
    """Return the locale in which people have written: `ko` if a text has Hangul, else `en`."""
    return "ko" if any(map(_HANGUL.search, texts)) else "en"


@cache
def load_catalog(locale: str, package: str = __name__) -> Catalog:
    """Return the catalog of `locale`.

    Args:
        locale: the locale.
        package: the package whose files `XX.toml` have the texts.

    Raises:
        UsageError: there is no such locale; the message lists the available ones.
    """
    source = files(package).joinpath(f"{require_locale(locale)}.toml").read_text(encoding="utf-8")
    return Catalog(locale=locale, texts=dict(_flat("", tomllib.loads(source))))


def _flat(prefix: str, table: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in table.items():
        key = f"{prefix}.{name}" if prefix else name
        pairs += _flat(key, value) if isinstance(value, Mapping) else [(key, value)]
    return pairs
