"""Compare the state of a session before and after a call."""

import inspect
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from lhkit.base.json_values import canonical
from lhkit.conversation.messages import ChangeKind, RowChange
from lhkit.toolset.base import Session

_log = logging.getLogger(__name__)

MAX_ROWS = 10_000
"""A state with more rows is not compared."""

MAX_READ_S = 0.5
"""After a read that took longer, a chat compares no more states."""

_SHOWN_ROWS = 3
_NAME_CHARS = 200
_TITLES = ("title", "name", "label", "subject")

Changes: TypeAlias = tuple[RowChange, ...]
_Tables: TypeAlias = Mapping[str, Sequence[str]]
"""The canonical JSON of each row, which also distinguishes 1 from 1.0 and from true."""
_Keys: TypeAlias = Mapping[str, Sequence[str]]


class _UnavailableError(Exception):
    """The state cannot be compared; the message says why."""


def watch_state(
    session: Session,
    *,
    waits: bool = False,
    max_rows: int = MAX_ROWS,
    max_read_s: float | None = MAX_READ_S,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[], Callable[[], Changes | None]]:
    """Return a function that reads the state, and returns a function for the changes since.

    The changes are None if the state is not available: it has no tables or more than `max_rows`
    rows, reading it fails or waits for another process, or a read took longer than `max_read_s`;
    after that it is not read again. `state()` runs on the event loop, because its session may
    belong to this thread. Writes of others to the same data in between are reported as well.

    Args:
        session: the session of the tools.
        waits: its state is read from another process (`Toolset.waits`), so it is not compared;
            nor is that of a session with `waits = True`.
        max_rows: limit of the rows of all tables together.
        max_read_s: limit of the seconds of one read; None for none.
        clock: returns monotonic seconds.
    """
    is_off = waits or getattr(session, "waits", False) is True

    def read() -> _Tables | None:
        nonlocal is_off
        if is_off:
            return None
        started_s = clock() if max_read_s is not None else 0.0
        tables: _Tables | None = None
        try:
            tables = _read_tables(session, max_rows)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - boundary: user code
            _log.warning("the state is not compared: %s: %s", type(error).__name__, error)
        if max_read_s is not None and clock() - started_s > max_read_s:
            _log.warning("the state is not compared: a read takes more than %s s", max_read_s)
            is_off = True
        return None if is_off else tables

    def watch() -> Callable[[], Changes | None]:
        before = read()

        def changes() -> Changes | None:
            after = None if before is None else read()
            if before is None or after is None or not (before or after):
                return None
            return tuple(_differences(before, after, session))

        return changes

    return watch


def _read_tables(session: Session, max_rows: int) -> _Tables:
    state: Any = session.state()
    if inspect.isawaitable(state):
        if inspect.iscoroutine(state):
            state.close()  # otherwise Python warns that it was never awaited
        raise _UnavailableError("state() is asynchronous")
    rows_of = {str(table): list(rows) for table, rows in state.items()}
    count = sum(map(len, rows_of.values()))
    if count > max_rows:
        raise _UnavailableError(f"it has {count:,} rows, more than {max_rows:,}")
    return {table: tuple(map(canonical, rows)) for table, rows in rows_of.items()}


def _differences(before: _Tables, after: _Tables, session: Session) -> Iterator[RowChange]:
    changed = [
        table for table in sorted({*before, *after}) if before.get(table) != after.get(table)
    ]
    keys = _row_keys(session) if changed else {}
    for table in changed:
        old, new = before.get(table, ()), after.get(table, ())
        groups = _row_differences(old, new, keys.get(table))
        yield from (
            RowChange(
                table=table,
                kind=kind,
                count=len(rows),
                rows=tuple(_name(row, keys.get(table)) for row in rows[:_SHOWN_ROWS]),
            )
            for kind, rows in groups.items()
            if rows
        )
        if not any(groups.values()) and old:  # the same rows
            yield RowChange(table=table, kind=ChangeKind.REORDERED, count=len(new))


def _row_differences(
    old: Sequence[str], new: Sequence[str], key: Sequence[str] | None
) -> dict[ChangeKind, list[Any]]:
    """Return the added, removed and modified rows; two rows with equal keys are one, modified."""
    removed, added = _without(old, new), _without(new, old)
    waiting: defaultdict[str, list[Any]] = defaultdict(list)
    for row in removed:
        waiting[_identity(row, key)].append(row)
    groups: dict[ChangeKind, list[Any]] = {kind: [] for kind in _OF_ROWS}
    for row in added:
        same = waiting[_identity(row, key)]
        groups[ChangeKind.MODIFIED if same else ChangeKind.ADDED].append(row)
        del same[:1]
    groups[ChangeKind.REMOVED] = [row for rows in waiting.values() for row in rows]
    return groups


_OF_ROWS = (ChangeKind.ADDED, ChangeKind.REMOVED, ChangeKind.MODIFIED)


def _without(rows: Sequence[str], others: Sequence[str]) -> list[Any]:
    """Return the rows that are not among the others, parsed; equal rows count."""
    counts = Counter(others)
    remaining = []
    for row in rows:
        if counts[row] > 0:
            counts[row] -= 1
        else:
            remaining.append(json.loads(row))
    return remaining


def _row_keys(session: Session) -> _Keys:
    """Return the key fields of the tables as far as the session names valid ones."""
    keys: dict[str, tuple[str, ...]] = {}
    with suppress(Exception, SystemExit):  # boundary: user code
        named: Any = session.row_keys()  # type: ignore[attr-defined]
        for table, names in named.items():
            keys[table] = (names,) if isinstance(names, str) else tuple(map(str, names))
    return keys


def _identity(row: Any, key: Sequence[str] | None) -> str:
    """Return what two versions of a row have in common; the whole row without a key."""
    if key is None:
        key = ("id",)
        if not (isinstance(row, Mapping) and "id" in row):
            return canonical(row)
    return canonical([row.get(name) for name in key] if isinstance(row, Mapping) else row)


def _name(row: Any, key: Sequence[str] | None) -> tuple[Any, ...]:
    """Return the values that name a row to a person: of its key, or its title."""
    if not isinstance(row, Mapping):
        return (row,)
    names = [name for name in (("id",) if key is None else key) if name in row]
    if not any(isinstance(row[name], str) for name in names):  # numbers say little
        names += [name for name in _TITLES if isinstance(row.get(name), str)][:1]
    if not names and key is None:
        names = [name for name, value in row.items() if isinstance(value, str)][:1]
    values = (row[name] for name in names)
    return tuple(value[:_NAME_CHARS] if isinstance(value, str) else value for value in values)
