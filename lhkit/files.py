"""Files that are whole or not there, and which version of a package is installed."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@contextmanager
def drafted(*files: Path, draft: str = "new") -> Iterator[tuple[Path, ...]]:
    """Yield where to write; at the end the drafts take the places of `files`, one after another.

    After a fault while they are written all files are as they were, and no draft is left.

    Args:
        files: each in a folder that is there.
        draft: what the name of an unfinished file ends with; where several processes write, a word
            of each its own.
    """
    drafts = tuple(file.with_name(f"{file.name}.{draft}") for file in files)
    try:
        yield drafts
        for unfinished, file in zip(drafts, files, strict=True):
            unfinished.replace(file)
    finally:
        for unfinished in drafts:
            unfinished.unlink(missing_ok=True)


def write_whole(
    path: Path, content: bytes | Iterable[bytes], *, is_durable: bool = False, draft: str = "new"
) -> None:
    """Replace a file in one step: a reader sees the old one or the new one, never a half.

    Args:
        path: the file, in a folder that is there.
        content: all of it, or its pieces one after another.
        is_durable: wait until it is on the disk, so that not even a loss of power leaves a half.
        draft: as of `drafted`.

    Raises:
        OSError: the disk does not take it.
    """
    with drafted(path, draft=draft) as (unfinished,), unfinished.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())


@cache
def version_of(*packages: str) -> str | None:
    """Return the version of the first of some packages that is installed; None if none is."""
    for package in packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
