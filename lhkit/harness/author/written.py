"""Scenarios written by us, not by hand: what happened as expectations, and as YAML."""

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from lhkit.harness.matchers import MATCHER_KEYS
from lhkit.harness.record import RowKeys, State
from lhkit.harness.state_diff import TableChange, likely_updates, state_changes

_HANGUL = re.compile(r"[가-힣]")


def literal(value: Any) -> Any:
    """Return a matcher for exactly `value`; an object that looks like a matcher is wrapped."""
    looks_so = isinstance(value, dict) and any(key in MATCHER_KEYS for key in value)
    return {"equals": value} if looks_so else value


def literals(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a matcher for exactly each value of a row or of arguments."""
    return {name: literal(value) for name, value in fields.items()}


def changes(before: State, after: State, row_keys: RowKeys) -> dict[str, Any]:
    """Return `final`, the rows that are new or changed, and `gone`, by table; not what is empty.

    Deleted rows are told by their key; those of a table without a key as they were.
    """
    final: dict[str, Any] = {}
    gone: dict[str, Any] = {}
    for table, change in state_changes(before, after, row_keys=row_keys).items():
        new = sorted((*change.added, *(j for _, j in change.changed)))
        if new:
            final[table] = [literals(after[table][j]) for j in new]
        lost = [before[table][i] for i in _deleted(change, before, after, table)]
        if lost:
            gone[table] = [
                literals({name: row[name] for name in change.key or row if name in row})
                for row in lost
            ]
    return {name: rows for name, rows in (("final", final), ("gone", gone)) if rows}


def _deleted(change: TableChange, before: State, after: State, table: str) -> list[int]:
    """Return the removed rows that live on in no new one."""
    if change.key is not None:
        return list(change.removed)
    old, new = before.get(table, ()), after.get(table, ())
    removed = tuple(old[i] for i in change.removed)
    added = tuple(new[j] for j in change.added)
    updated = {i for i, _ in likely_updates(removed, added, around=(old, new))}
    return [place for i, place in enumerate(change.removed) if i not in updated]


def spoken(lines: Sequence[str], locale: str) -> str:
    """Return `ko` or `en`, whichever the user spoke; any other locale stays as it is."""
    if locale not in {"ko", "en"}:
        return locale
    return "ko" if _HANGUL.search(" ".join(lines)) else "en"


def yaml_text(scenarios: Sequence[Mapping[str, Any]]) -> str:
    """Return a scenario file."""
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 100
    yaml.allow_unicode = True
    stream = StringIO()
    yaml.dump(list(scenarios), stream)
    lines = stream.getvalue().splitlines()
    return "\n".join(line.removeprefix("  ") for line in lines) + "\n"
