"""The records of a run left on disk: read one at a time, when they are looked at.

For runs that are too large to hold. A place in the file is all that is kept of a record.
"""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

from lhkit.errors import RunError
from lhkit.harness.records.journal import RECORDS
from lhkit.harness.records.record import SampleId, SampleRecord, Verdict
from lhkit.harness.records.record_line import decode_line


class StoredRecords(Sequence[SampleRecord]):
    """Records by their places in a file. Make one with `stored_records`."""

    def __init__(self, path: Path, places: Iterable[int]) -> None:
        self._path = path
        self._places = array("Q", places)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> SampleRecord: ...
    @overload
    def __getitem__(self, index: slice) -> "StoredRecords": ...
    def __getitem__(self, index: int | slice) -> "SampleRecord | StoredRecords":
        if isinstance(index, slice):
            return StoredRecords(self._path, self._places[index])
        return next(self._read([self._places[index]]))

    def __iter__(self) -> Iterator[SampleRecord]:
        return self._read(self._places)

    def _read(self, places: Iterable[int]) -> Iterator[SampleRecord]:
        with self._path.open("rb") as file:
            for place in places:
                file.seek(place)
                yield decode_line(file.readline())


def stored_records(folder: Path, asked: Sequence[tuple[SampleId, str]]) -> StoredRecords:
    """Return the newest answers to the samples that were asked, a valid one before an invalid one.

    Args:
        folder: a finished run's.
        asked: id and content hash of each sample, in the order wanted.

    Raises:
        RunError: an answer is not there.
    """
    path = folder / RECORDS
    wanted = set(asked)
    found: dict[tuple[SampleId, str], tuple[bool, int]] = {}
    place = 0
    with path.open("rb") as file:
        for line in file:
            told = json.loads(line)
            key = (SampleId(**told["sample_id"]), told["content_hash"])
            is_valid = told["verdict"] != Verdict.INVALID
            if key in wanted and (is_valid or not found.get(key, (False, 0))[0]):
                found[key] = (is_valid, place)
            place += len(line)
    missing = next((sample for sample in asked if sample not in found), None)
    if missing is not None:
        raise RunError(
            f"{path} lost {missing[0]} while the run went on: leave the folder alone and give the "
            "same command again, which plays what is missing"
        )
    return StoredRecords(path, (found[sample][1] for sample in asked))


def without_evidence(record: SampleRecord) -> SampleRecord:
    """Return what is kept in memory of a record that is on disk: which sample, which verdict."""
    return SampleRecord(
        sample_id=record.sample_id,
        content_hash=record.content_hash,
        verdict=record.verdict,
        ac=record.ac,
        locale=record.locale,
    )
