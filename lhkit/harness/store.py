"""The files of a run folder: records, one line each, safe at any moment; and the manifest.

One process at a time writes. A line is on the disk when `append` returns.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from lhkit.errors import RunError
from lhkit.files import open_regular, open_to_append, write_atomically
from lhkit.harness.manifest import manifest_fault
from lhkit.harness.record import SCHEMA, SampleRecord
from lhkit.harness.record_json import OtherSchemaError, decode_line, encode_record, read_json
from lhkit.harness.resume import answers
from lhkit.redaction import masked

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

    def append(self, *records: SampleRecord | str) -> None:
        """Write records, a line each, and wait until they are on the disk.

        One that came as its line is written as it is.

        After a fault nothing more is taken: it would stand behind half a line, and be lost with it.

        Raises:
            RunError: the disk does not take it.
        """
        told = (each if isinstance(each, str) else encode_record(each) for each in records)
        lines = memoryview("".join(f"{masked(each)}\n" for each in told).encode())
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
def open_journal(
    folder: Path, *, wait_s: float = 0.0, reads: bool = True, file_name: str = RECORDS
) -> Iterator[Journal]:
    """Lock a run folder, read what is there, and open it for more.

    Args:
        folder: the run's.
        wait_s: for so long another process may have it.
        reads: False leaves the records that are there unread.
        file_name: the file that lines are appended to; one of other lines is not read.

    Raises:
        RunError: another process uses the folder, it cannot be written, or a record is broken.
    """
    lock = FileLock(folder / _LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=wait_s)
    except Timeout as error:
        raise RunError(
            f"{folder} is in use by another run: wait for its end, or give another name"
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        lines = _whole_lines(folder / file_name)
        found = tuple(lines.records()) if reads else ()
        with _appending(folder, lines) as file:
            yield Journal(folder, file, found)
    finally:
        lock.release()


def _appending(folder: Path, lines: "_Lines") -> BinaryIO:
    """Open a file of records behind its last whole line.

    Unbuffered: what a full disk refuses must not be tried again when the file is closed.
    """
    size_bytes = lines.size_bytes
    try:
        file = open_to_append(lines.path)
        try:
            file.truncate(size_bytes)
        except OSError:
            file.close()
            raise
    except OSError as error:
        raise _unwritable(folder, error) from error
    return file


def read_records(folder: Path) -> tuple[SampleRecord, ...]:
    """Return the records of a run folder, oldest first; a half-written last one is left out.

    Raises:
        RunError: a line is no record; the message names it.
    """
    return tuple(_whole_lines(folder / RECORDS).records())


@dataclass(frozen=True, slots=True)
class _Lines:
    """The complete lines of a file of records, read when they are looked at."""

    path: Path

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self))

    def __iter__(self) -> Iterator[bytes]:
        if _is_there(self.path):
            with open_records(self.path) as file:
                yield from (line for line in file if line.endswith(b"\n"))

    def records(self) -> Iterator[SampleRecord]:
        for number, line in enumerate(self, start=1):
            yield record_of_line(line, f"{self.path}:{number}")


def _whole_lines(path: Path) -> _Lines:
    _is_there(path)
    return _Lines(path)


def _is_there(path: Path) -> bool:
    """Return whether there is a file to read.

    Raises:
        RunError: there is something else, such as a pipe, which would be read for ever.
    """
    if path.exists() and not path.is_file():
        raise RunError(f"{path} is no file: remove it or choose another folder")
    return path.exists()


def open_records(path: Path) -> BinaryIO:
    """Open a file of a run folder to read it.

    Raises:
        RunError: it cannot be read, or is no regular file, such as a pipe.
    """
    try:
        return open_regular(path)
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error}): remove it") from error


def record_of_line(line: bytes, where: str) -> SampleRecord:
    """Return the record of a line.

    Raises:
        RunError: it is none; the message says where it stands.
    """
    try:
        return decode_line(line)
    except OtherSchemaError as error:
        raise RunError(
            f"{where} was written by another version of lhkit ({error}): play it again under "
            "another name, or read it with that version"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"{where} is no record of this version of lhkit ({error}): "
            "remove the line or give the run another name"
        ) from error


def read_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the manifest of a run folder; empty if there is none.

    Raises:
        RunError: the file is no JSON object, or this version of lhkit writes another one.
    """
    path = folder / MANIFEST
    if not _is_there(path):
        return {}
    try:
        with open_records(path) as file:
            manifest = read_json(file.read())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not JSON ({error}): remove it") from error
    if not isinstance(manifest, dict):
        raise RunError(f"{path} is no JSON object: remove it")
    if (schema := manifest.get("schema", SCHEMA)) != SCHEMA:
        raise RunError(
            f"{path} was written by another version of lhkit (its schema is {schema}, and this one "
            f"reads {SCHEMA}): play the run again under another name"
        )
    if fault := manifest_fault(manifest):
        raise RunError(f"{path} is no manifest of lhkit ({fault}): mend or remove it")
    return manifest


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest in one step: a reader sees the old one or the new one.

    Raises:
        RunError: the disk does not take it.
    """
    text = masked(json.dumps(manifest, ensure_ascii=False, indent=2)) + "\n"
    try:
        write_atomically(folder / MANIFEST, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise _unwritable(folder, error) from error


def write_rescored(
    folder: Path, records: Iterable[SampleRecord], manifest: Mapping[str, Any]
) -> None:
    """Write the records that come from other runs, in place of earlier such ones.

    Raises:
        RunError: the folder holds records that were played, is in use, or cannot be written.
    """
    with open_journal(folder) as journal:
        if journal.found and RESCORED_FROM not in read_manifest(folder):
            raise RunError(f"{folder} holds a run that was played: give another folder with --into")
        write_manifest(folder, manifest)
        lines = (encode_record(record).encode() + b"\n" for record in records)
        try:
            write_atomically(folder / RECORDS, lines)
        except OSError as error:
            raise _unwritable(folder, error) from error


def leave_only(
    folder: Path, is_kept: Callable[[SampleRecord], bool], *, wait_s: float = 0.0
) -> tuple[SampleRecord, ...]:
    """Leave only the newest record of each sample that is to be kept, and return those.

    The file is replaced in one step: nothing of the others stands in it any more.

    Raises:
        RunError: the folder is in use, cannot be written, or a record is broken.
    """
    with open_journal(folder, wait_s=wait_s) as journal:
        kept = tuple(record for record in answers(journal.found, {}) if is_kept(record))
        if len(kept) < len(journal.found):
            lines = (encode_record(record).encode() + b"\n" for record in kept)
            try:
                write_atomically(folder / RECORDS, lines)
            except OSError as error:
                raise _unwritable(folder, error) from error
    return kept


def _unwritable(folder: Path, error: OSError) -> RunError:
    return RunError(f"{folder} cannot be written ({error}): choose another folder")
