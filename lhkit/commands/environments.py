"""From `FILE.py:NAME` or `package.module:NAME` to what a user's own scenarios are played in.

Their code runs with our rights, as a script of theirs would: it is trusted like one. Whatever goes
wrong in it is told in one sentence, with the line of their file.
"""

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from lhkit import app
from lhkit.chat.controller import Assistant
from lhkit.errors import LhkitError, UsageError
from lhkit.harness.replay.environment import (
    Environment,
    SessionAround,
    opened,
)
from lhkit.harness.replay.their_code import place_in_their_code
from lhkit.tools.registry import ToolRegistry
from lhkit.vocab.generation import Sampling

_HOW = "write FILE.py:NAME or package.module:NAME"
_SESSION_PARTS = ("registry", "assistant", "today", "state", "close")


def load_environment(reference: str | None, *, max_tokens: int | None = None) -> Environment:
    """Return the environment that `--environment` names; life-helper for None.

    Args:
        reference: `FILE.py:NAME` (a path) or `package.module:NAME`. NAME is an object with the
            `Environment` protocol, or a class or function without arguments that gives one.
        max_tokens: most tokens of one model message; the environment's own limit for None.

    Raises:
        UsageError: there is no such file, module or name, its code fails, or it is no
            environment; the sentence names the line of their code.
    """
    if reference is None:
        sampling = Sampling() if max_tokens is None else Sampling(max_tokens=max_tokens)
        return app.LifeHelperEnvironment(sampling=sampling)
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"--environment {reference!r} has no colon and name: {_HOW}")
    found = _named(_module(place, reference), name, reference)
    return OwnEnvironment(
        inner=_environment(found, reference), reference=reference, max_tokens=max_tokens
    )


def require_paths(reference: str | None, paths: Collection[Path]) -> None:
    """Refuse an environment of one's own without scenarios: the shipped ones are life-helper's.

    Raises:
        UsageError: no paths were given.
    """
    if reference is not None and not paths:
        raise UsageError(
            f"--environment {reference}: no scenarios are shipped for it: give scenario files or "
            "folders as PATHS"
        )


def label_of(reference: str) -> str:
    """Return one word for an environment: the name of its file or module."""
    place = reference.rpartition(":")[0].removesuffix(".py")
    return re.split(r"[/\\.]", place)[-1]


def registry_of(environment: Environment, world: Mapping[str, Any], locale: str) -> ToolRegistry:
    """Return the tools of an environment, as they are in one of its worlds.

    Raises:
        UsageError: the environment refuses this world or locale.
    """
    with opened(environment, world, locale) as session:
        return session.registry


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEnvironment:
    """A user's environment: what fails in its `open` is a sentence, and tokens are limited."""

    inner: Environment
    reference: str
    max_tokens: int | None = None

    def open(self, world: Mapping[str, Any], locale: str) -> "OwnSession":
        """Return a session of theirs.

        Raises:
            UsageError: the world is impossible, `open` fails, or what it gives is no session.
        """
        with _their_code(f"world: open(world, {locale!r}) of {self.reference}"):
            session = self.inner.open(world, locale)
            missing = [part for part in _SESSION_PARTS if not hasattr(session, part)]
        if missing:
            raise UsageError(
                f"world: open() of {self.reference} returned {_kind(session)} without "
                f"{', '.join(missing)}: see `Session` in lhkit/harness/replay/environment.py"
            )
        return OwnSession(inner=session, max_tokens=self.max_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSession(SessionAround):
    """A session of theirs, with the limit of the command line."""

    max_tokens: int | None = None

    @property
    def registry(self) -> ToolRegistry:
        """Their tools."""
        return self.inner.registry

    @property
    def assistant(self) -> Assistant:
        """Their assistant, with our limit of tokens."""
        assistant = self.inner.assistant
        if self.max_tokens is None:
            return assistant
        sampling = replace(assistant.sampling, max_tokens=self.max_tokens)
        return replace(assistant, sampling=sampling)


def _module(place: str, reference: str) -> ModuleType:
    if place.endswith(".py") or "/" in place or "\\" in place:
        return _file_module(Path(place), reference)
    _importable(Path.cwd())
    try:
        spec = importlib.util.find_spec(place)
    except (ModuleNotFoundError, ValueError):
        spec = None
    if spec is None:
        raise UsageError(f"--environment {reference}: no module {place!r} here: {_HOW}")
    with _their_code(f"--environment {reference}: importing it"):
        return importlib.import_module(place)


def _file_module(file: Path, reference: str) -> ModuleType:
    if not file.is_file() or file.suffix != ".py":
        raise UsageError(f"--environment {reference}: no Python file {file}: {_HOW}")
    path = file.resolve()
    _importable(path.parent)
    name = f"lhkit_environment_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--environment {reference}: Python cannot import {file}: {_HOW}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up by name
    try:
        with _their_code(f"--environment {reference}: importing it"):
            spec.loader.exec_module(module)
    except UsageError:
        del sys.modules[name]
        raise
    return module


def _importable(folder: Path) -> None:
    """Let their code import what lies beside it; last, so that it shadows no installed package."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _named(module: ModuleType, name: str, reference: str) -> Any:
    if not hasattr(module, name):
        own = (each for each, value in vars(module).items() if _is_of(value, module))
        choices = ", ".join(sorted(each for each in own if not each.startswith("_")))
        raise UsageError(
            f"--environment {reference}: {module.__file__} has no {name!r}: "
            f"it defines {choices or 'nothing'}"
        )
    return getattr(module, name)


def _is_of(value: Any, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _environment(found: Any, reference: str) -> Environment:
    is_maker = inspect.isclass(found) or not hasattr(found, "open")
    if is_maker and callable(found):
        with _their_code(f"--environment {reference}: calling {_shown(found)} without arguments"):
            found = found()
    opening = getattr(found, "open", None)
    if not callable(opening):
        raise UsageError(
            f"--environment {reference}: {_kind(found)} has no method open(world, locale): see "
            "`Environment` in lhkit/harness/replay/environment.py"
        )
    environment: Environment = found
    return environment


@contextmanager
def _their_code(doing: str) -> Iterator[None]:
    """Turn whatever their code raises into one sentence with the line of their code.

    Raises:
        UsageError: their code failed.
    """
    try:
        yield
    except LhkitError:
        raise
    except (Exception, SystemExit) as error:
        told = str(error).splitlines()[0] if str(error) else ""
        place = place_in_their_code(error)
        at = f" at {place}" if place else ""
        raise UsageError(
            f"{doing} failed{at}: {type(error).__name__}: {told}".rstrip(": ")
        ) from error


def _shown(maker: Any) -> str:
    return getattr(maker, "__name__", repr(maker))


def _kind(value: Any) -> str:
    return f"an object of type {type(value).__name__}"
