"""What happens in a panel besides the controller's events: questions, notes, the opt-in."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from lhkit.confirm.form import Form
from lhkit.confirm.gate import ConfirmRequest
from lhkit.events import ChatEvent
from lhkit.responses import ModelIdentity


class QuestionOutcome(StrEnum):
    """What became of a question, and why. Only the four that say so are a yes."""

    RUN = "run"
    SENT = "sent"  # a form, filled in
    TYPED_YES = "typed_yes"
    CODE_YES = "code_yes"  # answered by the program, such as a notebook under nbval
    CANCEL = "cancel"
    DECLINED = "declined"  # a form
    ESCAPE = "escape"
    TYPED_NO = "typed_no"
    CODE_NO = "code_no"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    CLOSED = "closed"
    NOBODY = "nobody"  # no front end that can click, nobody who can type
    FAILED = "failed"
    WITHDRAWN = "withdrawn"  # whoever asked is gone, or does not want to know any more

    @property
    def is_allowed(self) -> bool:
        """True if the tool may run, or the form be sent."""
        return self in _ALLOWED


_ALLOWED = frozenset(
    {
        QuestionOutcome.RUN,
        QuestionOutcome.SENT,
        QuestionOutcome.TYPED_YES,
        QuestionOutcome.CODE_YES,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOpened:
    """A question is put to the user; `card` names it. With a form it asks for more than a yes."""

    card: str
    request: ConfirmRequest
    form: Form | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFaulted:
    """A form was sent with values that do not fit: why, in words, by the names of fields."""

    card: str
    faults: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSettled:
    """The question has its answer."""

    card: str
    outcome: QuestionOutcome


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelNotice:
    """The panel says something of its own; `is_fault` if something went wrong."""

    text: str
    is_fault: bool = False


CardEvent: TypeAlias = CardOpened | CardFaulted | CardSettled
PanelEvent: TypeAlias = (
    ChatEvent | CardEvent | Noted | FaultShown | TurnDropped | ModelChosen | OptInAsked | OptedIn
)
