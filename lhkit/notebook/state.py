"""The state of a panel: the chat's state, and what is shown besides. A pure fold of events.

The chat's part is `chat.state`, folded by the same function as the controller's.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import TypeAlias

from lhkit.chat.state import ChatState, apply_event
from lhkit.confirm.decision import QuestionOutcome
from lhkit.confirm.form import Form
from lhkit.confirm.gate import ConfirmRequest
from lhkit.events import ChatEvent, EndReason, HistoryCleared, TurnEnded, TurnStarted
from lhkit.messages import Message, ModelMessage, SystemMessage, ToolCallMessage, UserMessage
from lhkit.responses import Finished, ModelIdentity


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
    """Everything a panel shows.

    `extras` are the items that are no messages of the conversation, each with the number of
    messages before it.
    """

    chat: ChatState = field(default_factory=ChatState)
    extras: tuple[tuple[int, Item], ...] = ()
    is_lost: bool = False
    identity: ModelIdentity | None = None
    figures: TurnFigures = field(default_factory=TurnFigures)
    has_figures: bool = False
    started_s: float = 0.0

    @property
    def items(self) -> tuple[Item, ...]:
        """The list from top to bottom: words before calls are a message of their own."""
        extras = defaultdict[int, list[Item]](list)
        for number, item in self.extras:
            extras[number].append(item)
        transcript = self.chat.transcript
        items: list[Item] = []
        for number, message in enumerate(chain(transcript.messages, transcript.pending)):
            items += extras.pop(number, ())
            if isinstance(message, ToolCallMessage) and message.text.strip():
                items.append(ModelMessage(text=message.text.strip()))
            if not isinstance(message, ModelMessage) or message.text.strip():
                items.append(message)
        return (*items, *chain.from_iterable(extras.values()))

    @property
    def last_turn(self) -> tuple[Item, ...]:
        """The items from the user's last message on."""
        items = self.items
        places = [i for i, item in enumerate(items) if isinstance(item, UserMessage)]
        return items[places[-1] :] if places else items

    @property
    def live(self) -> str | None:
        """The answer that streams, None when none does."""
        return self.chat.streaming_text

    @property
    def is_busy(self) -> bool:
        """True while a turn runs."""
        return self.chat.is_streaming

    @property
    def connection(self) -> ModelStatus:
        """How it stands with the model."""
        if self.is_busy:
            return ModelStatus.ANSWERING
        return ModelStatus.LOST if self.is_lost else ModelStatus.READY

    @property
    def needs_opt_in(self) -> bool:
        """True while the user is asked whether anything may be sent."""
        return any(isinstance(item, OptInRequested) for _, item in self.extras)

    @property
    def open_card(self) -> CardItem | None:
        """The question that waits for an answer; there is at most one."""
        for _, item in reversed(self.extras):
            if isinstance(item, CardItem) and item.outcome is None:
                return item
        return None

    @property
    def is_repeatable(self) -> bool:
        """True if there is a last turn that could be asked again."""
        return self.chat.transcript.user_turns > 0

    def has_written(self, destructive: Collection[str]) -> bool:
        """Return True if one of the tools named ran in the last turn."""
        calls = self.chat.transcript.calls_of_this_turn
        return any(
            call.name in destructive and call.outcome is not None and call.outcome.ran
            for call in calls
        )


def fold(state: PanelState, event: PanelEvent, *, at_s: float = 0.0) -> PanelState:
    """Return the state after `event`, which came at `at_s` seconds of a monotonic clock."""
    match event:
        case SystemMessage() | CardItem() | ErrorItem() | OptInRequested():
            return _with(state, event)
        case CardInvalid() | CardSettled():
            extras = tuple((number, _after(item, event)) for number, item in state.extras)
            return replace(state, extras=extras)
        case OptedIn():
            kept = tuple(each for each in state.extras if not isinstance(each[1], OptInRequested))
            return replace(state, extras=kept)
        case ModelChosen(identity=identity):
            return replace(state, identity=identity)
        case TurnDropped():
            transcript = state.chat.transcript.without_last_turn()
            end = len(transcript.messages)
            kept = tuple(each for each in state.extras if each[0] <= end)
            return replace(state, chat=ChatState(transcript=transcript), extras=kept)
        case _:
            return _in_chat(state, event, at_s)


def _with(state: PanelState, item: Item) -> PanelState:
    transcript = state.chat.transcript
    before = len(transcript.messages) + len(transcript.pending)
    return replace(state, extras=(*state.extras, (before, item)))


def _after(item: Item, event: CardInvalid | CardSettled) -> Item:
    if not isinstance(item, CardItem) or item.card != event.card:
        return item
    if isinstance(event, CardSettled):
        return replace(item, outcome=event.outcome, faults={})
    return replace(item, faults=event.faults, attempts=item.attempts + 1)


def _in_chat(state: PanelState, event: ChatEvent, at_s: float) -> PanelState:
    after = replace(state, chat=apply_event(state.chat, event))
    match event:
        case TurnStarted():
            return replace(after, figures=TurnFigures(), started_s=at_s)
        case Finished(usage=usage, timing=timing):
            figures = state.figures
            first_s = figures.first_token_s
            figures = replace(
                figures,
                prompt_tokens=figures.prompt_tokens + usage.prompt_tokens,
                cached_tokens=figures.cached_tokens + (usage.cached_tokens or 0),
                completion_tokens=figures.completion_tokens + usage.completion_tokens,
                first_token_s=timing.first_token_s if first_s is None else first_s,
            )
            return replace(after, figures=figures, identity=event.identity or state.identity)
        case TurnEnded():
            return _ended(state, after, event, at_s)
        case HistoryCleared():
            return PanelState(identity=state.identity, is_lost=state.is_lost)
        case _:
            return after


def _ended(before: PanelState, after: PanelState, event: TurnEnded, at_s: float) -> PanelState:
    words = before.live or ""
    if words.strip() and event.reason is not EndReason.STOPPED:
        after = _with(after, BrokenItem(text=words.strip()))
    if event.error is not None:
        can_retry = event.reason is EndReason.FAILED
        error = ErrorItem(text=event.error, detail=event.detail or "", can_retry=can_retry)
        after = _with(after, error)
    calls = after.chat.transcript.calls_of_this_turn
    waited_s = sum(call.outcome.waiting_s for call in calls if call.outcome is not None)
    duration_s = max(0.0, at_s - after.started_s - waited_s)
    return replace(
        after,
        is_lost=event.cause in _LOST,
        figures=replace(after.figures, duration_s=duration_s),
        has_figures=True,
    )
