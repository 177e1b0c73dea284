"""The database of one user: a file for a chat, a copy in memory for each replay.

Owns one SQLite connection, its schema and its transactions; what stands in the rows is the
business of `tools`. Nothing here reads a clock.
"""

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from lhkit.errors import StoreError
from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.lifehelper.ranking import INDEX_VERSION, index_row

BUSY_TIMEOUT_S = 5.0
"""How long a statement waits for another process's write. Writes here take milliseconds."""

APPLICATION_ID = 0x6C68_6B74  # "lhkt": tells our files from other programs' databases

_V1 = (
    """
    CREATE TABLE catalog_state (
      only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
      fingerprint TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE protocol (
      id TEXT PRIMARY KEY,
      category TEXT NOT NULL,
      source TEXT NOT NULL,
      url TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE protocol_text (
      protocol_id TEXT NOT NULL REFERENCES protocol (id) ON DELETE CASCADE,
      locale TEXT NOT NULL,
      title TEXT NOT NULL,
      summary TEXT NOT NULL,
      steps TEXT NOT NULL,
      anchor TEXT NOT NULL,
      PRIMARY KEY (protocol_id, locale)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE VIRTUAL TABLE protocol_search USING fts5 (
      id UNINDEXED, keywords, titles, labels, summaries, steps, joined, tokenize = 'trigram'
    )
    """,
    """
    CREATE TABLE habit (
      id TEXT PRIMARY KEY,
      protocol_id TEXT NOT NULL REFERENCES protocol (id),
      status TEXT NOT NULL CHECK (status IN ('active', 'archived')),
      frame_level TEXT NOT NULL CHECK (frame_level IN ('identity', 'action', 'outcome')),
      framed_text TEXT NOT NULL CHECK (trim(framed_text) <> ''),
      anchor_when TEXT,
      anchor_after_what TEXT,
      created_on TEXT NOT NULL CHECK (created_on GLOB '????-??-??')
    ) STRICT
    """,
    """
    CREATE UNIQUE INDEX habit_one_active_per_protocol
      ON habit (protocol_id) WHERE status = 'active'
    """,
    """
    CREATE TABLE tracker_entry (
      habit_id TEXT NOT NULL REFERENCES habit (id),
      date TEXT NOT NULL CHECK (date GLOB '????-??-??'),
      value TEXT NOT NULL CHECK (value IN ('done', 'blank')),
      PRIMARY KEY (habit_id, date)
    ) STRICT, WITHOUT ROWID
    """,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_V1,)
"""The statements of each schema version, in order. Never edit a released one; append."""

Value: TypeAlias = str | int | float | None


class Store:
    """One database. Use it only in the thread that opened it (its calls are short: no thread pool).

    Several processes may have the same file open: a write waits up to `BUSY_TIMEOUT_S`, then raises
    `sqlite3.OperationalError`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path, catalog: ProtocolCatalog) -> "Store":
        """Open or create the file at `path`, bring its schema up to date and load `catalog`.

        Protocols that left the catalog stay as long as a habit needs them, but are not found by
        search.

        Raises:
            StoreError: the file cannot be opened, is no database or another program's, was
                written by a newer lhkit, or another process kept it for `BUSY_TIMEOUT_S`.
        """
        try:
            connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        except sqlite3.Error as error:
            raise _unusable(path, error) from error
        try:
            store = cls(_set_up(connection))
            _check_owner(store, path)
            _write_ahead(connection)
            _migrate(store, path)
            _load_catalog(store, catalog)
        except sqlite3.Error as error:
            connection.close()
            raise _unusable(path, error) from error
        except BaseException:
            connection.close()
            raise
        return store

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        return self._connection.execute(sql, _storable(values)).fetchall()

    def row(self, sql: str, values: Sequence[Value] = ()) -> sqlite3.Row | None:
        """Return the first row of a query, or None."""
        found: sqlite3.Row | None = self._connection.execute(sql, _storable(values)).fetchone()
        return found

    def number(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Return the first column of the first row of a query, as an integer."""
        return int(self._connection.execute(sql, _storable(values)).fetchone()[0])

    def write(self, sql: str, values: Sequence[Value] = ()) -> None:
        """Run one statement that changes data; alone it is a transaction of its own."""
        self._connection.execute(sql, _storable(values))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything inside one transaction: all of it is stored, or nothing.

        It takes the write lock at its start, so what is read inside stays true until its end.
        Inside another transaction it joins that one.
        """
        if self._is_writing():
            yield
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._is_writing():  # some failures (disk full) roll back by themselves
                self._connection.execute("ROLLBACK")
            raise

    def _is_writing(self) -> bool:
        return self._connection.in_transaction

    def close(self) -> None:
        """Close the store; one in memory is forgotten. Nothing can be asked of it any more."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class StoreImage:
    """A prepared empty database (schema, catalog, search index) as bytes, to copy from."""

    data: bytes

    @classmethod
    def prepare(cls, catalog: ProtocolCatalog) -> "StoreImage":
        """Return the image for `catalog`. Costs tens of milliseconds: do it once."""
        with Store(_set_up(sqlite3.connect(":memory:", isolation_level=None))) as store:
            _migrate(store, Path(":memory:"))
            _load_catalog(store, catalog)
            return cls(store._connection.serialize())

    def fresh(self) -> Store:
        """Return a store in memory that is empty and shares nothing with any other."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(self.data)
        return Store(_set_up(connection))


def _set_up(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Let others read while one writes (WAL); wait for that as for any write.

    SQLite itself does not: this turns a read into a write, and for those its timeout does not
    hold (sqlite.org/c3ref/busy_handler.html). Of many who open a new file some would be refused.
    """
    end_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > end_s:
                raise
            connection.execute("BEGIN IMMEDIATE")  # for this one it waits
            connection.execute("ROLLBACK")
        else:
            return


def _is_busy(error: sqlite3.Error) -> bool:
    """Return whether another process has the file; the low byte is the code of all its kinds."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _unusable(path: Path, error: sqlite3.Error) -> StoreError:
    if _is_busy(error):
        return StoreError(
            f"{path} is in use by another program ({error}): close it there or choose another file."
        )
    return StoreError(f"{path} cannot be used as a database ({error}): choose another file.")


def _storable(values: Sequence[Value]) -> list[Value]:
    """Replace lone surrogates, which a model can write in JSON and UTF-8 cannot carry."""
    return [
        value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for value in values
    ]


def _check_owner(store: Store, path: Path) -> None:
    is_empty = store.number("SELECT count(*) FROM sqlite_schema") == 0
    if not is_empty and store.number("PRAGMA application_id") != APPLICATION_ID:
        raise StoreError(f"{path} is the database of another program: choose another file.")


def _migrate(store: Store, path: Path) -> None:
    if _version(store, path) == len(MIGRATIONS):
        return
    with store.transaction():  # another process may have migrated meanwhile: read again inside
        for statements in MIGRATIONS[_version(store, path) :]:
            for statement in statements:
                store.write(statement)
        store.write(f"PRAGMA application_id = {APPLICATION_ID}")
        store.write(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _version(store: Store, path: Path) -> int:
    version = store.number("PRAGMA user_version")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} has schema version {version} and this lhkit knows up to {len(MIGRATIONS)}: "
            "upgrade lhkit or choose another file."
        )
    return version


def _load_catalog(store: Store, catalog: ProtocolCatalog) -> None:
    fingerprint = _fingerprint(catalog)
    if store.row("SELECT 1 FROM catalog_state WHERE fingerprint = ?", [fingerprint]):
        return
    with store.transaction():
        _replace_protocols(store, catalog)
        store.write("INSERT OR REPLACE INTO catalog_state VALUES (1, ?)", [fingerprint])


def _replace_protocols(store: Store, catalog: ProtocolCatalog) -> None:
    store.write("DELETE FROM protocol WHERE id NOT IN (SELECT protocol_id FROM habit)")
    store.write("DELETE FROM protocol_search")
    for protocol in catalog.values():
        store.write(
            "INSERT INTO protocol VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
            " category = excluded.category, source = excluded.source, url = excluded.url",
            [protocol.id, protocol.category, protocol.source, protocol.url],
        )
        for locale, text in protocol.texts.items():
            steps = json.dumps(text.steps, ensure_ascii=False)
            store.write(
                "INSERT OR REPLACE INTO protocol_text VALUES (?, ?, ?, ?, ?, ?)",
                [protocol.id, locale, text.title, text.summary, steps, text.anchor],
            )
        store.write(
            "INSERT INTO protocol_search VALUES (?, ?, ?, ?, ?, ?, ?)",
            [protocol.id, *index_row(protocol).values()],
        )


def _fingerprint(catalog: ProtocolCatalog) -> str:
    content: list[Any] = [INDEX_VERSION, *(each.model_dump() for each in catalog.values())]
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
