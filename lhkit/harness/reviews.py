"""What people hold of conversations: labels call by call, kept, compared, and mended talks."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from lhkit.confirm.gate import ConfirmGate, ScriptedGate
from lhkit.errors import RunError, UsageError
from lhkit.events import DispatchTrace, GateOutcome
from lhkit.files import DRAFT, open_regular, open_to_append, write_whole
from lhkit.harness.author.written import Said, scenario_of_talk
from lhkit.harness.plan import sha256
from lhkit.harness.record import SampleRecord, TurnRecord
from lhkit.harness.sessions import row_keys_of
from lhkit.harness.shares import Agreement, cohens_kappa
from lhkit.json_values import compact
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.toolset import Toolset, opened, require_isolated, state_of

# Labels: values, and one file a reviewer beside the records.


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


# Two reviewers: how far they agree, and where they do not.


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
        disputes=tuple(Dispute(first=a, second=b) for a, b in both if _differ(a, b)),
    )


def _differ(a: Label, b: Label) -> bool:
    """Return whether two labels say different things; the same kind may ask for other calls."""
    return (a.held, a.tool, a.args, a.say) != (b.held, b.tool, b.args, b.say)


# A reviewed conversation as it should have gone.

Answer: TypeAlias = Literal["accept", "reject", "absent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MendedCall:
    """A call that should be made, and what the user answers if asked."""

    tool: str
    args: Mapping[str, Any]
    answer: Answer = "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class MendedTurn:
    """What the user says, what should be called, and what was said; `is_reply_fine` or not."""

    user: str
    calls: tuple[MendedCall, ...] = ()
    reply: str = ""
    is_reply_fine: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MendedTalk:
    """A reviewed conversation as it should have gone. `world` is its first state, with `now`."""

    name: str
    locale: str
    world: Mapping[str, Any]
    turns: tuple[MendedTurn, ...]


_REPEATED = "repeated_call"

_NO_WORDS = "…"
"""What the gold says where nobody knows what should be said: something has to be."""


def mended(record: SampleRecord, labels: Labels, world: Mapping[str, Any]) -> MendedTalk | None:
    """Return the conversation as its reviewer would have it; None while a place is not judged."""
    if any(place not in labels for place in places_of(record)):
        return None
    name = str(record.sample_id)
    turns = []
    for number, turn in enumerate(record.evidence.turns):
        said = labels[CallPlace(sample=name, turn=number)]
        calls = [*_mended_calls(turn, name, number, labels)]
        if said.held is Held.CALL_MISSING:
            calls.append(MendedCall(tool=said.tool, args=dict(said.args or {})))
        final = turn.model_calls[-1].response.text.strip() if turn.model_calls else ""
        turns.append(
            MendedTurn(
                user=turn.user,
                calls=tuple(calls),
                reply=said.say or final or turn.reply,
                is_reply_fine=said.held is Held.FINE or bool(said.say),
            )
        )
    return MendedTalk(name=name, locale=record.locale, world=world, turns=tuple(turns))


def _mended_calls(turn: TurnRecord, name: str, number: int, labels: Labels) -> Iterator[MendedCall]:
    for index, call in enumerate(turn.calls):
        if call.outcome == _REPEATED:  # refused, because it had been made: no call to ask for
            continue
        label = labels[CallPlace(sample=name, turn=number, call=index)]
        answer = _answer(call.gate)
        if label.held is Held.SHOULD_BE:
            yield MendedCall(tool=label.tool, args=dict(label.args or {}), answer=answer)
        elif label.held is Held.RIGHT and isinstance(call.raw_args, Mapping):
            yield MendedCall(tool=call.tool, args=dict(call.raw_args), answer=answer)


def _answer(gate: GateOutcome) -> Answer:
    match gate:
        case GateOutcome.NOT_NEEDED | GateOutcome.NOT_ASKED | GateOutcome.ACCEPTED:
            return "accept"
        case GateOutcome.ABSENT:
            return "absent"
        case _:
            return "reject"


async def scenario_of_review(talk: MendedTalk, toolset: Toolset, *, ac: str | None = None) -> str:
    """Return a scenario file of one scenario: the mended calls are made in the talk's world.

    What they come to, and the state at the end, is what the real tools say: so the gold passes.

    Raises:
        NotIsolatedError: sessions of the toolset share real data.
        UsageError: the world opens no longer, or a mended call comes to a mistake of its own.
    """
    require_isolated(toolset, "make the calls of a review")
    with opened(toolset, talk.world, talk.locale) as session:
        begun, row_keys = state_of(session), row_keys_of(session, state_of(session))
        said = [
            await _played(turn, ToolDispatcher(session.registry), session.assistant.deps, talk)
            for turn in talk.turns
        ]
        ended = state_of(session)
        return scenario_of_talk(
            said,
            begun={**talk.world, **{table: list(rows) for table, rows in begun.items()}},
            ended={table: list(rows) for table, rows in ended.items()},
            destructive=session.registry.destructive,
            locale=talk.locale,
            scenario_id=f"reviewed-{talk.name.replace('#', '-')}",
            ac=ac,
            row_keys=row_keys,
        )


async def _played(
    turn: MendedTurn, dispatcher: ToolDispatcher, deps: Any, talk: MendedTalk
) -> Said:
    traces: list[DispatchTrace] = []
    for call in turn.calls:
        gate: ConfirmGate | None = (
            None if call.answer == "absent" else ScriptedGate([call.answer == "accept"])
        )
        await dispatcher.dispatch(
            call.tool, dict(call.args), confirm=gate, deps=deps, observe=traces.append
        )
        code = getattr(traces[-1].result, "code", "")
        if code in {"unknown_tool", "validation", "handler_error"}:
            raise UsageError(
                f"{talk.name}: {call.tool} {compact(dict(call.args))} as reviewed comes to {code}: "
                "review that call again"
            )
    reply = turn.reply if turn.is_reply_fine else _NO_WORDS
    return Said(user=turn.user, traces=tuple(traces), reply=reply)


# Mended talks as lines of a file.

_TALK = TypeAdapter(MendedTalk)


def talk_line(talk: MendedTalk) -> str:
    """Return a talk as one line of JSON."""
    return compact(asdict(talk)) + "\n"


def read_talks(path: Path) -> tuple[MendedTalk, ...]:
    """Return the talks of a file.

    Raises:
        UsageError: it cannot be read, or a line is no talk; the message names it.
    """
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}): write it with Review.to_training"
        ) from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_TALK.validate_python(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{path}:{number} is no reviewed conversation: write it with Review.to_training"
            ) from error
    return tuple(found)
