"""Read descriptions of tools as OpenAI, Anthropic, Gemini, Bedrock, MCP or a table write them.

Repairs of a tool: `type_name` (a type in capitals or as Python names it), `padding` (nulls and
empty lists, with which a table fills the fields of others), `no_type`, `json_text`, `flat` (a table
of arguments instead of a schema, as in xLAM), `unknown_type` (left out: any value fits), `renamed`,
`repeated` (listed again, with an equal description).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lhkit.base.errors import UsageError
from lhkit.base.schema import with_subschemas
from lhkit.imports.decoding import decode_json
from lhkit.tools.registration import NAME_PATTERN

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
    **{"tuple": "array", "none": "null", "set": "array", "text": "string"},
    **{"int32": "integer", "int64": "integer", "long": "integer", "decimal": "number"},
    **{"map": "object", "mapping": "object", "json": "object", "sequence": "array"},
}
_GENERIC = re.compile(r"(?:typing\.)?(\w+)\[(.*)\]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolList:
    """The functions of a `tools` array (name, description, parameters).

    `builtin` are the types of the provider's own tools, which are left out; `repairs` the codes of
    repairs by the name of the tool; `renamed` the new name of each tool whose name no server takes.
    """

    functions: tuple[dict[str, Any], ...]
    builtin: tuple[str, ...] = ()
    repairs: Mapping[str, tuple[str, ...]]
    renamed: Mapping[str, str] = field(default_factory=dict)


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
        if function in functions:
            found["repeated"] = None
        else:
            functions.append(function)
        if found:
            earlier = repairs.get(function["name"], ())
            repairs[function["name"]] = tuple(dict.fromkeys((*earlier, *found)))
    renamed = _new_names([function["name"] for function in functions])
    for old, new in renamed.items():
        repairs[new] = (*repairs.pop(old, ()), "renamed")
    return ToolList(
        functions=tuple({**f, "name": renamed.get(f["name"], f["name"])} for f in functions),
        builtin=tuple(builtin),
        repairs=repairs,
        renamed=renamed,
    )


def _new_names(names: Sequence[str]) -> dict[str, str]:
    """Return the new name of each tool that servers would refuse: `math.sqrt` → `math_sqrt`.

    Raises:
        UsageError: two tools would have the same name.
    """
    renamed = {
        name: re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:64]
        for name in names
        if not NAME_PATTERN.fullmatch(name)
    }
    if without := [old for old, new in renamed.items() if not new]:
        raise UsageError(
            f"the name of the tool {without[0]!r} must match {NAME_PATTERN.pattern}: rename it."
        )
    taken = [renamed.get(name, name) for name in dict.fromkeys(names)]
    if twice := [name for name in taken if taken.count(name) > 1]:
        raise UsageError(f"two tools would be called {twice[0]}: rename one.")
    return renamed


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
    if is_flat(schema):
        repairs["flat"] = None
        schema = flat_schema(schema)
    normal = _normalize(schema, repairs)
    if isinstance(normal, Mapping) and "type" not in normal:
        repairs["no_type"] = None
        return {"type": "object", **normal}
    return normal


def is_flat(schema: Any) -> bool:
    """Return whether this is a table of arguments, `{"city": {"type": "str"}}`, not a schema."""
    return (
        isinstance(schema, Mapping)
        and bool(schema)
        and not isinstance(schema.get("type"), str | list)
        and not schema.keys() & _SCHEMA_ONLY_KEYS
        and not ("properties" in schema and _is_table(schema["properties"]))
        and _is_table(schema)
    )


def _is_table(value: Any) -> bool:
    """Return whether every value describes an argument."""
    return isinstance(value, Mapping) and all(
        inner is None
        or (isinstance(inner, Mapping) and bool(inner.keys() & {"type", "description", "enum"}))
        for inner in value.values()
    )


_SCHEMA_ONLY_KEYS = frozenset({"$ref", "allOf", "anyOf", "oneOf", "$defs", "definitions"})
_OPTIONAL = re.compile(r",?\s*\(?\boptional\b\)?\s*$|,\s*default\b.*$", re.IGNORECASE)


def flat_schema(
    table: Mapping[str, Any], *, may_be_required: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the schema of a table of arguments.

    Required are those whose type is not called optional and that have no default.

    Args:
        table: name, type, description and default of each argument.
        may_be_required: the arguments that calls never leave out; all by default.
    """
    properties: dict[str, Any] = {}
    required = []
    for name, described in table.items():
        if described is None:  # padding
            continue
        kind = described.get("type")
        text = kind if isinstance(kind, str) else ""
        bare = _OPTIONAL.sub("", text)
        is_marked = described.get("required")
        is_optional = bare != text or "default" in described or text.startswith("Optional[")
        if is_marked is True or (is_marked is None and not is_optional):
            required.append(name)
        more = {key: value for key, value in described.items() if key != "required"}
        properties[name] = {**more, "type": bare} if text else more
    if may_be_required is not None:
        required = [name for name in required if name in may_be_required]
    return {"type": "object", "properties": properties, "required": required}


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
    if isinstance(plain.get("required"), bool):  # on the argument, as in xLAM's relatives
        del plain["required"]
    if "type" in plain:
        plain |= _read_type(plain["type"], plain)
        if plain["type"] is None:
            del plain["type"]
            repairs["unknown_type"] = None
        elif plain["type"] != schema["type"]:
            repairs["type_name"] = None
    return with_subschemas(plain, lambda inner: _normalize(inner, repairs))


def _read_type(value: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type by its standard name, and the items of a `List[int]`; None if unknown."""
    if not isinstance(value, str):
        return {"type": _type_name(value)}
    name = _OPTIONAL.sub("", value.strip())
    if name.lower() in _TYPE_NAMES:
        return {"type": _TYPE_NAMES[name.lower()]}
    generic = _GENERIC.fullmatch(name)
    if generic is None:
        return {"type": None if _is_python_type(value) else value}
    outer, inner = generic[1].lower(), generic[2].strip()
    if outer == "optional":
        return _read_type(inner, schema)
    kind = _TYPE_NAMES.get(outer)
    items = _TYPE_NAMES.get(inner.lower())
    if kind == "array" and outer != "tuple" and items is not None and "items" not in schema:
        return {"type": kind, "items": {"type": items}}
    return {"type": kind}


def _is_python_type(value: str) -> bool:
    """Return whether a name that is not JSON Schema's is one that any value may have."""
    return value.strip().lower() in _ANY_TYPES or not value.strip().islower()


_ANY_TYPES = frozenset({"any", "callable", "date", "datetime", "bytes", "function", "ndarray"})


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
