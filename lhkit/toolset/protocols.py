"""What a toolset and its session are: what they must have, what they may have, and their flags."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

from lhkit.chat.controller import Assistant
from lhkit.errors import NotIsolatedError
from lhkit.json_values import JSON
from lhkit.tools.registry import ToolRegistry

Rows: TypeAlias = Sequence[Mapping[str, Any]]


class Session(Protocol):
    """One isolated world, for one conversation.

    It may have the methods of `KnowsIds`, `KnowsRules`, `KnowsRowKeys` and `SpeaksOn` besides.
    """

    @property
    def registry(self) -> ToolRegistry:
        """The tools of this world; a call may register more while a conversation goes on."""
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
    """A session that can say which rules of its domain a change of state breaks.

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

    Without it the rows of a table are told apart by their `id`, where all have one.
    """

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return the fields that together are a row's key, by table.

        `{"tracker": ["habit_id", "date"]}`; no fields for a table that always has one row, such
        as `{"settings": []}`. Tables that are not named go by `id`.
        """
        ...


def knows_rules(session: object) -> TypeGuard[KnowsRules]:
    """Return what `isinstance` does, more quickly: it is asked in every sample."""
    return hasattr(session, "broken_rules")


def knows_row_keys(session: object) -> TypeGuard[KnowsRowKeys]:
    """Return what `isinstance` does, more quickly: it is asked in every sample."""
    return hasattr(session, "row_keys")


@runtime_checkable
class SpeaksOn(Protocol):
    """A session that can go on in another language over the very same data.

    Without it, a panel that changes its language opens a world that is as the old one was.
    """

    def in_locale(self, locale: str) -> Session:
        """Return a session over the same data; closing either closes both.

        Raises:
            UsageError: the tools have no texts in this language.
        """
        ...


@runtime_checkable
class RunsOn(Protocol):
    """A session whose tools another program runs: which one belongs to what was asked."""

    def runs_on(self) -> Mapping[str, str]:
        """Return what that program is, such as `{"server": "notes", "version": "1.2"}`."""
        ...


class Toolset(Protocol):
    """Opens sessions. Must be safe to use for many at once.

    It may have a `name`, a word for reports and files (the name of its class is taken without
    one), `locales`, the languages that it speaks (they are tried without it), and `open_kept`.
    With `waits = True` its sessions wait for another process when they are opened, closed and
    looked at: then that is done in a thread, so that no other conversation is held up.
    With `is_isolated = False` its sessions share real data, as those of most MCP servers do: then
    only a person or the simulated user of an evaluation approves calls (`isolation_fault`).
    """

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        """Return a fresh session in the state `world` (a scenario's own words).

        `world` is a copy, plain JSON: it may be kept and changed.

        Raises:
            UsageError: `world` describes no possible state, or `locale` is not spoken.
        """
        ...


@runtime_checkable
class KeepsData(Protocol):
    """A toolset whose data can outlive a chat, in a file; without it a chat begins anew."""

    def open_kept(self, file: Path | None, *, now: Callable[[], datetime], locale: str) -> Session:
        """Return a session over the data in `file`, which is made if it is not there.

        Args:
            file: where the data is kept; None for no longer than the session.
            now: the clock that the tools go by.
            locale: the language of the tools.

        Raises:
            LhkitError: the file cannot be made or is not of this toolset.
        """
        ...


ToolsetSource: TypeAlias = str | Toolset | ToolRegistry | Callable[[], Toolset | ToolRegistry]
"""What names a toolset: a reference, the thing itself, a class or function that makes it, or tools
without a world."""


def name_of(toolset: Toolset) -> str:
    """Return the word for a toolset: its `name`, else that of its class."""
    return str(getattr(toolset, "name", None) or type(toolset).__name__)


def waits_of(toolset: Toolset) -> bool:
    """Return whether sessions of a toolset wait for another process."""
    return getattr(toolset, "waits", False) is True


def isolation_fault(toolset: Toolset) -> str:
    """Return why calls that no person approves are refused; empty where they are not.

    `lint`, `mutate`, reviews, baselines, training data and `calls` of a world replay what a file
    says, and the file approves it: that is only for sessions that share no real data.
    """
    if getattr(toolset, "is_isolated", True) is True:
        return ""
    return (
        f"the toolset {name_of(toolset)} is not isolated, so calls that no person approves would "
        "reach real data. Give each session a {folder} of its own, or declare isolated = true if "
        "a session changes nothing outside itself, see docs/mcp.md"
    )


def require_isolated(toolset: Toolset, what: str) -> None:
    """Refuse what replays calls of a file, where they would reach real data.

    Args:
        toolset: has the tools.
        what: calls them, such as `run mutate`.

    Raises:
        NotIsolatedError: sessions of the toolset share data (`isolation_fault`).
    """
    if fault := isolation_fault(toolset):
        raise NotIsolatedError(f"Cannot {what}: {fault}")
