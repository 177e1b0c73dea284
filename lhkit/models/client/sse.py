"""Decode server-sent events and check the types of their fields.

See the HTML standard, section 9.2.6. Lines are split as bytes (`str.splitlines` would also split at
U+2028, which JSON may contain) and decoded when complete, so that a Korean letter split over two
chunks survives.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lhkit.base.errors import StreamBrokenError
from lhkit.base.json_values import parse_lenient
from lhkit.base.redaction import masked
from lhkit.models.client.errors import reported_error, reports_error

_OTHER_FIELDS = frozenset({b"id", b"retry"})
_PART_OF_CHARACTER = re.compile(
    '(?<=")[\udc80-\udcbf]{1,3}|[\udcc2-\udcf4][\udc80-\udcbf]{0,2}(?=")'
)
"""Bytes of UTF-8 at the beginning or end of a string."""
_STRAY_BYTE = re.compile("[\udc80-\udcff]")
_MAX_STRAY_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"([0-9]{1,15})(?:\.0+)?")
_MAX_EXACT_FLOAT = 2**53
_INTEGERS = frozenset({int})


class EventStreamDecoder:
    """Collects bytes and returns the data of each complete event.

    Attributes:
        decode_error: set if the bytes of a character are in two events; they are surrogates then,
            as `surrogateescape` decodes them.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []  # chunks of the incomplete line
        self._is_first = True
        self._is_after_cr = False
        self._data: list[str] = []
        self._name = ""
        self.decode_error: UnicodeDecodeError | None = None
        self._stray: list[bytes] = []  # the lines before the first event that are not fields
        self._stray_bytes = 0

    @property
    def rest(self) -> str:
        """The text of an answer that is not a stream, or of an event that the end has cut."""
        lines = [*self._stray, *(line.encode() for line in self._data), b"".join(self._line)]
        text = b"\n".join(line.removeprefix(b"data:") for line in lines)
        return text.decode("utf-8", "replace").strip()

    @property
    def pending(self) -> Sequence[str]:
        """The data lines of an event whose blank line is missing so far."""
        return self._data

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the completed events, their lines joined by newlines.

        Data of an event named `error` is returned as an object with the key `error`, which is how
        completion servers report one.

        Raises:
            UnicodeDecodeError: if a complete line is not UTF-8.
        """
        if self._is_after_cr and chunk.startswith(b"\n"):
            chunk, self._is_after_cr = chunk[1:], False
        if chunk:
            self._is_after_cr = chunk.endswith(b"\r")
        events: list[str] = []
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if lines:
            lines[0] = b"".join([*self._line, lines[0]])
            self._line.clear()
            if self._is_first:
                lines[0], self._is_first = lines[0].removeprefix(_BOM), False
        self._line.append(rest)
        for line in lines:
            if line:
                self._take_field(line)
            else:
                events += self._dispatch()
        return events

    def _take_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(self._decode(value.removeprefix(b" ")))
        elif name == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8")
        elif name and name not in _OTHER_FIELDS and self._stray_bytes < _MAX_STRAY_BYTES:
            self._stray.append(line)
            self._stray_bytes += len(line)

    def _decode(self, value: bytes) -> str:
        """Decode a line; the bytes of a character that two events share become surrogates."""
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            text = value.decode("utf-8", "surrogateescape")
            if _STRAY_BYTE.search(_PART_OF_CHARACTER.sub("", text)):
                raise
            self.decode_error = self.decode_error or error
            return text

    def _dispatch(self) -> list[str]:
        """Return the data of the event that a blank line has completed, if it has any."""
        lines, name = self._data, self._name
        self._data, self._name = [], ""
        if not lines:
            return []
        self._stray, self._stray_bytes = [], _MAX_STRAY_BYTES
        data = "\n".join(lines)
        return [_wrap_error(data) if name == "error" else data]


def _wrap_error(data: str) -> str:
    """Return the data of an event named `error` as an object with the key `error`."""
    try:
        payload = json.loads(data)
    except (ValueError, RecursionError):
        payload = data
    if isinstance(payload, dict) and payload.get("error"):
        return data
    return json.dumps({"error": payload or "no reason"}, ensure_ascii=False, separators=(",", ":"))


def parse_payload(data: str) -> Mapping[str, Any]:
    """Parse the data of an event as a JSON object.

    Raises:
        ModelError: it reports an error.
        StreamBrokenError: it is not a JSON object.
    """
    try:
        payload = parse_lenient(masked(data))
    except (ValueError, RecursionError) as error:
        raise invalid_event(data) from error
    if reports_error(payload):
        raise reported_error(payload, data, "stream")
    if not isinstance(payload, dict):
        raise invalid_event(data)
    return payload


def typed(payload: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return the value of a key, which must be of type `kind`, null or absent.

    Raises:
        StreamBrokenError: it is of another type.
    """
    value = payload.get(key)
    if value is not None and not isinstance(value, kind):
        raise invalid_event(payload)
    return value


def whole_number(payload: Mapping[str, Any], key: str) -> int | None:
    """Return the value of a key as an integer; None if null or absent.

    `7`, `7.0` and `"7"` are integers.

    Raises:
        StreamBrokenError: it is of another type.
    """
    value = payload.get(key)
    if isinstance(value, str) and (digits := _NUMBER.fullmatch(value.strip())):
        return int(digits[1])
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT_FLOAT:
        return int(value)
    if value is None or type(value) is int:
        return value
    raise invalid_event(payload)


def integers(payload: Mapping[str, Any], key: str) -> list[int]:
    """Return the list of integers of a key; empty if null or absent.

    Raises:
        StreamBrokenError: it is something else.
    """
    values: list[int] | None = typed(payload, key, list)
    if not values:
        return []
    if not _INTEGERS.issuperset(map(type, values)):
        raise invalid_event(payload)
    return values


def invalid_event(event: object) -> StreamBrokenError:
    """Return the exception for an invalid event of a stream."""
    return StreamBrokenError(
        f"the server sent an invalid event ({masked(str(event))[:100]}): "
        "check that --base-url leads to an OpenAI-compatible server"
    )
