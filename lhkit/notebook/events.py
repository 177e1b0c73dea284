"""What a panel shows and hears besides the conversation: questions, faults, the opt-in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lhkit.confirm.form import Form
from lhkit.confirm.gate import ConfirmRequest, QuestionOutcome
from lhkit.events import ChatEvent
from lhkit.messages import Message
from lhkit.responses import ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class CardItem:
    """A question to the user; `outcome` is None while it is open. As an event: it is put.

    With a form it asks for more than a yes: `faults` are those of the form as it was sent last, the
    `attempts`-th time. What is typed into a form is never in here.
    """

    card: str
    request: ConfirmRequest
    outcome: QuestionOutcome | None = None
    form: Form | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenItem:
    """Words of the model that were cut off by a fault."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorItem:
    """A fault as a sentence; `detail` for who looks closer. `can_retry` offers a button."""

    text: str
    detail: str = ""
    can_retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OptInRequested:
    """The user is asked whether their text may go to the model. `licence` is a sentence."""

    model: str
    address: str
    licence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CardInvalid:
    """A form was sent with values that do not fit: why, in words, by the names of fields."""

    card: str
    faults: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSettled:
    """The question has its answer."""

    card: str
    outcome: QuestionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDropped:
    """The last turn is taken back: it will be asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChosen:
    """Who answers from now on."""

    identity: ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class OptedIn:
    """The user agreed that it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelNotice:
    """A notice of a board; `is_fault` if something went wrong."""

    text: str
    is_fault: bool = False


Item: TypeAlias = Message | CardItem | BrokenItem | ErrorItem | OptInRequested
"""An entry of a panel's list. A `ToolCallMessage` without an outcome is still pending."""

PanelEvent: TypeAlias = (
    ChatEvent
    | CardItem
    | CardInvalid
    | CardSettled
    | ErrorItem
    | TurnDropped
    | ModelChosen
    | OptInRequested
    | OptedIn
)
