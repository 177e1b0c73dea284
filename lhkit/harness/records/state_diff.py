"""What changed between two states: the rows of each table that are new or gone. Pure."""

from collections import Counter

from lhkit.harness.records.record import Rows, State, TableDiff
from lhkit.vocab.json_values import canonical


def state_diff(before: State, after: State) -> dict[str, TableDiff]:
    """Return what changed, by table; tables without a change are left out."""
    diffs: dict[str, TableDiff] = {}
    for table in sorted(before.keys() | after.keys()):
        old, new = before.get(table, ()), after.get(table, ())
        if repr(old) == repr(new):
            continue  # the usual case, and cheap to see
        added, removed = _without(new, old), _without(old, new)
        if added or removed:
            diffs[table] = TableDiff(added=added, removed=removed)
    return diffs


def _without(rows: Rows, others: Rows) -> Rows:
    """Return `rows` less `others`, counting equal rows."""
    left = Counter(canonical(row) for row in others)
    kept = []
    for row in rows:
        key = canonical(row)
        if left[key] > 0:
            left[key] -= 1
        else:
            kept.append(row)
    return tuple(kept)
