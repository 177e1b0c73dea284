"""Checked row keys and broken rules of a session, and the live session of a chat."""

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.json_values import JSON, plain_json, shown
from lhkit.confirm.policy import Measured
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.records.record import BrokenRule, CallRecord, RowKeys, State
from lhkit.harness.running.measured import measured_in_front
from lhkit.harness.scenarios.values import hashable_form
from lhkit.harness.views.sample import SampleCall
from lhkit.tools.dispatcher import StateWatch
from lhkit.toolset import (
    BareToolset,
    ChatCall,
    Session,
    Toolset,
    closing_session,
    criterion_of,
    is_blocking,
    name_of,
    open_session,
    read_state,
    supported_locales,
    user_code,
    watch_state,
)


def read_row_keys(session: Session, state: State) -> RowKeys:
    """Return the row keys of the session's tables, checked on a state.

    Raises:
        UsageError: `row_keys()` fails, a row lacks a field of its key, or two rows have the same
            key.
    """
    if (row_keys := getattr(session, "row_keys", None)) is None:
        return {}
    with user_code("session: row_keys()"):
        keys = {
            table: (names,) if isinstance(names, str) else tuple(names)
            for table, names in row_keys().items()
        }
    for table, names in keys.items():
        seen: dict[Hashable, int] = {}
        for number, row in enumerate(state.get(table, ())):
            missing = [name for name in names if name not in row]
            if missing:
                raise UsageError(
                    f"row_keys() is invalid: {table}[{number}] has no field {missing[0]!r}. "
                    f"Use fields that every row of {table} has."
                )
            first = seen.setdefault(tuple(hashable_form(row[name]) for name in names), number)
            if first != number:
                key = ", ".join(names) or "empty key (of a table of one row)"
                raise UsageError(
                    f"row_keys() is invalid: {table}[{first}] and {table}[{number}] have the same "
                    f"{key}. Use fields that identify a row."
                )
    return keys


def find_broken_rules(
    session: Session, before: State, after: State, calls: Iterable[CallRecord] = ()
) -> tuple[BrokenRule, ...]:
    """Return the rules that the session finds broken by a change of state, or by the calls.

    Args:
        session: the session; its `broken_rules` gets the calls if it has a parameter for them.
        before: the state before the conversation.
        after: the state after it.
        calls: the completed calls, in order.

    Raises:
        UsageError: `broken_rules()` fails, or returns something else than texts.
    """
    if (broken_rules := getattr(session, "broken_rules", None)) is None:
        return ()
    with user_code("session: broken_rules()"):
        states = plain_json(before), plain_json(after)
        pairs = _with_calls(broken_rules, tuple(map(SampleCall.of, calls)))(*states)
        broken = tuple(BrokenRule(code=code, detail=text) for code, text in pairs)
    for number, rule in enumerate(broken):
        if not all(isinstance(text, str) for text in (rule.code, rule.detail)):
            raise UsageError(
                f"broken_rules() is invalid: item {number} is {shown((rule.code, rule.detail))}. "
                "Return pairs of a code and a description, both as text."
            )
    return broken


def _with_calls(
    broken_rules: Callable[..., Any], calls: tuple[SampleCall, ...]
) -> Callable[..., Any]:
    """Return `broken_rules` of the states alone.

    It gets the calls if it has a parameter named `calls`, or needs a third one.
    """
    try:
        parameters = inspect.signature(broken_rules).parameters
    except (TypeError, ValueError):  # some callables written in C have no signature
        return broken_rules
    named = parameters.get("calls")
    if named is not None and named.kind in (named.POSITIONAL_OR_KEYWORD, named.KEYWORD_ONLY):
        return partial(broken_rules, calls=calls)
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    third = [parameter for parameter in parameters.values() if parameter.kind in by_position][2:3]
    if any(one is named or one.default is inspect.Parameter.empty for one in third):
        return lambda before, after: broken_rules(before, after, calls)
    return broken_rules


class LiveSession:
    """The session of a chat with a person, with any toolset.

    Args:
        toolset: the toolset.
        world: the initial state; None for the toolset's own data, or for only a clock.
        file: the file of a toolset that stores its data; None stores it for this session only.
        now: the clock.
        locale: the language of the tools.

    Raises:
        UsageError: `world` is invalid, or `file` is given for a toolset that stores no data.
        StoreError: the file is not one of this toolset.
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
            raise UsageError(
                "`file` is invalid here: it requires a toolset that stores data, and no `world`."
            )
        self._given = {"now": self._present(), **(world or {})}
        self.session = open_session(toolset, self._given, locale)

    @property
    def toolset(self) -> Toolset:
        """The toolset."""
        return self._toolset

    @property
    def toolset_name(self) -> str:
        """The name of the toolset."""
        return name_of(self._toolset)

    def locales(self) -> tuple[str, ...]:
        """Return the languages that both lhkit and the tools support."""
        return supported_locales(self._toolset, self.world())

    def set_locale(self, locale: str) -> None:
        """Change the language of the tools, with the same data.

        Raises:
            UsageError: the tools do not support it; then nothing changes.
        """
        if in_locale := getattr(self.session, "in_locale", None):
            with user_code(f"session: in_locale({locale!r})"):
                self.session = in_locale(locale)
            return
        world = {"now": self._present(), **self.world()}
        session = open_session(self._toolset, world, locale)
        with closing_session(self.session):
            self.session = session

    def world(self) -> dict[str, JSON]:
        """Return the present state as a scenario's `world`; for tools without state, as given."""
        if isinstance(self._toolset, BareToolset):
            return dict(self._world or {})
        given = {"now": self._present()} if self._given is None else self._given
        return {**given, **{table: list(rows) for table, rows in read_state(self.session).items()}}

    def measured(
        self, identity: ModelIdentity, locale: Callable[[], str]
    ) -> Callable[[], Measured]:
        """Return a function that returns what a policy of approvals has in front.

        Args:
            identity: of the model.
            locale: returns the language of the dispatcher's texts.
        """
        return measured_in_front(identity, self._toolset, lambda: (self.session, locale()))

    def watch(self) -> StateWatch:
        """Return the comparison of the session's state before and after a call."""
        return watch_state(self.session, waits=is_blocking(self._toolset))

    def close(self) -> None:
        """Close the session.

        Raises:
            UsageError: its `close()` fails.
        """
        with user_code("session: close()"):
            self.session.close()

    def criterion(self, calls: Sequence[ChatCall]) -> str | None:
        """Return the criterion of a scenario made from a chat; None if the toolset has none.

        Raises:
            UsageError: the toolset's `criterion` fails.
        """
        return criterion_of(self._toolset, calls)

    def row_keys(self) -> RowKeys:
        """Return the row keys of the tables that have any."""
        return read_row_keys(self.session, read_state(self.session))

    def _present(self) -> str:
        return self._now().isoformat(timespec="seconds")
