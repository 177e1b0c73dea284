"""The log of a run on Ray: which replicas play where, what they lack, what their servers write."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOG_BYTES = 2**20


def end_of(log: Path | None) -> str:
    """Return the last MiB of a file; nothing if there is none."""
    if log is None or not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
        return file.read().decode(errors="replace")


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Write what this package and Ray log to a file, and nothing to the terminal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = (logging.getLogger(__package__), logging.getLogger("ray"))
    before = [(each.handlers[:], each.level, each.propagate) for each in loggers]
    for each in loggers:
        each.handlers[:], each.propagate = [handler], False
        each.setLevel(logging.INFO)
    try:
        yield
    finally:
        for each, (handlers, level, propagates) in zip(loggers, before, strict=True):
            each.handlers[:], each.propagate = handlers, propagates
            each.setLevel(level)
        handler.close()
