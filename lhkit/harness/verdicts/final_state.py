"""Is the state at the end the one that was expected, and nothing else? Pure.

One rule for all tables: what `final` lists must be there, one row for each, and what `gone` lists
must have been deleted; every other row must be as it was at the start. A scenario without either
therefore expects no change at all.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any

from lhkit.harness.expectations.assignment import Problem, assign
from lhkit.harness.expectations.comparison import Place, fields_reasons, shown
from lhkit.harness.expectations.matchers import parse_slot
from lhkit.harness.records.record import Rows, State, TableDiff
from lhkit.harness.records.state_diff import state_diff
from lhkit.tools.schema import SchemaNode
from lhkit.vocab.json_values import canonical


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVerdict:
    """`missing`: what is listed and not so. `unlisted`: changes that nobody expected."""

    missing: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


def check_state(
    final: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    gone: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
    before: State,
    after: State,
    today: date | None = None,
) -> StateVerdict:
    """Compare the state at the end with what a scenario lists.

    Args:
        final: rows of matchers, by table; fields that are not listed do not matter.
        gone: likewise; rows of the start that must have been deleted, not changed.
        before: the state at the start.
        after: the state at the end.
        today: the day that relative dates count from.
    """
    missing: list[str] = []
    unlisted: list[str] = []
    changes = state_diff(before, after)
    for table in sorted({*final, *gone, *after, *changes}):
        listed = final.get(table, ())
        diff = changes.get(table, TableDiff())
        rows = after.get(table, ())
        new = _new(rows, diff.added)
        pairs = _pairs(listed, rows, new, today)
        missing += [
            f"final.{table}[{i}]: no row like {shown(row)}"
            for i, row in enumerate(listed)
            if i not in dict(pairs)
        ]
        explained = {j for _, j in pairs}
        lost = deleted_rows(diff.removed, [rows[j] for j in new & explained])
        deleted = _pairs(gone.get(table, ()), lost, frozenset(), today)
        missing += [
            f"gone.{table}[{i}]: no row like {shown(row)} was deleted"
            for i, row in enumerate(gone.get(table, ()))
            if i not in dict(deleted)
        ]
        meant = {j for _, j in deleted}
        unlisted += [f"{table}: unlisted row {shown(rows[j])}" for j in sorted(new - explained)]
        unlisted += [
            f"{table}: the row {shown(row)} is gone" for j, row in enumerate(lost) if j not in meant
        ]
    return StateVerdict(missing=tuple(missing), unlisted=tuple(unlisted))


def _new(rows: Rows, added: Rows) -> frozenset[int]:
    """Return which rows are the added ones; of equal rows the last."""
    left = Counter(canonical(row) for row in added)
    new: set[int] = set()
    for j in reversed(range(len(rows))):
        key = canonical(rows[j])
        if left[key] > 0:
            left[key] -= 1
            new.add(j)
    return frozenset(new)


def _pairs(
    listed: Sequence[Mapping[str, Any]], rows: Rows, new: frozenset[int], today: date | None
) -> tuple[tuple[int, int], ...]:
    """Pair listed rows with actual ones, new rows first: those need an explanation."""
    problem = Problem(
        costs=[[0 if _fits(wish, row, today) else None for row in rows] for wish in listed],
        left_expected=[1] * len(listed),
        left_actual=[int(j in new) for j in range(len(rows))],
    )
    return assign(problem)


def _fits(wish: Mapping[str, Any], row: Mapping[str, Any], today: date | None) -> bool:
    slots = {name: parse_slot(matcher) for name, matcher in wish.items()}
    place = Place(SchemaNode.of({}), today)
    return not any(fields_reasons(slots, row, place, extra=True).values())


def deleted_rows(removed: Rows, new: Iterable[Mapping[str, Any]]) -> Rows:
    """Return the removed rows whose place no new row with the same ids takes (an update)."""
    updates = Counter(canonical(ids_of(row)) for row in new)
    lost = []
    for row in removed:
        key = canonical(ids_of(row))
        if updates[key] > 0:
            updates[key] -= 1
        else:
            lost.append(row)
    return tuple(lost)


def ids_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that say which thing a row is about: `id`, or what ends in `_id`."""
    return {name: row[name] for name in row if name == "id" or name.endswith("_id")}
