"""The hash of the source of a toolset: its module, and what that imports from its own folder."""

import ast
import hashlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from lhkit.base.locales import load_catalog
from lhkit.base.notices import NOTICE, Notice
from lhkit.toolset.base import BareToolset, Toolset, is_blocking
from lhkit.toolset.sessions import WrappedToolset

_MOST_REMEMBERED = 100
_IMPORTERS = frozenset({"import_module", "__import__"})
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
_Module: TypeAlias = tuple[str, str]
"""The name of a module and its file; not only the name, which several files may share."""
_loaded: dict[int, tuple[Toolset, _Module]] = {}
_first_sha256: "WeakKeyDictionary[ModuleType, str]" = WeakKeyDictionary()
"""The hash of the file of an imported module when it was first needed."""

_log = logging.getLogger(__name__)


def remember_module(toolset: Toolset, module: ModuleType) -> None:
    """Remember the module that a reference named; its object may be of a class from elsewhere."""
    found = (module.__name__, module.__file__ or "")
    _loaded[id(toolset)] = (toolset, found)  # kept alive, so the id is unique
    while len(_loaded) > _MOST_REMEMBERED:
        del _loaded[next(iter(_loaded))]


def source_sha256(toolset: Toolset) -> str:
    """Return the hash of a toolset's source files; empty if they are unknown.

    These are the module of the toolset (of the functions, for a plain registry) and all modules
    that it imports, directly or not, and that are not installed (for an installed one: those of
    its package). They are unknown for tools of another process, such as an MCP server, and for
    code without a file. A file that was edited after this process had imported it counts as before,
    since its old code is still the one that runs; a notice says so.
    """
    digest = hashlib.sha256()
    modules = _modules_of(toolset)
    for name, file in sorted(modules):
        files = dict(_files(name, Path(file)))
        if not files:
            return ""
        for path, sha256 in sorted(files.items()):
            digest.update(f"{path}\0{sha256}\n".encode())
    return digest.hexdigest() if modules else ""


def module_of(toolset: Toolset) -> ModuleType | None:
    """Return the module that a toolset was loaded from, or that of its class."""
    while isinstance(toolset, WrappedToolset):
        toolset = toolset.inner
    for name, _ in _modules_of(toolset):
        return sys.modules.get(name)
    return None


def module_files(name: str, file: str) -> Iterator[tuple[str, str]]:
    """Yield path and hash of a module's file and of those that it imports; nothing if unknown."""
    yield from _files(name, Path(file))


def is_installed(module: ModuleType) -> bool:
    """Return whether a module is part of Python, of lhkit or of an installed package."""
    top = module.__name__.split(".")[0]
    folders = {*Path(getattr(module, "__file__", None) or "").parts}
    is_shipped = top == "lhkit" or top in sys.stdlib_module_names
    return (is_shipped and top != "__main__") or bool(_PACKAGE_FOLDERS & folders)


def _modules_of(toolset: Toolset) -> set[_Module]:
    """Return the modules with the code of a toolset; empty if unknown."""
    while isinstance(toolset, WrappedToolset):
        toolset = toolset.inner
    if is_blocking(toolset):
        return set()
    remembered = _loaded.get(id(toolset))
    if remembered is not None and remembered[0] is toolset:
        return {remembered[1]}
    names = {type(toolset).__module__}
    if isinstance(toolset, BareToolset):
        names = {_module_of(tool.handler) for tool in toolset.registry.definitions}
    return {(name, getattr(sys.modules.get(name), "__file__", None) or "") for name in names}


def _module_of(handler: Any) -> str:
    """Return the module of the function that a handler calls; empty if unknown."""
    function = getattr(handler, "function", handler)
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__module__"):
        function = type(function)
    module = str(function.__module__ or "")
    return "" if module.split(".")[0] in {"lhkit", "builtins"} else module


@dataclass(frozen=True, slots=True)
class _Folder:
    """The folder from which a module imports its own; `package` limits it to one package.

    Packages that are installed side by side have such a limit; a project's own have none.
    """

    root: Path
    package: str = ""

    def find(self, name: str) -> Path | None:
        """Return the file of a module of this folder; None if there is none."""
        if not f"{name}.".startswith(f"{self.package}." if self.package else ""):
            return None
        path = self.root.joinpath(*name.split("."))
        candidates = (path / "__init__.py", path.with_name(f"{path.name}.py"))
        return next((file for file in candidates if file.is_file()), None)


def _files(module: str, file: Path) -> Iterator[tuple[str, str]]:
    """Yield path and hash of a module's file and of those that it imports; nothing if unknown."""
    if file.suffix != ".py" or not file.is_file():
        return
    file = file.resolve()
    parts = module.split(".")
    if len(parts) == 1 and file.stem not in {module, "__init__"}:  # was loaded by its path
        parts = [file.stem]
    root = file.parents[len(parts) - (file.stem != "__init__")]
    is_installed = bool(_PACKAGE_FOLDERS & {*root.parts})
    own = 2 if parts[0] == "lhkit" else 1 if is_installed else 0
    folder, waiting = _Folder(root, ".".join(parts[:own])), {".".join(parts): file}
    seen = {*waiting}
    while waiting:
        name, path = waiting.popitem()
        state = path.stat()
        sha256, imports = _scan(path, name, state.st_mtime_ns, state.st_size)
        sha256 = _imported_sha256(module if path == file else name, path, sha256)
        is_inside = path.is_relative_to(folder.root)
        yield path.relative_to(folder.root).as_posix() if is_inside else name, sha256
        for imported in imports:
            pieces = imported.split(".")
            if pieces[0] == "lhkit" and parts[0] != "lhkit":  # its version is compared
                continue
            for end in range(1, len(pieces) + 1):  # a package runs before its modules
                inner = ".".join(pieces[:end])
                if inner in seen:
                    continue
                seen.add(inner)
                found = folder.find(inner) or (None if own else _project_file(inner))
                if found is not None:
                    waiting[inner] = found


def _imported_sha256(name: str, path: Path, sha256: str) -> str:
    """Return the hash that a file had when its module was first needed, else the present one."""
    module = sys.modules.get(name)
    if module is None or Path(getattr(module, "__file__", None) or "").resolve() != path:
        return sha256
    first = _first_sha256.setdefault(module, sha256)
    if first != sha256:
        notice: Notice = ("tools.edited_file", {"file": path.name})
        text = load_catalog("en").text(notice[0], **notice[1])
        _log.warning("%s", text, extra={NOTICE: notice})
    return first


def _project_file(name: str) -> Path | None:
    """Return the file of a module from elsewhere on `sys.path`; None if it is installed."""
    top = name.split(".")[0]
    if top == "lhkit" or top in sys.stdlib_module_names:
        return None
    try:
        spec = find_spec(top)  # of a top-level name, which imports nothing
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    locations = spec.submodule_search_locations or [spec.origin or ""]
    roots = [Path(location).resolve().parent for location in locations if location]
    found = (_Folder(root).find(name) for root in roots if not _PACKAGE_FOLDERS & {*root.parts})
    return next(filter(None, found), None)


@lru_cache(maxsize=1_024)
def _scan(path: Path, name: str, _mtime_ns: int, _size: int) -> tuple[str, tuple[str, ...]]:
    """Return the hash of a file, and all names that may be modules which it imports."""
    content = path.read_bytes().replace(b"\r\n", b"\n")  # as git checks it out elsewhere
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return sha256, ()
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    imports: list[str] = []
    is_calling = any(name.encode() in content for name in _IMPORTERS)
    for node in ast.walk(tree) if is_calling else _statements(tree):
        if isinstance(node, ast.Import):
            imports += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            imports += (f"{base}.{alias.name}".lstrip(".") for alias in node.names)
        elif isinstance(node, ast.Call) and _called_name(node) in _IMPORTERS:
            named = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
            imports += (
                ".".join([*package, each.lstrip(".")]) if each.startswith(".") else each
                for each in named
                if isinstance(each, str)
            )
    return sha256, tuple(imports)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements, without walking their expressions, which are ten times as many."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            waiting += inner if isinstance(inner, list) else ()


def _called_name(call: ast.Call) -> str:
    """Return the last part of the name of a called function."""
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")
