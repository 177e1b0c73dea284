"""Render the declarations of tools as the chat templates of FunctionGemma and Gemma 4 do.

A declaration is not a JSON Schema: a template names the keywords that it renders (`description`,
`enum`, `items`, `nullable`, `properties`, `required`, `type`) and leaves out all others, such as
limits, patterns, defaults, `anyOf` and `$ref`. What looks like an oversight here is one of the
templates, which every runtime of the checkpoint shares.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lhkit.base.json_values import plain_json
from lhkit.models.dialects.base import ToolSpec, tool_spec
from lhkit.models.dialects.markup import Markup, sorted_items

_STANDARD_KEYS = frozenset({"description", "type", "properties", "required", "nullable"})


def render_declaration(markup: Markup, tool: ToolSpec) -> str:
    """Return the declaration of a tool, between its tokens.

    Raises:
        NotJsonError: the schema is not JSON.
    """
    spec = tool_spec(tool)
    name = markup.escape_control_tokens(str(spec.get("name")))
    members = [f"description:{_text(markup, spec.get('description', ''))}"]
    parameters = spec.get("parameters")
    if isinstance(parameters, Mapping) and parameters:
        members.append("parameters:{" + _arguments(markup, plain_json(parameters)))
    if markup.declares_responses and isinstance(tool, Mapping) and "response" in tool:
        members.append("response:{" + _response(markup, plain_json(tool["response"])))
    start, end = markup.declaration
    return f"{start}declaration:{name}{{{','.join(members)}}}{end}"


def undeclared_parameters(markup: Markup, tools: Iterable[ToolSpec]) -> dict[str, list[str]]:
    """Return the parameters that the template leaves out, by tool; not those of nested objects."""
    if not markup.skips_standard_names:
        return {}
    specs = [tool_spec(tool) for tool in tools]
    skipped = {
        str(spec.get("name")): sorted(_STANDARD_KEYS & {*spec["parameters"].get("properties", {})})
        for spec in specs
        if isinstance(spec.get("parameters"), Mapping)
    }
    return {name: names for name, names in skipped.items() if names}


def _arguments(markup: Markup, schema: Mapping[str, Any]) -> str:
    """Return the schema of the arguments, which the template closes after the type only."""
    text = ""
    if schema.get("properties"):
        text += "properties:{" + _properties(markup, schema["properties"]) + "},"
    if schema.get("required"):
        text += _required(markup, schema["required"]) + ","
    if schema.get("type"):
        text += _type(markup, schema) + "}"
    return text


def _response(markup: Markup, schema: Any) -> str:
    """Return the schema of the result, closed only if it is an object, as in the template."""
    if not isinstance(schema, Mapping):
        return ""
    text = ""
    if schema.get("description"):
        text += f"description:{_text(markup, schema['description'])},"
    if str(schema.get("type", "")).upper() == "OBJECT":
        text += _type(markup, schema) + "}"
    return text


def _properties(markup: Markup, properties: Any, *, is_schema: bool = False) -> str:
    """Return the properties of an object.

    Args:
        markup: the tokens of the family.
        properties: schemas by name.
        is_schema: it is a schema without `properties`, whose other keywords are rendered as if
            they were properties.
    """
    if not isinstance(properties, Mapping):
        return ""
    skips = is_schema or markup.skips_standard_names
    return ",".join(
        f"{markup.key(name)}:{{{','.join(_property(markup, schema))}}}"
        for name, schema in sorted_items(properties)
        if not (skips and name in _STANDARD_KEYS)
    )


def _property(markup: Markup, schema: Any) -> Iterator[str]:
    """Yield the members of the declaration of one property."""
    value = schema if isinstance(schema, Mapping) else {}
    kind = str(value.get("type", "")).upper()
    if value.get("description") or markup.describes_every_property:
        yield f"description:{_text(markup, value.get('description', ''))}"
    if kind == "STRING" and value.get("enum"):
        yield f"enum:{markup.value(value['enum'], quotes_keys=True)}"
    items = value.get("items")
    if kind == "ARRAY" and isinstance(items, Mapping) and items:
        yield f"items:{{{','.join(_items(markup, items))}}}"
    if value.get("nullable") and markup.declares_nullable:
        yield "nullable:true"
    if kind == "OBJECT":
        inner = value.get("properties")
        if isinstance(inner, Mapping):
            yield f"properties:{{{_properties(markup, inner)}}}"
        else:
            yield f"properties:{{{_properties(markup, value, is_schema=True)}}}"
        if value.get("required"):
            yield _required(markup, value["required"])
    yield _type(markup, value)


def _items(markup: Markup, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the members of the schema of an array's items, all of its keywords."""
    for keyword, value in sorted_items(schema):
        if value is None:
            continue
        if keyword == "properties":
            yield f"properties:{{{_properties(markup, value)}}}"
        elif keyword == "required":
            yield _required(markup, value)
        elif keyword == "type":
            kinds = [value] if isinstance(value, str) else value
            upper = [str(kind).upper() for kind in kinds]
            yield f"type:{markup.value(upper[0] if isinstance(value, str) else upper)}"
        else:
            yield f"{markup.key(keyword)}:{markup.value(value, quotes_keys=True)}"


def _required(markup: Markup, names: Iterable[Any]) -> str:
    return f"required:[{','.join(_text(markup, name) for name in names)}]"


def _type(markup: Markup, schema: Mapping[str, Any]) -> str:
    return f"type:{_text(markup, str(schema.get('type', '')).upper())}"


def _text(markup: Markup, value: Any) -> str:
    """Return any value as a string, written as Jinja writes it."""
    return markup.string(str(value))
