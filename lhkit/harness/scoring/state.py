"""Differences of two states, and whether the final one is as expected. Pure.

Rows compare by JSON value: 1000 equals 1000.0, true does not equal 1, NFC equals NFD. A row is
identified by the key of its table: the fields that the session's `row_keys()` names, or the column
`id` where every row has one. Two rows with equal keys are one row, changed; in a table without a
key a changed row is one that was removed and one that was added.

One rule for all tables: a row must be there for each that `final` lists, and the rows that `gone`
lists must have been deleted; every other row must be unchanged. A scenario without either
therefore expects no change at all. Each row counts once: an update is one change, and an unlisted
one is one reason.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, TypeAlias

from lhkit.base.errors import ScenarioError
from lhkit.base.json_values import shown
from lhkit.base.schema import ABSENT, SchemaNode, nfc
from lhkit.harness.records.record import RowKeys, Rows, State, TableDiff
from lhkit.harness.scenarios.assignment import Pairs, TooManyPairsError, assign_sparse, max_pairs
from lhkit.harness.scenarios.matchers import DateIs, Equals, Fields, Place, Text, parse_row
from lhkit.harness.scenarios.values import fold_text, hashable_form, remove_spaces

NO_KEYS: RowKeys = MappingProxyType({})

_Listed: TypeAlias = Sequence[Mapping[str, Any]]

_SHOWN_FIELDS = 4
_SCALARS = (str, bool, int, float, type(None))
_Value: TypeAlias = tuple[str, str, Hashable]
"""A field, how it is compared (`equals`, `text` or `spaces`), and the form of its value."""

_NO_KEY = "; its table has no key: name it in row_keys(), or give every row an id"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """The changes of one table, as indices of rows.

    Attributes:
        removed: rows of the state before.
        added: rows of the state after.
        changed: pairs (before, after) of rows with equal keys.
        key: the key fields, empty for a table of a single row; None without a key.
    """

    removed: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    changed: Pairs = ()
    key: tuple[str, ...] | None = None


def state_diff(before: State, after: State) -> dict[str, TableDiff]:
    """Return the rows that differ, by table; tables without a change are left out."""
    return {
        table: TableDiff(
            added=tuple(after[table][j] for j in new),
            removed=tuple(before[table][i] for i in old),
            added_at=tuple(new),
            removed_at=tuple(old),
        )
        for table, old, new in _changed_tables(before, after)
    }


class InvalidDiffError(ValueError):
    """Recorded changes do not fit the state that they are applied to."""


def with_diff(before: State, diffs: Mapping[str, TableDiff]) -> State:
    """Return the rows after some changes, given the state before and the result of `state_diff`.

    Added rows come where they were. The order of the other rows is that of the state before: a
    table that was only sorted anew has no changes, and no verdict depends on the order.

    Raises:
        InvalidDiffError: the indexes do not fit the rows.
    """
    after = dict(before)
    for table, diff in diffs.items():
        old = before.get(table, ())
        gone = set(diff.removed_at)
        rows = [row for i, row in enumerate(old) if i not in gone]
        if (
            len(diff.added_at) != len(diff.added)
            or len(gone) != len(diff.removed)
            or len(rows) != len(old) - len(gone)
        ):
            raise InvalidDiffError(f"state_diff.{table}: rows and their indexes do not match")
        for index, row in zip(diff.added_at, diff.added, strict=True):
            if index > len(rows):
                raise InvalidDiffError(f"state_diff.{table}.added_at: there is no row {index}")
            rows.insert(index, row)
        after[table] = tuple(rows)
    return after


def state_changes(
    before: State, after: State, *, row_keys: RowKeys = NO_KEYS
) -> dict[str, TableChange]:
    """Return the changes of rows, by table; tables without a change are left out.

    Args:
        before: the state at the start.
        after: the state at the end.
        row_keys: the key fields of each table, where they are known.
    """
    return {
        table: _table_change(
            before.get(table, ()), after.get(table, ()), old, new, row_keys.get(table)
        )
        for table, old, new in _changed_tables(before, after)
    }


def _changed_tables(before: State, after: State) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield each changed table, with the indices of the rows that only one side has."""
    for table in sorted(before.keys() | after.keys()):
        old, new = before.get(table, ()), after.get(table, ())
        if old is new:
            continue
        only_old, only_new = _differing_rows(old, new)
        if only_old or only_new:
            yield table, only_old, only_new


def _differing_rows(old: Rows, new: Rows) -> tuple[list[int], list[int]]:
    """Return the indices of the rows that the other side lacks, counting equal rows.

    Equal rows at the same index are the same row; every other row is compared with all others.
    """
    both = min(len(old), len(new))
    # most rows are the objects of the state before: see `toolset.read_state`
    pairs = [(i, repr(old[i]), repr(new[i])) for i in range(both) if old[i] is not new[i]]
    left = {i: one for i, one, two in pairs if one != two}
    right = {i: two for i, one, two in pairs if one != two}
    left |= {i: repr(old[i]) for i in range(both, len(old))}
    right |= {i: repr(new[i]) for i in range(both, len(new))}
    # rows with equal text are equal; only the rest needs the slower hashable forms
    places = _without(left, right), _without(right, left)
    forms = (
        {i: hashable_form(old[i]) for i in places[0]},
        {j: hashable_form(new[j]) for j in places[1]},
    )
    return _without(*forms), _without(*reversed(forms))


def _without(rows: Mapping[int, Hashable], others: Mapping[int, Hashable]) -> list[int]:
    """Return the indices of `rows` not in `others`; of equal rows the last stay."""
    counts = Counter(others.values())
    remaining = []
    for index, form in rows.items():
        if counts[form] > 0:
            counts[form] -= 1
        else:
            remaining.append(index)
    return remaining


def _table_change(
    old_rows: Rows, new_rows: Rows, old: list[int], new: list[int], names: Sequence[str] | None
) -> TableChange:
    """Return the change of one table; `old` and `new` index its differing rows."""
    has_ids = all("id" in row for row in chain(old_rows, new_rows))
    key = tuple(names) if names is not None else ("id",) if has_ids else None
    pairs = () if key is None else _pair_by_key(old_rows, new_rows, old, new, key)
    changed_old, changed_new = {i for i, _ in pairs}, {j for _, j in pairs}
    return TableChange(
        removed=tuple(i for i in old if i not in changed_old),
        added=tuple(j for j in new if j not in changed_new),
        changed=pairs,
        key=key,
    )


def _pair_by_key(
    old_rows: Rows, new_rows: Rows, old: list[int], new: list[int], key: tuple[str, ...]
) -> Pairs:
    """Pair the differing rows with equal keys, if they have all key fields."""
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    for j in reversed(new):
        if all(name in new_rows[j] for name in key):
            waiting[_key_value(new_rows[j], key)].append(j)
    pairs = []
    for i in old:
        same = waiting.get(_key_value(old_rows[i], key))
        if same and all(name in old_rows[i] for name in key):
            pairs.append((i, same.pop()))
    return tuple(pairs)


def _key_value(row: Mapping[str, Any], key: tuple[str, ...]) -> Hashable:
    return tuple(hashable_form(row.get(name)) for name in key)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVerdict:
    """The listed rows that are missing, and the changes that are unlisted, as reasons."""

    missing: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


def check_state(
    final: Mapping[str, _Listed],
    *,
    gone: Mapping[str, _Listed] = MappingProxyType({}),
    before: State,
    after: State,
    today: date | None = None,
    row_keys: RowKeys = NO_KEYS,
) -> StateVerdict:
    """Compare the state at the end with the rows that a scenario lists.

    Args:
        final: rows of matchers, by table; fields that are not listed do not matter.
        gone: likewise; rows of the start that must have been deleted, not changed.
        before: the state at the start.
        after: the state at the end.
        today: the day that relative dates count from.
        row_keys: the key fields of each table, where the domain specifies them.
    """
    missing: list[str] = []
    unlisted: list[str] = []
    changes = state_changes(before, after, row_keys=row_keys)
    for table in sorted({*final, *gone, *changes}):
        change = changes.get(table, TableChange())
        old, new = before.get(table, ()), after.get(table, ())
        expected, expected_gone = final.get(table, ()), gone.get(table, ())
        updated = {j for _, j in change.changed}
        touched = updated | {*change.added}
        final_pairs = _pair_rows(f"final.{table}", expected, new, touched, range(len(new)), today)
        gone_pairs = _pair_rows(
            f"gone.{table}", expected_gone, old, {*change.removed}, change.removed, today
        )
        missing += _missing_rows(f"final.{table}", expected, final_pairs, "no row like {}")
        missing += _missing_rows(
            f"gone.{table}", expected_gone, gone_pairs, "no row like {} was deleted"
        )
        listed, listed_gone = {j for _, j in final_pairs}, {i for _, i in gone_pairs}
        unlisted += [
            f"{table}: unlisted change of the row {_describe_change(old[i], new[j], change.key)}"
            for i, j in sorted(change.changed)
            if j not in listed
        ]
        unlisted += [
            f"{table}: unlisted row {shown(new[j])}" for j in sorted(touched - listed - updated)
        ]
        hint = _NO_KEY if change.key is None and listed & set(change.added) else ""
        unlisted += [
            f"{table}: the row {shown(old[i])} is gone{hint}"
            for i in change.removed
            if i not in listed_gone
        ]
    return StateVerdict(missing=tuple(missing), unlisted=tuple(unlisted))


def _pair_rows(
    where: str,
    listed: _Listed,
    rows: Rows,
    preferred: set[int],
    indices: Sequence[int],
    today: date | None,
) -> Pairs:
    """Pair as many listed rows as possible with rows at `indices`.

    Of thousands of rows only as many are compared with each listed one as it can need, and other
    rows than the preferred ones only if a listed row is left over.

    Raises:
        ScenarioError: the listed rows fit too many rows.
    """
    search = _RowSearch(where, listed, rows, today)
    pairs: Pairs = ()
    for candidates in (sorted(preferred.intersection(indices)), indices):
        search.index(candidates)
        useful: set[int] = set()
        for row in search.distinct:
            for is_preferred in (True, False):
                group = (j for j in search.candidates(row) if (j in preferred) is is_preferred)
                useful.update(islice((j for j in group if search.fits(row, j)), len(listed)))
        chosen = sorted(useful)
        position = {j: number for number, j in enumerate(chosen)}
        fitting = {
            row: [
                position[j] for j in search.candidates(row) if j in useful and search.fits(row, j)
            ]
            for row in search.distinct
        }
        try:
            found = assign_sparse(
                [fitting[row] for row in search.kinds], [int(j in preferred) for j in chosen]
            )
        except TooManyPairsError:
            raise search.error() from None
        pairs = tuple((i, chosen[j]) for i, j in found)
        if len(pairs) == len(listed):
            break
    return pairs


class _RowSearch:
    """Finds the rows that a listed row fits, by hashing the values that it states exactly.

    Attributes:
        kinds: for each listed row, the first one of the same text: each is compared once.
        distinct: those first ones.
    """

    def __init__(self, where: str, listed: _Listed, rows: Rows, today: date | None) -> None:
        first: dict[str, int] = {}
        self.kinds = [first.setdefault(repr(row), i) for i, row in enumerate(listed)]
        self.distinct = tuple(first.values())
        self._where, self._rows, self._today = where, rows, today
        self._matchers = {i: parse_row(listed[i]) for i in self.distinct}
        self._exact = {i: frozenset(_exact_values(self._matchers[i], today)) for i in self.distinct}
        self._fits: dict[tuple[int, int], bool] = {}
        self._most_fits = max_pairs(len(listed) + len(rows))
        self._rows_with: defaultdict[_Value, dict[int, None]] = defaultdict(dict)
        self._candidates: dict[frozenset[_Value], Sequence[int]] = {}

    def index(self, indices: Sequence[int]) -> None:
        """Index rows by the values that listed rows state exactly."""
        self._rows_with.clear()
        self._candidates = {frozenset(): indices}
        kinds = defaultdict(set)
        for name, kind, _ in chain.from_iterable(self._exact.values()):
            kinds[name].add(kind)
        for j in indices:
            for name, value in self._rows[j].items():
                for kind in kinds.get(nfc(name), ()):
                    self._rows_with[nfc(name), kind, _form(value, kind)][j] = None

    def candidates(self, i: int) -> Sequence[int]:
        """Return the indexed rows that have the exact values of a listed row, in order."""
        values = self._exact[i]
        if values not in self._candidates:
            fewest, *others = sorted((self._rows_with.get(v, {}) for v in values), key=len)
            rows = [j for j in fewest if all(j in other for other in others)]
            self._candidates[values] = rows
        return self._candidates[values]

    def fits(self, i: int, j: int) -> bool:
        """Return whether a listed row fits row `j`.

        Raises:
            ScenarioError: too many rows are compared.
        """
        known = self._fits.get((i, j))
        if known is None:
            if len(self._fits) >= self._most_fits:
                raise self.error()
            known = self._fits[i, j] = fits_row(self._matchers[i], self._rows[j], self._today)
        return known

    def error(self) -> ScenarioError:
        """Return the exception for listed rows that may fit too many rows."""
        return ScenarioError(
            f"{self._where}: {len(self.kinds)} listed rows may each be any of {len(self._rows)} "
            "rows, which takes too long to compare. List an id or other exact values of each row."
        )


def _exact_values(matcher: Equals | Fields, today: date | None) -> Iterator[_Value]:
    """Yield the values that a row must have."""
    if isinstance(matcher, Equals):
        for name, value in matcher.equals.items():
            if isinstance(value, _SCALARS):
                yield nfc(name), "equals", _form(value, "equals")
        return
    try:
        literals = {name: [*m.literal_values(today)] for name, m in matcher.fields.items()}
    except ScenarioError:  # a date that cannot be resolved: reported where a row is compared
        return
    for name, field in matcher.fields.items():
        if isinstance(field, Equals | DateIs | Text) and not field.optional:
            kind = "equals"
            if isinstance(field, Text):
                kind = "spaces" if "ignore" in field.model_fields_set else "text"
            if isinstance(value := literals[name][0], _SCALARS):
                yield nfc(name), kind, _form(value, kind)


def _form(value: Any, kind: str) -> Hashable:
    """Return a form that values share if a matcher of this kind accepts one for the other."""
    if kind == "equals" or not isinstance(value, str):
        return hashable_form(value) if isinstance(value, _SCALARS) else ABSENT
    folded = fold_text(value)
    return remove_spaces(folded) if kind == "spaces" else folded


def fits_row(matcher: Equals | Fields, row: Any, today: date | None) -> bool:
    """Return whether the matcher accepts a row, or the data of a result (any JSON)."""
    return isinstance(row, Mapping) and matcher.fits(row, Place(SchemaNode.of({}), today))


def _missing_rows(where: str, listed: _Listed, pairs: Pairs, template: str) -> Iterator[str]:
    found = {i for i, _ in pairs}
    for i, row in enumerate(listed):
        if i not in found:
            yield f"{where}[{i}]: {template.format(shown(row))}"


def _describe_change(
    old: Mapping[str, Any], new: Mapping[str, Any], key: Sequence[str] | None
) -> str:
    """Return the key of a changed row and its changes, as text."""
    changes = []
    for name in dict.fromkeys((*old, *new)):
        values = [row.get(name, ABSENT) for row in (old, new)]
        if ABSENT in values or hashable_form(values[0]) != hashable_form(values[1]):
            texts = ["nothing" if value is ABSENT else shown(value) for value in values]
            changes.append(f"{name}: {' → '.join(texts)}")
    more = len(changes) - _SHOWN_FIELDS
    changes[_SHOWN_FIELDS:] = [f"and {more} more"] if more > 0 else []
    key_fields = {name: old[name] for name in key or () if name in old}
    return f"{shown(key_fields or old)}: {', '.join(changes)}"
