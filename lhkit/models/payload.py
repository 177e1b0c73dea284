"""One event of a completion stream as a mapping whose members have the types they must have."""

import json
import re
from collections.abc import Mapping
from typing import Any

from lhkit.errors import (
    ContextTooLongError,
    ModelError,
    ServerFailedError,
    ServerOverloadedError,
    StreamBrokenError,
)
from lhkit.models.errors import is_context_too_long, message_of
from lhkit.redaction import masked


def payload_of(data: str) -> Mapping[str, Any]:
    """Return one event as a mapping.

    Raises:
        ModelError: it reports an error.
        StreamBrokenError: it is not a JSON object.
    """
    try:
        payload = json.loads(masked(data))
    except (ValueError, RecursionError) as error:
        raise no_completion(data) from error
    if not isinstance(payload, dict):
        raise no_completion(data)
    if payload.get("error") or "error" in (payload.get("object"), payload.get("type")):
        raise _reported(payload, data)
    return payload


def typed(payload: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return a member that is absent, null or of the type that a completion has there.

    Raises:
        StreamBrokenError: it is of another type.
    """
    value = payload.get(key)
    if value is not None and not isinstance(value, kind):
        raise no_completion(payload)
    return value


def whole_number(payload: Mapping[str, Any], key: str) -> int | None:
    """Return a member that is an integer, or `7.0` or `"7"`; None if absent or null.

    Raises:
        StreamBrokenError: it is something else.
    """
    value = payload.get(key)
    if isinstance(value, str) and (digits := _NUMBER.fullmatch(value.strip())):
        return int(digits[1])
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if value is None or type(value) is int:
        return value
    raise no_completion(payload)


_NUMBER = re.compile(r"([0-9]{1,15})(?:\.0+)?")
_EXACT = 2**53
"""Up to here a float is an integer exactly."""


def integers(payload: Mapping[str, Any], key: str) -> list[int]:
    """Return a member that is a list of integers; empty where it is absent or null.

    Raises:
        StreamBrokenError: it is something else. What is kept of it could not be read again.
    """
    found: list[int] = typed(payload, key, list) or []
    if not all(type(each) is int for each in found):
        raise no_completion(payload)
    return found


def no_completion(what_came: object) -> StreamBrokenError:
    """Return the exception for an event that no server of ours would send."""
    return StreamBrokenError(
        f"the stream is not one of completions ({masked(str(what_came))[:100]}): "
        "check that --base-url leads to an OpenAI-compatible server"
    )


def _reported(payload: Mapping[str, Any], data: str) -> ModelError:
    said = message_of(data)
    error = payload.get("error")
    code = str(error.get("code") if isinstance(error, dict) else payload.get("code"))
    if is_context_too_long(said):
        return ContextTooLongError(f"the conversation is too long: {said}; clear it")
    if code in {"429", "503"}:
        return ServerOverloadedError(f"the server is busy: {said}; try later or send less at once")
    return ServerFailedError(f"the server reported in its stream: {said}; look into its log")
