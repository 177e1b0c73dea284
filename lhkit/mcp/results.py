"""Results of a server's tools as results of ours, and those that break their `outputSchema`.

A stranger's schema is as hostile as may be: no regular expression of it is run, nothing is fetched,
and a check ends after so many steps. What cannot be checked counts as valid.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from logging import getLogger
from typing import TYPE_CHECKING, Any

from lhkit.json_values import NotJsonError, plain_json, shown
from lhkit.tool_results import ToolErr, ToolOk
from lhkit.tools.describe import expected_value
from lhkit.tools.drafts import upgrade_schema
from lhkit.tools.json_schema import (
    EMPTY_REGISTRY,
    Draft202012Validator,
    SchemaValidator,
    best_match,
    extend,
)
from lhkit.tools.schema import with_subschemas

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, Tool

_log = getLogger(__name__)

BAD_RESULT = "bad_result"
"""The code of a result that is not what its server promised."""

MOST_STEPS = 20_000
"""So many keywords are looked at in a result: a second of work at most."""

_SHOWN_CHARS = 60


def result_of(answer: "CallToolResult") -> ToolOk | ToolErr:
    """Return the envelope of what a tool of a server answered."""
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
        while key in data:  # a field of the server's own
            key = f"{key}_content"
        data = {**data, key: "\n".join(texts)}
    return ToolOk({**data, "not_shown": notes} if notes else data)


_NO_JSON = (
    "the tool ran, but its structured content is no JSON: {}. Whatever it did is done: look before "
    "you call it again."
)


def _is_repeated(texts: Sequence[str], structured: Any) -> bool:
    """Return whether texts say only what the structured content, or one field of it, says.

    MCP asks servers to give structured content as text, too: as JSON, one value or a block an item.
    """
    if structured is None:
        return False
    try:
        fields = [*structured.values()] if isinstance(structured, dict) else []
        known = {_ordered(each) for each in (structured, *fields)}
        joined = "\n".join(texts)
        read = [_read(each) for each in texts]
        return not known.isdisjoint(map(_ordered, (joined, _read(joined), texts, read)))
    except (ValueError, RecursionError, TypeError):
        return False


def _ordered(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _read(text: str) -> Any:
    """Return the JSON in a text; the text itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _text_of(block: "ContentBlock") -> tuple[str, bool]:
    """Return a block as text, and whether it is only a note that something was there."""
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


def output_fault(tool: "Tool", answer: "CallToolResult") -> str:
    """Return how a result breaks the tool's `outputSchema`; empty if it does not. Never raises."""
    if tool.output_schema is None or answer.is_error:
        return ""
    try:
        why = _fault(tool.output_schema, answer.structured_content)
    except Exception as error:  # noqa: BLE001 - boundary: a stranger's schema may be anything
        _log.warning("%s: its result cannot be checked: %s", tool.name, type(error).__name__)
        return ""
    if not why:
        return ""
    return (
        f"{tool.name} ran, but its answer is not what its server promises (outputSchema): "
        f"{why}. Whatever it did is done: look before you call it again."
    )


def _fault(schema: Mapping[str, Any], structured: Any) -> str:
    checked = upgrade_schema(without_patterns(schema))
    Draft202012Validator.check_schema(checked)
    if structured is None:
        return "it has no structured content"
    kind: Any = extend(SchemaValidator, validators=_counted())  # type: ignore[no-untyped-call]
    fault = best_match(kind(checked, registry=EMPTY_REGISTRY).iter_errors(structured))
    if fault is None:
        return ""
    where = ".".join(str(part) for part in fault.absolute_path) or "the whole"
    if fault.validator == "required":
        missing = [name for name in fault.validator_value if name not in fault.instance]
        return f"{where} lacks {', '.join(map(repr, missing))[:_SHOWN_CHARS]}"
    wanted = expected_value(fault, schema)[: 2 * _SHOWN_CHARS]
    return f"{where} is {shown(fault.instance, _SHOWN_CHARS)} and should be {wanted}"


def _counted() -> dict[str, Callable[..., Any]]:
    """Return the checks of a schema's keywords, which together take so many steps at most."""
    left = MOST_STEPS

    def counted(keyword: str, check: Callable[..., Any]) -> Callable[..., Any]:
        def counting(validator: Any, value: Any, *args: Any) -> Iterator[Any]:
            nonlocal left
            left -= len(value) if keyword == "enum" else 1  # each choice is compared
            if left < 0:
                raise _TooLongError
            yield from check(validator, value, *args) or ()

        return counting

    checks = {name: counted(name, check) for name, check in SchemaValidator.VALIDATORS.items()}
    return {**checks, "uniqueItems": lambda *_args: ()}  # its steps are the square of its items


class _TooLongError(Exception):
    """A check has taken as many steps as it may."""


def without_patterns(schema: Any) -> Any:
    """Return a schema without regular expressions: a stranger's may take for ever on a text.

    The server itself still refuses what does not fit them.
    """
    if not isinstance(schema, Mapping):
        return schema
    inner = with_subschemas(schema, without_patterns)
    gone = {"pattern", "patternProperties"}
    if "patternProperties" in inner:
        gone |= {"additionalProperties"}  # without the other it would refuse what is allowed
    return {key: value for key, value in inner.items() if key not in gone}
