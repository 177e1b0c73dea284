"""What a scenario is played in: tools, an assistant and a state that can be looked at.

The harness knows no domain; whoever has tools implements these two protocols. Their code may keep
and change whatever it gets, and give away what it goes on changing: what crosses this line is
copied, by `opened`, `state_of` and `rules_broken`, which all who open a world go through.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol, TypeAlias, runtime_checkable

from lhkit.chat.controller import Assistant
from lhkit.errors import UsageError
from lhkit.harness.expectations.equality import normal
from lhkit.harness.records.record import BrokenRule, RowKeys, State
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.json_values import JSON, MAX_DEPTH, NotJsonError, plain_json

Rows: TypeAlias = Sequence[Mapping[str, Any]]


class Session(Protocol):
    """One isolated world, for one conversation."""

    @property
    def registry(self) -> ToolRegistry:
        """The tools; equal for all sessions of one locale."""
        ...

    @property
    def assistant(self) -> Assistant:
        """Instructions, limits, sampling, and the data that the tools work on."""
        ...

    @property
    def today(self) -> date:
        """The day in this world: what `{date: today}` means."""
        ...

    def state(self) -> Mapping[str, JSON]:
        """Return the present state: a list of rows (plain JSON objects) per table.

        It may hold live objects: it is copied at once.
        """
        ...

    def close(self) -> None:
        """Release what the session holds."""
        ...


@runtime_checkable
class KnowsIds(Protocol):
    """A session that can say which things exist; without it, ids of a scenario go unchecked."""

    def known_ids(self) -> Mapping[str, Collection[str]]:
        """Return the ids that exist, by the name of the argument that takes them."""
        ...


@runtime_checkable
class KnowsRules(Protocol):
    """What a session may offer besides: which rules of its domain a change of state breaks.

    The tools refuse such changes; this looks at what became of it all, whoever wrote it.
    """

    def broken_rules(
        self, before: Mapping[str, Rows], after: Mapping[str, Rows]
    ) -> Sequence[tuple[str, str]]:
        """Return (code, detail) of each rule that `after` breaks and `before` did not."""
        ...


@runtime_checkable
class KnowsRowKeys(Protocol):
    """A session that can say how the rows of its tables are told apart.

    Without it the key of a table is found by the names and values of its fields (`state_diff`).
    """

    def row_keys(self) -> RowKeys:
        """Return the fields that together are a row's key, by table.

        `{"tracker": ["habit_id", "date"]}`; no fields for a table that always has one row, such
        as `{"settings": []}`. Tables that are not named are looked at as if there were no method.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAround:
    """What a session around another passes on: all but the tools and the assistant."""

    inner: Session

    @property
    def today(self) -> date:
        """The inner session's day."""
        return self.inner.today

    def state(self) -> Mapping[str, JSON]:
        """Return the inner session's state."""
        return self.inner.state()

    def known_ids(self) -> Mapping[str, Collection[str]]:
        """Return what the inner session knows; nothing if it cannot say."""
        return self.inner.known_ids() if isinstance(self.inner, KnowsIds) else {}

    def broken_rules(
        self, before: Mapping[str, Rows], after: Mapping[str, Rows]
    ) -> Sequence[tuple[str, str]]:
        """Return what the inner session finds; nothing if it has no rules."""
        if not isinstance(self.inner, KnowsRules):
            return ()
        return self.inner.broken_rules(before, after)

    def row_keys(self) -> RowKeys:
        """Return what the inner session knows; nothing if it cannot say."""
        return self.inner.row_keys() if isinstance(self.inner, KnowsRowKeys) else {}

    def close(self) -> None:
        """Close the inner session."""
        self.inner.close()


class Environment(Protocol):
    """Opens sessions. Must be safe to use for many at once."""

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        """Return a fresh session in the state `world` (a scenario's own words).

        `world` is a copy for this session alone, plain JSON: it may be kept and changed.

        Raises:
            UsageError: `world` describes no possible state.
        """
        ...


@contextmanager
def opened(environment: Environment, world: Mapping[str, Any], locale: str) -> Iterator[Session]:
    """Open a session over a copy of `world`, and close it: the one way to play anything.

    Raises:
        UsageError: `world` describes no possible state, or is no JSON.
    """
    with closing(environment.open(_plain(world, "world"), locale)) as session:
        yield session


def state_of(session: Session) -> State:
    """Return a copy of the state that later changes do not reach.

    Raises:
        UsageError: it is no JSON, or no list of rows per table; names table, row and field.
    """
    state = _plain(session.state(), "state()")
    for table, rows in state.items():
        if not isinstance(rows, list):
            raise UsageError(
                f"state(): the table {table!r} is {_kind(rows)}: "
                "give a list of rows, one object each"
            )
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise UsageError(
                    f"state(): {table}[{number}] is {_kind(row)}: give an object with named fields"
                )
    return {table: tuple(rows) for table, rows in state.items()}


def row_keys_of(session: Session, state: State) -> RowKeys:
    """Return a copy of the keys that the session names for its tables.

    Args:
        session: a session.
        state: its state.

    Raises:
        UsageError: a row of `state` lacks a field of its key, or two rows have one key.
    """
    if not isinstance(session, KnowsRowKeys):
        return {}
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
    """Return what the session says against a change of state; it gets copies of both."""
    knowing = session
    while isinstance(knowing, SessionAround):
        knowing = knowing.inner
    if not isinstance(knowing, KnowsRules) or not isinstance(session, KnowsRules):
        return ()
    broken = session.broken_rules(plain_json(before), plain_json(after))
    return tuple(BrokenRule(code=code, detail=text) for code, text in broken)


def _plain(value: Any, name: str) -> dict[str, Any]:
    """Return a mapping of theirs as plain JSON of our own.

    Raises:
        UsageError: it has a value that JSON cannot carry; the sentence says where.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is {_kind(value)}: give an object with a list of rows per table")
    try:
        plain: dict[str, Any] = plain_json(value)
    except NotJsonError as error:
        raise UsageError(f"{name}: {next(_unplain(value), error)}") from error
    return plain


def _unplain(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield where JSON ends in `value`, and why. Whoever asks for the first is never lost in it."""
    if depth > MAX_DEPTH:
        yield f"{path[:60]}… is nested deeper than {MAX_DEPTH} levels, or holds itself"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield from _unplain(inner, f"{path}.{key}" if path else key, depth + 1)
            else:
                yield f"{path or 'it'} has the key {key!r} ({_kind(key)}): keys have to be texts"
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _unplain(inner, f"{path}[{i}]", depth + 1)
    else:
        try:
            plain_json(value)
        except NotJsonError:
            told = " ".join(repr(value).split())[:60]
            how = "give a text, a number, a list or an object instead"
            yield f"{path} is {_kind(value)} ({told}), which JSON cannot carry: {how}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
