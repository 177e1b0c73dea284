"""Bytes of a server-sent event stream to events, whose members have the types they must have.

As the HTML standard parses them (section 9.2.6). Lines are split as bytes (`str.splitlines` would
also cut at U+2028, which may stand inside JSON) and decoded when complete, so that a Korean
letter split over two chunks survives.
"""

import json
import re
from collections.abc import Mapping, Sequence
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

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"([0-9]{1,15})(?:\.0+)?")
_EXACT = 2**53
"""Up to here a float is an integer exactly."""


class EventStreamDecoder:
    """Collects bytes and gives out the data of each complete event."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # the pieces of the line that is not complete yet
        self._is_first = True
        self._is_after_cr = False
        self._data: list[str] = []
        self._name = ""

    @property
    def pending(self) -> Sequence[str]:
        """The data lines of an event whose blank line has not come yet."""
        return self._data

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the events that are complete, their lines joined by newlines.

        Data of an event named `error` is given out as the member `error` of an object, which is how
        servers of completions report a fault.

        Raises:
            UnicodeDecodeError: if a complete line is not UTF-8.
        """
        if self._is_after_cr and chunk.startswith(b"\n"):
            chunk, self._is_after_cr = chunk[1:], False
        if chunk:
            self._is_after_cr = chunk.endswith(b"\r")
        events: list[str] = []
        *ends, rest = _LINE_END.split(chunk)
        for end in ends:
            line = b"".join([*self._line, end])
            self._line = []
            if self._is_first:
                line, self._is_first = line.removeprefix(_BOM), False
            if line:
                self._take_field(line)
            else:
                events += self._dispatched()
        self._line.append(rest)
        return events

    def _take_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8"))
        elif name == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8")

    def _dispatched(self) -> list[str]:
        """Return the data of the event that a blank line has ended, if it has any."""
        lines, name = self._data, self._name
        self._data, self._name = [], ""
        data = "\n".join(lines)
        return [_as_error(data) if name == "error" else data] if lines else []


def _as_error(data: str) -> str:
    """Return the data of an event named `error` as an object with the member `error`."""
    try:
        payload = json.loads(data)
    except (ValueError, RecursionError):
        payload = data
    if isinstance(payload, dict) and payload.get("error"):
        return data
    return json.dumps({"error": payload or "no reason"}, ensure_ascii=False, separators=(",", ":"))


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
