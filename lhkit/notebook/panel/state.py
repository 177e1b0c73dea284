"""The state of a panel: its items, its events, and the pure fold of events into the state.

The chat's part is folded by `chat.state`, as in the controller.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import TypeAlias

from lhkit.base.json_values import JSON
from lhkit.chat.state import ChatState, apply_event
from lhkit.confirm.decision import QuestionOutcome
from lhkit.confirm.form import Form
from lhkit.confirm.gate import ConfirmRequest
from lhkit.conversation.events import ChatEvent, EndReason, HistoryCleared, TurnEnded, TurnStarted
from lhkit.conversation.messages import (
    FalseReplyClaim,
    Message,
    ModelMessage,
    SystemMessage,
    ToolCallMessage,
    UserMessage,
)
from lhkit.conversation.responses import Finished, ModelIdentity

WHY_CHARS = 500
"""The most characters of a reason for a rejection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardItem:
    """A confirmation card; `outcome` is None while it is open.

    Also the event that shows it: a card with the same id is replaced.

    Args:
        card: the card's id.
        request: the question; after an edit, that of the edited call.
        outcome: the answer.
        form: the form to fill in, for a question of a server in mid-call. Its input is not stored.
        edit: the form with the call's arguments, while the user edits them.
        errors: validation errors of the form as last sent, by field; of all arguments under "".
        proposed: the arguments as the model proposed them, if the user has edited them.
        reason: the user's reason for a rejection.
        attempts: how often the open card was changed; an answer names it.
    """

    card: str
    request: ConfirmRequest
    outcome: QuestionOutcome | None = None
    form: Form | None = None
    edit: Form | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    proposed: Mapping[str, JSON] | None = None
    reason: str = ""
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenItem:
    """Text of the model that an error cut off."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorItem:
    """An error message with technical `detail`; `can_retry` shows a button."""

    text: str
    detail: str = ""
    can_retry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OptInRequested:
    """The question for consent to send text to the model.

    Attributes:
        model: its name.
        address: its address; empty for a model in memory.
        licence: a sentence.
        policy: what a policy of approvals lets run without a question; empty without one.
    """

    model: str
    address: str
    licence: str
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDropped:
    """The last turn was dropped, to be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChosen:
    """The model was set."""

    identity: ModelIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class OptedIn:
    """The user gave consent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthItem:
    """The lines under a turn that say what its calls wrote.

    `claim` are the words of the reply that contradict them.
    """

    calls: tuple[ToolCallMessage, ...]
    claim: FalseReplyClaim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelNotice:
    """A notice on a board; `is_error` for an error."""

    text: str
    is_error: bool = False


Item: TypeAlias = Message | CardItem | BrokenItem | ErrorItem | TruthItem | OptInRequested
"""An entry of the panel's list. A `ToolCallMessage` without an outcome is pending."""

PanelEvent: TypeAlias = (
    ChatEvent | CardItem | ErrorItem | TurnDropped | ModelChosen | OptInRequested | OptedIn
)


_LOST = frozenset({"ServerUnreachableError", "StreamBrokenError", "StreamStalledError"})
"""Errors of a failed turn after which the server may be gone."""


class ModelStatus(StrEnum):
    """The connection to the model."""

    READY = "ready"
    ANSWERING = "answering"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """Tokens and seconds of a turn; `duration_s` excludes the time that the user takes."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    duration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """Everything that a panel shows.

    `extras` are items that are not messages, with the number of messages before them.
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
        """The list from top to bottom; text before a call is its own message."""
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
        """The items from the last user message on."""
        items = self.items
        places = [i for i, item in enumerate(items) if isinstance(item, UserMessage)]
        return items[places[-1] :] if places else items

    @property
    def live(self) -> str | None:
        """The reply so far while it streams, else None."""
        return self.chat.streaming_text

    @property
    def is_busy(self) -> bool:
        """True while a turn runs."""
        return self.chat.is_streaming

    @property
    def connection(self) -> ModelStatus:
        """The connection to the model."""
        if self.is_busy:
            return ModelStatus.ANSWERING
        return ModelStatus.LOST if self.is_lost else ModelStatus.READY

    @property
    def needs_opt_in(self) -> bool:
        """True while the question for consent is open."""
        return any(isinstance(item, OptInRequested) for _, item in self.extras)

    @property
    def open_card(self) -> CardItem | None:
        """The open card; there is at most one."""
        for _, item in reversed(self.extras):
            if isinstance(item, CardItem) and item.outcome is None:
                return item
        return None

    @property
    def is_repeatable(self) -> bool:
        """True if there is a turn to repeat."""
        return self.chat.transcript.user_turns > 0

    def has_written(self, destructive: Collection[str]) -> bool:
        """Return whether one of the `destructive` tools ran in the last turn."""
        calls = self.chat.transcript.calls_of_this_turn
        return any(
            call.name in destructive and call.outcome is not None and call.outcome.ran
            for call in calls
        )


def fold(state: PanelState, event: PanelEvent, *, at_s: float = 0.0) -> PanelState:
    """Return the state after an event that arrived at `at_s` monotonic seconds."""
    match event:
        case CardItem() if any(_is_card(item, event.card) for _, item in state.extras):
            extras = tuple(
                (number, event if _is_card(item, event.card) else item)
                for number, item in state.extras
            )
            return replace(state, extras=extras)
        case SystemMessage() | CardItem() | ErrorItem() | OptInRequested():
            return _with_item(state, event)
        case OptedIn():
            extras = tuple(
                (number, item)
                for number, item in state.extras
                if not isinstance(item, OptInRequested)
            )
            return replace(state, extras=extras)
        case ModelChosen(identity=identity):
            return replace(state, identity=identity)
        case TurnDropped():
            transcript = state.chat.transcript.without_last_turn()
            end = len(transcript.messages)
            extras = tuple((number, item) for number, item in state.extras if number <= end)
            return replace(state, chat=ChatState(transcript=transcript), extras=extras)
        case _:
            return _fold_chat_event(state, event, at_s)


def _with_item(state: PanelState, item: Item) -> PanelState:
    transcript = state.chat.transcript
    before = len(transcript.messages) + len(transcript.pending)
    return replace(state, extras=(*state.extras, (before, item)))


def _is_card(item: Item, card: str) -> bool:
    return isinstance(item, CardItem) and item.card == card


def _fold_chat_event(state: PanelState, event: ChatEvent, at_s: float) -> PanelState:
    after = replace(state, chat=apply_event(state.chat, event))
    match event:
        case TurnStarted():
            return replace(after, figures=TurnFigures(), started_s=at_s)
        case Finished(usage=usage):
            figures = TurnFigures(
                prompt_tokens=state.figures.prompt_tokens + usage.prompt_tokens,
                completion_tokens=state.figures.completion_tokens + usage.completion_tokens,
            )
            return replace(after, figures=figures, identity=event.identity or state.identity)
        case TurnEnded():
            return _end_turn(state, after, event, at_s)
        case HistoryCleared():
            return PanelState(identity=state.identity, is_lost=state.is_lost)
        case _:
            return after


def _end_turn(before: PanelState, after: PanelState, event: TurnEnded, at_s: float) -> PanelState:
    text = (before.live or "").strip()
    if text and event.reason is not EndReason.STOPPED:
        after = _with_item(after, BrokenItem(text=text))
    if event.error is not None:
        can_retry = event.reason is EndReason.FAILED
        error = ErrorItem(text=event.error, detail=event.detail or "", can_retry=can_retry)
        after = _with_item(after, error)
    transcript = after.chat.transcript
    calls = tuple(transcript.calls_of_this_turn)
    # a turn that was retried has one already
    extras = tuple(
        (number, item)
        for number, item in after.extras
        if not isinstance(item, TruthItem) or number <= transcript.turn_start
    )
    truth = TruthItem(calls=calls, claim=event.claim)
    after = _with_item(replace(after, extras=extras), truth)
    waited_s = sum(call.outcome.waiting_s for call in calls if call.outcome is not None)
    duration_s = max(0.0, at_s - after.started_s - waited_s)
    return replace(
        after,
        is_lost=event.cause in _LOST,
        figures=replace(after.figures, duration_s=duration_s),
        has_figures=True,
    )
