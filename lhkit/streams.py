"""Standard streams that end no command: closed ones, broken pipes, letters a console lacks."""

import io
import os
import sys
from contextlib import suppress
from typing import Any, cast


class _Output(io.FileIO):
    """A descriptor that drops what is written once its reader has left, so that work goes on."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def prepare_streams() -> None:
    """Open the null device for closed streams, and let output escape what it cannot encode.

    A closed descriptor would be given to the next file or socket, which then receives whatever is
    printed. Streams that something else has put in place (a test, a notebook) stay as they are.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # in this order the lowest free descriptor is its own
            stream = open(os.devnull, mode, encoding="utf-8", errors="backslashreplace")  # noqa: PTH123, SIM115 - stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, _escaping(stream))


def _escaping(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    raw = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        cast("io.BufferedWriter", raw) if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def flush_streams() -> str:
    """Write what is still buffered; return why that failed, "" if it did not.

    Python would end with a code of its own where this fails at exit.
    """
    why = ""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:  # a full disk; closed meanwhile
            why = str(error)
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
    return why
