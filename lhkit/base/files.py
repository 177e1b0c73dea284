"""Open regular files, replace and hash files; look up package versions."""

import errno
import hashlib
import io
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
"""Prefix of the names of temporary files."""

_NOT_REGULAR = "not a regular file"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read its bytes, without blocking on a pipe or device.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: it is a pipe, a device, a socket or a folder, or cannot be read.
    """
    return _wrap_regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path, "rb")


def read_text_file(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a regular file, with a line feed for each line end.

    Every file that a user names is read by this or by `open_regular`: a pipe without a writer would
    block for ever.

    Raises:
        OSError: as `open_regular`.
        UnicodeDecodeError: it is not text in this encoding.
    """
    with open_regular(path) as file, io.TextIOWrapper(file, encoding=encoding) as text:
        return text.read()


def open_to_append(path: Path) -> BinaryIO:
    """Open or create a regular file for reading and appending, unbuffered.

    Raises:
        OSError: it is a symbolic link, a pipe or another special file, or cannot be written.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _wrap_regular(os.open(path, flags, 0o666), path, "a+b")


def _wrap_regular(descriptor: int, path: Path, mode: str) -> BinaryIO:
    file_mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(file_mode):
        os.close(descriptor)
        kind = _KINDS.get(stat.S_IFMT(file_mode), "special")
        raise OSError(errno.EINVAL, f"{kind}, {_NOT_REGULAR}", str(path))
    return cast(BinaryIO, os.fdopen(descriptor, mode, buffering=-1 if mode == "rb" else 0))


@contextmanager
def replace_atomically(*files: Path) -> Iterator[tuple[Path, ...]]:
    """Yield paths of temporary files, which replace `files` at the end.

    A symbolic link is replaced, never written through. After an exception in the block all files
    are unchanged, and no temporary file remains.

    Args:
        files: paths in existing folders.

    Raises:
        OSError: one is a folder, a pipe or another special file, or the disk fails.
    """
    drafts: list[Path] = []
    try:
        for file in files:
            is_proc_link = file.is_symlink() and str(file.readlink()).startswith("/proc/")
            if (file.exists() and not file.is_file()) or is_proc_link:  # such as /dev/stdout
                raise OSError(errno.EINVAL, _NOT_REGULAR, str(file))
            drafts.append(file.with_name(f"{DRAFT}{secrets.token_hex(8)}"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(drafts[-1], flags, 0o666))
        yield tuple(drafts)
        for draft, file in zip(drafts, files, strict=True):
            draft.replace(file)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Replace a file atomically and durably (fsync).

    Args:
        path: a file in an existing folder; a symbolic link is replaced.
        content: the content, or its chunks.

    Raises:
        OSError: it is a folder or a special file, or the disk fails.
    """
    with replace_atomically(path) as (draft,), draft.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def installed_version(*packages: str) -> str | None:
    """Return the version of the first installed package; None if none is."""
    for package in packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
