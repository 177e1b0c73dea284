"""Tool declarations in Dart, for an app that has the handlers. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lhkit.errors import UsageError

_HEAD = """\
// Written by `lhkit export --schema dart`: do not edit, write it again.
//
// A declaration has no handler, which is the app's:
//
//   for (final tool in lhkitTools)
//     ToolDefinition(
//       name: tool.name,
//       description: tool.description,
//       parametersSchema: tool.parametersSchema,
//       isDestructive: tool.isDestructive,
//       handler: handlers[tool.name]!,
//     ),

/// What a model is told of a tool, and whether a person is asked before it runs.
typedef LhkitTool = ({
  String name,
  String description,
  bool isDestructive,
  Map<String, dynamic> parametersSchema,
});

"""
_PLAIN = re.compile(r"[^\\'$\x00-\x1f\x7f\u2028\u2029\ud800-\udfff]+")
_LONGEST_INT = 2**63


def dart_declarations(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return a Dart file with tools: `name`, `description`, `parameters`, `destructive` of each.

    Raises:
        UsageError: a schema holds a number that Dart does not have.
    """
    return _HEAD + "".join(["const List<LhkitTool> lhkitTools = [\n", *_tools(tools), "];\n"])


def _tools(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for tool in tools:
        yield "  (\n"
        yield f"    name: {_string(str(tool['name']))},\n"
        yield f"    description: {_string(str(tool.get('description', '')))},\n"
        yield f"    isDestructive: {_literal(bool(tool.get('destructive')), 4)},\n"
        yield f"    parametersSchema: {_literal(tool.get('parameters', {}), 4)},\n"
        yield "  ),\n"


def _literal(value: Any, indent: int) -> str:
    """Return a JSON value as a constant of Dart."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() if -_LONGEST_INT <= value < _LONGEST_INT:
            return str(value)
        case float() if value == value and abs(value) != float("inf"):
            return repr(value)
        case str():
            return _string(value)
        case Mapping():
            return _listed("<String, dynamic>{", "}", _entries(value, indent + 2), indent)
        case list() | tuple():
            return _listed("<dynamic>[", "]", [_literal(e, indent + 2) for e in value], indent)
        case _:
            raise UsageError(f"{value!r:.60} in a schema cannot be written in Dart: change it")


def _entries(value: Mapping[Any, Any], indent: int) -> list[str]:
    return [f"{_string(str(key))}: {_literal(each, indent)}" for key, each in value.items()]


def _listed(begin: str, end: str, items: Sequence[str], indent: int) -> str:
    if not items:
        return f"{begin}{end}"
    pad = " " * (indent + 2)
    return begin + "".join(f"\n{pad}{each}," for each in items) + f"\n{' ' * indent}{end}"


def _string(text: str) -> str:
    """Return a Dart string; what could end it, begin an interpolation or hide is escaped."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        plain = _PLAIN.match(text, at)
        if plain:
            parts.append(plain.group())
            at = plain.end()
            continue
        letter = text[at]
        parts.append(f"\\{letter}" if letter in "\\'$" else f"\\u{{{ord(letter):x}}}")
        at += 1
    return f"'{''.join(parts)}'"
