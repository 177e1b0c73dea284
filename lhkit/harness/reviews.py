"""The labels that people give to recorded conversations: a file for each, beside the records."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from lhkit.errors import RunError, UsageError
from lhkit.files import DRAFT, open_regular, open_to_append, write_whole
from lhkit.harness.fingerprint import sha256
from lhkit.harness.record import SampleRecord, TurnRecord
from lhkit.json_values import compact


class Held(StrEnum):
    """What a reviewer holds of a call (the first three) or of a turn's reply (the others)."""

    RIGHT = "right"
    WRONG = "wrong"  # it should not have been made
    SHOULD_BE = "should_be"  # another call should have been made in its place
    FINE = "fine"
    NOT_FINE = "not_fine"
    CALL_MISSING = "call_missing"  # something should have been called before it


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlace:
    """A call of a conversation, counted within its turn, or with None the turn's reply."""

    sample: str
    turn: int
    call: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What one reviewer holds of one place; `tool` and `args` are the call that should be there.

    `say` are the words that should have been said in place of a reply that is not fine, if any.
    `seen_sha256` is the hash of the turn as it was judged: a turn that was asked again since has
    to be judged again.
    """

    place: CallPlace
    held: Held
    seen_sha256: str
    tool: str = ""
    args: Mapping[str, Any] | None = None
    say: str = ""


Labels: TypeAlias = Mapping[CallPlace, Label]

_LABEL = TypeAdapter(Label)
_FOLDER: Final = "reviews"
_LOCK: Final = "reviews.lock"
_WAIT_S: Final = 10.0
_NAME = re.compile(r"\w[\w.-]{0,63}")


def turn_sha256(turn: TurnRecord) -> str:
    """Return the hash of what a reviewer sees of a turn."""
    calls = [(each.tool, repr(each.raw_args), repr(each.result)) for each in turn.calls]
    return sha256([turn.user, calls, turn.reply])


def places_of(record: SampleRecord) -> Iterator[CallPlace]:
    """Yield what is to be judged of a conversation, in its order: each call, then each reply."""
    name = str(record.sample_id)
    for number, turn in enumerate(record.evidence.turns):
        yield from (CallPlace(sample=name, turn=number, call=i) for i in range(len(turn.calls)))
        yield CallPlace(sample=name, turn=number)


def turn_of(place: CallPlace, record: SampleRecord) -> TurnRecord:
    """Return the turn of a place."""
    return record.evidence.turns[place.turn]


class ReviewFile:
    """The labels of one reviewer over the records of a folder: a line each, the newest counts.

    A label is on the disk when `append` returns; a half-written line is left out.

    Raises:
        UsageError: the reviewer's name makes no file name.
        RunError: a line is no label, or the file cannot be read.
    """

    def __init__(self, folder: Path, reviewer: str) -> None:
        if not _NAME.fullmatch(reviewer):
            raise UsageError(
                f"{reviewer!r} names no reviewer: use letters, digits, dots and dashes, such as kim"
            )
        self.path = folder / _FOLDER / f"{reviewer}.jsonl"
        self._labels = {label.place: label for _, label in _labels_in(self.path)}

    @property
    def labels(self) -> tuple[Label, ...]:
        """The newest label of each place, also of conversations that are no longer there."""
        return tuple(self._labels.values())

    def of(self, record: SampleRecord) -> dict[CallPlace, Label]:
        """Return the labels of a conversation that are about what stands in it now."""
        found = {}
        for place in places_of(record):
            label = self._labels.get(place)
            if label and label.seen_sha256 == turn_sha256(turn_of(place, record)):
                found[place] = label
        return found

    def append(self, label: Label) -> None:
        """Write a label and wait until it is on the disk.

        Raises:
            RunError: the disk does not take it.
        """
        line = compact(asdict(label)).encode() + b"\n"
        try:
            with _locked(self.path.parent), open_to_append(self.path) as file:
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)  # half a line of a crash
                file.write(line)
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"{self.path} cannot be written ({error}): make room for it") from error
        self._labels[label.place] = label


def _labels_in(path: Path) -> Iterator[tuple[bytes, Label]]:
    """Yield the whole lines of a file of labels, each with its label; none if there is no file.

    Raises:
        RunError: a line is no label, or the file cannot be read or is no regular file.
    """
    _refuse_link(path.parent)
    try:
        with open_regular(path) as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error}): remove it") from error
    for number, line in enumerate(lines, start=1):
        try:
            yield line, _label(line)
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path}:{number} is no label ({error}): remove the line") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of labels, made if need be: one process at a time writes.

    Raises:
        RunError: the folder is a symbolic link, or another process does not let go of it.
        OSError: it cannot be made.
    """
    _refuse_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / _LOCK, timeout=_WAIT_S):
            yield
    except Timeout as error:
        raise RunError(f"{folder} is in use by another process: try again") from error


def _refuse_link(folder: Path) -> None:
    if folder.is_symlink():
        raise RunError(f"{folder} is a symbolic link: replace it by a folder")


def forget_labels(folder: Path, samples: Collection[str] | None) -> None:
    """Remove what reviewers wrote of some samples of a run folder, or, with None, of all.

    Raises:
        RunError: a file of labels is broken, in use, or cannot be written.
    """
    reviews = folder / _FOLDER
    _refuse_link(reviews)
    if not reviews.exists():
        return
    try:
        with _locked(reviews):
            kept = {
                path: [
                    line
                    for line, label in (() if samples is None else _labels_in(path))
                    if label.place.sample not in (samples or ())
                ]
                for path in reviews.glob("*.jsonl")
            }
            for path, lines in kept.items():
                if lines:
                    write_whole(path, (line + b"\n" for line in lines))
                else:
                    path.unlink()
            for draft in reviews.glob(f"{DRAFT}*"):  # of a process that was killed
                draft.unlink()
    except OSError as error:
        raise RunError(f"{reviews} cannot be written ({error}): make room for it") from error


def _label(line: bytes) -> Label:
    """Return the label of a line; half a surrogate pair may stand in it, as in a record.

    Raises:
        ValueError: it is no JSON, or no label.
        RecursionError: it is nested too deep to be read.
    """
    try:
        return _LABEL.validate_python(json.loads(line), strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def reviewers_of(folder: Path) -> tuple[str, ...]:
    """Return who reviewed the records of a folder, by name."""
    return tuple(sorted(path.stem for path in (folder / _FOLDER).glob("*.jsonl")))
