"""Which weights a folder holds: one hash over all that a server loads from it.

A folder's name says nothing: it is given anew, or its files are overwritten. A server that lhkit
starts tells this hash under an alias (`aliases.alias_of`).
"""

import hashlib
import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

from lhkit.errors import ServerStartError, WeightsError
from lhkit.files import write_whole
from lhkit.models.progress import WeightsProgress, WeightsReport, WeightsStage, in_thread, silent
from lhkit.models.vllm_server import ServerSettings

_NOT_LOADED = (
    *(".*", "*.md", "*.html", "*.pdf", "*.png", "*.svg", "LICENSE*", "NOTICE*", "USE_POLICY*"),
    "lhkit-manifest.json",
)
"""What no server loads. All else counts: a kind of file that is new to us is not forgotten."""

_CACHE = "weights-sha256.json"
_SMALL_BYTES = 1024 * 1024
"""A smaller file is read every time: that is quick, and needs no trust in the clock of the disk."""

_HASHED_AT_ONCE_BYTES = 8 * 1024 * 1024
_Stamp: TypeAlias = list[int]


async def weights_sha256(folder: Path, cache_dir: Path, *, report: WeightsReport = silent) -> str:
    """Return the hash of the files of `folder` that make the model, with their names.

    Weights, configuration, tokenizer, templates: every file directly in it but documents. The hash
    of a big file is kept in `cache_dir` and read again only after its size, times or inode changed.

    Args:
        folder: what a server is to load.
        cache_dir: where lhkit keeps what it can make again; need not be writable.
        report: is told how far the reading of a big file is.

    Raises:
        WeightsError: the folder cannot be read, or is being written at this moment.
    """
    sha256 = ""
    try:
        async for told in in_thread(_reading(folder, _Known(cache_dir / _CACHE))):
            if isinstance(told, str):
                sha256 = told
            else:
                report(told)
    except OSError as error:
        raise WeightsError(
            f"the model in {folder} cannot be read ({error}): give another folder"
        ) from error
    return sha256


async def require_unchanged(plan: ServerSettings, cache_dir: Path) -> None:
    """Refuse a server whose weights were overwritten while it loaded them: it tells another hash.

    Raises:
        ServerStartError: nobody knows what it loaded.
        WeightsError: as `weights_sha256`.
    """
    if plan.weights_sha256 != await weights_sha256(plan.model, cache_dir):
        raise ServerStartError(
            f"{plan.model} was changed while its server was starting: start it again"
        )


def _reading(folder: Path, known: "_Known") -> Iterator[WeightsProgress | str]:
    """Yield how far the reading of big files is, and the hash of the folder at the end."""
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_file() and not any(fnmatch(path.name, pattern) for pattern in _NOT_LOADED):
            yield from _reading_file(path, known)
            whole.update(f"{known.fresh} {path.name}\n".encode(errors="surrogateescape"))
    known.save()
    yield whole.hexdigest()


def _reading_file(path: Path, known: "_Known") -> Iterator[WeightsProgress]:
    stamp = _stamp(path)
    if known.has(path, stamp):
        return
    digest, done_bytes = hashlib.sha256(), 0
    text = f"reading {path.name}, to know which weights these are"
    with path.open("rb") as file:
        while block := file.read(_HASHED_AT_ONCE_BYTES):
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
        raise WeightsError(f"{path} is being written: wait until it is whole")
    known.keep(path, stamp, digest.hexdigest())


def _stamp(path: Path) -> _Stamp:
    """Return what cannot stay as it is when a file changes; the change time nobody can set back."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


class _Known:
    """Hashes of big files by path, as a file in the cache: broken or unwritable, it is no loss.

    `fresh` is the hash of the file that was last looked up or read.
    """

    def __init__(self, path: Path) -> None:
        self.fresh = ""
        self._path = path
        self._is_new = False
        self._files: dict[str, tuple[_Stamp, str]] = {}
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            self._files = {str(name): (list(stamp), str(digest)) for name, stamp, digest in told}
        except (OSError, ValueError, TypeError):
            pass

    def has(self, path: Path, stamp: _Stamp) -> bool:
        then, self.fresh = self._files.get(str(path.resolve()), ([], ""))
        return then == stamp

    def keep(self, path: Path, stamp: _Stamp, digest: str) -> None:
        self.fresh = digest
        if stamp[0] >= _SMALL_BYTES:
            self._files[str(path.resolve())] = (stamp, digest)
            self._is_new = True

    def save(self) -> None:
        if not self._is_new:
            return
        rows = [(name, *told) for name, told in self._files.items() if Path(name).is_file()]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(rows).encode())
        except OSError:
            return
