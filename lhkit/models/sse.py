"""Bytes of a server-sent event stream to the data of its events.

As the HTML standard parses them (section 9.2.6). Lines are split as bytes (`str.splitlines` would
also cut at U+2028, which may stand inside JSON) and decoded when complete, so that a Korean
letter split over two chunks survives.
"""

import json
import re
from collections.abc import Sequence

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


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
