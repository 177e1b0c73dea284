"""What a tool call came to, and its text for the model.

Knows nothing about tools, gates or locales. Source: seeds, `encodeToolResult`; ours counts UTF-8
bytes and always returns valid JSON.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from lhkit.json_values import JSON, NotJsonError, compact, read_only_json

MAX_RESULT_BYTES = 2048
"""Default budget of one encoded result, in UTF-8 bytes (seed ADR-0005)."""

MIN_RESULT_BYTES = 256
"""The smallest budget that holds every fixed envelope together with its code."""

TRUNCATION_HINT = (
    "the result of {bytes} bytes was left out: it is too long to read; ask for less at once, such "
    "as a single item"
)
"""What the model is told in place of such a result, where the assistant has no sentence of its own.

It names no tool: nobody knows here which there are.
"""
CANCELLED_REASON = "user did not confirm"


@dataclass(frozen=True, slots=True)
class ToolOk:
    """The tool did its work; `data` is a JSON object."""

    data: Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class ToolErr:
    """The call was refused or failed, in a way that the model may mend.

    `code` is a stable word (`validation`, `r3_quota`, …); `reason` says what would be accepted.
    """

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolCancelled:
    """The user did not confirm: nothing happened."""


ToolResult: TypeAlias = ToolOk | ToolErr | ToolCancelled


def envelope(result: ToolResult) -> dict[str, Any]:
    """Return the envelope as a plain mapping with its `status` first."""
    match result:
        case ToolOk(data=data):
            return {"status": "ok", "data": data}
        case ToolErr(code=code, reason=reason):
            return {"status": "error", "code": code, "reason": reason}
        case ToolCancelled():
            return {"status": "cancelled", "reason": CANCELLED_REASON}
        case _:
            assert_never(result)


def result_in(told: Any) -> ToolResult | None:
    """Return the result that plain data is the envelope of; None if they are none of ours."""
    match told:
        case {"status": "ok", "data": Mapping() as data, **more} if not more:
            return ToolOk(data)
        case {"status": "error", "code": str(code), "reason": str(reason), **more} if not more:
            return ToolErr(code=code, reason=reason)
        case {"status": "cancelled", "reason": str(reason), **more} if not more:
            return ToolCancelled() if reason == CANCELLED_REASON else None
        case _:
            return None


def serialisable(result: ToolResult) -> ToolResult:
    """Return `result`, or a `ToolErr("handler_error")` where JSON cannot carry it.

    The data of a `ToolOk` is a copy that nobody can change: whoever made it may keep it and go on
    with it, and what a tool answered stays what it answered.
    """
    try:
        if isinstance(result, ToolOk):
            return ToolOk(read_only_json(result.data))
        if isinstance(result, ToolErr) and not (type(result.code) is type(result.reason) is str):
            return ToolErr(code=_text(result.code), reason=_text(result.reason))
    except NotJsonError as error:
        return ToolErr(code="handler_error", reason=f"the result is not JSON: {error}")
    return result


def _text(value: Any) -> str:
    """Return a value that should be a text as one."""
    return str.__str__(value) if isinstance(value, str) else compact(value)


def encode_tool_result(
    result: ToolResult, max_bytes: int = MAX_RESULT_BYTES, *, hint: str = TRUNCATION_HINT
) -> str:
    """Return the JSON text sent to the model, at most `max_bytes` UTF-8 bytes long.

    A `ToolOk` that is too large keeps its status and loses its data, for `_truncated` and `_hint`.
    Anything else that is too large keeps its code and gets a shorter reason.

    Args:
        result: the envelope; data that JSON cannot carry becomes `ToolErr("handler_error")`.
        max_bytes: budget in UTF-8 bytes, at least `MIN_RESULT_BYTES`.
        hint: what a left-out result says; `{bytes}` is replaced by the original size.

    Raises:
        ValueError: if `max_bytes` is below `MIN_RESULT_BYTES` (the programmer's error).
    """
    if max_bytes < MIN_RESULT_BYTES:
        raise ValueError(f"max_bytes={max_bytes} is too small: give at least {MIN_RESULT_BYTES}")
    safe = serialisable(result)
    text = compact(envelope(safe))
    size_bytes = _size(text)
    if size_bytes <= max_bytes:
        return text
    match safe:
        case ToolOk():
            return _left_out(hint.replace("{bytes}", str(size_bytes)), max_bytes)
        case ToolErr(code=code, reason=reason):
            return _shortened(code, reason, max_bytes)
        case ToolCancelled():
            raise AssertionError("a cancelled envelope is always small")
        case _:
            assert_never(safe)


def envelope_bytes(result: ToolResult) -> int:
    """Return how many UTF-8 bytes the whole envelope takes. JSON must be able to carry it."""
    return _size(compact(envelope(result)))


def _left_out(hint: str, max_bytes: int) -> str:
    def build(text: str) -> str:
        return compact(envelope(ToolOk(data={"_truncated": True, "_hint": text})))

    return build(_longest_prefix(hint, build, max_bytes))


def _shortened(code: str, reason: str, max_bytes: int) -> str:
    short_code = _longest_prefix(code, compact, max_bytes // 2)

    def build(text: str) -> str:
        return compact(envelope(ToolErr(code=short_code, reason=text)))

    return build(_longest_prefix(reason, build, max_bytes))


def _longest_prefix(text: str, build: Callable[[str], str], max_bytes: int) -> str:
    """Return the longest prefix of `text` whose built JSON fits (bisection: size grows with it)."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if _size(build(text[:middle])) <= max_bytes:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _size(text: str) -> int:
    return len(text.encode("utf-8"))
