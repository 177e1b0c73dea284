"""Whether the state at the end is the one that was expected, and nothing else. Pure.

One rule for all tables: what `final` lists must be there, one row for each, and what `gone`
lists must have been deleted; every other row must be as it was at the start. A scenario without
either therefore expects no change at all. Rows are compared by value, and each row counts once:
an update is one change, an unlisted one is one finding.

Which row before is which row after is `state_diff`'s business: in a table without a key a changed
row is one that is gone and one that is new.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeAlias

from lhkit.harness.arguments import parse_row
from lhkit.harness.assignment import Pairs, Problem, assign
from lhkit.harness.comparison import hashable_form
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
    """`missing`: what is listed and not so. `unlisted`: changes that are not listed."""

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
        change = changes.get(table, TableChange())
        old, new = before.get(table, ()), after.get(table, ())
        listed, lost = final.get(table, ()), gone.get(table, ())
        fresh = {*change.added, *(j for _, j in change.changed)}
        kept = _paired(listed, new, fresh, range(len(new)), today)
        deleted = _paired(lost, old, {*change.removed}, change.removed, today)
        explained = {j for _, j in kept}
        missing += _unmet(f"final.{table}", listed, kept, "no row like {}")
        missing += _unmet(f"gone.{table}", lost, deleted, "no row like {} was deleted")
        unlisted += [
            f"{table}: unlisted change of the row {_change_words(old[i], new[j], change.key)}"
            for i, j in sorted(change.changed)
            if j not in explained
        ]
        alone = fresh - explained - {j for _, j in change.changed}
        unlisted += [f"{table}: unlisted row {shown(new[j])}" for j in sorted(alone)]
        unsure = _NO_KEY if change.key is None and explained & set(change.added) else ""
        explained_gone = {i for _, i in deleted}
        unlisted += [
            f"{table}: the row {shown(old[i])} is gone{unsure}"
            for i in change.removed
            if i not in explained_gone
        ]
    return StateVerdict(missing=tuple(missing), unlisted=tuple(unlisted))


def _paired(
    listed: _Listed, rows: Rows, first: set[int], places: Sequence[int], today: date | None
) -> Pairs:
    """Pair listed rows with rows at some places: as many as can be, of those in `first` foremost.

    Of thousands of rows only as many are compared with each listed one as it could ever need, and
    beside `first` only if a listed row is left over.
    """
    wishes = [wished_row(row) for row in listed]
    pairs: Pairs = ()
    for candidates in (sorted(first.intersection(places)), places):
        worth: set[int] = set()
        for wish in wishes:
            for is_first in (True, False):
                alike = (j for j in candidates if (j in first) is is_first)
                fitting = (j for j in alike if fits_row(wish, rows[j], today))
                worth.update(islice(fitting, len(wishes)))
        chosen = sorted(worth)
        problem = Problem(
            costs=[
                [0 if fits_row(wish, rows[j], today) else None for j in chosen] for wish in wishes
            ],
            left_expected=[1] * len(wishes),
            left_actual=[int(j in first) for j in chosen],
        )
        pairs = tuple((i, chosen[j]) for i, j in assign(problem))
        if len(pairs) == len(wishes):
            break
    return pairs


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


def _change_words(old: Mapping[str, Any], new: Mapping[str, Any], key: Sequence[str] | None) -> str:
    """Return which row changed, by its key, and how."""
    words = []
    for name in dict.fromkeys((*old, *new)):
        was, is_now = (row.get(name, ABSENT) for row in (old, new))
        if ABSENT in (was, is_now) or hashable_form(was) != hashable_form(is_now):
            values = ["nothing" if each is ABSENT else shown(each) for each in (was, is_now)]
            words.append(f"{name}: {' → '.join(values)}")
    more = len(words) - _SHOWN_FIELDS
    words[_SHOWN_FIELDS:] = [f"and {more} more"] if more > 0 else []
    shown_key = {name: old[name] for name in key or () if name in old}
    return f"{shown(shown_key or old)}: {', '.join(words)}"
