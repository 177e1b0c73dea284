"""Store human labels for calls and replies, one file per reviewer, and compare two reviewers."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from lhkit.base.errors import RunError, UsageError
from lhkit.base.files import DRAFT, open_regular, write_atomically
from lhkit.base.json_values import compact
from lhkit.harness.figures.agreement import Agreement, cohens_kappa
from lhkit.harness.records.record import SampleRecord, TurnRecord, first_issue
from lhkit.harness.records.store import open_journal
from lhkit.harness.running.fingerprint import sha256


class LabelKind(StrEnum):
    """A label of a call (the first three), of a reply, or of a conversation (the last two).

    The last two answer the question of a judge; they are not in a review file.
    """

    RIGHT = "right"
    WRONG = "wrong"  # no call is expected here
    SHOULD_BE = "should_be"  # another call is expected instead
    FINE = "fine"
    NOT_FINE = "not_fine"
    CALL_MISSING = "call_missing"  # a call is expected before the reply
    YES = "yes"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlace:
    """A call of a conversation, numbered within its turn; None is the reply of the turn."""

    sample: str
    turn: int
    call: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A reviewer's label of one call or reply; a line of the review file.

    Attributes:
        place: the labelled call or reply.
        verdict: the label.
        turn_sha256: the hash of the labelled turn; the label is outdated if the turn has changed.
        tool: the expected tool, for `SHOULD_BE` and `CALL_MISSING`.
        args: the expected arguments, for the same two.
        say: the expected reply, if one was written for a rejected reply.
    """

    place: CallPlace
    verdict: LabelKind
    turn_sha256: str
    tool: str = ""
    args: Mapping[str, Any] | None = None
    say: str = ""


Labels: TypeAlias = Mapping[CallPlace, Label]

_LABEL = TypeAdapter(Label)
_FOLDER: Final = "reviews"
_WAIT_S: Final = 10.0
_NAME = re.compile(r"\w[\w.-]{0,63}")


def turn_sha256(turn: TurnRecord) -> str:
    """Return the hash of the reviewed content of a turn."""
    calls = [(call.tool, repr(call.raw_args), repr(call.result)) for call in turn.calls]
    return sha256([turn.user, calls, turn.reply])


def places_of(record: SampleRecord) -> Iterator[CallPlace]:
    """Yield the places to review, turn by turn: the calls, then the reply."""
    name = str(record.sample_id)
    for number, turn in enumerate(record.trajectory.turns):
        yield from (CallPlace(sample=name, turn=number, call=i) for i in range(len(turn.calls)))
        yield CallPlace(sample=name, turn=number)


class ReviewFile:
    """The labels of one reviewer in a run folder: a line each, of which the newest counts.

    A label is on disk when `append` returns; an incomplete last line is ignored.

    Args:
        folder: the run folder.
        reviewer: the name of the reviewer, used as file name.

    Raises:
        UsageError: the name is not a valid file name.
        RunError: a line is invalid, or the file cannot be read.
    """

    def __init__(self, folder: Path, reviewer: str) -> None:
        if not _NAME.fullmatch(reviewer):
            raise UsageError(
                f"The reviewer name {reviewer!r} is invalid. Use letters, digits, dots and dashes, "
                "such as kim."
            )
        self.path = folder / _FOLDER / f"{reviewer}.jsonl"
        self._labels = {label.place: label for _, label in _labels_in(self.path)}

    @property
    def labels(self) -> tuple[Label, ...]:
        """The newest label of each place, including places of removed conversations."""
        return tuple(self._labels.values())

    def of(self, record: SampleRecord) -> dict[CallPlace, Label]:
        """Return the labels of a conversation, without outdated ones."""
        labels = {}
        for place in places_of(record):
            label = self._labels.get(place)
            if label and label.turn_sha256 == turn_sha256(record.trajectory.turns[place.turn]):
                labels[place] = label
        return labels

    def append(self, label: Label) -> None:
        """Write a label and wait until it is on the disk.

        Raises:
            RunError: the file cannot be written.
        """
        folder = _require_no_link(self.path.parent)
        with open_journal(folder, wait_s=_WAIT_S, reads=False, file_name=self.path.name) as journal:
            journal.append(compact(asdict(label)))
        self._labels[label.place] = label


def _labels_in(path: Path) -> Iterator[tuple[bytes, Label]]:
    """Yield the complete lines of a review file with their labels; none if it does not exist.

    Raises:
        RunError: a line is invalid, the file cannot be read, or it is not a regular file.
    """
    _require_no_link(path.parent)
    try:
        with open_regular(path) as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error}. Remove it.") from error
    for number, line in enumerate(lines, start=1):
        try:  # not `validate_json`, which rejects the lone surrogates that records may contain
            yield line + b"\n", _LABEL.validate_python(json.loads(line), strict=False)
        except (ValueError, RecursionError) as error:
            why = first_issue(error) if isinstance(error, ValidationError) else error
            raise RunError(
                f"{path}:{number} is not a valid label: {why}. Remove the line."
            ) from error


def _require_no_link(folder: Path) -> Path:
    if folder.is_symlink():
        raise RunError(f"{folder} is a symbolic link. Replace it with a folder.")
    return folder


def forget_labels(folder: Path, samples: Collection[str] | None) -> None:
    """Remove the labels of some samples of a run folder, or with None of all samples.

    Raises:
        RunError: a review file is invalid, in use, or cannot be written.
    """
    reviews = _require_no_link(folder / _FOLDER)
    paths = sorted(reviews.glob("*.jsonl"))
    if samples is not None:
        for path in paths:  # check all files before changing one
            tuple(_labels_in(path))
    try:
        for path in paths:
            with open_journal(reviews, wait_s=_WAIT_S, reads=False, file_name=path.name):
                lines = [] if samples is None else _labels_in(path)
                others = [
                    line for line, label in lines if label.place.sample not in (samples or ())
                ]
                if others:
                    write_atomically(path, others)
                else:
                    path.unlink()
        for draft in reviews.glob(f"{DRAFT}*"):  # left by a killed process
            draft.unlink()
    except OSError as error:
        raise RunError(f"{reviews} cannot be written: {error}. Free disk space.") from error


def reviewers_of(folder: Path) -> tuple[str, ...]:
    """Return the names of the reviewers of a folder, sorted."""
    return tuple(sorted(path.stem for path in (folder / _FOLDER).glob("*.jsonl")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """A place that two people judged differently."""

    first: Label
    second: Label

    @property
    def place(self) -> CallPlace:
        """The place of both labels."""
        return self.first.place


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewComparison:
    """Two reviewers: their agreement on calls and on replies, and all disputes.

    An agreement is None if there is no place that both have labelled.
    """

    first: str
    second: str
    calls: Agreement | None
    replies: Agreement | None
    disputes: tuple[Dispute, ...]


def compare_reviews(records: Sequence[SampleRecord], folder: Path, *names: str) -> ReviewComparison:
    """Return the agreement of two reviewers of a folder.

    Args:
        records: the conversations to compare.
        folder: the run folder.
        names: the two reviewers; by default all of the folder.

    Raises:
        UsageError: there are not exactly two reviewers.
        RunError: a review file is invalid.
    """
    reviewers = names or reviewers_of(folder)
    if len(reviewers) != 2:
        raise UsageError(
            f"Comparing needs two reviewers, but {folder} has {len(reviewers)}: "
            f"{', '.join(reviewers) or 'none'}. Name two of them."
        )
    files = [ReviewFile(folder, name) for name in reviewers]
    both = [
        (first[place], second[place])
        for record in records
        for first, second in [[file.of(record) for file in files]]
        for place in places_of(record)
        if place in first and place in second
    ]
    calls = [(a.verdict, b.verdict) for a, b in both if a.place.call is not None]
    replies = [(a.verdict, b.verdict) for a, b in both if a.place.call is None]
    return ReviewComparison(
        first=reviewers[0],
        second=reviewers[1],
        calls=cohens_kappa(calls),
        replies=cohens_kappa(replies),
        disputes=tuple(Dispute(first=a, second=b) for a, b in both if a != b),
    )
