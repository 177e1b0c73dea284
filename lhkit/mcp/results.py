"""Convert results of MCP tools, and validate them against their `outputSchema`.

A server's schema is untrusted: its regular expressions are not run, nothing is fetched, and
validation ends after a number of steps. A result that cannot be validated counts as valid.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import getLogger
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lhkit.base.json_values import NotJsonError, plain_json, shown
from lhkit.base.schema import NOTED_FORMAT, subschemas, with_subschemas
from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.tools.describe import expected_value
from lhkit.tools.drafts import upgrade_schema
from lhkit.tools.json_schema import (
    EMPTY_REGISTRY,
    Draft202012Validator,
    SchemaValidator,
    best_match,
    extend,
)

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, Tool

_log = getLogger(__name__)

BAD_RESULT = "bad_result"
"""The error code of a result that violates its `outputSchema`."""

MAX_STEPS = 20_000
"""The most keywords evaluated in a result: about a second of work."""

_SHOWN_CHARS = 60


def convert_result(answer: "CallToolResult") -> ToolOk | ToolErr:
    """Convert a result of an MCP tool."""
    texts: list[str] = []
    notes: list[str] = []
    for block in answer.content:
        text, is_note = _text_of(block)
        (notes if is_note else texts).append(text)
    structured = answer.structured_content
    if answer.is_error:
        if structured not in ({}, [], "", None) and not _is_repeated(texts, structured):
            notes.append(json.dumps(structured, ensure_ascii=False, default=str))
        return ToolErr(
            code="tool_error", reason="\n".join([*texts, *notes]) or "no reason was given"
        )
    data: dict[str, Any] = {}
    try:
        plain = plain_json(structured)
    except NotJsonError as error:
        if not any(texts):
            return ToolErr(code=BAD_RESULT, reason=_NO_JSON.format(error))
        plain = None
        notes.append(f"structured content ({error})")
    if plain is not None:
        data = plain if isinstance(plain, dict) else {"value": plain}
    if plain is None and not texts and not notes:
        texts.append("")
    if (any(texts) or (texts and plain is None)) and not _is_repeated(texts, plain):
        key = "text"
        while key in data:  # the server has a field of this name
            key = f"{key}_content"
        data = {**data, key: "\n".join(texts)}
    return ToolOk({**data, "not_shown": notes} if notes else data)


_NO_JSON = (
    "the tool ran, but its structured content is no JSON: {}. Whatever it did is done: look before "
    "you call it again."
)


def _is_repeated(texts: Sequence[str], structured: Any) -> bool:
    """Return whether texts only repeat the structured content, or one field of it.

    MCP asks servers to repeat structured content as text: as JSON, in one block or a block an item.
    """
    if structured is None:
        return False
    try:
        fields = [*structured.values()] if isinstance(structured, dict) else []
        known = {_ordered(value) for value in (structured, *fields)}
        joined = "\n".join(texts)
        parsed = [_parsed(text) for text in texts]
        return not known.isdisjoint(map(_ordered, (joined, _parsed(joined), texts, parsed)))
    except (ValueError, RecursionError, TypeError):
        return False


def _ordered(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _parsed(text: str) -> Any:
    """Return the JSON in a text, or the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _text_of(block: "ContentBlock") -> tuple[str, bool]:
    """Return a content block as text, and whether the text only describes omitted content."""
    match block.type:
        case "text":
            return block.text, False
        case "image" | "audio":
            return f"{block.type} ({block.mime_type}, {len(block.data) * 3 // 4} bytes)", True
        case "resource_link":
            return f"{block.name} <{block.uri}>", False
        case "resource":
            inner = block.resource
            text = getattr(inner, "text", None)
            if isinstance(text, str):
                return text, False
            kind = inner.mime_type or "unknown type"
            return f"blob ({kind}) <{inner.uri}>", True


def output_error(tool: "Tool", answer: "CallToolResult") -> str:
    """Return how a result violates the tool's `outputSchema`, for the model; never raises.

    Returns:
        The message; empty for a valid result, and for one that cannot be validated.
    """
    if tool.output_schema is None or answer.is_error:
        return ""
    try:
        why = _violation(tool.output_schema, answer.structured_content)
    except Exception as error:  # noqa: BLE001 - boundary: a server's schema may be anything
        _log.warning("%s: its result cannot be validated: %s", tool.name, type(error).__name__)
        return ""
    if not why:
        return ""
    return (
        f"{tool.name} ran, but its answer is not what its server promises (outputSchema): "
        f"{why}. Whatever it did is done: look before you call it again."
    )


def _violation(schema: Mapping[str, Any], structured: Any) -> str:
    checked = upgrade_schema(usable_schema(schema))
    Draft202012Validator.check_schema(checked)
    if structured is None:
        return "it has no structured content"
    validator: Any = extend(SchemaValidator, validators=_counted())  # type: ignore[no-untyped-call]
    issue = best_match(validator(checked, registry=EMPTY_REGISTRY).iter_errors(structured))
    if issue is None:
        return ""
    where = ".".join(str(part) for part in issue.absolute_path) or "the whole"
    if issue.validator == "required":
        missing = [name for name in issue.validator_value if name not in issue.instance]
        return f"{where} lacks {', '.join(map(repr, missing))[:_SHOWN_CHARS]}"
    wanted = expected_value(issue, schema)[: 2 * _SHOWN_CHARS]
    return f"{where} is {shown(issue.instance, _SHOWN_CHARS)} and should be {wanted}"


def _counted() -> dict[str, Callable[..., Any]]:
    """Return the keyword validators, which together raise after `MAX_STEPS` steps."""
    left = MAX_STEPS

    def counted(keyword: str, check: Callable[..., Any]) -> Callable[..., Any]:
        def counting(validator: Any, value: Any, *args: Any) -> Iterator[Any]:
            nonlocal left
            left -= len(value) if keyword == "enum" else 1  # every choice is compared
            if left < 0:
                raise _TooLongError
            yield from check(validator, value, *args) or ()

        return counting

    checks = {name: counted(name, check) for name, check in SchemaValidator.VALIDATORS.items()}
    return {**checks, "uniqueItems": lambda *_args: ()}  # it is quadratic in the items


class _TooLongError(Exception):
    """Validation has exceeded `MAX_STEPS`."""


def usable_schema(schema: Any) -> Any:
    """Return a server's schema without what only the server checks, and without null keywords.

    Regular expressions may backtrack for ever, so they are removed; a `format` becomes `x-format`,
    which the model reads and nothing checks. Definitions that nothing refers to are removed.
    """
    if not isinstance(schema, Mapping):
        return schema
    return _without_checks(_without_unused_definitions(schema))


def _without_checks(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    inner = with_subschemas(schema, _without_checks)
    removed = {"pattern", "patternProperties"}
    if "patternProperties" in inner:
        removed |= {"additionalProperties"}  # alone it would reject allowed keys
    return {
        NOTED_FORMAT if key == "format" else key: value
        for key, value in inner.items()
        if key not in removed and (value is not None or key in _NULLABLE)
    }


def _without_unused_definitions(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without definitions at its top that nothing refers to: they may be broken."""
    tables = {key: schema[key] for key in _DEFINITIONS if isinstance(schema.get(key), Mapping)}
    if not tables:
        return schema
    used: set[tuple[str, str]] = set()
    seen: set[int] = set()
    waiting: list[Any] = [{key: value for key, value in schema.items() if key not in tables}]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        waiting += subschemas(part)
        reference = part.get("$ref")
        key, _, rest = reference[2:].partition("/") if isinstance(reference, str) else ("", "", "")
        name = unquote(rest.partition("/")[0]).replace("~1", "/").replace("~0", "~")
        if key in tables and name in tables[key]:
            used.add((key, name))
            waiting.append(tables[key][name])
    kept = {
        key: {name: inner for name, inner in table.items() if (key, name) in used}
        for key, table in tables.items()
    }
    others = {key: value for key, value in schema.items() if key not in tables}
    return {**others, **{key: table for key, table in kept.items() if table}}


_DEFINITIONS = ("$defs", "definitions")


_NULLABLE = frozenset({"const", "default"})
