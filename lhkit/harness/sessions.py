"""What is asked of a session besides its state, copied and checked: keys of rows, broken rules."""

from collections.abc import Hashable

from lhkit.errors import UsageError
from lhkit.harness.matchers import normal
from lhkit.harness.record import BrokenRule, RowKeys, State
from lhkit.json_values import plain_json
from lhkit.toolset import KnowsRowKeys, KnowsRules, Session, SessionAround, their_code


def row_keys_of(session: Session, state: State) -> RowKeys:
    """Return a copy of the keys that the session names for its tables.

    Args:
        session: a session.
        state: its state.

    Raises:
        UsageError: their code fails, a row of `state` lacks a field of its key, or two rows have
            one key.
    """
    if not isinstance(session, KnowsRowKeys):
        return {}
    with their_code("session: row_keys()"):
        keys = {
            table: (names,) if isinstance(names, str) else tuple(names)
            for table, names in session.row_keys().items()
        }
    for table, names in keys.items():
        seen: dict[Hashable, int] = {}
        for number, row in enumerate(state.get(table, ())):
            lacking = [name for name in names if name not in row]
            if lacking:
                raise UsageError(
                    f"row_keys(): {table}[{number}] has no field {lacking[0]!r}: "
                    f"name fields that every row of {table} has"
                )
            first = seen.setdefault(tuple(normal(row[name]) for name in names), number)
            if first != number:
                told = ", ".join(names) or "no field (a table of one row)"
                raise UsageError(
                    f"row_keys(): {table}[{first}] and {table}[{number}] have the same {told}: "
                    "name the fields that tell rows apart"
                )
    return keys


def rules_broken(session: Session, before: State, after: State) -> tuple[BrokenRule, ...]:
    """Return what the session says against a change of state; it gets copies of both.

    Raises:
        UsageError: their code fails.
    """
    knowing = session
    while isinstance(knowing, SessionAround):
        knowing = knowing.inner
    if not isinstance(knowing, KnowsRules) or not isinstance(session, KnowsRules):
        return ()
    with their_code("session: broken_rules()"):
        broken = session.broken_rules(plain_json(before), plain_json(after))
        return tuple(BrokenRule(code=code, detail=text) for code, text in broken)
