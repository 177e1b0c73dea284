"""Find protocols in a store by id or words: SQLite FTS5 (trigram) filters, `ranking` scores.

The query is split into words before it reaches the FTS syntax, so that quotes, `*`, `AND`, `NEAR`
and `-` are never operators.
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from lhkit.lifehelper.catalog import nearest_ids
from lhkit.lifehelper.ranking import (
    IndexRow,
    QueryWord,
    has_words,
    query_words,
    rank_rows,
    required_texts,
)
from lhkit.lifehelper.store import Store

_SELECT_PROTOCOL = (
    "SELECT id, category, title, summary, steps, anchor, source, url FROM protocol"
    " JOIN protocol_text ON protocol_id = id"
)


def find_protocol(store: Store, protocol_id: str, *, locale: str) -> dict[str, Any] | None:
    """Return a protocol in `locale`, or None if the id is unknown."""
    row = store.row(f"{_SELECT_PROTOCOL} WHERE id = ? AND locale = ?", [protocol_id, locale])
    if row is None:
        return None
    return {**dict(row), "steps": json.loads(row["steps"])}


def nearest_protocols(store: Store, protocol_id: str, n: int = 3) -> tuple[str, ...]:
    """Return up to `n` ids of protocols with a similar id or title, best match first."""
    names: dict[str, list[str]] = {}
    for key, title in store.rows("SELECT protocol_id, title FROM protocol_text"):
        names.setdefault(key, []).append(title)
    return nearest_ids(protocol_id, names, n)


_FIELDS = tuple(field.name for field in fields(IndexRow))
_TRIGRAM = 3  # FTS5 cannot find shorter texts


def search_protocols(
    store: Store,
    *,
    locale: str,
    query: str = "",
    category: str | None = None,
    limit: int = 5,
) -> tuple[dict[str, Any], ...]:
    """Return protocols (id, title, category, summary), best match first, ties in order of id.

    Args:
        store: the database.
        locale: the language of the hits.
        query: words in any of the catalog's languages. A query of fillers only ("추천해줘") matches
            every protocol; a query without letters and digits matches none.
        category: restrict the search to this category.
        limit: maximum number of hits.
    """
    if query.strip() and not has_words(query):
        return ()
    if words := query_words(query):
        total = store.number("SELECT count(*) FROM protocol_search")
        ids = [key for key, _ in rank_rows(words, _candidates(store, words), total)]
    else:
        ids = [row["id"] for row in store.rows("SELECT id FROM protocol_search ORDER BY id")]
    rows = store.rows(
        "SELECT id, title, category, summary FROM protocol"
        " JOIN protocol_text ON protocol_id = id WHERE locale = ?",
        [locale],
    )
    by_id = {row["id"]: dict(row) for row in rows}
    hits = (by_id[key] for key in ids)
    return tuple(hit for hit in hits if category in (None, hit["category"]))[:limit]


def _candidates(store: Store, words: Sequence[QueryWord]) -> dict[str, IndexRow]:
    texts = sorted({text for word in words for text in required_texts(word)})
    long = [text for text in texts if len(text) >= _TRIGRAM]
    inside = (
        "SELECT * FROM protocol_search"
        " WHERE instr(keywords || titles || labels || summaries || steps, ?)"
    )
    rows = [row for text in texts if len(text) < _TRIGRAM for row in store.rows(inside, [text])]
    if long:
        phrases = " OR ".join(f'"{text}"' for text in long)
        rows += store.rows("SELECT * FROM protocol_search(?)", [phrases])
    return {row["id"]: IndexRow(**{key: row[key] for key in _FIELDS}) for row in rows}
