"""What a scenario is played in: tools, an assistant and a state that can be looked at.

The harness knows no domain; whoever has tools implements these two protocols.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol, TypeAlias, runtime_checkable

from lhkit.chat.controller import Assistant
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.json_values import JSON

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
        """Return the present state: a list of rows (plain JSON objects) per table."""
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

    def close(self) -> None:
        """Close the inner session."""
        self.inner.close()


class Environment(Protocol):
    """Opens sessions. Must be safe to use for many at once."""

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        """Return a fresh session in the state `world` (a scenario's own words).

        Raises:
            UsageError: `world` describes no possible state.
        """
        ...
