"""What changed between two states: which rows are new, gone, or the same row changed. Pure.

Rows are compared by value, as JSON means it: 1000 is 1000.0, true is no 1, NFC is NFD.

Which row was which is told by a table's key. A session may name it (`row_keys`). Otherwise it is
found among the fields that every row has, with a value of its own before and after:

1. `id`, `_id`, `uuid`, `guid`, or the id of the table's own name (`note_id`, `noteId` in `notes`).
2. Another `…_id` or `…Id`, unless a table of that name is there (`user_id` beside `users`), or the
   table never had two rows to show that it does not repeat: such a field may point elsewhere.
3. `key`, `code`, `slug`, `path`, `name`, `number`.

Of several that would do on one level, the one that finds most rows again is taken. Two rows with
equal keys are one row, changed; rows with different keys are different rows. In a table without a
key a row may be the changed form of another if they share more than half of their fields
(`likely_updates`).
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeAlias

from lhkit.harness.assignment import Problem, assign
from lhkit.harness.matchers import normal
from lhkit.harness.record import RowKeys, Rows, State, TableDiff
from lhkit.json_values import as_bytes

Pairs: TypeAlias = tuple[tuple[int, int], ...]

NO_KEYS: RowKeys = MappingProxyType({})

_IDS = ("id", "_id", "uuid", "guid")
_NAMES = ("key", "code", "slug", "path", "name", "number")
_MANY = 40_000
"""So many pairs of rows are compared one with all; beyond, only rows that share a rare value."""
_CROWD = 50
_ALONE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """What changed in one table; rows are told by their places, `removed` in the rows of before.

    `changed` are pairs of (before, after) with equal keys. `key` names the fields of the key,
    empty for a table that has one row only; None where the table has none. `is_sure`: rows with
    different keys are surely different things; a name may have been changed.
    """

    removed: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    changed: Pairs = ()
    key: tuple[str, ...] | None = None
    is_sure: bool = False


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
        table: _table_change(_Table(table, before, after, row_keys), old, new)
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
    # most rows of a state are those of the state before: see `toolset.state_of`
    told = ((i, old[i], new[i]) for i in range(both) if old[i] is not new[i])
    apart = [(i, as_bytes(one), as_bytes(two)) for i, one, two in told]
    left = {i: one for i, one, two in apart if one != two}
    right = {i: two for i, one, two in apart if one != two}
    left |= {i: as_bytes(old[i]) for i in range(both, len(old))}
    right |= {i: as_bytes(new[i]) for i in range(both, len(new))}
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


def likely_updates(removed: Rows, added: Rows, *, around: tuple[Rows, Rows] | None = None) -> Pairs:
    """Pair rows that are gone with new ones that share more than half of their fields.

    For tables without a key. The most alike are paired: optimally up to 40,000 pairs to compare.

    Args:
        removed: the rows that are gone.
        added: the new ones.
        around: all rows of the table before and after; if given, one of the shared fields must
            have a value there that no other row has: what all rows share tells nothing.
    """
    likeness = dict(_alike(removed, added, around))
    if len(removed) * len(added) > _MANY:
        return _greedy(likeness)
    costs = [
        [_ALONE - likeness[i, j] if (i, j) in likeness else None for j in range(len(added))]
        for i in range(len(removed))
    ]
    left = [_ALONE] * len(removed), [_ALONE] * len(added)
    return assign(Problem(costs=costs, left_expected=left[0], left_actual=left[1]))


def _greedy(likeness: Mapping[tuple[int, int], int]) -> Pairs:
    paired: dict[int, int] = {}
    taken: set[int] = set()
    for i, j in sorted(likeness, key=lambda pair: (-likeness[pair], pair)):
        if i not in paired and j not in taken:
            paired[i] = j
            taken.add(j)
    return tuple(sorted(paired.items()))


def _alike(
    removed: Rows, added: Rows, around: tuple[Rows, Rows] | None
) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield (i, j) of rows that share more than half of their fields, with that share in ‰."""
    mine, theirs = [_fields(row) for row in removed], [_fields(row) for row in added]
    holders: defaultdict[Hashable, list[int]] = defaultdict(list)
    for j, fields in enumerate(theirs):
        for each in fields:
            holders[each].append(j)
    repeated = _repeated(around[0]) | _repeated(around[1]) if around else frozenset[Hashable]()
    is_big = len(removed) * len(added) > _MANY
    for i, fields in enumerate(mine):
        telling = [each for each in fields - repeated if each in holders]
        rare = (each for each in telling if not is_big or len(holders[each]) <= _CROWD)
        for j in {j for each in rare for j in holders[each]}:
            common = len(fields & theirs[j])
            whole = len(removed[i].keys() | added[j].keys())
            if 2 * common > whole:
                yield (i, j), _ALONE * common // whole


def _repeated(rows: Rows) -> frozenset[Hashable]:
    """Return the fields with their values that more than one row has."""
    counted = Counter(each for row in rows for each in _fields(row))
    return frozenset(each for each, count in counted.items() if count > 1)


def _fields(row: Mapping[str, Any]) -> frozenset[Hashable]:
    return frozenset((normal(name), normal(value)) for name, value in row.items())


class _Table:
    """The rows of one table before and after, and what may be its key."""

    def __init__(self, name: str, before: State, after: State, row_keys: RowKeys) -> None:
        self.name = name
        self.old, self.new = before.get(name, ()), after.get(name, ())
        self.others = {_plain(each) for each in before.keys() | after.keys()} - {_plain(name)}
        self.given = row_keys.get(name)

    def levels(self) -> Iterator[list[str]]:
        """Yield the fields that may be a key by their names, the surest first."""
        first = next(chain(self.old, self.new), {})
        names = {name: _plain(name) for name in first}
        own = {stem + ending for stem in _stems(self.name) for ending in ("id", "uuid", "key")}
        pointing = {stem + "id" for other in self.others for stem in _stems(other)}
        is_tested = max(len(self.old), len(self.new)) > 1
        yield [name for name in first if name in _IDS or names[name] in own]
        yield [
            name
            for name in first
            if is_tested and _is_id(name) and names[name] not in pointing and name not in _IDS
        ]
        yield [name for name in first if name.casefold() in _NAMES]

    def serves(self, field: str) -> bool:
        """Return whether every row has a value of its own in `field`, before and after."""
        for rows in (self.old, self.new):
            values = [row.get(field) for row in rows]
            if not all(issubclass(kind, str | int | float) for kind in set(map(type, values))):
                return False
            if len({normal(each) for each in values}) < len(rows):
                return False
        return True


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


def _stems(table: str) -> set[str]:
    """Return what one row of a table may be called: `note` of `notes`, `city` of `cities`."""
    name = _plain(table)
    stems = {name, name.removesuffix("s"), name.removesuffix("es")}
    return stems | {name.removesuffix("ies") + "y"} if name.endswith("ies") else stems


def _is_id(name: str) -> bool:
    return name.casefold().endswith("_id") or name.endswith("Id")


def _table_change(table: _Table, old: list[int], new: list[int]) -> TableChange:
    """Return the change in one table; `old` and `new` are the places of the differing rows."""
    if table.given is not None:
        key: tuple[str, ...] | None = tuple(table.given)
        pairs = _by_key(table, old, new, tuple(table.given))
    else:
        key, pairs = _found_key(table, old, new)
    return TableChange(
        removed=_less(old, (i for i, _ in pairs)),
        added=_less(new, (j for _, j in pairs)),
        changed=pairs,
        key=key,
        is_sure=table.given is not None or (key is not None and key[0].casefold() not in _NAMES),
    )


def _found_key(
    table: _Table, old: list[int], new: list[int]
) -> tuple[tuple[str, ...] | None, Pairs]:
    for names in table.levels():
        tried = [(_by_key(table, old, new, (each,)), each) for each in names if table.serves(each)]
        if tried:
            pairs, name = max(tried, key=lambda each: len(each[0]))
            return (name,), pairs
    return None, ()


def _by_key(table: _Table, old: list[int], new: list[int], key: tuple[str, ...]) -> Pairs:
    """Pair the differing rows with equal keys; a row that lacks a field of it is in no pair."""
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    for j in reversed(new):
        if all(name in table.new[j] for name in key):
            waiting[_key_of(table.new[j], key)].append(j)
    pairs = []
    for i in old:
        same = waiting.get(_key_of(table.old[i], key))
        if same and all(name in table.old[i] for name in key):
            pairs.append((i, same.pop()))
    return tuple(pairs)


def _key_of(row: Mapping[str, Any], key: tuple[str, ...]) -> Hashable:
    return tuple(normal(row.get(name)) for name in key)


def _less(places: Iterable[int], taken: Iterable[int]) -> tuple[int, ...]:
    gone = set(taken)
    return tuple(place for place in places if place not in gone)
