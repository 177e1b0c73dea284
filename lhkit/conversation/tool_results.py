"""The results of tool calls, and their JSON encoding for the model.

Encoded as `{"status": "ok", "data": {…}}`, `{"status": "error", "code": …, "reason": …}` or
`{"status": "cancelled", "reason": …}`, within a limit of UTF-8 bytes and always as valid JSON. A
call that the user edited has `"edited": {…}` as well, and a rejection with words `"user_message"`.

This envelope is one of two formats. The other is plain: the data as they are, `{"error": …}`, or
`{"cancelled": …}`; edited values are under `"edited_by_user"`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, assert_never

from lhkit.base.json_values import JSON, NotJsonError, compact, parse_json, read_only_json

ResultFormat: TypeAlias = Literal["envelope", "plain"]
"""How the model reads results: with their status, or only the data."""

MAX_RESULT_BYTES = 2048
"""Default limit of one encoded result, in UTF-8 bytes."""

MIN_RESULT_BYTES = 256
"""The smallest `max_bytes`: every error envelope fits with its code."""

TRUNCATION_HINT = (
    "the result of {bytes} bytes was left out: it is too long to read; ask for less at once, such "
    "as a single item"
)
"""The default text for the model in place of a result that is too large."""
CANCELLED_REASON = "user did not confirm"


@dataclass(frozen=True, slots=True)
class ToolOk:
    """The tool succeeded; `data` is a JSON object.

    Attributes:
        data: what the model reads.
        edited: the arguments that the user changed, set by the dispatcher; None if none.
        changed: whether the call changed any data; None if the tool does not say. The user reads
            it under the reply, the model never does: `ToolOk({"already": True}, changed=False)`.
    """

    data: Mapping[str, JSON]
    edited: Mapping[str, JSON] | None = field(default=None, repr=False)
    changed: bool | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ToolErr:
    """The call was refused or failed; the model reads why and may call again.

    Attributes:
        code: a stable identifier, such as `validation` or `r3_quota`.
        reason: a sentence for the model, with what would be accepted. The user reads it, too.
        edited: as in `ToolOk`.
        changed: as in `ToolOk`; with False, a refusal after the user approved is not taken for a
            failure midway.
        translations: the reason in other languages, such as `{"ko": "이미 있습니다."}`. In a chat
            in one of them it stands in place of `reason`.
    """

    code: str
    reason: str
    edited: Mapping[str, JSON] | None = field(default=None, repr=False)
    changed: bool | None = field(default=None, repr=False, compare=False)
    translations: Mapping[str, str] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ToolCancelled:
    """The user did not confirm, so the tool did not run; `user_message` is their reason."""

    user_message: str = field(default="", repr=False)


ToolResult: TypeAlias = ToolOk | ToolErr | ToolCancelled


def result_to_dict(result: ToolResult) -> dict[str, Any]:
    """Return the encoding of a result as a mapping, with `status` first."""
    match result:
        case ToolOk(data=data, edited=edited):
            return {"status": "ok", "data": data} | _edited(edited)
        case ToolErr(code=code, reason=reason, edited=edited):
            return {"status": "error", "code": code, "reason": reason} | _edited(edited)
        case ToolCancelled(user_message=words):
            cancelled = {"status": "cancelled", "reason": CANCELLED_REASON}
            return cancelled | ({"user_message": words} if words else {})
        case _:
            assert_never(result)


def _edited(edited: Mapping[str, JSON] | None) -> dict[str, Any]:
    return {} if edited is None else {"edited": edited}


def parse_result(encoded: Any) -> ToolResult | None:
    """Return the result that a mapping encodes; None if it is not an encoded result."""
    if not isinstance(encoded, Mapping):
        return None
    edited = encoded.get("edited")
    if edited is not None and not isinstance(edited, Mapping):
        return None
    match {key: value for key, value in encoded.items() if key != "edited"}:
        case {"status": "ok", "data": Mapping() as data, **more} if not more:
            return ToolOk(data, edited)
        case {"status": "error", "code": str(code), "reason": str(reason), **more} if not more:
            return ToolErr(code, reason, edited)
        case {"status": "cancelled", "reason": str(reason), **more} if edited is None:
            words = more.pop("user_message", "")
            is_known = reason == CANCELLED_REASON and isinstance(words, str) and not more
            return ToolCancelled(words) if is_known else None
        case _:
            return None


def serialisable(result: ToolResult, locale: str = "") -> ToolResult:
    """Return a result with read-only data, or `ToolErr("handler_error")` if it is not JSON.

    The data of a `ToolOk` is copied, so that the tool may keep and change the original.

    Args:
        result: the result.
        locale: the language of a `ToolErr`'s reason, if it has a translation.
    """
    try:
        if isinstance(result, ToolOk):
            if not isinstance(result.data, Mapping):
                raise NotJsonError(f"data must be an object, not {type(result.data).__name__}")
            data, edited = read_only_json(result.data), _read_only(result.edited)
            return ToolOk(data, edited, _flag(result.changed))
        if isinstance(result, ToolErr):
            code, reason = _as_text(result.code), _as_text(_reason_in(locale, result))
            return ToolErr(code, reason, _read_only(result.edited), _flag(result.changed))
    except NotJsonError as error:
        return ToolErr(code="handler_error", reason=f"the result is not JSON: {error}")
    return result


def _read_only(edited: Mapping[str, JSON] | None) -> Mapping[str, JSON] | None:
    return None if edited is None else read_only_json(edited)


def _flag(changed: Any) -> bool | None:
    """Return True or False only for these very values: anything else says nothing."""
    return changed if changed is True or changed is False else None


def _reason_in(locale: str, error: ToolErr) -> Any:
    """Return the reason in a language; a translation that is no text counts as missing."""
    translations: Any = error.translations
    own = translations.get(locale) if isinstance(translations, Mapping) else None
    return own if own and isinstance(own, str) else error.reason


def _as_text(value: Any) -> str:
    return str.__str__(value) if isinstance(value, str) else compact(value)


def encode_tool_result(
    result: ToolResult, max_bytes: int = MAX_RESULT_BYTES, *, hint: str = TRUNCATION_HINT
) -> str:
    """Return the JSON text for the model, at most `max_bytes` UTF-8 bytes long.

    A `ToolOk` that is too large keeps its status; its data becomes `{"_truncated": true, "_hint":
    hint}`. A `ToolErr` that is too large keeps its code and gets a shorter reason, and so does the
    message of a `ToolCancelled`. Edited values that do not fit become `{"_truncated": true}`.

    Args:
        result: the result; data that is not JSON becomes `ToolErr("handler_error")`.
        max_bytes: limit in UTF-8 bytes, at least `MIN_RESULT_BYTES`.
        hint: the text in place of data that is too large; `{bytes}` becomes the original size.

    Raises:
        ValueError: `max_bytes` is below `MIN_RESULT_BYTES`.
    """
    if max_bytes < MIN_RESULT_BYTES:
        raise ValueError(f"max_bytes={max_bytes} is too small: give at least {MIN_RESULT_BYTES}")
    safe = serialisable(result)
    text = _encoded(safe)
    size_bytes = _size(text)
    if size_bytes <= max_bytes:
        return text
    if isinstance(safe, ToolCancelled):
        return _shorten(safe.user_message, lambda part: _encoded(ToolCancelled(part)), max_bytes)
    if safe.edited is not None and _size(compact(safe.edited)) > max_bytes // 4:
        safe = replace(safe, edited={"_truncated": True})
        if _size(text := _encoded(safe)) <= max_bytes:
            return text
    if isinstance(safe, ToolOk):
        why = hint.replace("{bytes}", str(size_bytes))
        return _shorten(why, lambda part: _encoded(_left_out(part, safe.edited)), max_bytes)
    short = replace(safe, code=_longest_prefix(safe.code, compact, max_bytes // 2))
    return _shorten(short.reason, lambda part: _encoded(replace(short, reason=part)), max_bytes)


def plain_result(encoded: str) -> str:
    """Return the plain JSON text of an encoded result; any other text as it is."""
    match parse_result(parse_json(encoded)):
        case ToolOk(data=data, edited=edited):
            plain = dict(data)
        case ToolErr(code=code, reason=reason, edited=edited):
            plain = {"error": f"{code}: {reason}"}
        case ToolCancelled(user_message=words):
            plain, edited = {"cancelled": CANCELLED_REASON}, None
            plain |= {"user_message": words} if words else {}
        case None:
            return encoded
    return compact(plain if edited is None else {**plain, "edited_by_user": edited})


def encoded_size(result: ToolResult) -> int:
    """Return the size of the whole encoded result in UTF-8 bytes.

    Raises:
        NotJsonError: the result is not JSON.
    """
    return _size(_encoded(result))


def _encoded(result: ToolResult) -> str:
    return compact(result_to_dict(result))


def _left_out(hint: str, edited: Mapping[str, JSON] | None) -> ToolOk:
    return ToolOk({"_truncated": True, "_hint": hint}, edited)


def _shorten(text: str, build: Callable[[str], str], max_bytes: int) -> str:
    """Return the built JSON with the longest prefix of `text` that fits."""
    return build(_longest_prefix(text, build, max_bytes))


def _longest_prefix(text: str, build: Callable[[str], str], max_bytes: int) -> str:
    """Return the longest prefix of `text` whose built JSON fits, by bisection."""
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
