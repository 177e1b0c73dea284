"""Score of the final state: the expected changes, and no others. Pure.

One rule for all tables: a row must be there for each that `final` lists, and the rows that `gone`
lists must have been deleted; every other row must be unchanged. A scenario without either
therefore expects no change at all. Rows compare by value, and each row counts once: an update is
one change, and an unlisted one is one reason.

`state_diff` identifies rows by their keys: in a table without a key a changed row is one that was
deleted and one that was added.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeAlias

from lhkit.harness.arguments import parse_row
from lhkit.harness.assignment import Pairs, Problem, assign
from lhkit.harness.matchers import Equals, Fields, Place
from lhkit.harness.record import RowKeys, Rows, State
from lhkit.harness.state_diff import NO_KEYS, TableChange, state_changes
from lhkit.harness.values import hashable_form
from lhkit.json_values import shown
from lhkit.tools.schema import ABSENT, SchemaNode, nfc

_Listed: TypeAlias = Sequence[Mapping[str, Any]]

_SHOWN_FIELDS = 4
_NO_KEY = "; its table has no key: name it in row_keys(), or give every row an id"


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
        final_pairs = _pair_rows(expected, new, touched, range(len(new)), today)
        gone_pairs = _pair_rows(expected_gone, old, {*change.removed}, change.removed, today)
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
    listed: _Listed, rows: Rows, preferred: set[int], indices: Sequence[int], today: date | None
) -> Pairs:
    """Pair as many listed rows as possible with rows at `indices`.

    Of thousands of rows only as many are compared with each listed one as it can need, and other
    rows than the preferred ones only if a listed row is left over.
    """
    matchers = [row_matcher(row) for row in listed]
    pairs: Pairs = ()
    for candidates in (sorted(preferred.intersection(indices)), indices):
        useful: set[int] = set()
        for matcher in matchers:
            for is_preferred in (True, False):
                group = (j for j in candidates if (j in preferred) is is_preferred)
                fitting = (j for j in group if fits_row(matcher, rows[j], today))
                useful.update(islice(fitting, len(matchers)))
        chosen = sorted(useful)
        problem = Problem(
            costs=[
                [0 if fits_row(matcher, rows[j], today) else None for j in chosen]
                for matcher in matchers
            ],
            left_expected=[1] * len(matchers),
            left_actual=[int(j in preferred) for j in chosen],
        )
        pairs = tuple((i, chosen[j]) for i, j in assign(problem))
        if len(pairs) == len(matchers):
            break
    return pairs


def row_matcher(listed: Mapping[str, Any]) -> Equals | Fields:
    """Return the matcher of a row as a scenario lists it.

    Raises:
        ScenarioError: the row is invalid.
    """
    return parse_row(_with_nfc_names(listed))


def fits_row(matcher: Equals | Fields, row: Any, today: date | None) -> bool:
    """Return whether the matcher accepts a row, or the data of a result (any JSON)."""
    if not isinstance(row, Mapping):
        return False
    return matcher.fits(_with_nfc_names(row), Place(SchemaNode.of({}), today))


def _with_nfc_names(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return row if all(map(str.isascii, row)) else {nfc(name): row[name] for name in row}


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
