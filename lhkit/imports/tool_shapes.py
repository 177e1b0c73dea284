"""Read descriptions of tools as OpenAI, Anthropic, Gemini, Bedrock, MCP or a table write them.

Repairs of a tool: `type_name` (a type in capitals or as Python names it), `padding` (nulls and
empty lists, with which a table fills the fields of others), `no_type`, `json_text`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.schema import with_subschemas
from lhkit.imports.decoding import decode_json

_LIST_KEYS = ("tools", "functions")
_GROUP_KEYS = ("functionDeclarations", "function_declarations")  # Gemini: several in an entry
_INNER_KEYS = ("function", "toolSpec")
_SCHEMA_KEYS = (
    *("parameters", "input_schema", "inputSchema"),
    *("parametersJsonSchema", "parameters_json_schema"),
)
_DATA_KEYS = frozenset({"const", "default", "enum", "examples"})
_CHOICE_KEYS = frozenset({"enum", "anyOf", "oneOf", "allOf"})  # an empty one accepts nothing
_TYPE_NAMES = {
    **{name: name for name in ("array", "boolean", "integer", "null", "number", "object")},
    **{"string": "string", "str": "string", "int": "integer", "float": "number"},
    **{"double": "number", "bool": "boolean", "dict": "object", "list": "array"},
    **{"tuple": "array", "none": "null"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolList:
    """The functions of a `tools` array (name, description, parameters).

    `builtin` are the types of the provider's own tools, which are left out; `repairs` the codes of
    repairs by the name of the tool.
    """

    functions: tuple[dict[str, Any], ...]
    builtin: tuple[str, ...] = ()
    repairs: Mapping[str, tuple[str, ...]]


def parse_tools(tools: Any) -> tuple[dict[str, Any], ...]:
    """Return the functions (name, description, parameters) of a `tools` array, as `read_tools`."""
    return read_tools(tools).functions


def read_tools(tools: Any) -> ToolList:
    """Read a `tools` array.

    Args:
        tools: the array, its JSON text, or an object with the array under `tools` or `functions`.
            An entry is a function, with or without `{"type": "function", "function": …}` around
            it; its schema is under `parameters`, `input_schema` or `inputSchema`.

    Raises:
        UsageError: the array is invalid; the message names the entry.
    """
    entries = decode_json(tools)
    if isinstance(entries, Mapping):
        entries = next((decode_json(entries[key]) for key in _LIST_KEYS if key in entries), entries)
    if isinstance(entries, Mapping) and _is_entry(entries):
        entries = [entries]
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise UsageError('tools must be a list such as [{"type": "function", "function": {…}}].')
    functions: list[dict[str, Any]] = []
    builtin: list[str] = []
    repairs: dict[str, tuple[str, ...]] = {}
    for label, entry in _flat(entries):
        if kind := _builtin_type(entry):
            builtin.append(kind)
            continue
        found: dict[str, None] = {}
        function = _read_function(entry, found)
        if function is None:
            raise UsageError(f"{label} has no function with a name: use OpenAI's format.")
        functions.append(function)
        if found:
            repairs[function["name"]] = tuple(found)
    return ToolList(functions=tuple(functions), builtin=tuple(builtin), repairs=repairs)


def _flat(entries: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries with their places; those of a group one by one, and no padding."""
    for number, entry in enumerate(entries):
        groups = (entry.get(key) for key in _GROUP_KEYS if isinstance(entry, Mapping))
        group = next(filter(None, groups), None)
        if isinstance(group, list):
            yield from ((f"tools[{number}][{i}]", inner) for i, inner in enumerate(group))
        elif entry is not None:
            yield f"tools[{number}]", entry


def _is_entry(entry: Mapping[str, Any]) -> bool:
    keys = ("name", *_INNER_KEYS, *_GROUP_KEYS)
    return any(isinstance(entry.get(key), str | Mapping | list) for key in keys)


def _builtin_type(entry: Any) -> str:
    """Return the type of a tool that the provider runs itself; empty for a function."""
    kind = entry.get("type") if isinstance(entry, Mapping) else None
    if not isinstance(kind, str) or kind in {"function", "custom"}:
        return ""
    described = any(entry.get(key) for key in (*_INNER_KEYS, *_SCHEMA_KEYS, "description"))
    is_versioned = kind[-8:].isdecimal()  # web_search_20250305, which has a name, too
    return kind if not described and ("name" not in entry or is_versioned) else ""


def _read_function(entry: Any, repairs: dict[str, None]) -> dict[str, Any] | None:
    """Return name, description and parameters of an entry; None if it has no name."""
    decoded = _decoded(entry, repairs)
    if not isinstance(decoded, Mapping):
        return None
    inner = next((decoded[key] for key in _INNER_KEYS if decoded.get(key)), decoded)
    function = _decoded(inner, repairs)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return None
    schemas = (source.get(key) for source in (function, decoded) for key in _SCHEMA_KEYS)
    schema = _decoded(next((value for value in schemas if value is not None), None), repairs)
    if isinstance(schema, Mapping) and list(schema) == ["json"]:  # Bedrock
        schema = _decoded(schema["json"], repairs)
    rest = {
        key: value
        for key, value in function.items()
        if key not in _SCHEMA_KEYS and key not in {"type", *_INNER_KEYS} and value is not None
    }
    return {**rest, "parameters": _read_schema(schema, repairs)}


def _decoded(value: Any, repairs: dict[str, None]) -> Any:
    decoded = decode_json(value)
    if decoded is not value:
        repairs["json_text"] = None
    return decoded


def _read_schema(schema: Any, repairs: dict[str, None]) -> Any:
    """Return the schema of the arguments; one without any arguments if there is none."""
    if schema is None or schema in ({}, [], ""):
        return {"type": "object", "properties": {}}
    normal = _normalize(schema, repairs)
    if isinstance(normal, Mapping) and "type" not in normal:
        repairs["no_type"] = None
        return {"type": "object", **normal}
    return normal


def _normalize(schema: Any, repairs: dict[str, None]) -> Any:
    """Return a schema with types by their standard names, and without padding."""
    if not isinstance(schema, Mapping):
        return schema
    plain = {key: value for key, value in schema.items() if not _is_padding(key, value, schema)}
    if "properties" in plain:
        table = _decoded(plain["properties"], repairs)
        if isinstance(table, Mapping):
            declared = {name: inner for name, inner in table.items() if inner is not None}
            if len(declared) < len(table):
                repairs["padding"] = None
            table = declared
        plain["properties"] = table
    if len(plain) < len(schema):
        repairs["padding"] = None
    if "type" in plain:
        plain["type"] = _type_name(plain["type"])
        if plain["type"] != schema["type"]:
            repairs["type_name"] = None
    return with_subschemas(plain, lambda inner: _normalize(inner, repairs))


def _is_padding(key: str, value: Any, schema: Mapping[str, Any]) -> bool:
    if value is None and key == "default":
        types = _type_name(schema.get("type"))
        return types is not None and "null" not in ([types] if isinstance(types, str) else types)
    return (value is None and key not in _DATA_KEYS - {"enum"}) or (
        value == [] and key in _CHOICE_KEYS
    )


def _type_name(value: Any) -> Any:
    """Return a type, or a list of types, by standard names; unknown ones as they are."""
    if isinstance(value, list):
        return [_type_name("null" if item is None else item) for item in value]
    return _TYPE_NAMES.get(value.strip().lower(), value) if isinstance(value, str) else value
