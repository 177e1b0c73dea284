"""Find protocols in a store, by id or by words: SQLite FTS5 (trigram) proposes, `ranking` judges.

The query is data: it is cut into words before it comes near the FTS syntax, so that quotes, `*`,
`AND`, `NEAR` or `-` are never operators. Only `Store` writes protocols, from the catalog.
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from lhkit.lifehelper.catalog import nearest_ids
from lhkit.lifehelper.ranking import IndexRow, QueryWord, has_words, needles, query_words, ranked
from lhkit.lifehelper.store import Store

_SELECT_PROTOCOL = (
    "SELECT id, category, title, summary, steps, anchor, source, url FROM protocol"
    " JOIN protocol_text ON protocol_id = id"
)


def find_protocol(store: Store, protocol_id: str, *, locale: str) -> dict[str, Any] | None:
    """Return the protocol in `locale`, or None if there is no such id."""
    row = store.row(f"{_SELECT_PROTOCOL} WHERE id = ? AND locale = ?", [protocol_id, locale])
    if row is None:
        return None
    return {**dict(row), "steps": json.loads(row["steps"])}


def nearest_protocols(store: Store, protocol_id: str, n: int = 3) -> tuple[str, ...]:
    """Return up to `n` ids of protocols whose id or title resembles `protocol_id`, best first."""
    names: dict[str, list[str]] = {}
    for key, title in store.rows("SELECT protocol_id, title FROM protocol_text"):
        names.setdefault(key, []).append(title)
    return nearest_ids(protocol_id, names, n)


_FIELDS = tuple(field.name for field in fields(IndexRow))
_TRIGRAM = 3  # FTS5 cannot find anything shorter: LIKE does


def search_protocols(
    store: Store,
    *,
    query: str = "",
    category: str | None = None,
    limit: int = 5,
    locale: str = "ko",
) -> tuple[dict[str, Any], ...]:
    """Return up to `limit` protocols, best first; equal scores and no query: in order of id.

    Each has id, title, category and summary.

    Args:
        store: the database.
        query: words in any of the catalog's languages. A query without a word that says what is
            looked for ("추천해줘") is no condition; one of signs only finds nothing.
        category: only protocols of this category.
        limit: at most so many.
        locale: the language of the hits.
    """
    if query.strip() and not has_words(query):
        return ()
    if words := query_words(query):
        total = store.number("SELECT count(*) FROM protocol_search")
        ids = [key for key, _ in ranked(words, _candidates(store, words), total)]
    else:
        ids = [row["id"] for row in store.rows("SELECT id FROM protocol_search ORDER BY id")]
    rows = store.rows(
        "SELECT id, title, category, summary FROM protocol"
        " JOIN protocol_text ON protocol_id = id WHERE locale = ?",
        [locale],
    )
    by_id = {row["id"]: dict(row) for row in rows}
    found = (by_id[key] for key in ids)
    return tuple(hit for hit in found if category in (None, hit["category"]))[:limit]


def _candidates(store: Store, words: Sequence[QueryWord]) -> dict[str, IndexRow]:
    texts = sorted({needle for word in words for needle in needles(word)})
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
