"""The habit protocols as values, read from `datasets/catalog/*.toml`.

One file is one category (its stem). Not a search and not a table: `store` puts these values into
the database, `search` finds them there.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

from lhkit.errors import StoreError

CATALOG_LOCALES = ("ko", "en")
"""Every protocol is written in each of these."""

SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolText:
    """A protocol in one language. `anchor` is a suggested moment to tie the habit to."""

    title: str
    summary: str
    steps: tuple[str, ...]
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A habit one could take up. `texts` is keyed by locale (`ko`, `en`)."""

    id: str
    category: str
    source: str
    url: str
    keywords: tuple[str, ...]
    texts: Mapping[str, ProtocolText]


class ProtocolCatalog(Mapping[str, Protocol]):
    """Protocols by id, in order of id.

    Raises:
        StoreError: if two protocols have the same id.
    """

    def __init__(self, protocols: Iterable[Protocol]) -> None:
        self._protocols: dict[str, Protocol] = {}
        for protocol in sorted(protocols, key=lambda each: each.id):
            if protocol.id in self._protocols:
                raise StoreError(f"two protocols have the id {protocol.id!r}: rename one of them")
            self._protocols[protocol.id] = protocol

    def __getitem__(self, protocol_id: str) -> Protocol:
        return self._protocols[protocol_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._protocols)

    def __len__(self) -> int:
        return len(self._protocols)

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories, sorted."""
        return tuple(sorted({protocol.category for protocol in self._protocols.values()}))

    def nearest(self, protocol_id: str, n: int = 3) -> tuple[str, ...]:
        """Return up to `n` ids whose id or title looks most like `protocol_id`, best first."""
        names = {
            protocol.id: [text.title for text in protocol.texts.values()]
            for protocol in self._protocols.values()
        }
        return nearest_ids(protocol_id, names, n)


def nearest_ids(wanted: str, names: Mapping[str, Iterable[str]], n: int = 3) -> tuple[str, ...]:
    """Return up to `n` keys of `names`, the ones that resemble `wanted` most first.

    Args:
        wanted: what was asked for.
        names: other names of each id; the id itself counts too.
        n: how many.
    """
    matcher = SequenceMatcher(b=wanted.casefold(), autojunk=False)

    def likeness(candidate: str) -> float:
        matcher.set_seq1(candidate.casefold())
        return matcher.ratio()

    scores = {key: max(map(likeness, (key, *others))) for key, others in names.items()}
    return tuple(sorted(scores, key=lambda key: (-scores[key], key))[:n])


def load_protocols(folder: Path | None = None) -> ProtocolCatalog:
    """Return the catalog of `folder`, read once per folder.

    Args:
        folder: where the TOML files are; by default the package's own data
            (`lhkit/datasets/catalog` in a wheel, `datasets/catalog` in the repository).

    Raises:
        StoreError: if there is no such folder, or an entry is incomplete; the message names file,
            entry and field.
    """
    return _load((folder or _default_folder()).resolve())


def _default_folder() -> Path:
    package = Path(__file__).resolve().parents[1]
    candidates = (package, package.parent)
    folders = [root / "datasets" / "catalog" for root in candidates]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


@cache
def _load(folder: Path) -> ProtocolCatalog:
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise StoreError(f"no protocol catalog in {folder}: it needs *.toml, one per category")
    return ProtocolCatalog(protocol for file in files for protocol in _read(file))


def _read(file: Path) -> list[Protocol]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} is not TOML ({error}): mend that line") from error
    entries = document.get("protocol")
    if not isinstance(entries, list) or not entries:
        raise StoreError(f"{file}: no [[protocol]] entry: add one or remove the file")
    return [_Entry(file, number, entry).protocol() for number, entry in enumerate(entries, 1)]


class _Entry:
    """One `[[protocol]]` table while it is checked."""

    def __init__(self, file: Path, number: int, table: Any) -> None:
        self._file = file
        self._table = table if isinstance(table, Mapping) else {}
        self._label = str(self._table.get("id") or f"number {number}")

    def protocol(self) -> Protocol:
        return Protocol(
            id=self._slug(),
            category=self._file.stem,
            source=self._text("source"),
            url=self._url(),
            keywords=self._texts("keywords"),
            texts={locale: self._in_locale(locale) for locale in CATALOG_LOCALES},
        )

    def _slug(self) -> str:
        slug = self._text("id")
        if not SLUG.fullmatch(slug):
            raise self._fault("id", f"must match {SLUG.pattern}")
        return slug

    def _url(self) -> str:
        url = self._text("url")
        if not url.startswith(("https://", "http://")):
            raise self._fault("url", "must start with https:// or http://")
        return url

    def _in_locale(self, locale: str) -> ProtocolText:
        return ProtocolText(
            title=self._text(f"{locale}.title"),
            summary=self._text(f"{locale}.summary"),
            steps=self._texts(f"{locale}.steps"),
            anchor=self._text(f"{locale}.anchor"),
        )

    def _text(self, field: str) -> str:
        value = self._at(field)
        if not _is_text(value):
            raise self._fault(field, "must be a text that is not blank")
        return str(value).strip()

    def _texts(self, field: str) -> tuple[str, ...]:
        values = self._at(field)
        if not isinstance(values, list) or not values or not all(map(_is_text, values)):
            raise self._fault(field, "must be a list of texts, at least one, none blank")
        return tuple(value.strip() for value in values)

    def _at(self, field: str) -> Any:
        value: Any = self._table
        for name in field.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def _fault(self, field: str, expectation: str) -> StoreError:
        return StoreError(f"{self._file}, protocol {self._label}, field {field}: {expectation}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
