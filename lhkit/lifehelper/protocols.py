"""Reading protocols out of a store. They are written only by `Store`, from the catalog."""

import json
from dataclasses import dataclass

from lhkit.lifehelper.catalog import nearest_ids
from lhkit.lifehelper.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolCard:
    """One protocol in one language."""

    id: str
    category: str
    title: str
    summary: str
    steps: tuple[str, ...]
    anchor: str
    source: str
    url: str


_SELECT = (
    "SELECT id, category, title, summary, steps, anchor, source, url FROM protocol"
    " JOIN protocol_text ON protocol_id = id"
)


def find_protocol(store: Store, protocol_id: str, *, locale: str) -> ProtocolCard | None:
    """Return the protocol in `locale`, or None if there is no such id."""
    row = store.row(f"{_SELECT} WHERE id = ? AND locale = ?", [protocol_id, locale])
    if row is None:
        return None
    return ProtocolCard(**{**dict(row), "steps": tuple(json.loads(row["steps"]))})


def nearest_protocols(store: Store, protocol_id: str, n: int = 3) -> tuple[str, ...]:
    """Return up to `n` ids of protocols whose id or title resembles `protocol_id`, best first."""
    names: dict[str, list[str]] = {}
    for key, title in store.rows("SELECT protocol_id, title FROM protocol_text"):
        names.setdefault(key, []).append(title)
    return nearest_ids(protocol_id, names, n)
