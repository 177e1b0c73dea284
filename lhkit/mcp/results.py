"""Results of a server's tools as results of ours."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lhkit.json_values import NotJsonError, plain_json
from lhkit.mcp.promise import BAD_RESULT
from lhkit.tool_results import ToolErr, ToolOk

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock


def result_of(answer: "CallToolResult") -> ToolOk | ToolErr:
    """Return the envelope of what a tool of a server answered."""
    texts: list[str] = []
    notes: list[str] = []
    for block in answer.content:
        text, is_note = _said(block)
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


def _said(block: "ContentBlock") -> tuple[str, bool]:
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
