"""Make standard streams robust: closed streams, broken pipes, unencodable characters."""

import io
import os
import sys
from contextlib import suppress
from typing import Any, cast


class _Output(io.FileIO):
    """A file descriptor that ignores broken pipes, so that the command continues."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def prepare_streams() -> None:
    """Open the null device for closed streams; escape what an output stream cannot encode.

    Without this, the next file or socket gets a closed stream's descriptor and whatever is printed.
    Streams that were replaced, by a test or a notebook, are left alone.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # in this order each gets its own descriptor
            stream = open(os.devnull, mode, encoding="utf-8", errors="backslashreplace")  # noqa: PTH123, SIM115 - never closed
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
    """Write what is buffered; return the reason of a failure, else "".

    If this failed at exit, Python would set an exit code of its own.
    """
    reason = ""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:  # a full disk; a closed stream
            reason = str(error)
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
    return reason
