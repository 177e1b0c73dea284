"""What a review shows: a conversation, the place to be judged, a form; folded from events, pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, assert_never

from lhkit.harness.record import CallRecord, SampleRecord
from lhkit.harness.reviews import CallPlace, Held, Label, Reviewed, places_of
from lhkit.notebook.events import PanelNotice

CALL_KEYS = {"1": Held.RIGHT, "2": Held.WRONG, "3": Held.SHOULD_BE}
REPLY_KEYS = {"1": Held.FINE, "2": Held.NOT_FINE, "3": Held.CALL_MISSING}


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionForm:
    """A call being written: its tool, the fields as they were typed, and what is wrong with them.

    `say` are the better words for a reply. `number` counts forms, so that a new one begins with its
    own values.
    """

    number: int
    held: Held
    tool: str
    values: Mapping[str, str]
    say: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Another place is looked at: `conversation` and `place` count from 0."""

    conversation: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A label is on the disk."""

    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class FormShown:
    """A call is being written."""

    form: CorrectionForm


@dataclass(frozen=True, slots=True, kw_only=True)
class FormClosed:
    """No call is being written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two reviewers are shown beside each other."""

    reviewed: Reviewed


ReviewEvent: TypeAlias = Moved | Labelled | FormShown | FormClosed | Compared | PanelNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewState:
    """Everything a review shows. `tools` are the schemas of arguments, by locale and name."""

    reviewer: str
    records: tuple[SampleRecord, ...]
    tools: Mapping[str, Mapping[str, Mapping[str, Any]]]
    labels: Mapping[CallPlace, Label] = field(default_factory=dict)
    conversation: int = 0
    place: int = 0
    form: CorrectionForm | None = None
    compared: Reviewed | None = None
    told: tuple[PanelNotice, ...] = ()

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
        turn = self.record.evidence.turns[at.turn]
        return None if at.call is None else turn.calls[at.call]

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


def fold_review(state: ReviewState, event: ReviewEvent) -> ReviewState:
    """Return the state after `event`."""
    match event:
        case Moved(conversation=conversation, place=place):
            return replace(
                state, conversation=conversation, place=place, form=None, told=(), compared=None
            )
        case Labelled(label=label):
            labels = {**state.labels, label.place: label}
            return replace(state, labels=labels, form=None, told=())
        case FormShown(form=form):
            return replace(state, form=form, told=())
        case FormClosed():
            return replace(state, form=None)
        case Compared(reviewed=reviewed):
            return replace(state, compared=reviewed, told=())
        case PanelNotice():
            return replace(state, told=(event,))
        case _:
            assert_never(event)


def moved(state: ReviewState, conversation: int, place: int = 0) -> Moved:
    """Return the move to a place, or to the nearest that there is."""
    number = min(max(conversation, 0), len(state.records) - 1)
    last = len(tuple(places_of(state.records[number]))) - 1
    return Moved(conversation=number, place=min(max(place, 0), last))


def next_open(state: ReviewState) -> Moved | None:
    """Return the move to the next place that is not judged, from here on and round."""
    count = len(state.records)
    for step in range(count + 1):
        number = (state.conversation + step) % count
        for index, place in enumerate(places_of(state.records[number])):
            is_behind = step == 0 and index <= state.place
            if place not in state.labels and not is_behind:
                return Moved(conversation=number, place=index)
    return None
