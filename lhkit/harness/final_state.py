"""Is the state at the end the one that was expected, and nothing else? Pure.

One rule for all tables: what `final` lists must be there, one row for each; every other row must
be as it was at the start. A scenario without `final` therefore expects no change at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from lhkit.harness.assignment import Problem, assign
from lhkit.harness.comparison import Place, fields_reasons, shown
from lhkit.harness.equality import SchemaNode
from lhkit.harness.matchers import parse_slot
from lhkit.harness.record import Rows, State, TableDiff
from lhkit.harness.state_diff import state_diff


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVerdict:
    """`missing`: listed rows that are not there. `unlisted`: changes that nobody expected."""

    missing: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


def check_state(
    final: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    before: State,
    after: State,
    today: date | None = None,
) -> StateVerdict:
    """Compare the state at the end with what a scenario lists.

    Args:
        final: rows of matchers, by table; fields that are not listed do not matter.
        before: the state at the start.
        after: the state at the end.
        today: the day that relative dates count from.
    """
    missing: list[str] = []
    unlisted: list[str] = []
    changes = state_diff(before, after)
    for table in sorted({*final, *after, *changes}):
        listed = final.get(table, ())
        diff = changes.get(table, TableDiff())
        pairs = _pairs(listed, after.get(table, ()), diff.added, today)
        missing += [
            f"final.{table}[{i}]: no row like {shown(row)}"
            for i, row in enumerate(listed)
            if i not in dict(pairs)
        ]
        unlisted += _unlisted(table, diff, {j for _, j in pairs}, after.get(table, ()))
    return StateVerdict(missing=tuple(missing), unlisted=tuple(unlisted))


def _pairs(
    listed: Sequence[Mapping[str, Any]], rows: Rows, added: Rows, today: date | None
) -> tuple[tuple[int, int], ...]:
    """Pair listed rows with actual ones, new rows first: those need an explanation."""
    problem = Problem(
        costs=[[0 if _fits(wish, row, today) else None for row in rows] for wish in listed],
        left_expected=[1] * len(listed),
        left_actual=[int(row in added) for row in rows],
    )
    return assign(problem)


def _fits(wish: Mapping[str, Any], row: Mapping[str, Any], today: date | None) -> bool:
    slots = {name: parse_slot(matcher) for name, matcher in wish.items()}
    place = Place(SchemaNode.of({}), today)
    return not any(fields_reasons(slots, row, place, extra=True).values())


def _unlisted(table: str, diff: TableDiff, explained: set[int], rows: Rows) -> list[str]:
    """Return the changes of a table that no listed row explains.

    A row may be gone only where a listed new row takes its place (an update).
    """
    new = [j for j, row in enumerate(rows) if row in diff.added]
    faults = [f"{table}: unlisted row {shown(rows[j])}" for j in new if j not in explained]
    replacements = sum(j in explained for j in new)
    gone = diff.removed[replacements:] if replacements < len(diff.removed) else ()
    return faults + [f"{table}: the row {shown(row)} is gone" for row in gone]
