"""The protocols of toolsets and sessions, and the toolset of a plain registry."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Protocol, TypeAlias

from lhkit.base.errors import NotIsolatedError, UsageError
from lhkit.base.json_values import JSON
from lhkit.base.locales import available_locales
from lhkit.chat.assistant import Assistant
from lhkit.settings import current_time
from lhkit.tools.registry import ToolRegistry

Rows: TypeAlias = Sequence[Mapping[str, Any]]


class Session(Protocol):
    """One isolated state, for one conversation.

    Optional methods:

    - `known_ids()` returns the existing ids, by the name of the argument that takes them, to check
      the ids of scenarios.
    - `row_keys()` returns the fields of each table's key, such as
      `{"tracker": ["habit_id", "date"]}`; no fields for a table that always has one row. The
      default key is `id`.
    - `broken_rules(before, after)` returns (code, detail) of each domain rule that the state
      `after` breaks and `before` did not. With a third parameter, or one named `calls`, it also
      gets the calls of the conversation in order, as `Sample.calls` has them: `tool`, `run` (the
      arguments that ran, or None), `outcome`, `result`, ….
    - `in_locale(locale)` returns a session over the same data in another language; closing either
      closes both. Without it, a panel that changes its language opens a new state.
    - `waits = True`: as for a `Toolset`, for its state alone; then a chat does not compare it.
    - `runs_on()` returns the program that the tools run on, such as `{"server": "notes"}`.
    """

    @property
    def registry(self) -> ToolRegistry:
        """The tools; a call may register more during a conversation."""
        ...

    @property
    def assistant(self) -> Assistant:
        """Instructions, limits, sampling, and the dependencies of the tools."""
        ...

    @property
    def today(self) -> date:
        """The current day, which is the value of `{date: today}`."""
        ...

    def state(self) -> Mapping[str, JSON]:
        """Return the current state: a list of rows (plain JSON objects) for each table.

        It is copied at once, so it may contain live objects.
        """
        ...

    def close(self) -> None:
        """Release the session's resources."""
        ...


class Toolset(Protocol):
    """Opens sessions; must support many at the same time.

    Optional attributes and methods:

    - `name`: the name in reports and files; by default that of its class.
    - `locales`: the supported languages; by default those in which it opens.
    - `waits = True`: its sessions wait for another process when they are opened, read and closed,
      so this is done in a thread and does not block other conversations.
    - `is_isolated = False`: its sessions share real data, as with most MCP servers. Then only a
      person or the simulated user of an evaluation approves calls (`isolation_issue`).
    - `criteria`: the texts of its acceptance criteria, by criterion and language, such as
      `{"read": {"en": "reads the list", "ko": "목록 읽기"}}`, for tables and reports.
    - `criterion(calls)`: returns the criterion of a scenario made from a chat with these expected
      calls (`ChatCall`), or None. Without it such a scenario has no `ac`.
    - `open_kept(file, *, now, locale)`: returns a session over the data in `file` (a path; None
      for temporary data) with the clock `now`. Without it a chat starts from an empty state.
    """

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        """Return a new session with an initial state.

        Args:
            world: the initial state, in the format of the scenario key `world`; a copy as plain
                JSON, which may be kept and changed.
            locale: the language, such as `ko`.

        Raises:
            UsageError: `world` is invalid, or `locale` is not supported.
        """
        ...


ToolsetSource: TypeAlias = str | Toolset | ToolRegistry | Callable[[], Toolset | ToolRegistry]
"""A reference, a toolset, a registry, or a class or function that returns one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BareToolset:
    """The toolset of a plain registry, without a state and with one text for all languages."""

    registry: ToolRegistry
    assistant: Assistant = field(default_factory=Assistant)
    name: str = "tools"
    locales: tuple[str, ...] = field(default_factory=available_locales)

    def open(self, world: Mapping[str, Any], locale: str) -> "BareSession":
        """Return a session without a state; of `world`, only `now` is used."""
        return BareSession(
            registry=self.registry, assistant=self.assistant, today=day_of(world.get("now"))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BareSession:
    """A session of tools whose data is not visible to lhkit."""

    registry: ToolRegistry
    assistant: Assistant
    today: date

    def state(self) -> Mapping[str, JSON]:
        """Return an empty state."""
        return {}

    def close(self) -> None:
        """Do nothing."""


def day_of(now: Any) -> date:
    """Return the day of `world.now`; without one, the current day.

    Raises:
        UsageError: it is not an ISO 8601 time.
    """
    if now is None:
        return current_time().date()
    try:
        return datetime.fromisoformat(now).date()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"world.now is invalid: {now!r}. Give a time such as 2026-03-04T09:00:00+09:00."
        ) from error


def name_of(toolset: Toolset) -> str:
    """Return the name of a toolset: its `name`, else that of its class."""
    return str(getattr(toolset, "name", None) or type(toolset).__name__)


def is_blocking(toolset: Toolset) -> bool:
    """Return True if the sessions of a toolset wait for another process."""
    return getattr(toolset, "waits", False) is True


def isolation_issue(toolset: Toolset) -> str:
    """Return why calls without a person's approval are refused; empty if they are allowed.

    `lint`, `mutate`, reviews, baselines, training data and `calls` of an initial state run the
    calls in a file without asking, which is allowed only for isolated sessions.
    """
    if getattr(toolset, "is_isolated", True) is True:
        return ""
    return (
        f"the toolset {name_of(toolset)} is not isolated, so calls that no person approves would "
        "reach real data. Give each session a {folder} of its own, or declare isolated = true if "
        "a session changes nothing outside itself, see the page MCP of the documentation"
    )


def require_isolated(toolset: Toolset, what: str) -> None:
    """Refuse to run the calls in a file on real data.

    Args:
        toolset: the toolset.
        what: the refused action, such as `run mutate`.

    Raises:
        NotIsolatedError: sessions of the toolset share data (`isolation_issue`).
    """
    if issue := isolation_issue(toolset):
        raise NotIsolatedError(f"Cannot {what}: {issue}")
