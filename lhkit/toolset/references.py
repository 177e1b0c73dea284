"""Load a toolset by its reference, such as `shop.py:toolset`."""

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset.base import BareToolset, Toolset, ToolsetSource
from lhkit.toolset.sessions import user_code
from lhkit.toolset.source import remember_module

DEFAULT = DEFAULT_TOOLSET

_FORMATS = (
    "write FILE.py:NAME, package.module:NAME, mcp:SERVER, life-helper, or a name that an installed "
    "package declares as an entry point of lhkit.toolsets"
)

_SHIPPED = {DEFAULT: "lhkit.lifehelper.toolset:LIFE_HELPER"}
_MCP, _MCP_HOME = "mcp:", "lhkit.mcp.toolset"
_MODULE_PREFIX = "lhkit_toolset_"  # of modules from files


def load(reference: str = DEFAULT) -> Toolset:
    """Return the toolset of a reference, such as `shop.py:toolset`.

    Args:
        reference: `FILE.py:NAME` (a path), `package.module:NAME`, `life-helper`, or `mcp:` and a
            server (its command line, address, `mcp.json#NAME` or `FILE.toml`), or the name of an
            entry point of the group `lhkit.toolsets`. NAME is an object
            with a method `open(world, locale)`, a `ToolRegistry`, or a class or function without
            required arguments that returns one of these.

    Raises:
        UsageError: the file, module or name does not exist, its code fails, or it is not a
            toolset; the message names the line of the user's code.
    """
    if reference.startswith(_MCP):
        served: Toolset = _mcp().from_reference(reference)
        return served
    what = f"toolset {reference}"
    target = _SHIPPED.get(reference) or _installed(reference) or reference
    module, value = _load(target, what, _FORMATS, fits=_may_be_toolset)
    toolset = _as_toolset(value, what)
    remember_module(toolset, module)
    return toolset


def _installed(name: str) -> str | None:
    """Return the reference of an entry point of `lhkit.toolsets`, None if there is none."""
    if ":" in name:
        return None
    points = entry_points(group="lhkit.toolsets", name=name)
    return next((point.value for point in points), None)


def load_named(what: str, reference: str) -> Any:
    """Return the object that `FILE.py:NAME` or `package.module:NAME` refers to.

    Args:
        what: its name in error messages, such as `--conversations`.
        reference: the reference.

    Raises:
        UsageError: the file, module or name does not exist, or importing it fails.
    """
    how = "write FILE.py:NAME or package.module:NAME"
    return _load(reference, f"{what} {reference}", how)[1]


def load_toolset(source: ToolsetSource) -> Toolset:
    """Return the toolset of a `ToolsetSource`.

    Raises:
        UsageError: as `load`.
    """
    return load(source) if isinstance(source, str) else _as_toolset(source, f"toolset {source!r}")


def reference_from(folder: Path, reference: str) -> str:
    """Return a reference with its file relative to `folder`; that of a module is unchanged."""
    if reference.startswith(_MCP):
        relative: str = _mcp().reference_from(folder, reference)
        return relative
    place, _, name = reference.rpartition(":")
    return f"{folder / place}:{name}" if place.endswith(".py") else reference


def label_of(reference: str) -> str:
    """Return the name in a reference, of its file, module or server, or `life-helper`."""
    if reference.startswith(_MCP):
        label: str = _mcp().label_of(reference)
        return label
    place = reference.rpartition(":")[0].removesuffix(".py")
    return re.split(r"[/\\.]", place)[-1] or reference


def _mcp() -> Any:
    """Return the module of MCP toolsets, which imports this one."""
    return importlib.import_module(_MCP_HOME)


def _load(
    reference: str, what: str, how: str, *, fits: Callable[[Any], bool] = callable
) -> tuple[ModuleType, Any]:
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"{what} has no colon and name: {how}")
    module = _import(place, what, how)
    return module, _attribute(module, name, what, fits)


def _import(place: str, what: str, how: str) -> ModuleType:
    if place.endswith(".py") or "/" in place or "\\" in place:
        return _import_file(Path(place), what, how)
    _add_to_path(Path.cwd())
    try:
        spec = importlib.util.find_spec(place)
    except (ModuleNotFoundError, ValueError):
        spec = None
    if spec is None:
        raise UsageError(f"{what}: no module {place!r} here: {how}")
    with user_code(f"{what}: importing it"):
        return importlib.import_module(place)


def _import_file(file: Path, what: str, how: str) -> ModuleType:
    if not file.is_file() or file.suffix != ".py":
        raise UsageError(f"{what}: no Python file {file}: {how}")
    path = file.resolve()
    _add_to_path(path.parent)
    name = f"{_MODULE_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{what}: Python cannot import {file}: {how}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up by name
    try:
        with user_code(f"{what}: importing it"):
            # not from cached bytecode, which misses two saves within a second
            exec(compile(path.read_bytes(), path, "exec"), vars(module))  # noqa: S102 - as an import does
    except UsageError:
        del sys.modules[name]
        raise
    return module


def _add_to_path(folder: Path) -> None:
    """Let user code import modules in its folder; last, so that they shadow no package."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _attribute(module: ModuleType, name: str, what: str, fits: Callable[[Any], bool]) -> Any:
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
            + (f"it defines {', '.join(sorted(choices))}" if choices else "and no other candidate")
        )
    return getattr(module, name)


def _may_be_toolset(value: Any) -> bool:
    """Return True for a registry, a toolset, or a function without required arguments."""
    if isinstance(value, ToolRegistry) or callable(getattr(value, "open", None)):
        return True
    if not inspect.isfunction(value):
        return False
    parameters = inspect.signature(value).parameters.values()
    return all(parameter.default is not parameter.empty for parameter in parameters)


def _as_toolset(value: Any, what: str) -> Toolset:
    is_instance = isinstance(value, ToolRegistry) or (
        hasattr(value, "open") and not inspect.isclass(value)
    )
    if not is_instance and callable(value):
        name = getattr(value, "__name__", repr(value))
        with user_code(f"{what}: calling {name} without arguments"):
            value = value()
    if isinstance(value, ToolRegistry):
        return BareToolset(registry=value)
    if not callable(getattr(value, "open", None)):
        raise UsageError(
            f"{what}: an object of type {type(value).__name__} has no method open(world, locale) "
            "and is not a ToolRegistry: see the page 'Your first toolset' of the documentation"
        )
    toolset: Toolset = value
    return toolset
