"""The hash of a score's source, so that results of another source are not reused.

It covers the file of the function and what that imports from its own folder. For a function without
a file (a notebook cell, the interpreter) it covers its compiled code and the functions and values
that it uses. Values in a closure, of a partial or of an object with `__call__` count in both cases.
"""

import dis
import hashlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from lhkit.toolset.source import is_installed, module_files

_MUTABLE = (list, dict, set, bytearray)
_PLAIN = (str, bytes, int, float, complex, type(None), tuple, frozenset, re.Pattern, *_MUTABLE)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def function_sha256(function: Any) -> str:
    """Return the hash of the source of a function, and of the values that it is bound to."""
    digest = hashlib.sha256()
    for part in _parts(function, set(), is_score=True):
        digest.update(f"{part}\0".encode(errors="backslashreplace"))
    return digest.hexdigest()


def _parts(  # noqa: C901, PLR0912 - one branch a kind of value
    value: Any, seen: set[int], *, in_file: bool = False, is_score: bool = False
) -> Iterator[str]:
    """Yield texts that describe a value; of a function, what it does.

    Args:
        value: the value.
        seen: ids of values that were described already.
        in_file: the value is part of a function in a file. Its lists and dicts come from there, and
            may be changed while it runs.
        is_score: the function is the score itself; of another installed one the name suffices.
    """
    if isinstance(value, str | bytes | int | float | complex | None):
        yield repr(value)
        return
    if isinstance(value, re.Pattern):
        yield f"{value.pattern!r} {value.flags}"
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, tuple | frozenset):
        items = value if isinstance(value, tuple) else sorted(value, key=repr)
        yield f"{type(value).__name__} {len(items)}"
        for item in items:
            yield from _parts(item, seen, in_file=in_file)
    elif isinstance(value, _MUTABLE):
        if not in_file:
            yield _ADDRESS.sub("", repr(value))
    elif isinstance(value, partial):
        yield "partial"
        yield from _parts(value.func, seen, is_score=is_score)
        yield from _parts(value.args, seen)
        yield repr(sorted(value.keywords))
        for _, item in sorted(value.keywords.items()):
            yield from _parts(item, seen)
    elif isinstance(value, MethodType):
        yield from _parts(value.__func__, seen, is_score=is_score)
        yield from _parts(value.__self__, seen, in_file=in_file)
    elif isinstance(value, FunctionType):
        yield from _function_parts(value, seen, is_score=is_score)
    elif isinstance(value, ModuleType):
        yield value.__name__
        if not is_installed(value):
            yield from _file_parts(value)
    elif inspect.isclass(value):
        yield from _class_parts(value, seen)
    else:
        yield from _object_parts(value, seen, in_file=in_file)


def _function_parts(function: FunctionType, seen: set[int], *, is_score: bool) -> Iterator[str]:
    yield f"{function.__module__}.{function.__qualname__}"
    module = sys.modules.get(function.__module__)
    if module is not None and is_installed(module) and not is_score:
        return
    files = list(_file_parts(module, function.__code__))
    yield from files
    if not files:
        yield from _code_parts(function.__code__)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                yield name
                yield from _parts(function.__globals__[name], seen)
    in_file = bool(files)
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # a variable without a value yet
            continue
        yield from _parts(content, seen, in_file=in_file)
    yield from _parts(function.__defaults__ or (), seen, in_file=in_file)
    for _, item in sorted((function.__kwdefaults__ or {}).items()):
        yield from _parts(item, seen, in_file=in_file)


def _code_parts(code: CodeType) -> Iterator[str]:
    """Yield the instructions of a function, without places in its file."""
    for instruction in dis.get_instructions(code):
        argument = instruction.argval
        if isinstance(argument, CodeType):
            yield from _code_parts(argument)
        else:
            if isinstance(argument, frozenset):  # without an order
                argument = sorted(argument, key=repr)
            yield f"{instruction.opname} {_ADDRESS.sub('', repr(argument))}"


def _names(code: CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _file_parts(module: ModuleType | None, code: CodeType | None = None) -> Iterator[str]:
    """Yield the files of a module with their hashes; nothing if it has no file.

    `code` is of a function that says to be of the module: one of a notebook's cell is not.
    """
    file = getattr(module, "__file__", None)
    if module is None or not file or (code is not None and code.co_filename != file):
        return
    for path, sha256 in sorted(module_files(module.__name__, file)):
        yield f"{path} {sha256}"


def _class_parts(kind: type, seen: set[int]) -> Iterator[str]:
    yield f"{kind.__module__}.{kind.__qualname__}"
    module = sys.modules.get(kind.__module__)
    if module is not None and is_installed(module):
        return
    files = list(_file_parts(module))
    yield from files
    if files:
        return
    for name, member in sorted(vars(kind).items()):
        if isinstance(member, FunctionType | staticmethod | classmethod | property):
            yield name
            inner = member.fget if isinstance(member, property) else member
            yield from _parts(getattr(inner, "__func__", inner), seen)


def _object_parts(value: Any, seen: set[int], *, in_file: bool) -> Iterator[str]:
    """Yield the class of an object and its plain attributes; of other objects in it the class."""
    yield from _parts(type(value), seen)
    for name, item in sorted((getattr(value, "__dict__", None) or {}).items()):
        yield name
        if isinstance(item, _PLAIN) or callable(item):
            yield from _parts(item, seen, in_file=in_file)
        else:
            yield type(item).__qualname__
