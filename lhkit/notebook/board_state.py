"""What a board shows: the vote under two conversations, or the labels of a review; pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from lhkit.confirm.form import (
    FieldKind,
    FormField,
    Typed,
    UnsupportedFormError,
    format_value,
    parse_field,
)
from lhkit.events import CallCompleted, ChatEvent, TurnEnded
from lhkit.harness.record import CallRecord, Preference, SampleRecord
from lhkit.harness.reviews import CallPlace, Label, LabelKind, Reviewed, places_of
from lhkit.notebook.events import OptInRequested, PanelNotice
from lhkit.responses import Finished, ModelIdentity

Side: TypeAlias = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")

CALL_LABELS = (LabelKind.RIGHT, LabelKind.WRONG, LabelKind.SHOULD_BE)
REPLY_LABELS = (LabelKind.FINE, LabelKind.NOT_FINE, LabelKind.CALL_MISSING)
WITH_CALL = frozenset({LabelKind.SHOULD_BE, LabelKind.CALL_MISSING})
"""Labels that come with the call that should have been made."""
WITH_WORDS = frozenset({LabelKind.NOT_FINE, LabelKind.CALL_MISSING})
"""Labels that come with the words that should have been said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardState:
    """What every board shows: which conversation it is at, and what it has to tell."""

    conversation: int = 0
    told: tuple[PanelNotice, ...] = ()


class VoteChoice(StrEnum):
    """A vote, by where the conversations are shown. The keys 1 to 4, in this order."""

    LEFT = "left"
    RIGHT = "right"
    TIE = "tie"
    BOTH_BAD = "both_bad"

    def of(self, side: Side) -> Preference:
        """Return what the vote says of the conversation on one side."""
        match self:
            case VoteChoice.TIE:
                return Preference.TIE
            case VoteChoice.BOTH_BAD:
                return Preference.BOTH_BAD
            case _:
                return Preference.BETTER if self.value == side else Preference.WORSE


class Stage(StrEnum):
    """What can be done next."""

    OPT_IN = "opt_in"
    READY = "ready"
    ANSWERING = "answering"
    VOTING = "voting"
    FAILED = "failed"  # a model could not answer: nobody can vote on that
    VOTED = "voted"
    UNBLINDED = "unblinded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """One side without its blindfold."""

    identity: ModelIdentity
    record: SampleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ABState(BoardState):
    """Everything that stands below two conversations. `votes` were given in this panel."""

    stage: Stage = Stage.READY
    turns: int = 0
    choice: VoteChoice | None = None
    reason: str = ""
    votes: int = 0
    opt_ins: tuple[OptInRequested, ...] = ()
    revealed: tuple[Revealed, Revealed] | None = None

    @property
    def may_vote(self) -> bool:
        """True while a vote is taken; one may be changed until the names are known."""
        return self.stage in {Stage.VOTING, Stage.VOTED}

    @property
    def may_send(self) -> bool:
        """True while a message is taken; after a vote it begins another conversation."""
        return self.stage not in {Stage.OPT_IN, Stage.ANSWERING, Stage.FAILED}


def blinded(event: ChatEvent) -> ChatEvent:
    """Return the event without what would tell which model it is of: name, raw text, address."""
    match event:
        case Finished():
            calls = tuple(replace(call, raw="") for call in event.calls)
            fragment = "…" if event.fragment else ""
            return replace(event, identity=None, raw_text="", calls=calls, fragment=fragment)
        case CallCompleted(message=message):
            return CallCompleted(message=replace(message, call=replace(message.call, raw="")))
        case TurnEnded():
            return replace(event, detail=None)
        case _:
            return event


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A label that is being written: its call, the better words, and what is wrong with the call.

    `number` counts them, so that each gets the focus once.
    """

    number: int
    held: LabelKind
    tool: str = ""
    fields: tuple[FormField, ...] = ()
    typed: Typed = field(default_factory=dict)
    say: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""

    @property
    def has_call(self) -> bool:
        """True if it comes with the call that should have been made."""
        return self.held in WITH_CALL

    @property
    def has_words(self) -> bool:
        """True if it comes with the words that should have been said."""
        return self.held in WITH_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewState(BoardState):
    """Everything a review shows. `tools` are the schemas of arguments, by locale and name."""

    reviewer: str
    records: tuple[SampleRecord, ...]
    tools: Mapping[str, Mapping[str, Mapping[str, Any]]]
    labels: Mapping[CallPlace, Label] = field(default_factory=dict)
    place: int = 0
    form: Correction | None = None
    forms: int = 0
    compared: Reviewed | None = None

    @property
    def record(self) -> SampleRecord:
        """The conversation that is looked at."""
        return self.records[self.conversation]

    @property
    def places(self) -> tuple[CallPlace, ...]:
        """What is to be judged in it."""
        return tuple(places_of(self.record))

    @property
    def current(self) -> CallPlace:
        """The place that a key judges."""
        return self.places[self.place]

    @property
    def call(self) -> CallRecord | None:
        """The call that a key judges; None if it is a reply."""
        at = self.current
        return None if at.call is None else self.record.evidence.turns[at.turn].calls[at.call]

    @property
    def choices(self) -> tuple[LabelKind, ...]:
        """What can be said of the place. The keys 1 to 3, in this order."""
        return REPLY_LABELS if self.call is None else CALL_LABELS

    @property
    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """The tools that could have been called in this conversation."""
        found = self.tools.get(self.record.locale)
        return found if found is not None else next(iter(self.tools.values()), {})

    def is_done(self, record: SampleRecord) -> bool:
        """Return whether everything in a conversation is judged."""
        return all(place in self.labels for place in places_of(record))

    @property
    def done(self) -> int:
        """How many conversations are judged whole."""
        return sum(self.is_done(record) for record in self.records)

    def moved(self, conversation: int, place: int = 0) -> "ReviewState":
        """Return the state at a place, or at the nearest that there is; both count from 0."""
        number = min(max(conversation, 0), len(self.records) - 1)
        last = len(tuple(places_of(self.records[number]))) - 1
        place = min(max(place, 0), last)
        return replace(self, conversation=number, place=place, form=None, told=(), compared=None)

    def at_next_open(self) -> "ReviewState | None":
        """Return the state at the next place that is not judged, from here on and round."""
        count = len(self.records)
        for step in range(count + 1):
            number = (self.conversation + step) % count
            for index, place in enumerate(places_of(self.records[number])):
                is_behind = step == 0 and index <= self.place
                if place not in self.labels and not is_behind:
                    return self.moved(number, index)
        return None

    def correction(self, held: LabelKind, tool: str | None = None) -> Correction:
        """Return a form for the place, with the arguments and words that were given there."""
        label, call = self.labels.get(self.current), self.call
        number = self.forms + 1
        say = label.say if label is not None else ""
        if held not in WITH_CALL:
            return Correction(number=number, held=held, say=say)
        made: tuple[str, Any] = ("", None) if call is None else (call.tool, call.raw_args)
        if label is not None and label.held is held:
            made = (label.tool, label.args)
        name = tool or made[0]
        if name not in self.schemas:
            name = next(iter(self.schemas), "")
        given = made[1] if name == made[0] and isinstance(made[1], Mapping) else {}
        fields = tuple(_argument_fields(self.schemas.get(name, {})))
        typed = {
            each.name: format_value(each, given[each.name]) for each in fields if each.name in given
        }
        return Correction(number=number, held=held, tool=name, fields=fields, typed=typed, say=say)


def _argument_fields(schema: Mapping[str, Any]) -> Iterator[FormField]:
    """Yield the fields for a call's arguments, by their names; JSON text where no other can be."""
    properties, needed = schema.get("properties"), schema.get("required")
    required = needed if isinstance(needed, list | tuple) else ()
    for name, part in (properties if isinstance(properties, Mapping) else {}).items():
        try:
            yield replace(parse_field(str(name), part, is_required=name in required), title="")
        except UnsupportedFormError:
            about = part.get("description", "") if isinstance(part, Mapping) else ""
            is_required = name in required
            yield FormField(
                name=str(name), kind=FieldKind.JSON, about=str(about), is_required=is_required
            )
