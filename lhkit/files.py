"""Files that are whole or not there, their hash, and which version of a package is installed."""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO, Final, cast

DRAFT: Final = ".lhkit-draft-"
"""What the name of an unfinished file begins with."""

_NOT_REGULAR = "not a regular file"


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read its bytes; anything but a regular file is refused, not waited for.

    Raises:
        FileNotFoundError: there is none.
        OSError: it is a pipe, a device, a socket or a folder, or cannot be read.
    """
    return _regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path, "rb")


def open_to_append(path: Path) -> BinaryIO:
    """Open a file, made if need be, to read it and to write at its end, unbuffered.

    Raises:
        OSError: it is a symbolic link, a pipe or another special file, or cannot be written.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _regular(os.open(path, flags, 0o666), path, "a+b")


def _regular(descriptor: int, path: Path, mode: str) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, _NOT_REGULAR, str(path))
    return cast(BinaryIO, os.fdopen(descriptor, mode, buffering=-1 if mode == "rb" else 0))


@contextmanager
def drafted(*files: Path) -> Iterator[tuple[Path, ...]]:
    """Yield where to write; at the end the drafts take the places of `files`, one after another.

    A symbolic link is replaced, never written through; a draft is a new file of its own, made under
    a name that nothing else has. After a fault while they are written all files are as they were,
    and no draft is left.

    Args:
        files: each in a folder that is there.

    Raises:
        OSError: one is a folder, a pipe or another special file, or the disk does not take it.
    """
    drafts: list[Path] = []
    try:
        for file in files:
            if (file.exists() and not file.is_file()) or _is_of_the_system(file):
                raise OSError(errno.EINVAL, _NOT_REGULAR, str(file))
            drafts.append(file.with_name(f"{DRAFT}{secrets.token_hex(8)}"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(drafts[-1], flags, 0o666))
        yield tuple(drafts)
        for unfinished, file in zip(drafts, files, strict=True):
            unfinished.replace(file)
    finally:
        for unfinished in drafts:
            unfinished.unlink(missing_ok=True)


def _is_of_the_system(file: Path) -> bool:
    """Return whether a link, such as /dev/stdout, is the system's: not to be replaced."""
    return file.is_symlink() and str(file.readlink()).startswith("/proc/")


def write_whole(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Replace a file in one step: a reader sees the old one or the new one, never a half.

    It is on the disk when this returns, so that not even a loss of power leaves a half.

    Args:
        path: the file, in a folder that is there; a symbolic link is replaced.
        content: all of it, or its pieces one after another.

    Raises:
        OSError: it is a folder or a special file, or the disk does not take it.
    """
    with drafted(path) as (unfinished,), unfinished.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())


def file_sha256(path: Path) -> str:
    """Return the file's sha256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def version_of(*packages: str) -> str | None:
    """Return the version of the first of some packages that is installed; None if none is."""
    for package in packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
