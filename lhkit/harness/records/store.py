"""The files of a run folder: records and scores, one JSON line each, and the manifest.

One process at a time writes. A line is on disk when `append` returns. Records can be read whole,
or left on disk and read one at a time (`StoredRecords`).
"""

import json
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, overload

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from lhkit.base.errors import MissingRunError, RunError, UsageError
from lhkit.base.files import open_regular, open_to_append, write_atomically
from lhkit.base.json_values import parse_json, parse_lenient
from lhkit.base.redaction import masked
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import (
    OtherSchemaError,
    SampleRecord,
    Verdict,
    check_schema,
    decode_line,
    encode_record,
)
from lhkit.harness.records.resume import (
    RecordStatus,
    SampleHashes,
    record_status,
    select_entries,
    select_records,
)
from lhkit.harness.records.score_record import (
    ScoredRecords,
    ScoreKey,
    ScoreRecord,
    decode_score,
    encode_score,
    newest_scores,
    record_sha256,
)
from lhkit.harness.scenarios.sample_id import SampleId
from lhkit.harness.scenarios.scenario_filter import Described, ScenarioFilter, ScenarioSelection

RECORDS = "records.jsonl"
MANIFEST = "manifest.json"
SCORES = "scores.jsonl"
"""The results of the user's scores (see `score_record`)."""

_LOCK = "run.lock"
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_Item = TypeVar("_Item", bound=Described)


def require_run_name(name: str, *, option: str) -> str:
    """Return the name of a run folder, which cannot leave the folder of runs.

    Raises:
        UsageError: it has other characters; the message names `option`.
    """
    if not _RUN_NAME.fullmatch(name):
        raise UsageError(
            f"{option} {name!r} cannot name a folder: use letters, digits, '.', '_', '-'"
        )
    return name


class Journal:
    """The records of one run folder, open for appending. Create it with `open_journal`."""

    def __init__(self, folder: Path, file: BinaryIO, records: tuple[SampleRecord, ...]) -> None:
        self.folder = folder
        self.records = records
        self._file = file
        self._error: OSError | None = None

    def append(self, *records: SampleRecord | str) -> None:
        """Write records, one line each, and wait until they are on disk.

        After a failed write nothing more is written: it would follow a half-written line.

        Args:
            records: records, or lines that are already encoded.

        Raises:
            RunError: the file cannot be written.
        """
        encoded = (
            record if isinstance(record, str) else encode_record(record) for record in records
        )
        lines = memoryview("".join(f"{masked(line)}\n" for line in encoded).encode())
        try:
            if self._error is not None:
                raise self._error
            while lines:  # a nearly full disk accepts only a part
                lines = lines[self._file.write(lines) :]
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._error = error
            raise _unwritable(self.folder, error) from error


@contextmanager
def open_journal(
    folder: Path,
    *,
    wait_s: float = 0.0,
    reads: bool = True,
    file_name: str = RECORDS,
    lock_name: str = _LOCK,
) -> Iterator[Journal]:
    """Lock a run folder, read its records, and open the file for appending.

    Args:
        folder: the run folder.
        wait_s: seconds to wait for another process to release it.
        reads: whether the existing records are read.
        file_name: the file to append to; pass `reads=False` if its lines are not records.
        lock_name: the file to lock; another one than the run's in a folder that is not a run.

    Raises:
        RunError: the folder is in use or cannot be written, or a record is invalid.
    """
    lock = FileLock(folder / lock_name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=wait_s)
    except Timeout as error:
        raise RunError(
            f"{folder} is in use by another run. Wait for its end, or give another name."
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        path = folder / file_name
        records = _read_file(path) if reads else ()
        size_bytes = sum(map(len, _whole_lines(path)))
        try:
            # unbuffered: closing must not retry a write that a full disk refused
            file = open_to_append(path)
        except OSError as error:
            raise _unwritable(folder, error) from error
        with file:
            try:
                file.truncate(size_bytes)  # drops a half-written last line
            except OSError as error:
                raise _unwritable(folder, error) from error
            yield Journal(folder, file, records)
    finally:
        lock.release()


def read_records(folder: Path) -> tuple[SampleRecord, ...]:
    """Return the records of a run folder, oldest first, without a half-written last line.

    Raises:
        RunError: a line is not a valid record; the message names it.
    """
    return _read_file(folder / RECORDS)


def _read_file(path: Path) -> tuple[SampleRecord, ...]:
    lines = enumerate(_whole_lines(path), start=1)
    return tuple(_decode(line, f"{path}:{number}") for number, line in lines)


def _whole_lines(path: Path) -> Iterator[bytes]:
    if _exists(path):
        with _open(path) as file:
            yield from (line for line in file if line.endswith(b"\n"))


def _exists(path: Path) -> bool:
    if path.exists() and not path.is_file():  # a pipe would block
        raise RunError(f"{path} is not a file. Remove it or choose another folder.")
    return path.exists()


def _open(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error}). Remove it.") from error


def _decode(line: bytes, where: str) -> SampleRecord:
    """Return the record of a line.

    Raises:
        RunError: the line is not a valid record; the message starts with `where`.
    """
    try:
        return decode_line(line)
    except OtherSchemaError as error:
        raise RunError(f"{where} {error}. Run it again under another name.") from error
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"{where} is not a valid record of this version of lhkit ({error}). "
            "Remove the line or give the run another name."
        ) from error


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a run folder; an empty one if there is no file.

    Raises:
        RunError: the file is not a valid manifest of this version of lhkit.
    """
    path = folder / MANIFEST
    if not _exists(path):
        return Manifest()
    try:
        with _open(path) as file:
            data = parse_json(file.read())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is not valid JSON ({error}). Remove it.") from error
    if not isinstance(data, dict):
        raise RunError(f"{path} is not a JSON object. Remove it.")
    try:
        check_schema(data)
    except OtherSchemaError as error:
        raise RunError(f"{path} {error}. Run it again under another name.") from error
    try:
        return Manifest.model_validate(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        issue = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RunError(
            f"{path} is not a valid manifest of lhkit ({issue}). Fix or remove it."
        ) from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step: readers see the old or the new one.

    Raises:
        RunError: the file cannot be written.
    """
    text = masked(json.dumps(manifest.plain(), ensure_ascii=False, indent=2)) + "\n"
    try:
        write_atomically(folder / MANIFEST, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise _unwritable(folder, error) from error


def read_scores(folder: Path) -> Iterator[ScoreRecord]:
    """Yield the results of scores in a run folder, oldest first, without a half-written last line.

    Raises:
        RunError: a line is not a valid result; the message names it.
    """
    path = folder / SCORES
    for number, line in enumerate(_whole_lines(path), start=1):
        try:
            yield decode_score(line)
        except (ValueError, RecursionError) as error:
            raise RunError(
                f"{path}:{number} is not a valid result of a score ({error}). Remove the line: "
                "lhkit rescore computes it again"
            ) from error


def scored_records(
    folder: Path, manifest: Manifest, records: Sequence[SampleRecord]
) -> tuple[Sequence[SampleRecord], tuple[ScoreRecord, ...]]:
    """Return records with the verdicts of their checks, and the results of all their scores.

    Args:
        folder: the run folder.
        manifest: names the scores that count.
        records: the records; those left on disk (`StoredRecords`) stay there.

    Raises:
        RunError: a result is invalid.
    """
    if not manifest.scores:
        return records, ()
    results = newest_scores(read_scores(folder), manifest.score_sources)
    return apply_scores(manifest, records, results)


def apply_scores(
    manifest: Manifest, records: Sequence[SampleRecord], results: Mapping[ScoreKey, ScoreRecord]
) -> tuple[Sequence[SampleRecord], tuple[ScoreRecord, ...]]:
    """Return records with the verdicts of their checks, and those of the results that are theirs.

    A result is of a record with its hash: that of a changed record does not count.
    """
    by_sample: dict[SampleId, list[ScoreRecord]] = {}
    for record in records:
        sha256 = record_sha256(record)
        for name, source in manifest.score_sources.items():
            if (result := results.get((sha256, name, source))) is not None:
                by_sample.setdefault(record.sample_id, []).append(result)
    scored = ScoredRecords(records, by_sample)
    kept = tuple(result for found in by_sample.values() for result in found)
    return scored if isinstance(records, StoredRecords) else tuple(scored), kept


def failed_scenarios(folder: Path) -> frozenset[str]:
    """Return the scenarios with a failed sample in the newest invocation of a run.

    Args:
        folder: the run folder, or its name in `runs`.

    Raises:
        MissingRunError: there is no run.
        RunError: the run is invalid.
    """
    named = folder if (folder / RECORDS).is_file() else Path("runs") / folder
    if not (named / RECORDS).is_file():
        raise MissingRunError(f"{folder} is not a run folder. Give one such as runs/NAME.")
    manifest = read_manifest(named)
    records: Sequence[SampleRecord] = select_records(
        read_records(named), SampleHashes.from_manifest(manifest)
    )
    records, _ = scored_records(named, manifest, records)
    return frozenset(
        record.sample_id.scenario for record in records if record.score.verdict is Verdict.FAIL
    )


def select_scenarios(
    selector: ScenarioFilter, items: Sequence[_Item]
) -> tuple[tuple[_Item, ...], ScenarioSelection | None]:
    """Return the selected items, and the selection; None if all are taken.

    Raises:
        UsageError: the filter fits none of them.
        RunError: the run of `failed` cannot be read.
    """
    failed = None if selector.failed is None else failed_scenarios(Path(selector.failed))
    taken = selector.select(items, failed)
    if len(taken) == len(items):
        return taken, None
    values = ScenarioFilter(**selector.values())
    return taken, ScenarioSelection(taken=len(taken), total=len(items), filter=values)


def require_kept_whole(
    folder: Path, scenarios: Iterable[str], selection: ScenarioSelection | None
) -> None:
    """Refuse a selected run in the folder of a run that has further scenarios.

    Args:
        folder: the run folder; need not exist.
        scenarios: the ids of the new run.
        selection: how they were selected; None if they are all.

    Raises:
        UsageError: the folder has a run of all scenarios, which this one would replace.
    """
    if selection is None:
        return
    before = read_manifest(folder)
    earlier = {sample.scenario for sample in SampleHashes.from_manifest(before)}
    if before.selection is None and earlier - set(scenarios):
        raise UsageError(
            f"{folder} has a run of all {len(earlier)} scenarios, which a run of "
            f"{selection.taken} selected ones would replace. Give another name or folder."
        )


def write_rescored(folder: Path, records: Iterable[SampleRecord], manifest: Manifest) -> None:
    """Write rescored records, and replace earlier rescored ones.

    Raises:
        RunError: the folder has records of a run, is in use, or cannot be written.
    """
    with open_journal(folder) as journal:
        if journal.records and not read_manifest(folder).rescored_from:
            raise RunError(
                f"{folder} has the records of a run, which are not replaced. Give another folder "
                "with --into."
            )
        names = [sample.scenario for sample in SampleHashes.from_manifest(manifest)]
        require_kept_whole(folder, names, manifest.selection)
        write_manifest(folder, manifest)
        _replace_records(folder, records)


def prune_records(
    folder: Path, keeps: Callable[[SampleRecord], bool], *, wait_s: float = 0.0
) -> None:
    """Delete all records except each sample's newest one, if `keeps` is true for it.

    The file is replaced in one step: nothing of the deleted records remains in it. Results of
    scores, which may quote a record, are deleted with it.

    Raises:
        RunError: the folder is in use or cannot be written, or a record is invalid.
    """
    with open_journal(folder, wait_s=wait_s) as journal:
        kept = [record for record in select_records(journal.records, {}) if keeps(record)]
        if len(kept) < len(journal.records):
            _prune_scores(folder, kept)
            _replace_records(folder, kept)


def _prune_scores(folder: Path, kept: Iterable[SampleRecord]) -> None:
    """Delete the results of scores of all other records."""
    path = folder / SCORES
    if not _exists(path):
        return
    hashes = {record_sha256(record) for record in kept}
    lines = (
        encode_score(result).encode() + b"\n"
        for result in list(read_scores(folder))
        if result.record_sha256 in hashes
    )
    try:
        write_atomically(path, lines)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _replace_records(folder: Path, records: Iterable[SampleRecord]) -> None:
    try:
        lines = (encode_record(record).encode() + b"\n" for record in records)
        write_atomically(folder / RECORDS, lines)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> RunError:
    return RunError(f"{folder} cannot be written ({error}). Choose another folder.")


class StoredRecords(Sequence[SampleRecord]):
    """Records on disk, each read when it is accessed. Create it with `stored_records`."""

    def __init__(self, path: Path, offsets: Iterable[int]) -> None:
        self._path = path
        self._offsets = array("Q", offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> SampleRecord: ...
    @overload
    def __getitem__(self, index: slice) -> "StoredRecords": ...
    def __getitem__(self, index: int | slice) -> "SampleRecord | StoredRecords":
        if isinstance(index, slice):
            return StoredRecords(self._path, self._offsets[index])
        return next(self._read([self._offsets[index]]))

    def __iter__(self) -> Iterator[SampleRecord]:
        return self._read(self._offsets)

    def _read(self, offsets: Iterable[int]) -> Iterator[SampleRecord]:
        with _open(self._path) as file:
            for offset in offsets:
                file.seek(offset)
                yield _decode(file.readline(), f"{self._path} at byte {offset}")


def stored_records(
    folder: Path, hashes: SampleHashes, *, is_complete: bool = False
) -> StoredRecords:
    """Return what `select_records` selects from a run folder, left on disk.

    Args:
        folder: the run folder.
        hashes: the samples in the order wanted; see `select_records`.
        is_complete: whether every sample must have a record.

    Raises:
        RunError: a line is not a valid record, or a sample has none. Some issues are raised only
            when the record is accessed.
    """
    path = folder / RECORDS
    if not hashes:
        return StoredRecords(path, select_entries(_scan(path), hashes))
    # by index, so that memory does not grow with the number of lines
    offsets, ranks = array("Q", bytes(8 * len(hashes))), bytearray(len(hashes))
    for ((sample, content_hash), is_valid), offset in _scan(path):
        if hashes.get(sample) == content_hash:
            index, rank = hashes.index(sample), 2 if is_valid else 1
            if rank >= ranks[index]:
                offsets[index], ranks[index] = offset, rank
    if is_complete and 0 in ranks:
        missing = list(hashes)[ranks.index(0)]
        raise RunError(
            f"{path} lost {missing} during the run. Do not change the folder meanwhile; give the "
            "same command again to run what is missing."
        )
    return StoredRecords(path, compress(offsets, ranks))


def stored_statuses(folder: Path) -> Iterator[RecordStatus]:
    """Yield the statuses of the records in a folder, oldest first."""
    if (folder / RECORDS).exists():
        yield from (status for status, _ in _scan(folder / RECORDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Score:
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordHead:
    """The fields of a record that select it."""

    sample_id: SampleId
    content_hash: str
    score: _Score


_HEAD: TypeAdapter[Any] = TypeAdapter(_RecordHead)


def _scan(path: Path) -> Iterator[tuple[RecordStatus, int]]:
    """Yield the status of each line and its offset in bytes."""
    offset = 0
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):  # half-written: the run continues, or was killed
                return
            try:
                status = record_status(_HEAD.validate_python(parse_lenient(line)))
            except (ValueError, RecursionError):  # raises with the reason, or parses it after all
                status = record_status(_decode(line, f"{path}:{number}"))
            yield status, offset
            offset += len(line)
