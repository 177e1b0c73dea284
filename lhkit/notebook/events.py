"""What happens in a panel besides the controller's events: questions, notes, the opt-in."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from lhkit.confirm.gate import ConfirmRequest
from lhkit.vocab.events import ChatEvent
from lhkit.vocab.generation import ModelIdentity


class Outcome(StrEnum):
    """What became of a question, and why. Only the three that say so let the tool run."""

    RUN = "run"
    TYPED_YES = "typed_yes"
    CODE_YES = "code_yes"  # answered by the program, such as a notebook under nbval
    CANCEL = "cancel"
    ESCAPE = "escape"
    TYPED_NO = "typed_no"
    CODE_NO = "code_no"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    CLOSED = "closed"
    NOBODY = "nobody"  # no front end that can click, nobody who can type
    FAILED = "failed"

    @property
    def is_allowed(self) -> bool:
        """True if the tool may run."""
        return self in _ALLOWED


_ALLOWED = frozenset({Outcome.RUN, Outcome.TYPED_YES, Outcome.CODE_YES})


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOpened:
    """A question is put to the user; `card` names it."""

    card: str
    request: ConfirmRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSettled:
    """The question has its answer."""

    card: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """The panel says something of its own."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultShown:
    """Something went wrong outside a turn; `detail` is for who looks closer."""

    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDropped:
    """The last turn is taken back: it will be asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChosen:
    """Who answers from now on."""

    identity: ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class OptInAsked:
    """The user is asked whether their text may go to the model. `licence` is a sentence."""

    model: str
    address: str
    licence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptedIn:
    """The user said that it may."""


CardEvent: TypeAlias = CardOpened | CardSettled
PanelEvent: TypeAlias = (
    ChatEvent | CardEvent | Noted | FaultShown | TurnDropped | ModelChosen | OptInAsked | OptedIn
)
