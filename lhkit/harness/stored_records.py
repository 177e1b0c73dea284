"""The records of a run left on disk: read one at a time, when they are looked at.

For runs that are too large to hold. A place in the file is all that is kept of a record.
"""

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from pydantic import TypeAdapter

from lhkit.errors import RunError
from lhkit.harness.record import SampleId, SampleRecord, Verdict
from lhkit.harness.resume import Answered, Questions, answered, chosen
from lhkit.harness.store import RECORDS, open_records, record_of_line


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
        with open_records(self._path) as file:
            for place in places:
                file.seek(place)
                yield record_of_line(file.readline(), f"{self._path} at byte {place}")


def stored_records(folder: Path, asked: Questions) -> StoredRecords:
    """Return the newest answers to the samples that were asked, a valid one before an invalid one.

    Args:
        folder: a finished run's.
        asked: the samples, in the order wanted.

    Raises:
        RunError: an answer is not there.
    """
    path = folder / RECORDS
    places, known = array("Q", bytes(8 * len(asked))), bytearray(len(asked))
    for (sample, question), is_valid, place in _answers(path):
        if asked.get(sample) != question:
            continue
        number = asked.place(sample)
        if is_valid or known[number] < _VALID:
            places[number], known[number] = place, _VALID if is_valid else _VALID - 1
    missing = known.find(0)
    if missing >= 0:
        raise RunError(
            f"{path} lost {list(asked)[missing]} while the run went on: leave the folder alone and "
            "give the same command again, which plays what is missing"
        )
    return StoredRecords(path, places)


_VALID = 2


def stored_answered(folder: Path) -> Iterator[Answered]:
    """Yield what `answered` does of the records of a folder, without holding one."""
    if (folder / RECORDS).exists():
        yield from ((question, is_valid) for question, is_valid, _ in _answers(folder / RECORDS))


def stored_answers(folder: Path, asked: Mapping[SampleId, str]) -> StoredRecords:
    """Return what `answers` returns of a run folder, left on disk.

    Raises:
        RunError: a line is no record; the message names it. What only a look at the whole record
            can tell is raised when it is looked at.
    """
    path = folder / RECORDS
    return StoredRecords(path, chosen(_answers(path), asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """As much of a record as says which question it answers."""

    sample_id: SampleId
    content_hash: str
    judgement: _Verdict

    @property
    def answered(self) -> Answered:
        """As of `answered`."""
        key = (self.sample_id, self.content_hash)
        return key, self.judgement.verdict is not Verdict.INVALID


_ANSWER = TypeAdapter(_Answer)


def _answers(path: Path) -> Iterator[tuple[tuple[SampleId, str], bool, int]]:
    """Yield which question each line answers, whether it is a valid answer, and its place."""
    place = 0
    with open_records(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):  # half of it: a run that goes on, or was killed
                return
            try:
                key, is_valid = _ANSWER.validate_python(json.loads(line)).answered
            except (ValueError, RecursionError):  # says what is wrong, or reads it after all
                record = record_of_line(line, f"{path}:{number}")
                key, is_valid = next(answered([record]))
            yield key, is_valid, place
            place += len(line)
