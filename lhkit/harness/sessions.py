"""What is asked of a session besides its state, copied and checked; and the one of a talk."""

from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from lhkit.errors import UsageError
from lhkit.harness.equality import normal
from lhkit.harness.record import BrokenRule, RowKeys, State
from lhkit.json_values import JSON, plain_json, shown
from lhkit.toolset import (
    DEFAULT,
    BareToolset,
    Session,
    Toolset,
    closing_session,
    name_of,
    open_session,
    read_state,
    supported_locales,
    user_code,
)


def row_keys_of(session: Session, state: State) -> RowKeys:
    """Return a copy of the keys that the session names for its tables.

    Args:
        session: a session.
        state: its state.

    Raises:
        UsageError: their code fails, a row of `state` lacks a field of its key, or two rows have
            one key.
    """
    if (named_keys := getattr(session, "row_keys", None)) is None:
        return {}
    with user_code("session: row_keys()"):
        keys = {
            table: (names,) if isinstance(names, str) else tuple(names)
            for table, names in named_keys().items()
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
        UsageError: their code fails, or what it returns is no text.
    """
    if (broken_rules := getattr(session, "broken_rules", None)) is None:
        return ()
    with user_code("session: broken_rules()"):
        told = broken_rules(plain_json(before), plain_json(after))
        broken = tuple(BrokenRule(code=code, detail=text) for code, text in told)
    for number, rule in enumerate(broken):
        if not all(isinstance(word, str) for word in (rule.code, rule.detail)):
            raise UsageError(
                f"broken_rules(): {number} is {shown((rule.code, rule.detail))}: "
                "give a code and what is broken, both as text"
            )
    return broken


class LiveSession:
    """The session that a person talks in, whatever toolset it is of, and the world around it.

    Args:
        toolset: the tools.
        world: the state to begin in; None for kept data, or for nothing but a clock.
        file: where a toolset that keeps its data has it; None for no longer than the session.
        now: the clock.
        locale: the language of the tools.

    Raises:
        UsageError: `world` describes no possible state, or there is nothing to keep in `file`.
        StoreError: the file is not of this toolset.
    """

    def __init__(
        self,
        toolset: Toolset,
        world: Mapping[str, Any] | None,
        file: Path | None,
        *,
        now: Callable[[], datetime],
        locale: str,
    ) -> None:
        self._toolset, self._world, self._now = toolset, world, now
        self._given: Mapping[str, Any] | None = None
        if world is None and (open_kept := getattr(toolset, "open_kept", None)):
            with user_code(f"open_kept() of {name_of(toolset)}"):
                self.session: Session = open_kept(file, now=now, locale=locale)
            return
        if file is not None:
            raise UsageError("`file` is for tools that keep their data, and without a `world`")
        self._given = {"now": self._present(), **(world or {})}
        self.session = open_session(toolset, self._given, locale)

    @property
    def toolset_name(self) -> str:
        """The word for the toolset."""
        return name_of(self._toolset)

    def locales(self) -> tuple[str, ...]:
        """Return the languages that both lhkit and the tools have."""
        return supported_locales(self._toolset, self.world())

    def speak(self, locale: str) -> None:
        """Go on in another language, over the same data.

        Raises:
            UsageError: the tools do not speak it; then nothing has changed.
        """
        if in_locale := getattr(self.session, "in_locale", None):
            with user_code(f"session: in_locale({locale!r})"):
                self.session = in_locale(locale)
            return
        present = {"now": self._present(), **self.world()}
        spoken = open_session(self._toolset, present, locale)
        with closing_session(self.session):
            self.session = spoken

    def world(self) -> dict[str, JSON]:
        """Return the present state in the words of a scenario; of tools without one, as given."""
        if isinstance(self._toolset, BareToolset):
            return dict(self._world or {})
        given = {"now": self._present()} if self._given is None else self._given
        return {**given, **{table: list(rows) for table, rows in read_state(self.session).items()}}

    def close(self) -> None:
        """Close the session: nobody talks in it any more.

        Raises:
            UsageError: their code fails.
        """
        with user_code("session: close()"):
            self.session.close()

    def criterion(self) -> str | None:
        """Return what a saved talk is filed under; None where life-helper's criteria say more."""
        return None if self.toolset_name == DEFAULT else "chat"

    def row_keys(self) -> RowKeys:
        """Return the fields that tell the rows of a table apart, where the tools say so."""
        return row_keys_of(self.session, read_state(self.session))

    def _present(self) -> str:
        return self._now().isoformat(timespec="seconds")
