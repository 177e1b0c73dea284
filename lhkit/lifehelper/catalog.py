"""The catalog of habit protocols, read from `datasets/catalog/*.toml`, one file a category.

`store` copies the protocols into the database, `search` queries them there.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lhkit.base.errors import StoreError

CATALOG_LOCALES = ("ko", "en")
"""The languages that every protocol is available in."""

_Text: TypeAlias = Annotated[str, Field(min_length=1)]
_Texts: TypeAlias = Annotated[tuple[_Text, ...], Field(min_length=1)]
_TRIMMED = ConfigDict(frozen=True, str_strip_whitespace=True)


class ProtocolText(BaseModel):
    """The text of a protocol in one language. `anchor` is a suggested moment for the habit."""

    model_config = _TRIMMED

    title: _Text
    summary: _Text
    steps: _Texts
    anchor: _Text


class Protocol(BaseModel):
    """A habit that users can add. `texts` is keyed by locale (`ko`, `en`)."""

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
        for protocol in sorted(protocols, key=lambda protocol: protocol.id):
            if protocol.id in self._protocols:
                raise StoreError(f"Duplicate protocol id {protocol.id!r}: rename one of them.")
            self._protocols[protocol.id] = protocol

    def __getitem__(self, protocol_id: str) -> Protocol:
        return self._protocols[protocol_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._protocols)

    def __len__(self) -> int:
        return len(self._protocols)

    @property
    def categories(self) -> tuple[str, ...]:
        """The category names, sorted."""
        return tuple(sorted({protocol.category for protocol in self._protocols.values()}))


def nearest_ids(wanted: str, names: Mapping[str, Iterable[str]], n: int = 3) -> tuple[str, ...]:
    """Return up to `n` ids that resemble `wanted`, best match first.

    Args:
        wanted: the unknown id.
        names: further names of each known id; the id itself is compared too.
        n: maximum number of ids.
    """
    matcher = SequenceMatcher(b=wanted.casefold(), autojunk=False)

    def similarity(candidate: str) -> float:
        matcher.set_seq1(candidate.casefold())
        return matcher.ratio()

    scores = {key: max(map(similarity, (key, *others))) for key, others in names.items()}
    return tuple(sorted(scores, key=lambda key: (-scores[key], key))[:n])


def load_protocols(folder: Path | None = None) -> ProtocolCatalog:
    """Load the catalog of a folder; cached per folder.

    Args:
        folder: the folder with the TOML files; by default the catalog that is shipped.

    Raises:
        StoreError: the folder has no TOML file, or an entry is invalid; the message names file,
            entry and field.
    """
    return _load((folder or data_folder("catalog")).resolve())


def data_folder(name: str) -> Path:
    """Return a folder of `datasets`: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "datasets" / name
    return installed if installed.is_dir() else package.parent / "datasets" / name


@cache
def _load(folder: Path) -> ProtocolCatalog:
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise StoreError(f"No protocol catalog in {folder}: add *.toml files, one per category.")
    return ProtocolCatalog(protocol for file in files for protocol in _read(file))


def _read(file: Path) -> Iterator[Protocol]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} is not valid TOML ({error}). Correct that line.") from error
    entries = document.get("protocol")
    if not isinstance(entries, list) or not entries:
        raise StoreError(f"{file} has no [[protocol]] entry: add one or remove the file.")
    for number, entry in enumerate(entries, 1):
        table = entry if isinstance(entry, Mapping) else {}
        texts = {locale: table.get(locale, {}) for locale in CATALOG_LOCALES}
        try:
            yield Protocol.model_validate({**table, "category": file.stem, "texts": texts})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            label = str(table.get("id") or f"number {number}")
            field = ".".join(part for part in first["loc"] if isinstance(part, str))
            field = field.removeprefix("texts.")
            raise StoreError(f"{file}, protocol {label}, field {field}: {first['msg']}") from error
