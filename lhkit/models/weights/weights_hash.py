"""Hash all files of a folder that a server loads, to identify its weights.

The folder's name does not: it can be reused, or its files can be overwritten. A server that lhkit
starts reports this hash by an alias (see `identity`).
"""

import asyncio
import hashlib
import json
from collections.abc import Generator, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

from lhkit.base.errors import WeightsError
from lhkit.base.files import write_atomically
from lhkit.models.weights.weights_folder import (
    WeightsProgress,
    WeightsReport,
    WeightsStage,
    ignore_progress,
)

_NOT_LOADED = (
    *(".*", "*.md", "*.html", "*.pdf", "*.png", "*.svg", "LICENSE*", "NOTICE*", "USE_POLICY*"),
    "lhkit-manifest.json",
)
"""Files that no server loads. All others count, so that no new kind of file is missed."""

_CACHE = "weights-sha256.json"
_SMALL_BYTES = 1024 * 1024
"""Smaller files are always read: this is quick, and does not rely on the disk's timestamps."""

_BLOCK_BYTES = 8 * 1024 * 1024
_Stamp: TypeAlias = list[int]


async def weights_sha256(
    folder: Path, cache_dir: Path, *, report: WeightsReport = ignore_progress
) -> str:
    """Return the hash of the files and file names in `folder` that define the model.

    These are weights, configuration, tokenizer and templates: every file directly in it except
    documents. The hash of a large file is cached until its size, timestamps or inode change.

    Args:
        folder: the folder that a server loads.
        cache_dir: lhkit's cache; need not be writable.
        report: called with the progress of a large file.

    Raises:
        WeightsError: the folder cannot be read, or is being written.
    """
    sha256 = ""
    try:
        steps = _hash_folder(folder, _HashCache(cache_dir / _CACHE))
        while (step := await asyncio.to_thread(next, steps, None)) is not None:
            if isinstance(step, str):
                sha256 = step
            else:
                report(step)
    except OSError as error:
        raise WeightsError(
            f"the model in {folder} cannot be read ({error}): give another folder"
        ) from error
    return sha256


def _hash_folder(folder: Path, cache: "_HashCache") -> Iterator[WeightsProgress | str]:
    """Yield the progress of large files, and finally the hash of the folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_file() and not any(fnmatch(path.name, pattern) for pattern in _NOT_LOADED):
            file_hash = yield from _hash_file(path, cache)
            digest.update(f"{file_hash} {path.name}\n".encode(errors="surrogateescape"))
    cache.save()
    yield digest.hexdigest()


def _hash_file(path: Path, cache: "_HashCache") -> Generator[WeightsProgress, None, str]:
    """Yield the progress of a large file; return its hash."""
    stamp = _stamp(path)
    if cached := cache.get(path, stamp):
        return cached
    digest, done_bytes = hashlib.sha256(), 0
    text = f"reading {path.name}, to identify the weights"
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            done_bytes += len(block)
            if stamp[0] >= _SMALL_BYTES:
                yield WeightsProgress(
                    stage=WeightsStage.CHECKING,
                    text=text,
                    done_bytes=done_bytes,
                    total_bytes=stamp[0],
                )
    if _stamp(path) != stamp:
        raise WeightsError(f"{path} is being written: wait until it is complete")
    cache.set(path, stamp, digest.hexdigest())
    return digest.hexdigest()


def _stamp(path: Path) -> _Stamp:
    """Return values that change with a file (a ctime cannot be set back)."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


class _HashCache:
    """Cached hashes of large files; the file may be missing or unwritable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_changed = False
        self._files: dict[str, tuple[_Stamp, str]] = {}
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
            self._files = {str(name): (list(stamp), str(digest)) for name, stamp, digest in rows}
        except (OSError, ValueError, TypeError):
            pass

    def get(self, path: Path, stamp: _Stamp) -> str | None:
        cached_stamp, digest = self._files.get(str(path.resolve()), ([], ""))
        return digest if cached_stamp == stamp else None

    def set(self, path: Path, stamp: _Stamp, digest: str) -> None:
        if stamp[0] >= _SMALL_BYTES:
            self._files[str(path.resolve())] = (stamp, digest)
            self._has_changed = True

    def save(self) -> None:
        if not self._has_changed:
            return
        rows = [(name, *entry) for name, entry in self._files.items() if Path(name).is_file()]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps(rows).encode())
        except OSError:
            return
