"""Sessions: opened, read and closed, with faults of user code in one sentence; and changed ones.

Whatever crosses the line to user code is copied to plain JSON that later changes do not reach.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from types import MappingProxyType
from typing import Any

from lhkit.chat.controller import Assistant
from lhkit.errors import LhkitError, UsageError
from lhkit.json_values import MAX_DEPTH, NotJsonError, plain_json, repr_of
from lhkit.locales import available_locales
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset.base import Rows, Session, Toolset, name_of

_SESSION_PARTS = ("registry", "assistant", "today", "state", "close")
_KINDS = {"registry": ToolRegistry, "assistant": Assistant, "today": date}


class _UserCode:
    """A block of user code; a class, which is entered more quickly than a generator."""

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        """Nothing is done before."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Raise what `their_code` says in place of an error of user code."""
        if isinstance(error, LhkitError):
            place = place_in_their_code(error)
            frames = extract_tb(error.__traceback__)
            if not isinstance(error, UsageError) or not place or _is_theirs(frames[-1].filename):
                return  # user code says itself what to fix
            raise UsageError(f"{place}: {error}") from error
        if isinstance(error, Exception | SystemExit):
            message = str(error).splitlines()[0] if str(error) else ""
            place = place_in_their_code(error)
            at = f" at {place}" if place else ""
            raise UsageError(
                f"{self._doing} failed{at}: {type(error).__name__}: {message}".rstrip(": ")
            ) from error


def their_code(doing: str) -> AbstractContextManager[None]:
    """Turn whatever user code raises into one sentence with the line of that code.

    Raises:
        UsageError: the code failed; or what we refused it, with the line that called us.
    """
    return _UserCode(doing)


def place_in_their_code(error: BaseException) -> str:
    """Return `file:line` of the innermost line that is in no package and not ours; perhaps none."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    inner = [frame for frame in extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    return f"{inner[-1].filename}:{inner[-1].lineno}" if inner else ""


def _is_theirs(file: str) -> bool:
    ours = str(Path(__file__).parents[1])
    is_library = "site-packages" in file or file.startswith((ours, get_path("stdlib"), "<"))
    return not is_library


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
        UsageError: its `close` failed.
    """
    try:
        yield session
    finally:
        with their_code("session: close()"):
            session.close()


def open_session(toolset: Toolset, world: Mapping[str, Any], locale: str) -> Session:
    """Return a session over a copy of `world`; the caller closes it.

    Raises:
        UsageError: `world` describes no possible state or is no JSON, user code fails, or what
            it returns is no session.
    """
    return _opened(toolset, _plain_copy(world, "world"), locale)


def _opened(toolset: Toolset, world: dict[str, Any], locale: str) -> Session:
    if isinstance(toolset, ToolsetAround):  # a fault names the inner toolset
        return toolset.open(world, locale)
    name = name_of(toolset)
    with their_code(f"world: open(world, {locale!r}) of {name}"):
        session = toolset.open(world, locale)
        missing = [part for part in _SESSION_PARTS if not hasattr(session, part)]
        fault = None if missing else _unfit_part(session)
    if missing or fault:
        code = getattr(toolset.open, "__code__", None)
        place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        kind = type(session).__name__
        returned = f"world: open() of {name}{place} returned an object of type {kind}"
        if fault:
            raise UsageError(f"{returned} whose {fault}")
        raise UsageError(
            f"{returned} without {', '.join(missing)}: a session has {', '.join(_SESSION_PARTS)}"
        )
    return session


def _unfit_part(session: Session) -> str | None:
    """Return what is of the wrong kind in a session, and what it has to be."""
    for part, kind in _KINDS.items():
        value = getattr(session, part)
        if not isinstance(value, kind) or isinstance(value, datetime):
            how = ", such as now.date()" if kind is date else ""
            return f"{part} is {_a_type(value)}: give {_with_article(kind.__name__)}{how}"
    return None


def registry_of(toolset: Toolset, world: Mapping[str, Any], locale: str) -> ToolRegistry:
    """Return the tools of a toolset, as they are in one of its worlds.

    Raises:
        UsageError: as `open_session`.
    """
    with opened(toolset, world, locale) as session:
        return session.registry


def assistant_of(session: Session) -> Assistant:
    """Return the assistant of a session, whose `context` raises a `UsageError` with its line."""
    own = session.assistant

    def context(message: str) -> str:
        with their_code("session: context() of the assistant"):
            return own.context(message)

    return replace(own, context=context)


def runs_on_of(session: Session) -> dict[str, str]:
    """Return what program the tools of a session run on; nothing if it cannot or need not say.

    Raises:
        UsageError: user code fails.
    """
    if (runs_on := getattr(session, "runs_on", None)) is None:
        return {}
    with their_code("session: runs_on()"):
        return {str(key): str(value) for key, value in runs_on().items()}


def locales_of(toolset: Toolset, world: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the languages that both lhkit and a toolset have, sorted.

    Those that the toolset names in `locales`, else those in which it opens `world`.
    """

    def opens(locale: str) -> bool:
        with suppress(LhkitError), opened(toolset, world, locale):
            return True
        return False

    named = getattr(toolset, "locales", None)
    return tuple(
        locale
        for locale in available_locales()
        if (opens(locale) if named is None else locale in named)
    )


def state_of(
    session: Session, *, before: Mapping[str, Rows] = MappingProxyType({})
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return a copy of the state that later changes do not reach.

    Args:
        session: a session.
        before: its state as this function returned it earlier; rows that are the same are shared
            with it, so that a large world is compared and kept once.

    Raises:
        UsageError: user code fails, or it is no JSON, or no list of rows per table; names table,
            row and field.
    """
    with their_code("session: state()"):
        given = session.state()
    state = _plain_copy(given, "state()")
    for table, rows in state.items():
        if not isinstance(rows, list):
            raise UsageError(
                f"state(): the table {table!r} is {_a_type(rows)}: give a list of rows, one object "
                "each"
            )
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                kind = _a_type(row)
                raise UsageError(
                    f"state(): {table}[{number}] is {kind}: give an object with named fields"
                )
        for number, (row, old) in enumerate(zip(rows, before.get(table, ()), strict=False)):
            if row == old and repr(row) == repr(old):  # 1 and 1.0 are equal, and not the same
                rows[number] = old
    return {table: tuple(rows) for table, rows in state.items()}


def _plain_copy(value: Any, name: str) -> dict[str, Any]:
    """Return a mapping of user code as plain JSON of our own.

    Raises:
        UsageError: it has a value that JSON cannot carry; the sentence says where.
    """
    if not isinstance(value, Mapping):
        kind = _a_type(value)
        raise UsageError(f"{name} is {kind}: give an object with a list of rows per table")
    try:
        copied: dict[str, Any] = plain_json(value)
    except NotJsonError as error:
        raise UsageError(f"{name}: {next(_unplain(value), error)}") from error
    return copied


def _unplain(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield where JSON ends in `value`, and why; the first is found even in a cycle."""
    if depth > MAX_DEPTH:
        yield f"{path[:60]}… is nested deeper than {MAX_DEPTH} levels, or holds itself"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield from _unplain(inner, f"{path}.{key}" if path else key, depth + 1)
            else:
                shown = f"{repr_of(key)} ({_a_type(key)})"
                yield f"{path or 'it'} has the key {shown}: keys have to be texts"
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _unplain(inner, f"{path}[{i}]", depth + 1)
    else:
        try:
            plain_json(value)
        except NotJsonError:
            shown = " ".join(repr_of(value).split())[:60]
            how = "give a text, a number, a list or an object instead"
            yield f"{path} is {_a_type(value)} ({shown}), which JSON cannot carry: {how}"


def _a_type(value: Any) -> str:
    return _with_article(type(value).__name__)


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


@dataclass(frozen=True, kw_only=True)
class SessionAround:
    """Another session with other tools or another assistant; it has all else of the inner one."""

    inner: Session
    registry: ToolRegistry
    assistant: Assistant

    def __getattr__(self, name: str) -> Any:
        if name in {"inner", "in_locale"}:  # the inner session would go on without the change
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True, kw_only=True)
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

    def __getattr__(self, name: str) -> Any:
        if name in {"inner", "open_kept"}:  # the inner toolset would open without the change
            raise AttributeError(name)
        return getattr(self.inner, name)

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        """Return a session of the inner toolset, changed.

        Raises:
            UsageError: as `open_session` of the inner toolset.
        """
        session = _opened(self.inner, dict(world), locale)
        around: Any = SessionAround(
            inner=session,
            registry=self.registry(session, locale) if self.registry else session.registry,
            assistant=self.assistant(session, locale) if self.assistant else session.assistant,
        )
        changed: Session = around
        return changed


def limited(toolset: Toolset, max_tokens: int | None) -> Toolset:
    """Return a toolset whose assistant writes at most `max_tokens` in a message; None: its own."""
    if max_tokens is None:
        return toolset

    def assistant(session: Session, _locale: str) -> Assistant:
        own = session.assistant
        return replace(own, sampling=replace(own.sampling, max_tokens=max_tokens))

    return ToolsetAround(inner=toolset, assistant=assistant)
