"""The states of the A/B and review boards; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from lhkit.confirm.form import (
    FormField,
    Typed,
    argument_fields,
    format_value,
)
from lhkit.conversation.events import CallCompleted, ChatEvent, EndReason, TurnEnded
from lhkit.conversation.responses import Finished, ModelIdentity
from lhkit.harness.chats.drafts import Draft, DraftDecision, Drafts
from lhkit.harness.chats.reviews import CallPlace, Label, LabelKind, ReviewComparison, places_of
from lhkit.harness.records.record import CallRecord, Preference, SampleRecord, TurnRecord
from lhkit.notebook.panel.state import OptInRequested, PanelNotice

Side: TypeAlias = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")

CALL_LABELS = (LabelKind.RIGHT, LabelKind.WRONG, LabelKind.SHOULD_BE)
ANSWERS = (LabelKind.YES, LabelKind.NO)
REPLY_LABELS = (LabelKind.FINE, LabelKind.NOT_FINE, LabelKind.CALL_MISSING)
WITH_CALL = frozenset({LabelKind.SHOULD_BE, LabelKind.CALL_MISSING})
"""Labels with the call that should have been made."""
WITH_WORDS = frozenset({LabelKind.NOT_FINE, LabelKind.CALL_MISSING})
"""Labels with the reply that should have been given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardState:
    """The state of any board: the number of the conversation, and notices."""

    conversation: int = 0
    notices: tuple[PanelNotice, ...] = ()


class VoteChoice(StrEnum):
    """A vote, by side; the keys 1 to 4, in this order."""

    LEFT = "left"
    RIGHT = "right"
    TIE = "tie"
    BOTH_BAD = "both_bad"

    def preference(self, side: Side) -> Preference:
        """Return the preference for the conversation on a side."""
        match self:
            case VoteChoice.TIE:
                return Preference.TIE
            case VoteChoice.BOTH_BAD:
                return Preference.BOTH_BAD
            case _:
                return Preference.BETTER if self.value == side else Preference.WORSE


class Stage(StrEnum):
    """The stage of an A/B conversation."""

    OPT_IN = "opt_in"
    READY = "ready"
    ANSWERING = "answering"
    VOTING = "voting"
    FAILED = "failed"  # a model could not reply: no vote is possible
    VOTED = "voted"
    UNBLINDED = "unblinded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """The model and record of a side, after the vote."""

    identity: ModelIdentity
    record: SampleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ABState(BoardState):
    """The state of an A/B board; `votes` counts those in this panel."""

    stage: Stage = Stage.READY
    turns: int = 0
    choice: VoteChoice | None = None
    reason: str = ""
    votes: int = 0
    opt_ins: tuple[OptInRequested, ...] = ()
    revealed: tuple[Revealed, Revealed] | None = None

    @property
    def may_vote(self) -> bool:
        """True while a vote is possible; it can be changed until the models are revealed."""
        return self.stage in {Stage.VOTING, Stage.VOTED}

    @property
    def may_send(self) -> bool:
        """True while a message can be sent; after a vote it begins another conversation."""
        return self.stage not in {Stage.OPT_IN, Stage.ANSWERING, Stage.FAILED}


def blinded(event: ChatEvent) -> ChatEvent:
    """Return an event without what identifies the model: name, raw text, address."""
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
    """The form of a label: the corrected call and reply, with validation errors.

    Args:
        number: counts forms, so that each gets the focus once.
        verdict: the label.
        tool: the tool of the corrected call.
        fields: the fields of its arguments.
        typed: the input, by field.
        say: the corrected reply.
        errors: validation errors, by field.
        error: a validation error of the whole call.
    """

    number: int
    verdict: LabelKind
    tool: str = ""
    fields: tuple[FormField, ...] = ()
    typed: Typed = field(default_factory=dict)
    say: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)
    error: str = ""

    @property
    def has_call(self) -> bool:
        """True if the label has a corrected call."""
        return self.verdict in WITH_CALL

    @property
    def has_reply(self) -> bool:
        """True if the label has a corrected reply."""
        return self.verdict in WITH_WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewState(BoardState):
    """The state of a review; `tools` are argument schemas, by locale and name.

    With the `question` of a judge each conversation is one place.
    """

    reviewer: str
    records: tuple[SampleRecord, ...]
    tools: Mapping[str, Mapping[str, Mapping[str, Any]]]
    labels: Mapping[CallPlace, Label] = field(default_factory=dict)
    place: int = 0
    form: Correction | None = None
    forms: int = 0
    compared: ReviewComparison | None = None
    question: str = ""

    def places_in(self, record: SampleRecord) -> tuple[CallPlace, ...]:
        """Return the places to label in a conversation."""
        places = tuple(places_of(record))
        return places[-1:] if self.question else places

    @property
    def record(self) -> SampleRecord:
        """The current conversation."""
        return self.records[self.conversation]

    @property
    def places(self) -> tuple[CallPlace, ...]:
        """The calls and replies to label in the current conversation."""
        return self.places_in(self.record)

    @property
    def current(self) -> CallPlace:
        """The current place."""
        return self.places[self.place]

    @property
    def call(self) -> CallRecord | None:
        """The call at the current place; None for a reply."""
        place = self.current
        if place.call is None:
            return None
        return self.record.trajectory.turns[place.turn].calls[place.call]

    @property
    def choices(self) -> tuple[LabelKind, ...]:
        """The labels for the current place; the keys 1 to 3, in this order."""
        if self.question:
            return ANSWERS
        return REPLY_LABELS if self.call is None else CALL_LABELS

    @property
    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """The argument schemas of the tools in the current conversation."""
        schemas = self.tools.get(self.record.locale)
        return schemas if schemas is not None else next(iter(self.tools.values()), {})

    def is_done(self, record: SampleRecord) -> bool:
        """Return whether a conversation is labelled completely."""
        return all(place in self.labels for place in self.places_in(record))

    @property
    def done(self) -> int:
        """The number of completely labelled conversations."""
        return sum(self.is_done(record) for record in self.records)

    def moved(self, conversation: int, place: int = 0) -> "ReviewState":
        """Return the state at the nearest existing place; both numbers count from 0."""
        number = min(max(conversation, 0), len(self.records) - 1)
        last = len(self.places_in(self.records[number])) - 1
        place = min(max(place, 0), last)
        return replace(self, conversation=number, place=place, form=None, notices=(), compared=None)

    def at_next_open(self) -> "ReviewState | None":
        """Return the state at the next unlabelled place, wrapping around, or None."""
        count = len(self.records)
        for step in range(count + 1):
            number = (self.conversation + step) % count
            for index, place in enumerate(self.places_in(self.records[number])):
                is_behind = step == 0 and index <= self.place
                if place not in self.labels and not is_behind:
                    return self.moved(number, index)
        return None

    def correction(self, verdict: LabelKind, tool: str | None = None) -> Correction:
        """Return a form for the current place, filled in from its label or record."""
        label, call = self.labels.get(self.current), self.call
        number = self.forms + 1
        say = label.say if label is not None else ""
        if verdict not in WITH_CALL:
            return Correction(number=number, verdict=verdict, say=say)
        made: tuple[str, Any] = ("", None) if call is None else (call.tool, call.effective_args)
        if label is not None and label.verdict is verdict:
            made = (label.tool, label.args)
        form = call_form(self.schemas, made, tool, number=number, verdict=verdict)
        return replace(form, say=say)


def call_form(
    schemas: Mapping[str, Mapping[str, Any]],
    made: tuple[str, Any],
    tool: str | None,
    *,
    number: int,
    verdict: LabelKind,
) -> Correction:
    """Return the form of a call.

    Args:
        schemas: the argument schemas of the tools.
        made: tool and arguments to fill in.
        tool: another tool that was chosen.
        number: of the form.
        verdict: the label.
    """
    name = tool or made[0]
    if name not in schemas:
        name = next(iter(schemas), "")
    args = made[1] if name == made[0] and isinstance(made[1], Mapping) else {}
    fields = argument_fields(schemas.get(name, {}))
    typed = {
        field.name: format_value(field, args[field.name]) for field in fields if field.name in args
    }
    return Correction(number=number, verdict=verdict, tool=name, fields=fields, typed=typed)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftState(BoardState):
    """The state of a review of drafts; `conversation` is the number of the draft.

    Attributes:
        reviewer: the reviewer's name.
        content: the drafts and the decisions.
        records: the chats that are still there, by draft.
        schemas: the argument schemas of the tools while a form is open.
        is_busy: True while the calls of an edited scenario run.
    """

    reviewer: str
    content: Drafts
    records: Mapping[str, SampleRecord] = field(default_factory=dict)
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    form: Correction | None = None
    forms: int = 0
    is_busy: bool = False
    places: tuple[CallPlace, ...] = ()  # none to label
    labels: Mapping[CallPlace, Label] = field(default_factory=dict)

    @property
    def draft(self) -> Draft:
        """The current draft."""
        return tuple(self.content.drafts.values())[self.conversation]

    @property
    def decision(self) -> DraftDecision | None:
        """The decision on the current draft."""
        return self.content.decisions.get(self.draft.id)

    @property
    def turns(self) -> tuple[TurnRecord, ...]:
        """The conversation up to the turn of the draft; without its chat, the messages."""
        record = self.records.get(self.draft.id)
        if record is not None:
            return record.trajectory.turns[: self.draft.source.turn + 1]
        messages = (turn["user"] for turn in self.draft.scenario["turns"])
        return tuple(TurnRecord(user=user, ended=EndReason.STOPPED) for user in messages)

    @property
    def current(self) -> CallPlace:
        """The call or reply that the draft is about."""
        source, first = self.draft.source, self.draft.findings[0]
        calls = self.turns[-1].calls if self.turns else ()
        found = (
            i
            for i, call in enumerate(calls)
            if call.tool == first.tool and (call.is_edited or not call.ran)
        )
        return CallPlace(sample=source.chat, turn=source.turn, call=next(found, None))

    def moved(self, number: int) -> "DraftState":
        """Return the state at the nearest existing draft; numbers count from 0."""
        number = min(max(number, 0), len(self.content.drafts) - 1)
        return replace(self, conversation=number, form=None, notices=())

    def at_next_open(self) -> "DraftState | None":
        """Return the state at the next draft without a decision, wrapping around, or None."""
        names = [*self.content.drafts]
        for step in range(1, len(names) + 1):
            number = (self.conversation + step) % len(names)
            if names[number] not in self.content.decisions:
                return self.moved(number)
        return None
