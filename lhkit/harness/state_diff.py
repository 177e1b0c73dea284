"""What changed between two states: which rows are new, gone, or the same row changed. Pure.

Rows are compared by value, as JSON means it: 1000 is 1000.0, true is no 1, NFC is NFD.

A row is known again by the key of its table: the fields that the session's `row_keys()` names, or
the column `id` where every row has one. Two rows with equal keys are one row, changed; in a table
without a key a changed row is one that is gone and one that is new.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeAlias

from lhkit.harness.equality import normal
from lhkit.harness.record import RowKeys, Rows, State, TableDiff

Pairs: TypeAlias = tuple[tuple[int, int], ...]

NO_KEYS: RowKeys = MappingProxyType({})

_ID = ("id",)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """What changed in one table; rows are told by their places, `removed` in the rows of before.

    `changed` are pairs of (before, after) with equal keys. `key` names the fields of the key,
    empty for a table that has one row only; None where the table has none.
    """

    removed: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    changed: Pairs = ()
    key: tuple[str, ...] | None = None


def state_diff(before: State, after: State) -> dict[str, TableDiff]:
    """Return what changed, by table; tables without a change are left out."""
    return {
        table: TableDiff(
            added=tuple(after[table][j] for j in new),
            removed=tuple(before[table][i] for i in old),
            added_at=tuple(new),
            removed_at=tuple(old),
        )
        for table, old, new in _changed_tables(before, after)
    }


def with_diff(before: State, diffs: Mapping[str, TableDiff]) -> State:
    """Return the state at the end: that of the start with what `state_diff` found."""
    after = dict(before)
    for table, diff in diffs.items():
        gone = set(diff.removed_at)
        rows = [row for i, row in enumerate(before.get(table, ())) if i not in gone]
        for place, row in zip(diff.added_at, diff.added, strict=True):
            rows.insert(place, row)
        after[table] = tuple(rows)
    return after


def state_changes(
    before: State, after: State, *, row_keys: RowKeys = NO_KEYS
) -> dict[str, TableChange]:
    """Return what changed, row by row, by table; tables without a change are left out.

    Args:
        before: the state at the start.
        after: the state at the end.
        row_keys: the fields that together tell the rows of a table apart, where that is known.
    """
    return {
        table: _table_change(
            before.get(table, ()), after.get(table, ()), old, new, row_keys.get(table)
        )
        for table, old, new in _changed_tables(before, after)
    }


def _changed_tables(before: State, after: State) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield each table with a change, and the places of the rows that only one side has."""
    for table in sorted(before.keys() | after.keys()):
        old, new = before.get(table, ()), after.get(table, ())
        if old is new:
            continue
        only_old, only_new = _differing(old, new)
        if only_old or only_new:
            yield table, only_old, only_new


def _differing(old: Rows, new: Rows) -> tuple[list[int], list[int]]:
    """Return the places of the rows that the other side lacks, counting equal rows.

    Rows that are equal at one place are the same row, and the rest is compared one with all.
    """
    both = min(len(old), len(new))
    # most rows of a state are those of the state before: see `toolset.read_state`
    told = ((i, old[i], new[i]) for i in range(both) if old[i] is not new[i])
    apart = [(i, repr(one), repr(two)) for i, one, two in told]
    left = {i: one for i, one, two in apart if one != two}
    right = {i: two for i, one, two in apart if one != two}
    left |= {i: repr(old[i]) for i in range(both, len(old))}
    right |= {i: repr(new[i]) for i in range(both, len(new))}
    # the same bytes are the same rows; the rest is looked at
    places = _without(left, right), _without(right, left)
    forms = {i: normal(old[i]) for i in places[0]}, {j: normal(new[j]) for j in places[1]}
    return _without(*forms), _without(*reversed(forms))


def _without(rows: Mapping[int, Hashable], others: Mapping[int, Hashable]) -> list[int]:
    """Return the places of `rows` less `others`; of equal rows the last ones stay."""
    taken = Counter(others.values())
    kept = []
    for place, form in rows.items():
        if taken[form] > 0:
            taken[form] -= 1
        else:
            kept.append(place)
    return kept


def _table_change(
    old_rows: Rows, new_rows: Rows, old: list[int], new: list[int], given: Sequence[str] | None
) -> TableChange:
    """Return the change in one table; `old` and `new` are the places of the differing rows."""
    has_ids = all("id" in row for row in chain(old_rows, new_rows))
    key = tuple(given) if given is not None else _ID if has_ids else None
    pairs = () if key is None else _by_key(old_rows, new_rows, old, new, key)
    return TableChange(
        removed=_less(old, (i for i, _ in pairs)),
        added=_less(new, (j for _, j in pairs)),
        changed=pairs,
        key=key,
    )


def _by_key(
    old_rows: Rows, new_rows: Rows, old: list[int], new: list[int], key: tuple[str, ...]
) -> Pairs:
    """Pair the differing rows with equal keys; a row that lacks a field of it is in no pair."""
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    for j in reversed(new):
        if all(name in new_rows[j] for name in key):
            waiting[_key_of(new_rows[j], key)].append(j)
    pairs = []
    for i in old:
        same = waiting.get(_key_of(old_rows[i], key))
        if same and all(name in old_rows[i] for name in key):
            pairs.append((i, same.pop()))
    return tuple(pairs)


def _key_of(row: Mapping[str, Any], key: tuple[str, ...]) -> Hashable:
    return tuple(normal(row.get(name)) for name in key)


def _less(places: Iterable[int], taken: Iterable[int]) -> tuple[int, ...]:
    gone = set(taken)
    return tuple(place for place in places if place not in gone)
