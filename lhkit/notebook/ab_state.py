"""What an A/B panel says beside its two conversations, folded from events; pure."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias, assert_never

from lhkit.events import CallSettled, ChatEvent, TurnEnded
from lhkit.harness.record import Preference, SampleRecord
from lhkit.notebook.events import OptedIn, OptInAsked, PanelNotice
from lhkit.responses import Finished, ModelIdentity

Side: TypeAlias = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")


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
class Begun:
    """Another conversation: two fresh worlds, and a new order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message went to both models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Both are done; `has_failed` if one of them could not answer."""

    has_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteKept:
    """A vote is on the disk."""

    choice: VoteChoice
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unblinded:
    """The names are known; the vote stays as it is."""

    left: Revealed
    right: Revealed


ABEvent: TypeAlias = (
    Begun | Sent | Answered | VoteKept | Unblinded | PanelNotice | OptInAsked | OptedIn
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ABState:
    """Everything that stands below the two conversations. `votes` were given in this panel."""

    stage: Stage = Stage.READY
    turns: int = 0
    choice: VoteChoice | None = None
    reason: str = ""
    votes: int = 0
    conversation: int = 0
    told: tuple[PanelNotice, ...] = ()
    opt_ins: tuple[OptInAsked, ...] = ()
    revealed: tuple[Revealed, Revealed] | None = None

    @property
    def may_vote(self) -> bool:
        """True while a vote is taken; one may be changed until the names are known."""
        return self.stage in {Stage.VOTING, Stage.VOTED}

    @property
    def may_send(self) -> bool:
        """True while a message is taken; after a vote it begins another conversation."""
        return self.stage not in {Stage.OPT_IN, Stage.ANSWERING, Stage.FAILED}


def fold_ab(state: ABState, event: ABEvent) -> ABState:
    """Return the state after `event`."""
    match event:
        case OptInAsked():
            return replace(state, stage=Stage.OPT_IN, opt_ins=(*state.opt_ins, event))
        case OptedIn():
            return replace(state, stage=Stage.READY, opt_ins=())
        case Begun():
            return ABState(votes=state.votes, conversation=state.conversation + 1)
        case Sent():
            return replace(state, stage=Stage.ANSWERING, told=(), turns=state.turns + 1)
        case Answered(has_failed=has_failed):
            return replace(state, stage=Stage.FAILED if has_failed else Stage.VOTING)
        case VoteKept(choice=choice, reason=reason):
            votes = state.votes + (state.choice is None)
            return replace(
                state, stage=Stage.VOTED, choice=choice, reason=reason, votes=votes, told=()
            )
        case Unblinded(left=left, right=right):
            return replace(state, stage=Stage.UNBLINDED, revealed=(left, right))
        case PanelNotice():
            return replace(state, told=(*state.told, event))
        case _:
            assert_never(event)


def blinded(event: ChatEvent) -> ChatEvent:
    """Return the event without what would tell which model it is of: name, raw text, address."""
    match event:
        case Finished():
            calls = tuple(replace(call, raw="") for call in event.calls)
            fragment = "…" if event.fragment else ""
            return replace(event, identity=None, raw_text="", calls=calls, fragment=fragment)
        case CallSettled(message=message):
            return CallSettled(message=replace(message, call=replace(message.call, raw="")))
        case TurnEnded():
            return replace(event, detail=None)
        case _:
            return event
