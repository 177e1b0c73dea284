"""The habit protocols as values, read from `datasets/catalog/*.toml`.

One file is one category (its stem). Not a search and not a table: `store` puts these values into
the database, `search` finds them there.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lhkit.errors import StoreError

CATALOG_LOCALES = ("ko", "en")
"""Every protocol is written in each of these."""

_Text: TypeAlias = Annotated[str, Field(min_length=1)]
_Texts: TypeAlias = Annotated[tuple[_Text, ...], Field(min_length=1)]
_TRIMMED = ConfigDict(frozen=True, str_strip_whitespace=True)


class ProtocolText(BaseModel):
    """A protocol in one language. `anchor` is a suggested moment to tie the habit to."""

    model_config = _TRIMMED

    title: _Text
    summary: _Text
    steps: _Texts
    anchor: _Text


class Protocol(BaseModel):
    """A habit one could take up. `texts` is keyed by locale (`ko`, `en`)."""

    model_config = _TRIMMED

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    category: str
    source: _Text
    url: Annotated[str, Field(pattern="^https?://")]
    keywords: _Texts
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
    return _load((folder or shipped_data("catalog")).resolve())


def shipped_data(name: str) -> Path:
    """Return a folder of `datasets`: in the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "datasets" / name
    return shipped if shipped.is_dir() else package.parent / "datasets" / name


@cache
def _load(folder: Path) -> ProtocolCatalog:
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise StoreError(f"no protocol catalog in {folder}: it needs *.toml, one per category")
    return ProtocolCatalog(protocol for file in files for protocol in _read(file))


def _read(file: Path) -> Iterator[Protocol]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} is not TOML ({error}): correct that line") from error
    entries = document.get("protocol")
    if not isinstance(entries, list) or not entries:
        raise StoreError(f"{file}: no [[protocol]] entry: add one or remove the file")
    for number, entry in enumerate(entries, 1):
        table = entry if isinstance(entry, Mapping) else {}
        texts = {locale: table.get(locale, {}) for locale in CATALOG_LOCALES}
        try:
            yield Protocol.model_validate({**table, "category": file.stem, "texts": texts})
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            label = str(table.get("id") or f"number {number}")
            field = ".".join(part for part in fault["loc"] if isinstance(part, str))
            field = field.removeprefix("texts.")
            raise StoreError(f"{file}, protocol {label}, field {field}: {fault['msg']}") from error
