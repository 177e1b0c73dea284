"""What a toolset and its session have to have, what they may have, and tools without a world."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Protocol, TypeAlias

from lhkit.chat.controller import Assistant
from lhkit.errors import NotIsolatedError, UsageError
from lhkit.json_values import JSON
from lhkit.locales import available_locales
from lhkit.settings import load_settings
from lhkit.tools.registry import ToolRegistry

Rows: TypeAlias = Sequence[Mapping[str, Any]]


class Session(Protocol):
    """One isolated world, for one conversation.

    It may have more methods. Each adds an ability:

    - `known_ids()` returns the ids that exist, by the name of the argument that takes them; without
      it, ids of a scenario go unchecked.
    - `row_keys()` returns the fields that together are a row's key, by table, such as
      `{"tracker": ["habit_id", "date"]}`; no fields for a table that always has one row. Tables
      that are not named go by `id`.
    - `broken_rules(before, after)` returns (code, detail) of each rule of the domain that the state
      `after` breaks and `before` did not, whoever wrote it.
    - `in_locale(locale)` returns a session over the same data in another language; closing either
      closes both. Without it, a panel that changes its language opens an equal world.
    - `runs_on()` returns what program the tools run on, such as `{"server": "notes"}`.
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


class Toolset(Protocol):
    """Opens sessions. Must be safe to use for many at once.

    It may have more. Each of these has a default:

    - `name`: a word for reports and files; by default the name of its class.
    - `locales`: the languages that it has; without it they are tried.
    - `waits = True`: its sessions wait for another process when they are opened, closed and read,
      which is then done in a thread, so that no other conversation is held up.
    - `is_isolated = False`: its sessions share real data, as those of most MCP servers do. Then
      only a person or the simulated user of an evaluation approves calls (`isolation_fault`).
    - `open_kept(file, *, now, locale)`: returns a session over the data in `file` (a path; None for
      no longer than the session) that goes by the clock `now`. Without it a chat begins anew.
    """

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        """Return a fresh session in the state `world` (a scenario's own words).

        `world` is a copy, plain JSON: it may be kept and changed.

        Raises:
            UsageError: `world` describes no possible state, or `locale` is not supported.
        """
        ...


ToolsetSource: TypeAlias = str | Toolset | ToolRegistry | Callable[[], Toolset | ToolRegistry]
"""What names a toolset: a reference, the thing itself, a class or function that makes it, or tools
without a world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BareToolset:
    """Tools without a world of their own: what a bare registry is. All languages have one text."""

    registry: ToolRegistry
    assistant: Assistant = field(default_factory=Assistant)
    name: str = "tools"
    locales: tuple[str, ...] = field(default_factory=available_locales)

    def open(self, world: Mapping[str, Any], locale: str) -> "BareSession":
        """Return a session without a state; of `world`, only `now` means something."""
        return BareSession(
            registry=self.registry, assistant=self.assistant, today=day_of(world.get("now"))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BareSession:
    """A conversation over tools whose data lhkit knows nothing of."""

    registry: ToolRegistry
    assistant: Assistant
    today: date

    def state(self) -> Mapping[str, JSON]:
        """Return nothing: whatever the tools change cannot be seen."""
        return {}

    def close(self) -> None:
        """Leave everything as it is."""


def day_of(now: Any) -> date:
    """Return the day of a world's clock; without one, that of the wall clock, as the tools see."""
    if now is None:
        return load_settings().now().date()
    try:
        return datetime.fromisoformat(now).date()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"world.now: {now!r} is no time: write one such as 2026-03-04T09:00:00+09:00"
        ) from error


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
