"""The items of a panel's message list, from top to bottom: frozen values, no text of ours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from lhkit.confirm.form import Form
from lhkit.confirm.gate import ConfirmRequest
from lhkit.events import DispatchTrace
from lhkit.notebook.events import QuestionOutcome
from lhkit.tool_results import ToolResult


class Ending(StrEnum):
    """How a message of the model ended."""

    COMPLETE = "complete"
    STOPPED = "stopped"  # by the user
    BROKEN = "broken"  # by a fault


@dataclass(frozen=True, slots=True, kw_only=True)
class UserItem:
    """What the user said."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantItem:
    """What the model said."""

    text: str
    ending: Ending = Ending.COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolItem:
    """A call; `result` is None while it waits, `trace` None where nothing was dispatched."""

    name: str
    args: Any
    raw: str = ""
    result: ToolResult | None = None
    trace: DispatchTrace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardItem:
    """A question to the user; `outcome` is None while it is open.

    `faults` are those of the form as it was sent last, the `attempts`-th time. What is typed into a
    form is never in here.
    """

    card: str
    request: ConfirmRequest
    outcome: QuestionOutcome | None = None
    form: Form | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteItem:
    """A hint or a word of the panel."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorItem:
    """A fault as a sentence; `detail` for who looks closer. `can_retry` offers a button."""

    text: str
    detail: str = ""
    can_retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OptInItem:
    """The question before anything is sent to a model."""

    model: str
    address: str
    licence: str


Item: TypeAlias = UserItem | AssistantItem | ToolItem | CardItem | NoteItem | ErrorItem | OptInItem
