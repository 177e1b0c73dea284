"""Human labels for calls and replies: a file for each reviewer, beside the records; agreement."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from lhkit.errors import RunError, UsageError
from lhkit.files import DRAFT, open_regular, write_atomically
from lhkit.harness.fingerprint import sha256
from lhkit.harness.record import SampleRecord, TurnRecord
from lhkit.harness.shares import Interval, wilson
from lhkit.harness.store import open_journal
from lhkit.json_values import compact


class LabelKind(StrEnum):
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
    held: LabelKind
    seen_sha256: str
    tool: str = ""
    args: Mapping[str, Any] | None = None
    say: str = ""


Labels: TypeAlias = Mapping[CallPlace, Label]

_LABEL = TypeAdapter(Label)
_FOLDER: Final = "reviews"
_WAIT_S: Final = 10.0
_NO_SPREAD: Final = 1e-12
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
        folder = _no_link(self.path.parent)
        with open_journal(folder, wait_s=_WAIT_S, reads=False, file_name=self.path.name) as journal:
            journal.append(compact(asdict(label)))
        self._labels[label.place] = label


def _labels_in(path: Path) -> Iterator[tuple[bytes, Label]]:
    """Yield the whole lines of a file of labels, each with its label; none if there is no file.

    Raises:
        RunError: a line is no label, or the file cannot be read or is no regular file.
    """
    _no_link(path.parent)
    try:
        with open_regular(path) as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error}): remove it") from error
    for number, line in enumerate(lines, start=1):
        try:  # not `validate_json`: half a surrogate pair may stand in it, as in a record
            yield line + b"\n", _LABEL.validate_python(json.loads(line), strict=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            told = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise RunError(f"{path}:{number} is no label ({told}): remove the line") from error
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path}:{number} is no label ({error}): remove the line") from error


def _no_link(folder: Path) -> Path:
    if folder.is_symlink():
        raise RunError(f"{folder} is a symbolic link: replace it by a folder")
    return folder


def forget_labels(folder: Path, samples: Collection[str] | None) -> None:
    """Remove what reviewers wrote of some samples of a run folder, or, with None, of all.

    Raises:
        RunError: a file of labels is broken, in use, or cannot be written.
    """
    reviews = _no_link(folder / _FOLDER)
    paths = sorted(reviews.glob("*.jsonl"))
    if samples is not None:
        for path in paths:  # nothing is removed while one is broken
            tuple(_labels_in(path))
    try:
        for path in paths:
            with open_journal(reviews, wait_s=_WAIT_S, reads=False, file_name=path.name):
                lines = [] if samples is None else _labels_in(path)
                kept = [line for line, label in lines if label.place.sample not in (samples or ())]
                if kept:
                    write_atomically(path, kept)
                else:
                    path.unlink()
        for draft in reviews.glob(f"{DRAFT}*"):  # of a process that was killed
            draft.unlink()
    except OSError as error:
        raise RunError(f"{reviews} cannot be written ({error}): make room for it") from error


def reviewers_of(folder: Path) -> tuple[str, ...]:
    """Return who reviewed the records of a folder, by name."""
    return tuple(sorted(path.stem for path in (folder / _FOLDER).glob("*.jsonl")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Cohen's kappa of `n` things that two people judged; None where chance alone explains all.

    `observed` is the share that they judged alike. `interval` is the 95 % interval of `kappa`.
    """

    n: int
    observed: float
    kappa: float | None
    interval: Interval | None


def cohens_kappa(pairs: Sequence[tuple[str, str]], level: float = 0.95) -> Agreement | None:
    """Return how far two people agree on what they both judged; None if that is nothing.

    Cohen (1960), A coefficient of agreement for nominal scales, with the standard error of Fleiss,
    Cohen and Everitt (1969). That error is 0 where they agree on everything, or one of them always
    says the same, as if a few things told all; there it is Wilson's interval of the share that they
    judged alike, measured from chance.
    """
    n = len(pairs)
    if not n:
        return None
    kinds = sorted({kind for pair in pairs for kind in pair})
    joint = {pair: count / n for pair, count in Counter(pairs).items()}
    first = {kind: sum(p for (a, _), p in joint.items() if a == kind) for kind in kinds}
    second = {kind: sum(p for (_, b), p in joint.items() if b == kind) for kind in kinds}
    observed = sum(p for (a, b), p in joint.items() if a == b)
    chance = sum(first[kind] * second[kind] for kind in kinds)
    if chance >= 1.0:  # both always said the same one thing
        return Agreement(n=n, observed=observed, kappa=None, interval=None)
    kappa = (observed - chance) / (1 - chance)
    rest = 1 - kappa
    on, off = ([each for each in joint if (each[0] == each[1]) is same] for same in (True, False))
    alike = sum(joint[a, b] * (1 - (first[a] + second[a]) * rest) ** 2 for a, b in on)
    apart = sum(joint[a, b] * (second[a] + first[b]) ** 2 for a, b in off)
    spread = alike + rest**2 * apart - (kappa - chance * rest) ** 2
    if spread < _NO_SPREAD:
        of_share = wilson(round(observed * n), n, level)
        low, high = ((end - chance) / (1 - chance) for end in (of_share.low, of_share.high))
    else:
        reach = NormalDist().inv_cdf((1 + level) / 2) * (spread / n) ** 0.5 / (1 - chance)
        low, high = kappa - reach, kappa + reach
    interval = Interval(low=max(-1.0, low), high=min(1.0, high))
    return Agreement(n=n, observed=observed, kappa=kappa, interval=interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """A place that two people judged differently."""

    first: Label
    second: Label

    @property
    def place(self) -> CallPlace:
        """Which."""
        return self.first.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """Two reviewers: agreement on calls and on replies (None if neither), and every difference."""

    first: str
    second: str
    calls: Agreement | None
    replies: Agreement | None
    disputes: tuple[Dispute, ...]


def compare_reviews(records: Sequence[SampleRecord], folder: Path, *names: str) -> Reviewed:
    """Return how two reviewers of a folder agree, on what both have judged.

    Raises:
        UsageError: there are not two reviewers to compare.
        RunError: a file of labels is broken.
    """
    told = names or reviewers_of(folder)
    if len(told) != 2:
        raise UsageError(
            f"{folder} was reviewed by {', '.join(told) or 'nobody'}: name the two reviewers to "
            "compare"
        )
    files = [ReviewFile(folder, name) for name in told]
    both = [
        (first[place], second[place])
        for record in records
        for first, second in [[file.of(record) for file in files]]
        for place in places_of(record)
        if place in first and place in second
    ]
    calls = [(a.held, b.held) for a, b in both if a.place.call is not None]
    replies = [(a.held, b.held) for a, b in both if a.place.call is None]
    return Reviewed(
        first=told[0],
        second=told[1],
        calls=cohens_kappa(calls),
        replies=cohens_kappa(replies),
        disputes=tuple(Dispute(first=a, second=b) for a, b in both if a != b),
    )
