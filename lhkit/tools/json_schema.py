"""The parts of `jsonschema` that lhkit uses: every module takes them from here.

By itself `import jsonschema` takes seconds where `rfc3987-syntax` is installed, which JupyterLab
asks for: the package's door imports it at once, it compiles a grammar, and all of that for the
format `iri`, which is in no schema of ours. So jsonschema gets a stand-in for it while it is
imported, which reads the real one when somebody's `iri` has to be checked: nothing else changes, in
nobody's program. https://github.com/python-jsonschema/jsonschema/issues/1428
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from lhkit.tools.schema import matches_pattern

_SLOW = "rfc3987_syntax"


@contextmanager
def _read_late(name: str) -> Iterator[None]:
    """Import a module's stand-in instead of it, within the block; without it, there is none."""
    if name in sys.modules or find_spec(name) is None:
        yield
        return
    sys.modules[name] = late = _Late(name)
    try:
        yield
    finally:
        if sys.modules.get(name) is late:
            del sys.modules[name]


class _Late(ModuleType):
    """Stands for a module: what it has is a function that imports the module and calls its own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def called(*args: Any, **named: Any) -> Any:
            return getattr(import_module(self.__name__), name)(*args, **named)

        return called


with _read_late(_SLOW):
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import SchemaError, ValidationError, best_match
    from jsonschema.validators import extend
    from referencing.jsonschema import EMPTY_REGISTRY

__all__ = [
    "EMPTY_REGISTRY",
    "Draft202012Validator",
    "FormatChecker",
    "SchemaError",
    "SchemaValidator",
    "ValidationError",
    "best_match",
    "extend",
]


def _pattern(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not matches_pattern(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[Any]:
    if validator.is_type(value, "object"):
        for pattern, inner in patterns.items():
            for name, each in value.items():
                if matches_pattern(pattern, name):
                    yield from validator.descend(each, inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, others: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if not validator.is_type(value, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [
        name
        for name in value
        if name not in named and not any(matches_pattern(each, name) for each in patterns)
    ]
    if isinstance(others, Mapping):
        for name in extra:
            yield from validator.descend(value[name], others, path=name)
    elif extra and others is False:
        yield ValidationError(f"Additional properties are not allowed: {extra}")


SchemaValidator: Any = extend(
    Draft202012Validator,
    validators={
        "additionalProperties": _additional_properties,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
    },
)  # type: ignore[no-untyped-call]
"""Draft 2020-12 with a time limit for regular expressions."""
