"""The SQLite database of one user: a file for a chat, a copy in memory for each replay.

Owns the connection, the schema and the transactions; `habits` and `search` own the queries.
"""

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from lhkit.base.errors import StoreError
from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.lifehelper.ranking import INDEX_VERSION, index_row

BUSY_TIMEOUT_S = 5.0
"""How long a statement waits for another process's write lock."""

APPLICATION_ID = 0x6C68_6B74  # "lhkt": distinguishes these files from other programs' databases

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
    """One database, for use in the thread that opened it.

    Several processes may open the same file: a write waits up to `BUSY_TIMEOUT_S` for another one,
    then raises `sqlite3.OperationalError`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path, catalog: ProtocolCatalog) -> "Store":
        """Open or create the file at `path`, migrate its schema and load `catalog`.

        Protocols that were removed from the catalog stay as long as a habit refers to them, but
        search does not find them.

        Raises:
            StoreError: the file cannot be opened, is not a database, belongs to another program,
                was written by a newer lhkit, or stayed locked for `BUSY_TIMEOUT_S`.
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
        row: sqlite3.Row | None = self._connection.execute(sql, _storable(values)).fetchone()
        return row

    def number(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Return the first column of the first row of a query, as an integer."""
        return int(self._connection.execute(sql, _storable(values)).fetchone()[0])

    def write(self, sql: str, values: Sequence[Value] = ()) -> None:
        """Run one statement that changes data; outside a transaction it commits at once."""
        self._connection.execute(sql, _storable(values))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in one transaction; a nested call joins the outer transaction.

        It takes the write lock at its start, so that values read inside stay valid until its end.
        """
        is_nested = self._connection.in_transaction
        if is_nested:
            yield
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # some failures (disk full) roll back themselves
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the connection; a database in memory is discarded."""
        self._connection.close()

    def __del__(self) -> None:
        """Close the store of a panel that was dropped; Python 3.13 warns of open connections."""
        with suppress(sqlite3.ProgrammingError):  # dropped in another thread
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
    """A prepared database without habits (schema, catalog, search index), serialized as bytes."""

    data: bytes

    @classmethod
    def prepare(cls, catalog: ProtocolCatalog) -> "StoreImage":
        """Return the image for `catalog`. This takes tens of milliseconds: cache the result."""
        with Store(_set_up(sqlite3.connect(":memory:", isolation_level=None))) as store:
            _migrate(store, Path(":memory:"))
            _load_catalog(store, catalog)
            return cls(store._connection.serialize())

    def fresh(self) -> Store:
        """Return an independent store in memory, without habits."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(self.data)
        return Store(_set_up(connection))


def _set_up(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode, so that other processes can read during a write.

    SQLite does not apply its busy timeout to this statement, since it turns a read lock into a
    write lock (sqlite.org/c3ref/busy_handler.html), so the wait is implemented here.
    """
    end_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > end_s:
                raise
            connection.execute("BEGIN IMMEDIATE")  # here the busy timeout applies
            connection.execute("ROLLBACK")
        else:
            return


def _is_busy(error: sqlite3.Error) -> bool:
    """Return whether another process holds a lock; the low byte is the primary result code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _unusable(path: Path, error: sqlite3.Error) -> StoreError:
    if _is_busy(error):
        return StoreError(
            f"{path} is locked by another program ({error}): close it there or choose another file."
        )
    return StoreError(f"{path} cannot be used as a database ({error}): choose another file.")


def _storable(values: Sequence[Value]) -> list[Value]:
    """Replace lone surrogates, which are possible in JSON strings but not in UTF-8."""
    return [
        value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for value in values
    ]


def _check_owner(store: Store, path: Path) -> None:
    is_empty = store.number("SELECT count(*) FROM sqlite_schema") == 0
    if not is_empty and store.number("PRAGMA application_id") != APPLICATION_ID:
        raise StoreError(f"{path} belongs to another program: choose another file.")


def _migrate(store: Store, path: Path) -> None:
    if _version(store, path) == len(MIGRATIONS):
        return
    with store.transaction():  # another process may have migrated meanwhile: read the version again
        for statements in MIGRATIONS[_version(store, path) :]:
            for statement in statements:
                store.write(statement)
        store.write(f"PRAGMA application_id = {APPLICATION_ID}")
        store.write(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _version(store: Store, path: Path) -> int:
    version = store.number("PRAGMA user_version")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} has schema version {version}, this lhkit supports up to {len(MIGRATIONS)}: "
            "upgrade lhkit or choose another file."
        )
    return version


def _load_catalog(store: Store, catalog: ProtocolCatalog) -> None:
    content: list[Any] = [INDEX_VERSION, *(protocol.model_dump() for protocol in catalog.values())]
    fingerprint = sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
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
