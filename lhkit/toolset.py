"""The one plug-in point: tools with an assistant and a world. Chat, panel, eval and lint use it.

Whoever has tools implements `Toolset` and `Session`, in a file of their own, and names it
`FILE.py:NAME`. life-helper is such a reference, the default one. lhkit knows no domain beside this.

    class Kitchen:
        def open(self, world, locale):
            items = [dict(row) for row in world.get("items", [])]
            return KitchenSession(items)

Their code may keep and change whatever it gets, and give away what it goes on changing: what
crosses this line is copied. It runs with our rights, as a script of theirs would: it is trusted
like one. Whatever goes wrong in it is told in one sentence, with the line of their file.
"""

import gc
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from types import MappingProxyType, ModuleType
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

from lhkit.chat.controller import Assistant
from lhkit.errors import LhkitError, NotIsolatedError, UsageError
from lhkit.json_values import JSON, MAX_DEPTH, NotJsonError, plain_json, plain_rows, repr_of
from lhkit.locales import available_locales
from lhkit.settings import DEFAULT_TOOLSET, load_settings
from lhkit.tools.registry import ToolRegistry

Rows: TypeAlias = Sequence[Mapping[str, Any]]

DEFAULT = DEFAULT_TOOLSET

HOW = "write FILE.py:NAME, package.module:NAME, mcp:SERVER or life-helper"

_SHIPPED = {DEFAULT: "lhkit.lifehelper.toolset:LIFE_HELPER"}
_MCP, _MCP_HOME = "mcp:", "lhkit.mcp.references"
_PREFIX = "lhkit_toolset_"  # of the modules that files of theirs become
_SESSION_PARTS = ("registry", "assistant", "today", "state", "close")
_KINDS = {"registry": ToolRegistry, "assistant": Assistant, "today": date}


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


# ------------------------------------------------------------------------------------- references
def load(reference: str = DEFAULT) -> Toolset:
    """Return the toolset that a reference names, such as `kitchen.py:Kitchen`.

    Args:
        reference: `FILE.py:NAME` (a path), `package.module:NAME`, `life-helper`, or `mcp:` and a
            server (its command line, address, `mcp.json#NAME` or `FILE.toml`). NAME is an object
            with a method `open(world, locale)`, a `ToolRegistry` (tools without a world), or a
            class or function without arguments that gives one of these.

    Raises:
        UsageError: there is no such file, module or name, its code fails, or it is no toolset;
            the sentence names the line of their code.
    """
    if reference.startswith(_MCP):
        served: Toolset = _mcp().from_reference(reference)
        return served
    told = f"toolset {reference}"
    found = _found(_SHIPPED.get(reference, reference), told, HOW, fits=_may_be_toolset)
    return _toolset(found, told)


def _mcp() -> Any:
    """Return the room that knows servers, which itself goes through this door."""
    return importlib.import_module(_MCP_HOME)


def load_named(what: str, reference: str) -> Any:
    """Return the object that `FILE.py:NAME` or `package.module:NAME` names, whatever it is.

    `what` is how a message calls it, such as `--conversations`.

    Raises:
        UsageError: there is no such file, module or name, or its code fails when it is imported.
    """
    return _found(reference, f"{what} {reference}", "write FILE.py:NAME or package.module:NAME")


def toolset_of(source: ToolsetSource) -> Toolset:
    """Return the toolset that `source` is, makes or names.

    Raises:
        UsageError: as `load`.
    """
    return load(source) if isinstance(source, str) else _toolset(source, f"toolset {source!r}")


def seen_from(folder: Path, reference: str) -> str:
    """Return a reference whose file is looked for in `folder`; of a module it stays the same."""
    if reference.startswith(_MCP):
        seen: str = _mcp().seen_from(folder, reference)
        return seen
    place, _, name = reference.rpartition(":")
    return f"{folder / place}:{name}" if place.endswith(".py") else reference


def label_of(reference: str) -> str:
    """Return one word for a reference: the name of its file, module or server, or `life-helper`."""
    if reference.startswith(_MCP):
        label: str = _mcp().label_of(reference)
        return label
    place = reference.rpartition(":")[0].removesuffix(".py")
    return re.split(r"[/\\.]", place)[-1] or reference


def name_of(toolset: Toolset) -> str:
    """Return the word for a toolset: its `name`, else that of its class."""
    return str(getattr(toolset, "name", None) or type(toolset).__name__)


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


def _found(reference: str, told: str, how: str, *, fits: Callable[[Any], bool] = callable) -> Any:
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{told} has no colon and name: {how}")
    return _named(_module(place, told, how), name, told, fits)


def _module(place: str, told: str, how: str) -> ModuleType:
    if place.endswith(".py") or "/" in place or "\\" in place:
        return _file_module(Path(place), told, how)
    _importable(Path.cwd())
    try:
        spec = importlib.util.find_spec(place)
    except (ModuleNotFoundError, ValueError):
        spec = None
    if spec is None:
        raise UsageError(f"{told}: no module {place!r} here: {how}")
    with their_code(f"{told}: importing it"):
        return importlib.import_module(place)


def _file_module(file: Path, told: str, how: str) -> ModuleType:
    if not file.is_file() or file.suffix != ".py":
        raise UsageError(f"{told}: no Python file {file}: {how}")
    path = file.resolve()
    _importable(path.parent)
    name = f"{_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{told}: Python cannot import {file}: {how}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up by name
    try:
        with their_code(f"{told}: importing it"):
            spec.loader.exec_module(module)
    except UsageError:
        del sys.modules[name]
        raise
    return module


def _importable(folder: Path) -> None:
    """Let their code import what lies beside it; last, so that it shadows no installed package."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _named(module: ModuleType, name: str, told: str, fits: Callable[[Any], bool]) -> Any:
    if not hasattr(module, name):
        own = (each for each, value in vars(module).items() if _is_of(value, module))
        choices = [each for each in own if not each.startswith("_") and fits(vars(module)[each])]
        raise UsageError(
            f"{told}: {module.__file__} has no {name!r}: "
            + (f"it defines {', '.join(sorted(choices))}" if choices else "nor another that may be")
        )
    return getattr(module, name)


def _is_of(value: Any, module: ModuleType) -> bool:
    return isinstance(value, ToolRegistry) or getattr(value, "__module__", None) == module.__name__


def _may_be_toolset(value: Any) -> bool:
    """Return True for tools, for what opens worlds, and for a function that may give either."""
    if isinstance(value, ToolRegistry) or callable(getattr(value, "open", None)):
        return True
    if not inspect.isfunction(value):
        return False
    given = inspect.signature(value).parameters.values()
    return all(each.default is not each.empty for each in given)


def _toolset(found: Any, told: str) -> Toolset:
    is_made = isinstance(found, ToolRegistry) or (
        hasattr(found, "open") and not inspect.isclass(found)
    )
    if not is_made and callable(found):
        maker = getattr(found, "__name__", repr(found))
        with their_code(f"{told}: calling {maker} without arguments"):
            found = found()
    if isinstance(found, ToolRegistry):
        return BareToolset(registry=found)
    if not callable(getattr(found, "open", None)):
        raise UsageError(
            f"{told}: {_kind(found)} has no method open(world, locale) and is no ToolRegistry: see "
            "docs/own-tools.md"
        )
    toolset: Toolset = found
    return toolset


# ------------------------------------------------------------------------------- opening sessions
@contextmanager
def opened(toolset: Toolset, world: Mapping[str, Any], locale: str) -> Iterator[Session]:
    """Open a session over a copy of `world`, and close it: the one way to play anything.

    Raises:
        UsageError: as `open_session`.
    """
    with closed_after(open_session(toolset, world, locale)) as session:
        yield session


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
    return _opened(toolset, _plain(world, "world"), locale)


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


def state_of(
    session: Session, *, before: Mapping[str, Rows] = MappingProxyType({})
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return a copy of the state that later changes do not reach.

    Args:
        session: a session.
        before: its state as this function gave it earlier; rows that are the same are shared with
            it, which is quicker by far where a world is large.

    Raises:
        UsageError: their code fails, or it is no JSON, or no list of rows per table; names table,
            row and field.
    """
    with their_code("session: state()"):
        told = session.state()
    state = _plain_again(told, before) or _plain(told, "state()")
    for table, rows in state.items():
        if not isinstance(rows, list):
            raise UsageError(
                f"state(): the table {table!r} is {_a(rows)}: give a list of rows, one object each"
            )
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise UsageError(
                    f"state(): {table}[{number}] is {_a(row)}: give an object with named fields"
                )
    return {table: tuple(rows) for table, rows in state.items()}


def _plain_again(told: Any, before: Mapping[str, Rows]) -> dict[str, Any] | None:
    """Return a state as plain JSON that shares rows with an earlier one; None: look at it anew."""
    if type(told) is not dict or not before:
        return None
    if not all(type(table) is str and type(rows) in {list, tuple} for table, rows in told.items()):
        return None
    try:
        return {
            table: plain_rows(rows, before.get(table, ()), depth=2) for table, rows in told.items()
        }
    except NotJsonError:  # which does not say where
        return None


def _opened(toolset: Toolset, world: dict[str, Any], locale: str) -> Session:
    if isinstance(toolset, ToolsetAround):  # what fails is told of what it stands around
        return toolset.open(world, locale)
    name = name_of(toolset)
    with their_code(f"world: open(world, {locale!r}) of {name}"):
        session = toolset.open(world, locale)
        missing = [part for part in _SESSION_PARTS if not hasattr(session, part)]
        fault = None if missing else _unfit_part(session)
    returned = f"world: open() of {name}{_place_of(toolset)} returned {_kind(session)}"
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
            return f"{part} is {_a(value)}: give {_article(kind.__name__)}{how}"
    return None


def _place_of(toolset: Toolset) -> str:
    code = getattr(toolset.open, "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""


def _plain(value: Any, name: str) -> dict[str, Any]:
    """Return a mapping of theirs as plain JSON of our own.

    Raises:
        UsageError: it has a value that JSON cannot carry; the sentence says where.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is {_a(value)}: give an object with a list of rows per table")
    try:
        with _collector_paused():
            plain: dict[str, Any] = plain_json(value)
    except NotJsonError as error:
        raise UsageError(f"{name}: {next(_unplain(value), error)}") from error
    return plain


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python from looking for cycles in the block, which makes none.

    Else it searches a large world again and again while it is being copied, for longer than the
    copy itself takes. Blocks in several threads may overlap: who paused it lets it go on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _unplain(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield where JSON ends in `value`, and why. Whoever asks for the first is never lost in it."""
    if depth > MAX_DEPTH:
        yield f"{path[:60]}… is nested deeper than {MAX_DEPTH} levels, or holds itself"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield from _unplain(inner, f"{path}.{key}" if path else key, depth + 1)
            else:
                told = f"{repr_of(key)} ({_a(key)})"
                yield f"{path or 'it'} has the key {told}: keys have to be texts"
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _unplain(inner, f"{path}[{i}]", depth + 1)
    else:
        try:
            plain_json(value)
        except NotJsonError:
            told = " ".join(repr_of(value).split())[:60]
            how = "give a text, a number, a list or an object instead"
            yield f"{path} is {_a(value)} ({told}), which JSON cannot carry: {how}"


# --------------------------------------------------------------------- what stands around another
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


# ------------------------------------------------------------------------ tools without a world
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


# ------------------------------------------------------------------------------- their own faults
class _TheirCode:
    """A block of their code; a class, which is entered more quickly than a generator."""

    __slots__ = ("_doing",)

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        """Nothing is done before."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Raise what `their_code` says in place of an error of theirs."""
        if isinstance(error, LhkitError):
            place = place_in_their_code(error)
            frames = extract_tb(error.__traceback__)
            if not isinstance(error, UsageError) or not place or _is_theirs(frames[-1].filename):
                return  # they say themselves what to mend
            raise UsageError(f"{place}: {error}") from error
        if isinstance(error, Exception | SystemExit):
            told = str(error).splitlines()[0] if str(error) else ""
            place = place_in_their_code(error)
            at = f" at {place}" if place else ""
            raise UsageError(
                f"{self._doing} failed{at}: {type(error).__name__}: {told}".rstrip(": ")
            ) from error


def their_code(doing: str) -> AbstractContextManager[None]:
    """Turn whatever their code raises into one sentence with the line of their code.

    Raises:
        UsageError: their code failed; or what we refused it, with the line that asked for it.
    """
    return _TheirCode(doing)


def place_in_their_code(error: BaseException) -> str:
    """Return `file:line` of the innermost line that is in no package and not ours; perhaps none."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    inner = [frame for frame in extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    return f"{inner[-1].filename}:{inner[-1].lineno}" if inner else ""


def _is_theirs(file: str) -> bool:
    ours = str(Path(__file__).parent)
    is_library = "site-packages" in file or file.startswith((ours, get_path("stdlib"), "<"))
    return not is_library


def _kind(value: Any) -> str:
    return f"an object of type {type(value).__name__}"


def _a(value: Any) -> str:
    return _article(type(value).__name__)


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
