"""The state of a panel: a pure fold of the controller's events and the panel's own.

An event costs the same however long the conversation is, but for one copy of a tuple of
references where an item is added.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from lhkit.events import (
    CallReady,
    CallSettled,
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
from lhkit.notebook.events import (
    CardFaulted,
    CardOpened,
    CardSettled,
    FaultShown,
    ModelChosen,
    Noted,
    OptedIn,
    OptInAsked,
    PanelEvent,
    TurnDropped,
)
from lhkit.notebook.items import (
    AssistantItem,
    CardItem,
    Ending,
    ErrorItem,
    Item,
    NoteItem,
    OptInItem,
    ToolItem,
    UserItem,
)
from lhkit.responses import ModelIdentity
from lhkit.tool_results import ToolCancelled

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
