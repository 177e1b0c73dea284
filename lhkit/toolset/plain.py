"""Copies of what crosses the line to their code: plain JSON that later changes do not reach."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from lhkit.errors import UsageError
from lhkit.json_values import MAX_DEPTH, NotJsonError, plain_json, plain_rows, repr_of
from lhkit.toolset.faults import a_type, their_code
from lhkit.toolset.protocols import Rows, Session


def state_of(
    session: Session, *, before: Mapping[str, Rows] = MappingProxyType({})
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return a copy of the state that later changes do not reach.

    Args:
        session: a session.
        before: its state as this function gave it earlier; rows that are the same are shared with
            it, which is quicker by far where a world is large.

    Raises:
        UsageError: their code fails, or it is no JSON, or no list of rows per table; names table,
            row and field.
    """
    with their_code("session: state()"):
        told = session.state()
    state = _plain_again(told, before) or plain_copy(told, "state()")
    for table, rows in state.items():
        if not isinstance(rows, list):
            raise UsageError(
                f"state(): the table {table!r} is {a_type(rows)}: give a list of rows, one object "
                "each"
            )
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise UsageError(
                    f"state(): {table}[{number}] is {a_type(row)}: give an object with named fields"
                )
    return {table: tuple(rows) for table, rows in state.items()}


def plain_copy(value: Any, name: str) -> dict[str, Any]:
    """Return a mapping of theirs as plain JSON of our own.

    Raises:
        UsageError: it has a value that JSON cannot carry; the sentence says where.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is {a_type(value)}: give an object with a list of rows per table")
    try:
        with _collector_paused():
            copied: dict[str, Any] = plain_json(value)
    except NotJsonError as error:
        raise UsageError(f"{name}: {next(_unplain(value), error)}") from error
    return copied


def _plain_again(told: Any, before: Mapping[str, Rows]) -> dict[str, Any] | None:
    """Return a state as plain JSON that shares rows with an earlier one; None: look at it anew."""
    if type(told) is not dict or not before:
        return None
    if not all(type(table) is str and type(rows) in {list, tuple} for table, rows in told.items()):
        return None
    try:
        return {
            table: plain_rows(rows, before.get(table, ()), depth=2) for table, rows in told.items()
        }
    except NotJsonError:  # which does not say where
        return None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python from looking for cycles in the block, which makes none.

    Else it searches a large world again and again while it is being copied, for longer than the
    copy itself takes. Blocks in several threads may overlap: who paused it lets it go on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _unplain(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield where JSON ends in `value`, and why. Whoever asks for the first is never lost in it."""
    if depth > MAX_DEPTH:
        yield f"{path[:60]}… is nested deeper than {MAX_DEPTH} levels, or holds itself"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield from _unplain(inner, f"{path}.{key}" if path else key, depth + 1)
            else:
                told = f"{repr_of(key)} ({a_type(key)})"
                yield f"{path or 'it'} has the key {told}: keys have to be texts"
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _unplain(inner, f"{path}[{i}]", depth + 1)
    else:
        try:
            plain_json(value)
        except NotJsonError:
            told = " ".join(repr_of(value).split())[:60]
            how = "give a text, a number, a list or an object instead"
            yield f"{path} is {a_type(value)} ({told}), which JSON cannot carry: {how}"
