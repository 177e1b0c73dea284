"""The log of a run on Ray: what Ray, its nodes and the servers of replicas write."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_log = logging.getLogger(__package__)

_LOG_BYTES = 2**20
_STDERR = 2
_EVENT = ":event_summary:"


def size_of(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def end_of(log: Path | None, begin: int = 0) -> str:
    """Return what a file holds behind its first bytes, at most the last MiB; nothing of none."""
    if log is None or not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(begin, file.seek(0, os.SEEK_END) - _LOG_BYTES))
        return file.read().decode(errors="replace")


@contextmanager
def standard_error_in(log: Path) -> Iterator[None]:
    """Put into a file what Ray's C++ writes to standard error while it connects."""
    with log.open("ab") as file:
        kept = os.dup(_STDERR)
        os.dup2(file.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Have all that Ray and its nodes say go to a file, and nothing to the terminal.

    Ray prints what workers and nodes say, from threads of its own and without a public way to
    have it elsewhere; so the one function through which it does is another one meanwhile.
    """
    from ray._private import worker  # noqa: TID251 - here

    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = (_log, logging.getLogger("ray"))
    before = [(each.handlers[:], each.level, each.propagate) for each in loggers]
    prints = worker.print_worker_logs
    for each in loggers:
        each.handlers[:], each.propagate = [handler], False
        each.setLevel(logging.INFO)
    worker.print_worker_logs = _hear
    try:
        yield
    finally:
        worker.print_worker_logs = prints
        for each, (handlers, level, propagates) in zip(loggers, before, strict=True):
            each.handlers[:], each.propagate = handlers, propagates
            each.setLevel(level)
        handler.close()


def _hear(told: Mapping[str, Any], *_: Any, **__: Any) -> None:
    """Log lines of a worker or a node instead of printing them.

    The autoscaler tells all it does every few seconds; Ray itself prints only its events.
    """
    is_chatter = told.get("pid") == "autoscaler"
    who = " ".join(str(told[key]) for key in ("actor_name", "pid", "ip") if told.get(key))
    for line in told.get("lines", ()):
        if not is_chatter or _EVENT in line:
            _log.info("(%s) %s", who, line)
