"""What the panel shows, folded from events; pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias, assert_never

from lhkit.confirm.form import Form
from lhkit.confirm.gate import ConfirmRequest
from lhkit.events import (
    CallReady,
    CallSettled,
    ChatEvent,
    DispatchTrace,
    EndReason,
    HintAdded,
    HistoryCleared,
    ModelCalled,
    ModelFinished,
    TextStreamed,
    ThinkingStreamed,
    TurnEnded,
    TurnStarted,
)
from lhkit.responses import ModelIdentity
from lhkit.tool_results import ToolCancelled, ToolResult

# What happens in a panel besides the controller's events: questions, notes, the opt-in.


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


CardEvent: TypeAlias = CardOpened | CardFaulted | CardSettled
PanelEvent: TypeAlias = (
    ChatEvent | CardEvent | Noted | FaultShown | TurnDropped | ModelChosen | OptInAsked | OptedIn
)


# What stands in the message list, from top to bottom: frozen values, no text of ours.


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


# The state of a panel: a pure fold of the controller's events and the panel's own.
#
# An event costs the same however long the conversation is, but for one copy of a tuple of
# references where an item is added.


_LOST = frozenset({"ServerUnreachableError", "StreamBrokenError", "StreamStalledError"})
"""Causes of a failed turn after which the server may be gone."""


class ModelStatus(StrEnum):
    """How it stands with the model."""

    READY = "ready"
    ANSWERING = "answering"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """What one turn took. Seconds; the time spent waiting for a person is not in `duration_s`."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_token_s: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """Everything a panel shows. `live` is the answer that streams, None when none does."""

    items: tuple[Item, ...] = ()
    live: str | None = None
    is_busy: bool = False
    needs_opt_in: bool = False
    connection: ModelStatus = ModelStatus.READY
    identity: ModelIdentity | None = None
    figures: TurnFigures = field(default_factory=TurnFigures)
    has_figures: bool = False
    started_s: float = 0.0
    turn_start: int = 0
    """Where the items of the last turn begin."""

    @property
    def open_card(self) -> CardItem | None:
        """The question that waits for an answer; there is at most one."""
        for item in reversed(self.items[self.turn_start :]):
            if isinstance(item, CardItem) and item.outcome is None:
                return item
        return None

    @property
    def last_turn(self) -> tuple[Item, ...]:
        """What was said and done since the user last spoke, the user's words included."""
        return self.items[self.turn_start :]

    @property
    def is_repeatable(self) -> bool:
        """True if there is a last turn that could be asked again."""
        return any(isinstance(item, UserItem) for item in self.last_turn)

    def has_written(self, destructive: Collection[str]) -> bool:
        """Return True if one of the tools named ran in the last turn."""
        calls = (item for item in self.last_turn if isinstance(item, ToolItem))
        return any(
            call.name in destructive and call.trace is not None and call.trace.ran for call in calls
        )


def fold(state: PanelState, event: PanelEvent, *, at_s: float = 0.0) -> PanelState:  # noqa: C901, PLR0912 - one arm an event
    """Return the state after `event`, which came at `at_s` seconds of a monotonic clock."""
    match event:
        case TurnStarted():
            return _started(state, event, at_s)
        case ModelCalled():
            return replace(state, live="")
        case TextStreamed(text=text):
            return replace(state, live=(state.live or "") + text)
        case ThinkingStreamed():
            return state
        case CallReady(call=call):
            item = ToolItem(name=call.name, args=call.args, raw=call.raw)
            return _with(_said(state, live=""), item)
        case ModelFinished():
            return _finished(state, event)
        case CallSettled():
            return _settled(state, event)
        case HintAdded(message=message):
            return _with(state, NoteItem(text=message.text))
        case TurnEnded():
            return _ended(state, event, at_s)
        case HistoryCleared():
            return PanelState(identity=state.identity, connection=state.connection)
        case CardOpened(card=card, request=request, form=form):
            return _with(state, CardItem(card=card, request=request, form=form))
        case CardFaulted() | CardSettled():
            return _on_card(state, event)
        case Noted(text=text):
            return _with(state, NoteItem(text=text))
        case FaultShown(text=text, detail=detail):
            return _with(state, ErrorItem(text=text, detail=detail))
        case TurnDropped():
            return replace(state, items=state.items[: state.turn_start])
        case ModelChosen(identity=identity):
            return replace(state, identity=identity)
        case OptInAsked(model=model, address=address, licence=licence):
            asked = OptInItem(model=model, address=address, licence=licence)
            return replace(_with(state, asked), needs_opt_in=True)
        case OptedIn():
            kept = tuple(item for item in state.items if not isinstance(item, OptInItem))
            return replace(state, items=kept, needs_opt_in=False, turn_start=len(kept))
        case _:
            assert_never(event)


def _with(state: PanelState, item: Item) -> PanelState:
    return replace(state, items=(*state.items, item))


def _started(state: PanelState, event: TurnStarted, at_s: float) -> PanelState:
    begun = replace(
        state,
        is_busy=True,
        live="",
        connection=ModelStatus.ANSWERING,
        figures=TurnFigures(),
        started_s=at_s,
    )
    if event.message is None:  # a failed turn taken up again
        return begun
    begun = replace(begun, turn_start=len(state.items))
    return _with(begun, UserItem(text=event.message.text))


def _said(state: PanelState, *, live: str | None, ending: Ending = Ending.COMPLETE) -> PanelState:
    """Turn the words that streamed so far into an item; `live` is what streams next."""
    text = (state.live or "").strip()
    if text:
        state = _with(state, AssistantItem(text=text, ending=ending))
    return replace(state, live=live)


def _finished(state: PanelState, event: ModelFinished) -> PanelState:
    response = event.response
    figures = state.figures
    first_token_s = response.timing.first_token_s
    figures = replace(
        figures,
        prompt_tokens=figures.prompt_tokens + response.usage.prompt_tokens,
        cached_tokens=figures.cached_tokens + (response.usage.cached_tokens or 0),
        completion_tokens=figures.completion_tokens + response.usage.completion_tokens,
        first_token_s=figures.first_token_s if figures.first_token_s is not None else first_token_s,
    )
    identity = response.identity or state.identity
    return replace(_said(state, live=None), figures=figures, identity=identity)


def _settled(state: PanelState, event: CallSettled) -> PanelState:
    """Give the first call that waits its result; a call that was cut off waited nowhere."""
    message = event.message
    settled = ToolItem(
        name=message.name,
        args=message.args,
        raw=message.raw,
        result=message.result,
        trace=event.trace,
    )
    for index in range(state.turn_start, len(state.items)):
        item = state.items[index]
        if isinstance(item, ToolItem) and item.result is None and item.name == message.name:
            return _replaced(state, index, settled)
    return _with(state, settled)


def _on_card(state: PanelState, event: CardFaulted | CardSettled) -> PanelState:
    for index in range(len(state.items) - 1, -1, -1):
        item = state.items[index]
        if isinstance(item, CardItem) and item.card == event.card:
            return _replaced(state, index, _after(item, event))
    return state


def _after(item: CardItem, event: CardFaulted | CardSettled) -> CardItem:
    if isinstance(event, CardSettled):
        return replace(item, outcome=event.outcome, faults={})
    return replace(item, faults=event.faults, attempts=item.attempts + 1)


def _replaced(state: PanelState, index: int, item: Item) -> PanelState:
    return replace(state, items=(*state.items[:index], item, *state.items[index + 1 :]))


def _ended(state: PanelState, event: TurnEnded, at_s: float) -> PanelState:
    ending = Ending.STOPPED if event.reason is EndReason.STOPPED else Ending.BROKEN
    state = _without_waiting(_said(state, live=None, ending=ending))
    if event.error is not None:
        can_retry = event.reason is EndReason.FAILED
        error = ErrorItem(text=event.error, detail=event.detail or "", can_retry=can_retry)
        state = _with(state, error)
    is_lost = event.cause in _LOST
    waited_s = sum(
        item.trace.waiting_s
        for item in state.last_turn
        if isinstance(item, ToolItem) and item.trace is not None
    )
    return replace(
        state,
        is_busy=False,
        connection=ModelStatus.LOST if is_lost else ModelStatus.READY,
        figures=replace(state.figures, duration_s=max(0.0, at_s - state.started_s - waited_s)),
        has_figures=True,
    )


def _without_waiting(state: PanelState) -> PanelState:
    """Cancel the calls that never came to be carried out: the model was stopped before."""
    turn = state.last_turn
    if not any(isinstance(item, ToolItem) and item.result is None for item in turn):
        return state
    settled = tuple(
        replace(item, result=ToolCancelled())
        if isinstance(item, ToolItem) and item.result is None
        else item
        for item in turn
    )
    return replace(state, items=(*state.items[: state.turn_start], *settled))
