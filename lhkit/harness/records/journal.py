"""The files of a run folder: records, one line each, safe at any moment; and the manifest.

One process at a time writes. A line is on the disk when `append` returns.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from lhkit.errors import RunError
from lhkit.harness.records.manifest_shape import manifest_fault
from lhkit.harness.records.record import SampleRecord
from lhkit.harness.records.record_line import decode_line, encode_record

RECORDS = "records.jsonl"
MANIFEST = "manifest.json"
RESCORED_FROM = "rescored_from"
"""In a manifest: the records were computed from another run and can be computed again."""

_LOCK = "run.lock"


class Journal:
    """The records of one run folder, open for appending. Make one with `open_journal`."""

    def __init__(self, folder: Path, file: BinaryIO, found: tuple[SampleRecord, ...]) -> None:
        self.folder = folder
        self.found = found
        self._file = file
        self._fault: OSError | None = None

    def append(self, *records: SampleRecord) -> None:
        """Write records, a line each, and wait until they are on the disk.

        After a fault nothing more is taken: it would stand behind half a line, and be lost with it.

        Raises:
            RunError: the disk does not take it.
        """
        lines = memoryview("".join(f"{encode_record(each)}\n" for each in records).encode())
        try:
            if self._fault is not None:
                raise self._fault
            while lines:  # a disk that is getting full takes a part
                lines = lines[self._file.write(lines) :]
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._fault = error
            raise _unwritable(self.folder, error) from error


@contextmanager
def open_journal(folder: Path) -> Iterator[Journal]:
    """Lock a run folder, read what is there, and open it for more.

    Raises:
        RunError: another process uses the folder, it cannot be written, or a record is broken.
    """
    lock = FileLock(folder / _LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout as error:
        raise RunError(
            f"{folder} is in use by another run: wait for its end, or give another name"
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        lines = _whole_lines(folder)
        found = tuple(lines.records())
        with _appending(folder, lines) as file:
            yield Journal(folder, file, found)
    finally:
        lock.release()


def _appending(folder: Path, lines: "_Lines") -> BinaryIO:
    """Open a file of records behind its last whole line.

    Unbuffered: what a full disk refuses must not be tried again when the file is closed.
    """
    try:
        if lines.path.exists():
            os.truncate(lines.path, lines.size_bytes)
        return lines.path.open("ab", buffering=0)
    except OSError as error:
        raise _unwritable(folder, error) from error


def read_records(folder: Path) -> tuple[SampleRecord, ...]:
    """Return the records of a run folder, oldest first; a half-written last one is left out.

    Raises:
        RunError: a line is no record; the message names it.
    """
    return tuple(_whole_lines(folder).records())


@dataclass(frozen=True, slots=True)
class _Lines:
    """The complete lines of a file of records."""

    path: Path
    lines: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.lines))

    def records(self) -> Iterator[SampleRecord]:
        for number, line in enumerate(self.lines, start=1):
            yield _decoded(line, f"{self.path}:{number}")


def _whole_lines(folder: Path) -> _Lines:
    path = folder / RECORDS
    if not _is_there(path):
        return _Lines(path, ())
    with path.open("rb") as file:
        return _Lines(path, tuple(line for line in file if line.endswith(b"\n")))


def _is_there(path: Path) -> bool:
    """Return whether there is a file to read.

    Raises:
        RunError: there is something else, such as a pipe, which would be read for ever.
    """
    if path.exists() and not path.is_file():
        raise RunError(f"{path} is no file: remove it or choose another folder")
    return path.exists()


def _decoded(line: bytes, where: str) -> SampleRecord:
    try:
        return decode_line(line)
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"{where} is no record of this version of lhkit ({error}): "
            "remove the line or give the run another name"
        ) from error


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the manifest of a run folder; empty if there is none.

    Raises:
        RunError: the file is no JSON object, or a field is not as lhkit writes it.
    """
    path = folder / MANIFEST
    if not _is_there(path):
        return {}
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not JSON ({error}): remove it") from error
    if not isinstance(manifest, dict):
        raise RunError(f"{path} is no JSON object: remove it")
    if fault := manifest_fault(manifest):
        raise RunError(f"{path} is no manifest of lhkit ({fault}): mend or remove it")
    return manifest


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest in one step: a reader sees the old one or the new one.

    Raises:
        RunError: the disk does not take it.
    """
    fresh = folder / f"{MANIFEST}.new"
    try:
        with fresh.open("wb") as file:
            file.write(
                json.dumps(manifest, ensure_ascii=False, indent=2).encode(errors="backslashreplace")
                + b"\n"
            )
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / MANIFEST)
    except OSError as error:
        raise _unwritable(folder, error) from error


def write_rescored(
    folder: Path, records: Iterable[SampleRecord], manifest: Mapping[str, Any]
) -> None:
    """Write the records that were computed from another run, in place of earlier such ones.

    Raises:
        RunError: the folder holds records that were played, is in use, or cannot be written.
    """
    with open_journal(folder) as journal:
        if journal.found and RESCORED_FROM not in read_manifest(folder):
            raise RunError(f"{folder} holds a run that was played: give another folder with --into")
        write_manifest(folder, manifest)
        fresh = folder / f"{RECORDS}.new"
        try:
            with fresh.open("wb") as file:
                file.writelines(encode_record(record).encode() + b"\n" for record in records)
            fresh.replace(folder / RECORDS)
        except OSError as error:
            raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> RunError:
    return RunError(f"{folder} cannot be written ({error}): choose another folder")
