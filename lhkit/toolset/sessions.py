"""Sessions: opened, looked at and closed; and toolsets that stand around others."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from lhkit.chat.controller import Assistant
from lhkit.errors import LhkitError, UsageError
from lhkit.json_values import JSON
from lhkit.locales import available_locales
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset.faults import a_type, an_object, their_code, with_article
from lhkit.toolset.plain import plain_copy
from lhkit.toolset.protocols import (
    KnowsIds,
    Rows,
    RunsOn,
    Session,
    Toolset,
    isolation_fault,
    knows_row_keys,
    knows_rules,
    name_of,
    waits_of,
)

_SESSION_PARTS = ("registry", "assistant", "today", "state", "close")
_KINDS = {"registry": ToolRegistry, "assistant": Assistant, "today": date}


@contextmanager
def opened(toolset: Toolset, world: Mapping[str, Any], locale: str) -> Iterator[Session]:
    """Open a session over a copy of `world`, and close it: the one way to play anything.

    Raises:
        UsageError: as `open_session`.
    """
    with closed_after(open_session(toolset, world, locale)) as session:
        yield session


@contextmanager
def closed_after(session: Session) -> Iterator[Session]:
    """Close a session at the end of the block.

    Raises:
        UsageError: their `close` failed.
    """
    try:
        yield session
    finally:
        with their_code("session: close()"):
            session.close()


def open_session(toolset: Toolset, world: Mapping[str, Any], locale: str) -> Session:
    """Return a session over a copy of `world`; whoever asks for it closes it.

    Raises:
        UsageError: `world` describes no possible state or is no JSON, their code fails, or what
            it gives is no session.
    """
    return _opened(toolset, plain_copy(world, "world"), locale)


def registry_of(toolset: Toolset, world: Mapping[str, Any], locale: str) -> ToolRegistry:
    """Return the tools of a toolset, as they are in one of its worlds.

    Raises:
        UsageError: as `open_session`.
    """
    with opened(toolset, world, locale) as session:
        return session.registry


def assistant_of(session: Session) -> Assistant:
    """Return the assistant of a session; its `context` tells its own faults.

    `context` of it raises a `UsageError` with the line of their code.
    """
    own = session.assistant

    def context(message: str) -> str:
        with their_code("session: context() of the assistant"):
            return own.context(message)

    return replace(own, context=context)


def runs_on_of(session: Session) -> dict[str, str]:
    """Return what program the tools of a session run on; nothing if it cannot or need not say.

    Raises:
        UsageError: their code fails.
    """
    if not isinstance(session, RunsOn):
        return {}
    with their_code("session: runs_on()"):
        return {str(key): str(value) for key, value in session.runs_on().items()}


def locales_of(toolset: Toolset, world: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the languages that both lhkit and a toolset have, sorted.

    Those that the toolset names in `locales`, else those in which it opens `world`.
    """
    told = getattr(toolset, "locales", None)
    if told is not None:
        return tuple(each for each in available_locales() if each in told)
    return tuple(each for each in available_locales() if opens(toolset, world, each))


def opens(toolset: Toolset, world: Mapping[str, Any], locale: str) -> bool:
    """Return whether a toolset opens a world in a language; one of our errors is a no."""
    with suppress(LhkitError), opened(toolset, world, locale):
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAround:
    """Another session with other tools or another assistant; all else is passed on."""

    inner: Session
    registry: ToolRegistry
    assistant: Assistant

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
        if not knows_rules(self.inner):
            return ()
        return self.inner.broken_rules(before, after)

    def row_keys(self) -> Mapping[str, Sequence[str]]:
        """Return what the inner session knows; nothing if it cannot say."""
        return self.inner.row_keys() if knows_row_keys(self.inner) else {}

    def runs_on(self) -> Mapping[str, str]:
        """Return what the inner session runs on; nothing if it is its own."""
        return self.inner.runs_on() if isinstance(self.inner, RunsOn) else {}

    def close(self) -> None:
        """Close the inner session."""
        self.inner.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetAround:
    """Another toolset whose sessions have other tools or another assistant.

    Args:
        inner: the toolset.
        registry: gives the tools of a session and its language; None for its own.
        assistant: gives the assistant of a session and its language; None for its own.
    """

    inner: Toolset
    registry: Callable[[Session, str], ToolRegistry] | None = None
    assistant: Callable[[Session, str], Assistant] | None = None

    @property
    def name(self) -> str:
        """The inner toolset's name."""
        return name_of(self.inner)

    @property
    def waits(self) -> bool:
        """Whether the inner toolset waits."""
        return waits_of(self.inner)

    @property
    def is_isolated(self) -> bool:
        """Whether the inner toolset is isolated."""
        return not isolation_fault(self.inner)

    def open(self, world: Mapping[str, Any], locale: str) -> SessionAround:
        """Return a session of the inner toolset, changed.

        Raises:
            UsageError: as `open_session` of the inner toolset.
        """
        session = _opened(self.inner, dict(world), locale)
        return SessionAround(
            inner=session,
            registry=self.registry(session, locale) if self.registry else session.registry,
            assistant=self.assistant(session, locale) if self.assistant else session.assistant,
        )


def limited(toolset: Toolset, max_tokens: int | None) -> Toolset:
    """Return a toolset whose assistant says at most so much in one message; its own for None."""
    if max_tokens is None:
        return toolset

    def assistant(session: Session, _locale: str) -> Assistant:
        own = session.assistant
        return replace(own, sampling=replace(own.sampling, max_tokens=max_tokens))

    return ToolsetAround(inner=toolset, assistant=assistant)


def _opened(toolset: Toolset, world: dict[str, Any], locale: str) -> Session:
    if isinstance(toolset, ToolsetAround):  # what fails is told of what it stands around
        return toolset.open(world, locale)
    name = name_of(toolset)
    with their_code(f"world: open(world, {locale!r}) of {name}"):
        session = toolset.open(world, locale)
        missing = [part for part in _SESSION_PARTS if not hasattr(session, part)]
        fault = None if missing else _unfit_part(session)
    returned = f"world: open() of {name}{_place_of(toolset)} returned {an_object(session)}"
    if missing:
        raise UsageError(
            f"{returned} without {', '.join(missing)}: a session has {', '.join(_SESSION_PARTS)}"
        )
    if fault:
        raise UsageError(f"{returned} whose {fault}")
    return session


def _unfit_part(session: Session) -> str | None:
    """Return what is of the wrong kind in a session, and what it has to be."""
    for part, kind in _KINDS.items():
        value = getattr(session, part)
        if not isinstance(value, kind) or isinstance(value, datetime):
            how = ", such as now.date()" if kind is date else ""
            return f"{part} is {a_type(value)}: give {with_article(kind.__name__)}{how}"
    return None


def _place_of(toolset: Toolset) -> str:
    code = getattr(toolset.open, "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
