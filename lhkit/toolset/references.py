"""From a reference such as `kitchen.py:Kitchen` to the toolset that it names."""

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from lhkit.errors import UsageError
from lhkit.settings import DEFAULT_TOOLSET
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset.base import BareToolset, Toolset, ToolsetSource
from lhkit.toolset.sessions import their_code

DEFAULT = DEFAULT_TOOLSET

HOW = "write FILE.py:NAME, package.module:NAME, mcp:SERVER or life-helper"

_SHIPPED = {DEFAULT: "lhkit.lifehelper.toolset:LIFE_HELPER"}
_MCP, _MCP_HOME = "mcp:", "lhkit.mcp.toolset"
_PREFIX = "lhkit_toolset_"  # of the modules that files of theirs become


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
    what = f"toolset {reference}"
    found = _found(_SHIPPED.get(reference, reference), what, HOW, fits=_may_be_toolset)
    return _toolset(found, what)


def load_named(what: str, reference: str) -> Any:
    """Return the object that `FILE.py:NAME` or `package.module:NAME` names, whatever it is.

    `what` is how a message calls it, such as `--conversations`.

    Raises:
        UsageError: there is no such file, module or name, or its code fails when it is imported.
    """
    return _found(reference, f"{what} {reference}", "write FILE.py:NAME or package.module:NAME")


def load_toolset(source: ToolsetSource) -> Toolset:
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


def _mcp() -> Any:
    """Return the room that knows servers, which itself goes through this door."""
    return importlib.import_module(_MCP_HOME)


def _found(reference: str, what: str, how: str, *, fits: Callable[[Any], bool] = callable) -> Any:
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{what} has no colon and name: {how}")
    return _named(_module(place, what, how), name, what, fits)


def _module(place: str, what: str, how: str) -> ModuleType:
    if place.endswith(".py") or "/" in place or "\\" in place:
        return _file_module(Path(place), what, how)
    _importable(Path.cwd())
    try:
        spec = importlib.util.find_spec(place)
    except (ModuleNotFoundError, ValueError):
        spec = None
    if spec is None:
        raise UsageError(f"{what}: no module {place!r} here: {how}")
    with their_code(f"{what}: importing it"):
        return importlib.import_module(place)


def _file_module(file: Path, what: str, how: str) -> ModuleType:
    if not file.is_file() or file.suffix != ".py":
        raise UsageError(f"{what}: no Python file {file}: {how}")
    path = file.resolve()
    _importable(path.parent)
    name = f"{_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{what}: Python cannot import {file}: {how}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up by name
    try:
        with their_code(f"{what}: importing it"):
            # Compiled anew: kept bytecode does not notice two saves within a second.
            exec(compile(path.read_bytes(), path, "exec"), vars(module))  # noqa: S102 - as an import does
    except UsageError:
        del sys.modules[name]
        raise
    return module


def _importable(folder: Path) -> None:
    """Let their code import what lies beside it; last, so that it shadows no installed package."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _named(module: ModuleType, name: str, what: str, fits: Callable[[Any], bool]) -> Any:
    if not hasattr(module, name):
        choices = [
            choice
            for choice, value in vars(module).items()
            if not choice.startswith("_")
            and (
                isinstance(value, ToolRegistry)
                or getattr(value, "__module__", "") == module.__name__
            )
            and fits(value)
        ]
        raise UsageError(
            f"{what}: {module.__file__} has no {name!r}: "
            + (f"it defines {', '.join(sorted(choices))}" if choices else "nor another that may be")
        )
    return getattr(module, name)


def _may_be_toolset(value: Any) -> bool:
    """Return True for tools, for what opens worlds, and for a function that may give either."""
    if isinstance(value, ToolRegistry) or callable(getattr(value, "open", None)):
        return True
    if not inspect.isfunction(value):
        return False
    given = inspect.signature(value).parameters.values()
    return all(each.default is not each.empty for each in given)


def _toolset(found: Any, what: str) -> Toolset:
    is_made = isinstance(found, ToolRegistry) or (
        hasattr(found, "open") and not inspect.isclass(found)
    )
    if not is_made and callable(found):
        maker = getattr(found, "__name__", repr(found))
        with their_code(f"{what}: calling {maker} without arguments"):
            found = found()
    if isinstance(found, ToolRegistry):
        return BareToolset(registry=found)
    if not callable(getattr(found, "open", None)):
        raise UsageError(
            f"{what}: an object of type {type(found).__name__} has no method open(world, locale) "
            "and is no ToolRegistry: see docs/own-tools.md"
        )
    toolset: Toolset = found
    return toolset
