"""Open, read and close sessions, and wrap toolsets.

Data from and for user code is copied as plain JSON. Exceptions of user code become a `UsageError`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from types import MappingProxyType
from typing import Any

from lhkit.base.errors import LhkitError, UsageError
from lhkit.base.json_values import MAX_DEPTH, NotJsonError, plain_json, safe_repr
from lhkit.base.locales import available_locales
from lhkit.chat.assistant import Assistant
from lhkit.tools.notices import log_notices
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset.base import Rows, Session, Toolset, name_of

_SESSION_PARTS = ("registry", "assistant", "today", "state", "close")
_KINDS = {"registry": ToolRegistry, "assistant": Assistant, "today": date}


@contextmanager
def user_code(action: str) -> Iterator[None]:
    """Run a block of user code; its exceptions become a `UsageError` with the line of that code.

    Args:
        action: what the code does, for the message: `<action> failed at FILE:LINE: …`.

    Raises:
        UsageError: the code failed, or passed something invalid to lhkit.
        LhkitError: the code raised one itself.
    """
    try:
        yield
    except LhkitError as error:
        location = user_code_location(error)
        frames = extract_tb(error.__traceback__)
        is_own = not isinstance(error, UsageError) or _is_user_file(frames[-1].filename)
        if is_own or not location:
            raise
        raise UsageError(f"{location}: {error}") from error
    except (Exception, SystemExit) as error:
        message = str(error).splitlines()[0] if str(error) else ""
        location = user_code_location(error)
        at = f" at {location}" if location else ""
        raise UsageError(
            f"{action} failed{at}: {type(error).__name__}: {message}".rstrip(": ")
        ) from error


def user_code_location(error: BaseException) -> str:
    """Return `file:line` of the innermost frame of user code; empty if there is none."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in extract_tb(error.__traceback__) if _is_user_file(f.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _is_user_file(file: str) -> bool:
    package = str(Path(__file__).parents[1])
    return "site-packages" not in file and not file.startswith((package, get_path("stdlib"), "<"))


@contextmanager
def opened(toolset: Toolset, world: Mapping[str, Any], locale: str) -> Iterator[Session]:
    """Open a session over a copy of `world` for the block, then close it.

    Raises:
        UsageError: as `open_session`.
    """
    with closing_session(open_session(toolset, world, locale)) as session:
        yield session


@contextmanager
def closing_session(session: Session) -> Iterator[Session]:
    """Close a session at the end of the block.

    Raises:
        UsageError: its `close` failed.
    """
    try:
        yield session
    finally:
        with user_code("session: close()"):
            session.close()


def open_session(toolset: Toolset, world: Mapping[str, Any], locale: str) -> Session:
    """Return a session over a copy of `world`; the caller closes it.

    Raises:
        UsageError: `world` is invalid or not JSON, user code fails, or the returned object is not
            a session.
    """
    return _open(toolset, _plain_copy(world, "world"), locale)


def _open(toolset: Toolset, world: dict[str, Any], locale: str) -> Session:
    if isinstance(toolset, WrappedToolset):  # messages name the inner toolset
        return toolset.open(world, locale)
    name = name_of(toolset)
    with user_code(f"world: open(world, {locale!r}) of {name}"):
        session = toolset.open(world, locale)
        missing = [part for part in _SESSION_PARTS if not hasattr(session, part)]
        issue = None if missing else _type_issue(session)
    if missing or issue:
        code = getattr(toolset.open, "__code__", None)
        location = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        kind = type(session).__name__
        returned = f"world: open() of {name}{location} returned an object of type {kind}"
        if issue:
            raise UsageError(f"{returned} whose {issue}")
        raise UsageError(
            f"{returned} without {', '.join(missing)}: a session has {', '.join(_SESSION_PARTS)}"
        )
    log_notices(session.registry)
    return session


def _type_issue(session: Session) -> str | None:
    """Return which part of a session has the wrong type, and the expected type."""
    for part, kind in _KINDS.items():
        value = getattr(session, part)
        if not isinstance(value, kind) or isinstance(value, datetime):
            how = ", such as now.date()" if kind is date else ""
            return f"{part} is {_type_name(value)}: give {_with_article(kind.__name__)}{how}"
    return None


def registry_of(toolset: Toolset, world: Mapping[str, Any], locale: str) -> ToolRegistry:
    """Return the tools of a toolset in a session with the initial state `world`.

    Raises:
        UsageError: as `open_session`.
    """
    with opened(toolset, world, locale) as session:
        return session.registry


def assistant_of(session: Session) -> Assistant:
    """Return the assistant of a session, whose `context` raises a `UsageError` with its line."""
    assistant = session.assistant

    def context(message: str) -> str:
        with user_code("session: context() of the assistant"):
            return assistant.context(message)

    return replace(assistant, context=context)


def tool_programs(session: Session) -> dict[str, str]:
    """Return the program that the tools of a session run on; empty if it has no `runs_on`.

    Raises:
        UsageError: user code fails.
    """
    if (runs_on := getattr(session, "runs_on", None)) is None:
        return {}
    with user_code("session: runs_on()"):
        return {str(key): str(value) for key, value in runs_on().items()}


def supported_locales(toolset: Toolset, world: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the languages that both lhkit and a toolset support, sorted.

    The toolset's `locales`, else those in which it opens `world`.
    """

    def opens(locale: str) -> bool:
        with suppress(LhkitError), opened(toolset, world, locale):
            return True
        return False

    declared = getattr(toolset, "locales", None)
    return tuple(
        locale
        for locale in available_locales()
        if (opens(locale) if declared is None else locale in declared)
    )


def read_state(
    session: Session, *, before: Mapping[str, Rows] = MappingProxyType({})
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return a copy of a session's state: a tuple of rows for each table.

    Args:
        session: a session.
        before: an earlier state of it from this function; equal rows are shared with it, to save
            memory.

    Raises:
        UsageError: user code fails, or the state is not JSON or not a list of rows for each table;
            names table, row and field.
    """
    with user_code("session: state()"):
        value = session.state()
    state = _plain_copy(value, "state()")
    for table, rows in state.items():
        if not isinstance(rows, list):
            raise UsageError(
                f"state(): the table {table!r} is {_type_name(rows)}: give a list of rows, which "
                "are objects"
            )
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise UsageError(
                    f"state(): {table}[{number}] is {_type_name(row)}: give an object with named "
                    "fields"
                )
        for number, (row, old) in enumerate(zip(rows, before.get(table, ()), strict=False)):
            if row == old and repr(row) == repr(old):  # repr distinguishes 1 from 1.0
                rows[number] = old
    return {table: tuple(rows) for table, rows in state.items()}


def _plain_copy(value: Any, name: str) -> dict[str, Any]:
    """Return a mapping of user code as plain JSON."""
    if not isinstance(value, Mapping):
        kind = _type_name(value)
        raise UsageError(f"{name} is {kind}: give an object with a list of rows per table")
    try:
        copied: dict[str, Any] = plain_json(value)
    except NotJsonError as error:
        raise UsageError(f"{name}: {next(_json_issues(value), error)}") from error
    return copied


def _json_issues(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the path of each part of `value` that is not JSON, with the reason."""
    if depth > MAX_DEPTH:
        yield f"{path[:60]}… is nested deeper than {MAX_DEPTH} levels, or contains itself"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield from _json_issues(inner, f"{path}.{key}" if path else key, depth + 1)
            else:
                shown = f"{safe_repr(key)} ({_type_name(key)})"
                yield f"{path or 'it'} has the key {shown}: keys must be strings"
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _json_issues(inner, f"{path}[{i}]", depth + 1)
    else:
        try:
            plain_json(value)
        except NotJsonError:
            shown = " ".join(safe_repr(value).split())[:60]
            how = "give a string, a number, a list or an object instead"
            yield f"{path} is {_type_name(value)} ({shown}), which is not JSON: {how}"


def _type_name(value: Any) -> str:
    return _with_article(type(value).__name__)


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


@dataclass(frozen=True, kw_only=True)
class WrappedSession:
    """A session with other tools or another assistant; the rest is that of `inner`."""

    inner: Session
    registry: ToolRegistry
    assistant: Assistant

    def __getattr__(self, name: str) -> Any:
        if name in {"inner", "in_locale"}:  # it would return an unwrapped session
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True, kw_only=True)
class WrappedToolset:
    """A toolset whose sessions have other tools or another assistant.

    Args:
        inner: the toolset.
        registry: returns the tools for (session, locale); None keeps the session's.
        assistant: returns the assistant for (session, locale); None keeps the session's.
    """

    inner: Toolset
    registry: Callable[[Session, str], ToolRegistry] | None = None
    assistant: Callable[[Session, str], Assistant] | None = None

    @property
    def name(self) -> str:
        """The inner toolset's name."""
        return name_of(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name in {"inner", "open_kept"}:  # it would open an unwrapped session
            raise AttributeError(name)
        return getattr(self.inner, name)

    def open(self, world: Mapping[str, Any], locale: str) -> Session:
        """Return a wrapped session of the inner toolset.

        Raises:
            UsageError: as `open_session` of the inner toolset.
        """
        session = _open(self.inner, dict(world), locale)
        wrapped: Any = WrappedSession(
            inner=session,
            registry=self.registry(session, locale) if self.registry else session.registry,
            assistant=self.assistant(session, locale) if self.assistant else session.assistant,
        )
        result: Session = wrapped
        return result


def limit_tokens(toolset: Toolset, max_tokens: int) -> Toolset:
    """Return a toolset with a limit of tokens per model message."""

    def assistant(session: Session, _locale: str) -> Assistant:
        inner = session.assistant
        return replace(inner, sampling=replace(inner.sampling, max_tokens=max_tokens))

    return WrappedToolset(inner=toolset, assistant=assistant)
