"""Files that are whole or not there, and which version of a package is installed."""

import os
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def write_whole(
    path: Path, content: bytes | Iterable[bytes], *, is_durable: bool = False, draft: str = "new"
) -> None:
    """Replace a file in one step: a reader sees the old one or the new one, never a half.

    Args:
        path: the file, in a folder that is there.
        content: all of it, or its pieces one after another.
        is_durable: wait until it is on the disk, so that not even a loss of power leaves a half.
        draft: what the name of the unfinished file ends with; where several processes write, a word
            of each its own.

    Raises:
        OSError: the disk does not take it.
    """
    unfinished = path.with_name(f"{path.name}.{draft}")
    with unfinished.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())
    unfinished.replace(path)


@cache
def version_of(*packages: str) -> str | None:
    """Return the version of the first of some packages that is installed; None if none is."""
    for package in packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
