"""Whether the state at the end is the one that was expected, and nothing else. Pure.

One rule for all tables: what `final` lists must be there, one row for each, and what `gone`
lists must have been deleted; every other row must be as it was at the start. A scenario without
either therefore expects no change at all. Rows are compared by value, and each row counts once:
an update is one change, an unlisted one is one finding.

What is the same row before and after is `state_diff`'s business. Where a table has no key,
nobody can be sure, and what nobody listed is read strictly: a row that vanished beside an
expected new one was deleted, unless both share more than half of their fields, and among these a
value that no other row of the table has. If `gone` and `final` list the two, they are what is
listed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeAlias

from lhkit.harness.arguments import parse_row
from lhkit.harness.assignment import Pairs, Problem, assign
from lhkit.harness.equality import normal
from lhkit.harness.matchers import Equals, Fields, Place
from lhkit.harness.record import RowKeys, Rows, State
from lhkit.harness.state_diff import NO_KEYS, TableChange, state_changes
from lhkit.json_values import shown
from lhkit.tools.schema import ABSENT, SchemaNode, nfc

_Listed: TypeAlias = Sequence[Mapping[str, Any]]

_SHOWN_FIELDS = 4
_NO_KEY = "; its table has no key: name it in row_keys(), or give every row an id"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateVerdict:
    """`missing`: what is listed and not so. `unlisted`: changes that nobody expected."""

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
    """Compare the state at the end with what a scenario lists.

    Args:
        final: rows of matchers, by table; fields that are not listed do not matter.
        gone: likewise; rows of the start that must have been deleted, not changed.
        before: the state at the start.
        after: the state at the end.
        today: the day that relative dates count from.
        row_keys: the fields that tell the rows of a table apart, where the domain says so.
    """
    missing: list[str] = []
    unlisted: list[str] = []
    changes = state_changes(before, after, row_keys=row_keys)
    for table in sorted({*final, *gone, *changes}):
        change = _Change(
            table=table,
            told=changes.get(table, TableChange()),
            before=before.get(table, ()),
            after=after.get(table, ()),
            today=today,
        )
        change.judge(final.get(table, ()), gone.get(table, ()), missing, unlisted)
    return StateVerdict(missing=tuple(missing), unlisted=tuple(unlisted))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What happened to one table, to be held against what is listed for it."""

    table: str
    told: TableChange
    before: Rows
    after: Rows
    today: date | None

    def judge(self, final: _Listed, gone: _Listed, missing: list[str], unlisted: list[str]) -> None:
        """Add what is listed and not so to `missing`, and what nobody listed to `unlisted`."""
        new = {*self.told.added, *(j for _, j in self.told.changed)}
        kept = self._kept(final, new)
        explained = {j for _, j in kept}
        deleted = self._deleted(gone)
        updates = self.told.changed
        alone = new - explained - {j for _, j in updates}
        missing += _unmet(f"final.{self.table}", final, kept, "no row like {}")
        missing += _unmet(f"gone.{self.table}", gone, deleted, "no row like {} was deleted")
        unlisted += [self._changed_words(i, j) for i, j in sorted(updates) if j not in explained]
        unlisted += [f"{self.table}: unlisted row {shown(self.after[j])}" for j in sorted(alone)]
        unsure = _NO_KEY if self.told.key is None and explained & set(self.told.added) else ""
        unlisted += [
            f"{self.table}: the row {shown(self.before[i])} is gone{unsure}"
            for i in _less(self.told.removed, (i for _, i in deleted))
        ]

    def _kept(self, final: _Listed, new: set[int]) -> Pairs:
        """Pair listed rows with those of the end, new rows first: those need an explanation."""
        return self._assigned(final, self.after, new, range(len(self.after)))

    def _deleted(self, gone: _Listed) -> Pairs:
        """Pair what is to be gone with what is."""
        return self._assigned(gone, self.before, {*self.told.removed}, self.told.removed)

    def _assigned(
        self, listed: _Listed, rows: Rows, first: set[int], places: Sequence[int]
    ) -> Pairs:
        """Pair as many as can be, of the places in `first` as many as can be.

        Of thousands of rows only so many are looked at for each wish as it could ever need, and
        beside `first` only if somebody goes without.
        """
        wishes = [wished_row(wish) for wish in listed]
        pairs = self._best(wishes, rows, first, sorted(first.intersection(places)))
        if len(pairs) == len(wishes):
            return pairs
        return self._best(wishes, rows, first, places)

    def _best(
        self,
        wishes: Sequence[Equals | Fields],
        rows: Rows,
        first: Collection[int],
        places: Sequence[int],
    ) -> Pairs:
        worth: set[int] = set()
        for wish in wishes:
            for is_first in (True, False):
                alike = (j for j in places if (j in first) is is_first)
                worth.update(islice((j for j in alike if self._fits(wish, rows[j])), len(wishes)))
        chosen = sorted(worth)
        problem = Problem(
            costs=[[0 if self._fits(wish, rows[j]) else None for j in chosen] for wish in wishes],
            left_expected=[1] * len(wishes),
            left_actual=[int(j in first) for j in chosen],
        )
        return tuple((i, chosen[j]) for i, j in assign(problem))

    def _fits(self, wish: Equals | Fields, row: Mapping[str, Any]) -> bool:
        return fits_row(wish, row, self.today)

    def _changed_words(self, i: int, j: int) -> str:
        """Say which row changed and how."""
        old, new = self.before[i], self.after[j]
        fields = list(_changed_fields(old, new))
        words = [f"{name}: {was} → {is_now}" for name, was, is_now in fields[:_SHOWN_FIELDS]]
        more = len(fields) - _SHOWN_FIELDS
        told = ", ".join([*words, *([f"and {more} more"] if more > 0 else [])])
        key = {name: old[name] for name in self.told.key or () if name in old}
        return f"{self.table}: unlisted change of the row {shown(key or old)}: {told}"


def wished_row(listed: Mapping[str, Any]) -> Equals | Fields:
    """Return the matcher of a row as a scenario lists it.

    Raises:
        ScenarioError: it is malformed.
    """
    return parse_row(_by_nfc(listed))


def fits_row(wish: Equals | Fields, row: Any, today: date | None) -> bool:
    """Return whether a row, or the data of a result (any JSON), is what was listed."""
    if not isinstance(row, Mapping):
        return False
    return wish.fits(_by_nfc(row), Place(SchemaNode.of({}), today))


def _by_nfc(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return row if all(map(str.isascii, row)) else {nfc(name): row[name] for name in row}


def _unmet(where: str, listed: _Listed, pairs: Pairs, words: str) -> Iterator[str]:
    met = {i for i, _ in pairs}
    for i, row in enumerate(listed):
        if i not in met:
            yield f"{where}[{i}]: {words.format(shown(row))}"


def _less(places: Iterable[int], taken: Iterable[int]) -> list[int]:
    known = set(taken)
    return [place for place in places if place not in known]


def _changed_fields(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield name, value before and value after of each field that is another; as short JSON."""
    for name in dict.fromkeys((*old, *new)):
        was, is_now = old.get(name, ABSENT), new.get(name, ABSENT)
        if ABSENT in (was, is_now) or normal(was) != normal(is_now):
            yield name, _value(was), _value(is_now)


def _value(value: Any) -> str:
    return "nothing" if value is ABSENT else shown(value)
