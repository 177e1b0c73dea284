"""Bytes of a server-sent event stream to the data of its events. Pure.

Lines end at LF only (`splitlines` would also cut at U+2028, which may stand inside JSON), and are
decoded when complete, so that a Korean letter split over two chunks survives.
"""


class EventStreamDecoder:
    """Collects bytes and gives out the `data` of each complete event line."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # the pieces of the line that is not complete yet

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data lines that are complete; comments and other fields are skipped.

        Raises:
            UnicodeDecodeError: if a complete line is not UTF-8.
        """
        *complete, rest = chunk.split(b"\n")
        lines = []
        for piece in complete:
            lines.append(b"".join([*self._line, piece]))
            self._line = []
        self._line.append(rest)
        return [
            line.removeprefix(b"data:").strip().decode("utf-8")
            for line in lines
            if line.startswith(b"data:")
        ]
