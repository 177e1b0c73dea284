"""Panel state is a fold of events."""

from dataclasses import replace

from lhkit.confirm.decision import QuestionOutcome
from lhkit.confirm.gate import ConfirmRequest
from lhkit.conversation.events import (
    CallCompleted,
    EndReason,
    HistoryCleared,
    ModelCalled,
    TurnEnded,
    TurnStarted,
)
from lhkit.conversation.messages import (
    GateOutcome,
    ModelMessage,
    SystemMessage,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
    UserMessage,
)
from lhkit.conversation.responses import Finished, TextDelta, ToolCallParsed, Usage
from lhkit.conversation.tool_results import ToolOk
from lhkit.notebook.panel.state import (
    BrokenItem,
    CardItem,
    ErrorItem,
    ModelStatus,
    PanelEvent,
    PanelState,
    TruthItem,
    TurnDropped,
    fold,
)

REQUEST = ConfirmRequest(tool="write", description="d", args={}, summary="s")
CARD = CardItem(card="1", request=REQUEST)
NOTHING = TruthItem(calls=())
CALL = ToolCall(name="write", args={"a": 1}, raw="raw")


def folded(*events: PanelEvent, state: PanelState | None = None) -> PanelState:
    state = state or PanelState()
    for number, event in enumerate(events):
        state = fold(state, event, at_s=float(number))
    return state


def started(text: str = "hi") -> TurnStarted:
    return TurnStarted(message=UserMessage(text=text))


def completed(call: ToolCall, text: str = "", waiting_s: float = 0.0) -> CallCompleted:
    outcome = ToolCallOutcome(
        result=ToolOk({"done": True}),
        gate=GateOutcome.ACCEPTED,
        args=call.args,
        ran=True,
        waiting_s=waiting_s,
    )
    return CallCompleted(message=ToolCallMessage(call=call, outcome=outcome, text=text))


def test_fold_streams_text_into_a_message() -> None:
    midway = folded(started(), ModelCalled(turn=1), TextDelta(text="he"))
    assert midway.live == "he"
    done = folded(
        TextDelta(text="llo"),
        Finished(reason="stop", text="hello"),
        TurnEnded(reason=EndReason.ANSWERED),
        state=midway,
    )
    assert done.items == (UserMessage(text="hi"), ModelMessage(text="hello"), NOTHING)
    assert (done.live, done.is_busy, done.connection) == (None, False, ModelStatus.READY)


def test_fold_settles_a_call_in_place() -> None:
    state = folded(
        started(),
        ModelCalled(turn=1),
        TextDelta(text="I add it."),
        ToolCallParsed(call=CALL),
        Finished(reason="stop", text="I add it.", calls=(CALL,)),
        CARD,
    )
    kinds = [type(item) for item in state.items]
    assert kinds == [UserMessage, ModelMessage, ToolCallMessage, CardItem]
    assert state.items[2].outcome is None
    assert state.open_card == CARD
    after = folded(
        replace(CARD, outcome=QuestionOutcome.RUN),
        completed(CALL, "I add it."),
        state=state,
    )
    assert [type(item) for item in after.items] == kinds
    assert after.open_card is None
    assert after.items[2].result == ToolOk({"done": True})
    assert after.has_written({"write"})
    assert not after.has_written({"other"})


def test_fold_keeps_a_card_after_its_calls() -> None:
    two = (CALL, replace(CALL, args={"a": 2}))
    state = folded(started(), Finished(reason="stop", calls=two), CARD)
    kinds = [UserMessage, ToolCallMessage, ToolCallMessage, CardItem]
    assert [type(item) for item in state.items] == kinds
    later = folded(
        SystemMessage(text="note"), completed(two[0]), completed(two[1]), ModelCalled(turn=2),
        Finished(reason="stop", text="done"), state=state,
    )  # fmt: skip
    assert [type(item) for item in later.items] == [*kinds, SystemMessage, ModelMessage]


def test_fold_keeps_partial_text_on_stop() -> None:
    state = folded(
        started(),
        ModelCalled(turn=1),
        TextDelta(text="and so"),
        TurnEnded(reason=EndReason.STOPPED),
    )
    assert state.items[1:] == (ModelMessage(text="and so", stopped=True), NOTHING)


def test_fold_keeps_partial_text_on_error() -> None:
    failed = TurnEnded(reason=EndReason.FAILED, error="gone")
    state = folded(started(), ModelCalled(turn=1), TextDelta(text="and so"), failed)
    assert state.items[1:] == (
        BrokenItem(text="and so"),
        ErrorItem(text="gone", can_retry=True),
        NOTHING,
    )
    assert state.chat.messages == (UserMessage(text="hi"),)


def test_fold_marks_a_lost_server_and_a_retry() -> None:
    failed = TurnEnded(
        reason=EndReason.FAILED, error="gone", cause="ServerUnreachableError", detail="at x"
    )
    state = folded(started(), ModelCalled(turn=1), failed)
    assert state.items[-2] == ErrorItem(text="gone", detail="at x", can_retry=True)
    assert state.connection is ModelStatus.LOST
    again = folded(TurnStarted(message=None), state=state)
    assert again.connection is ModelStatus.ANSWERING
    assert again.last_turn[0] == UserMessage(text="hi")


def test_fold_sums_figures_without_waiting_time() -> None:
    usage = Usage(prompt_tokens=100, completion_tokens=7)
    first = Finished(reason="stop", usage=usage, calls=(CALL,))
    state = folded(
        started(),  # at 0 s
        ModelCalled(turn=1),
        ToolCallParsed(call=CALL),
        first,
        completed(CALL, waiting_s=3.0),
        ModelCalled(turn=2),
        Finished(reason="stop", usage=usage),
        TurnEnded(reason=EndReason.ANSWERED),  # at 7 s
    )
    figures = state.figures
    assert (figures.prompt_tokens, figures.completion_tokens) == (200, 14)
    assert figures.duration_s == 4.0


def test_fold_drops_a_turn_and_clears() -> None:
    two = folded(
        started("one"),
        TurnEnded(reason=EndReason.ANSWERED),
        started("two"),
        TurnEnded(reason=EndReason.ANSWERED),
    )
    assert folded(TurnDropped(), state=two).items == (UserMessage(text="one"), NOTHING)
    assert folded(HistoryCleared(), state=two).items == ()
